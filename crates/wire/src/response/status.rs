//! The checksummed response header of pgread and pgwrite.
//!
//! On the wire: the 8-byte response header (`dlen` = 16 + the info's length), a body of 16 bytes (CRC32C, the
//! stream id again, the request's code minus 3000, final or partial, 4 reserved bytes, the length of the data), the
//! info (8 bytes: the file offset), then the data. The CRC covers the 20 bytes of the body after itself and the
//! info. The data have their own checksums.

use types::Crc32c;

use crate::planted::{self, Bug};
use crate::reader::Reader;
use crate::{RequestKind, StreamId, WireError};

/// The length of the body before the info, in bytes.
pub const STATUS_BODY_LEN: usize = 16;
/// The length of the info in bytes, the same for both requests.
const INFO_LEN: usize = 8;
/// The lowest request code.
const FIRST_REQUEST: u16 = 3000;
/// The most bad pages of one pgwrite; with more, the server refuses the whole request.
const BAD_PAGES_MAX: usize = 128;

/// Whether more answers follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResultKind {
    /// This is the last one.
    Final,
    /// More follow.
    Partial,
    /// This only reports progress.
    Progress,
}

/// The part that depends on the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatusInfo {
    /// Pages follow as data. The first begins at this file offset.
    Pgread {
        /// The offset in bytes.
        offset: u64,
    },
    /// The data were written. If pages were bad, [`BadPages`] follow as data.
    Pgwrite {
        /// The request's offset.
        offset: u64,
    },
}

/// A status response without its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// Whether more answers follow.
    pub result: ResultKind,
    /// The request, and the offset.
    pub info: StatusInfo,
    /// The number of data bytes that follow.
    pub data_len: u32,
}

impl Status {
    pub(super) fn encode(&self, stream: StreamId, out: &mut Vec<u8>) {
        let (kind, offset) = match self.info {
            StatusInfo::Pgread { offset } => (RequestKind::Pgread, offset),
            StatusInfo::Pgwrite { offset } => (RequestKind::Pgwrite, offset),
        };
        let mut body = [0; STATUS_BODY_LEN + INFO_LEN];
        body[4..6].copy_from_slice(&stream.0);
        body[6] = u8::try_from(kind.code() - FIRST_REQUEST).unwrap_or(u8::MAX);
        body[7] = match self.result {
            ResultKind::Final => 0,
            ResultKind::Partial => 1,
            ResultKind::Progress => 2,
        };
        body[12..16].copy_from_slice(&self.data_len.to_be_bytes());
        body[16..24].copy_from_slice(&offset.to_be_bytes());
        let covered = if planted::is(Bug::StatusSumTooShort) { STATUS_BODY_LEN } else { body.len() };
        let sum = Crc32c::of(&body[4..covered]);
        body[0..4].copy_from_slice(&sum.0.to_be_bytes());
        out.extend_from_slice(&body);
    }

    /// Parses the bytes between the response header and the data.
    pub(super) fn decode(stream: StreamId, body: &[u8]) -> Result<Self, WireError> {
        const WHAT: &str = "status response";
        let mut reader = Reader::new(WHAT, body);
        let found = reader.u32()?;
        let expected = Crc32c::of(body.get(4..).unwrap_or_default()).0;
        if found != expected {
            return Err(WireError::Checksum { what: WHAT, expected, found });
        }
        if *reader.array()? != stream.0 {
            return Err(WireError::Malformed { what: WHAT, why: "its two stream ids differ" });
        }
        let request = reader.u8()?;
        let result = match reader.u8()? {
            0 => ResultKind::Final,
            1 => ResultKind::Partial,
            2 => ResultKind::Progress,
            other => return Err(WireError::OutOfRange { what: "kind of a status response", value: i64::from(other) }),
        };
        reader.skip(4)?;
        let data_len = reader.u31("status data length")?;
        let offset = reader.u63("status offset")?;
        reader.end()?;
        let info = match RequestKind::from_code(FIRST_REQUEST + u16::from(request)) {
            RequestKind::Pgread => StatusInfo::Pgread { offset },
            RequestKind::Pgwrite => StatusInfo::Pgwrite { offset },
            _ => return Err(WireError::OutOfRange { what: "request of a status response", value: i64::from(request) }),
        };
        Ok(Self { result, info, data_len })
    }
}

/// The 32 bytes before the pages of a pgread's answer, for servers that send header and pages with one vectored write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PgreadHeader {
    /// Whether more answers follow.
    pub result: ResultKind,
    /// The file offset of the first page's first byte.
    pub offset: u64,
    /// The number of bytes that follow, including checksums.
    pub wire_len: u32,
}

impl PgreadHeader {
    /// Its length in bytes.
    pub const LEN: usize = crate::RESPONSE_HEADER_LEN + STATUS_BODY_LEN + INFO_LEN;

    /// Appends the 32 bytes.
    pub fn encode(&self, stream: StreamId, out: &mut Vec<u8>) {
        out.extend_from_slice(&header(stream).to_bytes());
        let status =
            Status { result: self.result, info: StatusInfo::Pgread { offset: self.offset }, data_len: self.wire_len };
        status.encode(stream, out);
    }
}

/// The outer header of a status response. Its length does not count the data.
fn header(stream: StreamId) -> crate::ResponseHeader {
    crate::ResponseHeader { stream, status: crate::ResponseStatus::Status, dlen: 24 }
}

/// The pages of a pgwrite whose checksums did not match. The client sends them again, one by one, with
/// [`crate::request::PgFlags::RETRY`]. The server must not have written any of their bytes.
///
/// As data: a CRC32C over the rest, the length of the first page and of the last page (only needed if they are
/// short), then the file offset of each page.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BadPages {
    /// The data bytes of the first page.
    pub first_len: u16,
    /// The data bytes of the last page.
    pub last_len: u16,
    /// The rising file offsets of the pages.
    pub offsets: Vec<u64>,
}

impl BadPages {
    /// The most pages in one list. With more, the whole request is an error
    /// ([`crate::ErrorNumber::TOO_MANY_ERRORS`]).
    pub const MAX: usize = BAD_PAGES_MAX;

    /// Appends the data to `out`; nothing if no page is bad.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if self.offsets.is_empty() {
            return;
        }
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.first_len.to_be_bytes());
        out.extend_from_slice(&self.last_len.to_be_bytes());
        for offset in &self.offsets {
            out.extend_from_slice(&offset.to_be_bytes());
        }
        let sum = Crc32c::of(&out[start + 4..]);
        out[start..start + 4].copy_from_slice(&sum.0.to_be_bytes());
    }

    /// Parses the data of a pgwrite answer. Without data, no page is bad.
    pub fn decode(data: &[u8]) -> Result<Self, WireError> {
        const WHAT: &str = "list of bad pages";
        if data.is_empty() {
            return Ok(Self::default());
        }
        let mut reader = Reader::new(WHAT, data);
        let found = reader.u32()?;
        let expected = Crc32c::of(data.get(4..).unwrap_or_default()).0;
        if found != expected {
            return Err(WireError::Checksum { what: WHAT, expected, found });
        }
        let (first_len, last_len) = (reader.u16()?, reader.u16()?);
        if usize::from(first_len) > types::PAGE_SIZE || usize::from(last_len) > types::PAGE_SIZE {
            return Err(WireError::OutOfRange {
                what: "length of a bad page",
                value: i64::from(first_len.max(last_len)),
            });
        }
        let count = reader.left() / 8;
        if count == 0 || count > BAD_PAGES_MAX {
            return Err(WireError::TooMany { what: WHAT, count, limit: BAD_PAGES_MAX });
        }
        let offsets = (0..count).map(|_| reader.u63("offset of a bad page")).collect::<Result<_, _>>()?;
        reader.end()?;
        Ok(Self { first_len, last_len, offsets })
    }
}

impl BadPages {
    /// Adds a bad page behind the others, with `len` bytes of data.
    pub fn add(&mut self, offset: u64, len: usize) -> Result<(), WireError> {
        if self.offsets.len() == BAD_PAGES_MAX {
            return Err(WireError::TooManyBadPages { limit: BAD_PAGES_MAX });
        }
        let len = u16::try_from(len).unwrap_or(u16::MAX);
        if self.offsets.is_empty() {
            self.first_len = len;
        }
        self.last_len = len;
        self.offsets.push(offset);
        Ok(())
    }
}
