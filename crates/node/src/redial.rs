//! When a node is dialed again after a failure or a lost connection, and what stands in the log meanwhile.

use std::time::{Duration, Instant};

/// The first pause between attempts to connect. It doubles with each.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// The longest pause before a manager is dialed, while none serves this node: it must notice soon which one has taken over.
const PAUSE_WANTED: Duration = Duration::from_millis(500);
/// The longest pause before a standby is dialed, while another manager serves this node. Each attempt costs both sides a handshake.
const PAUSE_STANDBY: Duration = Duration::from_secs(10);
/// How long the others may take to hear of a node that has joined or started. Until then it is normal that they refuse it.
const KNOWN_SOON: Duration = Duration::from_secs(10);
/// After a connection that lasted this long, the next attempt comes soon.
const LASTED: Duration = Duration::from_secs(2);

/// What a node is dialed for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// It is a disk server, or a node with this number.
    Node,
    /// It is a manager, and no manager serves this node.
    Manager,
    /// It is a manager, and another one serves this node.
    SpareManager,
}

/// How an attempt has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// It is a manager that waits for its turn.
    Standby,
    /// It is there, and does not admit this node.
    Refused,
    /// Anything else.
    Other,
}

/// The attempts to connect with one node.
#[derive(Debug)]
pub(crate) struct Redial {
    /// Without the limits of the present need.
    pause: Duration,
    is_standby: bool,
    /// The failure that was logged last.
    said: String,
    fails_since: Option<Instant>,
}

impl Default for Redial {
    fn default() -> Self {
        Self { pause: PAUSE_FIRST, is_standby: false, said: String::new(), fails_since: None }
    }
}

impl Redial {
    /// An attempt that began at `began` has led to a connection, which has ended.
    pub(crate) fn was_connected(&mut self) {
        *self = Self { pause: self.pause, ..Self::default() };
    }

    /// An attempt that began at `began` has failed. Returns whether that is worth a line in the log.
    pub(crate) fn failed(&mut self, failure: Failure, text: &str, began: Instant, now: Instant) -> bool {
        self.is_standby = failure == Failure::Standby;
        // A node that has just joined or started is refused until the manager has told the others of it.
        let is_early = now.saturating_duration_since(*self.fails_since.get_or_insert(began)) < KNOWN_SOON;
        let is_normal = self.is_standby || failure == Failure::Refused && is_early;
        let is_news = !is_normal && text != self.said;
        if is_news {
            text.clone_into(&mut self.said);
        }
        is_news
    }

    /// The attempt that began at `began`, with the connection that it has led to, is over.
    pub(crate) fn over(&mut self, began: Instant, now: Instant) {
        let has_lasted = now.saturating_duration_since(began) >= LASTED;
        self.pause = if has_lasted { PAUSE_FIRST } else { (self.pause * 2).min(PAUSE_STANDBY) };
    }

    /// The pause before the next attempt. The need may change meanwhile.
    pub(crate) fn pause(&self, need: Need) -> Duration {
        self.pause.min(match need {
            Need::Manager => PAUSE_WANTED,
            Need::SpareManager if self.is_standby => PAUSE_STANDBY,
            Need::Node | Need::SpareManager => PAUSE_MAX,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_is_dialed_often_while_none_serves_this_node() {
        let (now, mut redial) = (Instant::now(), Redial::default());
        for _ in 0..20 {
            assert!(redial.pause(Need::Manager) <= PAUSE_WANTED);
            assert!(!redial.failed(Failure::Standby, "a standby", now, now), "a standby is no reason to worry");
            redial.over(now, now);
        }
        assert_eq!(redial.pause(Need::SpareManager), PAUSE_STANDBY);
        // The other manager is gone.
        assert_eq!(redial.pause(Need::Manager), PAUSE_WANTED);
        // It is no standby any more, and cannot be reached.
        assert!(redial.failed(Failure::Other, "no route", now, now));
        assert!(!redial.failed(Failure::Other, "no route", now, now), "once");
        assert_eq!((redial.pause(Need::SpareManager), redial.pause(Need::Node)), (PAUSE_MAX, PAUSE_MAX));
    }

    #[test]
    fn a_lost_connection_is_opened_again_soon() {
        let (began, mut redial) = (Instant::now(), Redial::default());
        (0..20).for_each(|_| redial.over(began, began));
        redial.was_connected();
        redial.over(began, began + LASTED);
        assert_eq!(redial.pause(Need::SpareManager), PAUSE_FIRST);
        // One that is lost again and again is not.
        (0..20).for_each(|_| {
            redial.was_connected();
            redial.over(began, began);
        });
        assert_eq!(redial.pause(Need::Node), PAUSE_MAX);
    }

    #[test]
    fn a_refusal_is_logged_when_it_lasts() {
        let (began, mut redial) = (Instant::now(), Redial::default());
        assert!(!redial.failed(Failure::Refused, "unknown", began, began + KNOWN_SOON / 2));
        assert!(redial.failed(Failure::Refused, "unknown", began, began + KNOWN_SOON));
        redial.was_connected();
        assert!(!redial.failed(Failure::Refused, "unknown", began + KNOWN_SOON, began + KNOWN_SOON));
    }
}
