//! Connections of servers with the manager and with each other.

use std::collections::BTreeMap;
use std::time::Duration;

use super::World;
use crate::events::{Connection, Event};
use crate::message::{Addr, Message};

/// A connection is closed after this time without messages.
const SILENCE: Duration = Duration::from_secs(2);

/// The greatest age of a held message. Messages wait here while their route is cut. Servers remember a finished open write for longer than
/// that.
const HELD_MAX: Duration = Duration::from_secs(7);

/// A server's connection with the manager.
#[derive(Clone, Copy, Default)]
struct Link {
    /// The runs of the two processes.
    between: Option<(u64, u64)>,
    /// The time at which a message on it was lost.
    lost: Option<Duration>,
}

/// The connection of two servers.
#[derive(Clone, Copy, Default)]
struct Pair {
    /// The number of the last connection.
    number: u64,
    /// Whether it is up. A connection that has just ended sends nothing, but its earlier messages may arrive until the next one is up.
    is_up: bool,
}

/// See the module.
pub(super) struct Links {
    /// By manager and server.
    with_managers: BTreeMap<(usize, usize), Link>,
    /// Keyed by the numbers of both servers, the lower one first.
    pairs: BTreeMap<(usize, usize), Pair>,
    /// Messages that wait for their route to open again, by sender and receiver.
    held: BTreeMap<(Addr, Addr), Vec<Held>>,
}

/// A waiting message, and when it was sent.
struct Held {
    since: Duration,
    connection: Connection,
    message: Message,
}

impl Links {
    pub(super) fn new() -> Self {
        Self { with_managers: BTreeMap::new(), pairs: BTreeMap::new(), held: BTreeMap::new() }
    }

    fn pair(&mut self, one: usize, other: usize) -> &mut Pair {
        self.pairs.entry((one.min(other), one.max(other))).or_default()
    }

    fn of(&self, one: usize, other: usize) -> Pair {
        self.pairs.get(&(one.min(other), one.max(other))).copied().unwrap_or_default()
    }

    pub(super) fn is_up(&self, one: usize, other: usize) -> bool {
        self.of(one, other).is_up
    }

    /// One of two servers closes their connection.
    pub(super) fn hang_up(&mut self, one: usize, other: usize) {
        self.pair(one, other).is_up = false;
    }

    /// A server's process has ended.
    pub(super) fn end(&mut self, server: usize) {
        let with_it = self.pairs.iter_mut().filter(|((one, other), _)| [*one, *other].contains(&server));
        with_it.for_each(|(_, pair)| pair.is_up = false);
    }

    /// From now on, messages on this route are kept until it opens again.
    pub(super) fn hold_from_now_on(&mut self, from: Addr, to: Addr) {
        self.held.entry((from, to)).or_default();
    }

    /// Keeps a message. `false` if the route is not held, so the message is lost.
    pub(super) fn hold(
        &mut self,
        from: Addr,
        to: Addr,
        (since, connection, message): (Duration, Connection, &Message),
    ) -> bool {
        let held = self.held.get_mut(&(from, to));
        held.map(|held| held.push(Held { since, connection, message: message.clone() })).is_some()
    }

    pub(super) fn drop_held(&mut self) {
        self.held.clear();
    }

    /// Records a lost message between a server and the manager.
    pub(super) fn lose(&mut self, manager: usize, server: usize, now: Duration) {
        self.with_managers.entry((manager, server)).or_default().lost.get_or_insert(now);
    }
}

impl World {
    /// The present connection. It lasts until one of the processes ends; between two servers, until one of them closes it.
    pub(super) fn connection(&self, from: Addr, to: Addr) -> Connection {
        let number = match (from, to) {
            (Addr::Server(one), Addr::Server(other)) => self.links.of(one, other).number,
            _ => 0,
        };
        (self.run_of(from), self.run_of(to), number)
    }

    /// A route opens again: its waiting messages arrive, if their connection still exists.
    pub(super) fn deliver_held(&mut self, from: Addr, to: Addr) {
        let mut at = self.now;
        for Held { since, connection, message } in self.links.held.remove(&(from, to)).unwrap_or_default() {
            if self.now.saturating_sub(since) >= HELD_MAX {
                self.counts.lost += 1;
                continue;
            }
            at += Duration::from_micros(50);
            self.events.plan(at, Event::Deliver { from, to, connection, message });
        }
    }

    /// Connects a server to all servers that admit it and that it can reach.
    pub(super) fn dial_others(&mut self, server: usize) {
        for other in (0..self.servers.len()).filter(|other| *other != server) {
            let (here, there) = (Addr::Server(server), Addr::Server(other));
            let is_cut = self.cut.contains(&(here, there)) || self.cut.contains(&(there, here));
            let lets_in = |one: usize, other: usize| {
                self.servers[one].process.as_ref().is_some_and(|process| process.knows(other))
            };
            if is_cut || self.links.is_up(server, other) || !lets_in(server, other) || !lets_in(other, server) {
                continue;
            }
            let pair = self.links.pair(server, other);
            *pair = Pair { number: pair.number + 1, is_up: true };
            self.tell(|| format!("{here:?} and {there:?} are connected"));
            for (one, other) in [(server, other), (other, server)] {
                self.with(Addr::Server(one), |world, env| {
                    if let Some(process) = &mut world.servers[one].process {
                        process.node_connected(other, env);
                    }
                });
            }
        }
    }

    /// Connections between servers and a manager end with a process or after silence. This makes new ones.
    pub(super) fn look_at_links(&mut self, at: usize) {
        for server in 0..self.servers.len() {
            let (here, there) = (Addr::Server(server), Addr::Manager(at));
            let runs = (self.managers[at].process_epoch, self.servers[server].process_epoch);
            let is_cut = self.cut.contains(&(here, there)) || self.cut.contains(&(there, here));
            let link = self.links.with_managers.get(&(at, server)).copied().unwrap_or_default();
            let is_silent = link.lost.is_some_and(|since| !is_cut || self.now.saturating_sub(since) >= SILENCE);
            if link.between.is_some_and(|between| between != runs || is_silent || !self.is_up(here)) {
                self.links.with_managers.remove(&(at, server));
                if let Some(manager) = &mut self.managers[at].process {
                    manager.disconnected(server);
                }
                self.tell_server(server, at, false);
            }
            let is_connected = self.links.with_managers.get(&(at, server)).is_some_and(|link| link.between.is_some());
            if !is_connected && !is_cut && self.is_up(here) && self.managers[at].process.is_some() {
                self.links.with_managers.insert((at, server), Link { between: Some(runs), lost: None });
                if let Some(manager) = &mut self.managers[at].process {
                    manager.connected(server);
                }
                self.tell_server(server, at, true);
            }
        }
    }

    /// A server notices that the process of a manager has ended, or is not the active one any more.
    pub(super) fn look_at_ended_managers(&mut self, server: usize) {
        for at in 0..self.managers.len() {
            let link = self.links.with_managers.get(&(at, server)).copied().unwrap_or_default();
            let is_there = self.managers[at].process.is_some();
            let run = self.managers[at].process_epoch;
            if link.between.is_some_and(|(of, _)| of != run || !is_there) {
                self.links.with_managers.remove(&(at, server));
                self.tell_server(server, at, false);
            }
        }
    }

    fn tell_server(&mut self, server: usize, manager: usize, is_connected: bool) {
        self.with(Addr::Server(server), |world, env| match &mut world.servers[server].process {
            Some(process) if is_connected => process.connected(manager, env),
            Some(process) => process.disconnected(manager, env),
            None => {}
        });
    }
}
