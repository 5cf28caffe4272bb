//! All open writes and their owners.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use namespace::{WriterKind, WriterRecord};
use parking_lot::{Mutex, MutexGuard};
use types::{NsPath, ObjectId};

use crate::caller::Caller;
use crate::lease::Lease;
use crate::names::Names;
use crate::writers::Writers;

/// The open writes of a node.
pub(crate) struct OpenWrites {
    writers: Mutex<Writers<Arc<Lease>>>,
    /// A writer of an earlier boot may still return.
    old_boots: AtomicBool,
}

impl OpenWrites {
    pub(crate) fn new(grace: Duration) -> Self {
        Self { writers: Mutex::new(Writers::new(grace)), old_boots: AtomicBool::new(false) }
    }

    /// Locks the state machine of the writers. The caller must not block while it holds the lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Writers<Arc<Lease>>> {
        self.writers.lock()
    }

    /// Whether a writer of an earlier boot may still return.
    pub(crate) fn has_old_boots(&self) -> bool {
        self.old_boots.load(Ordering::Relaxed)
    }

    pub(crate) fn set_old_boots(&self) {
        self.old_boots.store(true, Ordering::Relaxed);
    }

    /// The open writes of `caller` for `path` in the namespace. A writer of another principal never counts, even with
    /// the same client name.
    pub(crate) fn of_caller(
        &self,
        names: &Names,
        caller: &Caller,
        path: &NsPath,
    ) -> Result<Vec<WriterRecord>, namespace::NsError> {
        names.read(|read| namespace::find_writer(read, &caller.client, path))
    }

    /// Whether `caller` has an open write for `path`.
    pub(crate) fn writes(&self, names: &Names, caller: &Caller, path: &NsPath) -> bool {
        self.of_caller(names, caller, path).is_ok_and(|found| !found.is_empty())
    }

    /// The uploads of `caller` for `path` that wait for their writer to return.
    pub(crate) fn own_detached_uploads(&self, names: &Names, caller: &Caller, path: &NsPath) -> Vec<ObjectId> {
        let mut found = self.of_caller(names, caller, path).unwrap_or_default();
        let writers = self.lock();
        found.retain(|record| matches!(record.kind, WriterKind::Upload(_)) && writers.is_detached(record.object));
        found.into_iter().map(|record| record.object).collect()
    }
}
