//! The data of a write request, or a part of it, on its way to the store.

use std::ops::Range;
use std::sync::Arc;

use store::PageSum;
use types::{Crc32c, ErrorCode, PAGE_SIZE};

use crate::buffers::Buffer;
use crate::error::Error;
use crate::lease::WriteAccess;
use crate::open_file::{Access, OpenFile};

/// Data for a file, with the sums of its pages.
pub struct Part {
    file: Arc<OpenFile>,
    /// The position of the data in the file.
    offset: u64,
    buffer: Buffer,
    /// The position of the data in the buffer. Its offset within a page is the same as in the file.
    bytes: Range<usize>,
    sums: Vec<PageSum>,
    /// The runs of pages to store.
    good: Vec<Run>,
}

/// Adjacent pages.
#[derive(Clone, Default)]
struct Run {
    /// Their bytes in the part.
    bytes: Range<usize>,
    /// Their indices in the sums.
    pages: Range<usize>,
}

/// The result of comparing the pages of a write with their checksums.
pub struct Judged {
    /// The position and length in bytes of each page whose checksum does not match; at most `bad_max` pages.
    pub bad: Vec<(u64, usize)>,
    /// How many bad pages can be reported.
    pub bad_max: usize,
    /// The number of bad pages.
    pub bad_count: usize,
}

impl Judged {
    /// Nothing is judged yet.
    #[must_use]
    pub fn new(bad_max: usize) -> Self {
        Self { bad: Vec::new(), bad_max, bad_count: 0 }
    }

    /// Whether there are more bad pages than can be reported.
    #[must_use]
    pub fn too_many(&self) -> bool {
        self.bad_count > self.bad_max
    }
}

impl Part {
    /// Data of which all pages will be stored. `sums` has one entry for each page.
    pub fn new(file: &Arc<OpenFile>, offset: u64, buffer: Buffer, bytes: Range<usize>, sums: Vec<PageSum>) -> Self {
        let good = vec![Run { bytes: 0..bytes.len(), pages: 0..sums.len() }];
        Self { file: Arc::clone(file), offset, buffer, bytes, sums, good }
    }

    /// The length, in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // no part is empty
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// How many of the bytes need a transfer slot.
    pub fn in_turns(&self) -> usize {
        self.file.in_turns(self.bytes.len())
    }

    /// The buffer of this part.
    pub fn into_buffer(self) -> Buffer {
        self.buffer
    }

    /// Leaves out the pages whose sums differ from those that the client `claimed`. They are counted in `judged`, and
    /// count as missing from the file until the client sends them again.
    ///
    /// # Errors
    /// The handle may no longer write. Nothing was judged.
    pub fn judge(&mut self, claimed: &[[u8; 4]], judged: &mut Judged) -> Result<(), Error> {
        let access = write_access(&self.file)?;
        // A fenced handle changes nothing, not even the missing ranges.
        let _hold = access.hold()?;
        let mut good = Vec::new();
        let mut run = Run::default();
        let mut page_start = 0;
        for (number, (sum, claimed)) in self.sums.iter().zip(claimed).enumerate() {
            let at = self.offset.saturating_add(page_start as u64);
            let len = (PAGE_SIZE - lead_of(at)).min(self.bytes.len() - page_start);
            if sum.crc32c() == Crc32c(u32::from_be_bytes(*claimed)) {
                run.bytes.end = page_start + len;
                run.pages.end = number + 1;
            } else {
                access.lease.missing.lock().refused(at, at.saturating_add(len as u64), ErrorCode::Checksum);
                judged.bad_count += 1;
                if !judged.too_many() {
                    judged.bad.push((at, len));
                }
                let next = page_start + len;
                good.push(std::mem::replace(&mut run, Run { bytes: next..next, pages: number + 1..number + 1 }));
            }
            page_start += len;
        }
        good.push(run);
        good.retain(|run| !run.bytes.is_empty());
        self.good = good;
        Ok(())
    }

    /// Stores the data.
    ///
    /// # Errors
    /// The write failed. The data that is not stored counts as missing from the file until the client sends it again.
    pub fn store(&self) -> Result<(), Error> {
        let access = write_access(&self.file)?;
        let data = &self.buffer[self.bytes.clone()];
        let mut result = Ok(());
        for Run { bytes, pages } in self.good.iter().cloned() {
            let at = self.offset.saturating_add(bytes.start as u64);
            match &result {
                Ok(()) => result = store_bytes(access, at, &data[bytes], Some(&self.sums[pages])),
                Err(error) => access.refused(at, bytes.len() as u64, error),
            }
        }
        result
    }

    /// Refuses the data, because an earlier part of the request was refused.
    pub fn refuse(&self, why: &Error) {
        if let Ok(access) = write_access(&self.file) {
            access.refused(self.offset, self.bytes.len() as u64, why);
        }
    }
}

/// The offset of a byte within its page.
pub fn lead_of(offset: u64) -> usize {
    usize::try_from(offset % PAGE_SIZE as u64).unwrap_or(0)
}

/// Splits `data` into pages. The first one begins `lead` bytes into its page.
pub fn pages_in(data: &[u8], lead: usize) -> impl Iterator<Item = &[u8]> {
    let (first, rest) = data.split_at(data.len().min((PAGE_SIZE - lead) % PAGE_SIZE));
    std::iter::once(first).filter(|first| !first.is_empty()).chain(rest.chunks(PAGE_SIZE))
}

/// The write access of an open file.
///
/// # Errors
/// The file is open for reading only.
pub(crate) fn write_access(file: &OpenFile) -> Result<&WriteAccess, Error> {
    match &file.access {
        Access::Write(access) => Ok(access),
        Access::Read(_) => Err(Error::read_only(&file.path)),
    }
}

/// Writes `data` at `offset`. `sums` has the sum of each page, if they are known.
///
/// # Errors
/// The write failed. The data counts as missing from the file until the client sends it again.
pub(crate) fn store_bytes(
    access: &WriteAccess,
    offset: u64,
    data: &[u8],
    sums: Option<&[PageSum]>,
) -> Result<(), Error> {
    let end = offset.saturating_add(data.len() as u64);
    // An empty write makes no file longer.
    if !data.is_empty() {
        access.reserve(end).inspect_err(|error| access.refused(offset, data.len() as u64, error))?;
    }
    let hold = access.hold()?;
    let writer = if data.is_empty() { hold.writer() } else { hold.writer_to_change() };
    let result = writer.write(offset, data, sums);
    let mut missing = access.lease.missing.lock();
    match result {
        Ok(()) => {
            missing.written(offset, end);
            Ok(())
        }
        Err(error) => {
            let error = error.told(&format_args!("write {}", access.lease.path));
            missing.refused(offset, end, error.code());
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_split_at_the_page_boundaries_of_the_file() {
        let data = vec![0; 2 * PAGE_SIZE + 5];
        let lens = |data, lead| pages_in(data, lead).map(<[u8]>::len).collect::<Vec<_>>();
        assert_eq!(lens(&data[..], 0), [PAGE_SIZE, PAGE_SIZE, 5]);
        assert_eq!(lens(&data[..], 1), [PAGE_SIZE - 1, PAGE_SIZE, 6]);
        assert_eq!(lens(&data[..10], 4000), [10]);
        assert!(lens(&data[..0], 7).is_empty());
    }
}
