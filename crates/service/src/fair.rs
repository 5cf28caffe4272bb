//! Decides who is next when not all can move data at once: start-time fair queueing, first among principals, then among
//! the users of the chosen principal, then among the connections of the chosen user. So a principal with many user
//! names gets no more than one with a single name.
//!
//! Each principal and each user has a clock, which advances by the bytes of its grants. The one whose clock is furthest
//! behind is next. One that is new, or returns after a pause, starts at the current clock. So nobody saves up time, and
//! nobody pays for using an idle machine.
//!
//! The clocks alone are not fair enough. A user with one connection has one grant at a time, and all grants share the
//! disk and the processors. Its share would be one in as many as there are grants. Therefore a principal has at most
//! [`LEAD`](queue::LEAD) more grants at a time than any other busy principal, and so has a user among those of its principal. One
//! that is alone may have them all.
//!
//! Writers have priority over readers, and readers over movers ([`Class`]). While a class is busy, all classes behind
//! it together have at most as many grants as it has, and at least one. So no class starves, and writers get at least
//! half of the machine.
//!
//! This module only decides: it has no threads and no locks, and the caller passes the time.

mod queue;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::time::Instant;

use queue::{Busy, Queue};

/// How many more idle principals than waiting ones are remembered before the idle ones are removed. The same holds for
/// users and for connections.
const IDLE_MAX: usize = 64;

/// The purpose of a transfer, in order of priority.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// A client writes. Data that the server does not take in time may be lost.
    Record,
    /// A client reads.
    Read,
    /// A copy between servers, or within one.
    Move,
}

/// The number of classes.
const CLASSES: usize = 3;

impl Class {
    fn place(self) -> usize {
        self as usize
    }
}

/// A block of data to move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece<C> {
    /// The connection that moves it.
    pub(crate) connection: C,
    /// Its purpose.
    pub(crate) class: Class,
    /// Its length.
    pub(crate) bytes: u64,
}

/// The queue: principals `P` with users `U` and their connections `C`, which wait with a ticket `T`.
pub(crate) struct Fair<P, U, C, T> {
    principals: Queue<P, Queue<U, Lines<C, T>>>,
    classes: [Busy; CLASSES],
    count: u64,
}

/// Waiting blocks with their tickets, ordered by start time. The number breaks ties.
type Line<C, T> = BTreeMap<Place, (Piece<C>, T)>;
/// A position in a queue: the clock and the number.
type Place = (u64, u64);

/// The waiting blocks of a user.
struct Lines<C, T> {
    /// Those of each class.
    waiting: [Line<C, T>; CLASSES],
    /// The clocks of the connections.
    connections: HashMap<C, u64>,
    /// The start of the connection that got the last grant. New connections start there.
    clock: u64,
}

impl<C, T> Default for Lines<C, T> {
    fn default() -> Self {
        Self { waiting: Default::default(), connections: HashMap::new(), clock: 0 }
    }
}

impl<C: Copy + Eq + Hash, T> Lines<C, T> {
    fn wait(&mut self, piece: Piece<C>, ticket: T, number: u64) {
        let start = self.connections.get(&piece.connection).map_or(self.clock, |clock| (*clock).max(self.clock));
        self.waiting[piece.class.place()].insert((start, number), (piece, ticket));
    }

    /// The first waiting block of the classes that may have a grant.
    fn first(&self, may: [bool; CLASSES]) -> Option<(Place, usize)> {
        let firsts = self.waiting.iter().enumerate().filter(|(class, _)| may.get(*class) == Some(&true));
        firsts.filter_map(|(class, waiting)| Some((*waiting.first_key_value()?.0, class))).min()
    }

    /// Takes out the block that was [`Lines::first`].
    fn begin(&mut self, (place, class): (Place, usize)) -> Option<(Piece<C>, T)> {
        let (piece, ticket) = self.waiting.get_mut(class)?.remove(&place)?;
        let (start, _) = place;
        self.clock = self.clock.max(start);
        self.connections.insert(piece.connection, start.saturating_add(piece.bytes));
        if self.connections.len() > self.waiting.iter().map(BTreeMap::len).sum::<usize>() + IDLE_MAX {
            // A forgotten connection restarts at the current clock: at most one block earlier than its own clock.
            let wait: HashSet<C> =
                self.waiting.iter().flat_map(BTreeMap::values).map(|(piece, _)| piece.connection).collect();
            self.connections.retain(|connection, _| wait.contains(connection));
        }
        Some((piece, ticket))
    }

    /// A connection has moved `more` bytes than it was granted.
    fn end(&mut self, connection: &C, more: u64) {
        if let Some(clock) = self.connections.get_mut(connection) {
            *clock = clock.saturating_add(more);
        }
    }
}

impl<P: Clone + Eq + Hash, U: Clone + Eq + Hash, C: Copy + Eq + Hash, T> Fair<P, U, C, T> {
    pub(crate) fn new() -> Self {
        Self { principals: Queue::default(), classes: [Busy::CLASS; CLASSES], count: 0 }
    }

    /// Queues `piece` for a user of a principal.
    pub(crate) fn ask(&mut self, (principal, user): &(P, U), piece: Piece<C>, ticket: T) {
        self.count += 1;
        let users = self.principals.wait(principal, self.count);
        users.wait(user, self.count).wait(piece, ticket, self.count);
        self.classes[piece.class.place()].waiting += 1;
    }

    /// Grants the next block and returns its ticket. `None`: nobody may have a grant until another one ends.
    pub(crate) fn next(&mut self, now: Instant) -> Option<T> {
        let may = self.classes_that_may(now);
        let first_of = |users: &Queue<U, Lines<C, T>>| users.first(now, |lines| lines.first(may));
        let (principal, (user, first)) = self.principals.first(now, first_of)?;
        let users = self.principals.within(&principal)?;
        let (piece, ticket) = users.within(&user)?.begin(first)?;
        self.count += 1;
        users.begin(&user, piece.bytes, self.count, now);
        self.principals.begin(&principal, piece.bytes, self.count, now);
        self.classes[piece.class.place()].begin(now);
        Some(ticket)
    }

    /// Ends a grant. `piece.bytes` says how much more was moved than requested.
    pub(crate) fn end(&mut self, (principal, user): &(P, U), piece: Piece<C>, now: Instant) {
        self.classes[piece.class.place()].end(now);
        let users = self.principals.end(principal, piece.bytes, now);
        if let Some(lines) = users.and_then(|users| users.end(user, piece.bytes, now)) {
            lines.end(&piece.connection, piece.bytes);
        }
    }

    /// Which classes may have another grant. A class behind busy ones may only while it has fewer grants than they
    /// have.
    fn classes_that_may(&self, now: Instant) -> [bool; CLASSES] {
        let mut before: Option<usize> = None;
        self.classes.map(|class| {
            let may = before.is_none_or(|before| class.granted < before);
            if let Some(uses) = class.uses(now) {
                before = Some(before.unwrap_or(0) + uses);
            }
            may
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::queue::{BREATH, LEAD};
    use super::*;

    fn piece<C>(connection: C, bytes: u64) -> Piece<C> {
        Piece { connection, class: Class::Record, bytes }
    }

    /// The principal and the user in `principal/user`, or a user of the only principal.
    fn whose(name: &'static str) -> (&'static str, &'static str) {
        name.split_once('/').unwrap_or(("", name))
    }

    /// Simulates a machine that moves up to `slots` blocks at a time, together at one byte per tick (a microsecond),
    /// like a disk. Returns the bytes that each user has moved after `ticks`. Each connection requests its next block
    /// `pause` ticks after the last one is done.
    fn run(slots: usize, connections: &[(&'static str, u64, u64)], ticks: u64) -> HashMap<&'static str, u64> {
        let start = Instant::now();
        let mut fair: Fair<&'static str, &'static str, usize, usize> = Fair::new();
        let mut wanted: Vec<u64> = vec![0; connections.len()]; // the tick of its next request
        let mut asks: Vec<usize> = (0..connections.len()).collect();
        let mut under_way: Vec<(usize, u64)> = Vec::new(); // the connection, and the bytes that are left
        let mut moved = HashMap::new();
        let mut tick = 0;
        while tick < ticks {
            let now = start + Duration::from_micros(tick);
            asks.retain(|n| {
                let due = wanted[*n] <= tick;
                if due {
                    let (user, bytes, _) = connections[*n];
                    fair.ask(&whose(user), piece(*n, bytes), *n);
                }
                !due
            });
            while under_way.len() < slots {
                let Some(next) = fair.next(now) else { break };
                under_way.push((next, connections[next].1));
            }
            // Advance by 100 ticks, in equal parts.
            let step = 100;
            let part = (step / under_way.len().max(1) as u64).max(1);
            for (_, left) in &mut under_way {
                *left = left.saturating_sub(part);
            }
            tick += step;
            under_way.retain(|(n, left)| {
                if *left == 0 {
                    let (user, bytes, pause) = connections[*n];
                    fair.end(&whose(user), piece(*n, 0), now);
                    *moved.entry(user).or_default() += bytes;
                    wanted[*n] = tick + pause;
                    asks.push(*n);
                }
                *left > 0
            });
        }
        moved
    }

    #[test]
    fn one_connection_beside_two_hundred_of_another_user_gets_a_third() {
        for slots in [4, 16, 64] {
            let alone = run(slots, &[("one", 1000, 200)], 1_000_000)["one"];
            let mut crowd: Vec<_> = (0..200).map(|n| ("crowd", 850 + n * 37 % 300, 0)).collect();
            crowd.push(("one", 1000, 200));
            let moved = run(slots, &crowd, 1_000_000);
            assert!(moved["one"] * 10 > alone * 3, "{slots}: {moved:?}, alone {alone}");
            assert!(moved["crowd"] + moved["one"] > 900_000, "{slots}: it is not idle while somebody waits: {moved:?}");
        }
    }

    #[test]
    fn users_get_equal_bytes_whatever_their_connections_and_block_sizes() {
        let mut all = vec![("many small", 500, 0); 100];
        all.extend(vec![("few large", 4000, 0); 20]);
        let moved = run(16, &all, 2_000_000);
        let (a, b) = (moved["many small"], moved["few large"]);
        assert!(a * 100 > b * 90 && b * 100 > a * 90, "{moved:?}");
    }

    #[test]
    fn a_single_user_gets_all_grants_and_a_slow_client_delays_nobody() {
        let start = Instant::now();
        let mut fair = Fair::new();
        let ask_all =
            |fair: &mut Fair<(), &str, usize, usize>| (0..20).for_each(|n| fair.ask(&((), "crowd"), piece(n, 1), n));
        ask_all(&mut fair);
        let grants = |fair: &mut Fair<(), &str, usize, usize>, now| std::iter::from_fn(|| fair.next(now)).count();
        assert_eq!(grants(&mut fair, start), 20);
        (0..20).for_each(|n| fair.end(&((), "crowd"), piece(n, 0), start));
        fair.ask(&((), "slow"), piece(100, 1), 100);
        assert_eq!(fair.next(start), Some(100));
        ask_all(&mut fair);
        assert_eq!(grants(&mut fair, start), 1 + LEAD, "as long as it is busy");
        fair.end(&((), "slow"), piece(100, 0), start);
        assert_eq!(grants(&mut fair, start + BREATH / 2), 0, "it may come back at once");
        assert_eq!(grants(&mut fair, start + BREATH), 20 - 1 - LEAD, "it has not");
        // Where grants take long, a longer pause between them does not mean a slow client.
        (0..20).for_each(|n| fair.end(&((), "crowd"), piece(n, 0), start));
        let later = start + Duration::from_secs(1);
        fair.ask(&((), "slow"), piece(100, 1), 100);
        assert_eq!(fair.next(later), Some(100));
        let done = later + BREATH * 4;
        fair.end(&((), "slow"), piece(100, 0), done);
        ask_all(&mut fair);
        assert_eq!(grants(&mut fair, done + BREATH * 7), 1 + LEAD);
        assert_eq!(grants(&mut fair, done + BREATH * 8), 20 - 1 - LEAD);
    }

    #[test]
    fn writers_have_priority_over_readers_and_readers_over_movers() {
        let start = Instant::now();
        let mut fair: Fair<(), usize, usize, (Class, usize)> = Fair::new();
        let of = |class, user| Piece { connection: user, class, bytes: 1 };
        let ended = |class, user| Piece { bytes: 0, ..of(class, user) };
        // Each request is from another user; the last class comes first.
        for (class, first) in [(Class::Move, 200), (Class::Read, 100), (Class::Record, 0)] {
            let many = if class == Class::Record { 3 } else { 50 };
            (first..first + many).for_each(|user| fair.ask(&((), user), of(class, user), (class, user)));
        }
        let grants = |fair: &mut Fair<(), usize, usize, (Class, usize)>, now| {
            let mut granted: Vec<_> = std::iter::from_fn(|| fair.next(now)).collect();
            granted.sort();
            [Class::Record, Class::Read, Class::Move].map(|class| granted.iter().filter(|(of, _)| *of == class).count())
        };
        assert_eq!(grants(&mut fair, start), [3, 3, 6], "as many as those before them");
        // One reader and one mover end. The writers continue, so one of each may follow.
        fair.end(&((), 100), ended(Class::Read, 100), start);
        fair.end(&((), 200), ended(Class::Move, 200), start);
        assert_eq!(grants(&mut fair, start), [0, 1, 1]);
        // The writers end. They count as busy until the end of their breath.
        let end = start + BREATH;
        (0..3).for_each(|user| fair.end(&((), user), ended(Class::Record, user), end));
        assert_eq!(grants(&mut fair, end + BREATH), [0, 0, 0], "they may come back at once");
        let [_, readers, movers] = grants(&mut fair, end + BREATH * 2);
        assert_eq!((readers, movers), (46, 43), "nobody records any more");
    }

    #[test]
    fn a_slow_writer_does_not_hold_back_others_between_its_packets() {
        let mut now = Instant::now();
        let mut fair: Fair<(), usize, usize, Class> = Fair::new();
        let of = |class, user| Piece { connection: user, class, bytes: 1 };
        for packet in 0..20 {
            fair.ask(&((), 0), of(Class::Record, 0), Class::Record);
            assert_eq!(fair.next(now), Some(Class::Record), "packet {packet}");
            now += Duration::from_micros(10);
            fair.end(&((), 0), Piece { bytes: 0, ..of(Class::Record, 0) }, now);
            now += Duration::from_micros(500);
            (1..=20).for_each(|user| fair.ask(&((), user), of(Class::Read, user), Class::Read));
            assert_eq!(std::iter::from_fn(|| fair.next(now)).count(), 20, "packet {packet}");
            (1..=20).for_each(|user| fair.end(&((), user), Piece { bytes: 0, ..of(Class::Read, user) }, now));
        }
    }

    #[test]
    fn a_users_writes_overtake_its_reads_but_do_not_starve_them() {
        let now = Instant::now();
        let mut fair: Fair<(), &str, usize, Class> = Fair::new();
        let of = |class, connection| Piece { connection, class, bytes: 1000 };
        (1..10).for_each(|n| fair.ask(&((), "me"), of(Class::Read, n), Class::Read));
        assert_eq!(fair.next(now), Some(Class::Read));
        fair.ask(&((), "me"), of(Class::Record, 0), Class::Record);
        assert_eq!(fair.next(now), Some(Class::Record));
        assert_eq!(fair.next(now), None, "as many read as record");
        fair.end(&((), "me"), Piece { bytes: 0, ..of(Class::Read, 1) }, now);
        assert_eq!(fair.next(now), Some(Class::Read));
    }

    #[test]
    fn bytes_moved_beyond_the_request_count() {
        let now = Instant::now();
        let mut fair: Fair<(), usize, usize, usize> = Fair::new();
        let mut moved = [0u64; 2];
        // Both request little, but the second moves ten times as much in each grant.
        let more = [0, 900];
        (0..2).for_each(|user| fair.ask(&((), user), piece(user, 100), user));
        for _ in 0..10_000 {
            let user = fair.next(now).unwrap();
            fair.end(&((), user), piece(user, more[user]), now);
            moved[user] += 100 + more[user];
            fair.ask(&((), user), piece(user, 100), user);
        }
        assert!(moved[0].abs_diff(moved[1]) <= 1000, "{moved:?}");
    }

    #[test]
    fn connections_of_a_user_get_equal_bytes() {
        let now = Instant::now();
        let mut fair = Fair::new();
        let mut granted = [0u64; 2];
        let sizes = [100, 900];
        for (connection, bytes) in sizes.into_iter().enumerate() {
            fair.ask(&((), "me"), piece(connection, bytes), connection);
        }
        for _ in 0..10_000 {
            let connection = fair.next(now).unwrap();
            fair.end(&((), "me"), piece(connection, 0), now);
            granted[connection] += sizes[connection];
            fair.ask(&((), "me"), piece(connection, sizes[connection]), connection);
        }
        assert!(granted[0].abs_diff(granted[1]) <= 1000, "{granted:?}");
    }

    #[test]
    fn users_take_turns_by_bytes() {
        let now = Instant::now();
        let mut fair = Fair::new();
        let mut granted = [0u64; 2];
        let sizes = [100, 900];
        (0..2).for_each(|user| fair.ask(&((), user), piece(user, sizes[user]), user));
        for _ in 0..10_000 {
            let user = fair.next(now).unwrap();
            fair.end(&((), user), piece(user, 0), now);
            granted[user] += sizes[user];
            fair.ask(&((), user), piece(user, sizes[user]), user);
        }
        assert!(granted[0].abs_diff(granted[1]) <= 1000, "{granted:?}");
    }

    #[test]
    fn idle_time_is_neither_saved_nor_charged() {
        let now = Instant::now();
        let mut fair = Fair::new();
        for n in 0..1000 {
            fair.ask(&((), "early"), piece(0, 100), n);
            assert_eq!(fair.next(now), Some(n));
            fair.end(&((), "early"), piece(0, 0), now);
        }
        // The late user starts at the clock of the early one: from now on they take turns.
        let mut order = Vec::new();
        for n in 0..10 {
            fair.ask(&((), "early"), piece(0, 100), n);
            fair.ask(&((), "late"), piece(1, 100), 100 + n);
        }
        while let Some(ticket) = fair.next(now) {
            fair.end(&((), if ticket >= 100 { "late" } else { "early" }), piece(0, 0), now);
            order.push(ticket >= 100);
        }
        for pair in order.chunks(2) {
            assert_ne!(pair[0], pair[1], "{order:?}");
        }
    }

    #[test]
    fn principals_get_equal_bytes_whatever_their_user_names() {
        let mut all = vec![("one/name", 1000, 0); 8];
        all.extend((0..8).map(|n| (["many/a", "many/b", "many/c", "many/d"][n % 4], 1000, 0)));
        for slots in [2, 4, 16] {
            let moved = run(slots, &all, 2_000_000);
            let one = moved["one/name"];
            let many = moved.iter().filter(|(name, _)| name.starts_with("many")).map(|(_, bytes)| bytes).sum::<u64>();
            assert!(one * 100 > many * 90 && many * 100 > one * 90, "{slots}: {moved:?}");
            for name in ["many/a", "many/b", "many/c", "many/d"] {
                assert!(moved[name] * 100 > many / 4 * 80, "{slots}: {moved:?}");
            }
        }
    }

    #[test]
    fn one_connection_beside_two_hundred_of_another_principal_gets_a_third() {
        const NAMES: [&str; 5] = ["crowd/a", "crowd/b", "crowd/c", "crowd/d", "crowd/e"];
        for slots in [4, 16, 64] {
            let alone = run(slots, &[("one/name", 1000, 200)], 1_000_000)["one/name"];
            let mut crowd: Vec<_> =
                (0..200u64).zip(NAMES.iter().cycle()).map(|(n, name)| (*name, 850 + n * 37 % 300, 0)).collect();
            crowd.push(("one/name", 1000, 200));
            let moved = run(slots, &crowd, 1_000_000);
            assert!(moved["one/name"] * 10 > alone * 3, "{slots}: {moved:?}, alone {alone}");
            let all = moved.values().sum::<u64>();
            assert!(all > 900_000, "{slots}: it is not idle while somebody waits: {moved:?}");
        }
    }

    #[test]
    fn users_of_a_principal_share_its_part_by_their_connections_lead() {
        let now = Instant::now();
        let mut fair: Fair<&str, &str, usize, &str> = Fair::new();
        for n in 0..20 {
            fair.ask(&("p", "crowd"), piece(n, 1), "crowd");
        }
        fair.ask(&("p", "one"), piece(100, 1), "one");
        fair.ask(&("q", "other"), piece(101, 1), "other");
        let mut granted: Vec<_> = std::iter::from_fn(|| fair.next(now)).collect();
        granted.sort_unstable();
        // Beside `q` with one grant, `p` may have two; and its users share them.
        assert_eq!(granted, ["crowd", "one", "other"]);
    }

    #[test]
    fn idle_principals_users_and_connections_are_removed() {
        let start = Instant::now();
        let mut fair = Fair::new();
        for n in 1..100_000u64 {
            let now = start + Duration::from_millis(n);
            for whose in [(n, 0), (0, n), (0, 0)] {
                fair.ask(&whose, piece(n, 1), n);
                assert_eq!(fair.next(now), Some(n));
                fair.end(&whose, piece(n, 0), now);
            }
        }
        let principals = &mut fair.principals;
        assert!(principals.ready.is_empty());
        assert!(principals.sharers.len() <= IDLE_MAX + 2, "{}", principals.sharers.len());
        let users = principals.within(&0).unwrap();
        assert!(users.ready.is_empty());
        assert!(users.sharers.len() <= IDLE_MAX + 2, "{}", users.sharers.len());
        assert!(users.within(&0).is_none_or(|lines| lines.connections.len() <= IDLE_MAX + 2));
    }
}
