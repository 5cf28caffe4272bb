//! The acknowledged files of writers, for the workers that read and check them.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::load::Worker;

/// How often a wait checks whether everything must end.
const TICK: Duration = Duration::from_millis(50);

#[derive(Debug)]
struct State {
    /// Files whose close was acknowledged.
    acknowledged: Vec<(u32, u32)>,
    /// Writers and readers that continue.
    working: usize,
}

/// The acknowledged files. See the module.
#[derive(Debug)]
pub(super) struct Board {
    state: Mutex<State>,
    changed: Condvar,
}

impl Board {
    pub(super) fn new(working: usize) -> Self {
        Self { state: Mutex::new(State { acknowledged: Vec::new(), working }), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The close of a writer's file was acknowledged.
    pub(super) fn acknowledge(&self, writer: u32, file: u32) {
        self.state().acknowledged.push((writer, file));
    }

    /// Returns a random acknowledged file; `None`: there is none yet.
    pub(super) fn any(&self, chance: u64) -> Option<(u32, u32)> {
        let state = self.state();
        let place = usize::try_from(chance.checked_rem(state.acknowledged.len() as u64)?).ok()?;
        state.acknowledged.get(place).copied()
    }

    /// A writer or reader has ended.
    pub(super) fn leave(&self) {
        self.state().working -= 1;
        self.changed.notify_all();
    }

    /// Waits until all writers and readers have ended. Returns all acknowledged files; `None`: everything must end.
    pub(super) fn all(&self, worker: &Worker) -> Option<Vec<(u32, u32)>> {
        let mut state = self.state();
        while state.working > 0 {
            if worker.is_stopped() {
                return None;
            }
            state = self.changed.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(state.acknowledged.clone())
    }
}

/// Reports the end of a writer or reader, however it ends, so that nobody waits for it.
pub(super) struct WorkerEnd<'a>(pub(super) &'a Board);

impl Drop for WorkerEnd<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}
