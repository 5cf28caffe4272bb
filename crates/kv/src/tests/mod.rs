//! Tests of the index as a whole: on simulated disks with crashes, and on real ones.

use std::sync::Arc;

/// Bugs that the tests must find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Planted {
    /// The committer answers when the record is appended.
    AcknowledgeBeforeSync,
    /// The log is trimmed by the engine's position alone, without a checkpoint.
    TrimTooEarly,
    /// The sweeper moves what the log might lose.
    ApplyBeforeDurable,
    /// Deletions are dropped when deltas are merged among themselves.
    LoseTombstoneInMerge,
    /// A checkpoint file counts without having been read back.
    SkipCheckpointVerify,
}

/// Called with the path of a checkpoint file that was written and not read back yet.
#[derive(Clone, Default)]
pub(crate) struct BeforeVerify(pub(crate) Option<Arc<dyn Fn(&str) + Send + Sync>>);

impl std::fmt::Debug for BeforeVerify {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "BeforeVerify(set)" } else { "BeforeVerify(none)" })
    }
}
