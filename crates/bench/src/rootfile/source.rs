//! The bytes of a file, on disk or in memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::RootFileError;

/// A file, or its bytes in memory.
#[derive(Debug)]
pub struct Source<'a> {
    bytes: Bytes<'a>,
    len: u64,
}

#[derive(Debug)]
enum Bytes<'a> {
    File(&'a File),
    Memory(&'a [u8]),
}

impl<'a> Source<'a> {
    /// Uses an open file.
    ///
    /// # Errors
    /// The kernel does not return its length.
    pub fn file(file: &'a File) -> io::Result<Self> {
        Ok(Self { len: file.metadata()?.len(), bytes: Bytes::File(file) })
    }

    /// Uses bytes in memory.
    #[must_use]
    pub fn memory(bytes: &'a [u8]) -> Self {
        Self { len: bytes.len() as u64, bytes: Bytes::Memory(bytes) }
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the `len` bytes at `offset`. It never allocates more memory than the file has bytes.
    ///
    /// # Errors
    /// [`RootFileError::Malformed`]: the range ends behind the file. The kernel returns an error.
    pub fn at(&self, offset: u64, len: usize) -> Result<Vec<u8>, RootFileError> {
        if offset.checked_add(len as u64).is_none_or(|end| end > self.len) {
            let what = format!("{len} bytes must be here, and the file ends at byte {}", self.len);
            return Err(RootFileError::malformed(offset, what));
        }
        match self.bytes {
            Bytes::File(file) => {
                let mut bytes = vec![0; len];
                let read = file.read_exact_at(&mut bytes, offset);
                read.map_err(|source| RootFileError::Io { offset, len, source }).map(|()| bytes)
            }
            Bytes::Memory(all) => {
                let begin = usize::try_from(offset).unwrap_or(usize::MAX);
                Ok(all.get(begin..begin.saturating_add(len)).unwrap_or_default().to_vec())
            }
        }
    }

    /// Returns up to `len` bytes at `offset`; fewer at the end.
    pub(super) fn up_to(&self, offset: u64, len: usize) -> Result<Vec<u8>, RootFileError> {
        let there = self.len.saturating_sub(offset);
        self.at(offset, len.min(usize::try_from(there).unwrap_or(len)))
    }
}
