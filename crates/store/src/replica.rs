//! A replica that somebody has open, or that is being written.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};
use types::ReplicaId;

use crate::log_record::{Beginning, Subject};
use crate::object::ObjectFiles;
use crate::record::{Ended, ReplicaRecord};
use crate::write_state::WriteState;
use crate::{ReplicaState, ReplicaStatus, StoreError};

/// A replica that somebody has open, or that is being written. Readers and writers of one replica share it.
pub(crate) struct OpenReplica {
    pub(crate) id: ReplicaId,
    state: Mutex<State>,
    /// Something that writers wait for has changed.
    changed: Condvar,
}

/// What is known of an open replica.
#[derive(Default)]
pub(crate) struct State {
    /// How its last life ended.
    pub(crate) record: Option<ReplicaRecord>,
    /// It is being written.
    pub(crate) write_state: Option<WriteState>,
    /// It was removed.
    pub(crate) removed: bool,
    /// The content of a small replica, once read and checked. Goes when a life begins.
    pub(crate) content: Option<Arc<[u8]>>,
    /// The files of a large replica.
    pub(crate) files: Option<Arc<ObjectFiles>>,
    /// Pages (as byte ranges) that a write is doing something to at the moment.
    pub(crate) in_flight: Vec<(u64, u64)>,
    /// Somebody waits until no write or sync is under way, and none may begin.
    pub(crate) paused: bool,
    /// A sync is under way; another one waits for it, and so does [`Locked::pause`].
    pub(crate) syncing: bool,
    /// Raised when a life begins or ends: what readers remember of the sidecar counts no more.
    pub(crate) version: u64,
}

impl OpenReplica {
    pub(crate) fn new(id: ReplicaId, state: State) -> Self {
        Self { id, state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(crate) fn ended(id: ReplicaId, record: ReplicaRecord) -> Self {
        Self::new(id, State { record: Some(record), ..State::default() })
    }

    pub(crate) fn living(id: ReplicaId, record: Option<ReplicaRecord>, write_state: WriteState) -> Self {
        Self::new(id, State { record, write_state: Some(write_state), ..State::default() })
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        let state = self.state.lock();
        Locked { replica: self, state, pauses: false, syncs: false, writes: None, unwinds: std::thread::panicking() }
    }

    /// The life of `generation`, or why it is not there any more.
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

    /// The same, if nothing of it has failed.
    pub(crate) fn sound_life<'a>(
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
                    Beginning::New | Beginning::Resumed => ReplicaState::InMaking {
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

/// The state of a replica, locked. What was begun with it and is not locked meanwhile (a pause, a sync, a write) ends with it, so that
/// nobody waits for a thread that has died. Such a thread leaves the life failed: what is in memory may be the half of a step, and only
/// the log and the disk tell what is there.
pub(crate) struct Locked<'a> {
    replica: &'a OpenReplica,
    state: MutexGuard<'a, State>,
    pauses: bool,
    syncs: bool,
    writes: Option<(u64, u64)>,
    /// The thread was dying already: that had nothing to do with this replica.
    unwinds: bool,
}

impl Locked<'_> {
    /// Waits until something that writers wait for has changed. Not locked meanwhile.
    pub(crate) fn wait(&mut self) {
        self.replica.changed.wait(&mut self.state);
    }

    /// Wakes those who wait.
    pub(crate) fn notify(&self) {
        self.replica.changed.notify_all();
    }

    /// Waits until no write and no sync is under way, and keeps new ones from beginning until this is dropped.
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

    /// Does `work` without the lock.
    pub(crate) fn unlocked<T>(&mut self, work: impl FnOnce() -> T) -> T {
        MutexGuard::unlocked(&mut self.state, work)
    }

    /// Does `work`, which is a sync, without the lock.
    pub(crate) fn while_syncing<T>(&mut self, work: impl FnOnce() -> T) -> T {
        self.state.syncing = true;
        self.syncs = true;
        let result = self.unlocked(work);
        self.end_steps();
        result
    }

    /// Does `work`, which writes to `pages` (a range of bytes), without the lock.
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
