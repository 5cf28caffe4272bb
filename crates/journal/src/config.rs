//! How to keep a journal.

use std::time::Duration;

use disk::Removal;

use crate::StreamId;

/// Default segment size in bytes.
pub const SEGMENT_BYTES_DEFAULT: u64 = 64 << 20;
/// The longest payload, in bytes.
pub const PAYLOAD_MAX: usize = 16 << 20;

/// How to keep a journal. `JournalConfig::default()` is for production.
#[derive(Clone, Debug)]
pub struct JournalConfig {
    /// Bytes in a segment file; a multiple of 4096, at least 64 KiB. A payload must fit into one segment.
    pub segment_bytes: u64,
    /// The streams whose trim marks hold segments back. A segment can be removed when all of them allow it.
    pub streams: Vec<StreamId>,
    /// Which thread makes segments in advance.
    pub prepare: Prepare,
    /// Whether to write segments past the page cache. Measured on ext4 on a virtual disk, in a preallocated file;
    /// medians of 1,000 appends, each with its fdatasync:
    ///
    /// | segment made by | 350 B buffered | direct | 20 kB buffered | direct |
    /// | --- | --- | --- | --- | --- |
    /// | nothing (it grows) | 81 µs | 54 µs | 114 µs | 88 µs |
    /// | fallocate, KEEP_SIZE | 84 µs | 46 µs | 149 µs | 101 µs |
    /// | fallocate | 45 µs | 52 µs | 117 µs | 101 µs |
    /// | zeros written | 64 µs | 52 µs | 81 µs | **60 µs** |
    ///
    /// Segments are therefore filled with zeros in advance, so that fdatasync changes no metadata, and long writes pass
    /// the page cache. Short ones go through it: `segment_file.rs` says why.
    pub direct: bool,
    /// Fail to open if there is no journal, instead of making one.
    pub must_exist: bool,
    /// The incarnation of a new journal. `None` takes a random number from the system.
    pub incarnation: Option<u64>,
    /// A ballast file that an urgent append may remove when the disk is full.
    pub ballast: Option<BallastConfig>,
    /// Unwritten bytes at which an append writes first. This bounds the memory.
    pub pending_bytes_max: usize,
    /// How to remove trimmed segments.
    pub removal: Removal,
    /// A bug for tests to find: it proves that they can.
    #[cfg(any(test, feature = "planted"))]
    pub planted: Option<PlantedBug>,
}

/// Path and size of the ballast.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BallastConfig {
    /// The file, relative to the disk's root.
    pub path: String,
    /// Its size in bytes; at least the size of a segment.
    pub bytes: u64,
}

/// Which thread makes segments in advance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prepare {
    /// A thread that the journal starts.
    Background,
    /// The thread whose append needs a segment. Deterministic, for tests.
    Inline,
}

/// Bugs that the crash tests must find.
#[cfg(any(test, feature = "planted"))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlantedBug {
    /// `sync_to` returns as soon as the bytes are written.
    AcknowledgeBeforeSync,
    /// The opening scan does not compare checksums.
    SkipCrc,
    /// Trim removes one segment too many.
    TrimTooEarly,
    /// Frames say that nothing before them was durable.
    ForgetSyncedTo,
    /// The opening scan accepts frames of another incarnation, and frames left over in recycled space.
    AcceptStaleIncarnation,
    /// Opening does not cut a broken tail.
    LeaveBrokenTail,
    /// Opening treats the tail as durable after a sync.
    BelieveTail,
    /// A failed write or sync is not recorded.
    ForgetFailure,
}

impl Default for JournalConfig {
    fn default() -> Self {
        Self {
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            streams: vec![StreamId::NAMESPACE, StreamId::STORE_INDEX, StreamId::STORE_DATA],
            prepare: Prepare::Background,
            direct: true,
            must_exist: false,
            incarnation: None,
            ballast: None,
            pending_bytes_max: 32 << 20,
            removal: Removal::default(),
            #[cfg(any(test, feature = "planted"))]
            planted: None,
        }
    }
}

impl JournalConfig {
    #[cfg(any(test, feature = "planted"))]
    pub(crate) fn has(&self, bug: PlantedBug) -> bool {
        self.planted == Some(bug)
    }

    /// Whether the opening scan compares checksums. Only a planted bug turns it off.
    pub(crate) fn checks_crc(&self) -> bool {
        #[cfg(any(test, feature = "planted"))]
        if self.has(PlantedBug::SkipCrc) {
            return false;
        }
        true
    }

    /// Whether the opening scan refuses frames of other journals. Only a planted bug turns it off.
    pub(crate) fn checks_origin(&self) -> bool {
        #[cfg(any(test, feature = "planted"))]
        if self.has(PlantedBug::AcceptStaleIncarnation) {
            return false;
        }
        true
    }

    /// Whether opening cuts a broken tail. Only a planted bug turns it off.
    pub(crate) fn cuts_tail(&self) -> bool {
        #[cfg(any(test, feature = "planted"))]
        if self.has(PlantedBug::LeaveBrokenTail) {
            return false;
        }
        true
    }

    /// Whether opening rewrites records that may not be durable. Only a planted bug turns it off.
    pub(crate) fn rewrites_tail(&self) -> bool {
        #[cfg(any(test, feature = "planted"))]
        if self.has(PlantedBug::BelieveTail) {
            return false;
        }
        true
    }

    /// Whether a failed write or sync is recorded. Only a planted bug turns it off.
    pub(crate) fn notes_failures(&self) -> bool {
        #[cfg(any(test, feature = "planted"))]
        if self.has(PlantedBug::ForgetFailure) {
            return false;
        }
        true
    }

    /// Whether a sync syncs. Only a planted bug turns it off.
    pub(crate) fn syncs(&self) -> bool {
        #[cfg(any(test, feature = "planted"))]
        if self.has(PlantedBug::AcknowledgeBeforeSync) {
            return false;
        }
        true
    }

    /// The `synced_to` of a new frame: the last durable record. A planted bug says 0.
    pub(crate) fn synced_to(&self, durable: u64) -> u64 {
        #[cfg(any(test, feature = "planted"))]
        if self.has(PlantedBug::ForgetSyncedTo) {
            return 0;
        }
        durable
    }

    /// Whether a segment with these first and last records can be removed when all records before `below` can. A
    /// planted bug removes one segment too many.
    pub(crate) fn may_trim(&self, first: u64, last: u64, below: u64) -> bool {
        #[cfg(any(test, feature = "planted"))]
        if self.has(PlantedBug::TrimTooEarly) {
            return first < below;
        }
        let _ = first;
        last < below
    }

    /// For tests on a simulated disk: small segments, no thread.
    #[must_use]
    pub fn small() -> Self {
        let removal = Removal { part: 16 << 10, rest: Duration::ZERO };
        Self { segment_bytes: 64 << 10, prepare: Prepare::Inline, removal, ..Self::default() }
    }
}
