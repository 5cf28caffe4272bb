//! Reads fields one after the other, and never past the end.

use super::RootFileError;

/// The unread rest of a section of the file.
#[derive(Clone, Copy, Debug)]
pub(in crate::rootfile) struct Bytes<'a> {
    all: &'a [u8],
    at: usize,
    /// The start of the section in the file, for errors. For decompressed data it is that of the compressed data.
    origin: u64,
}

impl<'a> Bytes<'a> {
    pub(in crate::rootfile) fn new(all: &'a [u8], origin: u64) -> Self {
        Self { all, at: 0, origin }
    }

    /// Returns the position in the section.
    pub(in crate::rootfile) fn position(&self) -> usize {
        self.at
    }

    pub(in crate::rootfile) fn left(&self) -> usize {
        self.all.len().saturating_sub(self.at)
    }

    pub(in crate::rootfile) fn error(&self, what: impl Into<String>) -> RootFileError {
        RootFileError::malformed(self.origin, format!("byte {} of what begins here: {}", self.at, what.into()))
    }

    pub(in crate::rootfile) fn take(&mut self, len: usize) -> Result<&'a [u8], RootFileError> {
        let taken = self.at.checked_add(len).and_then(|end| self.all.get(self.at..end));
        let Some(taken) = taken else {
            return Err(self.error(format!("{len} bytes more are to come, and there are {}", self.left())));
        };
        self.at += len;
        Ok(taken)
    }

    /// Moves forward to a position.
    pub(in crate::rootfile) fn go_to(&mut self, position: usize) -> Result<(), RootFileError> {
        match position.checked_sub(self.at) {
            Some(len) => self.take(len).map(drop),
            None => Err(self.error("a length that leads backwards")),
        }
    }

    /// Ends the section at `position`.
    pub(in crate::rootfile) fn end_at(&mut self, position: usize) {
        self.all = self.all.get(..position).unwrap_or(self.all);
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RootFileError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(in crate::rootfile) fn u8(&mut self) -> Result<u8, RootFileError> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(in crate::rootfile) fn be_u16(&mut self) -> Result<u16, RootFileError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(in crate::rootfile) fn be_u32(&mut self) -> Result<u32, RootFileError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(in crate::rootfile) fn be_i32(&mut self) -> Result<i32, RootFileError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(in crate::rootfile) fn be_u64(&mut self) -> Result<u64, RootFileError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(in crate::rootfile) fn le_u16(&mut self) -> Result<u16, RootFileError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(in crate::rootfile) fn le_u32(&mut self) -> Result<u32, RootFileError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(in crate::rootfile) fn le_i32(&mut self) -> Result<i32, RootFileError> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    pub(in crate::rootfile) fn le_u64(&mut self) -> Result<u64, RootFileError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(in crate::rootfile) fn le_i64(&mut self) -> Result<i64, RootFileError> {
        Ok(i64::from_le_bytes(self.array()?))
    }
}
