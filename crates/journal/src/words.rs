//! The words of the log: streams, sequence numbers, places.

use std::fmt;
use std::ops::ControlFlow;

use types::Histogram;

/// One user of the log; its records are replayed to it alone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamId(pub u8);

impl StreamId {
    /// The journal's own marks; not for users.
    pub const MARKS: StreamId = StreamId(0);
    /// The namespace's batches.
    pub const NAMESPACE: StreamId = StreamId(1);
    /// The store's batches.
    pub const STORE_INDEX: StreamId = StreamId(2);
    /// Bytes and ranges of files in the making.
    pub const STORE_DATA: StreamId = StreamId(3);
}

/// A record's position in the order of all records of all streams. The first is 1; 0 is before everything.
/// Numbers are never used twice for records that anybody was told of; there can be numbers that no stream has (marks).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Seq(pub u64);

impl Seq {
    /// Before the first record.
    pub const ZERO: Seq = Seq(0);

    /// The one after this.
    #[must_use]
    pub fn next(self) -> Seq {
        Seq(self.0.saturating_add(1))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where a log begins that takes the place of a lost one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Beginning {
    /// The number of the first record: above every number that the lost log can have given to a record that anybody knows of.
    pub first: Seq,
    /// The number of the first segment: above every segment that a [`Location`] somewhere speaks of.
    pub segment: u64,
    /// What the log is to be told from others by.
    pub incarnation: u64,
}

/// Where a payload's bytes lie. Valid until the segment is trimmed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Location {
    /// The segment's number (its place in the order of segments, counted from 1).
    pub segment: u64,
    /// The payload's first byte in the segment file.
    pub offset: u64,
    /// Bytes of payload.
    pub len: u32,
}

/// A record that was taken into the log's order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// Its number.
    pub seq: Seq,
    /// Where its payload is.
    pub location: Location,
}

/// What opening a log found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// The last record that is there (0: none).
    pub last: Seq,
    /// The first record that is retained (`last + 1`: none).
    pub oldest: Seq,
    /// Records that are there, marks included.
    pub records: u64,
    /// Whether the last thing written was the mark of a clean stop.
    pub clean: bool,
    /// Whether the log was made just now.
    pub created: bool,
    /// The unsynced tail that did not check and was cut, if there was one.
    pub cut: Option<Cut>,
    /// Why something that was written and not synced may be gone without a power failure, if that may be.
    pub lost: Option<Loss>,
}

/// Why something that was written and not synced may be gone, although the machine has not stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// A write or a sync had failed before the log was closed, or its process ended.
    Failed,
    /// A record is missing before later ones that are there.
    Gap,
    /// The log does not say: an older weir wrote it, or it was begun or put there by hand.
    Unknown,
}

/// An unsynced tail that was cut when the log was opened. Nobody was told that it was durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The segment file.
    pub segment: String,
    /// Where in it the tail began.
    pub offset: u64,
    /// Bytes from there to the last byte that was not zero, in all segments.
    pub bytes: u64,
    /// The file that the bytes were saved in, relative to the disk's root (at most 16 MiB of them; `None`: there was
    /// no space to save them).
    pub saved: Option<String>,
}

/// What the repair of a damaged log did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Repaired {
    /// The log now ends with this record.
    pub last: Seq,
    /// The first and last record numbers that are lost, both inclusive; the last as far as can be seen.
    pub lost: (Seq, Seq),
    /// The files that everything from the damage on was saved in, relative to the disk's root.
    pub saved: Vec<String>,
}

/// A segment, for those who follow the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentInfo {
    /// Its number.
    pub segment: u64,
    /// Its first record.
    pub first: Seq,
    /// Its last record (`first - 1`: none).
    pub last: Seq,
    /// The incarnation of the log when it was begun: an older one than [`crate::Journal::incarnation`] where a repair
    /// has cut the log and it went on.
    pub incarnation: u64,
    /// Bytes in use.
    pub bytes: u64,
    /// Whether it is full, so that nothing will be added to it.
    pub sealed: bool,
}

/// Counters since the log was opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct JournalStats {
    /// Records appended.
    pub records: u64,
    /// Payload bytes appended.
    pub payload_bytes: u64,
    /// Writes made to segments.
    pub writes: u64,
    /// Bytes written to segments.
    pub bytes_written: u64,
    /// Rounds of syncs: what a waiter waits for (one fdatasync, or two when a segment was changed).
    pub syncs: u64,
    /// Records made durable by those: `records_synced / syncs` is the mean batch.
    pub records_synced: u64,
    /// The same, by round: how many records each made durable.
    pub sync_records: Histogram,
    /// How long the syncs of a round took, in microseconds, without the writes before them.
    pub sync_micros: Histogram,
    /// Segments made.
    pub segments_made: u64,
    /// Segments trimmed.
    pub segments_trimmed: u64,
    /// Trimmed segments whose files could not be removed yet; the next opening does it.
    pub removals_failed: u64,
    /// Times that the making of a segment panicked. It was tried again.
    pub panics: u64,
}

/// Is shown the records of one stream: number, place, payload. Breaks when it has seen enough.
pub type Visit<'v> = dyn FnMut(Seq, Location, &[u8]) -> ControlFlow<()> + 'v;

/// [`Visit`] for several streams.
pub type VisitMany<'v> = dyn FnMut(StreamId, Seq, Location, &[u8]) -> ControlFlow<()> + 'v;
