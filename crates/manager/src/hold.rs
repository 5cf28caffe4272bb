//! A namespace that was restored from a backup is older than the disk servers. Until an administrator accepts that, the manager removes and replaces
//! nothing on them that the lost namespace may have made: no repair, no backfill, no draining, no end of an open write of that time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use namespace::{NsError, RestoredRecord};
use types::ObjectId;

use crate::names::Names;

/// See the module.
#[derive(Debug)]
pub(crate) struct Hold {
    record: Option<RestoredRecord>,
    is_held: AtomicBool,
}

impl Hold {
    /// Reads from the namespace whether it was restored.
    pub(crate) fn read(names: &Names) -> Result<Arc<Self>, NsError> {
        let record = names.read(namespace::restored)?;
        let is_held = record.is_some_and(|record| record.is_held);
        if is_held {
            tracing::warn!(
                "the namespace was restored from a backup: nothing is removed or replaced on the disk servers until `weir restored --accept`"
            );
        }
        Ok(Arc::new(Self { record, is_held: AtomicBool::new(is_held) }))
    }

    /// The record of the restore, if there was one, as it is now.
    pub(crate) fn record(&self) -> Option<RestoredRecord> {
        self.record.map(|record| RestoredRecord { is_held: self.is_held(), ..record })
    }

    /// Whether nobody has accepted the restored state yet.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held.load(Ordering::SeqCst)
    }

    /// Whether this object may be what the lost namespace knew better.
    pub(crate) fn holds(&self, object: ObjectId) -> bool {
        self.record().is_some_and(|record| record.holds(object))
    }

    /// The state is accepted, and that is recorded.
    pub(crate) fn end(&self) {
        self.is_held.store(false, Ordering::SeqCst);
        tracing::info!("the restored namespace was accepted: repair and clean-up go on");
    }
}
