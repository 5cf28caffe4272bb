//! Fetching ahead of a reader that goes through a file for the first time ([`Reader::begin_first_read`]).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use store::Reader;

use super::ReadAhead;

/// How far ahead of the last request blocks are fetched: two requests of the stock client's copies.
const AHEAD_BYTES: u64 = 16 << 20;

/// The first read of one open file.
#[derive(Default)]
pub(super) struct FirstReadAhead {
    is_on: AtomicBool,
    /// Whether it has waited for the disk since it began to read in order. The kernel reads ahead meanwhile, so it may not
    /// wait again.
    has_waited: AtomicBool,
    /// Where the blocks end that a thread has been asked to fetch.
    end: AtomicU64,
}

impl FirstReadAhead {
    /// A request has been answered; `range` if it was for a single one. `goes_on`: it began where the one before had ended.
    /// Returns whether a first read is on. Then nothing else is read ahead.
    pub(super) fn was_read(
        &self,
        node: &ReadAhead,
        reader: &Arc<Reader>,
        range: Option<&Range<u64>>,
        goes_on: bool,
        waited: bool,
    ) -> bool {
        let is_on = self.is_on.load(Ordering::Relaxed);
        if waited || !goes_on {
            self.has_waited.store(waited, Ordering::Relaxed);
        }
        let Some(range) = range.filter(|_| goes_on && (is_on || self.has_waited.load(Ordering::Relaxed))) else {
            if is_on {
                self.is_on.store(false, Ordering::Relaxed);
                reader.end_first_read();
            }
            return false;
        };
        if is_on {
            reader.go_on_first_read(range.end);
        } else {
            if !node.is_on.load(Ordering::Relaxed) || !reader.begin_first_read(range.end) {
                self.has_waited.store(false, Ordering::Relaxed);
                return false;
            }
            self.end.store(range.end, Ordering::Relaxed);
            self.is_on.store(true, Ordering::Relaxed);
        }
        self.fetch(node, reader, range.end);
        true
    }

    /// Has the blocks after `offset` fetched that no thread was asked for.
    fn fetch(&self, node: &ReadAhead, reader: &Arc<Reader>, offset: u64) {
        const BLOCK: u64 = Reader::FETCH_BYTES;
        let end = offset.saturating_add(AHEAD_BYTES).min(reader.len()).next_multiple_of(BLOCK);
        let begun = self.end.fetch_max(end, Ordering::Relaxed);
        for block in begun.max(offset) / BLOCK..end / BLOCK {
            // A file that is closed meanwhile is not read ahead.
            let reader = Arc::downgrade(reader);
            let fetch = move || {
                if let Some(reader) = reader.upgrade() {
                    reader.fetch_ahead(block * BLOCK);
                }
            };
            // If the threads have too much to do, the reader fetches the block when it comes there.
            let _ = node.workers.submit(Box::new(fetch));
        }
    }
}
