//! Where the scrub reports what it finds.

use types::ReplicaId;

/// The receiver of a scrub's findings. An error is a sentence for people; the scrub pauses and comes back to the replica later.
pub trait Findings: Send + Sync {
    /// Replicas that must be read before others, because they may be damaged, or intact again.
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

    /// A suspect does not exist any more.
    fn gone(&self, replica: ReplicaId) {
        let _ = replica;
    }
}
