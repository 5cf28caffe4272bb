//! The lease on a file that is being written: its owner, and what is known about its data.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use namespace::WriterToken;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use types::{BootId, ErrorCode, Ino, NsPath, ObjectId, Timestamp};

use crate::caller::Caller;
use crate::error::Error;
use crate::growth::MayReach;
use crate::missing::Missing;
use crate::sharers::{ShareId, Sharers};
use crate::write_target::{WriteTarget, WriteTargetError};
use crate::writer_memory::Room;
use crate::writers::Owner;

/// Why a close failed, for a client that closes again.
pub(crate) type Failure = Arc<Mutex<Option<Error>>>;

/// The right of one handle to write.
pub(crate) struct WriteAccess {
    /// Must equal the owner of the lease: the session of the handle, or one that it has joined.
    pub(crate) key: Owner,
    /// Its share, which must be one of the lease's.
    pub(crate) share: ShareId,
    /// Its close has begun.
    pub(crate) is_closing: AtomicBool,
    /// Shared with a later handle, if the client loses its connection.
    pub(crate) lease: Arc<Lease>,
    /// Why its client may not read through it, if it may not.
    unreadable: Option<Unreadable>,
    /// A planted bug: writes even if another session owns the lease.
    unfenced: bool,
}

/// Why a client that may write a file may not read it.
#[derive(Clone, Debug)]
pub(crate) enum Unreadable {
    /// The namespace has denied it, for this reason.
    Denied(Error),
    /// The capability is to write alone. The manager knows why.
    ByCapability,
}

/// An object that is being written, and its owner. The lease outlives its handle until the grace period is over.
pub(crate) struct Lease {
    /// The inode of the file.
    pub(crate) ino: Ino,
    /// The object.
    pub(crate) object: ObjectId,
    /// The name at the time of the open.
    pub(crate) path: NsPath,
    /// The writer.
    pub(crate) caller: Arc<Caller>,
    /// The object is not yet visible: it is a new file or an upload, not an update in place.
    pub(crate) fresh: bool,
    /// The data is in stripe units that other servers may have.
    pub(crate) is_striped: bool,
    /// An update in place that began with this lease: nothing was changed before it.
    begun: bool,
    /// The data may have changed since.
    changed: AtomicBool,
    /// The announced length (`oss.asize`).
    pub(crate) expected_len: Option<u64>,
    /// The boot of the kernel in which the file was opened.
    pub(crate) boot: BootId,
    /// When the client opened it.
    pub(crate) opened: Timestamp,
    /// The modification time that the client wants to set at the close.
    mtime: Mutex<Option<Timestamp>>,
    /// Ranges that were refused through any handle and not written since.
    pub(crate) missing: Mutex<Missing>,
    /// The value of `missing` at the beginning of the open checkpoint.
    missing_before: Mutex<Option<Missing>>,
    /// How often a bad pgwrite has ended its connection.
    pub(crate) out_of_step: AtomicU32,
    /// The permission bits that the first handle has shown. A returning client does not request them again.
    pub(crate) mode: OnceLock<u16>,
    /// How far it may go before it must reserve more.
    may_reach: MayReach,
    /// Counts the memory that the open write may hold.
    _room: Option<Room>,
    /// Why the last close failed, until a client takes the file over.
    failure: Failure,
    /// The object has been committed: a client that closes another handle of it has lost nothing.
    committed: AtomicBool,
    /// What was written is to be discarded: nobody continues or completes it.
    discarded: AtomicBool,
    /// The clients that write it. Its lock is taken after that of `state` and that on the open writes, and none after it.
    pub(crate) sharers: Mutex<Sharers>,
    /// The namespace has noted the clients that write it, because there were several.
    has_noted_sharers: AtomicBool,
    /// Locked for reading during each write, so that a fence waits for writes that have begun.
    state: RwLock<LeaseState>,
}

/// Whether a session may continue with a lease under another capability.
#[derive(PartialEq, Eq)]
pub(crate) enum GoesOn {
    /// It may.
    Yes,
    /// It already has a later capability: two opens of one session may arrive in any order.
    HasLater,
    /// Another session owns the lease, or the lease is for another open write: fence it.
    NotHere,
}

/// The values of a lease that are known at the open; see the fields of [`Lease`].
#[allow(missing_docs)]
pub(crate) struct LeaseFacts {
    pub(crate) path: NsPath,
    pub(crate) caller: Arc<Caller>,
    pub(crate) fresh: bool,
    pub(crate) begun: bool,
    pub(crate) expected_len: Option<u64>,
    pub(crate) boot: BootId,
    pub(crate) opened: Timestamp,
    /// `None` if the server makes the change itself, at once.
    pub(crate) room: Option<Room>,
    pub(crate) may_reach: MayReach,
}

/// The changing part of a lease.
pub(crate) struct LeaseState {
    /// The session that has taken the file last, and gives its shares the right to write; `None` after a restart of the server, until the writer returns.
    pub(crate) owner: Option<Owner>,
    /// The writer's identity in the namespace.
    pub(crate) token: WriterToken,
    /// The store's writer; `None` after a restart, and after a completion that could not be committed.
    pub(crate) writer: Option<WriteTarget>,
}

impl Lease {
    pub(crate) fn new((ino, object): (Ino, ObjectId), about: LeaseFacts, state: LeaseState) -> Arc<Self> {
        let LeaseFacts { path, caller, fresh, begun, expected_len, boot, opened, room, may_reach } = about;
        Arc::new(Self {
            ino,
            object,
            path,
            // It outlives the session, for a client that comes back.
            caller: caller.without_delegated(),
            fresh,
            is_striped: matches!(state.writer, Some(WriteTarget::Striped(_))),
            begun,
            changed: AtomicBool::new(false),
            expected_len,
            boot,
            opened,
            mtime: Mutex::new(None),
            missing: Mutex::new(Missing::default()),
            missing_before: Mutex::new(None),
            out_of_step: AtomicU32::new(0),
            mode: OnceLock::new(),
            may_reach,
            _room: room,
            failure: Failure::default(),
            committed: AtomicBool::new(false),
            discarded: AtomicBool::new(false),
            sharers: Mutex::default(),
            has_noted_sharers: AtomicBool::new(false),
            state: RwLock::new(state),
        })
    }

    /// Gives the lease to `owner`, and opens the store's writer with `open` if necessary. After the return only
    /// `owner` can write: all writes of the old owner have ended. Other sessions may have taken the file over in the
    /// meantime. `still` says whether `owner` is still the right one; if not, the result is `None`.
    pub(crate) fn hand_over(
        &self,
        owner: Owner,
        token: WriterToken,
        still: impl FnOnce() -> bool,
        open: impl FnOnce() -> Result<WriteTarget, WriteTargetError>,
    ) -> Result<Option<WriteTarget>, WriteTargetError> {
        let mut state = self.state.write();
        if !still() {
            return Ok(None);
        }
        let writer = match &state.writer {
            Some(writer) => writer.clone(),
            None => open()?,
        };
        if state.owner != Some(owner) {
            // The checkpoint belongs to the old owner, who can no longer end it.
            self.undo_checkpoint(&writer)?;
        }
        state.writer = Some(writer.clone());
        state.owner = Some(owner);
        *self.failure.lock() = None;
        if token.epoch > state.token.epoch || token.key != state.token.key {
            state.token = token;
        }
        Ok(Some(writer))
    }

    /// Continues under a later capability, which the manager has issued because the owning session reopened the file.
    /// After the return all its handles write through `write_target`. XrdCl opens the file once for each waiting write
    /// after an error, and continues with any of the handles.
    pub(crate) fn go_on_with(&self, owner: Owner, token: WriterToken, write_target: &WriteTarget) -> GoesOn {
        let mut state = self.state.write();
        let before = state.token;
        if state.owner != Some(owner) || before.key != token.key {
            return GoesOn::NotHere;
        }
        if before.epoch > token.epoch {
            return GoesOn::HasLater;
        }
        state.token = token;
        state.writer = Some(write_target.clone());
        *self.failure.lock() = None;
        GoesOn::Yes
    }

    /// Rolls back the open checkpoint, and forgets the ranges that were refused under it. Returns whether there was
    /// one.
    fn undo_checkpoint(&self, writer: &WriteTarget) -> Result<bool, WriteTargetError> {
        let undone = writer.checkpoint()?.is_some() && writer.roll_back()?;
        self.sharers.lock().end_checkpoint();
        let before = self.missing_before.lock().take();
        if let (true, Some(before)) = (undone, before) {
            *self.missing.lock() = before;
        }
        Ok(undone)
    }

    /// Whether a checkpoint is open.
    pub(crate) fn has_checkpoint(&self) -> bool {
        self.writer().is_some_and(|writer| matches!(writer.checkpoint(), Ok(Some(_))))
    }

    /// Rolls back the open checkpoint of a writer that is being ended and cannot be taken over.
    pub(crate) fn end_checkpoint(&self) {
        if let Some(writer) = self.writer() {
            self.abandon_checkpoint(&writer);
        }
    }

    /// The end of the writer in the store meets the same failure again and reports it.
    fn abandon_checkpoint(&self, writer: &WriteTarget) {
        match self.undo_checkpoint(writer) {
            Ok(true) => tracing::info!(path = %self.path, "rolled back: its checkpoint was not committed"),
            Ok(false) => {}
            Err(error) => tracing::debug!(path = %self.path, %error, "cannot roll back"),
        }
    }

    /// Why the file cannot be closed as complete: a range was refused and not written since.
    pub(crate) fn doubt(&self) -> Option<Error> {
        let missing = self.missing.lock();
        let (start, end, why) = missing.first()?;
        let kept = if self.fresh { "it is kept as interrupted" } else { "the rest of the change stands" };
        let path = &self.path;
        // The whole file is missing: it must come from a third-party copy.
        let text = if end == u64::MAX {
            let from = if start == 0 { String::new() } else { format!(" from byte {start} on") };
            format!("Cannot close {path} as complete: its third-party copy has not brought it{from}; {kept}")
        } else {
            let ranges = missing.len();
            format!(
                "Cannot close {path} as complete: bytes {start} to {end} were refused or came damaged and have not been written since ({ranges} such ranges in all); {kept}"
            )
        };
        Some(Error::new(why, text))
    }

    /// Sets the modification time that the client wants.
    pub(crate) fn set_mtime(&self, mtime: Timestamp) {
        *self.mtime.lock() = Some(mtime);
    }

    /// The modification time that the client wants; by default it is the time of the close.
    pub(crate) fn mtime(&self) -> Option<Timestamp> {
        *self.mtime.lock()
    }

    /// Records that the close has failed.
    pub(crate) fn set_failure(&self, why: &Error) {
        *self.failure.lock() = Some(why.clone());
    }

    /// Where the reason of a failed close is recorded.
    pub(crate) fn failure(&self) -> &Failure {
        &self.failure
    }

    /// The error for the handles of a writer that has ended.
    pub(crate) fn ended(&self) -> Error {
        self.failure.lock().clone().unwrap_or_else(|| Error::closed_before(&self.path))
    }

    /// Learns from an open of the same open write how far it may go.
    pub(crate) fn learn_reach(&self, len: Option<u64>) {
        self.may_reach.learn(len);
    }

    /// Reserves what is needed to reach `end`, unless that is reserved already.
    ///
    /// # Errors
    /// A quota is used up, or the open write has ended.
    pub(crate) fn reserve(&self, end: u64) -> Result<(), Error> {
        if self.may_reach.includes(end) {
            return Ok(());
        }
        self.may_reach.reserve(self.token(), &self.path, end)
    }

    /// Fences all handles: after the return nobody can write.
    pub(crate) fn fence(&self) {
        let mut state = self.state.write();
        state.owner = None;
        self.sharers.lock().end();
    }

    /// Whether several clients may write it: it is a complete file that is changed in place.
    pub(crate) fn can_be_shared(&self) -> bool {
        !self.fresh && !self.is_striped
    }

    /// The namespace has noted who writes it.
    pub(crate) fn set_noted_sharers(&self) {
        self.has_noted_sharers.store(true, Ordering::Release);
    }

    /// Whether the namespace has noted who writes it.
    pub(crate) fn has_noted_sharers(&self) -> bool {
        self.has_noted_sharers.load(Ordering::Acquire)
    }

    /// Whether nothing has been changed under this lease.
    pub(crate) fn is_untouched(&self) -> bool {
        !self.changed.load(Ordering::Acquire)
    }

    /// Whether the file is certainly the same as before the update.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.begun && self.is_untouched()
    }

    /// The object has been committed.
    pub(crate) fn set_committed(&self) {
        self.committed.store(true, Ordering::Release);
        *self.failure.lock() = None;
    }

    /// Whether the object has been committed.
    pub(crate) fn is_committed(&self) -> bool {
        self.committed.load(Ordering::Acquire)
    }

    /// What was written is to be discarded.
    pub(crate) fn set_discarded(&self) {
        self.discarded.store(true, Ordering::Release);
    }

    /// Whether what was written is to be discarded.
    pub(crate) fn is_discarded(&self) -> bool {
        self.discarded.load(Ordering::Acquire)
    }

    /// Forgets the store's writer, which has ended.
    pub(crate) fn drop_writer(&self) {
        self.state.write().writer = None;
    }

    /// Whether this server waits for the grace period if the client disconnects. It does not for a striped file with
    /// incomplete stripe units. Their own servers wait, and a returning client reopens the units, here or on another
    /// server.
    pub(crate) fn waits_for_its_client(&self) -> bool {
        if !self.is_striped {
            return true;
        }
        // A client is taking the file over at this moment.
        let Some(state) = self.state.try_read() else { return true };
        state.writer.as_ref().is_some_and(|writer| Some(writer.len()) == self.expected_len)
    }

    /// The store's writer, if it is open.
    pub(crate) fn writer(&self) -> Option<WriteTarget> {
        self.state.read().writer.clone()
    }

    /// The open write and its durable length; `None`: it is unknown, or changes hands at this moment. Does not wait for
    /// writes.
    pub(crate) fn length(&self) -> Option<(WriterToken, u64)> {
        let state = self.state.try_read()?;
        Some((state.token, state.writer.as_ref()?.durable_prefix()))
    }

    /// Sets the identity that the namespace has assigned to a reopen, which was then told to wait.
    pub(crate) fn renew(&self, token: WriterToken) {
        self.state.write().token = token;
    }

    /// The same as [`Lease::token`], without waiting. `None`: its writer is being opened, or it changes hands at this moment.
    pub(crate) fn token_now(&self) -> Option<WriterToken> {
        self.state.try_read().map(|state| state.token)
    }

    /// The writer's identity in the namespace.
    pub(crate) fn token(&self) -> WriterToken {
        self.state.read().token
    }
}

/// The right to write, until it is dropped.
pub(crate) struct Hold<'a> {
    lease: &'a Lease,
    _state: RwLockReadGuard<'a, LeaseState>,
    writer: WriteTarget,
}

impl Hold<'_> {
    /// The writer, for operations that change nothing.
    pub(crate) fn writer(&self) -> &WriteTarget {
        &self.writer
    }

    /// The writer, for operations that may change the data even if they fail.
    pub(crate) fn writer_to_change(&self) -> &WriteTarget {
        self.lease.changed.store(true, Ordering::Release);
        &self.writer
    }

    /// Begins a checkpoint. One that is open already is an error of the store.
    pub(crate) fn begin_checkpoint(&self) -> Result<(), WriteTargetError> {
        self.writer.begin_checkpoint().inspect_err(|_| {
            if !matches!(self.writer.checkpoint(), Ok(Some(_))) {
                self.lease.sharers.lock().end_checkpoint();
            }
        })?;
        *self.lease.missing_before.lock() = Some(self.lease.missing.lock().clone());
        Ok(())
    }

    /// Commits the checkpoint.
    pub(crate) fn commit_checkpoint(&self) -> Result<(), WriteTargetError> {
        self.writer.commit_checkpoint()?;
        self.lease.sharers.lock().end_checkpoint();
        *self.lease.missing_before.lock() = None;
        Ok(())
    }

    /// Rolls back the checkpoint. Returns whether there was one.
    pub(crate) fn undo_checkpoint(&self) -> Result<bool, WriteTargetError> {
        self.lease.undo_checkpoint(&self.writer)
    }
}

impl WriteAccess {
    pub(crate) fn new((key, share): (Owner, ShareId), lease: Arc<Lease>, unfenced: bool) -> Self {
        Self { key, share, is_closing: AtomicBool::new(false), lease, unreadable: None, unfenced }
    }

    /// The same for a client that may perhaps not read.
    pub(crate) fn reading(self, unreadable: Option<Unreadable>) -> Self {
        Self { unreadable, ..self }
    }

    /// Whether its client may read through this handle.
    pub(crate) fn may_read(&self) -> Result<(), Error> {
        match &self.unreadable {
            None => Ok(()),
            Some(Unreadable::Denied(error)) => Err(error.clone()),
            Some(Unreadable::ByCapability) => {
                let text = format!(
                    "Cannot read {}: you may write it but not read it, by its permissions or by your credential",
                    self.lease.path
                );
                Err(Error::new(ErrorCode::Denied, text))
            }
        }
    }

    /// As [`WriteAccess::hold`], to read.
    pub(crate) fn hold_to_read(&self) -> Result<Hold<'_>, Error> {
        self.may_read()?;
        self.hold()
    }

    /// Records that the client's bytes at `offset` were refused. A fenced handle changes nothing.
    pub(crate) fn refused(&self, offset: u64, len: u64, why: &Error) {
        if self.hold().is_ok() {
            self.lease.missing.lock().refused(offset, offset.saturating_add(len), why.code());
        }
    }

    /// The right to change the object, until it is dropped. It fails if another connection of the client has taken
    /// the file over, or the share of this handle has ended.
    pub(crate) fn hold(&self) -> Result<Hold<'_>, Error> {
        let state = self.lease.state.read();
        match &state.writer {
            Some(writer) if self.may_write(&state) || self.unfenced => {
                let writer = writer.clone();
                Ok(Hold { lease: &self.lease, _state: state, writer })
            }
            _ => Err(self.why_not(&state)),
        }
    }

    /// Reserves what is needed to reach `end`. Call it before [`WriteAccess::hold`], so that nobody waits for this one. A fenced handle reserves nothing.
    ///
    /// # Errors
    /// A quota is used up, or the handle may no longer write.
    pub(crate) fn reserve(&self, end: u64) -> Result<(), Error> {
        if self.lease.may_reach.includes(end) {
            return Ok(());
        }
        drop(self.hold()?);
        self.lease.reserve(end)
    }

    fn may_write(&self, state: &LeaseState) -> bool {
        state.owner == Some(self.key) && self.lease.sharers.lock().has(self.share)
    }

    /// Rolls back the checkpoint of a handle that disappears without a close, because nobody can end it any more. A
    /// fenced handle changes nothing.
    pub(crate) fn abandon_checkpoint(&self) {
        // Holding the lease ensures that the checkpoint is not one of a new owner.
        if let Ok(hold) = self.hold() {
            self.lease.abandon_checkpoint(&hold.writer);
        }
    }

    /// The error for a handle whose file has been closed or taken over.
    pub(crate) fn is_over(&self) -> Error {
        self.why_not(&self.lease.state.read())
    }

    fn why_not(&self, state: &LeaseState) -> Error {
        if state.owner.is_some() && !self.may_write(state) {
            Error::fenced(&self.lease.path)
        } else {
            self.lease.ended()
        }
    }
}
