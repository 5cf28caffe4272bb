//! Counters for monitoring: the number and duration of requests by kind, errors by number, and ended connections by
//! reason.
//!
//! Counting must be cheap beside a request of some microseconds. It uses relaxed additions, in one of several stripes
//! over which the connections are spread. So processors do not compete for cache lines.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use types::Histogram;
use wire::{ErrorNumber, RequestKind};

use crate::to_wire::RequestError;

/// The number of stripes.
const STRIPES: usize = 16;
/// The known kinds of requests, and one for all others.
const KINDS: usize = RequestKind::ALL.len() + 1;
/// The protocol's first error number.
const ERRORS_FROM: u32 = 3000;
/// Error numbers that have their own counter. The last counter includes all higher ones.
const ERRORS: usize = 64;

/// The counters.
pub(crate) struct Meter {
    stripes: Box<[Stripe]>,
    errors: [AtomicU64; ERRORS],
    waits: AtomicU64,
    redirects: AtomicU64,
    ended: [AtomicU64; Ended::ALL.len()],
    signatures: [AtomicU64; SignatureResult::COUNTED.len()],
}

/// Aligned to 128 bytes, because processors fetch two lines of 64 bytes at a time.
#[repr(align(128))]
struct Stripe {
    kinds: [Kind; KINDS],
}

#[derive(Default)]
struct Kind {
    counts: [AtomicU64; Histogram::BUCKETS],
    micros: AtomicU64,
}

/// A request in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Began {
    kind: usize,
    stripe: usize,
    at: Instant,
}

/// Why the server ended a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// The client did not take its answers.
    SlowReader,
    /// A request stopped arriving, or arrived too slowly.
    SlowSender,
    /// There was no login in time.
    NoLogin,
    /// After this input the beginning of the next request could not be found.
    BadInput,
    /// A request was not signed as it must be.
    Signature,
    /// The connection was idle, and another one needed its place.
    MadeRoom,
    /// The machine had its share of the connections.
    Refused,
}

impl Ended {
    const ALL: [Ended; 7] = [
        Ended::SlowReader,
        Ended::SlowSender,
        Ended::NoLogin,
        Ended::BadInput,
        Ended::Signature,
        Ended::MadeRoom,
        Ended::Refused,
    ];

    fn name(self) -> &'static str {
        match self {
            Ended::SlowReader => "slow_reader",
            Ended::SlowSender => "slow_sender",
            Ended::NoLogin => "no_login",
            Ended::BadInput => "bad_input",
            Ended::Signature => "signature",
            Ended::MadeRoom => "made_room",
            Ended::Refused => "refused",
        }
    }
}

/// What became of a request's signature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SignatureResult {
    /// It is good.
    Verified,
    /// There is none, or it is not good.
    Refused,
    /// The request needs none, and has one, which nobody has looked at.
    Unneeded,
    /// The request needs none, and has none.
    NotNeeded,
}

impl SignatureResult {
    /// Those that are counted.
    const COUNTED: [Self; 3] = [Self::Verified, Self::Refused, Self::Unneeded];

    fn name(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Refused => "refused",
            Self::Unneeded => "unneeded",
            Self::NotNeeded => "not_needed",
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
            signatures: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Begins a request of `kind` on the connection number `connection`.
    pub(crate) fn begin(&self, kind: RequestKind, connection: u64) -> Began {
        let place = match kind {
            // Its code is far from the others, so it has the place behind them.
            RequestKind::Batch => RequestKind::ALL.len() - 1,
            _ => usize::from(kind.code()).wrapping_sub(usize::from(RequestKind::ALL[0].code())),
        };
        let known = RequestKind::ALL.get(place).is_some_and(|known| *known == kind);
        let kind = if known { place } else { KINDS - 1 };
        Began { kind, stripe: usize::try_from(connection % STRIPES as u64).unwrap_or(0), at: Instant::now() }
    }

    /// Counts a request that is answered.
    pub(crate) fn done(&self, began: Began) {
        let micros = u64::try_from(began.at.elapsed().as_micros()).unwrap_or(u64::MAX);
        let kind = &self.stripes[began.stripe].kinds[began.kind];
        kind.counts[Histogram::bucket_of(micros)].fetch_add(1, Ordering::Relaxed);
        kind.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Counts an error, wait or redirect.
    pub(crate) fn refused(&self, request_error: &RequestError) {
        match request_error {
            RequestError::Error { number, .. } => {
                let place = number.0.wrapping_sub(ERRORS_FROM) as usize;
                self.errors[place.min(ERRORS - 1)].fetch_add(1, Ordering::Relaxed);
            }
            RequestError::Wait { .. } => {
                self.waits.fetch_add(1, Ordering::Relaxed);
            }
            RequestError::Redirect(_) => {
                self.redirects.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Counts a connection that the server has ended.
    pub(crate) fn ended(&self, why: Ended) {
        self.ended[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request's signature.
    pub(crate) fn signature(&self, result: SignatureResult) {
        if let Some(counter) = self.signatures.get(result as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of signatures, by what became of them.
    pub(crate) fn signatures(&self) -> Vec<(&'static str, u64)> {
        let all = SignatureResult::COUNTED.iter().zip(&self.signatures);
        all.map(|(result, count)| (result.name(), count.load(Ordering::Relaxed))).collect()
    }

    /// The duration of requests in microseconds, by the name of their kind. Kinds without requests are omitted.
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

    /// The number of errors, by the error's number. Numbers without errors are omitted.
    pub(crate) fn errors(&self) -> Vec<(ErrorNumber, u64)> {
        let counted = (ERRORS_FROM..).zip(&self.errors);
        let counted = counted.map(|(number, count)| (ErrorNumber(number), count.load(Ordering::Relaxed)));
        counted.filter(|(_, count)| *count > 0).collect()
    }

    /// The number of redirects.
    pub(crate) fn redirects(&self) -> u64 {
        self.redirects.load(Ordering::Relaxed)
    }

    /// The number of waits.
    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// The number of connections that the server has ended, by reason.
    pub(crate) fn endings(&self) -> Vec<(&'static str, u64)> {
        Ended::ALL.iter().map(|why| (why.name(), self.ended[*why as usize].load(Ordering::Relaxed))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_all_connections_are_summed_by_kind() {
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
    fn errors_are_counted_by_number_and_waits_separately() {
        let meter = Meter::new();
        meter.refused(&RequestError::new(ErrorNumber::NOT_FOUND, "no"));
        meter.refused(&RequestError::new(ErrorNumber::NOT_FOUND, "no"));
        meter.refused(&RequestError::new(ErrorNumber(99_999), "no"));
        meter.refused(&RequestError::Wait { seconds: 1, text: "later".into() });
        assert_eq!(meter.errors(), [(ErrorNumber::NOT_FOUND, 2), (ErrorNumber(ERRORS_FROM + 63), 1)]);
        assert_eq!(meter.waits(), 1);
        meter.signature(SignatureResult::Refused);
        meter.signature(SignatureResult::NotNeeded);
        assert_eq!(meter.signatures(), [("verified", 0), ("refused", 1), ("unneeded", 0)]);
        meter.ended(Ended::MadeRoom);
        assert_eq!(meter.endings().into_iter().filter(|(_, n)| *n > 0).collect::<Vec<_>>(), [("made_room", 1)]);
    }
}
