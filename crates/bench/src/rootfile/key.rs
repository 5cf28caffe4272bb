//! The records of a ROOT file, one behind the other: each begins with a `TKey` that says how long it is and what it holds.

use super::bytes::Bytes;
use super::{PART_MAX, PARTS_MAX, Part, RootFileError, Source};

/// Read at once when a key is looked for: most keys are shorter.
const KEY_USUAL: usize = 4096;
/// Before the records at least this much is there.
const HEADER_LEN: usize = 64;
/// Files from this version on have 64-bit places in their header.
const LARGE_FILE: u32 = 1_000_000;
/// Keys of versions above this one have 64-bit places.
const LARGE_KEY: u16 = 1000;

/// A record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Key {
    pub(super) class: String,
    pub(super) name: String,
    pub(super) title: String,
    pub(super) cycle: u16,
    /// Where it is; entries are those of a basket.
    pub(super) part: Part,
}

/// All records that are in use.
pub(super) fn scan(source: &Source<'_>) -> Result<Vec<Key>, RootFileError> {
    let (begin, end) = bounds(source)?;
    let mut keys = Vec::new();
    let mut at = begin;
    let mut window = Window { offset: 0, bytes: Vec::new() };
    while at < end {
        let step = match record(source, &mut window, at, end)? {
            Record::Key(key) => {
                let bytes = key.part.bytes;
                // Only these are of interest, and the others may be very many.
                let of_interest = ["TBasket", "TTree", "TNtuple", "TNtupleD", super::ntuple::CLASS];
                if of_interest.contains(&key.class.as_str()) {
                    if keys.len() == PARTS_MAX {
                        return Err(RootFileError::malformed(at, format!("more than {PARTS_MAX} baskets")));
                    }
                    keys.push(*key);
                }
                bytes
            }
            Record::Other(bytes) => bytes,
        };
        at += u64::from(step);
    }
    Ok(keys)
}

/// Where records begin and end.
fn bounds(source: &Source<'_>) -> Result<(u64, u64), RootFileError> {
    let head = source.up_to(0, HEADER_LEN)?;
    let mut head = Bytes::new(&head, 0);
    if head.take(4).ok() != Some(b"root".as_slice()) {
        return Err(RootFileError::NotRoot);
    }
    let version = head.be_u32()?;
    let begin = u64::from(head.be_u32()?);
    let end = if version >= LARGE_FILE { head.be_u64()? } else { u64::from(head.be_u32()?) };
    if end > source.len() {
        let what = format!("the file is said to end at byte {end}, and has {}; it was cut off", source.len());
        return Err(RootFileError::malformed(8, what));
    }
    if begin < 8 || begin > end {
        return Err(head.error(format!("the first record is said to be at byte {begin} of {end}")));
    }
    Ok((begin, end))
}

enum Record {
    Key(Box<Key>),
    /// A gap, or a record of no data, of so many bytes.
    Other(u32),
}

/// What was read last of the file.
struct Window {
    offset: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// At least `len` bytes from `offset` on.
    fn show(&mut self, source: &Source<'_>, offset: u64, len: usize) -> Result<&[u8], RootFileError> {
        let skip = |window: &Self| usize::try_from(offset.checked_sub(window.offset)?).ok();
        let here = skip(self).filter(|skip| self.bytes.len() >= skip.saturating_add(len));
        let skip = if let Some(skip) = here {
            skip
        } else {
            self.bytes = source.up_to(offset, len.max(KEY_USUAL))?;
            self.offset = offset;
            0
        };
        self.bytes.get(skip..).filter(|bytes| bytes.len() >= len).ok_or_else(|| {
            RootFileError::malformed(offset, format!("a record begins here, and the file ends before its {len} bytes"))
        })
    }
}

fn record(source: &Source<'_>, window: &mut Window, at: u64, end: u64) -> Result<Record, RootFileError> {
    let wrong = |what: String| RootFileError::malformed(at, what);
    let bytes = Bytes::new(window.show(source, at, 4)?, at).be_i32()?;
    let len = bytes.unsigned_abs();
    if len < 4 || u64::from(len) > end - at {
        return Err(wrong(format!("a record of {len} bytes, where {} are left", end - at)));
    }
    if bytes < 0 {
        return Ok(Record::Other(len));
    }
    // Nbytes, Version, ObjLen, Datime, KeyLen, Cycle; then two places and three texts.
    let key_len = {
        let mut head = Bytes::new(window.show(source, at, 18)?, at);
        head.take(14)?;
        usize::from(head.be_u16()?)
    };
    if key_len < 18 || key_len as u64 > u64::from(len) {
        return Err(wrong(format!("a key of {key_len} bytes in a record of {len}")));
    }
    let shown = window.show(source, at, key_len)?;
    let mut head = Bytes::new(shown.get(..key_len).unwrap_or(shown), at);
    head.take(4)?;
    let version = head.be_u16()?;
    let uncompressed = head.be_u32()?;
    head.take(6)?;
    let cycle = head.be_u16()?;
    head.take(if version > LARGE_KEY { 16 } else { 8 })?;
    let class = text(&mut head)?;
    let (name, title) = (text(&mut head)?, text(&mut head)?);
    let entries = if class == "TBasket" { basket_entries(&mut head)? } else { 0 };
    let part =
        Part { offset: at, bytes: len, before: request(key_len), behind: 0, uncompressed, first_entry: 0, entries };
    if class == "TBasket" && (uncompressed > PART_MAX || len > PART_MAX) {
        return Err(wrong(format!("a basket of {len} bytes, {uncompressed} uncompressed; at most {PART_MAX}")));
    }
    Ok(Record::Key(Box::new(Key { class, name, title, cycle, part })))
}

fn request(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// A `TString`.
fn text(bytes: &mut Bytes<'_>) -> Result<String, RootFileError> {
    let len = match bytes.u8()? {
        u8::MAX => bytes.be_u32()?,
        len => u32::from(len),
    };
    Ok(String::from_utf8_lossy(bytes.take(usize::try_from(len).unwrap_or(usize::MAX))?).into_owned())
}

/// The rest of a basket's key: its version, buffer size, entries it has room for, entries it has.
fn basket_entries(bytes: &mut Bytes<'_>) -> Result<u64, RootFileError> {
    bytes.take(2 + 4)?;
    if bytes.be_i32()? < 0 {
        // Bits for I/O features stand between.
        bytes.take(1)?;
    }
    let entries = bytes.be_i32()?;
    u64::try_from(entries).map_err(|_| bytes.error(format!("a basket of {entries} entries")))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Class, name, title, what stands in the key behind them, and data.
    type Made<'a> = (&'a str, &'a str, &'a str, &'a [u8], &'a [u8]);

    /// A file of records.
    pub(in crate::rootfile) fn file(records: &[Made<'_>]) -> Vec<u8> {
        let mut bytes = b"root".to_vec();
        bytes.extend(63_400_u32.to_be_bytes());
        bytes.extend(100_u32.to_be_bytes());
        bytes.resize(100, 0);
        for (class, name, title, more, data) in records {
            let texts = class.len() + name.len() + title.len() + 3;
            let key_len = 26 + texts + more.len();
            bytes.extend(u32::try_from(key_len + data.len()).unwrap().to_be_bytes());
            bytes.extend(4_u16.to_be_bytes());
            bytes.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
            bytes.extend([0; 4]);
            bytes.extend(u16::try_from(key_len).unwrap().to_be_bytes());
            bytes.extend([0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
            for text in [class, name, title] {
                bytes.push(u8::try_from(text.len()).unwrap());
                bytes.extend(text.as_bytes());
            }
            bytes.extend(*more);
            bytes.extend(*data);
        }
        let end = u32::try_from(bytes.len()).unwrap().to_be_bytes();
        bytes[12..16].copy_from_slice(&end);
        bytes
    }

    pub(in crate::rootfile) fn basket_key(entries: i32) -> Vec<u8> {
        [&3_u16.to_be_bytes()[..], &[0; 4], &1000_i32.to_be_bytes(), &entries.to_be_bytes(), &[0; 5]].concat()
    }

    #[test]
    fn records_are_found_and_gaps_left_out() {
        let mut bytes = file(&[
            ("TBasket", "x", "t", &basket_key(7), b"1234567"),
            ("TH1", "h", "", &[], b"12"),
            ("TBasket", "y", "t", &basket_key(1), b"1"),
        ]);
        let found = scan(&Source::memory(&bytes)).unwrap();
        let of = |found: &[Key]| found.iter().map(|key| (key.name.clone(), key.part.entries)).collect::<Vec<_>>();
        assert_eq!(of(&found), [("x".to_owned(), 7), ("y".to_owned(), 1)]);
        assert_eq!((found[0].part.offset, found[0].part.uncompressed), (100, 7));
        let gap = -i32::from_be_bytes(bytes[100..104].try_into().unwrap());
        bytes[100..104].copy_from_slice(&gap.to_be_bytes());
        assert_eq!(of(&scan(&Source::memory(&bytes)).unwrap()), [("y".to_owned(), 1)]);
    }

    #[test]
    fn what_contradicts_itself_is_refused_with_its_place() {
        let good = file(&[("TBasket", "x", "t", &basket_key(7), b"1234567")]);
        let said = |at: usize, bytes: &[u8]| {
            let mut wrong = good.clone();
            wrong[at..at + bytes.len()].copy_from_slice(bytes);
            scan(&Source::memory(&wrong)).unwrap_err().to_string()
        };
        assert!(said(0, b"toor").contains("no ROOT file"));
        assert!(said(12, &1_000_000_u32.to_be_bytes()).contains("cut off"));
        assert!(said(100, &0_u32.to_be_bytes()).contains("at byte 100: a record of 0 bytes"));
        assert!(said(100, &i32::MAX.to_be_bytes()).contains("are left"));
        assert!(said(114, &9999_u16.to_be_bytes()).contains("a key of 9999 bytes"));
        assert!(said(126, &[255]).contains("byte"));
        assert!(
            said(148, &(-1_i32).to_be_bytes()).contains("a basket of -1 entries"),
            "{}",
            said(148, &(-1_i32).to_be_bytes())
        );
        assert!(scan(&Source::memory(&good[..good.len() - 1])).is_err());
    }
}
