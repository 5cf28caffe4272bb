//! Removing files of removed replicas, and trimming the journal.

use std::collections::BTreeSet;

use journal::{Seq, StreamId};
use kv::Batch;

use crate::StoreError;
use crate::config::PlantedBug;
use crate::record::SEEN_KEY;
use crate::store::Inner;

impl Inner {
    /// Removes the files of replicas whose removal is durable.
    pub(crate) fn remove_files(&self, durable: Seq) -> Result<(), StoreError> {
        // A thread that starts such a replica over must know that no other is about to remove its files.
        let _one = self.removals.lock();
        let due = self.holds.lock().due_removals(durable);
        let mut folders = BTreeSet::new();
        for replica in &due {
            folders.extend(self.objects.remove(*replica)?);
        }
        for folder in folders {
            self.disk.sync_dir(&folder)?;
        }
        let mut holds = self.holds.lock();
        for replica in due {
            holds.removed(replica);
        }
        Ok(())
    }

    /// Tells the journal which records the store no longer needs.
    pub(crate) fn trim(&self) -> Result<(), StoreError> {
        self.remove_files(self.journal.durable())?;
        let below = self.holds.lock().trim(self.journal.durable());
        // Before records are trimmed, the numbers of their objects must be recorded elsewhere.
        let mut memory = self.seen.lock();
        if memory.changed {
            let mut batch = Batch::new();
            batch.put(SEEN_KEY, &memory.seen.encode());
            // It allows trimming, which a full disk needs most.
            let seq = self.index.append(&batch, true)?;
            memory.changed = false;
            drop(memory);
            self.journal.sync_to(seq)?;
        }
        let below = if self.config.has(PlantedBug::TrimTooEarly) { self.journal.appended().next() } else { below };
        Ok(self.journal.set_trim(StreamId::STORE_DATA, below)?)
    }
}
