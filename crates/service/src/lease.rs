//! The lease on a file that is being written: who may write it now, and what is known of what was written.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use namespace::WriterToken;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use types::{BootId, Ino, NsPath, ObjectId, Timestamp};

use crate::caller::Caller;
use crate::error::Error;
use crate::making::{Making, MakingError};
use crate::missing::Missing;
use crate::writer_memory::Room;
use crate::writers::Owner;

/// Why a close was refused; for whoever closes again.
pub(crate) type Failure = Arc<Mutex<Option<Error>>>;

/// A handle's part in a writer.
pub(crate) struct WriteAccess {
    /// The handle's session, compared with the lease's owner.
    pub(crate) key: Owner,
    /// Shared with the handle that comes after this one, if the connection is lost.
    pub(crate) lease: Arc<Lease>,
    /// A planted bug: goes on although another session owns the lease.
    unfenced: bool,
}

/// One content in the making, and who may write it. Stays when the handle goes, until the grace period is over.
pub(crate) struct Lease {
    /// The inode that will show it.
    pub(crate) ino: Ino,
    /// The content.
    pub(crate) object: ObjectId,
    /// The name at the time of the open.
    pub(crate) path: NsPath,
    /// Who writes.
    pub(crate) caller: Arc<Caller>,
    /// A content that is not visible elsewhere yet: a new file or an upload, not an update in place.
    pub(crate) fresh: bool,
    /// Its bytes are in units that others may have.
    pub(crate) is_striped: bool,
    /// An update in place that has begun with this lease: nothing was changed before.
    begun: bool,
    /// Something may have been changed since.
    changed: AtomicBool,
    /// The announced size (`oss.asize`).
    pub(crate) expected_len: Option<u64>,
    /// The boot of the kernel in which it was opened.
    pub(crate) boot: BootId,
    /// The time of the last change that the client wants it to have when it is complete.
    mtime: Mutex<Option<Timestamp>>,
    /// What was refused and has not been written since, through whichever handle.
    pub(crate) missing: Mutex<Missing>,
    /// What `missing` was when the open checkpoint began.
    missing_before: Mutex<Option<Missing>>,
    /// How often a pgwrite was so wrong that its connection was ended.
    pub(crate) out_of_step: AtomicU32,
    /// The permission bits that its first handle has shown: who comes back asks for none.
    pub(crate) mode: OnceLock<u16>,
    /// What it may hold in memory is counted.
    _room: Option<Room>,
    /// The last close, if it was refused and nobody has taken the file up since.
    failure: Failure,
    /// It has become the file's content: whoever still closes a handle of it has lost nothing.
    committed: AtomicBool,
    /// Held shared while a write is done, so that a fence waits for the writes that have begun.
    state: RwLock<LeaseState>,
}

/// Whether a session goes on with a lease by another permission.
pub(crate) enum GoesOn {
    /// It does.
    Yes,
    /// It does so by a later one already: two opens of one session come in any order.
    HasLater,
    /// Somebody else holds the lease, or it is for another writing: it is to be fenced.
    NotHere,
}

/// What is known of a lease at the open; see the fields of [`Lease`].
#[allow(missing_docs)]
pub(crate) struct LeaseFacts {
    pub(crate) path: NsPath,
    pub(crate) caller: Arc<Caller>,
    pub(crate) fresh: bool,
    pub(crate) begun: bool,
    pub(crate) expected_len: Option<u64>,
    pub(crate) boot: BootId,
    /// None for what the server changes by itself, at once.
    pub(crate) room: Option<Room>,
}

/// The changing part of a lease.
pub(crate) struct LeaseState {
    /// Who may write; `None` after a restart of the server, until somebody comes.
    pub(crate) owner: Option<Owner>,
    /// What the namespace calls the writer.
    pub(crate) token: WriterToken,
    /// The store's side; `None` after a restart, and after a completion that could not be committed.
    pub(crate) writer: Option<Making>,
}

impl Lease {
    pub(crate) fn new((ino, object): (Ino, ObjectId), about: LeaseFacts, state: LeaseState) -> Arc<Self> {
        let LeaseFacts { path, caller, fresh, begun, expected_len, boot, room } = about;
        Arc::new(Self {
            ino,
            object,
            path,
            caller,
            fresh,
            is_striped: matches!(state.writer, Some(Making::Striped(_))),
            begun,
            changed: AtomicBool::new(false),
            expected_len,
            boot,
            mtime: Mutex::new(None),
            missing: Mutex::new(Missing::default()),
            missing_before: Mutex::new(None),
            out_of_step: AtomicU32::new(0),
            mode: OnceLock::new(),
            _room: room,
            failure: Failure::default(),
            committed: AtomicBool::new(false),
            state: RwLock::new(state),
        })
    }

    /// Gives the lease to `owner`, opening the store's side with `open` if need be. From the return on, only `owner`
    /// can write: no write of the old one is under way any more. `still` says whether `owner` is still the one, when
    /// others have asked meanwhile; `None` if not.
    pub(crate) fn hand_over(
        &self,
        owner: Owner,
        token: WriterToken,
        still: impl FnOnce() -> bool,
        open: impl FnOnce() -> Result<Making, MakingError>,
    ) -> Result<Option<Making>, MakingError> {
        let mut state = self.state.write();
        if !still() {
            return Ok(None);
        }
        let writer = match &state.writer {
            Some(writer) => writer.clone(),
            None => open()?,
        };
        if state.owner != Some(owner) {
            // It was the other one's, who cannot end it any more.
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

    /// The session that holds it has opened the file again, and the manager of a cluster has given it a later permission: from the return on all its
    /// handles write through `making`. XrdCl, recovering, opens once for each write that waits, and goes on with whichever handle it likes.
    pub(crate) fn go_on_with(&self, owner: Owner, token: WriterToken, making: &Making) -> GoesOn {
        let mut state = self.state.write();
        let before = state.token;
        if state.owner != Some(owner) || before.key != token.key {
            return GoesOn::NotHere;
        }
        if before.epoch > token.epoch {
            return GoesOn::HasLater;
        }
        state.token = token;
        state.writer = Some(making.clone());
        *self.failure.lock() = None;
        GoesOn::Yes
    }

    /// Undoes what was done under a checkpoint that is open, and forgets what was refused under it. Says whether there was one.
    fn undo_checkpoint(&self, writer: &Making) -> Result<bool, MakingError> {
        let undone = writer.checkpoint()?.is_some() && writer.roll_back()?;
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

    /// Undoes it, for a writer that ends and that nobody else can take up now.
    pub(crate) fn end_checkpoint(&self) {
        if let Some(writer) = self.writer() {
            self.abandon_checkpoint(&writer);
        }
    }

    /// A failure is met again, and told, by whatever ends the writer in the store.
    fn abandon_checkpoint(&self, writer: &Making) {
        match self.undo_checkpoint(writer) {
            Ok(true) => tracing::info!(path = %self.path, "rolled back: its checkpoint was not committed"),
            Ok(false) => {}
            Err(error) => tracing::debug!(path = %self.path, %error, "cannot roll back"),
        }
    }

    /// Why it cannot be taken for whole, if something of it was refused and never written.
    pub(crate) fn doubt(&self) -> Option<Error> {
        let missing = self.missing.lock();
        let (start, end, why) = missing.first()?;
        let kept = if self.fresh { "it is kept as interrupted" } else { "the rest of the change stands" };
        let path = &self.path;
        // All of it, whatever its length: it was to be fetched from elsewhere.
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

    /// The client wants it to show this time of its last change.
    pub(crate) fn set_mtime(&self, mtime: Timestamp) {
        *self.mtime.lock() = Some(mtime);
    }

    /// The time of the last change that it is to show, if not that of its close.
    pub(crate) fn mtime(&self) -> Option<Timestamp> {
        *self.mtime.lock()
    }

    /// Its close was refused.
    pub(crate) fn set_failure(&self, why: &Error) {
        *self.failure.lock() = Some(why.clone());
    }

    /// Where the reason is found.
    pub(crate) fn failure(&self) -> &Failure {
        &self.failure
    }

    /// What an ended writer's handles are told.
    pub(crate) fn ended(&self) -> Error {
        self.failure.lock().clone().unwrap_or_else(|| Error::closed_before(&self.path))
    }

    /// From the return on, nobody can write.
    pub(crate) fn fence(&self) {
        self.state.write().owner = None;
    }

    /// Whether its holders have left all as it was when the lease was made.
    pub(crate) fn is_untouched(&self) -> bool {
        !self.changed.load(Ordering::Acquire)
    }

    /// Whether it is sure that the file is what it was before the update.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.begun && self.is_untouched()
    }

    /// It is the file's content now.
    pub(crate) fn set_committed(&self) {
        self.committed.store(true, Ordering::Release);
        *self.failure.lock() = None;
    }

    /// Whether it is.
    pub(crate) fn is_committed(&self) -> bool {
        self.committed.load(Ordering::Acquire)
    }

    /// The store's writer has ended.
    pub(crate) fn drop_writer(&self) {
        self.state.write().writer = None;
    }

    /// Whether this server waits a grace period for a client that is gone. Not where what is left is units of which some are not whole: their own
    /// servers wait for it, and whoever comes back opens them anew, here or elsewhere.
    pub(crate) fn waits_for_its_client(&self) -> bool {
        if !self.is_striped {
            return true;
        }
        // Somebody takes it up at this moment.
        let Some(state) = self.state.try_read() else { return true };
        state.writer.as_ref().is_some_and(|writer| Some(writer.len()) == self.expected_len)
    }

    /// The store's side, if it is open.
    pub(crate) fn writer(&self) -> Option<Making> {
        self.state.read().writer.clone()
    }

    /// The namespace calls the writer so since; for a re-open that was told to wait.
    pub(crate) fn renew(&self, token: WriterToken) {
        self.state.write().token = token;
    }

    /// What the namespace calls the writer.
    pub(crate) fn token(&self) -> WriterToken {
        self.state.read().token
    }
}

/// The right to write, for as long as it lives.
pub(crate) struct Hold<'a> {
    lease: &'a Lease,
    _state: RwLockReadGuard<'a, LeaseState>,
    writer: Making,
}

impl Hold<'_> {
    /// For what changes nothing.
    pub(crate) fn writer(&self) -> &Making {
        &self.writer
    }

    /// For what may change the content, also if it fails.
    pub(crate) fn writer_to_change(&self) -> &Making {
        self.lease.changed.store(true, Ordering::Release);
        &self.writer
    }

    /// Begins a checkpoint.
    pub(crate) fn begin_checkpoint(&self) -> Result<(), MakingError> {
        self.writer.begin_checkpoint()?;
        *self.lease.missing_before.lock() = Some(self.lease.missing.lock().clone());
        Ok(())
    }

    /// Keeps what was done under it.
    pub(crate) fn commit_checkpoint(&self) -> Result<(), MakingError> {
        self.writer.commit_checkpoint()?;
        *self.lease.missing_before.lock() = None;
        Ok(())
    }

    /// Undoes what was done under it; says whether there was one.
    pub(crate) fn undo_checkpoint(&self) -> Result<bool, MakingError> {
        self.lease.undo_checkpoint(&self.writer)
    }
}

impl WriteAccess {
    pub(crate) fn new(key: Owner, lease: Arc<Lease>, unfenced: bool) -> Self {
        Self { key, lease, unfenced }
    }

    /// The client's bytes at `offset` were refused. A handle that was fenced changes nothing here either.
    pub(crate) fn refused(&self, offset: u64, len: u64, why: &Error) {
        if self.hold().is_ok() {
            self.lease.missing.lock().refused(offset, offset.saturating_add(len), why.code());
        }
    }

    /// The right to change the content, for as long as the guard lives. Refused when the file has been taken up by
    /// another connection of its client.
    pub(crate) fn hold(&self) -> Result<Hold<'_>, Error> {
        let state = self.lease.state.read();
        match &state.writer {
            Some(writer) if state.owner == Some(self.key) || self.unfenced => {
                let writer = writer.clone();
                Ok(Hold { lease: &self.lease, _state: state, writer })
            }
            _ => Err(self.why_not(&state)),
        }
    }

    /// The handle goes without a close: nobody can end its checkpoint any more. A handle that was fenced changes nothing.
    pub(crate) fn abandon_checkpoint(&self) {
        // Held meanwhile, so that it is not the one of who takes the file up.
        if let Ok(hold) = self.hold() {
            self.lease.abandon_checkpoint(&hold.writer);
        }
    }

    /// Why this handle, of which the file has been closed or taken away, can do nothing more.
    pub(crate) fn is_over(&self) -> Error {
        self.why_not(&self.lease.state.read())
    }

    fn why_not(&self, state: &LeaseState) -> Error {
        if state.owner.is_some_and(|owner| owner != self.key) {
            Error::fenced(&self.lease.path)
        } else {
            self.lease.ended()
        }
    }
}
