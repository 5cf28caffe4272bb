//! A piece in the making, or being updated.

use types::PieceId;

use crate::{Completed, StoreError};

/// A piece open for writing. Several threads may write to it at once.
pub struct Writer {}

#[allow(clippy::todo, missing_docs, unused_variables, clippy::len_without_is_empty)]
impl Writer {
    /// Which piece it is.
    pub fn piece(&self) -> PieceId {
        todo!()
    }

    /// Writes all of `data`. When it returns, the bytes and the record of their range are in the kernel. Data at an address and
    /// offset that are multiples of 4096 goes to the disk without another copy.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        todo!()
    }

    /// Reads what was written, durable or not; gaps read as zeros. Returns how many bytes; fewer than asked only at the end.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, StoreError> {
        todo!()
    }

    /// Cuts or extends (with zeros). A cut is durable when this returns.
    pub fn truncate(&self, len: u64) -> Result<(), StoreError> {
        todo!()
    }

    /// Makes everything that was acknowledged so far durable. Returns the durable prefix.
    pub fn sync(&self) -> Result<u64, StoreError> {
        todo!()
    }

    /// The end of the highest written byte (or what it was truncated to).
    pub fn len(&self) -> u64 {
        todo!()
    }

    /// Bytes without a gap from the beginning that a power failure cannot undo.
    pub fn durable_prefix(&self) -> u64 {
        todo!()
    }

    /// Whether there are gaps below [`Writer::len`].
    pub fn gaps(&self) -> bool {
        todo!()
    }

    /// Makes the data durable and appends the record. The piece is complete when the log is synced up to `seq`. Gaps read as zeros
    /// from then on and count as zeros in the sums.
    pub fn complete(&self) -> Result<Completed, StoreError> {
        todo!()
    }
}
