//! The lease of a committer's place, as decisions without a clock and without a connection.
//!
//! The process that has the place changes its row at least once a second. Each change that the database has confirmed extends its lease, counted from
//! the moment at which the change was *sent*. Another process looks at the row, and may take the place when it has not changed for [`Terms::silence`],
//! counted from the moment at which the answer that first showed this state *arrived*. So between the two counts lies the change itself, whatever the
//! network does: within [`Terms::drift_ppm`], the lease is over before the silence is.
//!
//! The row may change between the last look and the attempt to take the place. So the attempt names the state that was seen, and changes nothing if the
//! row has another one.

use std::time::{Duration, Instant};

/// How long a process without a lease goes on waiting for the database, if others want the place. Its disk servers have lost their leases by then.
const WITHOUT_LEASE_MAX: Duration = Duration::from_secs(15);

/// How long a lease and the silence before a take-over are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Terms {
    /// The length of a lease, from the sending of a change.
    pub(crate) lease: Duration,
    /// How long a row must not have changed before another process takes the place.
    pub(crate) silence: Duration,
    /// Two answers further apart than this prove nothing about the time between them. After an outage of the database, the process that has the place
    /// gets the whole silence again to return.
    pub(crate) gap: Duration,
    /// The bound on how much faster or slower than true time any clock runs, in millionths.
    pub(crate) drift_ppm: u32,
}

impl Terms {
    /// What all managers use.
    pub(crate) const DEFAULT: Self = Self {
        lease: Duration::from_secs(4),
        silence: Duration::from_secs(5),
        gap: Duration::from_secs(2),
        drift_ppm: 10_000,
    };
}

/// Whether a process may act as the one that has the place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlaceLease {
    /// It may: no other process can have the place yet.
    Held {
        /// For so long, if the database confirms nothing more.
        left: Duration,
    },
    /// It may not: another process may have taken the place.
    Lapsed {
        /// Since so long.
        lasted: Duration,
    },
}

impl PlaceLease {
    /// Whether it is held.
    #[must_use]
    pub fn is_held(self) -> bool {
        matches!(self, Self::Held { .. })
    }

    /// For how long it has lapsed, if that is so long that the process should let others have the place.
    #[must_use]
    pub fn is_over(self) -> Option<Duration> {
        match self {
            Self::Lapsed { lasted } if lasted >= WITHOUT_LEASE_MAX => Some(lasted),
            _ => None,
        }
    }
}

/// The lease of the process that has the place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnLease {
    terms: Terms,
    until: Instant,
    /// The place was given up or lost.
    is_over: bool,
}

impl OwnLease {
    /// The place was taken, by a change that was sent at `sent`.
    pub(crate) fn new(terms: Terms, sent: Instant) -> Self {
        Self { terms, until: sent + terms.lease, is_over: false }
    }

    /// The database has confirmed a change of the row that was sent at `sent`.
    pub(crate) fn confirmed(&mut self, sent: Instant) {
        if !self.is_over {
            self.until = self.until.max(sent + self.terms.lease);
        }
    }

    /// The place is given up, or lost.
    pub(crate) fn end(&mut self, now: Instant) {
        self.until = self.until.min(now);
        self.is_over = true;
    }

    /// What holds now.
    pub(crate) fn at(&self, now: Instant) -> PlaceLease {
        match self.until.checked_duration_since(now) {
            Some(left) if left > Duration::ZERO => PlaceLease::Held { left },
            _ => PlaceLease::Lapsed { lasted: now.saturating_duration_since(self.until) },
        }
    }
}

/// What a row of `weir.committers` says about who has the place. Each change of the place makes it another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PlaceRow {
    /// The process; empty if it has given the place up.
    pub(crate) process: Vec<u8>,
    /// The fence of its connection.
    pub(crate) fence: i64,
    /// Its last batch.
    pub(crate) batch: i64,
    /// Its last sign of life without a batch.
    pub(crate) beat: i64,
}

/// The state in which a place was found free: [`crate::Postgres::open_if_free`] takes it only if it still has this state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vacancy(pub(crate) Option<PlaceRow>);

/// What a look at the row means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Judged {
    /// A process has the place, or may have it.
    Held {
        /// The row has not changed for so long.
        quiet: Duration,
    },
    /// Nobody has it.
    Free(Vacancy),
    /// The database has lost at least so many batches.
    Lost(i64),
}

/// What a process that wants the place has seen of it.
#[derive(Clone, Debug)]
pub(crate) struct Silence {
    terms: Terms,
    seen: Option<Seen>,
    /// The highest batch that was seen.
    batch: Option<i64>,
}

#[derive(Clone, Debug)]
struct Seen {
    row: PlaceRow,
    /// When the first answer with this row arrived.
    since: Instant,
    /// When the last one did.
    last: Instant,
}

impl Silence {
    pub(crate) fn new(terms: Terms) -> Self {
        Self { terms, seen: None, batch: None }
    }

    /// The answer to a look arrived at `arrived`; `row` is what it showed. `None`: there is no row.
    pub(crate) fn answered(&mut self, arrived: Instant, row: Option<PlaceRow>) -> Judged {
        let lost = match (self.batch, &row) {
            (Some(known), Some(row)) => known - row.batch,
            (Some(known), None) => known.max(1),
            (None, _) => 0,
        };
        if lost > 0 {
            self.seen = None;
            return Judged::Lost(lost);
        }
        let Some(row) = row else { return Judged::Free(Vacancy(None)) };
        self.batch = Some(row.batch);
        if row.process.is_empty() {
            self.seen = None;
            return Judged::Free(Vacancy(Some(row)));
        }
        let same = self
            .seen
            .take()
            .filter(|seen| seen.row == row && arrived.saturating_duration_since(seen.last) <= self.terms.gap);
        let since = same.map_or(arrived, |seen| seen.since);
        self.seen = Some(Seen { row: row.clone(), since, last: arrived });
        let quiet = arrived.saturating_duration_since(since);
        if quiet >= self.terms.silence { Judged::Free(Vacancy(Some(row))) } else { Judged::Held { quiet } }
    }

    /// A look was not answered, or the next one goes to another connection. The silence begins again. The highest batch is still known.
    pub(crate) fn unanswered(&mut self) {
        self.seen = None;
    }

    /// The database is closed to managers. A person decides in what state it opens again, and what was seen before must not close it then.
    pub(crate) fn closed(&mut self) {
        *self = Self::new(self.terms);
    }
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use super::*;

    fn row(batch: i64, beat: i64) -> Option<PlaceRow> {
        Some(PlaceRow { process: vec![7], fence: 3, batch, beat })
    }

    fn is_free(judged: &Judged) -> bool {
        matches!(judged, Judged::Free(_))
    }

    /// The process with the slowest clock, and one that watches it with the fastest.
    #[test]
    fn a_lease_is_over_before_the_silence_is() {
        let Terms { lease, silence, drift_ppm, .. } = Terms::DEFAULT;
        let drift = f64::from(drift_ppm) / 1e6;
        assert!(lease.as_secs_f64() / (1.0 - drift) < silence.as_secs_f64() / (1.0 + drift));
    }

    #[test]
    fn a_lease_counts_from_the_sending_and_does_not_come_back_after_its_end() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut lease = OwnLease::new(Terms::DEFAULT, at(0));
        assert_eq!(lease.at(at(1000)), PlaceLease::Held { left: Duration::from_secs(3) });
        lease.confirmed(at(3000));
        lease.confirmed(at(2000));
        assert!(lease.at(at(6999)).is_held());
        assert_eq!(lease.at(at(7000)), PlaceLease::Lapsed { lasted: Duration::ZERO });
        assert_eq!(lease.at(at(9000)), PlaceLease::Lapsed { lasted: Duration::from_secs(2) });
        lease.confirmed(at(9000));
        assert!(lease.at(at(9001)).is_held(), "nobody has taken the place");
        assert_eq!(lease.at(at(27_999)).is_over(), None);
        assert_eq!(lease.at(at(28_000)).is_over(), Some(Duration::from_secs(15)));
        lease.end(at(9500));
        lease.confirmed(at(9600));
        assert_eq!(lease.at(at(9700)), PlaceLease::Lapsed { lasted: Duration::from_millis(200) });
    }

    #[test]
    fn silence_must_be_observed() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut silence = Silence::new(Terms::DEFAULT);
        for ms in (0..5000).step_by(500) {
            assert_eq!(silence.answered(at(ms), row(4, 1)), Judged::Held { quiet: Duration::from_millis(ms) });
        }
        assert_eq!(silence.answered(at(5000), row(4, 1)), Judged::Free(Vacancy(row(4, 1))));
        // A sign of life.
        assert!(!is_free(&silence.answered(at(5500), row(4, 2))));
        // The database is away. The process that has the place gets the time to return.
        silence.unanswered();
        assert!(!is_free(&silence.answered(at(20_000), row(4, 2))));
        assert!(!is_free(&silence.answered(at(24_000), row(4, 2))), "nobody has looked for 4 s");
        for ms in (24_500..29_000).step_by(500) {
            assert!(!is_free(&silence.answered(at(ms), row(4, 2))), "{ms}");
        }
        assert!(is_free(&silence.answered(at(29_000), row(4, 2))));
    }

    #[test]
    fn a_place_that_was_given_up_is_free_at_once_and_so_is_one_that_nobody_has_had() {
        let now = Instant::now();
        let mut silence = Silence::new(Terms::DEFAULT);
        assert_eq!(silence.answered(now, None), Judged::Free(Vacancy(None)));
        let given_up = PlaceRow { process: Vec::new(), fence: 3, batch: 9, beat: 0 };
        assert_eq!(silence.answered(now, Some(given_up.clone())), Judged::Free(Vacancy(Some(given_up))));
        assert_eq!(silence.answered(now, row(8, 0)), Judged::Lost(1));
        assert_eq!(silence.answered(now, None), Judged::Lost(9), "it is remembered");
        // A beat or a fence that a failover has lost is no change that was lost.
        let mut silence = Silence::new(Terms::DEFAULT);
        assert!(!is_free(&silence.answered(now, row(8, 5))));
        assert!(!is_free(&silence.answered(now, row(8, 4))));
    }
}
