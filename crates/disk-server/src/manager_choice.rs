//! Which of the connected managers a disk server follows. One manager of a cluster is active, and standbys admit no disk servers. But after a takeover the
//! connection with the earlier one may last for a while: its machine may be gone without a word, or the manager has not noticed yet.
//!
//! A disk server sends its messages to one manager, and takes none of the others. It follows another one if the present one has granted nothing for a
//! while. Which manager may grant is for the managers to decide: this choice costs time if it is wrong, never safety.

use std::time::Duration;

use cluster::Time;
use types::NodeId;

/// How long the manager may grant nothing before the disk server follows another one. It renews the lease every second.
const SILENT: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Clone, Default, Debug)]
pub(crate) struct ManagerChoice {
    /// The connected managers, in the order in which they came.
    connected: Vec<NodeId>,
    present: Option<Followed>,
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
    pub(crate) fn present(&self) -> Option<NodeId> {
        self.present.map(|followed| followed.node)
    }

    /// Whether a manager has granted lately.
    pub(crate) fn is_served(&self, now: Time) -> bool {
        self.present.is_some_and(|followed| followed.has_granted && now.since(followed.since) < SILENT)
    }

    /// A manager has connected. Returns whether the disk server follows it, and must greet it.
    pub(crate) fn connected(&mut self, now: Time, node: NodeId) -> bool {
        self.connected.retain(|other| *other != node);
        self.connected.push(node);
        if self.present().is_some_and(|present| present != node) {
            return false;
        }
        self.follow(now, node);
        true
    }

    /// A connection has ended. Returns the manager that the disk server follows from now on and must greet, if that has changed.
    pub(crate) fn ended(&mut self, now: Time, node: NodeId) -> Option<NodeId> {
        self.connected.retain(|other| *other != node);
        self.present.take_if(|followed| followed.node == node)?;
        // The newest connection: that of an earlier manager is older.
        let next = self.connected.last().copied()?;
        self.follow(now, next);
        Some(next)
    }

    /// The manager has granted a session, or a longer lease.
    pub(crate) fn granted(&mut self, now: Time, node: NodeId) {
        if let Some(followed) = self.present.as_mut().filter(|followed| followed.node == node) {
            (followed.since, followed.has_granted) = (now, true);
        }
    }

    /// Returns the manager that the disk server follows from now on and must greet, if that has changed. To be called several times a second.
    pub(crate) fn tick(&mut self, now: Time) -> Option<NodeId> {
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: NodeId = NodeId(1);
    const SECOND: NodeId = NodeId(7);

    fn at(ms: u64) -> Time {
        Time(Duration::from_millis(ms))
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
        // A late answer of the earlier one does not count, and the new one has time to answer.
        choice.granted(at(3600), FIRST);
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
