//! Leases: how long a disk server may answer without hearing from the manager, and when the manager may be sure
//! that it has stopped.
//!
//! The server counts from the moment at which it *sent* the request that the manager granted. The manager counts from
//! the moment at which it *answered*. The server stops earlier and the manager waits longer, by the stated bound on the
//! drift of clocks. So within that bound, whatever the network does, a server has stopped when the manager assumes that
//! it has.

use std::collections::VecDeque;
use std::time::Duration;

use crate::Time;

/// The terms of a lease. Both sides must use the same; the manager sends them to its servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct LeaseTerms {
    /// The length of a lease.
    pub term: Duration,
    /// The bound on how much faster or slower than true time any node's clock runs, in millionths.
    pub drift_ppm: u32,
    /// How often a server renews its lease.
    pub renew_every: Duration,
}

impl Default for LeaseTerms {
    /// A server that is cut off stops within 5 s. The drift of 1 % (14 minutes a day) is more than any working
    /// clock has.
    fn default() -> Self {
        Self { term: Duration::from_secs(5), drift_ppm: 10_000, renew_every: Duration::from_secs(1) }
    }
}

impl LeaseTerms {
    /// The highest drift that terms may allow, in millionths.
    pub const DRIFT_PPM_MAX: u32 = 100_000;

    /// Whether a server can use these terms: a lease must not end before it can be renewed.
    #[must_use]
    pub fn are_sound(&self) -> bool {
        self.drift_ppm <= Self::DRIFT_PPM_MAX
            && self.renew_every > Duration::ZERO
            && self.renew_every.saturating_mul(2) <= self.at_server()
    }

    /// Returns the lease's length on the server's clock, from the request. The server's clock runs at a rate of at
    /// least `1 - drift` of true time, so it shows that `term * (1 - drift)` has passed after at most `term`.
    #[must_use]
    pub fn at_server(&self) -> Duration {
        self.term.saturating_sub(self.part(self.term))
    }

    /// Returns how long the manager waits on its own clock, from its answer. That clock runs at a rate of at most
    /// `1 + drift` of true time, so `term * (1 + drift)` on it are at least `term`.
    #[must_use]
    pub fn at_manager(&self) -> Duration {
        self.term.saturating_add(self.part(self.term)).saturating_add(Duration::from_micros(1))
    }

    fn part(&self, whole: Duration) -> Duration {
        let nanos = whole.as_nanos() * u128::from(self.drift_ppm) / 1_000_000 + 1;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// The number of unanswered requests that a server remembers. The answer to an older one is useless.
const ASKED_MAX: usize = 16;

/// The disk server's side of a lease.
#[derive(Clone, Debug)]
pub struct Lease {
    terms: LeaseTerms,
    /// Unanswered requests: their numbers, and when they were sent.
    asked: VecDeque<(u64, Time)>,
    next: u64,
    until: Option<Time>,
}

impl Lease {
    /// Starts without a lease.
    #[must_use]
    pub fn new(terms: LeaseTerms) -> Self {
        Self { terms, asked: VecDeque::new(), next: 1, until: None }
    }

    /// Sets the manager's terms. A lease that was granted before keeps its length.
    pub fn set_terms(&mut self, terms: LeaseTerms) {
        self.terms = terms;
    }

    /// Returns the number of a request that is being sent now.
    pub fn ask(&mut self, now: Time) -> u64 {
        let number = self.next;
        self.next += 1;
        self.asked.push_back((number, now));
        if self.asked.len() > ASKED_MAX {
            self.asked.pop_front();
        }
        number
    }

    /// Whether request `number` was sent and not answered.
    #[must_use]
    pub fn is_asked(&self, number: u64) -> bool {
        self.asked.iter().any(|(asked, _)| *asked == number)
    }

    /// Request `number` was granted in a new session. Leases of the earlier session no longer count. Returns when
    /// the request was sent.
    pub fn granted_in_new_session(&mut self, number: u64) -> Option<Time> {
        self.until = None;
        self.granted(number)
    }

    /// Request `number` was granted. Returns when it was sent. An answer that nobody waits for changes nothing.
    pub fn granted(&mut self, number: u64) -> Option<Time> {
        let location = self.asked.iter().position(|(asked, _)| *asked == number)?;
        let (_, sent) = self.asked[location];
        // Answers may come in another order, or twice.
        self.asked.drain(..=location);
        let until = sent + self.terms.at_server();
        self.until = Some(self.until.map_or(until, |before| before.max(until)));
        Some(sent)
    }

    /// The session has changed or ended. The lease is over, and answers that are still on their way do not count.
    pub fn end(&mut self) {
        self.until = None;
        self.asked.clear();
    }

    /// Returns the end of the lease, if there is one.
    #[must_use]
    pub fn until(&self) -> Option<Time> {
        self.until
    }

    /// Whether the server may answer now.
    #[must_use]
    pub fn is_valid(&self, now: Time) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time(Duration::from_millis(ms))
    }

    #[test]
    fn a_lease_counts_from_when_it_was_asked_for() {
        let terms = LeaseTerms { term: Duration::from_secs(10), drift_ppm: 0, renew_every: Duration::from_secs(1) };
        let mut lease = Lease::new(terms);
        assert!(!lease.is_valid(at(0)));
        let first = lease.ask(at(1000));
        let second = lease.ask(at(2000));
        lease.granted(second);
        assert!(lease.is_valid(at(11_999)) && !lease.is_valid(at(12_000)));
        // A late answer to an older request neither shortens nor extends the lease.
        lease.granted(first);
        assert_eq!(lease.until().map(|until| until.0.as_millis()), Some(11_999));
        let third = lease.ask(at(3000));
        lease.end();
        lease.granted(third);
        assert!(!lease.is_valid(at(3001)));
    }

    #[test]
    fn a_server_has_stopped_when_the_manager_takes_it_for_stopped() {
        for drift_ppm in [0, 1, 500, 10_000, 100_000] {
            let terms = LeaseTerms { term: Duration::from_secs(5), drift_ppm, ..LeaseTerms::default() };
            assert!(terms.are_sound());
            let drift = f64::from(drift_ppm) / 1e6;
            // The slowest clock at the server, the fastest at the manager, and an answer that took no time.
            let server_stops = terms.at_server().as_secs_f64() / (1.0 - drift);
            let manager_knows = terms.at_manager().as_secs_f64() / (1.0 + drift);
            assert!(server_stops < manager_knows, "{drift_ppm}: {server_stops} {manager_knows}");
        }
        assert!(!LeaseTerms { renew_every: Duration::from_secs(3), ..LeaseTerms::default() }.are_sound());
        assert!(!LeaseTerms { drift_ppm: 200_000, ..LeaseTerms::default() }.are_sound());
    }
}
