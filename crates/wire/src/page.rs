//! The format of pgread's and pgwrite's data: pages of 4096 bytes, each behind its own CRC32C.
//!
//! Pages begin at multiples of 4096 in the *file*. Data that begin inside a page have a short first page; data that
//! end inside one have a short last page. On the wire each page consists of 4 bytes of CRC32C (big-endian, over the
//! sent data of that page) and its data.

use types::{Crc32c, PAGE_SIZE};

use crate::WireError;
use crate::planted::{self, Bug};

/// The length of a page's checksum on the wire, in bytes.
pub const SUM_LEN: usize = 4;
/// The length of a full page on the wire, in bytes.
pub const UNIT_LEN: usize = PAGE_SIZE + SUM_LEN;

const PAGE: u64 = PAGE_SIZE as u64;
const SUM: u64 = SUM_LEN as u64;

/// How a range of data is divided into pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    offset: u64,
    len: u64,
}

/// One page of a [`Layout`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// The offset of its first byte in the file.
    pub offset: u64,
    /// Bytes of data, 1 to 4096.
    pub len: usize,
    /// The offset of its checksum in the wire form. The data begin 4 bytes later.
    pub wire_at: u64,
    /// The offset of its data in the data without checksums.
    pub data_at: u64,
}

impl Layout {
    /// The layout of `len` bytes of data from `offset` in the file. The data must end below 2^63.
    pub fn of_data(offset: u64, len: u64) -> Result<Self, WireError> {
        match offset.checked_add(len) {
            Some(end) if i64::try_from(end).is_ok() => Ok(Self { offset, len }),
            _ => Err(WireError::OutOfRange { what: "end of the data, at", value: i64::MAX }),
        }
    }

    /// The layout of `wire_len` bytes in wire form whose data begin at `offset` in the file. A checksum without
    /// data is an error.
    pub fn of_wire(offset: u64, wire_len: u64) -> Result<Self, WireError> {
        const WHAT: &str = "pages";
        let first = PAGE - offset % PAGE + SUM;
        let (units, last) = if wire_len <= first {
            (0, wire_len)
        } else {
            let rest = wire_len - first;
            (1 + rest / UNIT_LEN as u64, rest % UNIT_LEN as u64)
        };
        if (1..=SUM).contains(&last) {
            return Err(WireError::Malformed { what: WHAT, why: "they end inside or right behind a checksum" });
        }
        let sums = units + u64::from(last > 0);
        Self::of_data(offset, wire_len - sums * SUM)
    }

    /// Returns the offset of the data in the file.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the number of data bytes.
    #[must_use]
    pub fn data_len(&self) -> u64 {
        self.len
    }

    /// Returns the number of bytes in wire form.
    #[must_use]
    pub fn wire_len(&self) -> u64 {
        self.len + self.count() * SUM
    }

    /// Returns the number of pages.
    #[must_use]
    pub fn count(&self) -> u64 {
        if self.len == 0 { 0 } else { (self.offset % PAGE + self.len).div_ceil(PAGE) }
    }

    /// Returns the pages in order.
    pub fn pages(&self) -> impl Iterator<Item = Page> + use<> {
        let Self { offset: start, len } = *self;
        let end = start + len;
        let mut offset = start;
        let mut wire_at = 0;
        std::iter::from_fn(move || {
            if offset == end {
                return None;
            }
            let into_page = if planted::is(Bug::FirstPageNotAligned) { (offset - start) % PAGE } else { offset % PAGE };
            let page_len = (PAGE - into_page).min(end - offset);
            let page =
                Page { offset, len: usize::try_from(page_len).unwrap_or(PAGE_SIZE), wire_at, data_at: offset - start };
            offset += page_len;
            wire_at += SUM + page_len;
            Some(page)
        })
    }
}

/// A received page: its offset, its data, and its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received<'a> {
    /// The offset of its first byte in the file.
    pub offset: u64,
    /// 1 to 4096 bytes.
    pub data: &'a [u8],
    /// The received checksum.
    pub sum: Crc32c,
}

impl Received<'_> {
    /// Whether the checksum matches the data.
    #[must_use]
    pub fn is_good(&self) -> bool {
        Crc32c::of(self.data) == self.sum || planted::is(Bug::PageSumNotCompared)
    }
}

/// Returns the pages of `wire`, whose data begin at `offset` in the file.
pub fn received(offset: u64, wire: &[u8]) -> Result<impl Iterator<Item = Received<'_>>, WireError> {
    let layout = Layout::of_wire(offset, wire.len() as u64)?;
    let mut left = wire;
    Ok(layout.pages().map_while(move |page| {
        let (sum, rest) = left.split_first_chunk::<SUM_LEN>()?;
        let (data, rest) = rest.split_at_checked(page.len)?;
        left = rest;
        Some(Received { offset: page.offset, data, sum: Crc32c(u32::from_be_bytes(*sum)) })
    }))
}

/// Returns the pages of `wire` whose checksum does not match, in the form of a pgwrite's answer. More than
/// [`crate::response::BadPages::MAX`] are an error; then the server refuses the whole write.
pub fn verify(offset: u64, wire: &[u8]) -> Result<crate::response::BadPages, WireError> {
    let mut bad = crate::response::BadPages::default();
    for page in received(offset, wire)?.filter(|page| !page.is_good()) {
        bad.add(page.offset, page.data.len())?;
    }
    Ok(bad)
}

/// Appends `data` in wire form to `out`.
pub fn encode(offset: u64, data: &[u8], out: &mut Vec<u8>) -> Result<(), WireError> {
    let layout = Layout::of_data(offset, data.len() as u64)?;
    out.reserve(usize::try_from(layout.wire_len()).unwrap_or(0));
    let mut left = data;
    for page in layout.pages() {
        let (part, rest) = left.split_at(page.len.min(left.len()));
        out.extend_from_slice(&Crc32c::of(part).0.to_be_bytes());
        out.extend_from_slice(part);
        left = rest;
    }
    Ok(())
}
