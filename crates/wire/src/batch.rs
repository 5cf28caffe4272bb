//! A batch: many small requests in one frame, and their answers in one. This request is weir's own, not XRootD's. A
//! server that supports it says so in its configuration under [`CONFIG_KEY`]. Clients send batches to such servers
//! only.
//!
//! The list of entries follows the request's header ([`crate::request::Batch`]). The data of all entries follow the
//! list, in the same order and without gaps. An entry of the list has 16 bytes, then its path.
//!
//! ```text
//! 0  op        1 byte   1 create, 2 stat, 3 remove, 4 open
//! 1  flags     1 byte   create, open: bit 0, it may replace an existing file
//! 2  mode      2 bytes  create, open: permission bits
//! 4  path_len  2 bytes
//! 6  0         2 bytes
//! 8  data_len  4 bytes  create: length of its data
//! 12 value     4 bytes  create: CRC32C of its data; open: length of its future data
//! 16 path               path_len bytes, `path?key=value` as everywhere
//! ```
//!
//! The body of the answer holds one ordinary response for each entry, in any order. Its stream id is the entry's
//! number, from 0. So one refused entry does not fail the others. The entries of a batch have no order among
//! themselves.
//!
//! In a cluster a new file takes two batches. The client asks the manager to *open* it, and gets a redirect. It
//! sends the *create* to the server of the redirect, with the redirect's words behind the path.

use std::ops::Range;

use crate::reader::Reader;
use crate::request::Batch;
use crate::{RESPONSE_HEADER_LEN, Response, ResponseHeader, StreamId, WireError};

/// The version of this format. A server refuses another version, and names this one.
pub const VERSION: u8 = 1;
/// The key of the config query. A server that takes batches answers it with [`Limits::to_text`].
pub const CONFIG_KEY: &str = "weir.batch";
/// The most entries of one batch.
pub const ENTRIES_MAX: u32 = 512;
/// The most bytes of one batch, behind its header.
pub const BYTES_MAX: u32 = 4 << 20;
/// The most data bytes of one entry.
pub const DATA_MAX: u32 = 256 << 10;

/// The bytes of an entry before its path.
const ENTRY_HEADER: usize = 16;
/// The flag of an entry that may replace an existing file.
const REPLACE: u8 = 1;

/// How a server takes new files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    /// Complete: the server has names and objects.
    Whole,
    /// Names only. The client opens each file, and the answer names the server that takes its bytes.
    Names,
    /// Bytes only, with the words of the manager's redirect.
    Contents,
}

impl Takes {
    /// The server's word for it. For complete files it is empty, as in the first version. A client that does not
    /// know the other words treats such a server as one without batches.
    fn word(self) -> &'static str {
        match self {
            Self::Whole => "",
            Self::Names => " names",
            Self::Contents => " contents",
        }
    }
}

/// The batches that a server takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The most entries of one batch.
    pub entries: u32,
    /// The most bytes of one batch, behind its header.
    pub bytes: u32,
    /// How it takes new files.
    pub takes: Takes,
}

impl Limits {
    /// Returns the text that a server sends: version, entries, bytes, and how it takes new files.
    #[must_use]
    pub fn to_text(self) -> String {
        format!("{VERSION} {} {}{}", self.entries, self.bytes, self.takes.word())
    }

    /// Parses a server's text. `None`: the server takes no batches of this version, or only useless ones. The
    /// result never exceeds the protocol's limits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let known = [Takes::Names, Takes::Contents];
        let suffix = |takes: &Takes| text.strip_suffix(takes.word()).map(|numbers| (numbers, *takes));
        let (numbers, takes) = known.iter().find_map(suffix).unwrap_or((text, Takes::Whole));
        let mut numbers = numbers.split(' ').map(|number| number.parse::<u32>().ok());
        let (Some(Some(version)), Some(Some(entries)), Some(Some(bytes)), None) =
            (numbers.next(), numbers.next(), numbers.next(), numbers.next())
        else {
            return None;
        };
        let limits = Self { entries: entries.min(ENTRIES_MAX), bytes: bytes.min(BYTES_MAX), takes };
        (version == u32::from(VERSION) && limits.entries > 1).then_some(limits)
    }
}

/// The operation of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Create a file with all its data. The answer comes when the file is durable, with an empty body.
    Create {
        /// Whether it may replace an existing file.
        replace: bool,
        /// Permission bits.
        mode: u16,
        /// CRC32C of its data.
        crc32c: u32,
    },
    /// Return the attributes, as [`crate::response::StatReply`].
    Stat,
    /// Remove a file or an empty directory. The answer comes when that is durable, with an empty body.
    Remove,
    /// Open a new file whose bytes go to another server. The answer is a redirect.
    Open {
        /// Whether it may replace an existing file.
        replace: bool,
        /// Permission bits.
        mode: u16,
        /// The length of its data in bytes.
        len: u32,
    },
    /// An operation that this version does not know. The server refuses it.
    Unknown(u8),
}

/// An entry. Its ranges are within the bytes behind the batch's header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its operation.
    pub op: Op,
    /// Its path, perhaps with an opaque part. It is not checked yet.
    pub path: Range<usize>,
    /// Its data.
    pub data: Range<usize>,
}

/// Finds the entries in the bytes behind a batch's header.
///
/// # Errors
/// The lengths do not fit together, so the whole batch is invalid. Single paths and operations are not checked
/// here.
pub fn entries(batch: &Batch, behind: &[u8]) -> Result<Vec<Entry>, WireError> {
    const WHAT: &str = "list of a batch";
    let short = |missing| WireError::TooShort { what: WHAT, missing };
    let list_len = usize::try_from(batch.list_len).unwrap_or(usize::MAX);
    let list = behind.get(..list_len).ok_or_else(|| short(list_len.saturating_sub(behind.len())))?;
    let mut reader = Reader::new(WHAT, list);
    // The number was bounded when the header was decoded.
    let mut entries = Vec::with_capacity(usize::try_from(batch.entries.min(ENTRIES_MAX)).unwrap_or(0));
    let mut data_at = list_len;
    for _ in 0..batch.entries {
        let (op, flags) = (reader.u8()?, reader.u8()?);
        let (mode, path_len) = (reader.u16()?, usize::from(reader.u16()?));
        reader.skip(2)?;
        let (data_len, value) = (reader.u32()?, reader.u32()?);
        let path_at = list_len - reader.left();
        reader.skip(path_len)?;
        let op = match op {
            1 => Op::Create { replace: flags & REPLACE != 0, mode, crc32c: value },
            2 => Op::Stat,
            3 => Op::Remove,
            4 => Op::Open { replace: flags & REPLACE != 0, mode, len: value },
            other => Op::Unknown(other),
        };
        if data_len > DATA_MAX {
            let (count, limit) = (usize::try_from(data_len).unwrap_or(usize::MAX), DATA_MAX as usize);
            return Err(WireError::TooMany { what: "bytes of an entry of a batch", count, limit });
        }
        let data_end = data_at + data_len as usize;
        if data_end > behind.len() {
            return Err(WireError::TooShort { what: "data of a batch", missing: data_end - behind.len() });
        }
        entries.push(Entry { op, path: path_at..path_at + path_len, data: data_at..data_end });
        data_at = data_end;
    }
    reader.end()?;
    if data_at != behind.len() {
        return Err(WireError::Trailing { what: "data of a batch", extra: behind.len() - data_at });
    }
    Ok(entries)
}

/// A list that is being built. It does not hold the data; the sender of the batch appends them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct List {
    bytes: Vec<u8>,
    entries: u32,
    data_len: u32,
}

impl List {
    /// Returns the bytes that an entry adds to a batch.
    #[must_use]
    pub fn cost(path_len: usize, data_len: usize) -> usize {
        ENTRY_HEADER.saturating_add(path_len).saturating_add(data_len)
    }

    /// Adds an entry for `path`, with `data_len` bytes of data.
    ///
    /// # Errors
    /// The batch is full, or no batch can hold the entry. The list is unchanged.
    pub fn push(&mut self, op: Op, path: &[u8], data_len: usize) -> Result<(), WireError> {
        let cannot = |why| WireError::Unsendable { what: "an entry of a batch", why };
        let path_len = u16::try_from(path.len()).map_err(|_| cannot("its path is too long"))?;
        let data_len =
            u32::try_from(data_len).ok().filter(|len| *len <= DATA_MAX).ok_or(cannot("its data is too long"))?;
        let len = Self::cost(self.bytes.len() + path.len(), (self.data_len + data_len) as usize);
        if self.entries >= ENTRIES_MAX || len > BYTES_MAX as usize {
            return Err(cannot("the batch is full"));
        }
        let flags_of = |replace| if replace { REPLACE } else { 0 };
        let (code, flags, mode, value) = match op {
            Op::Create { replace, mode, crc32c } => (1, flags_of(replace), mode, crc32c),
            Op::Stat => (2, 0, 0, 0),
            Op::Remove => (3, 0, 0, 0),
            Op::Open { replace, mode, len } => (4, flags_of(replace), mode, len),
            Op::Unknown(other) => (other, 0, 0, 0),
        };
        self.bytes.extend_from_slice(&[code, flags]);
        self.bytes.extend_from_slice(&mode.to_be_bytes());
        self.bytes.extend_from_slice(&path_len.to_be_bytes());
        self.bytes.extend_from_slice(&[0; 2]);
        self.bytes.extend_from_slice(&data_len.to_be_bytes());
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self.bytes.extend_from_slice(path);
        self.entries += 1;
        self.data_len += data_len;
        Ok(())
    }

    /// Returns the request. [`List::bytes`] and the data follow it.
    #[must_use]
    pub fn request(&self) -> Batch {
        let list_len = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        Batch { entries: self.entries, list_len, len: list_len.saturating_add(self.data_len) }
    }

    /// Returns the bytes of the list.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Splits the answer to a batch of `count` entries into one response for each, in the order of the entries.
///
/// # Errors
/// An entry has no answer or two, or an incomplete one.
pub fn answers(body: &[u8], count: usize) -> Result<Vec<Response>, WireError> {
    const WHAT: &str = "answer to a batch";
    let malformed = |why| WireError::Malformed { what: WHAT, why };
    let mut answers: Vec<Option<Response>> = vec![None; count];
    let mut reader = Reader::new(WHAT, body);
    while reader.left() > 0 {
        let header = ResponseHeader::parse(reader.array::<RESPONSE_HEADER_LEN>()?)?;
        let body = reader.take(usize::try_from(header.dlen).unwrap_or(usize::MAX))?;
        let place = answers.get_mut(usize::from(u16::from_be_bytes(header.stream.0)));
        let place = place.ok_or(malformed("it answers an entry that there is not"))?;
        if place.is_some() {
            return Err(malformed("it answers an entry twice"));
        }
        *place = Some(match Response::decode(&header, body)? {
            whole @ (Response::Ok(_) | Response::Error { .. } | Response::Redirect(_) | Response::Wait { .. }) => whole,
            _ => return Err(malformed("an entry's answer is not a whole one")),
        });
    }
    answers.into_iter().map(|answer| answer.ok_or(malformed("an entry has no answer"))).collect()
}

/// Returns the stream id in an entry's answer: the entry's number, below [`ENTRIES_MAX`].
#[must_use]
pub fn stream_of(entry: usize) -> StreamId {
    StreamId(u16::try_from(entry).unwrap_or(u16::MAX).to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorNumber;

    const CREATE: Op = Op::Create { replace: true, mode: 0o640, crc32c: 0x1234_5678 };

    const OPEN: Op = Op::Open { replace: false, mode: 0o600, len: 4096 };

    fn behind(list: &List, data: &[&[u8]]) -> Vec<u8> {
        [list.bytes(), &data.concat()].concat()
    }

    #[test]
    fn entries_keep_their_paths_and_data() {
        let mut list = List::default();
        list.push(CREATE, b"/a?weir.mtime=5", 3).unwrap();
        list.push(Op::Stat, b"/b", 0).unwrap();
        list.push(Op::Remove, b"", 0).unwrap();
        list.push(Op::Unknown(77), b"/d", 2).unwrap();
        list.push(OPEN, b"/e", 0).unwrap();
        let bytes = behind(&list, &[b"one", b"xx"]);
        let batch = list.request();
        assert_eq!(bytes.len(), batch.len as usize);
        let found = entries(&batch, &bytes).unwrap();
        let shown: Vec<_> =
            found.iter().map(|one| (one.op, &bytes[one.path.clone()], &bytes[one.data.clone()])).collect();
        let none: &[u8] = b"";
        assert_eq!(
            shown,
            [
                (CREATE, &b"/a?weir.mtime=5"[..], &b"one"[..]),
                (Op::Stat, b"/b", none),
                (Op::Remove, none, none),
                (Op::Unknown(77), b"/d", b"xx"),
                (OPEN, b"/e", none),
            ]
        );
    }

    #[test]
    fn lengths_that_do_not_fit_together_are_refused() {
        let mut list = List::default();
        list.push(CREATE, b"/a", 3).unwrap();
        list.push(Op::Stat, b"/b", 0).unwrap();
        let bytes = behind(&list, &[b"one"]);
        let batch = list.request();
        assert!(entries(&batch, &bytes).is_ok());
        assert!(entries(&batch, &[&bytes[..], b"x"].concat()).is_err(), "a byte too many");
        assert!(entries(&batch, &bytes[..bytes.len() - 1]).is_err(), "a byte missing");
        for changed in [
            Batch { entries: 1, ..batch },
            Batch { entries: 3, ..batch },
            Batch { list_len: batch.list_len - 1, ..batch },
            Batch { list_len: batch.list_len + 1, ..batch },
            Batch { list_len: u32::MAX, ..batch },
        ] {
            assert!(entries(&changed, &bytes).is_err(), "{changed:?}");
        }
        // Data that would end far behind the frame, and data longer than the limit.
        for len in [u32::MAX, DATA_MAX, DATA_MAX + 1] {
            let mut bytes = bytes.clone();
            bytes[8..12].copy_from_slice(&len.to_be_bytes());
            assert!(entries(&batch, &bytes).is_err(), "{len}");
        }
        let mut long = bytes;
        long[4..6].copy_from_slice(&u16::MAX.to_be_bytes());
        assert!(entries(&batch, &long).is_err(), "a path that is longer than the list");
    }

    #[test]
    fn a_list_takes_no_more_than_a_batch_may_have() {
        let mut list = List::default();
        for _ in 0..ENTRIES_MAX {
            list.push(Op::Stat, b"/a", 0).unwrap();
        }
        let full = list.clone();
        assert!(list.push(Op::Stat, b"/a", 0).is_err());
        assert_eq!(list, full);
        let mut list = List::default();
        assert!(list.push(CREATE, b"/a", DATA_MAX as usize + 1).is_err());
        assert!(list.push(CREATE, &[b'a'; 70_000], 1).is_err());
        while list.push(CREATE, b"/a", DATA_MAX as usize).is_ok() {}
        assert!(list.request().len <= BYTES_MAX && list.request().len > BYTES_MAX - 2 * DATA_MAX);
    }

    #[test]
    fn each_entry_has_one_answer_in_whatever_order_they_come() {
        let refusal = Response::Error { number: ErrorNumber::NOT_FOUND, text: b"no such file".to_vec() };
        let done = Response::Ok(b"1 2 3 4".to_vec());
        let frame = |entry: usize, response: &Response| {
            let mut out = Vec::new();
            response.encode(stream_of(entry), &mut out).unwrap();
            out
        };
        let (first, second) = (frame(0, &refusal), frame(1, &done));
        assert_eq!(answers(&[&second[..], &first].concat(), 2), Ok(vec![refusal, done.clone()]));
        for wrong in [
            [&first[..], &first].concat(),
            first.clone(),
            [&first[..], &second[..second.len() - 1]].concat(),
            [&first[..], &frame(2, &done)].concat(),
            [&first[..], &frame(1, &Response::OkSoFar(Vec::new()))].concat(),
            [&first[..], &second, &[0]].concat(),
        ] {
            assert!(answers(&wrong, 2).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn limits_survive_encoding_and_decoding() {
        let limits = Limits { entries: 100, bytes: 1 << 20, takes: Takes::Whole };
        assert_eq!(limits.to_text(), "1 100 1048576");
        let (names, contents) = (Limits { takes: Takes::Names, ..limits }, Limits { takes: Takes::Contents, ..limits });
        assert_eq!(names.to_text(), "1 100 1048576 names");
        for one in [limits, names, contents] {
            assert_eq!(Limits::parse(&one.to_text()), Some(one));
        }
        let most = Limits { entries: ENTRIES_MAX, bytes: BYTES_MAX, takes: Takes::Whole };
        assert_eq!(Limits::parse("1 100000 4294967295"), Some(most));
        // The answer of a server that does not know the key, one of another version, and nonsense.
        for other in
            ["weir.batch", "", "2 100 1048576", "1", "1 100", "1 100 x", "1 100 1048576 7", "1 1 1048576", "1 -1 5"]
        {
            assert_eq!(Limits::parse(other), None, "{other}");
        }
    }
}
