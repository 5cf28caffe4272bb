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
    /// Its era; `None`: it has never had a session in this run of its process.
    pub boot_generation: Option<BootGeneration>,
    /// The run of its process.
    pub process_epoch: ProcessEpoch,
}

/// Registers and renews.
#[derive(Clone, Debug)]
pub struct Member {
    node: NodeId,
    process_epoch: ProcessEpoch,
    boot: BootId,
    terms: LeaseTerms,
    lease: Lease,
    session: Option<SessionId>,
    boot_generation: Option<BootGeneration>,
    /// The manager's time of day in its last answer, and when that was asked for.
    manager_said: Option<(Timestamp, Time)>,
    /// When the manager was asked for something last.
    asked: Option<Time>,
}

impl Member {
    /// Of a process that begins. `terms`: until the manager says what leases are.
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

    /// What is to be told to the manager now, if anything; to be called several times a second.
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

    /// The manager gives a session, and says what time of day it is. `true`: another one than before. Then whoever is told by other stores ends those connections first (see the module).
    pub fn registered(&mut self, registered: &Registered, terms: LeaseTerms, wall: Timestamp) -> bool {
        // One that nobody waits for is an answer that comes late: the session may be over.
        if !self.lease.is_asked(registered.number) {
            return false;
        }
        if terms.are_sound() && terms != self.terms {
            self.terms = terms;
            self.lease.set_terms(terms);
        }
        if self.session == Some(registered.session) {
            let sent = self.lease.verified(registered.number);
            self.manager_says(wall, sent);
            return false;
        }
        (self.session, self.boot_generation) = (Some(registered.session), Some(registered.boot_generation));
        let sent = self.lease.granted_anew(registered.number);
        self.manager_says(wall, sent);
        true
    }

    /// The manager prolongs a session, and says what time of day it is.
    pub fn renewed(&mut self, session: SessionId, number: u64, wall: Timestamp) {
        if self.session == Some(session) {
            let sent = self.lease.verified(number);
            self.manager_says(wall, sent);
        }
    }

    fn manager_says(&mut self, wall: Timestamp, sent: Option<Time>) {
        self.manager_said = sent.map(|sent| (wall, sent)).or(self.manager_said);
    }

    /// The time of day by the manager's clock, as it is at the latest: counted, as the lease is, from when the manager was asked, so that what ends by that
    /// clock is never believed for longer. Nobody's clock but the manager's says what time of day it is. `None`: it has not answered in this run of
    /// the process.
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

    /// The session, if there is one.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// What it may do now.
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
        // The manager does not know that session: what was granted in it is worth nothing, and another one is asked for at once.
        member.no_session(SessionId(7));
        assert_eq!(member.session(), Some(SessionId(8)));
        member.no_session(SessionId(8));
        assert_eq!(member.view(at(1600)).lease, LeaseView { session: None, is_valid: false });
        let third = number_of(member.tick(at(1600)));
        assert!(member.registered(&given(third, 9), terms, WALL) && member.view(at(6500)).lease.is_valid);
    }

    #[test]
    fn a_lease_of_one_session_is_none_in_another() {
        let terms = LeaseTerms::default();
        let mut member = Member::new(NodeId(3), ProcessEpoch(4), BootId(5), terms);
        let (first, second) = (number_of(member.tick(at(0))), number_of(member.tick(at(4000))));
        assert!(member.registered(
            &Registered { session: SessionId(8), boot_generation: BootGeneration(1), number: second },
            terms,
            WALL
        ));
        // As if the answers had been to one question and to another, asked before it.
        assert!(!member.registered(
            &Registered { session: SessionId(9), boot_generation: BootGeneration(1), number: first },
            terms,
            WALL
        ));
        assert_eq!(member.session(), Some(SessionId(8)));
    }

    #[test]
    fn the_time_of_day_is_the_managers_and_never_behind_it() {
        let terms = LeaseTerms::default();
        let mut member = Member::new(NodeId(3), ProcessEpoch(4), BootId(5), terms);
        assert_eq!(member.manager_time(at(70)), None);
        let later = |wall: Timestamp, ms| wall.plus(Duration::from_millis(ms));
        let first = number_of(member.tick(at(100)));
        let given =
            |number, session| Registered { session: SessionId(session), boot_generation: BootGeneration(1), number };
        member.registered(&given(first, 8), terms, WALL);
        // However long the answer was on its way, it was made after it was asked for.
        assert_eq!(member.manager_time(at(700)), Some(later(WALL, 600)));
        // Its clock is put right, in either direction: the last answer counts, and one that comes after it does not.
        let (second, third) = (number_of(member.tick(at(1100))), number_of(member.tick(at(2100))));
        let set = later(WALL, 600_000);
        member.renewed(SessionId(8), third, set);
        assert_eq!(member.manager_time(at(2100)), Some(set));
        member.renewed(SessionId(8), second, WALL);
        let of_another = number_of(member.tick(at(3100)));
        member.renewed(SessionId(7), of_another, WALL);
        assert_eq!(member.manager_time(at(4100)), Some(later(set, 2000)));
        // So does another manager's.
        member.no_session(SessionId(8));
        let fourth = number_of(member.tick(at(4200)));
        assert!(member.registered(&given(fourth, 9), terms, WALL));
        assert_eq!(member.manager_time(at(4300)), Some(later(WALL, 100)));
    }

    #[test]
    fn terms_that_make_no_sense_are_not_taken_over() {
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
