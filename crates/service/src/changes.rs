//! Changes of names and attributes. The committer answers when they are on the disk; the caller's thread does not
//! wait.

use std::sync::Arc;

use namespace::{
    Chmod, Chown, CommitStriped, Durability, Link, Mkdir, NsError, OpenWrite, OpenedWrite, Operation, RemoveAny,
    Rename, Rmdir, SetAcl, Sums, Symlink, USUAL_MODE, Utimes,
};
use types::striping::StripedOpenWrite;
use types::{BootId, Crc32c, ErrorCode, NsPath, ObjectId, PrincipalId, RequestNumber, Timestamp};

use crate::answer::Answer;
use crate::audit::{About, Audited};
use crate::caller::{Caller, Rights};
use crate::conflicts::{Claim, Conflict};
use crate::endings::Endings;
use crate::error::Error;
use crate::growth::MayReach;
use crate::lease::{Lease, LeaseFacts, LeaseState};
use crate::names::{By, Names, wall_clock};
use crate::numbers::{self, Numbered};
use crate::opening::Hints;
use crate::service::{Role, Service};
use crate::session::Session;
use crate::writers::Owner;

/// The permission bits of a directory that is created without any.
const DIRECTORY_MODE: u16 = 0o755;

/// A change of names or attributes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Creates a directory.
    Mkdir {
        /// The name.
        path: NsPath,
        /// The permission bits. If none of the lowest nine is set, the directory gets the default.
        mode: u16,
        /// Creates missing parent directories. It is then no error if the directory exists.
        parents: bool,
    },
    /// Removes a file, a symbolic link or an empty directory. This works on a full disk.
    Remove(NsPath),
    /// Removes an empty directory. This works on a full disk.
    Rmdir(NsPath),
    /// Renames something. As in POSIX, an existing file at the new name is replaced.
    Rename {
        /// The old name.
        from: NsPath,
        /// The new name.
        to: NsPath,
    },
    /// Changes the permission bits.
    Chmod {
        /// The name.
        path: NsPath,
        /// The new bits; only the lowest nine are used. A directory keeps its set-group-ID and sticky bits.
        mode: u16,
    },
    /// Gives a file another name.
    Link {
        /// An existing name.
        existing: NsPath,
        /// The new name.
        new: NsPath,
    },
    /// Creates a symbolic link.
    Symlink {
        /// The name.
        path: NsPath,
        /// The target, which is not checked.
        target: Vec<u8>,
    },
    /// Sets the owner and the group.
    Chown {
        /// The name.
        path: NsPath,
        /// The new owner; `None`: it stays.
        owner: Option<PrincipalId>,
        /// The new group; `None`: it stays.
        group: Option<PrincipalId>,
    },
    /// Changes ACLs ([`Service::acl_edit`]).
    SetAcl(SetAcl),
    /// Sets the modification time.
    Touch {
        /// The name.
        path: NsPath,
        /// The new time.
        mtime: Timestamp,
    },
    /// Completes a striped file after all its stripe units have been closed.
    CloseStriped {
        /// The open write.
        writing: StripedOpenWrite,
        /// The modification time; by default it is the time of the close.
        mtime: Option<Timestamp>,
        /// The length in bytes and the checksums, if they are known.
        sums: Option<(u64, types::Adler32, Crc32c)>,
        /// The checksums of the stripe units, if they are known.
        unit_sums: Option<Vec<Crc32c>>,
    },
}

impl Caller {
    /// Fails if the credentials do not allow changes. `what` names the operation.
    pub(crate) fn may_change(&self, what: &dyn std::fmt::Display) -> Result<(), Error> {
        match self.rights {
            Rights::Full => Ok(()),
            Rights::ReadOnly => {
                Err(Error::new(ErrorCode::Denied, format!("Cannot {what}: your credentials allow reading only")))
            }
        }
    }
}

impl Service {
    /// Makes a change. `answer` receives the result when it is on the disk. `request` is the number of the request, if
    /// the client numbers its requests.
    pub fn change(&self, caller: &Caller, change: Change, request: Option<RequestNumber>, answer: impl Answer<()>) {
        if let Some(elsewhere) = self.names_elsewhere() {
            return answer.give(Err(elsewhere));
        }
        let answer = self.audited(caller, || self.about_change(&change), answer);
        if let Err(error) = caller.may_change(&change.verb()) {
            return answer.give(Err(error));
        }
        let (verb, by) = (change.verb(), By::caller(caller).numbered(request));
        match change {
            Change::Mkdir { path, mode, parents } => {
                let mode = if mode & 0o777 == 0 { DIRECTORY_MODE | USUAL_MODE } else { mode & 0o777 };
                self.submit(by, verb, Mkdir { path, mode, parents }, answer);
            }
            Change::Remove(path) => self.submit(by.urgently(), verb, RemoveAny { path }, answer),
            Change::Rmdir(path) => self.submit(by.urgently(), verb, Rmdir { path }, answer),
            Change::Rename { from, to } => self.submit(by, verb, Rename { from, to, replace: true }, answer),
            Change::Chmod { path, mode } => {
                self.submit(by, verb, Chmod { path, mode: mode & 0o777 | Chmod::NINE_BITS }, answer);
            }
            Change::Link { existing, new } => self.submit(by, verb, Link { existing, new }, answer),
            Change::Symlink { path, target } => self.submit(by, verb, Symlink { path, target }, answer),
            Change::Chown { path, owner, group } => self.submit(by, verb, Chown { path, owner, group }, answer),
            Change::SetAcl(edit) => self.submit(by, verb, edit, answer),
            Change::Touch { path, mtime } => {
                self.submit(by, verb, Utimes { path, mtime: Some(mtime), atime: None }, answer);
            }
            Change::CloseStriped { writing, mtime, sums, unit_sums } => {
                let sums = sums.map(|(len, adler32, crc32c)| (len, Sums { adler32, crc32c }));
                self.submit(by, verb, CommitStriped { writing, mtime, sums, unit_sums }, answer);
            }
        }
    }

    fn submit<O>(&self, by: By, verb: &'static str, op: O, answer: impl Answer<()>)
    where
        O: Operation + Send + 'static,
    {
        let done = move |result: Result<O::Reply, NsError>| {
            answer.give(result.map(|_| ()).map_err(|error| Error::of_namespace(&verb, &error)));
        };
        self.names.change(by, Durability::Synced, op, done);
    }

    /// Truncates or extends the file at `path` to `len` bytes, as an update in place by the server. `hints` may
    /// contain the client's capability. `request` is the number of the request, if the client numbers its requests.
    pub fn truncate(
        self: &Arc<Self>,
        session: &Arc<Session>,
        path: NsPath,
        len: u64,
        hints: &Hints,
        request: Option<RequestNumber>,
        answer: impl Answer<()>,
    ) {
        let caller = session.caller();
        // On a disk server only the capability says who the caller is.
        let answer = match &self.role {
            Role::Disk(_) | Role::Standby(_) => Audited::without_line(answer),
            Role::Alone { .. } | Role::Manager(_) => self.audited(&caller, || About::truncation(&path, len), answer),
        };
        if let Err(error) = caller.may_change(&format_args!("truncate {path}")) {
            return answer.give(Err(error));
        }
        let under_way = match request.map(|request| self.numbers.begin(request).ok_or(request)).transpose() {
            Ok(under_way) => under_way,
            Err(request) => return answer.give(Err(numbers::under_way(request))),
        };
        let answer = Numbered::new(answer, under_way);
        // A disk server cannot tell whether the request is a repeated one.
        if let (Some(request), true) = (request, self.has_names()) {
            match self.truncated_by(&caller, request) {
                Ok(None) => {}
                Ok(Some(outcome)) => return answer.give(outcome),
                Err(error) => return answer.give(Err(error)),
            }
        }
        match &self.role {
            Role::Alone { .. } => {
                let truncation = Truncation {
                    names: self.names.clone(),
                    endings: Arc::clone(&self.endings),
                    caller,
                    owner: session.owner(),
                    path,
                    len,
                    boot: self.settings.config.boot,
                    request,
                    has_settled: false,
                };
                truncation.submit(answer);
            }
            Role::Manager(manager) => {
                let manager = Arc::clone(manager);
                let (how, boot) = (namespace::WriteMode::Update, self.settings.config.boot);
                // The quotas must have room for this length.
                let op =
                    OpenWrite { expected_len: Some(len), ..OpenWrite::new(path, how, caller.client.clone(), boot) };
                self.redirect_truncate(&manager, &caller, hints, op, answer);
            }
            Role::Disk(disk) => self.truncate_granted(&Arc::clone(disk), session, (hints, request), path, len, answer),
            Role::Standby(standby) => answer.give(Err(standby.active.elsewhere())),
        }
    }
}

/// A truncation by name on a single node.
struct Truncation {
    names: Names,
    endings: Arc<Endings>,
    caller: Arc<Caller>,
    owner: Owner,
    path: NsPath,
    len: u64,
    boot: BootId,
    request: Option<RequestNumber>,
    /// An open write of another client was ended for it.
    has_settled: bool,
}

impl Truncation {
    fn submit(self, answer: impl Answer<()>) {
        let Self { path, len, boot, caller, request, .. } = &self;
        let (client, request) = (caller.client.clone(), *request);
        let op = namespace::Truncate { path: path.clone(), len: *len, client, boot: *boot, request };
        let (names, by) = (self.names.clone(), By::caller(caller));
        names.change(by, Durability::Written, op, move |result| self.decided(result, answer));
    }

    /// Called by the committer, so it must not block.
    fn decided(self, result: Result<Option<OpenedWrite>, NsError>, answer: impl Answer<()>) {
        let endings = Arc::clone(&self.endings);
        match result {
            Ok(None) => answer.give(Ok(())),
            Err(NsError::Busy { writer, .. }) => {
                endings.workers.must_do(answer, move |answer| self.settle(writer.object, answer));
            }
            Err(error) => answer.give(Err(Error::of_namespace(&"truncate", &error))),
            Ok(Some(opened)) => {
                let Self { path, caller, owner, len, boot, request, .. } = self;
                // The file is in the state `Closing` from the beginning, so nobody can take it over before it ends.
                let facts = LeaseFacts {
                    path,
                    caller,
                    fresh: false,
                    begun: false,
                    expected_len: Some(len),
                    boot,
                    opened: wall_clock(),
                    room: None,
                    // It has reserved this very length.
                    may_reach: MayReach::any(),
                };
                let state = LeaseState { owner: None, token: opened.writer, writer: None };
                let lease = Lease::new((opened.ino, opened.object), facts, state);
                let mut writers = endings.writes.lock();
                writers.attach(opened.object, owner, Arc::clone(&lease));
                writers.begin_close(opened.object, owner);
                drop(writers);
                let inner = Arc::clone(&endings);
                endings.workers.must_do(answer, move |answer| inner.truncate(&lease, len, request, answer));
            }
        }
    }

    /// Another client has the file open. Tries again if that open write could be ended. May wait for the disk.
    fn settle(mut self, object: ObjectId, answer: impl Answer<()>) {
        let conflict = self.endings.settle(object, self.caller.principal, Claim::NeedsComplete);
        match conflict {
            // Once: another open write may have begun meanwhile.
            Conflict::Ended if !std::mem::replace(&mut self.has_settled, true) => self.submit(answer),
            conflict => answer.give(Err(conflict.error("truncate", &self.path))),
        }
    }
}

impl Change {
    /// The operation, for errors.
    fn verb(&self) -> &'static str {
        match self {
            Change::Mkdir { .. } => "mkdir",
            Change::Remove(_) | Change::Rmdir(_) => "remove",
            Change::Rename { .. } => "rename",
            Change::Chmod { .. } => "change the mode of",
            Change::Link { .. } => "link",
            Change::Symlink { .. } => "make the link",
            Change::Chown { .. } => "change the owner of",
            Change::SetAcl(_) => "change the ACL of",
            Change::Touch { .. } => "touch",
            Change::CloseStriped { .. } => "close",
        }
    }
}
