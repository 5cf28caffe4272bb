//! The format of sidecar files: the checksums of a large replica's pages, and a copy of its record.

use types::{Adler32, Crc32c, Incarnation, ReplicaId};

use crate::StoreError;
use crate::codec::{Decoder, Encoder};
use crate::record::{ByteLocation, Ended, ReplicaRecord};
use crate::sums::PAGE_SUM_BYTES;

const MAGIC: &[u8; 8] = b"WEIRCRC1";
const VERSION: u16 = 1;

/// Bytes of one of the two header slots. Generations alternate between them, so a torn header leaves the previous one
/// intact.
pub(crate) const SLOT: usize = 8192;
/// Offset of the pages' checksums.
pub(crate) const SUMS_AT: u64 = 2 * SLOT as u64;

/// Longest path hint that is stored.
pub(crate) const PATH_HINT_MAX: usize = 4096;

/// The contents of a header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) replica: ReplicaId,
    pub(crate) generation: u64,
    /// `None`: unfinished.
    pub(crate) ended: Option<Ended>,
    pub(crate) incarnation: Incarnation,
    pub(crate) len: u64,
    pub(crate) adler32: Adler32,
    pub(crate) crc32c: Crc32c,
    pub(crate) path_hint: Vec<u8>,
}

/// The offset of the checksums of page `page`.
pub(crate) fn sum_offset(page: u64) -> u64 {
    SUMS_AT + page * PAGE_SUM_BYTES
}

impl Header {
    /// The offset of the header's slot.
    pub(crate) fn offset(&self) -> u64 {
        (self.generation & 1) * SLOT as u64
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        out.raw(MAGIC).u16(VERSION).u16(0).u32(0).replica(self.replica).u64(self.generation);
        out.u8(match self.ended {
            None => 0,
            Some(Ended::Complete) => 1,
            Some(Ended::Interrupted) => 2,
        });
        out.u64(self.incarnation.0).u64(self.len).u32(self.adler32.0).u32(self.crc32c.0);
        out.short_bytes(&self.path_hint[..self.path_hint.len().min(PATH_HINT_MAX)]);
        out.0.resize(SLOT - 4, 0);
        let crc = Crc32c::of(&out.0);
        out.u32(crc.0);
        out.0
    }

    fn decode(slot: &[u8]) -> Result<Self, StoreError> {
        let mut input = Decoder::new(slot, "a sidecar's header");
        let bytes = input.raw(SLOT)?;
        let (object, crc) = bytes.split_at(SLOT - 4);
        if !object.starts_with(MAGIC) || crc != Crc32c::of(object).0.to_le_bytes() {
            return Err(input.fail("does not check"));
        }
        let mut input = Decoder::new(&object[8..], "a sidecar's header");
        let (version, _, features) = (input.u16()?, input.u16()?, input.u32()?);
        if version != VERSION || features != 0 {
            let what = format!("a sidecar (version {version}, features {features:x})");
            return Err(StoreError::Unsupported { what });
        }
        let (replica, generation) = (input.replica()?, input.u64()?);
        let ended = match input.u8()? {
            0 => None,
            1 => Some(Ended::Complete),
            2 => Some(Ended::Interrupted),
            _ => return Err(input.fail("unknown state")),
        };
        let (incarnation, len) = (Incarnation(input.u64()?), input.u64()?);
        let (adler32, crc32c) = (Adler32(input.u32()?), Crc32c(input.u32()?));
        let path_hint = input.short_bytes()?.to_vec();
        Ok(Self { replica, generation, ended, incarnation, len, adler32, crc32c, path_hint })
    }

    /// The newest valid header in the first bytes of a sidecar; `None` if neither slot is valid.
    pub(crate) fn newest(bytes: &[u8]) -> Result<Option<Self>, StoreError> {
        let mut newest: Option<Self> = None;
        for slot in bytes.chunks_exact(SLOT).take(2) {
            match Self::decode(slot) {
                Ok(header) if newest.as_ref().is_none_or(|n| n.generation < header.generation) => newest = Some(header),
                Ok(_) | Err(StoreError::Damaged { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(newest)
    }

    /// The replica's record, if it was finished.
    pub(crate) fn record(&self) -> Option<ReplicaRecord> {
        Some(ReplicaRecord {
            ended: self.ended?,
            generation: self.generation,
            incarnation: self.incarnation,
            len: self.len,
            adler32: self.adler32,
            crc32c: self.crc32c,
            place: ByteLocation::Object,
            page_crcs: Vec::new(),
            path_hint: Vec::new(),
        })
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)] // small numbers
mod tests {
    use types::ObjectId;

    use super::*;

    #[test]
    fn the_newest_valid_header_counts() {
        let header = |generation, ended| Header {
            replica: ReplicaId::first(ObjectId(1)),
            generation,
            ended,
            incarnation: Incarnation(1),
            len: 100_000,
            adler32: Adler32(1),
            crc32c: Crc32c(2),
            path_hint: vec![b'x'; 9000],
        };
        let (first, second) = (header(1, Some(Ended::Complete)), header(2, None));
        let mut bytes = vec![0; 2 * SLOT];
        assert_eq!(Header::newest(&bytes).unwrap(), None);
        for header in [&first, &second] {
            let at = header.offset() as usize;
            bytes[at..at + SLOT].copy_from_slice(&header.encode());
        }
        let newest = Header::newest(&bytes).unwrap().unwrap();
        assert_eq!((newest.generation, newest.path_hint.len(), newest.record()), (2, PATH_HINT_MAX, None));
        bytes[100] ^= 1;
        let newest = Header::newest(&bytes).unwrap().unwrap();
        assert_eq!((newest.generation, newest.record().is_some()), (1, true));
    }

    #[test]
    fn newer_versions_and_unknown_features_are_refused() {
        let ended = Some(Ended::Complete);
        let (generation, incarnation, path_hint) = (0, Incarnation(1), Vec::new());
        let replica = ReplicaId::first(ObjectId(1));
        let (len, adler32, crc32c) = (1, Adler32(1), Crc32c(2));
        let header = Header { replica, generation, ended, incarnation, len, adler32, crc32c, path_hint };
        for at in [8, 12] {
            let mut slot = header.encode();
            slot[at] += 1;
            let crc = Crc32c::of(&slot[..SLOT - 4]).0.to_le_bytes();
            slot[SLOT - 4..].copy_from_slice(&crc);
            let refused = Header::newest(&slot).unwrap_err();
            assert!(matches!(&refused, StoreError::Unsupported { .. }), "{refused}");
            assert!(refused.to_string().contains("newer version of weir"), "{refused}");
        }
    }
}
