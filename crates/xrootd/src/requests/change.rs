//! mkdir, rm, rmdir, mv, chmod, truncate. The connection's thread does not wait for changes by name.

use service::{Change, RequestNumber};
use wire::StreamId;
use wire::request::{Chmod, Mkdir, MkdirOptions, Mv, Rm, Rmdir, Target, Truncate};

use crate::connection::{Connection, Stop};
use crate::from_wire::{hints_of, parse_new_path, parse_path};
use crate::to_wire::RequestError;

impl Connection {
    /// kXR_mkdir.
    #[inline(never)] // see `dispatch`
    pub(crate) fn mkdir(&mut self, stream: StreamId, r: Mkdir) -> Result<Result<(), RequestError>, Stop> {
        let parents = r.options.has(MkdirOptions::MKPATH);
        let path = parse_new_path(&r.target.path);
        self.change(stream, path.map(|path| Change::Mkdir { path, mode: r.mode.0, parents }))
    }

    /// kXR_rm. Like the stock server, it also removes an empty directory.
    #[inline(never)] // see `dispatch`
    pub(crate) fn rm(&mut self, stream: StreamId, r: &Rm) -> Result<Result<(), RequestError>, Stop> {
        self.change(stream, parse_path(&r.target.path).map(Change::Remove))
    }

    /// kXR_rmdir.
    #[inline(never)] // see `dispatch`
    pub(crate) fn rmdir(&mut self, stream: StreamId, r: &Rmdir) -> Result<Result<(), RequestError>, Stop> {
        self.change(stream, parse_path(&r.target.path).map(Change::Rmdir))
    }

    /// kXR_mv.
    #[inline(never)] // see `dispatch`
    pub(crate) fn mv(&mut self, stream: StreamId, r: &Mv) -> Result<Result<(), RequestError>, Stop> {
        let names = parse_path(&r.from.path).and_then(|from| Ok((from, parse_new_path(&r.to.path)?)));
        self.change(stream, names.map(|(from, to)| Change::Rename { from, to }))
    }

    /// kXR_chmod.
    #[inline(never)] // see `dispatch`
    pub(crate) fn chmod(&mut self, stream: StreamId, r: &Chmod) -> Result<Result<(), RequestError>, Stop> {
        self.change(stream, parse_path(&r.target.path).map(|path| Change::Chmod { path, mode: r.mode.0 }))
    }

    /// Submits a change that was parsed successfully.
    pub(super) fn change(
        &mut self,
        stream: StreamId,
        change: Result<Change, RequestError>,
    ) -> Result<Result<(), RequestError>, Stop> {
        self.numbered_change(stream, change, None)
    }

    /// The same, for a request with a number.
    pub(super) fn numbered_change(
        &mut self,
        stream: StreamId,
        change: Result<Change, RequestError>,
        request: Option<RequestNumber>,
    ) -> Result<Result<(), RequestError>, Stop> {
        let change = match change {
            Ok(change) => change,
            Err(request_error) => return Ok(Err(request_error)),
        };
        let reply = self.hand_on(stream)?;
        self.front.service.change(&self.session.open.caller(), change, request, reply);
        Ok(Ok(()))
    }

    /// kXR_truncate of an open file or of a path.
    #[inline(never)] // see `dispatch`
    pub(crate) fn truncate(&mut self, stream: StreamId, r: &Truncate) -> Result<Result<(), RequestError>, Stop> {
        match &r.target {
            Target::Handle(handle) => {
                let file = match self.file(*handle) {
                    Ok(file) => file,
                    Err(request_error) => return Ok(Err(request_error)),
                };
                self.out.leave()?;
                let result = file.truncate(r.len);
                self.out.back();
                Ok(result.map_err(RequestError::from).and_then(|()| self.ok(stream, |_| ())))
            }
            Target::Path(target) => match parse_path(&target.path) {
                Ok(path) => {
                    let reply = self.hand_on(stream)?;
                    self.front.service.truncate(&self.session.open, path, r.len, &hints_of(target), None, reply);
                    Ok(Ok(()))
                }
                Err(request_error) => Ok(Err(request_error)),
            },
        }
    }
}
