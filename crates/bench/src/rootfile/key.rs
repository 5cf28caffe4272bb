//! The records of a ROOT file, which follow one another. Each begins with a `TKey` that has its length and its
//! type.

use std::ops::Range;

use super::bytes::Bytes;
use super::{PART_MAX, PARTS_MAX, Part, RootFileError, Source};

/// The bytes that are read first for a key. Most keys are shorter.
const KEY_USUAL: usize = 4096;
/// The smallest offset of the first record.
const HEADER_LEN: usize = 64;
/// From this version on, the file header has 64-bit offsets.
const LARGE_FILE: u32 = 1_000_000;
/// Keys with higher versions have 64-bit offsets.
const LARGE_KEY: u16 = 1000;

/// A record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Key {
    pub(super) class: String,
    pub(super) name: String,
    pub(super) title: String,
    pub(super) cycle: u16,
    /// Its location. The entries are those of a basket.
    pub(super) part: Part,
}

/// Returns all records in use.
pub(super) fn scan(source: &Source<'_>) -> Result<Vec<Key>, RootFileError> {
    let Header { begin, end, free } = Header::read(source)?;
    let mut free = free.into_iter().peekable();
    let mut keys = Vec::new();
    let mut at = begin;
    let mut window = Window { offset: 0, bytes: Vec::new() };
    while at < end {
        while free.peek().is_some_and(|gap| gap.end <= at) {
            free.next();
        }
        if let Some(gap) = free.peek().filter(|gap| gap.contains(&at)) {
            // A gap contains old records.
            at = gap.end;
            continue;
        }
        let step = match record(source, &mut window, at, end)? {
            Record::Key(key) => {
                let bytes = key.part.bytes;
                // The other records may be very many and are not needed.
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

/// The location of the records.
struct Header {
    begin: u64,
    end: u64,
    /// The gaps between records, in order.
    free: Vec<Range<u64>>,
}

impl Header {
    fn read(source: &Source<'_>) -> Result<Self, RootFileError> {
        let head = source.up_to(0, HEADER_LEN)?;
        let mut head = Bytes::new(&head, 0);
        if head.take(4).ok() != Some(b"root".as_slice()) {
            return Err(RootFileError::NotRoot);
        }
        let is_large = head.be_u32()? >= LARGE_FILE;
        let begin = u64::from(head.be_u32()?);
        let mut place = || if is_large { head.be_u64() } else { head.be_u32().map(u64::from) };
        let (end, free_at) = (place()?, place()?);
        let free_len = head.be_u32()?;
        if end > source.len() {
            let what = format!(
                "the file's header says that it ends at byte {end}, and it has {}; it was cut off",
                source.len()
            );
            return Err(RootFileError::malformed(8, what));
        }
        if begin < 8 || begin > end {
            return Err(head.error(format!("the file's header says that the first record is at byte {begin} of {end}")));
        }
        // A file that was not closed has no list.
        let free = if free_at == 0 { Vec::new() } else { free(source, free_at, free_len)? };
        Ok(Self { begin, end, free })
    }
}

/// Reads the list of gaps. Each has a version, its first byte and its last.
fn free(source: &Source<'_>, at: u64, len: u32) -> Result<Vec<Range<u64>>, RootFileError> {
    let record = source.at(at, usize::try_from(len).unwrap_or(usize::MAX))?;
    let mut bytes = Bytes::new(&record, at);
    bytes.take(14)?;
    let key_len = usize::from(bytes.be_u16()?);
    bytes.go_to(key_len)?;
    let mut free = Vec::new();
    while bytes.left() > 0 {
        let is_large = bytes.be_u16()? > LARGE_KEY;
        let mut place = || if is_large { bytes.be_u64() } else { bytes.be_u32().map(u64::from) };
        let (first, last) = (place()?, place()?);
        if last < first {
            return Err(bytes.error(format!("a gap from byte {first} to byte {last}")));
        }
        free.push(first..last.saturating_add(1));
    }
    free.sort_by_key(|gap| gap.start);
    Ok(free)
}

enum Record {
    Key(Box<Key>),
    /// A gap, or a record without data, with its length.
    Other(u32),
}

/// The last section that was read.
struct Window {
    offset: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// Returns at least `len` bytes from `offset`.
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
    // Nbytes, Version, ObjLen, Datime, KeyLen, Cycle; then two offsets and three texts.
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

/// Reads a `TString`.
fn text(bytes: &mut Bytes<'_>) -> Result<String, RootFileError> {
    let len = match bytes.u8()? {
        u8::MAX => bytes.be_u32()?,
        len => u32::from(len),
    };
    Ok(String::from_utf8_lossy(bytes.take(usize::try_from(len).unwrap_or(usize::MAX))?).into_owned())
}

/// Reads the rest of a basket's key: version, buffer size, the most entries, the present entries.
fn basket_entries(bytes: &mut Bytes<'_>) -> Result<u64, RootFileError> {
    bytes.take(2 + 4)?;
    if bytes.be_i32()? < 0 {
        // Flags of I/O features come in between.
        bytes.take(1)?;
    }
    let entries = bytes.be_i32()?;
    u64::try_from(entries).map_err(|_| bytes.error(format!("a basket of {entries} entries")))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Class, name, title, the rest of the key, and data.
    type ParsedKey<'a> = (&'a str, &'a str, &'a str, &'a [u8], &'a [u8]);

    /// Makes a file of records.
    pub(in crate::rootfile) fn file(records: &[ParsedKey<'_>]) -> Vec<u8> {
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
    fn records_are_found_and_gaps_skipped() {
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
    fn gaps_that_only_the_list_names_are_skipped() {
        let list = [&1_u16.to_be_bytes()[..], &164_u32.to_be_bytes(), &(164 + 7 + 57 - 1_u32).to_be_bytes()].concat();
        let basket = basket_key(7);
        let mut bytes = file(&[
            ("TBasket", "x", "t", &basket, b"1234567"),
            ("TBasket", "y", "t", &basket, b"1234567"),
            ("TBasket", "z", "t", &basket, b"1"),
            ("TFile", "", "", &[], &list),
        ]);
        let at = 100 + 64 + 64 + 58;
        bytes[164..228].fill(0xAA);
        scan(&Source::memory(&bytes)).unwrap_err();
        bytes[16..20].copy_from_slice(&u32::try_from(at).unwrap().to_be_bytes());
        let len = u32::try_from(bytes.len() - at).unwrap();
        bytes[20..24].copy_from_slice(&len.to_be_bytes());
        let names: Vec<_> = scan(&Source::memory(&bytes)).unwrap().into_iter().map(|key| key.name).collect();
        assert_eq!(names, ["x", "z"]);
    }

    #[test]
    fn contradictions_are_refused_with_their_offset() {
        let good = file(&[("TBasket", "x", "t", &basket_key(7), b"1234567")]);
        let said = |at: usize, bytes: &[u8]| {
            let mut wrong = good.clone();
            wrong[at..at + bytes.len()].copy_from_slice(bytes);
            scan(&Source::memory(&wrong)).unwrap_err().to_string()
        };
        assert!(said(0, b"toor").contains("not a ROOT file"));
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
