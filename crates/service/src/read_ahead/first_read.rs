//! Fetching ahead of a reader that goes through a file for the first time ([`Reader::begin_first_read`]).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use store::Reader;

use super::ReadAhead;

/// So much must have been read in order. A reader of a file's beginning, or of two adjacent parts, reads less.
const IN_ORDER_MIN: u64 = 4 << 20;
/// How far ahead of the last request blocks are fetched: as far as was read in order, and at most two requests of the stock
/// client's copies.
const AHEAD_MAX: u64 = 16 << 20;

/// What is known of one open file.
#[derive(Default)]
pub(super) struct FirstReadAhead {
    /// How many bytes were read in order.
    in_order: AtomicU64,
    /// Whether it has waited for the disk meanwhile. The kernel reads ahead, so it may not wait again.
    has_waited: AtomicBool,
    /// Where the blocks end that a thread has been asked to fetch.
    asked_to: AtomicU64,
}

impl FirstReadAhead {
    /// A request has been answered; `only` if it was for a single range. `goes_on`: it began where the one before had ended.
    /// Returns whether a first read is on. Then nothing else is read ahead.
    pub(super) fn was_read(
        &self,
        node: &ReadAhead,
        reader: &Arc<Reader>,
        only: Option<&Range<u64>>,
        goes_on: bool,
        waited: bool,
    ) -> bool {
        let is_on = reader.is_first_read();
        // Requests over several connections end in any order.
        let is_near = |range: &Range<u64>| {
            let asked_to = self.asked_to.load(Ordering::Relaxed);
            range.start < asked_to && range.start.saturating_add(2 * AHEAD_MAX) >= asked_to
        };
        let Some(range) = only.filter(|range| goes_on || is_on && is_near(range)) else {
            self.in_order.store(only.map_or(0, |range| range.end - range.start), Ordering::Relaxed);
            self.has_waited.store(waited, Ordering::Relaxed);
            if is_on {
                reader.end_first_read();
            }
            return false;
        };
        let len = range.end - range.start;
        let in_order = self.in_order.fetch_add(len, Ordering::Relaxed).saturating_add(len);
        let has_waited = self.has_waited.fetch_or(waited, Ordering::Relaxed) || waited;
        if !is_on && (!has_waited || in_order < IN_ORDER_MIN) {
            return false;
        }
        if !node.is_on.load(Ordering::Relaxed) || range.end >= reader.len() {
            reader.end_first_read();
            return false;
        }
        if is_on {
            reader.go_on_first_read(range.end);
        } else {
            if !reader.begin_first_read(range.end) {
                self.has_waited.store(false, Ordering::Relaxed);
                return false;
            }
            self.asked_to.store(range.end, Ordering::Relaxed);
        }
        self.fetch(node, reader, range.end, in_order.min(AHEAD_MAX));
        true
    }

    /// Has the blocks after `offset` fetched that no thread was asked for.
    fn fetch(&self, node: &ReadAhead, reader: &Arc<Reader>, offset: u64, ahead: u64) {
        const BLOCK: u64 = Reader::FETCH_BYTES;
        let end = offset.saturating_add(ahead).min(reader.len()).next_multiple_of(BLOCK);
        let asked_to = self.asked_to.fetch_max(end, Ordering::Relaxed);
        for block in asked_to.max(offset) / BLOCK..end / BLOCK {
            // A file that is closed meanwhile is not read ahead.
            let reader = Arc::downgrade(reader);
            let fetch = move || {
                if let Some(reader) = reader.upgrade() {
                    reader.fetch_ahead(block * BLOCK);
                }
            };
            // If the threads have too much to do, the reader fetches the block when it comes there.
            let _ = node.fetching.submit(Box::new(fetch));
        }
    }
}
