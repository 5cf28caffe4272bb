//! What the server counts while it works, for monitoring: requests and how long they took by kind, errors by number,
//! connections that were ended by reason.
//!
//! Counting must cost nothing that shows beside a request of some microseconds: relaxed additions, on one of several stripes that
//! the connections are spread over, so that processors do not take the same cache line from each other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use types::Histogram;
use wire::{ErrorNumber, RequestKind};

use crate::to_wire::Refusal;

/// Copies of the counters that connections are spread over.
const STRIPES: usize = 16;
/// The known kinds of requests, and one for all others.
const KINDS: usize = RequestKind::ALL.len() + 1;
/// The protocol's error numbers begin here.
const ERRORS_FROM: u32 = 3000;
/// Error numbers that are told apart; the last stands for all beyond.
const ERRORS: usize = 64;

/// The counters.
pub(crate) struct Meter {
    stripes: Box<[Stripe]>,
    errors: [AtomicU64; ERRORS],
    waits: AtomicU64,
    redirects: AtomicU64,
    ended: [AtomicU64; Ended::ALL.len()],
}

/// 128 bytes: processors fetch two lines of 64 at a time.
#[repr(align(128))]
struct Stripe {
    kinds: [Kind; KINDS],
}

#[derive(Default)]
struct Kind {
    counts: [AtomicU64; Histogram::BUCKETS],
    micros: AtomicU64,
}

/// A request that is being worked on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Began {
    kind: usize,
    stripe: usize,
    at: Instant,
}

/// Why the server ended a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// The client took no answers.
    SlowReader,
    /// A request stopped arriving, or came too slowly.
    SlowSender,
    /// No login in time.
    NoLogin,
    /// Bytes from which no next request could be found.
    BadInput,
    /// It was idle, and others needed its place.
    MadeRoom,
    /// It was one more than its machine may have.
    Refused,
}

impl Ended {
    const ALL: [Ended; 6] =
        [Ended::SlowReader, Ended::SlowSender, Ended::NoLogin, Ended::BadInput, Ended::MadeRoom, Ended::Refused];

    fn name(self) -> &'static str {
        match self {
            Ended::SlowReader => "slow_reader",
            Ended::SlowSender => "slow_sender",
            Ended::NoLogin => "no_login",
            Ended::BadInput => "bad_input",
            Ended::MadeRoom => "made_room",
            Ended::Refused => "refused",
        }
    }
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self {
            stripes: (0..STRIPES).map(|_| Stripe { kinds: std::array::from_fn(|_| Kind::default()) }).collect(),
            errors: std::array::from_fn(|_| AtomicU64::new(0)),
            waits: AtomicU64::new(0),
            redirects: AtomicU64::new(0),
            ended: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// A request of `kind` has come on the connection number `connection`.
    pub(crate) fn begin(&self, kind: RequestKind, connection: u64) -> Began {
        let place = match kind {
            // Its code is far from the others, its place behind them.
            RequestKind::Batch => RequestKind::ALL.len() - 1,
            _ => usize::from(kind.code()).wrapping_sub(usize::from(RequestKind::ALL[0].code())),
        };
        let known = RequestKind::ALL.get(place).is_some_and(|known| *known == kind);
        let kind = if known { place } else { KINDS - 1 };
        Began { kind, stripe: usize::try_from(connection % STRIPES as u64).unwrap_or(0), at: Instant::now() }
    }

    /// It is answered.
    pub(crate) fn done(&self, began: Began) {
        let micros = u64::try_from(began.at.elapsed().as_micros()).unwrap_or(u64::MAX);
        let kind = &self.stripes[began.stripe].kinds[began.kind];
        kind.counts[Histogram::bucket_of(micros)].fetch_add(1, Ordering::Relaxed);
        kind.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// An answer says why not.
    pub(crate) fn refused(&self, refusal: &Refusal) {
        match refusal {
            Refusal::Error { number, .. } => {
                let place = number.0.wrapping_sub(ERRORS_FROM) as usize;
                self.errors[place.min(ERRORS - 1)].fetch_add(1, Ordering::Relaxed);
            }
            Refusal::Wait { .. } => {
                self.waits.fetch_add(1, Ordering::Relaxed);
            }
            Refusal::Redirect(_) => {
                self.redirects.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// A connection was ended by the server.
    pub(crate) fn ended(&self, why: Ended) {
        self.ended[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How long requests took, in microseconds, by the name of their kind; those of which there were some.
    pub(crate) fn requests(&self) -> Vec<(&'static str, Histogram)> {
        let names = RequestKind::ALL.iter().map(|kind| kind.name()).chain(std::iter::once("unknown"));
        let sums = names.enumerate().map(|(place, name)| {
            let mut all = Histogram::default();
            for stripe in &self.stripes {
                let kind = &stripe.kinds[place];
                for (bucket, count) in kind.counts.iter().enumerate() {
                    all.add_counted(bucket, count.load(Ordering::Relaxed), 0);
                }
                all.add_counted(0, 0, kind.micros.load(Ordering::Relaxed));
            }
            (name, all)
        });
        sums.filter(|(_, histogram)| histogram.count() > 0).collect()
    }

    /// Answers that said why not, by the error's number; those of which there were some.
    pub(crate) fn errors(&self) -> Vec<(ErrorNumber, u64)> {
        let counted = (ERRORS_FROM..).zip(&self.errors);
        let counted = counted.map(|(number, count)| (ErrorNumber(number), count.load(Ordering::Relaxed)));
        counted.filter(|(_, count)| *count > 0).collect()
    }

    /// Answers that asked to come again later.
    pub(crate) fn redirects(&self) -> u64 {
        self.redirects.load(Ordering::Relaxed)
    }

    /// Answers that asked to come again later.
    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Connections that the server has ended, by reason.
    pub(crate) fn endings(&self) -> Vec<(&'static str, u64)> {
        Ended::ALL.iter().map(|why| (why.name(), self.ended[*why as usize].load(Ordering::Relaxed))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_on_any_connection_is_summed_by_kind() {
        let meter = Meter::new();
        for connection in 0..100 {
            meter.done(meter.begin(RequestKind::Stat, connection));
        }
        meter.done(meter.begin(RequestKind::Unknown(2999), 7));
        meter.done(meter.begin(RequestKind::Unknown(60_000), 7));
        let counted: Vec<_> = meter.requests().iter().map(|(name, all)| (*name, all.count())).collect();
        assert_eq!(counted, [("stat", 100), ("unknown", 2)]);
    }

    #[test]
    fn errors_are_told_apart_by_number_and_waits_are_none() {
        let meter = Meter::new();
        meter.refused(&Refusal::new(ErrorNumber::NOT_FOUND, "no"));
        meter.refused(&Refusal::new(ErrorNumber::NOT_FOUND, "no"));
        meter.refused(&Refusal::new(ErrorNumber(99_999), "no"));
        meter.refused(&Refusal::Wait { seconds: 1, text: "later".into() });
        assert_eq!(meter.errors(), [(ErrorNumber::NOT_FOUND, 2), (ErrorNumber(ERRORS_FROM + 63), 1)]);
        assert_eq!(meter.waits(), 1);
        meter.ended(Ended::MadeRoom);
        assert_eq!(meter.endings().into_iter().filter(|(_, n)| *n > 0).collect::<Vec<_>>(), [("made_room", 1)]);
    }
}
