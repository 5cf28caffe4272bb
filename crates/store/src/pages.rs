//! Reading pages of a large replica and comparing them with their checksums. No other code returns bytes of files.

use std::io::IoSliceMut;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

use types::{Crc32c, PAGE_SIZE, ReplicaId};

use crate::StoreError;
use crate::known_sums::Table;
use crate::object::ObjectFiles;
use crate::recent::ReplicaPages;
use crate::sums::{PAGE, pages_of};
use crate::writer::index;

/// A range of a file to read. The whole pages around it are read and compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadRange<'a> {
    pub(crate) replica: ReplicaId,
    /// The first byte and the number of bytes; not empty, and inside `end`.
    pub(crate) offset: u64,
    pub(crate) len: usize,
    /// The end of the file's last page, as its checksums cover it.
    pub(crate) end: u64,
    /// Whether to compare; only a planted bug turns it off.
    pub(crate) check: bool,
    /// Read from the disk even if recently written pages are in memory.
    pub(crate) from_disk: bool,
    /// Pages in memory are there because a first read has fetched them.
    pub(crate) is_first_read: bool,
    /// Set if the read waits for the disk.
    pub(crate) waits: Option<&'a AtomicBool>,
}

impl ReadRange<'_> {
    pub(crate) fn first_page(self) -> u64 {
        self.offset / PAGE
    }

    pub(crate) fn pages(self) -> usize {
        index(pages_of(self.offset + self.len as u64) - self.first_page())
    }

    /// Bytes before the range in its first page, and after it in its last.
    fn edges(self) -> (usize, usize) {
        let stop = self.offset + self.len as u64;
        let last_end = (pages_of(stop) * PAGE).min(self.end.max(stop));
        (index(self.offset % PAGE), index(last_end - stop))
    }
}

/// Pages of a small read, whose checksums need no allocation.
pub(crate) const FEW_PAGES: usize = 17;

/// The CRCs of a range's pages.
pub(crate) enum PageCrcs {
    Few([Crc32c; FEW_PAGES], usize),
    Many(Vec<Crc32c>),
}

impl PageCrcs {
    /// Room for `pages` CRCs.
    pub(crate) fn new(pages: usize) -> Self {
        if pages <= FEW_PAGES {
            Self::Few([Crc32c::EMPTY; FEW_PAGES], pages)
        } else {
            Self::Many(vec![Crc32c::EMPTY; pages])
        }
    }
}

impl Deref for PageCrcs {
    type Target = [Crc32c];

    fn deref(&self) -> &[Crc32c] {
        match self {
            Self::Few(crcs, pages) => &crcs[..*pages],
            Self::Many(crcs) => crcs,
        }
    }
}

impl DerefMut for PageCrcs {
    fn deref_mut(&mut self) -> &mut [Crc32c] {
        match self {
            Self::Few(crcs, pages) => &mut crcs[..*pages],
            Self::Many(crcs) => crcs,
        }
    }
}

/// The checksum of a page in up to three parts.
fn sum_of(parts: [&[u8]; 3]) -> Crc32c {
    parts.into_iter().filter(|part| !part.is_empty()).fold(Crc32c::EMPTY, Crc32c::extend)
}

/// The CRCs of a range's pages, from the sidecar.
pub(crate) fn crcs(files: &ObjectFiles, at: ReadRange) -> Result<PageCrcs, StoreError> {
    let mut crcs = PageCrcs::new(at.pages());
    files.crcs(at.first_page(), &mut crcs)?;
    Ok(crcs)
}

/// The CRCs of a range's pages: from the table if possible, otherwise from the sidecar.
pub(crate) fn known_crcs(files: &ObjectFiles, at: ReadRange, table: Option<&Table>) -> Result<PageCrcs, StoreError> {
    let mut found = PageCrcs::new(at.pages());
    if let Some(table) = table
        && table.look_up(files, at.first_page(), &mut found)?
    {
        return Ok(found);
    }
    crcs(files, at)
}

/// Where pages came from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Memory,
    Disk,
}

/// Fills `bufs` with recently written pages, or from the file, and the rest with zeros.
fn fill(files: &ObjectFiles, at: ReadRange, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<Source, StoreError> {
    if let Some(recent) = files.recent.as_ref().filter(|_| !at.from_disk)
        && recent.fill(bufs, offset, at.is_first_read)
    {
        return Ok(Source::Memory);
    }
    let mut got = match at.waits {
        None => files.data.read_vectored_at(bufs, offset)?,
        Some(waits) => {
            let fetched = files.data.fetch_vectored_at(bufs, offset)?;
            if fetched.waited {
                waits.store(true, Ordering::Relaxed);
            }
            fetched.bytes
        }
    };
    for buf in bufs {
        let here = got.min(buf.len());
        buf[here..].fill(0);
        got -= here;
    }
    Ok(Source::Disk)
}

/// The first page that does not match its checksum, and where it came from; `None` if all match.
type Mismatch = Option<(Source, u64)>;

/// Reads by `read`. If pages from memory do not match their checksums, forgets them, and reads the disk.
fn read_with_disk_as_fallback(
    files: &ObjectFiles,
    at: ReadRange,
    mut read: impl FnMut(ReadRange) -> Result<Mismatch, StoreError>,
) -> Result<(), StoreError> {
    let is_believed = files.recent.as_ref().is_some_and(ReplicaPages::is_believed);
    let is_wrong = |mismatch: &(Source, u64)| !(mismatch.0 == Source::Memory && is_believed);
    let page = match read(at)?.filter(is_wrong) {
        None => return Ok(()),
        Some((Source::Disk, page)) => page,
        Some((Source::Memory, _)) => {
            files.forget_recent_pages(at.first_page(), at.pages() as u64);
            match read(ReadRange { from_disk: true, ..at })?.filter(is_wrong) {
                None => return Ok(()),
                Some((_, page)) => page,
            }
        }
    };
    Err(StoreError::Checksum { replica: at.replica, page })
}

/// Reads a range into `buf`, which has the same length.
pub(crate) fn read_into(files: &ObjectFiles, at: ReadRange, sums: &[Crc32c], buf: &mut [u8]) -> Result<(), StoreError> {
    let read = read_with_disk_as_fallback(files, at, |at| read_into_once(files, at, sums, buf));
    read.inspect_err(|_| buf.fill(0))
}

fn read_into_once(files: &ObjectFiles, at: ReadRange, sums: &[Crc32c], buf: &mut [u8]) -> Result<Mismatch, StoreError> {
    let (before, after) = at.edges();
    let (mut head, mut tail) = ([0; PAGE_SIZE], [0; PAGE_SIZE]);
    let (head, tail) = (&mut head[..before], &mut tail[..after]);
    let source = {
        let mut bufs = [IoSliceMut::new(head), IoSliceMut::new(buf), IoSliceMut::new(tail)];
        fill(files, at, &mut bufs, at.offset - before as u64)?
    };
    let mut rest: &[u8] = buf;
    let (first, last) = (at.first_page(), at.first_page() + at.pages() as u64 - 1);
    for (page, &sum) in (first..=last).zip(sums) {
        let head: &[u8] = if page == first { head } else { &[] };
        let tail: &[u8] = if page == last { tail } else { &[] };
        let (part, next) = rest.split_at(rest.len().min(PAGE_SIZE - head.len()));
        let found = if head.is_empty() && tail.is_empty() { Crc32c::of(part) } else { sum_of([head, part, tail]) };
        if found != sum && at.check {
            return Ok(Some((source, page)));
        }
        rest = next;
    }
    Ok(None)
}

/// Reads a range into `out` in the format of XRootD's pgread: each page's bytes follow their CRC32C, big-endian. `out`
/// has the length [`framed_len`].
pub(crate) fn read_framed(
    files: &ObjectFiles,
    at: ReadRange,
    sums: &[Crc32c],
    out: &mut [u8],
) -> Result<(), StoreError> {
    read_with_disk_as_fallback(files, at, |at| read_framed_once(files, at, sums, out))
}

fn read_framed_once(
    files: &ObjectFiles,
    at: ReadRange,
    sums: &[Crc32c],
    out: &mut [u8],
) -> Result<Mismatch, StoreError> {
    let (before, after) = at.edges();
    let (mut head, mut tail) = ([0; PAGE_SIZE], [0; PAGE_SIZE]);
    let (head, tail) = (&mut head[..before], &mut tail[..after]);
    let source = {
        let mut bufs = Vec::with_capacity(at.pages() + 2);
        bufs.push(IoSliceMut::new(head));
        let first = (at.len).min(PAGE_SIZE - before);
        let (first_frame, frames) = out.split_at_mut(4 + first);
        bufs.push(IoSliceMut::new(&mut first_frame[4..]));
        for frame in frames.chunks_mut(4 + PAGE_SIZE) {
            bufs.push(IoSliceMut::new(&mut frame[4..]));
        }
        bufs.push(IoSliceMut::new(tail));
        fill(files, at, &mut bufs, at.offset - before as u64)?
    };
    let (first, last) = (at.first_page(), at.first_page() + at.pages() as u64 - 1);
    let mut rest: &mut [u8] = out;
    for (page, &sum) in (first..=last).zip(sums) {
        let head: &[u8] = if page == first { head } else { &[] };
        let tail: &[u8] = if page == last { tail } else { &[] };
        let cut = rest.len().min(4 + PAGE_SIZE - head.len());
        let (frame, next) = std::mem::take(&mut rest).split_at_mut(cut);
        let (crc, part) = frame.split_at_mut(4);
        let of_part = Crc32c::of(part);
        let found = if head.is_empty() && tail.is_empty() { of_part } else { sum_of([head, part, tail]) };
        if found != sum && at.check {
            return Ok(Some((source, page)));
        }
        crc.copy_from_slice(&of_part.0.to_be_bytes());
        rest = next;
    }
    Ok(None)
}

/// Bytes that [`read_framed`] returns for `len` bytes at `offset`.
pub(crate) fn framed_len(offset: u64, len: usize) -> usize {
    let pages = pages_of(offset + len as u64) - offset / PAGE;
    if len == 0 { 0 } else { len + 4 * index(pages) }
}
