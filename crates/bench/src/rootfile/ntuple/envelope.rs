//! The elements of all envelopes: frames, texts, locators.

use xxhash_rust::xxh3::xxh3_64;

use crate::rootfile::RootFileError;
use crate::rootfile::bytes::Bytes;

/// The kind of an envelope.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Header = 1,
    Footer = 2,
    PageList = 3,
}

/// A section of metadata with its length and checksum.
#[derive(Debug)]
pub(super) struct Envelope {
    bytes: Vec<u8>,
    offset: u64,
}

const HEAD_LEN: usize = 8;
const SUM_LEN: usize = 8;

impl Envelope {
    /// Checks kind, length and checksum.
    pub(super) fn open(bytes: Vec<u8>, offset: u64, kind: Kind) -> Result<Self, RootFileError> {
        let first = Bytes::new(&bytes, offset).le_u64()?;
        let (found, len) = (first & 0xFFFF, first >> 16);
        if found != kind as u64 || len != bytes.len() as u64 {
            let what = format!(
                "an envelope of kind {found} and {len} bytes, where kind {} and {} belong",
                kind as u64,
                bytes.len()
            );
            return Err(RootFileError::malformed(offset, what));
        }
        let body = bytes.len().checked_sub(SUM_LEN).filter(|end| *end >= HEAD_LEN);
        let split = body.and_then(|end| bytes.split_at_checked(end));
        let Some((body, sum)) = split else {
            return Err(RootFileError::malformed(offset, "an envelope too short for its checksum"));
        };
        if xxh3_64(body).to_le_bytes() != *sum {
            return Err(RootFileError::Checksum { offset, what: "an envelope" });
        }
        Ok(Self { bytes, offset })
    }

    /// Returns its checksum, by which other envelopes refer to it.
    pub(super) fn sum(&self) -> u64 {
        let sum = self.bytes.last_chunk::<SUM_LEN>();
        sum.map_or(0, |sum| u64::from_le_bytes(*sum))
    }

    /// Returns its contents.
    pub(super) fn frame(&self) -> Result<Bytes<'_>, RootFileError> {
        let end = self.bytes.len().saturating_sub(SUM_LEN);
        let mut bytes = Bytes::new(self.bytes.get(..end).unwrap_or_default(), self.offset);
        bytes.take(HEAD_LEN)?;
        Ok(bytes)
    }
}

/// A section of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Locator {
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl Bytes<'_> {
    /// Reads a UTF-8 text. Invalid bytes are replaced.
    pub(super) fn text(&mut self) -> Result<String, RootFileError> {
        let len = usize::try_from(self.le_u32()?).unwrap_or(usize::MAX);
        Ok(String::from_utf8_lossy(self.take(len)?).into_owned())
    }

    /// Reads the feature flags. Any set flag is an error, because none is defined yet.
    pub(super) fn no_features(&mut self) -> Result<(), RootFileError> {
        if self.le_i64()? == 0 {
            return Ok(());
        }
        Err(RootFileError::unsupported("an RNTuple with features of a later format"))
    }

    /// Reads a record frame. Unread contents are skipped.
    pub(super) fn record(&mut self) -> Result<Self, RootFileError> {
        let begin = self.position();
        let size = self.le_i64()?;
        let Ok(len) = usize::try_from(size) else { return Err(self.error("a list where a record belongs")) };
        self.inner(begin, len)
    }

    /// Reads a list frame: the number of items, and their bytes.
    pub(super) fn list(&mut self) -> Result<(u32, Self), RootFileError> {
        let begin = self.position();
        let size = self.le_i64()?;
        let len = size.checked_neg().and_then(|len| usize::try_from(len).ok()).filter(|_| size < 0);
        let Some(len) = len else { return Err(self.error("a record where a list belongs")) };
        let count = self.le_u32()?;
        Ok((count, self.inner(begin, len)?))
    }

    /// Returns the rest of a frame of `len` bytes that began at `begin`, and skips it.
    fn inner(&mut self, begin: usize, len: usize) -> Result<Self, RootFileError> {
        let done = self.position() - begin;
        let Some(rest) = len.checked_sub(done) else {
            return Err(self.error(format!("a frame of {len} bytes, shorter than its head")));
        };
        let mut inner = *self;
        self.take(rest)?;
        inner.end_at(self.position());
        Ok(inner)
    }

    /// Reads the location of a block of data.
    pub(super) fn locator(&mut self) -> Result<Locator, RootFileError> {
        let begin = self.position();
        let head = self.le_i32()?;
        if let Ok(len) = u64::try_from(head) {
            return Ok(Locator { offset: self.le_u64()?, len });
        }
        let head = head.unsigned_abs();
        let (size, kind) = (usize::try_from(head & 0xFFFF).unwrap_or(0), head >> 24);
        if kind != 1 {
            return Err(RootFileError::unsupported(format!("an RNTuple with locators of kind {kind}")));
        }
        let (len, offset) = (self.le_u64()?, self.le_u64()?);
        self.go_to(begin.saturating_add(size))?;
        Ok(Locator { offset, len })
    }
}
