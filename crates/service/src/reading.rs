//! Reads from an open file, of verified data, into the caller's buffer.

use std::sync::Arc;

use store::{AtRest, Lent};
use types::PAGE_SIZE;

use crate::error::{Error, Redirect};
use crate::open_file::{Access, OpenFile, SUM_LEN, with_sums};
use crate::write_target::WriteTargetError;

impl OpenFile {
    /// The length in bytes, as seen through this handle.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.access {
            Access::Read(shown) => shown.len(),
            Access::Write(access) => access.lease.writer().map_or(0, |writer| writer.len()),
        }
    }

    /// Whether the length is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many of the `len` bytes at `offset` exist.
    #[must_use]
    pub fn bounded(&self, offset: u64, len: u32) -> usize {
        within(self.len(), offset, len)
    }

    /// Reads from `offset` into `into`. Returns the number of bytes, which is lower at the end of the file.
    ///
    /// # Errors
    /// The read failed. The contents of `into` are invalid.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, Error> {
        match &self.access {
            Access::Read(shown) => shown.read(offset, into),
            Access::Write(access) => access.hold_to_read()?.writer().read(offset, into),
        }
        .map_err(|error| self.not_read(&error))
    }

    /// Reads like [`OpenFile::read`], with the CRC32C of each page (big-endian, 4 bytes) before it. Returns the
    /// number of data bytes. `into` must have room for [`framed_len`] bytes.
    ///
    /// # Errors
    /// The read failed. The contents of `into` are invalid.
    pub fn read_pages(&self, offset: u64, len: usize, into: &mut [u8]) -> Result<usize, Error> {
        if len == 0 {
            return Ok(0);
        }
        match &self.access {
            Access::Read(shown) => shown.read_pages_into(offset, len, into).map_err(|error| self.not_read(&error)),
            Access::Write(access) => {
                let mut data = vec![0; len];
                let read = access.hold_to_read()?.writer().read(offset, &mut data);
                let n = read.map_err(|error| self.not_read(&error))?;
                with_sums(offset, &data[..n], into);
                Ok(n)
            }
        }
    }

    fn not_read(&self, error: &WriteTargetError) -> Error {
        match error.told(&format_args!("read {}", self.path)) {
            Error::Redirect(to) if matches!(self.access, Access::Read(_)) => {
                Error::redirect(Redirect { same_object: Some(self.object), ..*to })
            }
            refused => refused,
        }
    }
}

/// A file from which many ranges are read.
pub struct Vectored {
    file: Arc<OpenFile>,
    /// The file as it was at the first read.
    at_rest: Option<AtRest>,
}

impl Vectored {
    /// How many bytes behind the requested ones [`Vectored::read`] may overwrite.
    pub const MARGIN: usize = AtRest::MARGIN;

    /// Prepares `file` for reading.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn new(file: Arc<OpenFile>) -> Result<Self, Error> {
        let at_rest = match &file.access {
            Access::Read(shown) => shown.at_rest().map_err(|error| file.not_read(&error))?,
            Access::Write(access) => access.may_read().map(|()| None)?,
        };
        Ok(Self { file, at_rest })
    }

    /// The open file.
    #[must_use]
    pub fn file(&self) -> &OpenFile {
        &self.file
    }

    /// How many of the `len` bytes at `offset` exist.
    #[must_use]
    pub fn bounded(&self, offset: u64, len: u32) -> usize {
        match &self.at_rest {
            Some(at_rest) => within(at_rest.len(), offset, len),
            None => self.file.bounded(offset, len),
        }
    }

    /// Lends `len` bytes out of the memory for recently written data. `None`: [`Vectored::read`] has them. Do not wait for a client with what is lent
    /// ([`Lent`]).
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn lend(&self, offset: u64, len: usize) -> Result<Option<Lent>, Error> {
        let (Some(at_rest), Access::Read(shown)) = (&self.at_rest, &self.file.access) else { return Ok(None) };
        shown.checked(at_rest.lend(offset, len)).map_err(|error| self.file.not_read(&error))
    }

    /// Reads `len` bytes to the beginning of `room`, which must have [`Vectored::MARGIN`] bytes more. Calls
    /// `before_disk` if it may be about to wait for the disk ([`Vectored::will_read`]).
    ///
    /// # Errors
    /// The read failed. The contents of `room` are invalid.
    pub fn read(&self, offset: u64, len: usize, room: &mut [u8], before_disk: impl FnOnce()) -> Result<usize, Error> {
        if let (Some(at_rest), Access::Read(shown)) = (&self.at_rest, &self.file.access) {
            if len > AtRest::READ_MAX {
                before_disk();
            } else {
                let read = shown.checked(at_rest.read(offset, len, room, before_disk));
                if read.map_err(|error| self.file.not_read(&error))? {
                    return Ok(len);
                }
            }
        }
        self.file.read(offset, &mut room[..len])
    }

    /// Has the disk begin to read these ranges of bytes, which will be read next.
    pub fn will_read(&self, ranges: impl Iterator<Item = (u64, usize)>) {
        if let Some(at_rest) = &self.at_rest {
            at_rest.will_read(ranges);
        }
    }
}

fn within(end: u64, offset: u64, len: u32) -> usize {
    usize::try_from(end.saturating_sub(offset).min(u64::from(len))).unwrap_or(0)
}

/// The length of `len` bytes of data at `offset` together with the checksums of their pages.
#[must_use]
pub fn framed_len(offset: u64, len: usize) -> usize {
    let lead = usize::try_from(offset % PAGE_SIZE as u64).unwrap_or(0);
    if len == 0 { 0 } else { len + SUM_LEN * (lead + len).div_ceil(PAGE_SIZE) }
}
