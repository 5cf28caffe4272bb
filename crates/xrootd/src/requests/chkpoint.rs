//! chkpoint: changes of an open file that are kept or undone together, even after a crash. As in the stock server, a
//! file has at most one checkpoint, and a close or a lost connection rolls it back. Unlike there, every write belongs
//! to the open checkpoint, even outside `kXR_ckpXeq`, so a rollback restores exactly the file as it was.

use service::OpenFile;
use wire::request::{Chkpoint, ChkpointOp, Target};
use wire::response::ChkpointReply;
use wire::{ErrorNumber, FileHandle, Request, RequestHeader, RequestKind, StreamId};

use crate::connection::{Connection, Stop};
use crate::to_wire::RequestError;

impl Connection {
    /// kXR_chkpoint.
    #[inline(never)] // see `dispatch`
    pub(crate) fn chkpoint(&mut self, stream: StreamId, r: &Chkpoint) -> Result<Result<(), RequestError>, Stop> {
        if let ChkpointOp::Execute(inner) = &r.op {
            return self.chkpoint_execute(stream, inner);
        }
        let file = match self.file(r.handle) {
            Ok(file) => file,
            Err(request_error) => return Ok(Err(request_error)),
        };
        // This waits for the disk.
        self.out.leave()?;
        let result = end_or_begin(&file, &r.op);
        self.out.back();
        Ok(result.and_then(|size| match size {
            None => self.ok(stream, |_| ()),
            Some(size) => self.ok(stream, |out| size.encode(out)),
        }))
    }

    /// kXR_ckpXeq: contains another request, whose data follows on the connection.
    fn chkpoint_execute(&mut self, stream: StreamId, inner: &RequestHeader) -> Result<Result<(), RequestError>, Stop> {
        if inner.kind == RequestKind::Writev && inner.dlen == 0 {
            return Ok(self.ok(stream, |_| ()));
        }
        let list = usize::try_from(inner.dlen).unwrap_or(0);
        let request = match inner.kind {
            RequestKind::Writev => self.decode_with_payload(inner, list)?,
            _ => Request::decode(inner, &[]),
        };
        let request = match request {
            Ok(request) => request,
            Err(error) => {
                self.refuse(stream, &RequestError::of_wire(&error));
                if inner.kind == RequestKind::Writev {
                    return Err(error.into());
                }
                self.skip(u64::try_from(inner.dlen).unwrap_or(0))?;
                return Ok(Ok(()));
            }
        };
        if let Err(request_error) =
            one_file(&request).and_then(|handle| Ok(self.file(handle)?.must_have_checkpoint()?))
        {
            self.skip(request.following())?;
            return Ok(Err(request_error));
        }
        match request {
            Request::Write(r) => self.write(stream, &r),
            Request::Pgwrite(r) => self.pgwrite(stream, &r),
            Request::Writev(r) => self.writev(stream, &r),
            Request::Truncate(r) => self.truncate(stream, &r),
            other => Ok(Err(not_inside(other.kind()))),
        }
    }
}

/// The file that the contained request changes.
fn one_file(request: &Request) -> Result<FileHandle, RequestError> {
    match request {
        Request::Write(r) => Ok(r.handle),
        Request::Pgwrite(r) => Ok(r.handle),
        Request::Truncate(r) => match r.target {
            Target::Handle(handle) => Ok(handle),
            Target::Path(_) => Err(not_inside(RequestKind::Truncate)),
        },
        Request::Writev(r) => match r.segments.split_first() {
            Some((first, rest)) if rest.iter().all(|segment| segment.handle == first.handle) => Ok(first.handle),
            _ => Err(RequestError::unsupported("A writev to several files under the checkpoint of one")),
        },
        other => Err(not_inside(other.kind())),
    }
}

fn not_inside(kind: RequestKind) -> RequestError {
    let text = format!("The request {} cannot be done under a checkpoint", kind.name());
    RequestError::new(ErrorNumber::ARG_INVALID, text)
}

/// Handles an operation other than `Execute`. Returns the sizes for a query.
fn end_or_begin(file: &OpenFile, op: &ChkpointOp) -> Result<Option<ChkpointReply>, RequestError> {
    match op {
        ChkpointOp::Begin => file.begin_checkpoint()?,
        ChkpointOp::Commit => file.commit_checkpoint()?,
        ChkpointOp::Rollback => file.roll_back()?,
        ChkpointOp::Query => {
            let sizes = file.checkpoint_sizes()?;
            let number = |bytes| u32::try_from(bytes).unwrap_or(u32::MAX);
            return Ok(Some(ChkpointReply { limit: number(sizes.limit), used: number(sizes.used) }));
        }
        ChkpointOp::Execute(inner) => return Err(not_inside(inner.kind)),
    }
    Ok(None)
}
