//! What a committer makes of the database's answers about its row of `weir.committers`, as decisions without a connection. [`crate::place::Place`] asks
//! the questions of a real database; the simulated one (`simulated`) has the same decisions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::cache::Seen;
use crate::place_lease::{OwnLease, Terms};

/// How often the row changes at least.
pub(crate) const BEAT_EVERY: Duration = Duration::from_secs(1);

/// A process, as its row names it.
pub(crate) type Process = [u8; 16];

/// What the database knows of a batch whose answer was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LastBatch {
    /// It was committed.
    Committed,
    /// It was not, and cannot be any more.
    NotCommitted,
}

/// Why the row does not let this process commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotOurs {
    /// Another process commits in this one's place.
    TakenOver,
    /// The database has lost at least so many acknowledged batches.
    Lost(i64),
}

/// The place that this process has taken.
pub(crate) struct OwnPlace {
    /// This process, as a random number.
    pub(crate) process: Process,
    /// The fence of the present connection.
    fence: i64,
    /// The last batch that is known to be committed.
    batch: i64,
    /// Extended by each confirmed change of the row.
    lease: Arc<Mutex<OwnLease>>,
    /// When the last change of the row was sent.
    sent: Instant,
}

impl OwnPlace {
    /// The place was taken by a change that was sent at `sent`, and the row has this fence and this batch since.
    pub(crate) fn taken(process: Process, (fence, batch): (i64, i64), sent: Instant) -> Self {
        let lease = Arc::new(Mutex::new(OwnLease::new(Terms::DEFAULT, sent)));
        Self { process, fence, batch, lease, sent }
    }

    /// What readers see of this committer in its database.
    pub(crate) fn at(&self) -> Seen {
        Seen { batch: self.batch, fence: self.fence }
    }

    pub(crate) fn fence(&self) -> i64 {
        self.fence
    }

    pub(crate) fn batch(&self) -> i64 {
        self.batch
    }

    /// The lease, for those who ask about it.
    pub(crate) fn lease(&self) -> &Arc<Mutex<OwnLease>> {
        &self.lease
    }

    /// Whether nobody else can have committed anything up to now.
    pub(crate) fn has_lease(&self, now: Instant) -> bool {
        self.lease.lock().at(now).is_held()
    }

    /// The database has confirmed a change of the row that was sent at `sent`.
    pub(crate) fn confirmed(&mut self, sent: Instant) {
        self.sent = self.sent.max(sent);
        self.lease.lock().confirmed(sent);
    }

    /// The database has confirmed the next batch, which was sent at `sent`. Returns its number.
    pub(crate) fn committed(&mut self, sent: Instant) -> i64 {
        self.batch += 1;
        self.confirmed(sent);
        self.batch
    }

    /// This process has raised the fence of its row for a new connection, by a change that was sent at `sent`. The row has this fence and this batch
    /// since. If the answer to the batch after the last known one was lost, the result says whether it was committed.
    ///
    /// # Errors
    /// This committer must stop.
    pub(crate) fn returned(&mut self, sent: Instant, (fence, batch): (i64, i64)) -> Result<LastBatch, NotOurs> {
        if batch < self.batch {
            return Err(NotOurs::Lost(self.batch - batch));
        }
        let last = if batch > self.batch { LastBatch::Committed } else { LastBatch::NotCommitted };
        (self.fence, self.batch) = (fence, batch);
        self.confirmed(sent);
        Ok(last)
    }

    /// When the last change of the row that the database has confirmed was sent.
    pub(crate) fn last_sent(&self) -> Instant {
        self.sent
    }

    /// Whether the row must change now, so that others see that this process lives.
    pub(crate) fn is_beat_due(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.sent) >= BEAT_EVERY
    }

    /// Why the row does not let this process commit: what it says now, `(fence, batch, process)`. `None`: there is no row.
    pub(crate) fn why_not(&self, row: Option<(i64, i64, &[u8])>) -> NotOurs {
        let Some((fence, batch, process)) = row else { return NotOurs::Lost(self.batch.max(1)) };
        if batch < self.batch {
            return NotOurs::Lost(self.batch - batch);
        }
        // The row is older than this process: the database does not know that it has started.
        if process != self.process && fence <= self.fence {
            return NotOurs::Lost(self.batch.max(1));
        }
        NotOurs::TakenOver
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_tells_what_has_happened() {
        let (us, other, start) = ([1; 16], [2; 16], Instant::now());
        let mut place = OwnPlace::taken(us, (3, 7), start);
        assert_eq!(place.committed(start), 8);
        assert_eq!(place.returned(start, (4, 8)), Ok(LastBatch::NotCommitted));
        assert_eq!(place.returned(start, (5, 9)), Ok(LastBatch::Committed));
        assert_eq!((place.fence(), place.batch()), (5, 9));
        assert_eq!(place.returned(start, (6, 8)), Err(NotOurs::Lost(1)), "an acknowledged batch is gone");
        assert_eq!(place.why_not(Some((9, 9, &other))), NotOurs::TakenOver);
        assert_eq!(place.why_not(Some((9, 7, &other))), NotOurs::Lost(2));
        assert_eq!(place.why_not(Some((5, 9, &other))), NotOurs::Lost(9), "the row is from before this process");
        assert_eq!(place.why_not(Some((6, 9, &us))), NotOurs::TakenOver, "a later connection of this process");
        assert_eq!(place.why_not(None), NotOurs::Lost(9));
    }

    #[test]
    fn the_row_changes_every_second() {
        let start = Instant::now();
        let mut place = OwnPlace::taken([1; 16], (1, 0), start);
        let at = |ms| start + Duration::from_millis(ms);
        assert!(!place.is_beat_due(at(999)) && place.is_beat_due(at(1000)));
        place.confirmed(at(900));
        assert!(!place.is_beat_due(at(1899)) && place.is_beat_due(at(1900)));
    }
}
