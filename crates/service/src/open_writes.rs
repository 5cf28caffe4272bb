//! All files that are being written at this moment, and who writes them.

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
    /// Some writer of an earlier boot is still waited for.
    old_boots: AtomicBool,
}

impl OpenWrites {
    pub(crate) fn new(grace: Duration) -> Self {
        Self { writers: Mutex::new(Writers::new(grace)), old_boots: AtomicBool::new(false) }
    }

    /// The machine that says who may write what. Nothing that waits may be done meanwhile.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Writers<Arc<Lease>>> {
        self.writers.lock()
    }

    /// Whether some writer of an earlier boot may still be waited for.
    pub(crate) fn has_old_boots(&self) -> bool {
        self.old_boots.load(Ordering::Relaxed)
    }

    pub(crate) fn set_old_boots(&self) {
        self.old_boots.store(true, Ordering::Relaxed);
    }

    /// What the namespace knows of `caller`'s open writes at `path`. A writer of another principal is not the caller's, whatever it calls itself.
    pub(crate) fn of_caller(
        &self,
        names: &Names,
        caller: &Caller,
        path: &NsPath,
    ) -> Result<Vec<WriterRecord>, namespace::NsError> {
        names.read(|read| namespace::find_writer(read, &caller.client, path))
    }

    /// Whether `caller` has `path` in the making.
    pub(crate) fn writes(&self, names: &Names, caller: &Caller, path: &NsPath) -> bool {
        self.of_caller(names, caller, path).is_ok_and(|found| !found.is_empty())
    }

    /// The uploads of `caller` for `path` that wait for it to come back.
    pub(crate) fn own_detached_uploads(&self, names: &Names, caller: &Caller, path: &NsPath) -> Vec<ObjectId> {
        let mut found = self.of_caller(names, caller, path).unwrap_or_default();
        let writers = self.lock();
        found.retain(|record| matches!(record.kind, WriterKind::Upload(_)) && writers.is_detached(record.object));
        found.into_iter().map(|record| record.object).collect()
    }
}
