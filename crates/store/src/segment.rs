//! The format of segment files, which hold small replicas. `docs/reference/formats.md` describes it; an export reads it without weir.

use disk::DiskFile;
use types::{Adler32, Crc32c, Incarnation, PAGE_SIZE, ReplicaId};

use crate::StoreError;
use crate::codec::{Decoder, Encoder};
use crate::record::{Ended, ReplicaRecord, SMALL_LIMIT};

const FILE_MAGIC: &[u8; 8] = b"WEIRSEG1";
const RECORD_MAGIC: &[u8; 8] = b"WEIRPIEC";
const VERSION: u16 = 1;

/// Bytes of the file's header.
pub(crate) const FILE_HEADER: u64 = HEADER as u64;
const HEADER: usize = 64;
/// Bytes of a record before the path hint.
const FIXED: usize = 8 + 2 + 2 + 4 + 10 + 1 + 8 + 8 + 8 + 4 + 4 + 2;
/// The longest header of a record: fixed part, path hint, page checksums, its own checksum.
const HEADER_MAX: usize = FIXED + u16::MAX as usize + 4 * (1 << 20) / PAGE_SIZE + 4;

/// The header of segment `number`.
pub(crate) fn file_header(number: u64) -> Vec<u8> {
    let mut out = Encoder::default();
    out.raw(FILE_MAGIC).u16(VERSION).u16(0).u32(0).u64(number);
    out.0.resize(HEADER - 4, 0);
    let crc = Crc32c::of(&out.0);
    out.u32(crc.0);
    out.0
}

/// Checks a file header. Returns the segment's number.
pub(crate) fn check_file_header(bytes: &[u8]) -> Result<u64, StoreError> {
    let mut input = Decoder::new(bytes, "a segment's header");
    let checked = input.raw(HEADER)?;
    let (object, crc) = checked.split_at(HEADER - 4);
    if !checked.starts_with(FILE_MAGIC) || crc != Crc32c::of(object).0.to_le_bytes() {
        return Err(input.fail("does not check"));
    }
    let mut fields = Decoder::new(&object[8..], "a segment's header");
    let (version, _, features) = (fields.u16()?, fields.u16()?, fields.u32()?);
    if version != VERSION || features != 0 {
        return Err(StoreError::Unsupported { what: format!("a segment (version {version}, features {features:x})") });
    }
    fields.u64()
}

/// The header of a replica's record. Its bytes follow directly.
pub(crate) fn record_header(replica: ReplicaId, record: &ReplicaRecord, path_hint: &[u8]) -> Vec<u8> {
    let hint = &path_hint[..path_hint.len().min(usize::from(u16::MAX))];
    let header_len = FIXED + hint.len() + 4 * record.page_crcs.len() + 4;
    let mut out = Encoder::default();
    out.raw(RECORD_MAGIC).u16(VERSION).u16(0).u32(u32::try_from(header_len).unwrap_or(u32::MAX));
    out.replica(replica).u8(match record.ended {
        Ended::Complete => 1,
        Ended::Interrupted => 2,
    });
    out.u64(record.generation).u64(record.incarnation.0).u64(record.len);
    out.u32(record.adler32.0).u32(record.crc32c.0).short_bytes(hint);
    for crc in &record.page_crcs {
        out.u32(*crc);
    }
    let crc = Crc32c::of(&out.0);
    out.u32(crc.0);
    out.0
}

/// A record found in a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    pub(crate) replica: ReplicaId,
    /// The caller must fill in its place.
    pub(crate) record: ReplicaRecord,
    pub(crate) header: u32,
}

/// Reads a record's header from the beginning of `bytes`.
pub(crate) fn parse_record(bytes: &[u8]) -> Result<Found, StoreError> {
    let what = "a record in a segment";
    let mut start = Decoder::new(bytes, what);
    if start.raw(8)? != RECORD_MAGIC {
        return Err(start.fail("has no magic number"));
    }
    let (version, _, header) = (start.u16()?, start.u16()?, start.u32()?);
    let header_len = header as usize;
    if !(FIXED + 4..=HEADER_MAX).contains(&header_len) || header_len > bytes.len() {
        return Err(start.fail("has an impossible length"));
    }
    let (object, crc) = bytes[..header_len].split_at(header_len - 4);
    if crc != Crc32c::of(object).0.to_le_bytes() {
        return Err(start.fail("does not check"));
    }
    if version != VERSION {
        return Err(StoreError::Unsupported { what: format!("{what} (version {version})") });
    }
    let mut input = Decoder::new(&object[16..], what);
    let replica = input.replica()?;
    let ended = match input.u8()? {
        1 => Ended::Complete,
        2 => Ended::Interrupted,
        _ => return Err(input.fail("unknown state")),
    };
    let (generation, incarnation, len) = (input.u64()?, Incarnation(input.u64()?), input.u64()?);
    let (adler32, crc32c) = (Adler32(input.u32()?), Crc32c(input.u32()?));
    let path_hint = input.short_bytes()?.to_vec();
    if len > SMALL_LIMIT {
        return Err(input.fail("is longer than a small object can be"));
    }
    let page_crcs: Result<Vec<u32>, _> = (0..len.div_ceil(PAGE_SIZE as u64)).map(|_| input.u32()).collect();
    let page_crcs = page_crcs?;
    input.end()?;
    let place = crate::record::ByteLocation::Empty;
    let record = ReplicaRecord { ended, generation, incarnation, len, adler32, crc32c, place, page_crcs, path_hint };
    Ok(Found { replica, record, header })
}

/// Reads the header of the record at `offset` of a segment file.
pub(crate) fn read_record(file: &dyn DiskFile, offset: u64) -> Result<Found, StoreError> {
    // Nearly all headers fit into the first read.
    let mut bytes = vec![0; 1024];
    let got = file.read_at(&mut bytes, offset)?;
    bytes.truncate(got);
    let needed = bytes.get(12..16).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes) as usize;
    if needed > bytes.len() && needed <= HEADER_MAX {
        bytes.resize(needed, 0);
        let got = file.read_at(&mut bytes, offset)?;
        bytes.truncate(got);
    }
    parse_record(&bytes)
}

/// Visits the records of a segment from `start` to `end`, in order. Stops without an error at the first invalid one,
/// and returns its offset.
pub(crate) fn scan(
    file: &dyn DiskFile,
    start: u64,
    end: u64,
    visit: &mut dyn FnMut(u64, Found) -> Result<(), StoreError>,
) -> Result<u64, StoreError> {
    let mut offset = start;
    while offset < end {
        let found = match read_record(file, offset) {
            Ok(found) => found,
            Err(StoreError::Damaged { .. }) => break,
            Err(e) => return Err(e),
        };
        let next = offset + u64::from(found.header) + found.record.len;
        if next > end {
            break;
        }
        visit(offset, found)?;
        offset = next;
    }
    Ok(offset)
}

/// Bytes read at a time while searching for a record.
const SEARCH_CHUNK: usize = 64 << 10;

/// The first offset from `start` on, before `end`, with a valid record header; `None` if there is none. Skips
/// unreadable parts.
pub(crate) fn find_record(file: &dyn DiskFile, start: u64, end: u64) -> Option<u64> {
    let mut at = start;
    let mut chunk = vec![0; SEARCH_CHUNK];
    while at < end {
        let page_end = (at / PAGE_SIZE as u64 + 1) * PAGE_SIZE as u64;
        let whole = file.read_at(&mut chunk, at).ok();
        // Read single pages around an unreadable one.
        let rest = usize::try_from(page_end - at).unwrap_or(PAGE_SIZE);
        let Some(got) = whole.or_else(|| file.read_at(&mut chunk[..rest], at).ok()) else {
            at = page_end;
            continue;
        };
        let magics = (at..end).zip(chunk[..got].windows(RECORD_MAGIC.len())).filter(|(_, seen)| *seen == RECORD_MAGIC);
        for (offset, _) in magics {
            if read_record(file, offset).is_ok() {
                return Some(offset);
            }
        }
        if whole.is_none() {
            at = page_end;
            continue;
        }
        if got < SEARCH_CHUNK {
            return None;
        }
        // A magic number can span two chunks.
        at += (got - RECORD_MAGIC.len() + 1) as u64;
    }
    None
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)] // small numbers
mod tests {
    use types::ObjectId;

    use super::*;
    use crate::record::ByteLocation;

    #[test]
    fn headers_round_trip_and_damaged_ones_are_refused() {
        assert_eq!(check_file_header(&file_header(77)).unwrap(), 77);
        let record = ReplicaRecord {
            ended: Ended::Complete,
            generation: 1,
            incarnation: Incarnation(2),
            len: 5000,
            adler32: Adler32(3),
            crc32c: Crc32c(4),
            place: ByteLocation::Empty,
            page_crcs: vec![5, 6],
            path_hint: b"/some/where".to_vec(),
        };
        let replica = ReplicaId::first(ObjectId(9));
        let bytes = record_header(replica, &record, b"/some/where");
        let found = parse_record(&bytes).unwrap();
        assert_eq!((found.replica, &found.record, found.header as usize), (replica, &record, bytes.len()));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(parse_record(&changed).is_err(), "{at}");
            assert!(parse_record(&bytes[..at]).is_err(), "{at}");
        }
    }

    #[test]
    fn newer_versions_and_unknown_features_are_refused() {
        for at in [8, 12] {
            let mut header = file_header(7);
            header[at] += 1;
            let crc = Crc32c::of(&header[..HEADER - 4]).0.to_le_bytes();
            header[HEADER - 4..].copy_from_slice(&crc);
            assert!(matches!(check_file_header(&header), Err(StoreError::Unsupported { .. })));
        }
        let record = ReplicaRecord {
            ended: Ended::Complete,
            generation: 1,
            incarnation: Incarnation(2),
            len: 0,
            adler32: Adler32(3),
            crc32c: Crc32c(4),
            place: ByteLocation::Empty,
            page_crcs: Vec::new(),
            path_hint: Vec::new(),
        };
        let mut header = record_header(ReplicaId::first(ObjectId(9)), &record, b"/x");
        header[8] += 1;
        let end = header.len() - 4;
        let crc = Crc32c::of(&header[..end]).0.to_le_bytes();
        header[end..].copy_from_slice(&crc);
        let refused = parse_record(&header).unwrap_err();
        assert!(matches!(&refused, StoreError::Unsupported { what } if what.contains("version 2")), "{refused}");
    }
}
