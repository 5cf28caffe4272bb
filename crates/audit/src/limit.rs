//! How many lines about what it was not let do one client gets: refused logins, denied reads, and changes that were not made.
//! Without a limit, somebody who may do nothing could drive the whole log out of its files. Each address and principal has a
//! token bucket for each event; what it does not let through is counted, and one line says how many there were. There are
//! no threads and clocks here.

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
        // Whoever may do nothing can fail as well as be denied: it can remove a name that does not exist, or give a path that is none.
        Event::Change | Event::Admin => matches!(record.result, Outcome::Denied | Outcome::Failed),
        Event::Lost => false,
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

/// Whose lines share a bucket. Each event has its own, so that denied reads do not hide a denied change.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Client {
    event: Event,
    /// `None`: all clients that have no bucket of their own.
    who: Option<Who>,
}

/// A client.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Who {
    /// Its address without the port.
    address: String,
    /// The number of its principal.
    number: Option<u32>,
    /// Its name, for an administrator, who has no number.
    name: Option<String>,
}

impl Client {
    fn of(record: &Record) -> Self {
        let address = record.address.as_deref().unwrap_or_default();
        let address = address.parse::<SocketAddr>().map_or_else(|_| address.to_owned(), |peer| network_of(peer.ip()));
        // Nobody has shown who they are at a login that was refused.
        let number = record.number.filter(|_| record.event != Event::Login);
        let name = record.principal.as_deref().filter(|_| record.event == Event::Admin).map(str::to_owned);
        Self { event: record.event, who: Some(Who { address, number, name }) }
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
    /// Lines that were held back and not yet told.
    held: u64,
}

impl Bucket {
    fn new(now: Instant) -> Self {
        Self { tokens: BURST, filled: now, held: 0 }
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled).as_secs() / EVERY.as_secs();
        let new = u32::try_from(passed).unwrap_or(u32::MAX).min(BURST);
        self.tokens = self.tokens.saturating_add(new).min(BURST);
        self.filled = if self.tokens == BURST { now } else { self.filled + EVERY * new };
    }

    /// Whether a new bucket would do the same.
    fn is_idle(&self) -> bool {
        self.tokens == BURST && self.held == 0
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
                client.who = None;
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
        self.bucket(record, now).held += 1;
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
            let held = std::mem::take(&mut bucket.held);
            if held > 0 {
                lines.push(more(client.clone(), held));
            }
        }
        lines
    }
}

/// The line that stands for those that were held back.
fn more(client: Client, held: u64) -> Record {
    let of_whom = if client.who.is_some() { "this client" } else { "further clients" };
    let what = match client.event {
        Event::Login => "logins",
        Event::Read => "reads",
        Event::Change | Event::Lost => "changes that were not made",
        Event::Admin => "commands",
    };
    let (address, number, name) = client.who.map_or_else(Default::default, |who| {
        let Who { address, number, name } = who;
        (Some(address), number, name)
    });
    Record {
        event: client.event,
        operation: "more".into(),
        result: Outcome::Denied,
        lines: Some(held),
        address: address.map(Into::into),
        principal: name.map(Into::into),
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
    fn a_change_is_told_after_a_flood_of_denied_reads_and_of_others() {
        let (mut limits, begin) = (Limits::default(), Instant::now());
        let change = |number| denied(Event::Change, "192.0.2.1:1", number);
        passed(&mut limits, &denied(Event::Read, "192.0.2.1:1", 7), 10_000, begin);
        assert_eq!(passed(&mut limits, &change(8), 10_000, begin), BURST);
        assert_eq!(passed(&mut limits, &change(7), 150, begin), BURST);
        let mut lines = limits.tell(begin + TELLS, false);
        lines.sort_by_key(|line| line.lines);
        let told: Vec<_> = lines.iter().map(|line| (line.event, line.number, line.lines)).collect();
        assert_eq!(
            told,
            [
                (Event::Change, Some(7), Some(50)),
                (Event::Change, Some(8), Some(9900)),
                (Event::Read, Some(7), Some(9900))
            ]
        );
    }

    #[test]
    fn administrators_are_told_apart_by_their_names() {
        let (mut limits, begin) = (Limits::default(), Instant::now());
        let by = |name: &'static str| Record {
            number: None,
            principal: Some(name.into()),
            ..denied(Event::Admin, "192.0.2.1:1", 0)
        };
        assert_eq!(passed(&mut limits, &by("bob"), 101, begin), BURST);
        assert!(limits.lets_through(&by("alice"), begin));
        let lines = limits.tell(begin + TELLS, false);
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!((line.lines, line.principal.as_deref()), (Some(1), Some("bob")));
    }

    #[test]
    fn what_was_done_is_never_limited() {
        for (event, result, limited) in [
            (Event::Change, Outcome::Denied, true),
            (Event::Change, Outcome::Failed, true),
            (Event::Change, Outcome::Ok, false),
            (Event::Change, Outcome::Redirected, false),
            (Event::Admin, Outcome::Denied, true),
            (Event::Admin, Outcome::Failed, true),
            (Event::Admin, Outcome::Ok, false),
            (Event::Login, Outcome::Ok, false),
            (Event::Login, Outcome::Failed, true),
            (Event::Read, Outcome::Denied, true),
            (Event::Read, Outcome::Ok, false),
        ] {
            assert_eq!(is_limited(&Record { event, result, ..Record::default() }), limited, "{event:?} {result:?}");
        }
    }
}
