//! The work on a replica's disk, one piece after the other, and the changes that it applies.

use std::collections::VecDeque;
use std::sync::Arc;

use cluster::message::Original;
use cluster::replication::ObjectDigest;
use cluster::server::{Found, Work, WorkPurpose, WorkResult};
use parking_lot::{Mutex, MutexGuard};
use store::{
    Completed, Kept, NewReplica, PageSum, ReplicaState, ReplicaStatus, Scrubbed, Scrubber, StoreError, Writer,
};
use types::{ErrorCode, Incarnation, ReplicaId};

use super::looks::Looks;
use super::store_shell::StoreAt;
use node::BulkBytes;
use node::{ChangeHead, ReplicaOrigin};

/// A change of a replica.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) head: ChangeHead,
    /// The bytes to write. `None` if the caller of the change has them and nobody else needs them.
    pub(super) bytes: Option<Arc<BulkBytes>>,
    /// Identifies a change whose bytes the caller has; 0 for other changes.
    pub(super) number: u64,
}

/// The machine does not compare the bytes.
impl PartialEq for Change {
    fn eq(&self, other: &Self) -> bool {
        self.head == other.head && self.number == other.number
    }
}

impl Change {
    /// A change from another server. `None` if the bytes do not fit the head.
    pub(super) fn received(head: ChangeHead, bulk: Option<Arc<BulkBytes>>) -> Option<Self> {
        let len = bulk.as_ref().map_or(0, |bulk| (**bulk).as_ref().len()) as u64;
        let is_right = match head {
            ChangeHead::Write { len: said, .. } => len == u64::from(said),
            ChangeHead::Truncate { .. } => len == 0,
        };
        is_right.then(|| Self { head, bytes: bulk, number: 0 })
    }
}

/// The bytes of a change that its caller has.
#[derive(Clone, Copy)]
pub(super) struct ChangeData<'a> {
    pub(super) number: u64,
    pub(super) bytes: &'a [u8],
    pub(super) sums: Option<&'a [PageSum]>,
    /// The client learns of this change only when the replica is complete.
    pub(super) is_ahead: bool,
}

/// A replica in use.
pub(super) struct Replica {
    pub(super) replica: ReplicaId,
    queue: Mutex<Queue>,
    /// Held by the thread that does the replica's work.
    turn: Mutex<()>,
    writer: Mutex<Option<Arc<Writer>>>,
    about: Mutex<ReplicaOrigin>,
}

#[derive(Default)]
struct Queue {
    works: VecDeque<(WorkPurpose, Work<Change>)>,
    /// The previous work ends when the journal is synced. Nothing else is done until then.
    is_held: bool,
}

/// The result of a piece of work.
pub(super) enum Done {
    /// A finished result.
    Now(WorkResult<Change>),
    /// The replica is complete once the journal is synced up to this point. Replicas that are complete at one time share the sync.
    WhenSynced(Completed),
}

/// The right to do a replica's work.
pub(super) type ReplicaTurn<'a> = MutexGuard<'a, ()>;

impl Replica {
    pub(super) fn new(replica: ReplicaId) -> Self {
        Self {
            replica,
            queue: Mutex::default(),
            turn: Mutex::default(),
            writer: Mutex::default(),
            about: Mutex::default(),
        }
    }

    /// Sets the origin with which a new replica is made.
    pub(super) fn set_about(&self, about: ReplicaOrigin) {
        *self.about.lock() = about;
    }

    pub(super) fn about(&self) -> ReplicaOrigin {
        self.about.lock().clone()
    }

    pub(super) fn push(&self, by: WorkPurpose, work: Work<Change>) {
        self.queue.lock().works.push_back((by, work));
    }

    pub(super) fn pop(&self) -> Option<(WorkPurpose, Work<Change>)> {
        let mut queue = self.queue.lock();
        if queue.is_held { None } else { queue.works.pop_front() }
    }

    /// A planted bug: two jobs apply two changes at the same time, and the second is applied first.
    #[cfg(any(test, feature = "planted"))]
    pub(super) fn skip_turn(&self) {
        let mut queue = self.queue.lock();
        let mut works = queue.works.iter_mut().map(|(_, work)| work);
        if let (Some(Work::Apply { change: one, .. }), Some(Work::Apply { change: other, .. })) =
            (works.next(), works.next())
        {
            std::mem::swap(one, other);
        }
    }

    /// Whether work can be done now.
    pub(super) fn has_work(&self) -> bool {
        let queue = self.queue.lock();
        !queue.is_held && !queue.works.is_empty()
    }

    /// Stops the work until [`Replica::go_on`]. The caller must hold the turn.
    pub(super) fn hold(&self) {
        self.queue.lock().is_held = true;
    }

    pub(super) fn go_on(&self) {
        self.queue.lock().is_held = false;
    }

    /// Waits for the turn.
    pub(super) fn turn(&self) -> ReplicaTurn<'_> {
        self.turn.lock()
    }

    /// The turn, if it is free.
    pub(super) fn try_turn(&self) -> Option<ReplicaTurn<'_>> {
        self.turn.try_lock()
    }

    /// The store's writer, while the replica is open for writing.
    pub(super) fn writer(&self) -> Option<Arc<Writer>> {
        self.writer.lock().clone()
    }

    /// Whether the store has it open for writing.
    pub(super) fn is_open(&self) -> bool {
        self.writer.lock().is_some()
    }

    /// Whether it can be forgotten.
    pub(super) fn is_idle(&self) -> bool {
        let queue = self.queue.lock();
        let is_done = !queue.is_held && queue.works.is_empty();
        drop(queue);
        is_done && self.writer.lock().is_none()
    }

    /// Does a piece of work. May wait for the disk.
    pub(super) fn work(
        &self,
        looks: &Looks,
        at: &StoreAt,
        incarnation: Incarnation,
        work: Work<Change>,
        at_hand: Option<ChangeData<'_>>,
    ) -> Done {
        Done::Now(match work {
            Work::Open { may_make } => {
                WorkResult::Opened(self.open(at, incarnation, may_make).map_err(|error| told(at, &error)))
            }
            Work::Renew => {
                let ReplicaOrigin { principal, path, expected_len } = self.about();
                let new = NewReplica { path_hint: &path, expected_len, incarnation };
                let begun = at.store.recreate(self.replica, new).map(|writer| {
                    writer.set_user(principal);
                    *self.writer.lock() = Some(writer);
                });
                WorkResult::Opened(begun.map_err(|error| told(at, &error)))
            }
            Work::Apply { seq, change } => {
                let applied = self.apply(&change, at_hand);
                WorkResult::Applied(seq, applied.map_err(|error| told(at, &error)))
            }
            Work::Sync => {
                let synced = self.with_writer(|writer| writer.sync().map(drop));
                WorkResult::Synced(synced.map_err(|error| told(at, &error)))
            }
            Work::Complete => match self.complete(at) {
                Ok(Ok(whole)) => WorkResult::Completed(Ok(whole)),
                Ok(Err(completed)) => return Done::WhenSynced(completed),
                Err(error) => WorkResult::Completed(Err(told(at, &error))),
            },
            Work::Interrupt { is_alone } => {
                WorkResult::Interrupted(self.interrupt(at, is_alone).map_err(|error| told(at, &error)))
            }
            Work::Look { original } => WorkResult::Looked(self.look(looks, at, original)),
            Work::Read { original, offset, len } => WorkResult::Read(self.read(at, original, offset, len)),
            Work::Delete => {
                *self.writer.lock() = None;
                let deleted = match at.store.delete(self.replica) {
                    Err(StoreError::NotFound { .. }) => Ok(()),
                    result => result,
                };
                WorkResult::Deleted(deleted.and_then(|()| at.store.sync_journal()).map_err(|error| told(at, &error)))
            }
        })
    }

    fn open(&self, at: &StoreAt, incarnation: Incarnation, may_make: bool) -> Result<(), StoreError> {
        let ReplicaOrigin { principal, path, expected_len } = self.about();
        let opened = match at.store.status(self.replica)? {
            None if may_make => {
                let new = NewReplica { path_hint: &path, expected_len, incarnation };
                at.store.create(self.replica, new)?
            }
            None => return Err(StoreError::NotFound { replica: self.replica }),
            Some(_) => at.store.reopen(self.replica)?,
        };
        opened.set_user(principal);
        *self.writer.lock() = Some(opened);
        Ok(())
    }

    fn with_writer<T>(&self, op: impl FnOnce(&Writer) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let writer = self.writer().ok_or(StoreError::NotFound { replica: self.replica })?;
        op(&writer)
    }

    fn apply(&self, change: &Change, at_hand: Option<ChangeData<'_>>) -> Result<(), StoreError> {
        self.with_writer(|writer| match change.head {
            ChangeHead::Truncate { len } => writer.truncate(len),
            ChangeHead::Write { offset, .. } => {
                let at_hand = at_hand.filter(|at_hand| change.number != 0 && at_hand.number == change.number);
                match (at_hand, &change.bytes) {
                    (Some(ChangeData { bytes, is_ahead: true, .. }), _) => writer.write_ahead(offset, bytes),
                    (Some(ChangeData { bytes, sums: Some(sums), .. }), _) => writer.write_summed(offset, bytes, sums),
                    (Some(ChangeData { bytes, sums: None, .. }), _) => writer.write(offset, bytes),
                    (None, Some(bytes)) => writer.write(offset, (**bytes).as_ref()),
                    // The thread that had the bytes is gone.
                    (None, None) => Err(StoreError::NotFound { replica: self.replica }),
                }
            }
        })
    }

    /// The digest, if the replica was complete already. Otherwise what it will be once the journal is synced.
    fn complete(&self, at: &StoreAt) -> Result<Result<ObjectDigest, Completed>, StoreError> {
        if let Some(whole) = whole_of(at, self.replica)? {
            *self.writer.lock() = None;
            return Ok(Ok(whole));
        }
        let done = self.with_writer(Writer::complete)?;
        *self.writer.lock() = None;
        Ok(Err(done))
    }

    fn interrupt(&self, at: &StoreAt, is_alone: bool) -> Result<ObjectDigest, StoreError> {
        let kept = if is_alone { at.store.interrupt(self.replica) } else { at.store.interrupt_sound(self.replica) };
        let Kept { len, adler32, crc32c } = kept?;
        *self.writer.lock() = None;
        at.store.sync_journal()?;
        Ok(ObjectDigest { len, crc32c, adler32 })
    }

    /// Compares the replica with the original that it should be. Reads all its bytes, past the page cache.
    fn look(&self, looks: &Looks, at: &StoreAt, original: Original) -> Result<Found, ErrorCode> {
        if !is_it(at, self.replica, original).map_err(|error| told(at, &error))? {
            return Ok(Found::Other);
        }
        let look = looks.begin().ok_or(ErrorCode::Overloaded)?;
        match at.store.scrub(self.replica, &mut Scrubber::default(), &mut |_| look.goes_on()) {
            // Without a checksum of the original nobody knows whether these are its bytes. An update that nobody has ended here cannot be read
            // through at all.
            Ok(Scrubbed::Whole(_) | Scrubbed::Busy) if matches!(original, Original::Kept { .. }) => Ok(Found::Unproved),
            Ok(Scrubbed::Whole(_)) => Ok(Found::Same),
            // It is changing, or the server stops. The manager orders the copy again.
            Ok(Scrubbed::Busy | Scrubbed::Stopped) => Err(ErrorCode::Overloaded),
            Err(error) => {
                let code = told(at, &error);
                if error.is_about_replica() { Ok(Found::Damaged) } else { Err(code) }
            }
        }
    }

    fn read(&self, at: &StoreAt, original: Original, offset: u64, len: u32) -> Result<Change, ErrorCode> {
        let read = || -> Result<Option<BulkBytes>, StoreError> {
            let reader = at.store.open_read(self.replica)?;
            if !is_it(at, self.replica, original)? {
                return Ok(None);
            }
            let len = original.len().saturating_sub(offset).min(u64::from(len));
            let mut bytes = BulkBytes::new(usize::try_from(len).unwrap_or(0));
            let read = reader.read(offset, bytes.as_mut())?;
            bytes.truncate(read);
            Ok((!reader.is_started_over()).then_some(bytes))
        };
        match read() {
            Ok(Some(bytes)) => {
                let len = u32::try_from(bytes.as_ref().len()).unwrap_or(u32::MAX);
                Ok(Change { head: ChangeHead::Write { offset, len }, bytes: Some(Arc::new(bytes)), number: 0 })
            }
            Ok(None) => Err(ErrorCode::NotFound),
            Err(error) => Err(told(at, &error)),
        }
    }
}

/// The digest of a replica, if it is complete.
pub(super) fn whole_of(at: &StoreAt, replica: ReplicaId) -> Result<Option<ObjectDigest>, StoreError> {
    let status = at.store.status(replica)?;
    Ok(status.and_then(|status| match status.state {
        ReplicaState::Complete { adler32, crc32c } => Some(ObjectDigest { len: status.len, crc32c, adler32 }),
        _ => None,
    }))
}

/// Whether the replica equals the original that another store wants to copy.
fn is_it(at: &StoreAt, replica: ReplicaId, original: Original) -> Result<bool, StoreError> {
    match original {
        Original::Whole(whole) => Ok(whole_of(at, replica)? == Some(whole)),
        // Only the length is known.
        Original::Kept { len, .. } => {
            let has =
                |status: ReplicaStatus| !matches!(status.state, ReplicaState::BeingWritten { .. }) && status.len >= len;
            Ok(at.store.status(replica)?.is_some_and(has))
        }
    }
}

/// Other nodes get a code. The text stays in this server's log.
pub(super) fn told(at: &StoreAt, error: &StoreError) -> ErrorCode {
    let code = error.code();
    if !matches!(code, ErrorCode::NotFound | ErrorCode::Stale) {
        tracing::warn!(store = %at.store_id, %error, "work on a replica failed");
    }
    code
}
