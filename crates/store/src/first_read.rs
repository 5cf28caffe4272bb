//! The first read of a large replica, from the beginning towards the end: past the page cache.
//!
//! What is read once, as most files of a transfer or a staging are, gains nothing from the page cache, and to fill the
//! cache's memory takes more processor time than all else together. So such a reader gets its bytes from blocks that are
//! read past the cache, ahead of it, into memory that exists already ([`crate::RecentPages`]).
//!
//! # The rule
//! - The reader's owner finds that it goes through the replica in order and has waited for the disk, and begins the first
//!   read ([`Reader::begin_first_read`]). It ends it when the reader goes elsewhere.
//! - It is the first such read of this replica since the store was opened, or since the memory was emptied
//!   ([`crate::RecentPages::forget_all`]), as far as the store remembers ([`REMEMBERED_MAX`]). What is read again, and is
//!   not in this memory any more, goes through the page cache and stays there for later readers.
//! - The replica has no writer, and is long enough ([`crate::StoreConfig::first_read_min`]).
//! - There is memory for its blocks. Without it, the reader reads through the page cache.
//!
//! Bytes are verified as all others: when they are given to the reader.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use types::ReplicaId;

use crate::Reader;
use crate::object::ObjectFiles;
use crate::reader::View;
use crate::recent::BLOCK;
use crate::recent::first_reads::{Fetched, FirstReadRoom, KEPT};
use crate::sums::pages_of;
use crate::writer::index;

/// How many replicas are remembered as read.
const REMEMBERED_MAX: usize = 16 << 10;

/// The replicas that had a first read lately.
#[derive(Default)]
pub(crate) struct ReadBefore {
    known: HashSet<ReplicaId>,
    order: VecDeque<ReplicaId>,
    /// How often the memory had been emptied.
    emptied: u64,
}

impl ReadBefore {
    /// Returns whether it is new, and remembers it. `emptied`: how often the memory was emptied. After that, all are new:
    /// whoever empties it wants the next reads to be as the first ones.
    fn add(&mut self, replica: ReplicaId, emptied: u64) -> bool {
        if self.emptied != emptied {
            *self = Self { emptied, ..Self::default() };
        }
        if !self.known.insert(replica) {
            return false;
        }
        self.order.push_back(replica);
        if self.order.len() > REMEMBERED_MAX {
            self.order.pop_front().map(|oldest| self.known.remove(&oldest));
        }
        true
    }
}

/// The state of a reader in this regard.
#[derive(Default)]
pub(crate) struct FirstRead {
    is_on: AtomicBool,
    /// The number of the block behind the last one that was fetched.
    fetched_to: AtomicU64,
    /// The number of the block that is being read.
    read_to: AtomicU64,
    room: Mutex<Option<FirstReadRoom>>,
}

impl Reader {
    /// Bytes that are fetched at a time.
    pub const FETCH_BYTES: u64 = BLOCK;

    /// Reads past the page cache from `offset` on, if the rule of a first read allows it. Returns whether it does.
    #[must_use]
    pub fn begin_first_read(&self, offset: u64) -> bool {
        let Ok(View::Still { files, len, .. }) = self.view(&mut self.replica.lock()) else { return false };
        let Some(recent) = files.recent.as_ref().filter(|_| len >= self.inner.config.first_read_min) else {
            return false;
        };
        let mut room = self.first_read.room.lock();
        if room.is_some() || !self.inner.read_before.lock().add(self.replica(), recent.emptied()) {
            return room.is_some();
        }
        *room = recent.begin_first_read();
        self.first_read.fetched_to.store(offset / BLOCK, Ordering::Relaxed);
        self.first_read.read_to.store(offset / BLOCK, Ordering::Relaxed);
        self.first_read.is_on.store(room.is_some(), Ordering::Relaxed);
        room.is_some()
    }

    /// The reader has come to `offset`, in order.
    pub fn go_on_first_read(&self, offset: u64) {
        self.first_read.fetched_to.fetch_max(offset / BLOCK, Ordering::Relaxed);
        self.first_read.read_to.fetch_max(offset / BLOCK, Ordering::Relaxed);
    }

    /// Reads through the page cache again. What was fetched stays until the memory is needed.
    pub fn end_first_read(&self) {
        let mut room = self.first_read.room.lock();
        // First this, so that no other thread fetches a block whose place nobody keeps.
        self.first_read.is_on.store(false, Ordering::Relaxed);
        *room = None;
    }

    /// Fetches the block of [`Reader::FETCH_BYTES`] at `offset`, if a first read is on and has come near it. May wait for
    /// the disk.
    pub fn fetch_ahead(&self, offset: u64) {
        let view = self.view(&mut self.replica.lock());
        if let Ok(View::Still { files, len, .. }) = view {
            self.fetch(&files, offset / BLOCK, len);
        }
    }

    /// Whether a first read is on.
    #[must_use]
    pub fn is_first_read(&self) -> bool {
        self.first_read.is_on.load(Ordering::Relaxed)
    }

    /// Fetches the blocks of a range, which is about to be read.
    pub(crate) fn fetch_for(&self, view: &View, offset: u64, len: usize) {
        if !self.is_first_read() || self.from_disk {
            return;
        }
        let View::Still { files, len: end, .. } = view else { return };
        self.first_read.read_to.fetch_max(offset / BLOCK, Ordering::Relaxed);
        for number in offset / BLOCK..(offset + len as u64).div_ceil(BLOCK) {
            self.fetch(files, number, *end);
        }
    }

    fn fetch(&self, files: &ObjectFiles, number: u64, end: u64) {
        let Some(recent) = files.recent.as_ref() else { return };
        let first_read = &self.first_read;
        let reached = first_read.fetched_to.load(Ordering::Relaxed);
        // A read elsewhere takes no block for a few bytes.
        let is_near = number <= reached + KEPT as u64 && number + KEPT as u64 >= reached;
        let start = number.saturating_mul(BLOCK);
        if !is_near || start >= end {
            return;
        }
        let here = (end - start).min(BLOCK);
        let fetched = recent.fetch(
            (number, first_read.read_to.load(Ordering::Relaxed)),
            pages_of(here),
            || self.is_first_read(),
            |bytes| {
                let read = self.inner.objects.direct(files).and_then(|file| Ok(file.read_at(bytes, start)?));
                let Ok(got) = read else { return false };
                bytes[got..].fill(0);
                got >= index(here)
            },
        );
        match fetched {
            Fetched::Here => drop(first_read.fetched_to.fetch_max(number + 1, Ordering::Relaxed)),
            Fetched::Not => {}
            // The reader meets the error, or what is missing, when it reads the file. The next blocks may be like that, too.
            Fetched::Failed => self.end_first_read(),
        }
    }
}
