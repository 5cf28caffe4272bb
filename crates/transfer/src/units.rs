//! Striped files of a cluster, whose bytes go directly between here and the servers of the units. Decides which parts to request from which
//! unit, how large, and how many at a time.

use std::sync::atomic::{AtomicU64, Ordering};

use client::{Client, ClientError, OpenedToRead, Reader, StripedReader, Units, Url};
use disk::AlignedBuf;
use types::Stripe;

use crate::ends::CHUNK;
use crate::error::TransferError;

/// The smallest request that is worth its header; chunks are no smaller.
const PIECE_MIN: usize = 64 << 10;
/// Most simultaneous requests for one unit.
const WINDOW_MAX: usize = 64;
/// Most buffers at the units' servers while a file is written.
const BUFFERS_MAX: usize = 32;

/// The size and number of requests for the units of a file that is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnitRequests {
    /// Bytes of each request.
    pub len: usize,
    /// Simultaneous requests for each unit.
    pub window: usize,
}

impl UnitRequests {
    /// All units together have as many bytes in progress as two files with `window` requests, but at least one small request each.
    pub fn of(stripe: Stripe, window: usize) -> Self {
        let of_each = 2 * window.max(1) * CHUNK / usize::from(stripe.width());
        let chunk = usize::try_from(stripe.chunk()).unwrap_or(CHUNK).min(CHUNK);
        // A power of two, as chunks are, so that no request spans two chunks.
        let half = (of_each / 2).max(PIECE_MIN);
        let len = chunk.min(1 << half.ilog2());
        Self { len, window: (of_each / len).clamp(1, WINDOW_MAX) }
    }
}

/// Buffers at the servers while a file is written: two for each unit.
pub fn buffers_of(stripe: Stripe, window: usize) -> usize {
    (2 * usize::from(stripe.width())).min(BUFFERS_MAX).max(window)
}

/// The parts that one connection requests, and their offsets in the file.
pub enum Parts<'a> {
    /// Of a plain file: the parts that no other connection has claimed yet, up to the file's end.
    Claimed(&'a AtomicU64, u64),
    /// Of one unit of a striped file.
    Unit(UnitParts),
}

/// The parts of a unit, in order.
#[derive(Debug)]
pub struct UnitParts {
    stripe: Stripe,
    unit: u8,
    /// The next offset, in the unit.
    next: u64,
    /// The end, in the file.
    end: u64,
    piece: u64,
}

impl UnitParts {
    /// The parts within the file's range from `from` to `end`.
    pub fn new(stripe: Stripe, unit: u8, (from, end): (u64, u64), pieces: UnitRequests) -> Self {
        Self { stripe, unit, next: stripe.unit_len(unit, from), end, piece: pieces.len as u64 }
    }
}

impl Parts<'_> {
    /// The next part: its offset in the requested file, and its length.
    pub fn next(&mut self) -> Option<(u64, usize)> {
        match self {
            Self::Claimed(claims, end) => {
                let offset = claims.fetch_add(CHUNK as u64, Ordering::Relaxed);
                let left = end.checked_sub(offset).filter(|left| *left > 0)?;
                Some((offset, usize::try_from(left).unwrap_or(CHUNK).min(CHUNK)))
            }
            Self::Unit(parts) => {
                let offset = parts.next;
                let left = parts.end.checked_sub(parts.stripe.to_file(parts.unit, offset)?).filter(|left| *left > 0)?;
                let len = (parts.piece - offset % parts.piece).min(left);
                parts.next += len;
                Some((offset, usize::try_from(len).ok()?))
            }
        }
    }

    /// The offset in the file of the part that was requested at `offset`.
    pub fn in_file(&self, offset: u64) -> u64 {
        match self {
            Self::Claimed(..) => offset,
            Self::Unit(parts) => parts.stripe.to_file(parts.unit, offset).unwrap_or(u64::MAX),
        }
    }
}

/// A file at a server that is read at several offsets, in ascending order.
pub enum StridedRead {
    File(Box<Reader<AlignedBuf>>),
    Units(Box<StripedReader>, u64),
}

impl StridedRead {
    /// Opens it.
    pub fn open(client: &mut Client, url: &Url) -> Result<Self, TransferError> {
        Ok(match client.open_with_units(url, 0, Units::open_reader)? {
            OpenedToRead::File(file) => Self::File(Box::new(Reader::new(file))),
            OpenedToRead::Units(units, reader) => Self::Units(Box::new(reader), units.stat().size),
        })
    }

    /// Its length.
    pub fn len(&self) -> u64 {
        match self {
            Self::File(reader) => reader.file().stat().size,
            Self::Units(_, len) => *len,
        }
    }

    /// Closes it.
    pub fn close(self, client: &mut Client, url: &Url) -> Result<(), TransferError> {
        if let Self::File(reader) = self {
            client.give_back(reader.close()?, url);
        }
        Ok(())
    }
}

/// A striped file for reading: a reader for each unit that holds some of it.
pub struct UnitsSource {
    /// Its stripe layout.
    pub stripe: Stripe,
    /// The readers, in order of the units.
    pub readers: Vec<Reader<AlignedBuf>>,
}

impl UnitsSource {
    /// Opens the units.
    pub fn open(units: &Units) -> Result<Self, ClientError> {
        Ok(Self { stripe: units.stripe(), readers: units.open_readers()? })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use super::*;

    const KIB: u64 = 1 << 10;

    #[test]
    fn parts_of_all_units_cover_the_rest_of_the_file_once() {
        for (width, chunk, from, end) in [
            (3, 64 * KIB, 0, 1_000_003),
            (2, 8192 * KIB, 4096, 40_000_000),
            (5, 256 * KIB, 700_000, 700_001),
            (4, 64 * KIB, 9, 9),
        ] {
            let stripe = Stripe::new(width, chunk).unwrap();
            let pieces = UnitRequests::of(stripe, 4);
            let mut found = Vec::new();
            for unit in 0..stripe.width() {
                let mut parts = Parts::Unit(UnitParts::new(stripe, unit, (from, end), pieces));
                while let Some((offset, len)) = parts.next() {
                    assert!(len > 0 && len <= pieces.len);
                    assert_eq!(stripe.runs(parts.in_file(offset), len as u64).count(), 1, "in one chunk");
                    found.push((parts.in_file(offset), len as u64));
                }
            }
            found.sort_unstable();
            let mut at = from;
            for (offset, len) in found {
                assert_eq!(offset, at);
                at += len;
            }
            assert_eq!(at, end);
        }
    }

    #[test]
    fn wide_stripes_have_smaller_parts_and_narrow_ones_no_more_than_fit() {
        let of = |width, chunk| {
            let UnitRequests { len, window } = UnitRequests::of(Stripe::new(width, chunk).unwrap(), 4);
            (len as u64 / KIB, window)
        };
        assert_eq!(of(4, 4096 * KIB), (4096, 2));
        assert_eq!(of(2, 64 * KIB), (64, 64));
        assert_eq!(of(64, 1024 * 1024 * KIB), (256, 2));
        assert_eq!(of(3, 1024 * KIB), (1024, 10));
    }
}
