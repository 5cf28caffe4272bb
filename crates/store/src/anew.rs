//! A replica is begun anew in the place of whatever is left of it: a copy that another store is to give, for the second time.

use std::sync::Arc;

use types::ReplicaId;

use crate::store::Inner;
use crate::{NewReplica, Store, StoreError, Writer};

impl Store {
    /// Begins a replica with nothing written, whatever is here of it: what is known of it is cut to nothing, and files that no record speaks of are
    /// removed. For who has the content from somewhere else, and writes all of it: unlike [`Store::create`], this may be asked of a number that was
    /// used before, and of one whose files were left by another day's index.
    ///
    /// The new life is younger than all that were: whatever comes back of them after a stop means nothing.
    ///
    /// # Errors
    /// Those of [`Store::create`] (but not that something is there), of [`Store::reopen`] and of [`Writer::truncate`].
    pub fn begin_anew(&self, replica: ReplicaId, new: NewReplica<'_>) -> Result<Arc<Writer>, StoreError> {
        let inner = &self.inner;
        if self.status(replica)?.is_some() {
            let writer = self.reopen(replica)?;
            writer.truncate(0)?;
            return Ok(writer);
        }
        inner.floor.check(&*inner.disk, 0)?;
        inner.check_incarnation(new.incarnation)?;
        let last = inner.remove_leftovers(replica)?;
        // Positions in the log only grow, and a replica has never had more lives than the log has had records. What came from another log says
        // itself which life it was.
        let generation = inner.journal.appended().0.max(last).saturating_add(1);
        self.begin(replica, new, generation, true)
    }
}

impl Inner {
    /// Removes the files of a replica that has no record, durably. Gives the youngest life that they speak of.
    fn remove_leftovers(&self, replica: ReplicaId) -> Result<u64, StoreError> {
        if self.holds.lock().is_being_removed(replica) {
            // Its files go when its record's end is durable; later that would take the new ones.
            self.journal.sync_to(self.journal.appended())?;
            self.remove_files(self.journal.durable())?;
        }
        let last = self.objects.last_generation(replica)?;
        if let Some(folder) = self.objects.remove(replica)? {
            // Before the new life is in the log: after a power failure nobody takes the old files for its own.
            self.disk.sync_dir(&folder)?;
        }
        Ok(last)
    }
}
