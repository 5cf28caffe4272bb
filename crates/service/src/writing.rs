//! Writes to an open file. Data in a front end's transfer buffers goes through [`crate::WritePart`] instead.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use store::PageSum;

use crate::answer::Answer;
use crate::error::Error;
use crate::open_file::{Access, Copying, OpenFile};
use crate::part::{store_bytes, write_access};
use crate::service::Service;

impl OpenFile {
    /// Checks that the handle can change the file.
    ///
    /// # Errors
    /// The file is open for reading only, or is the target of a third-party copy.
    pub fn must_be_writable(&self) -> Result<(), Error> {
        write_access(self)?;
        self.must_not_be_fetched()
    }

    /// Writes `data` at `offset`. `sums` has the sum of each page, if they are known. The data has reached the kernel
    /// when this returns.
    ///
    /// # Errors
    /// The write failed. The data counts as missing until the client sends it again; until then the file cannot be
    /// closed as complete.
    pub fn write(&self, offset: u64, data: &[u8], sums: Option<&[PageSum]>) -> Result<(), Error> {
        store_bytes(write_access(self)?, offset, data, sums)
    }

    /// Records that the client's `len` bytes at `offset` were refused because of `why`. They count as missing until
    /// the client sends them again.
    pub fn refused(&self, offset: u64, len: u64, why: &Error) {
        if let Access::Write(access) = &self.access {
            access.refused(offset, len, why);
        }
    }

    /// Truncates or extends the file to `len` bytes.
    ///
    /// # Errors
    /// The handle cannot change the file, or the store failed.
    pub fn truncate(&self, len: u64) -> Result<(), Error> {
        let access = write_access(self)?;
        self.must_not_be_fetched()?;
        access.reserve(len)?;
        let hold = access.hold()?;
        let cut = hold.writer_to_change().truncate(len);
        if cut.is_ok() {
            access.lease.missing.lock().cut(len);
        }
        cut.map_err(|error| error.told(&format_args!("truncate {}", self.path)))
    }

    /// The number of ranges that were refused or arrived damaged, and were not sent again.
    #[must_use]
    pub fn missing_ranges(&self) -> usize {
        write_access(self).map_or(0, |access| access.lease.missing.lock().len())
    }

    /// Counts connections that ended because a client's data for this file was out of step. Returns the previous
    /// count.
    #[must_use]
    pub fn count_out_of_step(&self) -> u32 {
        write_access(self).map_or(0, |access| access.lease.out_of_step.fetch_add(1, Ordering::Relaxed))
    }

    /// Makes all acknowledged data durable. Waits for the disk.
    ///
    /// # Errors
    /// Acknowledged data may be lost.
    pub fn sync(&self) -> Result<(), Error> {
        match &self.access {
            // Readable data is already on the disk.
            Access::Read(_) => Ok(()),
            Access::Write(access) => {
                let hold = access.hold()?;
                hold.writer().sync().map_err(|error| error.told(&format_args!("sync {}", self.path)))
            }
        }
    }

    /// Whether the file is the target of a third-party copy. Use [`Service::sync_copy`] to sync such a file.
    #[must_use]
    pub fn is_fetched(&self) -> bool {
        matches!(self.copying, Copying::Fetched(_))
    }
}

impl Service {
    /// Syncs the target of a third-party copy. The first sync begins the copy. Later ones are answered at its end,
    /// within about `seconds`.
    pub fn sync_copy(self: &Arc<Self>, file: &OpenFile, seconds: u32, answer: impl Answer<()>) {
        match &file.copying {
            Copying::Fetched(job) => job.sync(&self.third_party, answer, seconds),
            Copying::No | Copying::Allowed { .. } | Copying::ForAnother => answer.give(file.sync()),
        }
    }
}
