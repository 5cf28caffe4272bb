//! Where the scrub reports what it finds.

use types::ReplicaId;

/// The receiver of a scrub's findings. An error is a sentence for people; the scrub pauses and comes back to the replica later.
pub trait Findings: Send + Sync {
    /// Replicas that were damaged when the process last ran. The scrub reads them first.
    fn suspects(&self) -> Vec<ReplicaId> {
        Vec::new()
    }

    /// A replica is damaged. Returns false if it was removed just now.
    ///
    /// # Errors
    /// If the finding cannot be recorded.
    fn damaged(&self, replica: ReplicaId, what: &str) -> Result<bool, String>;

    /// A replica is intact. This is called for each one.
    ///
    /// # Errors
    /// If an earlier finding cannot be taken back.
    fn whole(&self, replica: ReplicaId) -> Result<(), String>;

    /// A suspect was removed, or has an open write, so its old bytes no longer matter.
    fn gone(&self, replica: ReplicaId) {
        let _ = replica;
    }
}
