//! How many lines about refused logins and denied reads one client gets. Without a limit, somebody who may do nothing could
//! drive the whole log out of its files. Each address and principal has a token bucket; what it does not let through is
//! counted, and one line says how many there were. There are no threads and clocks here.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use crate::{Event, Outcome, Record};

/// Lines that a client gets at once.
const BURST: u32 = 100;
/// How often it gets a further one: at most 17280 a day.
const EVERY: Duration = Duration::from_secs(5);
/// Clients that are told apart. All others share one bucket.
const CLIENTS_MAX: usize = 1024;
/// How often the lines that were held back are told.
pub(crate) const TELLS: Duration = Duration::from_secs(60);
/// Bytes of a path in such a line. Otherwise long names would make up for the number of lines.
const PATH_MAX: usize = 1024;

/// Whether a client can make as many of these lines as it likes without being allowed anything.
pub(crate) fn is_limited(record: &Record) -> bool {
    match record.event {
        Event::Login => record.result != Outcome::Ok,
        Event::Read => record.result == Outcome::Denied,
        Event::Change | Event::Admin | Event::Lost => false,
    }
}

/// Whether a line may fill only a part of the queue, so that there is always room for changes.
pub(crate) fn leaves_room(record: &Record) -> bool {
    record.event == Event::Read || is_limited(record)
}

/// Cuts the name in a limited line.
pub(crate) fn shorten(record: &mut Record) {
    if let Some(path) = &mut record.path {
        crate::record::cut(path, PATH_MAX);
    }
}

/// A client: its address without the port, and its principal. `None`: all that have no bucket of their own.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Client(Option<(String, Option<u32>)>);

impl Client {
    fn of(record: &Record) -> Self {
        let address = record.address.as_deref().unwrap_or_default();
        let address = address.parse::<SocketAddr>().map_or_else(|_| address.to_owned(), |peer| network_of(peer.ip()));
        // Nobody has shown who they are at a login that was refused.
        let number = record.number.filter(|_| record.event != Event::Login);
        Self(Some((address, number)))
    }
}

/// A host: with IPv6 it has a network of 64 bits.
fn network_of(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{}/64", Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

#[derive(Debug)]
struct Bucket {
    tokens: u32,
    /// When the last token came.
    filled: Instant,
    /// Lines that were held back and not yet told, about logins and about reads.
    held: [u64; 2],
}

impl Bucket {
    fn new(now: Instant) -> Self {
        Self { tokens: BURST, filled: now, held: [0; 2] }
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled).as_secs() / EVERY.as_secs();
        let new = u32::try_from(passed).unwrap_or(u32::MAX).min(BURST);
        self.tokens = self.tokens.saturating_add(new).min(BURST);
        self.filled = if self.tokens == BURST { now } else { self.filled + EVERY * new };
    }

    /// Whether a new bucket would do the same.
    fn is_idle(&self) -> bool {
        self.tokens == BURST && self.held == [0; 2]
    }
}

/// The buckets.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    buckets: HashMap<Client, Bucket>,
    /// Whether any bucket has lines to tell of.
    has_held: bool,
    told: Option<Instant>,
}

impl Limits {
    fn bucket(&mut self, record: &Record, now: Instant) -> &mut Bucket {
        let mut client = Client::of(record);
        if !self.buckets.contains_key(&client) && self.buckets.len() >= CLIENTS_MAX {
            self.buckets.retain(|_, bucket| {
                bucket.refill(now);
                !bucket.is_idle()
            });
            if self.buckets.len() >= CLIENTS_MAX {
                client = Client(None);
            }
        }
        let bucket = self.buckets.entry(client).or_insert_with(|| Bucket::new(now));
        bucket.refill(now);
        bucket
    }

    /// Whether a line is written. Otherwise it is counted.
    pub(crate) fn lets_through(&mut self, record: &Record, now: Instant) -> bool {
        let bucket = self.bucket(record, now);
        match bucket.tokens.checked_sub(1) {
            Some(rest) => {
                bucket.tokens = rest;
                true
            }
            None => {
                self.hold_back(record, now);
                false
            }
        }
    }

    /// Counts a line that is not written.
    pub(crate) fn hold_back(&mut self, record: &Record, now: Instant) {
        let [logins, reads] = &mut self.bucket(record, now).held;
        *if record.event == Event::Login { logins } else { reads } += 1;
        self.has_held = true;
        self.told.get_or_insert(now);
    }

    /// Whether lines were held back that are not told yet.
    pub(crate) fn has_held(&self) -> bool {
        self.has_held
    }

    /// The lines that tell of those held back, once in a while; `at_once`: now.
    pub(crate) fn tell(&mut self, now: Instant, at_once: bool) -> Vec<Record> {
        let is_due = self.told.is_none_or(|told| now.saturating_duration_since(told) >= TELLS);
        if !self.has_held || !(is_due || at_once) {
            return Vec::new();
        }
        (self.has_held, self.told) = (false, None);
        let mut lines = Vec::new();
        for (client, bucket) in &mut self.buckets {
            for (event, held) in [Event::Login, Event::Read].into_iter().zip(std::mem::take(&mut bucket.held)) {
                if held > 0 {
                    lines.push(more(client, event, held));
                }
            }
        }
        lines
    }
}

/// The line that stands for those that were held back.
fn more(client: &Client, event: Event, held: u64) -> Record {
    let (address, number) = client.0.clone().map_or((None, None), |(address, number)| (Some(address), number));
    let of_whom = if address.is_some() { "this client" } else { "further clients" };
    let what = if event == Event::Login { "logins" } else { "reads" };
    Record {
        event,
        operation: "more".into(),
        result: Outcome::Denied,
        lines: Some(held),
        address: address.map(Into::into),
        number,
        reason: Some(format!("{held} more lines about {what} of {of_whom} were left out: there were too many").into()),
        ..Record::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(event: Event, address: &str, number: u32) -> Record {
        let (address, number) = (Some(address.to_owned().into()), Some(number));
        Record { event, result: Outcome::Denied, address, number, ..Record::default() }
    }

    fn passed(limits: &mut Limits, record: &Record, times: u32, now: Instant) -> u32 {
        (0..times).map(|_| u32::from(limits.lets_through(record, now))).sum()
    }

    #[test]
    fn a_client_gets_a_burst_and_then_little_whatever_its_port() {
        let (mut limits, begin) = (Limits::default(), Instant::now());
        assert_eq!(passed(&mut limits, &denied(Event::Read, "192.0.2.1:1", 7), 90, begin), 90);
        assert_eq!(passed(&mut limits, &denied(Event::Read, "192.0.2.1:2", 7), 90, begin), 10);
        // Others are not affected: another principal there, the same one elsewhere, and logins.
        assert!(limits.lets_through(&denied(Event::Read, "192.0.2.1:1", 8), begin));
        assert!(limits.lets_through(&denied(Event::Read, "192.0.2.2:1", 7), begin));
        assert!(limits.lets_through(&denied(Event::Login, "192.0.2.1:1", 7), begin));
        assert_eq!(passed(&mut limits, &denied(Event::Read, "192.0.2.1:1", 7), 90, begin + 3 * EVERY), 3);
        assert!(limits.tell(begin + Duration::from_secs(59), false).is_empty());
        let lines = limits.tell(begin + Duration::from_secs(60), false);
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!((line.lines, line.number, line.address.as_deref()), (Some(80 + 87), Some(7), Some("192.0.2.1")));
        assert!(!limits.has_held() && limits.tell(begin + TELLS * 9, true).is_empty());
    }

    #[test]
    fn the_table_is_bounded_and_hosts_of_ipv6_have_one_bucket() {
        let (mut limits, begin) = (Limits::default(), Instant::now());
        let one = |n: u32| denied(Event::Login, &format!("[2001:db8::{n:x}]:7"), 1);
        assert_eq!((0..300).filter(|n| limits.lets_through(&one(*n), begin)).count(), 100);
        let many = |n: u32| denied(Event::Login, &format!("{}:7", std::net::Ipv4Addr::from(n)), 1);
        let through = (0..100_000).filter(|n| limits.lets_through(&many(*n), begin)).count();
        assert!(through <= CLIENTS_MAX + 100 && limits.buckets.len() <= CLIENTS_MAX + 1, "{through}");
        // Later, those that are idle make room.
        assert!(limits.lets_through(&many(200_000), begin + EVERY * 200));
    }

    #[test]
    fn changes_are_never_limited() {
        for (event, result, limited) in [
            (Event::Change, Outcome::Denied, false),
            (Event::Change, Outcome::Ok, false),
            (Event::Admin, Outcome::Denied, false),
            (Event::Login, Outcome::Ok, false),
            (Event::Login, Outcome::Failed, true),
            (Event::Read, Outcome::Denied, true),
            (Event::Read, Outcome::Ok, false),
        ] {
            assert_eq!(is_limited(&Record { event, result, ..Record::default() }), limited, "{event:?} {result:?}");
        }
    }
}
