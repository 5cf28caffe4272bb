//! Which of the connected managers a disk server follows. One manager of a cluster is active, and standbys admit no disk servers. But after a takeover the
//! connection with the earlier one may last for a while: its machine may be gone without a word, or the manager has not noticed yet.
//!
//! A disk server sends its messages to one manager, and takes none of the others. It follows another one if the present one has granted nothing for a
//! while, or if another one grants and this one does not. Which manager may grant is for the managers to decide: this choice costs time if it is wrong,
//! never safety.
//!
//! A manager that is followed may be one whose time is over. Until it grants, nothing of what it says takes effect: it is kept, in order. So the keys and
//! addresses that answer the greeting are there when the session begins. Only the end of a session counts at once: without it there is no new one.

use std::time::Duration;

use cluster::Time;
use cluster::message::ToServer;
use node::FromManager;
use types::NodeId;

/// How long the manager may grant nothing before the disk server follows another one. It renews the lease every second.
const SILENT: Duration = Duration::from_secs(2);

/// The most messages that are kept of a manager that has not granted yet.
const KEPT_MAX: usize = 1024;

/// See the module.
#[derive(Default, Debug)]
pub struct ManagerChoice {
    /// The connected managers, in the order in which they came.
    connected: Vec<NodeId>,
    present: Option<Followed>,
    /// What the present manager has said before it granted.
    kept: Vec<FromManager>,
    /// It said more than is kept.
    is_incomplete: bool,
}

/// What a message of a manager leads to.
#[derive(Default, Debug)]
pub struct Heard {
    /// The messages that count now, in order.
    pub messages: Vec<FromManager>,
    /// The disk server must greet the manager: it lacks keys and addresses.
    pub must_greet: bool,
}

/// The manager that the disk server follows.
#[derive(Clone, Copy, Debug)]
struct Followed {
    node: NodeId,
    /// When it granted last, or began to be followed.
    since: Time,
    has_granted: bool,
}

impl ManagerChoice {
    /// The manager that the disk server follows.
    pub fn present(&self) -> Option<NodeId> {
        self.present.map(|followed| followed.node)
    }

    /// Whether a manager has granted lately.
    pub fn is_served(&self, now: Time) -> bool {
        self.present.is_some_and(|followed| followed.has_granted && now.since(followed.since) < SILENT)
    }

    /// A manager has connected. Returns whether the disk server follows it, and must greet it.
    pub fn connected(&mut self, now: Time, node: NodeId) -> bool {
        self.connected.retain(|other| *other != node);
        self.connected.push(node);
        if self.present().is_some_and(|present| present != node) {
            return false;
        }
        self.follow(now, node);
        true
    }

    /// A connection has ended. Returns the manager that the disk server follows from now on and must greet, if that has changed.
    pub fn ended(&mut self, now: Time, node: NodeId) -> Option<NodeId> {
        self.connected.retain(|other| *other != node);
        self.present.take_if(|followed| followed.node == node)?;
        self.kept.clear();
        // The newest connection: that of an earlier manager is older.
        let next = self.connected.last().copied()?;
        self.follow(now, next);
        Some(next)
    }

    /// A manager sends a message.
    pub fn hear(&mut self, now: Time, node: NodeId, message: FromManager) -> Heard {
        let (is_grant, is_served) = (is_grant(&message), self.is_served(now));
        match &mut self.present {
            Some(followed) if followed.node == node => {
                if is_grant {
                    (followed.since, followed.has_granted) = (now, true);
                    let mut messages = std::mem::take(&mut self.kept);
                    messages.push(message);
                    return Heard { messages, must_greet: std::mem::take(&mut self.is_incomplete) };
                }
                if followed.has_granted || ends_session(&message) {
                    return Heard { messages: vec![message], must_greet: false };
                }
                if self.kept.len() < KEPT_MAX {
                    self.kept.push(message);
                } else {
                    self.is_incomplete = true;
                }
                Heard::default()
            }
            // It was asked earlier, and its answer has taken longer than the patience with it.
            Some(_) if is_grant && !is_served && self.connected.contains(&node) => {
                self.follow(now, node);
                self.present = Some(Followed { node, since: now, has_granted: true });
                Heard { messages: vec![message], must_greet: true }
            }
            _ => Heard::default(),
        }
    }

    /// Returns the manager that the disk server follows from now on and must greet, if that has changed. To be called several times a second.
    pub fn tick(&mut self, now: Time) -> Option<NodeId> {
        let followed = self.present?;
        if now.since(followed.since) < SILENT || self.connected.len() < 2 {
            return None;
        }
        let at = self.connected.iter().position(|node| *node == followed.node).unwrap_or(0);
        let next = self.connected[(at + 1) % self.connected.len()];
        self.follow(now, next);
        Some(next)
    }

    fn follow(&mut self, now: Time, node: NodeId) {
        self.present = Some(Followed { node, since: now, has_granted: false });
        self.kept.clear();
        self.is_incomplete = false;
    }
}

/// Whether the manager grants a session or a longer lease.
fn is_grant(message: &FromManager) -> bool {
    matches!(message, FromManager::Cluster(ToServer::Registered { .. } | ToServer::Renewed { .. }))
}

fn ends_session(message: &FromManager) -> bool {
    matches!(message, FromManager::Cluster(ToServer::NoSession { .. }))
}

#[cfg(test)]
mod tests {
    use types::{SessionId, StoreId, Timestamp};

    use super::*;

    const FIRST: NodeId = NodeId(1);
    const SECOND: NodeId = NodeId(7);

    fn at(ms: u64) -> Time {
        Time(Duration::from_millis(ms))
    }

    fn grant() -> FromManager {
        FromManager::Cluster(ToServer::Renewed { session: SessionId(1), number: 1, wall: Timestamp(0) })
    }

    fn end() -> FromManager {
        FromManager::Cluster(ToServer::NoSession { session: SessionId(1) })
    }

    /// A message that is no grant.
    fn order(store: u64) -> FromManager {
        FromManager::WhatHas { store: StoreId(store), after: None }
    }

    impl ManagerChoice {
        fn granted(&mut self, now: Time, node: NodeId) {
            self.hear(now, node, grant());
        }

        /// How the messages that count now begin, with whether the manager must be greeted.
        fn heard(&mut self, ms: u64, node: NodeId, message: FromManager) -> (Vec<String>, bool) {
            let heard = self.hear(at(ms), node, message);
            let short = |message: &FromManager| match message {
                FromManager::WhatHas { store, .. } => store.to_string(),
                message if is_grant(message) => "grant".to_owned(),
                _ => "end".to_owned(),
            };
            (heard.messages.iter().map(short).collect(), heard.must_greet)
        }
    }

    fn said(messages: &[&str], must_greet: bool) -> (Vec<String>, bool) {
        (messages.iter().map(|&message| message.to_owned()).collect(), must_greet)
    }

    #[test]
    fn nothing_counts_before_a_grant_but_the_end_of_the_session() {
        let mut choice = ManagerChoice::default();
        assert!(choice.connected(at(0), FIRST));
        assert_eq!(choice.heard(10, FIRST, order(1)), said(&[], false));
        assert_eq!(choice.heard(20, FIRST, end()), said(&["end"], false));
        assert_eq!(choice.heard(30, FIRST, order(2)), said(&[], false));
        assert_eq!(choice.heard(40, SECOND, order(3)), said(&[], false), "another one");
        let (one, two) = (StoreId(1).to_string(), StoreId(2).to_string());
        assert_eq!(choice.heard(50, FIRST, grant()), said(&[&one, &two, "grant"], false));
        assert_eq!(choice.heard(60, FIRST, order(1)), said(&[&one], false));
        // It is left and followed again: its orders of the meantime do not count.
        choice.connected(at(100), SECOND);
        assert_eq!(choice.tick(at(2060)), Some(SECOND));
        assert_eq!(choice.heard(2100, SECOND, order(4)), said(&[], false));
        assert_eq!(choice.heard(2100, FIRST, order(5)), said(&[], false));
        assert_eq!(choice.tick(at(4060)), Some(FIRST));
        assert_eq!(choice.heard(4100, FIRST, order(2)), said(&[], false));
        assert_eq!(choice.heard(4200, FIRST, grant()), said(&[&two, "grant"], false));
        // A new connection begins without a grant.
        assert!(choice.connected(at(4300), FIRST));
        assert_eq!(choice.heard(4400, FIRST, order(1)), said(&[], false));
    }

    #[test]
    fn what_is_kept_is_bounded_and_a_greeting_makes_up_for_the_rest() {
        let mut choice = ManagerChoice::default();
        assert!(choice.connected(at(0), FIRST));
        for _ in 0..=KEPT_MAX {
            choice.hear(at(1), FIRST, order(1));
        }
        let heard = choice.hear(at(2), FIRST, grant());
        assert_eq!((heard.messages.len(), heard.must_greet), (KEPT_MAX + 1, true));
        assert!(!choice.hear(at(3), FIRST, grant()).must_greet);
    }

    #[test]
    fn a_late_grant_of_another_manager_counts_if_the_present_one_grants_nothing() {
        let mut choice = ManagerChoice::default();
        assert!(choice.connected(at(0), FIRST));
        assert!(!choice.connected(at(100), SECOND));
        assert_eq!(choice.tick(at(2000)), Some(SECOND));
        choice.hear(at(2100), SECOND, order(1));
        // The first one needs more time than it gets.
        assert_eq!(choice.heard(2500, FIRST, grant()), said(&["grant"], true));
        assert_eq!((choice.present(), choice.is_served(at(2500))), (Some(FIRST), true));
        assert_eq!(choice.heard(2600, SECOND, grant()), said(&[], false), "there is one that grants");
        assert_eq!(choice.heard(4500, SECOND, grant()), said(&["grant"], true), "that one is silent");
        assert_eq!(choice.present(), Some(SECOND));
        assert_eq!(choice.heard(7000, NodeId(3), grant()), said(&[], false), "it is not connected");
    }

    #[test]
    fn it_follows_the_manager_that_grants() {
        let mut choice = ManagerChoice::default();
        assert_eq!((choice.present(), choice.tick(at(0)), choice.is_served(at(0))), (None, None, false));
        assert!(choice.connected(at(0), FIRST));
        choice.granted(at(500), FIRST);
        assert!(!choice.connected(at(1000), SECOND), "another one is no reason to leave one that grants");
        choice.granted(at(1500), FIRST);
        choice.granted(at(3000), SECOND);
        assert_eq!((choice.tick(at(3499)), choice.is_served(at(3499))), (None, true));
        assert!(!choice.is_served(at(3500)));
        assert_eq!((choice.tick(at(3500)), choice.present()), (Some(SECOND), Some(SECOND)));
        // The new one has time to answer.
        assert_eq!((choice.tick(at(5499)), choice.is_served(at(3700))), (None, false));
        choice.granted(at(5499), SECOND);
        assert_eq!((choice.tick(at(7400)), choice.is_served(at(7400))), (None, true));
        // Neither grants: each gets its turn.
        assert_eq!(
            [at(7499), at(9499), at(11_499)].map(|now| choice.tick(now)),
            [Some(FIRST), Some(SECOND), Some(FIRST)]
        );
    }

    #[test]
    fn the_end_of_a_connection_leads_to_another_one_at_once() {
        let mut choice = ManagerChoice::default();
        assert!(choice.connected(at(0), FIRST));
        choice.granted(at(10), FIRST);
        assert!(!choice.connected(at(100), SECOND));
        assert_eq!(choice.ended(at(200), FIRST), Some(SECOND));
        assert!(!choice.is_served(at(200)), "it has granted nothing yet");
        assert!(!choice.connected(at(300), FIRST), "the earlier one is back");
        assert_eq!((choice.ended(at(400), FIRST), choice.present()), (None, Some(SECOND)));
        assert!(choice.connected(at(500), SECOND), "a new connection with the same one: it must be greeted again");
        assert_eq!((choice.ended(at(600), SECOND), choice.present()), (None, None));
        assert!(choice.connected(at(700), FIRST));
    }

    #[test]
    fn a_single_manager_is_followed_however_silent_it_is() {
        let mut choice = ManagerChoice::default();
        assert!(choice.connected(at(0), FIRST));
        assert_eq!((choice.tick(at(60_000)), choice.present()), (None, Some(FIRST)));
    }
}
