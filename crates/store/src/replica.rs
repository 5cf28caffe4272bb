//! A replica that has readers or an open write.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex, MutexGuard};
use types::{PrincipalId, ReplicaId};

use crate::journal_record::{Beginning, Subject};
use crate::object::ObjectFiles;
use crate::record::{Ended, ReplicaRecord};
use crate::write_state::WriteState;
use crate::{ReplicaState, ReplicaStatus, StoreError};

/// A replica that has readers or an open write. Its readers and writers share it.
pub(crate) struct OpenReplica {
    pub(crate) id: ReplicaId,
    /// How often it was started over. Its older readers must show nothing more. Rises only under the lock of the state.
    starts: AtomicU64,
    state: Mutex<State>,
    /// Signals a change that writers wait for.
    changed: Condvar,
}

/// The state of an open replica.
#[derive(Default)]
pub(crate) struct State {
    /// How it was last finished.
    pub(crate) record: Option<ReplicaRecord>,
    /// Its open write, if any.
    pub(crate) write_state: Option<WriteState>,
    /// It was removed.
    pub(crate) removed: bool,
    /// The bytes of a small replica, once read and checked. Dropped when an open write begins.
    pub(crate) content: Option<Arc<[u8]>>,
    /// Who writes it.
    pub(crate) user: PrincipalId,
    /// The files of a large replica.
    pub(crate) files: Option<Arc<ObjectFiles>>,
    /// Pages (as byte ranges) that running writes touch.
    pub(crate) in_flight: Vec<(u64, u64)>,
    /// A thread waits until no write or sync runs, and none may begin.
    pub(crate) paused: bool,
    /// A sync runs. Another one waits for it, and so does [`Locked::pause`].
    pub(crate) syncing: bool,
    /// Rises when an open write begins or ends: cached checksums of readers become invalid.
    pub(crate) version: u64,
}

impl OpenReplica {
    pub(crate) fn new(id: ReplicaId, state: State) -> Self {
        Self { id, starts: AtomicU64::new(0), state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(crate) fn ended(id: ReplicaId, record: ReplicaRecord) -> Self {
        Self::new(id, State { record: Some(record), ..State::default() })
    }

    pub(crate) fn living(id: ReplicaId, record: Option<ReplicaRecord>, write_state: WriteState) -> Self {
        Self::new(id, State { record, write_state: Some(write_state), ..State::default() })
    }

    /// How often it was started over.
    pub(crate) fn starts(&self) -> u64 {
        self.starts.load(Ordering::Acquire)
    }

    /// It is about to be started over.
    pub(crate) fn start_over(&self) {
        let _state = self.state.lock();
        self.starts.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        self.locked(self.state.lock())
    }

    /// The same, unless another thread has it locked.
    pub(crate) fn try_lock(&self) -> Option<Locked<'_>> {
        self.state.try_lock().map(|state| self.locked(state))
    }

    fn locked<'a>(&'a self, state: MutexGuard<'a, State>) -> Locked<'a> {
        Locked { replica: self, state, pauses: false, syncs: false, writes: None, unwinds: std::thread::panicking() }
    }

    /// The open write of `generation`, or why it has ended.
    pub(crate) fn write_state<'a>(
        &self,
        state: &'a mut State,
        generation: u64,
    ) -> Result<&'a mut WriteState, StoreError> {
        if state.removed {
            return Err(StoreError::Closed { replica: self.id, why: "it was removed" });
        }
        match &mut state.write_state {
            Some(write_state) if write_state.birth.generation == generation => Ok(write_state),
            _ => Err(StoreError::Closed { replica: self.id, why: "it was completed or interrupted" }),
        }
    }

    /// Like [`OpenReplica::write_state`], but fails after a failed sync.
    pub(crate) fn sound_write_state<'a>(
        &self,
        state: &'a mut State,
        generation: u64,
    ) -> Result<&'a mut WriteState, StoreError> {
        let write_state = self.write_state(state, generation)?;
        match &write_state.failed {
            Some(reason) => Err(StoreError::Failed { replica: self.id, reason: reason.clone() }),
            None => Ok(write_state),
        }
    }

    pub(crate) fn status(&self) -> Option<ReplicaStatus> {
        let state = self.lock();
        if state.removed {
            return None;
        }
        match &state.write_state {
            None => state.record.as_ref().map(ReplicaRecord::status),
            Some(write_state) => Some(ReplicaStatus {
                len: write_state.len,
                state: match write_state.birth.beginning {
                    Beginning::Update => ReplicaState::Dirty,
                    Beginning::New | Beginning::Resumed => ReplicaState::BeingWritten {
                        written: write_state.written.as_slice().to_vec(),
                        prefix: write_state.written.prefix(),
                        durable_prefix: write_state.durable_prefix,
                    },
                },
                generation: write_state.birth.generation,
                incarnation: write_state.birth.incarnation,
            }),
        }
    }
}

/// The locked state of a replica. A step that runs without the lock (a pause, a sync, a write) ends with this guard, so
/// that no thread waits for a dead one. A thread that dies in a step marks the open write as failed: memory may hold
/// half a step, and only journal and disk know the state.
pub(crate) struct Locked<'a> {
    replica: &'a OpenReplica,
    state: MutexGuard<'a, State>,
    pauses: bool,
    syncs: bool,
    writes: Option<(u64, u64)>,
    /// The thread was already dying, for a reason unrelated to this replica.
    unwinds: bool,
}

impl Locked<'_> {
    /// Waits for a change that writers wait for. Releases the lock meanwhile.
    pub(crate) fn wait(&mut self) {
        self.replica.changed.wait(&mut self.state);
    }

    /// Wakes the waiting threads.
    pub(crate) fn notify(&self) {
        self.replica.changed.notify_all();
    }

    /// Waits until no write and no sync runs, and prevents new ones until this guard is dropped.
    pub(crate) fn pause(&mut self) {
        while self.state.paused {
            self.wait();
        }
        self.state.paused = true;
        self.pauses = true;
        while !self.state.in_flight.is_empty() || self.state.syncing {
            self.wait();
        }
    }

    /// Runs `work` without the lock.
    pub(crate) fn unlocked<T>(&mut self, work: impl FnOnce() -> T) -> T {
        MutexGuard::unlocked(&mut self.state, work)
    }

    /// Runs `work`, a sync, without the lock.
    pub(crate) fn while_syncing<T>(&mut self, work: impl FnOnce() -> T) -> T {
        self.state.syncing = true;
        self.syncs = true;
        let result = self.unlocked(work);
        self.end_steps();
        result
    }

    /// Runs `work`, which writes to `pages` (a range of bytes), without the lock.
    pub(crate) fn while_writing<T>(&mut self, pages: (u64, u64), work: impl FnOnce() -> T) -> T {
        self.state.in_flight.push(pages);
        self.writes = Some(pages);
        let result = self.unlocked(work);
        self.end_steps();
        result
    }

    fn end_steps(&mut self) {
        if let Some(pages) = self.writes.take() {
            self.state.in_flight.retain(|other| *other != pages);
        }
        if std::mem::take(&mut self.syncs) {
            self.state.syncing = false;
        }
        self.notify();
    }
}

impl Deref for Locked<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let died = !self.unwinds && std::thread::panicking();
        if died && let Some(write_state) = &mut self.state.write_state {
            write_state.failed.get_or_insert_with(|| "a thread that was working on it has died by a panic".into());
        }
        if self.pauses {
            self.state.paused = false;
        }
        if self.pauses || died {
            self.end_steps();
        }
    }
}

impl ReplicaRecord {
    pub(crate) fn status(&self) -> ReplicaStatus {
        ReplicaStatus {
            len: self.len,
            state: match self.ended {
                Ended::Complete => ReplicaState::Complete { adler32: self.adler32, crc32c: self.crc32c },
                Ended::Interrupted => ReplicaState::Interrupted,
            },
            generation: self.generation,
            incarnation: self.incarnation,
        }
    }
}

impl WriteState {
    pub(crate) fn subject(&self, replica: ReplicaId) -> Subject {
        Subject { replica, generation: self.birth.generation }
    }
}
