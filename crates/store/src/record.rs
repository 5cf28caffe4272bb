//! The records of the index: finished replicas, segments, and the objects that the store has seen.

use journal::Location;
use types::{Adler32, Crc32c, Incarnation, ObjectId, PAGE_SIZE, ReplicaId, ReplicaIndex};

use crate::StoreError;
use crate::codec::{Decoder, Encoder};
use crate::ranges::Ranges;

const VERSION: u8 = 1;

/// How a replica was finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    Complete,
    Interrupted,
}

/// Where a replica's bytes lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ByteLocation {
    /// Nowhere: the replica is empty.
    Empty,
    /// In the journal: `len` bytes from byte `skip` of a payload.
    Journal { location: Location, skip: u32 },
    /// In a segment: the record begins at `offset`, the bytes at `offset + header`.
    Segment { segment: u64, offset: u64, header: u32 },
    /// In its own plain file.
    Object,
}

/// A finished replica in the index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ReplicaRecord {
    pub(crate) ended: Ended,
    pub(crate) generation: u64,
    pub(crate) incarnation: Incarnation,
    pub(crate) len: u64,
    pub(crate) adler32: Adler32,
    pub(crate) crc32c: Crc32c,
    pub(crate) place: ByteLocation,
    /// The CRCs of a small replica's pages; empty if a sidecar has them.
    pub(crate) page_crcs: Vec<u32>,
    /// Only for an empty replica, and while the bytes lie in the journal; otherwise the segment or the sidecar has it.
    pub(crate) path_hint: Vec<u8>,
}

impl ReplicaRecord {
    /// Bytes that it occupies in a segment; 0 if it lies in none.
    pub(crate) fn bytes_in_segment(&self) -> u64 {
        match self.place {
            ByteLocation::Segment { header, .. } => u64::from(header) + self.len,
            _ => 0,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        out.u8(VERSION).u8(match self.ended {
            Ended::Complete => 1,
            Ended::Interrupted => 2,
        });
        out.u64(self.generation).u64(self.incarnation.0).u64(self.len).u32(self.adler32.0).u32(self.crc32c.0);
        match self.place {
            ByteLocation::Empty => {
                out.u8(0);
            }
            ByteLocation::Journal { location, skip } => {
                out.u8(1).u64(location.segment).u64(location.offset).u32(location.len).u32(skip);
            }
            ByteLocation::Segment { segment, offset, header } => {
                out.u8(2).u64(segment).u64(offset).u32(header);
            }
            ByteLocation::Object => {
                out.u8(3);
            }
        }
        out.u32s(&self.page_crcs).short_bytes(&self.path_hint);
        out.0
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, StoreError> {
        let mut input = Decoder::new(bytes, "a replica's record in the index");
        let version = input.u8()?;
        if version != VERSION {
            return Err(StoreError::Unsupported { what: format!("a replica's record (version {version})") });
        }
        let ended = match input.u8()? {
            1 => Ended::Complete,
            2 => Ended::Interrupted,
            _ => return Err(input.fail("unknown state")),
        };
        let (generation, incarnation, len) = (input.u64()?, Incarnation(input.u64()?), input.u64()?);
        let (adler32, crc32c) = (Adler32(input.u32()?), Crc32c(input.u32()?));
        let place = match input.u8()? {
            0 => ByteLocation::Empty,
            1 => ByteLocation::Journal {
                location: Location { segment: input.u64()?, offset: input.u64()?, len: input.u32()? },
                skip: input.u32()?,
            },
            2 => ByteLocation::Segment { segment: input.u64()?, offset: input.u64()?, header: input.u32()? },
            3 => ByteLocation::Object,
            _ => return Err(input.fail("unknown location")),
        };
        let page_crcs = input.u32s()?;
        let path_hint = input.short_bytes()?.to_vec();
        input.end()?;
        let small = matches!(place, ByteLocation::Journal { .. } | ByteLocation::Segment { .. });
        if small && (len > SMALL_LIMIT || page_crcs.len() as u64 != len.div_ceil(PAGE_SIZE as u64)) {
            return Err(input.fail("page checksums do not fit the length"));
        }
        if len > crate::config::DECODED_LEN_MAX {
            return Err(input.fail("a length too large"));
        }
        Ok(Self { ended, generation, incarnation, len, adler32, crc32c, place, page_crcs, path_hint })
    }
}

/// The longest small replica, whatever the configuration.
pub(crate) const SMALL_LIMIT: u64 = 1 << 20;

/// How full a segment is, and how much of it is live.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct SegmentStat {
    /// Bytes that were synced and may be referred to.
    pub(crate) end: u64,
    /// Bytes of records that the index refers to.
    pub(crate) live: u64,
}

impl SegmentStat {
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut out = Encoder::default();
        out.u8(VERSION).u64(self.end).u64(self.live);
        out.0
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, StoreError> {
        let mut input = Decoder::new(bytes, "a segment's record in the index");
        let version = input.u8()?;
        if version != VERSION {
            return Err(StoreError::Unsupported { what: format!("a segment's record (version {version})") });
        }
        let stat = Self { end: input.u64()?, live: input.u64()? };
        input.end()?;
        Ok(stat)
    }
}

/// The objects and the incarnation of the namespace that the store has seen.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct SeenObjects {
    pub(crate) objects: Ranges,
    pub(crate) incarnation: Incarnation,
}

/// Gaps that are kept. The lowest are dropped first, and count as seen from then on.
const SEEN_RANGES_MAX: usize = 1024;

impl SeenObjects {
    pub(crate) fn has(&self, object: ObjectId) -> bool {
        self.objects.contains(object.0, object.0.saturating_add(1))
    }

    /// Whether the store no longer knows that this object was never begun: it lies, or may lie, in a dropped gap.
    pub(crate) fn has_forgotten(&self, object: ObjectId) -> bool {
        let ranges = self.objects.as_slice();
        ranges.len() >= SEEN_RANGES_MAX / 2
            && ranges.first().is_some_and(|(start, end)| (*start..*end).contains(&object.0))
    }

    pub(crate) fn add(&mut self, object: ObjectId, incarnation: Incarnation) {
        self.objects.insert(object.0, object.0.saturating_add(1));
        self.incarnation = self.incarnation.max(incarnation);
        if self.objects.len() > SEEN_RANGES_MAX
            && let [first, second, ..] = self.objects.as_slice()
        {
            let (start, end) = (first.0, second.1);
            self.objects.insert(start, end);
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        out.u8(VERSION).u64(self.incarnation.0).ranges(&self.objects);
        out.0
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, StoreError> {
        let mut input = Decoder::new(bytes, "the store's record of used objects");
        let version = input.u8()?;
        if version != VERSION {
            return Err(StoreError::Unsupported {
                what: format!("the store's record of used objects (version {version})"),
            });
        }
        let seen = Self { incarnation: Incarnation(input.u64()?), objects: input.ranges()? };
        input.end()?;
        Ok(seen)
    }
}

/// The key of the seen objects.
pub(crate) const SEEN_KEY: &[u8] = b"m";

/// `p <object> <index>`.
pub(crate) fn replica_key(replica: ReplicaId) -> Vec<u8> {
    let mut key = vec![b'p'];
    key.extend_from_slice(&replica.object.0.to_be_bytes());
    key.extend_from_slice(&replica.index.0.to_be_bytes());
    key
}

/// The first key after all replicas.
pub(crate) const REPLICAS_END: &[u8] = b"q";

pub(crate) fn replica_of_key(key: &[u8]) -> Option<ReplicaId> {
    let rest = key.strip_prefix(b"p")?;
    let (object, index) = (rest.get(..8)?, rest.get(8..)?);
    Some(ReplicaId {
        object: ObjectId(u64::from_be_bytes(object.try_into().ok()?)),
        index: ReplicaIndex(u16::from_be_bytes(index.try_into().ok()?)),
    })
}

/// `s <segment>`.
pub(crate) fn segment_key(segment: u64) -> Vec<u8> {
    let mut key = vec![b's'];
    key.extend_from_slice(&segment.to_be_bytes());
    key
}

/// The first key after all segments.
pub(crate) const SEGMENTS_END: &[u8] = b"t";

pub(crate) fn segment_of_key(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.strip_prefix(b"s")?.try_into().ok()?))
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)] // small numbers
mod tests {
    use super::*;

    #[test]
    fn records_of_longer_replicas_are_still_read() {
        let record = ReplicaRecord {
            ended: Ended::Complete,
            generation: 1,
            incarnation: Incarnation(1),
            len: crate::REPLICA_LEN_MAX * 4,
            adler32: Adler32(7),
            crc32c: Crc32c(8),
            place: ByteLocation::Object,
            page_crcs: vec![],
            path_hint: b"/x".to_vec(),
        };
        assert_eq!(ReplicaRecord::decode(&record.encode()).unwrap(), record);
        let longest = ReplicaRecord { len: crate::config::DECODED_LEN_MAX + 1, ..record };
        assert!(ReplicaRecord::decode(&longest.encode()).is_err());
    }

    #[test]
    fn records_round_trip_and_damaged_ones_never_panic() {
        let location = Location { segment: 3, offset: 4, len: 5 };
        for place in [
            ByteLocation::Empty,
            ByteLocation::Journal { location, skip: 9 },
            ByteLocation::Segment { segment: 1, offset: 2, header: 3 },
            ByteLocation::Object,
        ] {
            let small = matches!(place, ByteLocation::Journal { .. } | ByteLocation::Segment { .. });
            let record = ReplicaRecord {
                ended: Ended::Interrupted,
                generation: 2,
                incarnation: Incarnation(5),
                len: 5000,
                adler32: Adler32(7),
                crc32c: Crc32c(8),
                place,
                page_crcs: if small { vec![1, 2] } else { vec![] },
                path_hint: b"/x".to_vec(),
            };
            let bytes = record.encode();
            assert_eq!(ReplicaRecord::decode(&bytes).unwrap(), record);
            for cut in 0..bytes.len() {
                assert!(ReplicaRecord::decode(&bytes[..cut]).is_err(), "{cut}");
            }
        }
    }

    #[test]
    fn seen_objects_keep_gaps_and_dropped_gaps_count_as_seen() {
        let mut seen = SeenObjects::default();
        for object in (2..5000).step_by(2) {
            seen.add(ObjectId(object), Incarnation(1));
        }
        assert!(seen.objects.len() <= SEEN_RANGES_MAX);
        assert!(
            seen.has(ObjectId(4998)) && !seen.has(ObjectId(4997)) && seen.has(ObjectId(3)) && !seen.has(ObjectId(5000))
        );
        assert!(seen.has_forgotten(ObjectId(3)) && seen.has_forgotten(ObjectId(4)));
        assert!(!seen.has_forgotten(ObjectId(4998)) && !seen.has_forgotten(ObjectId(4997)));
        assert_eq!(SeenObjects::decode(&seen.encode()).unwrap(), seen);
    }

    #[test]
    fn keys_round_trip_in_order() {
        let replica = ReplicaId { object: ObjectId(77), index: ReplicaIndex(3) };
        assert_eq!(replica_of_key(&replica_key(replica)), Some(replica));
        assert_eq!(segment_of_key(&segment_key(9)), Some(9));
        assert!(replica_key(ReplicaId::first(ObjectId(1))) < replica_key(ReplicaId::first(ObjectId(256))));
        assert!(replica_key(ReplicaId::first(ObjectId(u64::MAX))).as_slice() < REPLICAS_END);
    }

    #[test]
    fn newer_versions_are_refused() {
        let stat = SegmentStat::default().encode();
        let seen = SeenObjects::default().encode();
        let newer = |bytes: &[u8]| [&[VERSION + 1], &bytes[1..]].concat();
        assert!(matches!(SegmentStat::decode(&newer(&stat)), Err(StoreError::Unsupported { .. })));
        assert!(matches!(SeenObjects::decode(&newer(&seen)), Err(StoreError::Unsupported { .. })));
        assert!(matches!(ReplicaRecord::decode(&[VERSION + 1, 0, 0]), Err(StoreError::Unsupported { .. })));
    }
}
