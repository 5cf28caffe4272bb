//! mkdir, rm, rmdir, mv, chmod, truncate: changes of names and attributes. They are handed to the committer, which
//! answers when they are on the disk; this thread goes on with the next request.

use std::sync::Arc;

use namespace::{Durability, How, NsError, OpenWrite, Operation};
use wire::StreamId;
use wire::request::{Chmod, Mkdir, MkdirOptions, Mv, Rm, Rmdir, Target, Truncate};

use crate::connection::{Connection, Stop};
use crate::endings;
use crate::node::Role;
use crate::open_file::{Access, Lease, LeaseFacts, LeaseState};
use crate::refusal::Refusal;
use crate::requests::{parse_new_path, parse_path};
use crate::writers::Owner;

/// Directories made without permission bits get these.
const DIRECTORY_MODE: u16 = 0o755;

impl Connection {
    /// kXR_mkdir.
    #[inline(never)] // see `dispatch`
    pub(crate) fn mkdir(&mut self, stream: StreamId, r: Mkdir) -> Result<Result<(), Refusal>, Stop> {
        let path = match parse_new_path(&r.target.path) {
            Ok(path) => path,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let mode = if r.mode.0 & 0o777 == 0 { DIRECTORY_MODE } else { r.mode.0 & 0o777 };
        let parents = r.options.has(MkdirOptions::MKPATH);
        self.change(stream, "mkdir", namespace::Mkdir { path, mode, parents })
    }

    /// kXR_rm. As the stock server does it, also of an empty directory.
    #[inline(never)] // see `dispatch`
    pub(crate) fn rm(&mut self, stream: StreamId, r: &Rm) -> Result<Result<(), Refusal>, Stop> {
        match parse_path(&r.target.path) {
            Ok(path) => self.remove(stream, namespace::RemoveAny { path }),
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// kXR_rmdir.
    #[inline(never)] // see `dispatch`
    pub(crate) fn rmdir(&mut self, stream: StreamId, r: &Rmdir) -> Result<Result<(), Refusal>, Stop> {
        match parse_path(&r.target.path) {
            Ok(path) => self.remove(stream, namespace::Rmdir { path }),
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// kXR_mv. As in POSIX and as the stock server does it, a file at the new name is replaced.
    #[inline(never)] // see `dispatch`
    pub(crate) fn mv(&mut self, stream: StreamId, r: &Mv) -> Result<Result<(), Refusal>, Stop> {
        match (parse_path(&r.from.path), parse_new_path(&r.to.path)) {
            (Ok(from), Ok(to)) => self.change(stream, "rename", namespace::Rename { from, to, replace: true }),
            (Err(refusal), _) | (_, Err(refusal)) => Ok(Err(refusal)),
        }
    }

    /// kXR_chmod.
    #[inline(never)] // see `dispatch`
    pub(crate) fn chmod(&mut self, stream: StreamId, r: &Chmod) -> Result<Result<(), Refusal>, Stop> {
        match parse_path(&r.target.path) {
            Ok(path) => self.change(stream, "change the mode of", namespace::Chmod { path, mode: r.mode.0 & 0o777 }),
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// What frees space goes through on a full disk.
    fn remove<O>(&mut self, stream: StreamId, op: O) -> Result<Result<(), Refusal>, Stop>
    where
        O: Operation + Send + 'static,
    {
        let reply = self.hand_on(stream)?;
        let done = move |result: Result<O::Reply, NsError>| {
            reply.settle(result.map(|_| ()).map_err(|error| Refusal::of_namespace(&"remove", &error)));
        };
        self.node.change_urgent(Durability::Synced, op, done);
        Ok(Ok(()))
    }

    pub(super) fn change<O>(&mut self, stream: StreamId, verb: &'static str, op: O) -> Result<Result<(), Refusal>, Stop>
    where
        O: Operation + Send + 'static,
    {
        let reply = self.hand_on(stream)?;
        let done = move |result: Result<O::Reply, NsError>| {
            reply.settle(result.map(|_| ()).map_err(|error| Refusal::of_namespace(&verb, &error)));
        };
        self.node.change(Durability::Synced, op, done);
        Ok(Ok(()))
    }

    /// kXR_truncate of an open file or of a path.
    #[inline(never)] // see `dispatch`
    pub(crate) fn truncate(&mut self, stream: StreamId, r: &Truncate) -> Result<Result<(), Refusal>, Stop> {
        match &r.target {
            Target::Handle(handle) => {
                let file = match self.file(*handle) {
                    Ok(file) => file,
                    Err(refusal) => return Ok(Err(refusal)),
                };
                let Access::Write(access) = &file.access else {
                    return Ok(Err(Refusal::read_only(&file.path)));
                };
                if let Err(refusal) = file.must_not_be_fetched() {
                    return Ok(Err(refusal));
                }
                self.out.leave()?;
                let result = access.hold().and_then(|hold| {
                    let cut = hold.writer_to_change().truncate(r.len);
                    if cut.is_ok() {
                        access.lease.missing.lock().cut(r.len);
                    }
                    cut.map_err(|error| error.refusal(&format_args!("truncate {}", file.path)))
                });
                self.out.back();
                Ok(result.and_then(|()| self.ok(stream, |_| ())))
            }
            Target::Path(target) => match parse_path(&target.path) {
                Ok(path) => match &self.node.role {
                    Role::Alone { .. } => self.truncate_path(stream, path, r.len),
                    Role::Manager(manager) => {
                        let manager = Arc::clone(manager);
                        let client = self.identity();
                        let op = OpenWrite::new(path, How::Update, client, self.node.config.boot);
                        let reply = self.hand_on(stream)?;
                        self.redirect_truncate(&manager, target, op, reply);
                        Ok(Ok(()))
                    }
                    Role::Disk(_) => self.truncate_granted(stream, target, path, r.len),
                },
                Err(refusal) => Ok(Err(refusal)),
            },
        }
    }

    /// An update in place that the server makes itself: cut, complete, commit.
    fn truncate_path(&mut self, stream: StreamId, path: types::NsPath, len: u64) -> Result<Result<(), Refusal>, Stop> {
        let reply = self.hand_on(stream)?;
        let node = self.node.clone();
        let client = Arc::new(self.identity());
        let owner = Owner(self.session.number);
        let op = namespace::Truncate { path: path.clone(), len, client: (*client).clone(), boot: node.config.boot };
        let inner = node.clone();
        let done = move |result: Result<Option<namespace::OpenedWrite>, NsError>| match result {
            Ok(None) => reply.ok(|_| ()),
            Err(error) => reply.refuse(&Refusal::of_namespace(&"truncate", &error)),
            Ok(Some(opened)) => {
                // In closing standing from the beginning: nobody can take it up, and whatever its end is, it has one.
                let boot = inner.config.boot;
                let facts =
                    LeaseFacts { path, client, fresh: false, begun: false, expected_len: Some(len), boot, room: None };
                let state = LeaseState { owner: None, token: opened.writer, writer: None };
                let lease = Lease::new((opened.ino, opened.object), facts, state);
                let mut writers = inner.writers.lock();
                writers.attach(opened.object, owner, Arc::clone(&lease));
                writers.begin_close(opened.object, owner);
                drop(writers);
                let node = inner.clone();
                inner.must_do(reply, move |reply| endings::truncate(&node, &lease, len, reply));
            }
        };
        node.change(Durability::Written, op, done);
        Ok(Ok(()))
    }
}
