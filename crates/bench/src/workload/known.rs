//! What this machine's workers know of a trial's files, from one phase to the next: which were acknowledged, and up
//! to which length. Time limits cut phases short and operations fail, so the plan of a phase does not tell which
//! files must exist after it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::churn::Slot;

/// What is known of a trial's files. See the module. An agent knows only its own parts, which are the same in all
/// phases of a trial.
#[derive(Debug, Default)]
pub struct KnownFiles {
    /// The length of each file that was written and closed, in bytes; `None`: unknown, because it was never begun
    /// or has failed.
    pub(super) lengths: PerFile<Option<u64>>,
    /// The state of files that are created and removed.
    pub(super) slots: PerFile<Slot>,
}

/// A value for each file, part by part.
#[derive(Debug)]
pub(super) struct PerFile<T>(Mutex<BTreeMap<u32, Vec<T>>>);

impl<T> Default for PerFile<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> PerFile<T> {
    fn parts(&self) -> MutexGuard<'_, BTreeMap<u32, Vec<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the values of the files of `part`; `None`: no worker of this machine has created any.
    pub(super) fn of(&self, part: u32) -> Option<Vec<T>> {
        self.parts().get(&part).cloned()
    }

    /// Returns the number of files of `part` for which `is_so` is true.
    pub(super) fn count(&self, part: u32, is_so: impl Fn(&T) -> bool) -> u64 {
        self.parts().get(&part).map_or(0, |files| files.iter().filter(|file| is_so(file)).count() as u64)
    }

    /// Takes the values out. The caller must keep them again afterwards.
    pub(super) fn take(&self, part: u32) -> Option<Vec<T>> {
        self.parts().remove(&part)
    }

    /// Keeps the values for later phases.
    pub(super) fn keep(&self, part: u32, files: Vec<T>) {
        self.parts().insert(part, files);
    }
}
