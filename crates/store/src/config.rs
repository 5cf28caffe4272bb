//! How a store is to be kept.

/// Longest replica, in bytes: a little less than 16 TiB. ext4 has no longer files, and a length that turns out to be too long only when the
/// file is to get it would leave a replica that can neither be completed nor go back.
pub const REPLICA_LEN_MAX: u64 = (1 << 44) - (1 << 16);

/// Longest replica that is read back: older ones wrote up to this.
pub(crate) const DECODED_LEN_MAX: u64 = 1 << 62;

/// How a store is to be kept. `StoreConfig::default()` is for production.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Pieces up to this many bytes are packed in segments; at most 1 MiB.
    pub small_max: u64,
    /// Bytes at which a segment file of small replicas is full.
    pub segment_bytes: u64,
    /// Free bytes kept back: new data is refused below. `None`: the smaller of 1 GiB and 5 % of the file system.
    pub floor: Option<u64>,
    /// Whether large replicas are written past the page cache.
    pub direct: bool,
    /// Separate written ranges that are kept track of in one piece.
    pub ranges_max: usize,
    /// Pages of one replica that are held in memory (and in the log) until they are written to its file.
    pub held_pages_max: usize,
    /// Bytes of one replica that may go through the log before its state is written anew: what recovery holds of it in memory.
    pub redo_bytes_max: u64,
    /// Bytes of log behind an open writer's oldest record after which its state is written anew, so that the log can be trimmed.
    pub snapshot_after_bytes: u64,
    /// Bytes of older content, in whole pages, that one open checkpoint may make the log remember.
    pub checkpoint_bytes_max: u64,
    /// Bytes of small replicas that settle from the log into segments in one step.
    pub settle_step_bytes: u64,
    /// Aligned buffers of 1 MiB for direct writes, in all.
    pub buffers_max: usize,
    /// Bytes of pages' checksums of open large replicas that are kept in memory for reads at random places, in all: 4 for each page.
    pub known_sums_bytes_max: usize,
    /// Files of made but unfinished or removed replicas are looked for (and removed, with `clear_away`) at open. Costs a listing of all folders
    /// of large replicas, so it is left out after a clean stop.
    pub find_orphans: bool,
    /// Whether what surely belongs to nothing is removed at open. `false`: nothing is, for a look alone, and where the index may have
    /// lost what it knew (after a repair of the log).
    pub clear_away: bool,
    /// A planted bug, to prove that the tests find it.
    #[cfg(any(test, feature = "planted"))]
    pub planted: Option<Planted>,
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
pub enum Planted {
    /// `complete` and `sync` do not sync the file.
    AcknowledgeBeforeSync,
    /// Reads hand out pages without comparing them.
    SkipCrc,
    /// A write's range is not logged.
    ForgetRange,
    /// A object's number is taken a second time.
    ReuseObject,
    /// The log is trimmed below what is still needed.
    TrimTooEarly,
    /// Records point into a segment that is not synced.
    SettleBeforeSegmentSync,
    /// Files go before the record that says so is durable.
    UnlinkBeforeRecord,
    /// Pages are overwritten in place before their images are durable in the log.
    OverwriteBeforeLog,
    /// Held pages go into the file while a write that counts on them is under way.
    FlushUnderWrite,
    /// Recovery believes written ranges without comparing them.
    BelieveRanges,
    /// A checkpoint does not remember what its pages were.
    ForgetUndo,
    /// A checkpoint is committed before its pages are synced.
    CommitBeforeSync,
    /// A failed sync is not written down.
    ForgetFailure,
    /// Recovery drops what it does not find, and does not count that.
    ForgetLoss,
    /// Recovery takes what it reads for what the device has.
    BelieveCache,
}

impl StoreConfig {
    /// Whether the bug is planted. Always false in a release.
    pub(crate) fn has(&self, bug: Planted) -> bool {
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
