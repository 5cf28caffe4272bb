//! What a crash may do, and what it did.

/// How a crash treats what was not synced: weights of the fates of one unsynced write, and chances of others.
/// The fates are drawn per write and per name, in any order.
#[derive(Clone, Copy, Debug)]
pub struct CrashFaults {
    /// Weight: the write is there as it was made.
    pub kept: u32,
    /// Weight: it never happened.
    pub lost: u32,
    /// Weight: some of its 512-byte sectors are there.
    pub torn: u32,
    /// Weight: its length is there, its bytes are zeros (only where nothing durable was before: that is what a
    /// journaling file system shows; sectors with durable bytes keep the old ones).
    pub zeroed: u32,
    /// Chance in percent that an unsynced change of a length or of a name is there.
    pub metadata_kept: u32,
}

impl CrashFaults {
    /// Everything can happen.
    #[must_use]
    pub fn mixed() -> Self {
        Self { kept: 4, lost: 3, torn: 2, zeroed: 1, metadata_kept: 50 }
    }

    /// All that was not synced is gone.
    #[must_use]
    pub fn all_lost() -> Self {
        Self { kept: 0, lost: 1, torn: 0, zeroed: 0, metadata_kept: 0 }
    }
}

/// Which faults really hit in a crash: counts of unsynced writes and names by what became of them.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct CrashReport {
    /// Unsynced writes that are there.
    pub kept: u64,
    /// Unsynced writes that are gone.
    pub lost: u64,
    /// Unsynced writes that are there in part.
    pub torn: u64,
    /// Unsynced writes that read as zeros.
    pub zeroed: u64,
    /// Writes that are there while an earlier one of the same file is not.
    pub reordered: u64,
    /// Unsynced lengths that are gone.
    pub lengths_lost: u64,
    /// Unsynced names (made, removed, renamed) that are there.
    pub names_kept: u64,
    /// Unsynced names (made, removed, renamed) that are undone.
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
