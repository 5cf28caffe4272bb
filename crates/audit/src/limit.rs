//! How many lines about what it was not let do one client gets: refused logins, denied reads, and changes that were not made.
//! Without a limit, somebody who may do nothing could drive the whole log out of its files. Each address and principal has a
//! token bucket for each kind of line; what it does not let through is counted, and one line says how many there were. There
//! are no threads and clocks here.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use types::ErrorCode;

use crate::{Event, Outcome, Record, TokenBucket};

/// Lines that a client gets at once.
const BURST: u32 = 100;
/// How often it gets a further one: at most 17280 a day.
const EVERY: Duration = Duration::from_secs(5);
/// Clients that are told apart in each kind of lines. All others share one bucket of the kind.
const CLIENTS_MAX: usize = 1024;
/// How often the lines that were held back are told.
pub(crate) const TELLS: Duration = Duration::from_secs(60);
/// Bytes of a path in such a line. Otherwise long names would make up for the number of lines.
const PATH_MAX: usize = 1024;

/// Whether a client can make as many of these lines as it likes without being allowed anything.
pub(crate) fn is_limited(record: &Record) -> bool {
    if record.event == Event::Change && record.code.is_some_and(is_of_server) {
        return false;
    }
    match record.event {
        Event::Login => record.result != Outcome::Ok,
        Event::Read => record.result == Outcome::Denied,
        // Whoever may do nothing can fail as well as be denied: it can remove a name that does not exist, or give a path that is none.
        Event::Change | Event::Admin => matches!(record.result, Outcome::Denied | Outcome::Failed),
        Event::Lost => false,
    }
}

/// Whether the server has failed, and the client could not make it fail. Such lines show what is wrong with the server.
fn is_of_server(code: ErrorCode) -> bool {
    use ErrorCode::{Damaged, Internal, Io, NoSpace, Unavailable};
    matches!(code, Damaged | Internal | Io | NoSpace | Unavailable)
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

/// Lines of one kind. Each kind has its own buckets, so that denied reads do not hide a denied change, nor do changes that
/// fail. Each has its own table, so that refused logins from many addresses leave clients their buckets for changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LineKind {
    event: Event,
    result: Outcome,
}

impl LineKind {
    fn of(record: &Record) -> Self {
        // Which of the two a refused login is makes no difference.
        let result = if record.event == Event::Login { Outcome::Denied } else { record.result };
        Self { event: record.event, result }
    }
}

/// A client.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Client {
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
        Self { address, number, name }
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
    lines: TokenBucket,
    /// Lines that were held back and not yet told.
    held: u64,
    /// In the bucket that clients share: whom the first and the last of those were about.
    ends: Option<(String, String)>,
}

impl Bucket {
    fn new(now: Instant) -> Self {
        Self { lines: TokenBucket::new(BURST, EVERY, now), held: 0, ends: None }
    }

    /// Whether a new bucket would do the same.
    fn is_idle(&mut self, now: Instant) -> bool {
        self.held == 0 && self.lines.is_full(now)
    }
}

/// The buckets.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    tables: Vec<(LineKind, Table)>,
    /// Whether any bucket has lines to tell of.
    has_held: bool,
    told: Option<Instant>,
}

/// The buckets of one kind of lines. `None`: that of all clients that have none of their own.
type Table = HashMap<Option<Client>, Bucket>;

impl Limits {
    /// The bucket of a line, and whether several clients share it.
    fn bucket(&mut self, record: &Record, now: Instant) -> (&mut Bucket, bool) {
        let kind = LineKind::of(record);
        let place = self.tables.iter().position(|(other, _)| *other == kind).unwrap_or_else(|| {
            self.tables.push((kind, Table::new()));
            self.tables.len() - 1
        });
        let table = &mut self.tables[place].1;
        let mut client = Some(Client::of(record));
        if !table.contains_key(&client) && table.len() >= CLIENTS_MAX {
            table.retain(|_, bucket| !bucket.is_idle(now));
            if table.len() >= CLIENTS_MAX {
                client = None;
            }
        }
        let is_shared = client.is_none();
        (table.entry(client).or_insert_with(|| Bucket::new(now)), is_shared)
    }

    /// Whether a line is written. Otherwise it is counted.
    pub(crate) fn lets_through(&mut self, record: &Record, now: Instant) -> bool {
        let may = self.bucket(record, now).0.lines.take(now);
        if !may {
            self.hold_back(record, now);
        }
        may
    }

    /// Counts a line that is not written.
    pub(crate) fn hold_back(&mut self, record: &Record, now: Instant) {
        let (bucket, is_shared) = self.bucket(record, now);
        bucket.held += 1;
        if is_shared {
            let last = whom_and_what(record);
            let first = bucket.ends.take().map_or_else(|| last.clone(), |(first, _)| first);
            bucket.ends = Some((first, last));
        }
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
        for (kind, table) in &mut self.tables {
            for (client, bucket) in table {
                let (held, ends) = (std::mem::take(&mut bucket.held), bucket.ends.take());
                if held > 0 {
                    lines.push(more(*kind, client.clone(), held, ends));
                }
            }
        }
        lines
    }
}

/// Who has asked for what, for the line about several clients.
fn whom_and_what(record: &Record) -> String {
    let mut who = match (&record.principal, record.number) {
        (Some(name), _) => name.clone(),
        (None, Some(number)) => number.to_string().into(),
        (None, None) => "nobody".into(),
    };
    let mut what = record.path.clone().unwrap_or_default();
    crate::record::cut(&mut who, 64);
    crate::record::cut(&mut what, 256);
    let address = record.address.as_deref().unwrap_or("an unknown address");
    format!("{} {what} by {who} at {address}", record.operation)
}

/// The line that stands for those that were held back.
fn more(kind: LineKind, client: Option<Client>, held: u64, ends: Option<(String, String)>) -> Record {
    let LineKind { event, result } = kind;
    let of_whom = if client.is_some() { "this client" } else { "further clients" };
    let what = match (event, result) {
        (Event::Login, _) => "refused logins",
        (Event::Read, _) => "denied reads",
        (Event::Change | Event::Lost, Outcome::Denied) => "denied changes",
        (Event::Change | Event::Lost, _) => "changes that failed",
        (Event::Admin, Outcome::Denied) => "denied commands",
        (Event::Admin, _) => "commands that failed",
    };
    let ends = ends.map_or_else(String::new, |(first, last)| format!(". The first: {first}. The last: {last}"));
    let (address, number, name) = client.map_or_else(Default::default, |client| {
        let Client { address, number, name } = client;
        (Some(address), number, name)
    });
    Record {
        event,
        operation: "more".into(),
        result,
        lines: Some(held),
        address: address.map(Into::into),
        principal: name.map(Into::into),
        number,
        reason: Some(
            format!("{held} more lines about {what} of {of_whom} were left out: there were too many{ends}").into(),
        ),
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
        assert!(through <= CLIENTS_MAX + 100 && limits.tables[0].1.len() <= CLIENTS_MAX + 1, "{through}");
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
        lines.sort_by_key(|line| (line.lines, line.number));
        let told: Vec<_> = lines.iter().map(|line| (line.event, line.number, line.lines)).collect();
        assert_eq!(
            told,
            [
                (Event::Change, Some(7), Some(50)),
                (Event::Read, Some(7), Some(9900)),
                (Event::Change, Some(8), Some(9900))
            ]
        );
    }

    #[test]
    fn refused_logins_and_failures_from_everywhere_hide_no_denied_change() {
        let (mut limits, begin) = (Limits::default(), Instant::now());
        for n in 0..5000 {
            let address = format!("{}:7", std::net::Ipv4Addr::from(n));
            limits.lets_through(&denied(Event::Login, &address, 1), begin);
            let failed = Record { result: Outcome::Failed, ..denied(Event::Change, &address, 1) };
            limits.lets_through(&failed, begin);
        }
        let change = denied(Event::Change, "192.0.2.1:1", 7);
        assert_eq!(passed(&mut limits, &change, 500, begin), BURST);
        let lines = limits.tell(begin + TELLS, false);
        let its = lines.iter().find(|line| line.number == Some(7)).unwrap();
        assert_eq!((its.lines, its.address.as_deref(), its.result), (Some(400), Some("192.0.2.1"), Outcome::Denied));
    }

    #[test]
    fn the_line_about_several_clients_says_who_was_first_and_last() {
        let (mut limits, begin) = (Limits::default(), Instant::now());
        for n in 0..3000 {
            let address = format!("{}:7", std::net::Ipv4Addr::from(n));
            let path = Some(format!("/f{n}").into());
            limits.lets_through(
                &Record { operation: "remove".into(), path, ..denied(Event::Change, &address, n) },
                begin,
            );
        }
        let lines = limits.tell(begin + TELLS, false);
        let [line] = &lines[..] else { panic!("{lines:?}") };
        let (reason, first) = (line.reason.as_deref().unwrap(), CLIENTS_MAX + BURST as usize);
        assert!(reason.contains(&format!("The first: remove /f{first} by {first} at 0.0.4.")), "{reason}");
        assert!(reason.ends_with("The last: remove /f2999 by 2999 at 0.0.11.183:7"), "{reason}");
    }

    #[test]
    fn failures_of_the_server_are_never_limited() {
        for code in [ErrorCode::Io, ErrorCode::Internal, ErrorCode::Damaged, ErrorCode::NoSpace] {
            let result = Outcome::from(code);
            assert!(!is_limited(&Record { event: Event::Change, result, code: Some(code), ..Record::default() }));
        }
        let result = Outcome::Failed;
        let exists = Record { event: Event::Change, result, code: Some(ErrorCode::Exists), ..Record::default() };
        assert!(is_limited(&exists));
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
