//! How a journal is to be kept.

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
    /// Whether segments are written past the page cache.
    pub direct: bool,
    /// Appended bytes not yet written at which an append itself writes first (bounds the memory).
    pub pending_bytes_max: usize,
    /// A planted bug, to prove that the tests find it.
    #[cfg(any(test, feature = "planted"))]
    pub planted: Option<Planted>,
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
}

impl Default for JournalConfig {
    fn default() -> Self {
        Self {
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            streams: vec![StreamId::NAMESPACE, StreamId::STORE_INDEX, StreamId::STORE_DATA],
            prepare: Prepare::Background,
            direct: false,
            pending_bytes_max: 32 << 20,
            #[cfg(any(test, feature = "planted"))]
            planted: None,
        }
    }
}

impl JournalConfig {
    /// For tests on a simulated disk: small segments, no thread.
    #[must_use]
    pub fn small() -> Self {
        Self { segment_bytes: 64 << 10, prepare: Prepare::Inline, ..Self::default() }
    }
}
