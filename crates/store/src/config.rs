//! How to keep a store.

use std::sync::Arc;

use crate::RecentPages;

/// Longest replica in bytes: a little less than 16 TiB, the limit of ext4. If a length turned out to be too long only
/// when the file must get it, the replica could neither be completed nor go back.
pub const REPLICA_LEN_MAX: u64 = (1 << 44) - (1 << 16);

/// Longest replica that is read: older versions wrote up to this length.
pub(crate) const DECODED_LEN_MAX: u64 = 1 << 62;

/// How to keep a store. `StoreConfig::default()` is for production.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Replicas of up to this many bytes are packed into segments; at most 1 MiB.
    pub small_max: u64,
    /// Bytes at which a segment file of small replicas is full.
    pub segment_bytes: u64,
    /// Free bytes kept back: below them the store refuses new data. `None`: the smaller of 1 GiB and 5 % of the file
    /// system.
    pub floor: Option<u64>,
    /// Whether to write large replicas past the page cache.
    pub direct: bool,
    /// Separate written ranges of one replica that are tracked at most.
    pub ranges_max: usize,
    /// Pages of one replica held in memory (and in the journal) before they are written to its file.
    pub held_pages_max: usize,
    /// Bytes of one replica that may go through the journal before its state is written again. Recovery needs as much
    /// memory.
    pub redo_bytes_max: u64,
    /// Bytes of journal after an open writer's oldest record at which its state is written again, so that the journal
    /// can be trimmed.
    pub snapshot_after_bytes: u64,
    /// Bytes of older contents, in whole pages, that one open checkpoint may save in the journal.
    pub checkpoint_bytes_max: u64,
    /// Bytes of small replicas that settle from the journal into segments in one step.
    pub settle_step_bytes: u64,
    /// Total number of aligned 1 MiB buffers for direct writes.
    pub buffers_max: usize,
    /// Total bytes of memory for page checksums of open large replicas, for random reads; 4 bytes for each page.
    pub known_sums_bytes_max: usize,
    /// Memory for recently written pages, which the stores of a node share. `None`: there is none.
    pub recent: Option<Arc<RecentPages>>,
    /// Bytes of the shortest replica that has a first read ([`crate::Reader::begin_first_read`]). Shorter ones end before
    /// it is worth it.
    pub first_read_min: u64,
    /// Whether opening looks for files of unfinished or removed replicas (and removes them, with `clear_away`). This
    /// lists all directories of large replicas, so it is skipped after a clean stop.
    pub find_orphans: bool,
    /// Whether opening removes files that surely belong to nothing. False keeps them all: for a mere inspection, and
    /// where the index may have lost records (after a repair of the journal).
    pub clear_away: bool,
    /// A bug for tests to find: it proves that they can.
    #[cfg(any(test, feature = "planted"))]
    pub planted: Option<PlantedBug>,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            small_max: 64 << 10,
            segment_bytes: 256 << 20,
            floor: None,
            direct: true,
            ranges_max: 4096,
            held_pages_max: 64,
            redo_bytes_max: 16 << 20,
            snapshot_after_bytes: 128 << 20,
            checkpoint_bytes_max: 16 << 20,
            settle_step_bytes: 8 << 20,
            buffers_max: 16,
            known_sums_bytes_max: 32 << 20,
            recent: None,
            first_read_min: 64 << 20,
            find_orphans: true,
            clear_away: true,
            #[cfg(any(test, feature = "planted"))]
            planted: None,
        }
    }
}

/// Bugs that the crash tests must find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(any(test, feature = "planted")), allow(dead_code))]
pub enum PlantedBug {
    /// `complete` and `sync` do not sync the file.
    AcknowledgeBeforeSync,
    /// Reads return pages without comparing them.
    SkipCrc,
    /// A write's range is not recorded.
    ForgetRange,
    /// An object's number is used a second time.
    ReuseObject,
    /// The journal is trimmed below records that are still needed.
    TrimTooEarly,
    /// Records point into an unsynced segment.
    SettleBeforeSegmentSync,
    /// Files are removed before the record of the removal is durable.
    UnlinkBeforeRecord,
    /// Pages are overwritten in place before their contents are durable in the journal.
    OverwriteBeforeJournal,
    /// Held pages go into the file while a running write depends on them.
    FlushUnderWrite,
    /// Recovery trusts written ranges without comparing them.
    BelieveRanges,
    /// A checkpoint does not save its pages.
    ForgetUndo,
    /// A checkpoint is committed before its pages are synced.
    CommitBeforeSync,
    /// A failed sync is not recorded.
    ForgetFailure,
    /// Recovery drops missing data without counting a loss.
    ForgetLoss,
    /// Recovery trusts the page cache instead of the device.
    BelieveCache,
    /// Recently written pages are neither compared nor forgotten.
    BelieveRecent,
}

impl StoreConfig {
    /// Whether the bug is planted. Always false in a release.
    pub(crate) fn has(&self, bug: PlantedBug) -> bool {
        #[cfg(any(test, feature = "planted"))]
        {
            self.planted == Some(bug)
        }
        #[cfg(not(any(test, feature = "planted")))]
        {
            let _ = bug;
            false
        }
    }
}
