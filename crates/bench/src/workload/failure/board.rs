//! What writers have been told is safe, for those who read and check it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::load::Worker;

/// How often who waits looks whether everything is to end.
const TICK: Duration = Duration::from_millis(50);

#[derive(Debug)]
struct State {
    /// Files whose close was answered.
    acknowledged: Vec<(u32, u32)>,
    /// Writers and readers that go on.
    working: usize,
}

/// See the module.
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

    /// The close of a writer's file was answered.
    pub(super) fn acknowledge(&self, writer: u32, file: u32) {
        self.state().acknowledged.push((writer, file));
    }

    /// One of those so far, by chance; `None` while there is none.
    pub(super) fn any(&self, chance: u64) -> Option<(u32, u32)> {
        let state = self.state();
        let place = usize::try_from(chance.checked_rem(state.acknowledged.len() as u64)?).ok()?;
        state.acknowledged.get(place).copied()
    }

    /// A writer or reader does nothing more.
    pub(super) fn leave(&self) {
        self.state().working -= 1;
        self.changed.notify_all();
    }

    /// Waits until nobody writes or reads any more; then all that was acknowledged. `None`: everything is to end.
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

/// Says that a writer or reader does nothing more, however it ended: nobody waits for it then.
pub(super) struct Leaves<'a>(pub(super) &'a Board);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}
