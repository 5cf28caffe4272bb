//! Reading, verified.

use types::PieceId;

use crate::StoreError;

/// A piece open for reading. Several threads may use it.
pub struct Reader {}

#[allow(clippy::todo, missing_docs, unused_variables, clippy::len_without_is_empty)]
impl Reader {
    /// Which piece it is.
    pub fn piece(&self) -> PieceId {
        todo!()
    }

    /// The length now; of a piece in the making: its durable prefix.
    pub fn len(&self) -> u64 {
        todo!()
    }

    /// Reads at `offset`, verified. Returns how many bytes; fewer than asked only at the end.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, StoreError> {
        todo!()
    }

    /// Appends to `out`, for each page touched, its CRC32C (4 bytes, big-endian) and then its bytes, as XRootD's pgread sends them.
    /// The first page is short if `offset` is not a multiple of 4096, and the last one by what is asked for and by the end of the
    /// piece; the CRC is over the bytes that follow. Returns the bytes of data. On an error `out` is as it was.
    pub fn read_pages(&self, offset: u64, len: u32, out: &mut Vec<u8>) -> Result<usize, StoreError> {
        todo!()
    }
}
