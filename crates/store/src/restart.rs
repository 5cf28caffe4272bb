//! Starting a replica over in the place of its remains, when another store sends the copy a second time.

use std::sync::Arc;

use types::ReplicaId;

use crate::store::Inner;
use crate::{NewReplica, Store, StoreError, Writer};

impl Store {
    /// Starts a replica with nothing written, whatever exists of it here. A known replica is truncated to nothing, and
    /// files without a record are removed. The caller must have the whole object from elsewhere and write all of it.
    /// Unlike [`Store::create`], this accepts a number that was used before, and one whose files an older index left
    /// behind.
    ///
    /// Readers that are open see that it was started over ([`crate::Reader::is_started_over`]).
    ///
    /// The new generation is higher than all earlier ones, so remains that reappear after a stop are ignored.
    ///
    /// # Errors
    /// Those of [`Store::create`] (except for existing files), of [`Store::reopen`] and of [`Writer::truncate`].
    pub fn recreate(&self, replica: ReplicaId, new: NewReplica<'_>) -> Result<Arc<Writer>, StoreError> {
        let inner = &self.inner;
        if self.status(replica)?.is_some() {
            let start_over = |writer: Arc<Writer>| {
                writer.forget_readers();
                writer.truncate(0).map(|()| writer)
            };
            match self.reopen(replica).and_then(start_over) {
                // Its old bytes are damaged or gone, and nobody needs them.
                Err(error) if error.is_about_replica() => self.delete(replica)?,
                opened => return opened,
            }
        }
        inner.floor.check(&*inner.disk, 0)?;
        inner.check_incarnation(new.incarnation)?;
        let last = inner.remove_leftovers(replica)?;
        // Positions in the journal only grow, and a replica never has more generations than the journal has records.
        // Files from another journal name their generation themselves.
        let generation = inner.journal.appended().0.max(last).saturating_add(1);
        self.begin(replica, new, generation, true)
    }
}

impl Inner {
    /// Removes the files of a replica without a record, durably. Returns the highest generation in them.
    fn remove_leftovers(&self, replica: ReplicaId) -> Result<u64, StoreError> {
        if self.holds.lock().is_being_removed(replica) {
            // The old files are removed when the record of the removal is durable. Later, that would remove the new
            // files.
            self.journal.sync_to(self.journal.appended())?;
            self.remove_files(self.journal.durable())?;
        }
        let last = self.objects.last_generation(replica)?;
        if let Some(folder) = self.objects.remove(replica)? {
            // Before the journal has the new generation: after a power failure the old files must not pass for its own.
            self.disk.sync_dir(&folder)?;
        }
        Ok(last)
    }
}
