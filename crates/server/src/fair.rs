//! Who is next, where several want the same and not all can have it at once: by start-time fair queueing, first among users, then
//! among the connections of the user whose turn it is.
//!
//! Each user has a clock that is put forward by the bytes it was granted; the one whose clock is furthest behind is next. Who comes
//! anew, or after a pause, starts where the others are: nobody saves up for later, and nobody has to make up for what it took while
//! nobody else wanted it.
//!
//! That alone would not do: who has one connection has one grant at a time, and what all grants use together (disk, processors) would be
//! left to it in one part of as many as there are grants. So a user has at most [`LEAD`] more of them at a time than another one who
//! is busy too. A user alone has them all.
//!
//! Decisions only: no threads, no locks; the time is handed in.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Those who are remembered although they want nothing are looked through when there are so many more than those who do.
const IDLE_MAX: usize = 64;
/// Grants that a user may have more at a time than another busy one: with 1, one connection beside many of another user has a third of
/// what all grants use, or more.
const LEAD: usize = 1;
/// Who comes back so soon after the end of a grant, or within twice the time that its grants take, was busy all the time: it is not
/// its client that it waits for. Those who come back later are limited by themselves, and nobody makes way for them.
const BREATH: Duration = Duration::from_millis(5);
const BREATH_MAX: Duration = Duration::from_millis(100);

/// Those who wait: users `U`, who have connections `C`, which wait with a ticket `T`.
pub(crate) struct Fair<U, C, T> {
    users: HashMap<U, User<C, T>>,
    /// The users who wait, by their clocks; the number tells equal ones apart, first come first.
    ready: BTreeMap<(u64, u64), U>,
    /// The clock of the user who was granted something last: where those start who come anew.
    clock: u64,
    count: u64,
}

struct User<C, T> {
    clock: u64,
    /// Its key in `ready`, while it waits.
    ready: Option<(u64, u64)>,
    waiting: BTreeMap<(u64, u64), Waiting<C, T>>,
    /// Grants that have not ended.
    granted: usize,
    /// When the last grant was given, and when the last one ended.
    began: Option<Instant>,
    ended: Option<Instant>,
    /// How long after that it still counts as busy.
    breath: Duration,
    connections: HashMap<C, u64>,
    /// As `Fair::clock`, among its connections.
    inner: u64,
}

struct Waiting<C, T> {
    connection: C,
    bytes: u64,
    ticket: T,
}

impl<C, T> User<C, T> {
    /// How many grants it uses, as far as others are concerned; `None`: it wants none.
    fn busy(&self, now: Instant) -> Option<usize> {
        let just_ended = self.ended.is_some_and(|ended| now.saturating_duration_since(ended) < self.breath);
        (self.granted > 0 || self.ready.is_some() || just_ended).then(|| self.granted.max(1))
    }
}

impl<U: Clone + Eq + Hash, C: Copy + Eq + Hash, T> Fair<U, C, T> {
    pub(crate) fn new() -> Self {
        Self { users: HashMap::new(), ready: BTreeMap::new(), clock: 0, count: 0 }
    }

    /// `connection` of `user` wants to move `bytes`.
    pub(crate) fn ask(&mut self, user: &U, connection: C, bytes: u64, ticket: T) {
        self.count += 1;
        let now = self.clock;
        let entry = self.users.entry(user.clone()).or_insert_with(|| User {
            clock: now,
            ready: None,
            waiting: BTreeMap::new(),
            granted: 0,
            began: None,
            ended: None,
            breath: BREATH,
            connections: HashMap::new(),
            inner: 0,
        });
        let start = entry.connections.get(&connection).map_or(entry.inner, |clock| (*clock).max(entry.inner));
        entry.waiting.insert((start, self.count), Waiting { connection, bytes, ticket });
        if entry.ready.is_none() {
            entry.clock = entry.clock.max(now);
            let key = (entry.clock, self.count);
            entry.ready = Some(key);
            self.ready.insert(key, user.clone());
        }
    }

    /// Whose turn it is; it does not wait any more. `None`: nobody's, until somebody's ends.
    pub(crate) fn next(&mut self, now: Instant) -> Option<T> {
        let key = self.first_that_may(now)?;
        let user = self.ready.remove(&key)?;
        let (clock, _) = key;
        self.clock = self.clock.max(clock);
        let entry = self.users.get_mut(&user)?;
        entry.ready = None;
        let ((start, _), first) = entry.waiting.pop_first()?;
        entry.granted += 1;
        entry.began = Some(now);
        entry.inner = start;
        entry.connections.insert(first.connection, start.saturating_add(first.bytes));
        entry.clock = clock.saturating_add(first.bytes);
        if !entry.waiting.is_empty() {
            self.count += 1;
            let key = (entry.clock, self.count);
            entry.ready = Some(key);
            self.ready.insert(key, user);
        }
        if entry.connections.len() > entry.waiting.len() + IDLE_MAX {
            // Who is forgotten starts where the others are when it comes again: at most a piece earlier than it would.
            let waiting: HashSet<C> = entry.waiting.values().map(|waiting| waiting.connection).collect();
            entry.connections.retain(|connection, _| waiting.contains(connection));
        }
        if self.users.len() > self.ready.len() + IDLE_MAX {
            let clock = self.clock;
            self.users.retain(|_, user| user.busy(now).is_some() || user.clock > clock);
        }
        Some(first.ticket)
    }

    /// A grant of `user` has ended.
    pub(crate) fn end(&mut self, user: &U, now: Instant) {
        if let Some(entry) = self.users.get_mut(user) {
            entry.granted = entry.granted.saturating_sub(1);
            entry.ended = Some(now);
            let took = entry.began.map_or(Duration::ZERO, |began| now.saturating_duration_since(began));
            // A long grant (to the disk) often follows several short ones (from the socket).
            entry.breath = (took * 2).max(entry.breath / 4 * 3).clamp(BREATH, BREATH_MAX);
        }
    }

    /// The waiting user furthest behind that has not [`LEAD`] grants more than the busiest other one.
    fn first_that_may(&self, now: Instant) -> Option<(u64, u64)> {
        // The two busiest: of a user who is one of them the other counts.
        let mut most: [Option<usize>; 2] = [None; 2];
        for busy in self.users.values().filter_map(|user| user.busy(now)) {
            if Some(busy) > most[0] {
                most = [Some(busy), most[0]];
            } else if Some(busy) > most[1] {
                most[1] = Some(busy);
            }
        }
        let may = |user: &User<C, T>| {
            let other = if user.busy(now) == most[0] { most[1] } else { most[0] };
            other.is_none_or(|other| user.granted < other + LEAD)
        };
        self.ready.iter().find(|(_, user)| self.users.get(user).is_some_and(&may)).map(|(key, _)| *key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that moves up to `slots` pieces at a time, and all together at a byte a tick (a microsecond), as a disk does; what each
    /// user has moved after `ticks`. Every connection asks for its next piece `pause` ticks after the last one was done.
    fn run(slots: usize, connections: &[(&'static str, u64, u64)], ticks: u64) -> HashMap<&'static str, u64> {
        let start = Instant::now();
        let mut fair: Fair<&'static str, usize, usize> = Fair::new();
        let mut wanted: Vec<u64> = vec![0; connections.len()]; // when it asks next
        let mut asks: Vec<usize> = (0..connections.len()).collect();
        let mut under_way: Vec<(usize, u64)> = Vec::new(); // whose, and what is left of it
        let mut moved = HashMap::new();
        let mut tick = 0;
        while tick < ticks {
            let now = start + Duration::from_micros(tick);
            asks.retain(|whose| {
                let due = wanted[*whose] <= tick;
                if due {
                    fair.ask(&connections[*whose].0, *whose, connections[*whose].1, *whose);
                }
                !due
            });
            while under_way.len() < slots {
                let Some(next) = fair.next(now) else { break };
                under_way.push((next, connections[next].1));
            }
            // A hundred ticks on, in equal parts.
            let step = 100;
            let part = (step / under_way.len().max(1) as u64).max(1);
            for (_, left) in &mut under_way {
                *left = left.saturating_sub(part);
            }
            tick += step;
            under_way.retain(|(whose, left)| {
                if *left == 0 {
                    let (user, bytes, pause) = connections[*whose];
                    fair.end(&user, now);
                    *moved.entry(user).or_default() += bytes;
                    wanted[*whose] = tick + pause;
                    asks.push(*whose);
                }
                *left > 0
            });
        }
        moved
    }

    #[test]
    fn one_connection_beside_two_hundred_of_another_user_keeps_a_third() {
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
    fn users_share_by_bytes_whatever_they_have_of_connections_and_sizes() {
        let mut all = vec![("many small", 500, 0); 100];
        all.extend(vec![("few large", 4000, 0); 20]);
        let moved = run(16, &all, 2_000_000);
        let (a, b) = (moved["many small"], moved["few large"]);
        assert!(a * 100 > b * 90 && b * 100 > a * 90, "{moved:?}");
    }

    #[test]
    fn a_user_alone_has_all_grants_and_one_that_waits_for_its_client_is_in_nobodys_way() {
        let start = Instant::now();
        let mut fair = Fair::new();
        let ask_all = |fair: &mut Fair<&str, usize, usize>| (0..20).for_each(|n| fair.ask(&"crowd", n, 1, n));
        ask_all(&mut fair);
        let grants = |fair: &mut Fair<&str, usize, usize>, now| std::iter::from_fn(|| fair.next(now)).count();
        assert_eq!(grants(&mut fair, start), 20);
        (0..20).for_each(|_| fair.end(&"crowd", start));
        fair.ask(&"slow", 100, 1, 100);
        assert_eq!(fair.next(start), Some(100));
        ask_all(&mut fair);
        assert_eq!(grants(&mut fair, start), 1 + LEAD, "as long as it is busy");
        fair.end(&"slow", start);
        assert_eq!(grants(&mut fair, start + BREATH / 2), 0, "it may come back at once");
        assert_eq!(grants(&mut fair, start + BREATH), 20 - 1 - LEAD, "it has not");
        // Where grants take long, longer pauses between them are no sign of a slow client.
        (0..20).for_each(|_| fair.end(&"crowd", start));
        let later = start + Duration::from_secs(1);
        fair.ask(&"slow", 100, 1, 100);
        assert_eq!(fair.next(later), Some(100));
        let done = later + BREATH * 4;
        fair.end(&"slow", done);
        ask_all(&mut fair);
        assert_eq!(grants(&mut fair, done + BREATH * 7), 1 + LEAD);
        assert_eq!(grants(&mut fair, done + BREATH * 8), 20 - 1 - LEAD);
    }

    #[test]
    fn connections_of_a_user_share_by_bytes_too() {
        let now = Instant::now();
        let mut fair = Fair::new();
        let mut granted = [0u64; 2];
        let sizes = [100, 900];
        for (connection, bytes) in sizes.into_iter().enumerate() {
            fair.ask(&"me", connection, bytes, connection);
        }
        for _ in 0..10_000 {
            let connection = fair.next(now).unwrap();
            fair.end(&"me", now);
            granted[connection] += sizes[connection];
            fair.ask(&"me", connection, sizes[connection], connection);
        }
        assert!(granted[0].abs_diff(granted[1]) <= 1000, "{granted:?}");
    }

    #[test]
    fn users_take_turns_by_bytes() {
        let now = Instant::now();
        let mut fair = Fair::new();
        let mut granted = [0u64; 2];
        let sizes = [100, 900];
        (0..2).for_each(|user| fair.ask(&user, user, sizes[user], user));
        for _ in 0..10_000 {
            let user = fair.next(now).unwrap();
            fair.end(&user, now);
            granted[user] += sizes[user];
            fair.ask(&user, user, sizes[user], user);
        }
        assert!(granted[0].abs_diff(granted[1]) <= 1000, "{granted:?}");
    }

    #[test]
    fn nobody_saves_up_and_nobody_pays_for_what_others_did_not_want() {
        let now = Instant::now();
        let mut fair = Fair::new();
        for n in 0..1000 {
            fair.ask(&"early", 0, 100, n);
            assert_eq!(fair.next(now), Some(n));
            fair.end(&"early", now);
        }
        // The late one starts where the early one is: they take turns from now on.
        let mut order = Vec::new();
        for n in 0..10 {
            fair.ask(&"early", 0, 100, n);
            fair.ask(&"late", 1, 100, 100 + n);
        }
        while let Some(ticket) = fair.next(now) {
            fair.end(if ticket >= 100 { &"late" } else { &"early" }, now);
            order.push(ticket >= 100);
        }
        for pair in order.chunks(2) {
            assert_ne!(pair[0], pair[1], "{order:?}");
        }
    }

    #[test]
    fn who_has_gone_is_forgotten() {
        let start = Instant::now();
        let mut fair = Fair::new();
        for n in 1..100_000u64 {
            let now = start + Duration::from_millis(n);
            for user in [n, 0] {
                fair.ask(&user, n, 1, n);
                assert_eq!(fair.next(now), Some(n));
                fair.end(&user, now);
            }
        }
        assert!(fair.ready.is_empty());
        assert!(fair.users.len() <= IDLE_MAX + 2, "{}", fair.users.len());
        assert!(fair.users.get(&0).is_none_or(|user| user.connections.len() <= IDLE_MAX + 2));
    }
}
