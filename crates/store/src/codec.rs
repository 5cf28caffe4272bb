//! Numbers and byte strings in records: little-endian, lengths checked before use.

use types::{ObjectId, ReplicaId, ReplicaIndex};

use crate::StoreError;
use crate::ranges::Ranges;

/// Appends fields to a record.
pub(crate) struct Encoder(pub(crate) Vec<u8>);

impl Default for Encoder {
    /// Has room for most records, so that they do not move while they grow.
    fn default() -> Self {
        Self(Vec::with_capacity(192))
    }
}

impl Encoder {
    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }
    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }
    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }
    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }
    /// A byte string with its length before it. Bytes after the first 65,535 are dropped.
    pub(crate) fn short_bytes(&mut self, bytes: &[u8]) -> &mut Self {
        let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        self.u16(len).raw(&bytes[..usize::from(len)])
    }
    /// A count and that many u32. The caller bounds them.
    pub(crate) fn u32s(&mut self, values: &[u32]) -> &mut Self {
        self.u32(u32::try_from(values.len()).unwrap_or(u32::MAX));
        self.0.reserve(4 * values.len());
        for value in values {
            self.u32(*value);
        }
        self
    }
    pub(crate) fn replica(&mut self, replica: ReplicaId) -> &mut Self {
        self.u64(replica.object.0).u16(replica.index.0)
    }
    pub(crate) fn ranges(&mut self, ranges: &Ranges) -> &mut Self {
        self.u32(u32::try_from(ranges.len()).unwrap_or(u32::MAX));
        for (start, end) in ranges.as_slice() {
            self.u64(*start).u64(*end);
        }
        self
    }
}

/// Takes fields from a record. Every getter returns an error at the end of the bytes.
pub(crate) struct Decoder<'a> {
    bytes: &'a [u8],
    what: &'static str,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { bytes, what }
    }

    pub(crate) fn fail(&self, why: &str) -> StoreError {
        StoreError::damaged(format!("{}: {why}", self.what))
    }

    pub(crate) fn raw(&mut self, len: usize) -> Result<&'a [u8], StoreError> {
        let (taken, rest) = self.bytes.split_at_checked(len).ok_or_else(|| self.fail("ends too early"))?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], StoreError> {
        let taken = self.raw(N)?;
        taken.try_into().map_err(|_| self.fail("ends too early"))
    }

    pub(crate) fn u8(&mut self) -> Result<u8, StoreError> {
        Ok(u8::from_le_bytes(self.array()?))
    }
    pub(crate) fn u16(&mut self) -> Result<u16, StoreError> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    pub(crate) fn u32(&mut self) -> Result<u32, StoreError> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    pub(crate) fn u64(&mut self) -> Result<u64, StoreError> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    pub(crate) fn short_bytes(&mut self) -> Result<&'a [u8], StoreError> {
        let len = self.u16()?;
        self.raw(usize::from(len))
    }
    /// The count before a list with elements of `size` bytes, checked against the remaining bytes.
    pub(crate) fn count(&mut self, size: usize) -> Result<usize, StoreError> {
        let count = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        if count.saturating_mul(size) > self.bytes.len() {
            return Err(self.fail("a list is longer than the record"));
        }
        Ok(count)
    }
    pub(crate) fn u32s(&mut self) -> Result<Vec<u32>, StoreError> {
        let count = self.count(4)?;
        (0..count).map(|_| self.u32()).collect()
    }
    pub(crate) fn replica(&mut self) -> Result<ReplicaId, StoreError> {
        Ok(ReplicaId { object: ObjectId(self.u64()?), index: ReplicaIndex(self.u16()?) })
    }
    pub(crate) fn ranges(&mut self) -> Result<Ranges, StoreError> {
        let count = self.count(16)?;
        let parts: Result<Vec<_>, StoreError> = (0..count).map(|_| Ok((self.u64()?, self.u64()?))).collect();
        Ranges::checked(parts?).ok_or_else(|| self.fail("ranges out of order"))
    }
    /// All remaining bytes.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }
    /// Fails if bytes remain.
    pub(crate) fn end(&self) -> Result<(), StoreError> {
        if self.bytes.is_empty() { Ok(()) } else { Err(self.fail("has bytes too many")) }
    }
}
