//! A cursor over received bytes that never reads past their end.

use crate::planted::{self, Bug};
use crate::{FileHandle, WireError};

/// Reads numbers and slices from the front. If the bytes end too early, the error says what was being read.
pub(crate) struct Reader<'a> {
    what: &'static str,
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, left: bytes }
    }

    pub(crate) fn left(&self) -> usize {
        self.left.len()
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let Some((taken, left)) = self.left.split_at_checked(len) else {
            return Err(WireError::TooShort { what: self.what, missing: len - self.left.len() });
        };
        self.left = left;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], WireError> {
        let Some((taken, left)) = self.left.split_first_chunk() else {
            return Err(WireError::TooShort { what: self.what, missing: N - self.left.len() });
        };
        self.left = left;
        Ok(taken)
    }

    pub(crate) fn skip(&mut self, len: usize) -> Result<(), WireError> {
        self.take(len).map(|_| ())
    }

    pub(crate) fn u8(&mut self) -> Result<u8, WireError> {
        self.array().map(|&[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(|&bytes| u16::from_be_bytes(bytes))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(|&bytes| u32::from_be_bytes(bytes))
    }

    pub(crate) fn i32(&mut self) -> Result<i32, WireError> {
        self.array().map(|&bytes| i32::from_be_bytes(bytes))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(|&bytes| u64::from_be_bytes(bytes))
    }

    /// A signed number of four bytes that must not be negative.
    pub(crate) fn u31(&mut self, what: &'static str) -> Result<u32, WireError> {
        let value = self.i32()?;
        u32::try_from(value).map_err(|_| WireError::OutOfRange { what, value: i64::from(value) })
    }

    /// A signed number of eight bytes that must not be negative.
    pub(crate) fn u63(&mut self, what: &'static str) -> Result<u64, WireError> {
        let value = i64::from_be_bytes(*self.array()?);
        if planted::is(Bug::NegativeOffsetTaken) {
            return Ok(value.cast_unsigned() >> 1);
        }
        u64::try_from(value).map_err(|_| WireError::OutOfRange { what, value })
    }

    pub(crate) fn handle(&mut self) -> Result<FileHandle, WireError> {
        self.array().map(|&bytes| FileHandle(bytes))
    }

    /// The bytes up to the next NUL. The NUL is skipped.
    pub(crate) fn until_nul(&mut self) -> Result<&'a [u8], WireError> {
        let Some(at) = self.left.iter().position(|&b| b == 0) else {
            return Err(WireError::TooShort { what: self.what, missing: 1 });
        };
        let text = self.take(at)?;
        self.skip(1)?;
        Ok(text)
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.left)
    }

    /// Fails if bytes are left.
    pub(crate) fn end(self) -> Result<(), WireError> {
        if self.left.is_empty() || planted::is(Bug::TrailingBytesTaken) {
            Ok(())
        } else {
            Err(WireError::Trailing { what: self.what, extra: self.left.len() })
        }
    }
}

/// `bytes` up to the last byte that is not NUL.
pub(crate) fn without_trailing_nuls(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
    &bytes[..end]
}

/// Text without its trailing NULs. A NUL inside is refused, so that nothing is hidden behind it.
pub(crate) fn text<'a>(what: &'static str, bytes: &'a [u8]) -> Result<&'a [u8], WireError> {
    let text = without_trailing_nuls(bytes);
    if text.contains(&0) {
        return Err(WireError::Malformed { what, why: "it holds a NUL byte" });
    }
    Ok(text)
}

/// A decimal number, as in the texts of stat and space.
pub(crate) fn decimal(what: &'static str, bytes: &[u8]) -> Result<i64, WireError> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| !text.is_empty() && text.len() <= 20);
    text.and_then(|text| text.parse().ok()).ok_or(WireError::Malformed { what, why: "it is not a decimal number" })
}
