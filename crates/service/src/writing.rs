//! Changing an open file. Data that a front end receives in buffers of its own goes through a [`crate::WritePart`]; what is here is for the rest.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use store::PageSum;

use crate::answer::Answer;
use crate::error::Error;
use crate::open_file::{Access, Copying, OpenFile};
use crate::part::{store_bytes, write_access};
use crate::service::Service;

impl OpenFile {
    /// Refuses a file that its handle cannot change: open for reading, or the target of a third-party copy.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn must_be_writable(&self) -> Result<(), Error> {
        write_access(self)?;
        self.must_not_be_fetched()
    }

    /// Writes `data` at `offset`; `sums`: of each page of it, if they are known. The bytes have reached the kernel when this returns.
    ///
    /// # Errors
    /// They count as missing from the file until they come again: until then it cannot be closed as whole.
    pub fn write(&self, offset: u64, data: &[u8], sums: Option<&[PageSum]>) -> Result<(), Error> {
        store_bytes(write_access(self)?, offset, data, sums)
    }

    /// `len` bytes at `offset`, which the client has sent, were refused because of `why`: they count as missing until they come again.
    pub fn refused(&self, offset: u64, len: u64, why: &Error) {
        if let Access::Write(access) = &self.access {
            access.refused(offset, len, why);
        }
    }

    /// Cuts the file to `len` bytes, or extends it.
    ///
    /// # Errors
    /// Why not.
    pub fn truncate(&self, len: u64) -> Result<(), Error> {
        let access = write_access(self)?;
        self.must_not_be_fetched()?;
        let hold = access.hold()?;
        let cut = hold.writer_to_change().truncate(len);
        if cut.is_ok() {
            access.lease.missing.lock().cut(len);
        }
        cut.map_err(|error| error.told(&format_args!("truncate {}", self.path)))
    }

    /// How many ranges of the file were refused, or came damaged, and have not come again.
    #[must_use]
    pub fn missing_ranges(&self) -> usize {
        write_access(self).map_or(0, |access| access.lease.missing.lock().len())
    }

    /// Counts how often a client was so wrong about this file that its connection was ended; says how often before.
    #[must_use]
    pub fn count_out_of_step(&self) -> u32 {
        write_access(self).map_or(0, |access| access.lease.out_of_step.fetch_add(1, Ordering::Relaxed))
    }

    /// What was acknowledged is durable when this returns. Waits for the disk.
    ///
    /// # Errors
    /// It may be lost.
    pub fn sync(&self) -> Result<(), Error> {
        match &self.access {
            // What can be read is on the disk already.
            Access::Read(_) => Ok(()),
            Access::Write(access) => {
                let hold = access.hold()?;
                hold.writer().sync().map_err(|error| error.told(&format_args!("sync {}", self.path)))
            }
        }
    }

    /// Whether it is the target of a third-party copy: a sync of it begins the copy, or waits for its end ([`Service::sync_copy`]).
    #[must_use]
    pub fn is_fetched(&self) -> bool {
        matches!(self.copying, Copying::Fetched(_))
    }
}

impl Service {
    /// A sync of the target of a third-party copy: the first one begins it, later ones are answered at its end, within about `seconds`.
    pub fn sync_copy(self: &Arc<Self>, file: &OpenFile, seconds: u32, answer: impl Answer<()>) {
        match &file.copying {
            Copying::Fetched(job) => job.sync(&self.third_party, answer, seconds),
            Copying::No | Copying::Allowed { .. } | Copying::ForAnother => answer.give(file.sync()),
        }
    }
}
