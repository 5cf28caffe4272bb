//! The manager's knowledge of its disk servers: which are online, which may still have a lease, and which have surely
//! stopped.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use types::{BootGeneration, BootId, NodeId, NodeRecord, SessionId};

use crate::{LeaseTerms, Time};

/// The number of one run of a node's process. The node counts its runs durably, so the higher of two numbers is the
/// later run. A run starts only when the earlier one has ended, because the node's directory is locked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct ProcessEpoch(pub u64);

/// The state of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Presence {
    /// The manager has heard from it recently.
    Online,
    /// The manager has not heard from it for some time. Its lease may still run.
    Suspect,
    /// Its lease has run out, or it has never registered. It answers nobody.
    Away,
}

impl fmt::Display for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Online => "online",
            Self::Suspect => "suspect",
            Self::Away => "away",
        })
    }
}

/// A node's request for a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Register {
    /// The node.
    pub node: NodeId,
    /// The process epoch of the node.
    pub process_epoch: ProcessEpoch,
    /// The boot of its kernel, as the journals of its disks record it (`journal::Journal::boot`). It also changes
    /// when a disk has lost unsynced bytes.
    pub boot: BootId,
    /// The number of the request. The lease counts from it.
    pub number: u64,
}

/// The manager's answer to [`Register`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Registered {
    /// Its session.
    pub session: SessionId,
    /// Its boot generation.
    pub boot_generation: BootGeneration,
    /// The number of the request.
    pub number: u64,
}

#[derive(Clone, Debug)]
struct Node {
    record: NodeRecord,
    session: Option<Session>,
}

#[derive(Clone, Copy, Debug)]
struct Session {
    id: SessionId,
    process_epoch: ProcessEpoch,
    heard: Time,
    expires: Time,
}

/// The sessions of all disk servers. This manager does not know the sessions of an earlier one. So for a full term
/// from its start, each node may have such a session.
#[derive(Clone, Debug)]
pub struct Sessions {
    terms: LeaseTerms,
    /// The lowest session number of this run.
    first: u64,
    given: u64,
    /// The latest moment at which a node may hold a lease of an earlier manager.
    others_until: Time,
    nodes: BTreeMap<NodeId, Node>,
    /// The highest boot generation that a record has, durable or not yet.
    last_boot_generation: BootGeneration,
    /// Records of nodes that are not durable yet.
    being_kept: BTreeMap<NodeId, NodeRecord>,
}

/// The number of sessions that one run of a manager can give. Runs have the same counter as clients that number their
/// requests, so there is room for 2^38 of both.
pub const SESSIONS_PER_RUN: u64 = 1 << 26;

impl Sessions {
    /// Starts a manager. `run` is the number of this run, higher than that of all earlier ones. `known` holds all
    /// present and former nodes.
    #[must_use]
    pub fn new(terms: LeaseTerms, run: SessionId, now: Time, known: impl IntoIterator<Item = NodeRecord>) -> Self {
        let nodes: BTreeMap<_, _> =
            known.into_iter().map(|record| (record.node, Node { record, session: None })).collect();
        Self {
            terms,
            first: run.0.saturating_mul(SESSIONS_PER_RUN),
            given: 0,
            others_until: now + terms.at_manager(),
            last_boot_generation: nodes.values().map(|node| node.record.boot_generation).max().unwrap_or_default(),
            being_kept: BTreeMap::new(),
            nodes,
        }
    }

    /// The sessions as another manager knows them: for each node its boot generation, and its session with the time until it ends. Nothing is changed
    /// here: this manager gives no sessions.
    #[must_use]
    pub fn followed(
        terms: LeaseTerms,
        now: Time,
        known: impl IntoIterator<Item = (NodeId, BootGeneration, Option<(SessionId, Duration)>)>,
    ) -> Self {
        let record = |node, boot_generation| NodeRecord { node, boot: BootId(0), boot_generation };
        let session = |(id, left): (SessionId, Duration)| {
            let left = left.min(terms.at_manager());
            Session { id, process_epoch: ProcessEpoch(0), heard: now, expires: now + left }
        };
        let node = |(node, boot_generation, of): (NodeId, BootGeneration, Option<_>)| {
            (node, Node { record: record(node, boot_generation), session: of.map(session) })
        };
        let nodes = known.into_iter().map(node).collect();
        Self { nodes, others_until: now, ..Self::new(terms, SessionId(0), now, []) }
    }

    /// Begins the numbers of sessions at a random distance. A manager that was restored from an old copy counts its
    /// runs from there, so it repeats the number of a run. Without this, a disk server could get the number of a
    /// session that it had with the lost manager, and would keep the state of that session.
    #[must_use]
    pub fn at_random_distance(mut self, random: u64) -> Self {
        // Half of the numbers of this run are left.
        self.first = self.first.saturating_add(random % (SESSIONS_PER_RUN / 2));
        self
    }

    /// Returns the terms of leases.
    #[must_use]
    pub fn terms(&self) -> LeaseTerms {
        self.terms
    }

    /// Returns the record of a node that must be durable before the node may [`Self::register`], if it is new. The
    /// record says what a node may have forgotten. Until the caller has confirmed it with [`Self::kept`], a
    /// repeated call returns the same record.
    pub fn to_keep(&mut self, request: &Register) -> Option<NodeRecord> {
        let is_late = |node: &Node| node.session.is_some_and(|session| session.process_epoch > request.process_epoch);
        let is_kept = |node: &Node| is_late(node) || node.record.boot == request.boot;
        if self.nodes.get(&request.node).is_some_and(is_kept) {
            return None;
        }
        let being_kept = self.being_kept.get(&request.node).filter(|record| record.boot == request.boot);
        let record = being_kept.copied().unwrap_or_else(|| {
            self.last_boot_generation = BootGeneration(self.last_boot_generation.0.saturating_add(1));
            NodeRecord { node: request.node, boot: request.boot, boot_generation: self.last_boot_generation }
        });
        self.being_kept.insert(request.node, record);
        Some(record)
    }

    /// Confirms that the record from [`Self::to_keep`] is durable.
    pub fn kept(&mut self, record: NodeRecord) {
        self.nodes.entry(record.node).or_insert(Node { record, session: None }).record = record;
        if self.being_kept.get(&record.node) == Some(&record) {
            self.being_kept.remove(&record.node);
        }
    }

    /// Gives a session. The same run of a process keeps its session. Returns `None` to a run that has ended, whose
    /// request is late, and to a node without a durable record.
    pub fn register(&mut self, now: Time, request: &Register) -> Option<Registered> {
        let node = self.nodes.get_mut(&request.node)?;
        if node.session.is_some_and(|session| session.process_epoch > request.process_epoch) {
            return None;
        }
        let expires = now + self.terms.at_manager();
        let same =
            node.session.filter(|session| session.process_epoch == request.process_epoch && now < session.expires);
        let id = same.map_or_else(
            || {
                self.given += 1;
                SessionId(self.first + self.given)
            },
            |session| session.id,
        );
        node.session = Some(Session { id, process_epoch: request.process_epoch, heard: now, expires });
        Some(Registered { session: id, boot_generation: node.record.boot_generation, number: request.number })
    }

    /// Extends a session. Returns `false` if the session is over or belongs to another manager; then the node must
    /// register again.
    pub fn renew(&mut self, now: Time, node: NodeId, session: SessionId) -> bool {
        let expires = now + self.terms.at_manager();
        let Some(current) = self.nodes.get_mut(&node).and_then(|node| node.session.as_mut()) else { return false };
        // A session that has run out is not extended, because the manager may have acted on its end already.
        if current.id != session || now >= current.expires {
            return false;
        }
        (current.heard, current.expires) = (now, expires);
        true
    }

    /// Forgets a node that has left the cluster. The caller has checked that it is away, and gives it no session after
    /// that. Its boot generation stays known, because its stores may have forgotten writes until another node has
    /// registered them.
    pub fn removed(&mut self, node: NodeId) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.session = None;
        }
    }

    /// Returns the session that a node may hold as valid.
    #[must_use]
    pub fn session(&self, now: Time, node: NodeId) -> Option<SessionId> {
        let session = self.nodes.get(&node)?.session.as_ref()?;
        (now < session.expires).then_some(session.id)
    }

    /// Returns how long a node may still hold a lease if it does not renew it; zero if it holds none.
    #[must_use]
    pub fn lease_left(&self, now: Time, node: NodeId) -> Duration {
        let session = self.nodes.get(&node).and_then(|node| node.session);
        session.map_or(self.others_until, |session| session.expires).since(now)
    }

    /// Whether this manager has started so recently that a node may not have registered yet.
    #[must_use]
    pub fn is_new(&self, now: Time) -> bool {
        now < self.others_until
    }

    /// Returns a node's boot generation; `None`: the node is unknown.
    #[must_use]
    pub fn boot_generation(&self, node: NodeId) -> Option<BootGeneration> {
        self.nodes.get(&node).map(|node| node.record.boot_generation)
    }

    /// Returns the state of a node.
    #[must_use]
    pub fn presence(&self, now: Time, node: NodeId) -> Presence {
        let Some(session) = self.nodes.get(&node).and_then(|node| node.session.as_ref()) else {
            return if now < self.others_until { Presence::Suspect } else { Presence::Away };
        };
        let late = self.terms.renew_every.saturating_mul(2).saturating_add(Duration::from_millis(500));
        if now >= session.expires {
            Presence::Away
        } else if now.since(session.heard) > late {
            Presence::Suspect
        } else {
            Presence::Online
        }
    }

    /// Whether a node may return soon: it has a session, or had one that ended less than `patience` ago. This is also
    /// true if the node has not registered with this manager, and the manager started less than `patience` ago.
    #[must_use]
    pub fn may_return(&self, now: Time, node: NodeId, patience: Duration) -> bool {
        let session = self.nodes.get(&node).and_then(|node| node.session.as_ref());
        now < session.map_or(self.others_until, |session| session.expires) + patience
    }

    /// Whether `node` has surely stopped answering in the session `seen`. `None` means the sessions of an earlier
    /// manager.
    #[must_use]
    pub fn has_ended(&self, now: Time, node: NodeId, seen: Option<SessionId>) -> bool {
        match (self.nodes.get(&node).and_then(|node| node.session.as_ref()), seen) {
            // A new session is given to a new run of the process, or to one that knows that its lease has run out.
            (Some(session), Some(seen)) => session.id != seen || now >= session.expires,
            (Some(_), None) => true,
            (None, _) => now >= self.others_until,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(3);

    fn at(ms: u64) -> Time {
        Time(Duration::from_millis(ms))
    }

    fn terms() -> LeaseTerms {
        LeaseTerms { term: Duration::from_secs(4), drift_ppm: 1000, renew_every: Duration::from_secs(1) }
    }

    fn register(sessions: &mut Sessions, now: Time, process_epoch: u64, boot: u128) -> Registered {
        let request =
            Register { node: NODE, process_epoch: ProcessEpoch(process_epoch), boot: BootId(boot), number: 1 };
        sessions.to_keep(&request).into_iter().for_each(|record| sessions.kept(record));
        sessions.register(now, &request).unwrap()
    }

    #[test]
    fn a_session_lasts_as_long_as_it_is_renewed() {
        let mut sessions = Sessions::new(terms(), SessionId(5), at(0), []);
        assert_eq!(sessions.presence(at(10), NODE), Presence::Suspect);
        let first = register(&mut sessions, at(100), 1, 1);
        assert_eq!((first.boot_generation, sessions.presence(at(200), NODE)), (BootGeneration(1), Presence::Online));
        assert!(sessions.renew(at(3000), NODE, first.session));
        assert_eq!(sessions.presence(at(5900), NODE), Presence::Suspect);
        assert!(!sessions.has_ended(at(7000), NODE, Some(first.session)));
        assert!(sessions.has_ended(at(7010), NODE, Some(first.session)));
        assert!(!sessions.renew(at(7010), NODE, first.session), "what has run out is not woken again");
        assert_eq!(sessions.presence(at(7010), NODE), Presence::Away);
        // The same process registers again. It knows that its lease has run out.
        let second = register(&mut sessions, at(8000), 1, 1);
        assert!(second.session > first.session && second.boot_generation == first.boot_generation);
        assert!(!sessions.renew(at(8001), NODE, first.session));
    }

    #[test]
    fn a_run_after_a_hundred_billion_clients_still_gives_new_sessions() {
        let mut sessions = Sessions::new(terms(), SessionId(100_000_000_000), at(0), []).at_random_distance(u64::MAX);
        let first = register(&mut sessions, at(100), 1, 1).session;
        let second = register(&mut sessions, at(8000), 1, 1).session;
        let next_run = Sessions::new(terms(), SessionId(100_000_000_001), at(0), []).at_random_distance(0);
        assert!(first < second && second < register(&mut { next_run }, at(100), 1, 1).session);
    }

    #[test]
    fn runs_with_the_same_number_give_different_sessions() {
        let started = |run, random| Sessions::new(terms(), SessionId(run), at(0), []).at_random_distance(random);
        let given = |run, random| register(&mut started(run, random), at(100), 1, 1).session;
        let (lost, restored) = (given(5, 70_000), given(5, u64::MAX));
        assert_ne!(lost, restored);
        assert!(lost.0.max(restored.0) + SESSIONS_PER_RUN / 2 - 1 <= given(6, 0).0, "a later run's are above");
    }

    #[test]
    fn a_node_that_left_recently_may_return() {
        let patience = Duration::from_secs(3);
        let mut sessions = Sessions::new(terms(), SessionId(5), at(0), []);
        // A term is 4,004 ms and 1 us here.
        assert!(sessions.may_return(at(7004), NODE, patience) && !sessions.may_return(at(7005), NODE, patience));
        let first = register(&mut sessions, at(100_000), 1, 1);
        assert!(sessions.renew(at(101_000), NODE, first.session));
        assert_eq!(sessions.presence(at(105_005), NODE), Presence::Away);
        assert!(sessions.may_return(at(108_004), NODE, patience) && !sessions.may_return(at(108_005), NODE, patience));
    }

    #[test]
    fn another_run_of_the_process_gets_another_session_and_another_boot_another_boot_generation() {
        let mut sessions = Sessions::new(terms(), SessionId(5), at(0), []);
        let first = register(&mut sessions, at(100), 1, 1);
        assert_eq!(register(&mut sessions, at(150), 1, 1).session, first.session, "a repeated request");
        let killed = register(&mut sessions, at(200), 2, 1);
        assert!(killed.session != first.session && killed.boot_generation == first.boot_generation);
        assert!(sessions.has_ended(at(201), NODE, Some(first.session)), "its process is gone");
        let late = Register { node: NODE, process_epoch: ProcessEpoch(1), boot: BootId(1), number: 1 };
        assert_eq!(sessions.register(at(210), &late), None, "a request of the run before");
        assert_eq!(sessions.session(at(210), NODE), Some(killed.session));
        let booted = register(&mut sessions, at(300), 3, 2);
        assert_eq!(booted.boot_generation, BootGeneration(2));
    }

    #[test]
    fn a_node_that_is_gone_for_good_leaves_its_boot_generation() {
        let mut sessions = Sessions::new(terms(), SessionId(5), at(0), []);
        let first = register(&mut sessions, at(100), 1, 1);
        assert_eq!(sessions.presence(at(9000), NODE), Presence::Away);
        sessions.removed(NODE);
        assert_eq!(
            (sessions.boot_generation(NODE), sessions.session(at(9000), NODE)),
            (Some(first.boot_generation), None)
        );
        assert_eq!(sessions.presence(at(9000), NODE), Presence::Away);
        assert!(
            sessions.has_ended(at(9000), NODE, Some(first.session)) && !sessions.renew(at(9000), NODE, first.session)
        );
    }

    #[test]
    fn no_two_nodes_are_ever_in_the_same_boot_generation() {
        let record = |node, boot_generation| NodeRecord {
            node: NodeId(node),
            boot: BootId(1),
            boot_generation: BootGeneration(boot_generation),
        };
        // For example, the second node is no longer in the cluster.
        let mut sessions = Sessions::new(terms(), SessionId(6), at(0), [record(3, 4), record(4, 9)]);
        let request =
            |node, boot| Register { node: NodeId(node), process_epoch: ProcessEpoch(1), boot: BootId(boot), number: 1 };
        assert_eq!(sessions.to_keep(&request(3, 1)), None, "it is known");
        let (first, second) = (sessions.to_keep(&request(5, 7)), sessions.to_keep(&request(6, 7)));
        assert_eq!(
            (first.unwrap().boot_generation, second.unwrap().boot_generation),
            (BootGeneration(10), BootGeneration(11)),
            "neither is kept yet"
        );
        assert_eq!(sessions.to_keep(&request(5, 7)), first, "it asks again before that");
        sessions.kept(first.unwrap());
        assert_eq!(sessions.register(at(10), &request(5, 7)).unwrap().boot_generation, BootGeneration(10));
        assert_eq!(sessions.to_keep(&request(5, 7)), None);
        assert_eq!(sessions.register(at(20), &request(7, 1)), None, "nothing is kept of it");
        let booted = Register { process_epoch: ProcessEpoch(2), ..request(3, 2) };
        assert_eq!(sessions.to_keep(&booted).unwrap().boot_generation, BootGeneration(12));
    }

    #[test]
    fn a_new_manager_takes_nothing_away_for_a_full_term() {
        let record = NodeRecord { node: NODE, boot: BootId(1), boot_generation: BootGeneration(4) };
        let mut sessions = Sessions::new(terms(), SessionId(6), at(0), [record]);
        assert!(!sessions.has_ended(at(4000), NODE, None) && sessions.has_ended(at(4005), NODE, None));
        assert!(sessions.is_new(at(4000)) && !sessions.is_new(at(4005)));
        assert!(!sessions.renew(at(10), NODE, SessionId(5 * SESSIONS_PER_RUN + 1)), "a session of the manager before");
        let again = register(&mut sessions, at(20), 1, 1);
        assert_eq!(again.boot_generation, BootGeneration(4));
        assert!(again.session.0 > 5 * SESSIONS_PER_RUN + 1);
    }
}
