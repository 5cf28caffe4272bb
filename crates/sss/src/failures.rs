//! The addresses from which credentials came that were of no known key. Only the checksum of 32 bits shows that one is not of its
//! key, so nobody may try as often as they want.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use crate::items::one_form;

/// So many credentials may fail from one address in [`FAILURES_TIME`]. Further ones are refused until it is over.
pub const FAILURES_MAX: u32 = 20;
/// How long failures count.
pub const FAILURES_TIME: Duration = Duration::from_secs(60);
/// Most addresses that are remembered.
const PEERS_MAX: usize = 4096;

/// The failures of each address: since when, and how many.
#[derive(Debug, Default)]
pub struct Failures(BTreeMap<IpAddr, (Duration, u32)>);

/// Who has one address of a network of IPv6 has all of them.
fn place(peer: IpAddr) -> IpAddr {
    match one_form(peer) {
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) >> 64 << 64).into(),
        address => address,
    }
}

fn is_over(since: Duration, now: Duration) -> bool {
    now.saturating_sub(since) >= FAILURES_TIME
}

impl Failures {
    /// Whether too many have failed that came from `peer`. `now` is the time since a fixed moment.
    #[must_use]
    pub fn are_too_many(&self, peer: IpAddr, now: Duration) -> bool {
        self.0.get(&place(peer)).is_some_and(|(since, count)| !is_over(*since, now) && *count >= FAILURES_MAX)
    }

    /// One has failed.
    pub fn note(&mut self, peer: IpAddr, now: Duration) {
        let place = place(peer);
        if self.0.len() >= PEERS_MAX && !self.0.contains_key(&place) {
            self.0.retain(|_, (since, _)| !is_over(*since, now));
            if self.0.len() >= PEERS_MAX
                && let Some(oldest) = self.0.iter().min_by_key(|(_, (since, _))| *since).map(|(peer, _)| *peer)
            {
                self.0.remove(&oldest);
            }
        }
        let (since, count) = self.0.entry(place).or_insert((now, 0));
        if is_over(*since, now) {
            (*since, *count) = (now, 0);
        }
        *count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn an_address_has_so_many_failures_in_a_time() {
        let (one, other): (IpAddr, IpAddr) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let mut failures = Failures::default();
        for number in 0..FAILURES_MAX {
            assert!(!failures.are_too_many(one, secs(10)), "{number}");
            failures.note(one, secs(10));
        }
        assert!(failures.are_too_many(one, secs(69)) && !failures.are_too_many(other, secs(69)));
        assert!(failures.are_too_many("::ffff:192.0.2.1".parse().unwrap(), secs(69)));
        assert!(!failures.are_too_many(one, secs(70)));
        failures.note(one, secs(70));
        assert!(!failures.are_too_many(one, secs(70)));
    }

    #[test]
    fn a_network_of_ipv6_is_one_place() {
        let mut failures = Failures::default();
        for number in 0..FAILURES_MAX {
            failures.note(format!("2001:db8:0:1::{number:x}").parse().unwrap(), secs(0));
        }
        assert!(failures.are_too_many("2001:db8:0:1:ffff::1".parse().unwrap(), secs(0)));
        assert!(!failures.are_too_many("2001:db8:0:2::1".parse().unwrap(), secs(0)));
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut failures = Failures::default();
        for number in 0..2 * u32::try_from(PEERS_MAX).unwrap() {
            failures.note(std::net::Ipv4Addr::from(number).into(), secs(number.into()));
            assert!(failures.0.len() <= PEERS_MAX);
        }
        for number in 0..2 * u32::try_from(PEERS_MAX).unwrap() {
            failures.note(std::net::Ipv4Addr::from(number).into(), secs(100_000));
            assert!(failures.0.len() <= PEERS_MAX);
        }
    }
}
