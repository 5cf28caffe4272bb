//! The namespace against itself: every rule between keys, in bounded memory. For `weir fsck` and for the tests.

use kv::Read;

use crate::NsError;

/// Something that should not be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The key, escaped.
    pub key: String,
    /// What is wrong, in plain words.
    pub what: String,
}

/// What was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CheckCounts {
    /// Directories.
    pub directories: u64,
    /// Names of files and symbolic links.
    pub names: u64,
    /// Writers.
    pub writers: u64,
    /// Uploads.
    pub uploads: u64,
    /// Bodies (`B`).
    pub bodies: u64,
    /// Entries of the deletion queue.
    pub deletions: u64,
    /// Keys in all.
    pub keys: u64,
}

/// Reads everything once, asks back where two keys must agree, and calls `report` for each thing that is wrong.
pub fn check(read: &dyn Read, report: &mut dyn FnMut(Finding)) -> Result<CheckCounts, NsError> {
    report(Finding { key: String::new(), what: String::new() });
    todo!("{}", read.get(b"")?.is_some())
}
