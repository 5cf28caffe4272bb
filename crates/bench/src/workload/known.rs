//! What this machine's workers know of the files of a trial, from one phase to the next: which were acknowledged, and how far. A time limit cuts
//! phases and operations fail, so what a phase was to do says little of what has to be there after it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::churn::Slot;

/// See the module. With agents each one knows of the parts that it has itself, which are the same in all phases of a trial.
#[derive(Debug, Default)]
pub struct Known {
    /// Bytes of each file that was written and closed; `None`: nobody knows, as it was never begun or has failed.
    pub(super) lengths: Kept<Option<u64>>,
    /// Files that come and go.
    pub(super) slots: Kept<Slot>,
}

/// Something of each file, part by part.
#[derive(Debug)]
pub(super) struct Kept<T>(Mutex<BTreeMap<u32, Vec<T>>>);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Kept<T> {
    fn parts(&self) -> MutexGuard<'_, BTreeMap<u32, Vec<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of the files of `part`; `None`: no worker of this machine has made any.
    pub(super) fn of(&self, part: u32) -> Option<Vec<T>> {
        self.parts().get(&part).cloned()
    }

    /// Of how many files of `part` something is so.
    pub(super) fn count(&self, part: u32, is_so: impl Fn(&T) -> bool) -> u64 {
        self.parts().get(&part).map_or(0, |files| files.iter().filter(|file| is_so(file)).count() as u64)
    }

    /// Takes that out; it is to be kept again afterwards.
    pub(super) fn take(&self, part: u32) -> Option<Vec<T>> {
        self.parts().remove(&part)
    }

    /// Keeps it for the phases that follow.
    pub(super) fn keep(&self, part: u32, files: Vec<T>) {
        self.parts().insert(part, files);
    }
}
