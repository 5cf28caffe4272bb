//! The types of the journal's interface: streams, sequence numbers, locations, reports.

use std::fmt;
use std::ops::ControlFlow;

use types::Histogram;

/// One user of the journal. Only that user replays its records.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamId(pub u8);

impl StreamId {
    /// The marks that the journal writes for itself.
    pub const MARKS: StreamId = StreamId(0);
    /// The namespace's batches.
    pub const NAMESPACE: StreamId = StreamId(1);
    /// The store's batches.
    pub const STORE_INDEX: StreamId = StreamId(2);
    /// Bytes and ranges of open writes.
    pub const STORE_DATA: StreamId = StreamId(3);
}

/// A record's position in the order of all records of all streams. The first is 1; 0 precedes all records. A number
/// that a caller has seen is never used twice. Some numbers belong to no user's stream (marks).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Seq(pub u64);

impl Seq {
    /// Precedes the first record.
    pub const ZERO: Seq = Seq(0);

    /// The following number.
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

/// Where a journal starts that replaces a lost one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Beginning {
    /// The number of the first record: above every number that the lost journal can have given to a known record.
    pub first: Seq,
    /// The number of the first segment: above every segment that any [`Location`] refers to.
    pub segment: u64,
    /// Distinguishes the journal from others.
    pub incarnation: u64,
}

/// Where a payload's bytes lie. Valid until the segment is trimmed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Location {
    /// The segment's number, counted from 1.
    pub segment: u64,
    /// The payload's first byte in the segment file.
    pub offset: u64,
    /// Bytes of payload.
    pub len: u32,
}

/// A record that was appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// Its number.
    pub seq: Seq,
    /// Where its payload lies.
    pub location: Location,
}

/// What opening a journal found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// The last record; 0 if there is none.
    pub last: Seq,
    /// The first retained record; `last + 1` if there is none.
    pub oldest: Seq,
    /// Number of records, including marks.
    pub records: u64,
    /// Whether the last record marks a clean stop.
    pub clean: bool,
    /// Whether this call made the journal.
    pub created: bool,
    /// The invalid unsynced tail that was cut, if there was one.
    pub cut: Option<Cut>,
    /// Why unsynced bytes may be lost although the power did not fail; `None` if they are not.
    pub lost: Option<Loss>,
}

/// Why unsynced bytes may be lost although the machine has not stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// A write or a sync failed before the journal was closed or its process ended.
    Failed,
    /// A record is missing, although later ones exist.
    Gap,
    /// Unknown: an older weir wrote the journal, or somebody started or copied it by hand.
    Unknown,
}

/// An unsynced tail that was cut when the journal was opened. No caller was told that it was durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The segment file.
    pub segment: String,
    /// Offset of the tail in that file.
    pub offset: u64,
    /// Bytes from there to the last nonzero byte, in all segments.
    pub bytes: u64,
    /// The file that holds the cut bytes (at most 16 MiB), relative to the disk's root. `None` if there was no space to
    /// save them.
    pub saved: Option<String>,
}

/// What the repair of a damaged journal did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Repaired {
    /// The record with which the journal now ends.
    pub last: Seq,
    /// The first and the last lost record, both inclusive. The last is the highest that can be seen.
    pub lost: (Seq, Seq),
    /// The files that hold everything from the damage on, relative to the disk's root.
    pub saved: Vec<String>,
}

/// A segment, for tools that follow the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentInfo {
    /// Its number.
    pub segment: u64,
    /// Its first record.
    pub first: Seq,
    /// Its last record; `first - 1` if it has none.
    pub last: Seq,
    /// The journal's incarnation when the segment was begun. After a repair it differs from
    /// [`crate::Journal::incarnation`].
    pub incarnation: u64,
    /// Bytes in use.
    pub bytes: u64,
    /// Whether it is full: nothing is appended to it any more.
    pub sealed: bool,
}

/// Counters since the journal was opened.
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
    /// Sync rounds that callers wait for; one fdatasync each, or two after a change of segments.
    pub syncs: u64,
    /// Records that these rounds made durable; `records_synced / syncs` is the mean batch.
    pub records_synced: u64,
    /// Records made durable by each round.
    pub sync_records: Histogram,
    /// Duration of the syncs of each round in microseconds, without the writes before them.
    pub sync_micros: Histogram,
    /// Segments made.
    pub segments_made: u64,
    /// Segments trimmed.
    pub segments_trimmed: u64,
    /// Trimmed segments whose files could not be removed; the next opening removes them.
    pub removals_failed: u64,
    /// Panics while making a segment. Each attempt was repeated.
    pub panics: u64,
}

/// Receives the records of one stream: number, location, payload. Breaks to stop.
pub type Visit<'v> = dyn FnMut(Seq, Location, &[u8]) -> ControlFlow<()> + 'v;

/// [`Visit`] for several streams.
pub type VisitMany<'v> = dyn FnMut(StreamId, Seq, Location, &[u8]) -> ControlFlow<()> + 'v;
