//! A file's bytes: sparse and cheap to copy.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

const PAGE_BYTES: usize = 4096;
const SECTOR_BYTES: usize = 512;
/// Bytes in a page.
pub(super) const PAGE: u64 = PAGE_BYTES as u64;
/// Bytes that a device writes atomically.
pub(super) const SECTOR: u64 = SECTOR_BYTES as u64;

type Page = [u8; PAGE_BYTES];

static ZEROS: LazyLock<Arc<Page>> = LazyLock::new(|| Arc::new([0; PAGE_BYTES]));

/// A file's bytes. Absent pages read as zeros and take no space.
#[derive(Clone, Default)]
pub(super) struct Image {
    pages: BTreeMap<u64, Arc<Page>>,
    len: u64,
}

fn index(within: u64) -> usize {
    usize::try_from(within).unwrap_or(usize::MAX)
}

impl Image {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn has_page(&self, page: u64) -> bool {
        self.pages.contains_key(&page)
    }

    pub(super) fn page_count(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Copies the bytes at `offset`; zeros after the end.
    pub(super) fn copy_out(&self, offset: u64, buf: &mut [u8]) {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let within = index(at % PAGE);
            let n = (buf.len() - done).min(PAGE_BYTES - within);
            match self.pages.get(&(at / PAGE)) {
                Some(page) => buf[done..done + n].copy_from_slice(&page[within..within + n]),
                None => buf[done..done + n].fill(0),
            }
            done += n;
        }
    }

    /// Reads like a file: nothing after the end. Returns the number of bytes.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let n = index(self.len.saturating_sub(offset)).min(buf.len());
        self.copy_out(offset, &mut buf[..n]);
        n
    }

    /// Overwrites bytes without changing the length.
    pub(super) fn put(&mut self, offset: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let within = index(at % PAGE);
            let n = (bytes.len() - done).min(PAGE_BYTES - within);
            let piece = &bytes[done..done + n];
            let page = self.pages.entry(at / PAGE).or_insert_with(|| Arc::clone(&ZEROS));
            // Zeros over zeros keep the shared page, so preallocated files cost no memory.
            if page[within..within + n] != *piece {
                Arc::make_mut(page)[within..within + n].copy_from_slice(piece);
            }
            done += n;
        }
    }

    /// Extends the length to `len` if it is shorter.
    pub(super) fn extend(&mut self, len: u64) {
        self.len = self.len.max(len);
    }

    /// The first offset from `offset` on that lies in a written page; `None` if there is none before the end.
    pub(super) fn next_data(&self, offset: u64) -> Option<u64> {
        let (page, _) = self.pages.range(offset / PAGE..).next()?;
        Some((page * PAGE).max(offset)).filter(|at| *at < self.len)
    }

    /// Truncates, or extends with zeros. Returns the number of freed pages.
    pub(super) fn set_len(&mut self, len: u64) -> u64 {
        let before = self.page_count();
        if len < self.len {
            self.pages.split_off(&len.div_ceil(PAGE));
            let within = index(len % PAGE);
            if within != 0
                && let Some(page) = self.pages.get_mut(&(len / PAGE))
            {
                Arc::make_mut(page)[within..].fill(0);
            }
        }
        self.len = len;
        before - self.page_count()
    }

    /// Whether the sector has a nonzero byte inside the file.
    pub(super) fn sector_has_content(&self, sector: u64) -> bool {
        let offset = sector * SECTOR;
        if offset >= self.len {
            return false;
        }
        let mut bytes = [0; SECTOR_BYTES];
        self.copy_out(offset, &mut bytes);
        bytes.iter().any(|b| *b != 0)
    }

    /// Copies one sector from `other`.
    pub(super) fn take_sector(&mut self, other: &Image, sector: u64) {
        let mut bytes = [0; SECTOR_BYTES];
        other.copy_out(sector * SECTOR, &mut bytes);
        self.put(sector * SECTOR, &bytes);
    }

    /// Zeroes one sector.
    pub(super) fn zero_sector(&mut self, sector: u64) {
        self.put(sector * SECTOR, &[0; SECTOR_BYTES]);
    }

    /// Flips the lowest bit of a byte.
    pub(super) fn flip(&mut self, offset: u64) -> bool {
        if offset >= self.len {
            return false;
        }
        let mut byte = [0];
        self.copy_out(offset, &mut byte);
        self.put(offset, &[byte[0] ^ 1]);
        true
    }
}
