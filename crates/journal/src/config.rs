//! How a journal is to be kept.

use std::time::Duration;

use disk::Removal;

use crate::StreamId;

/// Bytes in a segment unless configured otherwise.
pub const SEGMENT_BYTES_DEFAULT: u64 = 64 << 20;
/// The longest payload, in bytes.
pub const PAYLOAD_MAX: usize = 16 << 20;

/// How a journal is to be kept. `JournalConfig::default()` is for production.
#[derive(Clone, Debug)]
pub struct JournalConfig {
    /// Bytes in a segment file; a multiple of 4096, at least 64 KiB. A payload must fit into one segment.
    pub segment_bytes: u64,
    /// The streams whose trim marks hold segments back: a segment goes when all of these allow it.
    pub streams: Vec<StreamId>,
    /// Who makes segments ahead.
    pub prepare: Prepare,
    /// Whether segments are written past the page cache. Measured where this was written (ext4 on a virtual disk,
    /// preallocated file, medians of 1,000 appends each with its fdatasync):
    ///
    /// | segment made by | 350 B buffered | direct | 20 kB buffered | direct |
    /// | --- | --- | --- | --- | --- |
    /// | nothing (it grows) | 81 µs | 54 µs | 114 µs | 88 µs |
    /// | fallocate, KEEP_SIZE | 84 µs | 46 µs | 149 µs | 101 µs |
    /// | fallocate | 45 µs | 52 µs | 117 µs | 101 µs |
    /// | zeros written | 64 µs | 52 µs | 81 µs | **60 µs** |
    ///
    /// So segments are filled with zeros ahead and written directly: an fdatasync then changes no metadata.
    pub direct: bool,
    /// Refuse to open where there is no log instead of making one.
    pub must_exist: bool,
    /// The incarnation of a log that is made; `None`: from the system's randomness.
    pub incarnation: Option<u64>,
    /// A ballast file that an urgent append may give back when the disk is full.
    pub ballast: Option<BallastConfig>,
    /// Appended bytes not yet written at which an append itself writes first (bounds the memory).
    pub pending_bytes_max: usize,
    /// How trimmed segments are removed.
    pub removal: Removal,
    /// A planted bug, to prove that the tests find it.
    #[cfg(any(test, feature = "planted"))]
    pub planted: Option<Planted>,
}

/// Where the ballast is and how large it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BallastConfig {
    /// The file, relative to the disk's root.
    pub path: String,
    /// Its bytes; at least a segment's.
    pub bytes: u64,
}

/// Who makes segments ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prepare {
    /// A thread of the journal's own.
    Background,
    /// The append that needs one (deterministic: for tests).
    Inline,
}

/// Bugs that the crash tests must find.
#[cfg(any(test, feature = "planted"))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// `sync_to` returns when the bytes are only written.
    AcknowledgeBeforeSync,
    /// The opening scan does not compare checksums.
    SkipCrc,
    /// Trim removes one segment too many.
    TrimTooEarly,
    /// Frames say that nothing before them was durable.
    ForgetSyncedTo,
    /// The opening scan takes frames of another incarnation, or left over in recycled space.
    AcceptStaleIncarnation,
    /// Opening does not cut the tail that it found broken.
    LeaveBrokenTail,
    /// Opening takes what it finds for durable after a sync.
    BelieveTail,
    /// A failed write or sync is not written down.
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
    pub(crate) fn has(&self, bug: Planted) -> bool {
        self.planted == Some(bug)
    }

    /// Whether the opening scan compares checksums. It does; a planted bug does not.
    pub(crate) fn checks_crc(&self) -> bool {
        #[cfg(any(test, feature = "planted"))]
        if self.has(Planted::SkipCrc) {
            return false;
        }
        true
    }

    /// Whether the opening scan refuses frames of other logs. It does; a planted bug does not.
    pub(crate) fn checks_origin(&self) -> bool {
        #[cfg(any(test, feature = "planted"))]
        if self.has(Planted::AcceptStaleIncarnation) {
            return false;
        }
        true
    }

    /// Whether opening cuts a broken tail. It does; a planted bug does not.
    pub(crate) fn cuts_tail(&self) -> bool {
        #[cfg(any(test, feature = "planted"))]
        if self.has(Planted::LeaveBrokenTail) {
            return false;
        }
        true
    }

    /// Whether opening writes anew what is not known to be durable. It does; a planted bug does not.
    pub(crate) fn rewrites_tail(&self) -> bool {
        #[cfg(any(test, feature = "planted"))]
        if self.has(Planted::BelieveTail) {
            return false;
        }
        true
    }

    /// Whether a failed write or sync is written down. It is; a planted bug does not.
    pub(crate) fn notes_failures(&self) -> bool {
        #[cfg(any(test, feature = "planted"))]
        if self.has(Planted::ForgetFailure) {
            return false;
        }
        true
    }

    /// Whether a sync syncs. It does; a planted bug does not.
    pub(crate) fn syncs(&self) -> bool {
        #[cfg(any(test, feature = "planted"))]
        if self.has(Planted::AcknowledgeBeforeSync) {
            return false;
        }
        true
    }

    /// What a frame says was durable when it was appended: what was. A planted bug says nothing.
    pub(crate) fn synced_to(&self, durable: u64) -> u64 {
        #[cfg(any(test, feature = "planted"))]
        if self.has(Planted::ForgetSyncedTo) {
            return 0;
        }
        durable
    }

    /// Whether a segment with these first and last records may go when all before `below` may. A planted bug lets one
    /// too many go.
    pub(crate) fn may_trim(&self, first: u64, last: u64, below: u64) -> bool {
        #[cfg(any(test, feature = "planted"))]
        if self.has(Planted::TrimTooEarly) {
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
