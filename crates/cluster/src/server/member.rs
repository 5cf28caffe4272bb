//! A disk server's side of its session.

use types::{BootId, Era, NodeId, SessionId};

use crate::message::ToManager;
use crate::replication::LeaseView;
use crate::{Lease, LeaseTerms, Life, Register, Registered, Time};

/// What a disk server may do at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View {
    /// Its session and lease.
    pub lease: LeaseView,
    /// Its era; `None`: it has never had a session in this run of its process.
    pub era: Option<Era>,
    /// The run of its process.
    pub life: Life,
}

/// Registers and renews.
#[derive(Clone, Debug)]
pub struct Member {
    node: NodeId,
    life: Life,
    boot: BootId,
    terms: LeaseTerms,
    lease: Lease,
    session: Option<SessionId>,
    era: Option<Era>,
    /// When the manager was asked for something last.
    asked: Option<Time>,
}

impl Member {
    /// Of a process that begins. `terms`: until the manager says what leases are.
    #[must_use]
    pub fn new(node: NodeId, life: Life, boot: BootId, terms: LeaseTerms) -> Self {
        Self { node, life, boot, terms, lease: Lease::new(terms), session: None, era: None, asked: None }
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
            None => ToManager::Register(Register { node, life: self.life, boot: self.boot, number }),
        })
    }

    /// The manager gives a session. `true`: another one than before. Then whoever is told by other stores ends those connections first (see the module).
    pub fn registered(&mut self, registered: &Registered, terms: LeaseTerms) -> bool {
        // One that nobody waits for is an answer that comes late: the session may be over.
        if !self.lease.is_asked(registered.number) {
            return false;
        }
        if terms.are_sound() && terms != self.terms {
            self.terms = terms;
            self.lease.set_terms(terms);
        }
        if self.session == Some(registered.session) {
            self.lease.granted(registered.number);
            return false;
        }
        (self.session, self.era) = (Some(registered.session), Some(registered.era));
        self.lease.granted_anew(registered.number);
        true
    }

    /// The manager prolongs a session.
    pub fn renewed(&mut self, session: SessionId, number: u64) {
        if self.session == Some(session) {
            self.lease.granted(number);
        }
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
        View { lease, era: self.era, life: self.life }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(ms: u64) -> Time {
        Time(Duration::from_millis(ms))
    }

    fn number_of(told: Option<ToManager>) -> u64 {
        match told {
            Some(ToManager::Register(Register { number, .. }) | ToManager::Renew { number, .. }) => number,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_server_registers_until_it_has_a_session_and_then_renews_it() {
        let terms = LeaseTerms::default();
        let mut member = Member::new(NodeId(3), Life(4), BootId(5), terms);
        let told = member.tick(at(0));
        let Some(ToManager::Register(Register { node: NodeId(3), life: Life(4), boot: BootId(5), .. })) = told else {
            panic!("{told:?}")
        };
        let first = number_of(told);
        assert_eq!(member.tick(at(400)), None);
        let second = number_of(member.tick(at(500)));
        let given = |number, session| Registered { session: SessionId(session), era: Era(1), number };
        assert!(member.registered(&given(second, 8), terms));
        assert_eq!(member.view(at(600)).lease, LeaseView { session: Some(SessionId(8)), is_valid: true });
        assert!(!member.registered(&given(first, 7), terms), "the answer to an older request, late");
        let told = member.tick(at(1500));
        assert!(matches!(told, Some(ToManager::Renew { session: SessionId(8), .. })), "{told:?}");
        member.renewed(SessionId(8), number_of(told));
        assert!(member.view(at(6000)).lease.is_valid && !member.view(at(6451)).lease.is_valid);
        // The manager does not know that session: what was granted in it is worth nothing, and another one is asked for at once.
        member.no_session(SessionId(7));
        assert_eq!(member.session(), Some(SessionId(8)));
        member.no_session(SessionId(8));
        assert_eq!(member.view(at(1600)).lease, LeaseView { session: None, is_valid: false });
        let third = number_of(member.tick(at(1600)));
        assert!(member.registered(&given(third, 9), terms) && member.view(at(6500)).lease.is_valid);
    }

    #[test]
    fn a_lease_of_one_session_is_none_in_another() {
        let terms = LeaseTerms::default();
        let mut member = Member::new(NodeId(3), Life(4), BootId(5), terms);
        let (first, second) = (number_of(member.tick(at(0))), number_of(member.tick(at(4000))));
        assert!(member.registered(&Registered { session: SessionId(8), era: Era(1), number: second }, terms));
        // As if the answers had been to one question and to another, asked before it.
        assert!(!member.registered(&Registered { session: SessionId(9), era: Era(1), number: first }, terms));
        assert_eq!(member.session(), Some(SessionId(8)));
    }

    #[test]
    fn terms_that_make_no_sense_are_not_taken_over() {
        let mut member = Member::new(NodeId(3), Life(4), BootId(5), LeaseTerms::default());
        let number = number_of(member.tick(at(0)));
        let terms = LeaseTerms { term: Duration::from_secs(3600), drift_ppm: 1_000_000, ..LeaseTerms::default() };
        assert!(member.registered(&Registered { session: SessionId(8), era: Era(1), number }, terms));
        assert!(!member.view(at(5000)).lease.is_valid);
    }
}
