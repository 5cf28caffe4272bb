//! The possible effects of a crash, and the actual ones.

/// How a crash treats unsynced changes: weights for the outcomes of one unsynced write, and chances for others. The
/// outcome is drawn for each write and each name, in any order.
#[derive(Clone, Copy, Debug)]
pub struct CrashFaults {
    /// Weight: the write survives as it was made.
    pub kept: u32,
    /// Weight: the write is lost.
    pub lost: u32,
    /// Weight: some of its 512-byte sectors survive.
    pub torn: u32,
    /// Weight: its length survives and its bytes are zeros. Only where nothing durable was before, like on a journaling
    /// file system; sectors with durable bytes keep the old ones.
    pub zeroed: u32,
    /// Chance in percent that an unsynced change of a length or a name survives.
    pub metadata_kept: u32,
}

impl CrashFaults {
    /// All outcomes are possible.
    #[must_use]
    pub fn mixed() -> Self {
        Self { kept: 4, lost: 3, torn: 2, zeroed: 1, metadata_kept: 50 }
    }

    /// All unsynced changes are lost.
    #[must_use]
    pub fn all_lost() -> Self {
        Self { kept: 0, lost: 1, torn: 0, zeroed: 0, metadata_kept: 0 }
    }
}

/// The faults that a crash really caused: numbers of unsynced writes and names by outcome.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct CrashReport {
    /// Unsynced writes that survived.
    pub kept: u64,
    /// Unsynced writes that were lost.
    pub lost: u64,
    /// Unsynced writes that survived in part.
    pub torn: u64,
    /// Unsynced writes that read as zeros.
    pub zeroed: u64,
    /// Writes that survived although an earlier one to the same file was lost.
    pub reordered: u64,
    /// Unsynced lengths that were lost.
    pub lengths_lost: u64,
    /// Unsynced changes of names (made, removed, renamed) that survived.
    pub names_kept: u64,
    /// Unsynced changes of names (made, removed, renamed) that were undone.
    pub names_lost: u64,
}

impl CrashReport {
    /// Adds another crash's counts.
    pub fn add(&mut self, other: &CrashReport) {
        self.kept += other.kept;
        self.lost += other.lost;
        self.torn += other.torn;
        self.zeroed += other.zeroed;
        self.reordered += other.reordered;
        self.lengths_lost += other.lengths_lost;
        self.names_kept += other.names_kept;
        self.names_lost += other.names_lost;
    }
}
