//! An open file: a reader, or the lease of a writer.

use std::ops::Range;
use std::sync::Arc;

use disk_server::Permit;
use store::{AtRest, Reader, StoreError};
use types::{Crc32c, ErrorCode, Ino, NsPath, ObjectId, PAGE_SIZE};

use crate::error::Error;
use crate::fair::Class;
use crate::lease::WriteAccess;
use crate::read_ahead::{HandleReadAhead, ReadAhead};
use crate::striped::StripedFile;
use crate::third_party::{PullJob, Registration};
use crate::write_target::WriteTargetError;

/// Bytes of a page's checksum, where checksums and pages alternate.
pub const SUM_LEN: usize = 4;

/// An open file.
pub struct OpenFile {
    /// The inode of the file.
    pub(crate) ino: Ino,
    /// The object. The handle stays on it, whatever happens to the name.
    pub(crate) object: ObjectId,
    /// The name at the time of the open.
    pub path: NsPath,
    /// The permission bits at the time of the open.
    pub(crate) mode: u16,
    /// How the file is open.
    pub(crate) access: Access,
    /// Its role in a third-party copy.
    pub(crate) copying: Copying,
}

/// The role of an open file in a third-party copy.
pub(crate) enum Copying {
    /// None.
    No,
    /// The client allows another server to read the file while it is open.
    Allowed { _registration: Registration },
    /// Another server reads the file.
    ForAnother,
    /// This server fetches the file from another one.
    Fetched(Arc<PullJob>),
}

impl OpenFile {
    /// Fails if the file is the target of a third-party copy: the client cannot change it.
    pub(crate) fn must_not_be_fetched(&self) -> Result<(), Error> {
        match &self.copying {
            Copying::Fetched(_) => {
                let text = format!("Cannot change {}: it is the target of a third-party copy", self.path);
                Err(Error::new(ErrorCode::NotAllowedNow, text))
            }
            Copying::No | Copying::Allowed { .. } | Copying::ForAnother => Ok(()),
        }
    }

    /// Whether a third-party copy into this file reads its source with a delegated proxy.
    pub(crate) fn is_fetched_by_proxy(&self) -> bool {
        matches!(&self.copying, Copying::Fetched(job) if job.is_by_proxy())
    }

    /// Why the third-party copy into this file is incomplete, if it is.
    pub(crate) fn not_fetched(&self) -> Option<Error> {
        match &self.copying {
            Copying::Fetched(job) => job.doubt(),
            Copying::No | Copying::Allowed { .. } | Copying::ForAnother => None,
        }
    }

    /// The class of its reads, which determines their priority.
    #[must_use]
    pub fn class(&self) -> Class {
        if matches!(self.copying, Copying::ForAnother) { Class::Move } else { Class::Read }
    }

    /// A front end calls this when it has answered a request for these ranges of bytes, so that the disk can begin to read
    /// what the next request will probably ask for. It does not wait.
    pub fn was_read(&self, request: impl Iterator<Item = Range<u64>>) {
        if let Access::Read(shown) = &self.access {
            shown.was_read(request);
        }
    }

    /// How many of `bytes` need a transfer slot. For a striped file it is none: its transfers wait for other servers,
    /// which may need a slot of this one.
    pub fn in_turns(&self, bytes: usize) -> usize {
        if self.is_striped() { 0 } else { bytes }
    }

    /// Whether other servers have its bytes. Then even a small read, and the length of a growing file, may take long.
    pub fn is_striped(&self) -> bool {
        match &self.access {
            Access::Read(shown) => shown.is_striped(),
            Access::Write(access) => access.lease.is_striped,
        }
    }

    /// Stops the third-party copy into this file, if there is one.
    pub fn stop_copying(&self) {
        if let Copying::Fetched(job) = &self.copying {
            job.cancel();
        }
    }
}

/// How a file is open.
pub(crate) enum Access {
    /// For reading.
    Read(Shown),
    /// For writing, and reading the written data.
    Write(WriteAccess),
}

/// The data that a reader sees.
pub(crate) struct Shown {
    source: Source,
    /// On a disk server of a cluster: whether this server may still show the data.
    permit: Option<Permit>,
    /// Unless another server reads ahead.
    read_ahead: Option<HandleReadAhead>,
}

/// The source of the data.
enum Source {
    /// A store of this node.
    Local(Arc<Reader>),
    /// The servers of the stripe units.
    Striped(Arc<dyn StripedFile>),
}

impl Shown {
    pub(crate) fn new(reader: Arc<Reader>, permit: Option<Permit>, node: &Arc<ReadAhead>) -> Self {
        Self { source: Source::Local(reader), permit, read_ahead: Some(HandleReadAhead::new(node)) }
    }

    /// A striped file. The servers of its units check whether they may show them.
    pub(crate) fn striped(file: Arc<dyn StripedFile>) -> Self {
        Self { source: Source::Striped(file), permit: None, read_ahead: None }
    }

    pub(crate) fn is_striped(&self) -> bool {
        matches!(self.source, Source::Striped(_))
    }

    pub(crate) fn len(&self) -> u64 {
        match &self.source {
            Source::Local(reader) => reader.len(),
            Source::Striped(file) => file.len(),
        }
    }

    /// Whether nothing is at `offset` yet, and a writer may put something there. `None`: this cannot be said at once. Of a
    /// striped file nobody here knows.
    pub(crate) fn is_awaited_at(&self, offset: u64) -> Option<bool> {
        match &self.source {
            Source::Local(reader) => reader.is_awaited_at(offset),
            Source::Striped(_) => Some(false),
        }
    }

    pub(crate) fn at_rest(&self) -> Result<Option<AtRest>, WriteTargetError> {
        match &self.source {
            Source::Local(reader) => self.checked(reader.at_rest()),
            Source::Striped(_) => Ok(None),
        }
    }

    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, WriteTargetError> {
        match &self.source {
            Source::Local(reader) => self.checked(reader.read(offset, into)),
            Source::Striped(file) => Ok(file.read(offset, into)?),
        }
    }

    pub(crate) fn read_pages_into(&self, offset: u64, len: usize, into: &mut [u8]) -> Result<usize, WriteTargetError> {
        match &self.source {
            Source::Local(reader) => self.checked(reader.read_pages_into(offset, len, into)),
            Source::Striped(file) => {
                let mut data = vec![0; len];
                let got = file.read(offset, &mut data)?;
                with_sums(offset, &data[..got], into);
                Ok(got)
            }
        }
    }

    /// See [`OpenFile::was_read`].
    fn was_read(&self, request: impl Iterator<Item = Range<u64>>) {
        if let (Source::Local(reader), Some(read_ahead)) = (&self.source, &self.read_ahead) {
            read_ahead.was_read(reader, request);
        }
    }

    /// What was read, if this server may still show it. Has a replica examined that could not be read.
    pub(crate) fn checked<T>(&self, read: Result<T, StoreError>) -> Result<T, WriteTargetError> {
        // First: an error of a replica that is being replaced says nothing.
        self.still_good(())?;
        if let (Err(error), Some(permit)) = (&read, &self.permit)
            && error.is_about_replica()
        {
            permit.suspect_damage();
        }
        Ok(read?)
    }

    /// Returns the data `what`, if this server may still show it after the read.
    pub(crate) fn still_good<T>(&self, what: T) -> Result<T, WriteTargetError> {
        match &self.permit {
            None => Ok(what),
            Some(permit) => permit.check().map(|()| what).map_err(WriteTargetError::Replicated),
        }
    }
}

/// Copies `data`, which lies at `offset` of a file, to `into`, with a checksum before each page, as pgread sends it.
pub(crate) fn with_sums(offset: u64, data: &[u8], into: &mut [u8]) {
    let (mut rest, mut into) = (data, into);
    let mut room = PAGE_SIZE - usize::try_from(offset % PAGE_SIZE as u64).unwrap_or(0);
    while !rest.is_empty() {
        let (page, tail) = rest.split_at(room.min(rest.len()));
        let (unit, after) = into.split_at_mut(SUM_LEN + page.len());
        unit[..SUM_LEN].copy_from_slice(&Crc32c::of(page).0.to_be_bytes());
        unit[SUM_LEN..].copy_from_slice(page);
        (rest, into, room) = (tail, after, PAGE_SIZE);
    }
}
