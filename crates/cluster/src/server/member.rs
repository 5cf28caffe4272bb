//! A disk server's side of its session.

use types::{BootGeneration, BootId, NodeId, SessionId, Timestamp};

use crate::message::ToManager;
use crate::replication::LeaseView;
use crate::{Lease, LeaseTerms, ProcessEpoch, Register, Registered, Time};

/// What a disk server may do at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View {
    /// Its session and lease.
    pub lease: LeaseView,
    /// Its boot generation; `None`: it has had no session since its process started.
    pub boot_generation: Option<BootGeneration>,
    /// The process epoch of its node.
    pub process_epoch: ProcessEpoch,
}

/// Registers with the manager, and renews the lease.
#[derive(Clone, Debug)]
pub struct Member {
    node: NodeId,
    process_epoch: ProcessEpoch,
    boot: BootId,
    terms: LeaseTerms,
    lease: Lease,
    session: Option<SessionId>,
    boot_generation: Option<BootGeneration>,
    /// The manager's time of day in its last answer, and when the server sent that request.
    manager_said: Option<(Timestamp, Time)>,
    /// When the server last sent a request to the manager.
    asked: Option<Time>,
}

impl Member {
    /// Starts without a session. `terms` are used until the manager sends its own.
    #[must_use]
    pub fn new(node: NodeId, process_epoch: ProcessEpoch, boot: BootId, terms: LeaseTerms) -> Self {
        let lease = Lease::new(terms);
        Self {
            node,
            process_epoch,
            boot,
            terms,
            lease,
            session: None,
            boot_generation: None,
            manager_said: None,
            asked: None,
        }
    }

    /// Returns the message that the manager must get now, if any. The shell calls this several times a second.
    pub fn tick(&mut self, now: Time) -> Option<ToManager> {
        let every = self.terms.renew_every;
        let every = if self.session.is_some() { every } else { every / 2 };
        if self.asked.is_some_and(|asked| now.since(asked) < every) {
            return None;
        }
        self.asked = Some(now);
        let (node, number) = (self.node, self.lease.ask(now));
        Some(match self.session {
            Some(session) => ToManager::Renew { node, session, number },
            None => ToManager::Register(Register { node, process_epoch: self.process_epoch, boot: self.boot, number }),
        })
    }

    /// The manager gives a session, and its time of day. Returns `true` if the session is a new one. Then the shell
    /// must first end the connections from other stores (see the module).
    pub fn registered(&mut self, registered: &Registered, terms: LeaseTerms, wall: Timestamp) -> bool {
        // Nobody waits for this answer, so it is late, and its session may be over.
        if !self.lease.is_asked(registered.number) {
            return false;
        }
        if terms.are_sound() && terms != self.terms {
            self.terms = terms;
            self.lease.set_terms(terms);
        }
        if self.session == Some(registered.session) {
            let sent = self.lease.granted(registered.number);
            self.manager_says(wall, sent);
            return false;
        }
        (self.session, self.boot_generation) = (Some(registered.session), Some(registered.boot_generation));
        let sent = self.lease.granted_in_new_session(registered.number);
        self.manager_says(wall, sent);
        true
    }

    /// The manager extends a session, and sends its time of day.
    pub fn renewed(&mut self, session: SessionId, number: u64, wall: Timestamp) {
        if self.session == Some(session) {
            let sent = self.lease.granted(number);
            self.manager_says(wall, sent);
        }
    }

    fn manager_says(&mut self, wall: Timestamp, sent: Option<Time>) {
        self.manager_said = sent.map(|sent| (wall, sent)).or(self.manager_said);
    }

    /// Returns the manager's time of day, or an earlier one: like the lease, it counts from when the server sent
    /// the request. So nothing that expires by that clock is accepted for too long. Only the manager's clock counts
    /// as time of day. `None`: the manager has not answered since the process started.
    #[must_use]
    pub fn manager_time(&self, now: Time) -> Option<Timestamp> {
        self.manager_said.map(|(wall, sent)| wall.plus(now.since(sent)))
    }

    /// The manager says that a session is over.
    pub fn no_session(&mut self, session: SessionId) {
        if self.session == Some(session) {
            (self.session, self.asked) = (None, None);
            self.lease.end();
        }
    }

    /// Returns the session, if there is one.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// Returns what the server may do now.
    #[must_use]
    pub fn view(&self, now: Time) -> View {
        let lease = LeaseView { session: self.session, is_valid: self.lease.is_valid(now) };
        View { lease, boot_generation: self.boot_generation, process_epoch: self.process_epoch }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(ms: u64) -> Time {
        Time(Duration::from_millis(ms))
    }

    const WALL: Timestamp = Timestamp(1_800_000_000_000_000_000);

    fn number_of(told: Option<ToManager>) -> u64 {
        match told {
            Some(ToManager::Register(Register { number, .. }) | ToManager::Renew { number, .. }) => number,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_server_registers_until_it_has_a_session_and_then_renews_it() {
        let terms = LeaseTerms::default();
        let mut member = Member::new(NodeId(3), ProcessEpoch(4), BootId(5), terms);
        let told = member.tick(at(0));
        let Some(ToManager::Register(Register {
            node: NodeId(3),
            process_epoch: ProcessEpoch(4),
            boot: BootId(5),
            ..
        })) = told
        else {
            panic!("{told:?}")
        };
        let first = number_of(told);
        assert_eq!(member.tick(at(400)), None);
        let second = number_of(member.tick(at(500)));
        let given =
            |number, session| Registered { session: SessionId(session), boot_generation: BootGeneration(1), number };
        assert!(member.registered(&given(second, 8), terms, WALL));
        assert_eq!(member.view(at(600)).lease, LeaseView { session: Some(SessionId(8)), is_valid: true });
        assert!(!member.registered(&given(first, 7), terms, WALL), "the answer to an older request, late");
        let told = member.tick(at(1500));
        assert!(matches!(told, Some(ToManager::Renew { session: SessionId(8), .. })), "{told:?}");
        member.renewed(SessionId(8), number_of(told), WALL);
        assert!(member.view(at(6000)).lease.is_valid && !member.view(at(6451)).lease.is_valid);
        // The manager does not know that session. Its lease no longer counts, and the server asks for another one
        // at once.
        member.no_session(SessionId(7));
        assert_eq!(member.session(), Some(SessionId(8)));
        member.no_session(SessionId(8));
        assert_eq!(member.view(at(1600)).lease, LeaseView { session: None, is_valid: false });
        let third = number_of(member.tick(at(1600)));
        assert!(member.registered(&given(third, 9), terms, WALL) && member.view(at(6500)).lease.is_valid);
    }

    #[test]
    fn a_lease_does_not_count_in_another_session() {
        let terms = LeaseTerms::default();
        let mut member = Member::new(NodeId(3), ProcessEpoch(4), BootId(5), terms);
        let (first, second) = (number_of(member.tick(at(0))), number_of(member.tick(at(4000))));
        assert!(member.registered(
            &Registered { session: SessionId(8), boot_generation: BootGeneration(1), number: second },
            terms,
            WALL
        ));
        // As if the answers belonged to two requests, the second one sent first.
        assert!(!member.registered(
            &Registered { session: SessionId(9), boot_generation: BootGeneration(1), number: first },
            terms,
            WALL
        ));
        assert_eq!(member.session(), Some(SessionId(8)));
    }

    #[test]
    fn the_time_of_day_comes_from_the_manager() {
        let terms = LeaseTerms::default();
        let mut member = Member::new(NodeId(3), ProcessEpoch(4), BootId(5), terms);
        assert_eq!(member.manager_time(at(70)), None);
        let later = |wall: Timestamp, ms| wall.plus(Duration::from_millis(ms));
        let first = number_of(member.tick(at(100)));
        let given =
            |number, session| Registered { session: SessionId(session), boot_generation: BootGeneration(1), number };
        member.registered(&given(first, 8), terms, WALL);
        // However late the answer is, it was made after the request was sent.
        assert_eq!(member.manager_time(at(700)), Some(later(WALL, 600)));
        // The manager's clock is corrected, in either direction: the answer to the latest request counts, not one
        // that arrives after it.
        let (second, third) = (number_of(member.tick(at(1100))), number_of(member.tick(at(2100))));
        let set = later(WALL, 600_000);
        member.renewed(SessionId(8), third, set);
        assert_eq!(member.manager_time(at(2100)), Some(set));
        member.renewed(SessionId(8), second, WALL);
        let of_another = number_of(member.tick(at(3100)));
        member.renewed(SessionId(7), of_another, WALL);
        assert_eq!(member.manager_time(at(4100)), Some(later(set, 2000)));
        // The same holds for another manager.
        member.no_session(SessionId(8));
        let fourth = number_of(member.tick(at(4200)));
        assert!(member.registered(&given(fourth, 9), terms, WALL));
        assert_eq!(member.manager_time(at(4300)), Some(later(WALL, 100)));
    }

    #[test]
    fn unsound_terms_are_not_used() {
        let mut member = Member::new(NodeId(3), ProcessEpoch(4), BootId(5), LeaseTerms::default());
        let number = number_of(member.tick(at(0)));
        let terms = LeaseTerms { term: Duration::from_secs(3600), drift_ppm: 1_000_000, ..LeaseTerms::default() };
        assert!(member.registered(
            &Registered { session: SessionId(8), boot_generation: BootGeneration(1), number },
            terms,
            WALL
        ));
        assert!(!member.view(at(5000)).lease.is_valid);
    }
}
