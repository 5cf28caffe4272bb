//! What every wait of the client does: it looks whether it must stop, keeps to its deadline, and tells the watch.

use std::time::{Duration, Instant};

use crate::deadline::{Bound, Deadline};
use crate::settings::{Stop, TICK};
use crate::watch::{Wait, WaitReason, Watch};
use crate::{ClientError, Endpoint, Settings};

/// One wait, or several in a row for the same server.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    /// For whom.
    pub(crate) server: Endpoint,
    /// The request, in words.
    pub(crate) what: String,
    /// Until when.
    pub(crate) deadline: Deadline,
    stop: Stop,
    watch: Watch,
    /// The server has promised its answer for when a file has grown. The caller knows since when it does not, and tells.
    pub(crate) for_growth: bool,
}

impl Waiting {
    pub(crate) fn new(server: &Endpoint, what: &str, deadline: Deadline, settings: &Settings) -> Self {
        let (stop, watch) = (settings.stop.clone(), settings.watch.clone());
        Self { server: server.clone(), what: what.to_owned(), deadline, stop, watch, for_growth: false }
    }

    /// Replaces the stop.
    pub(crate) fn set_stop(&mut self, stop: Stop) {
        self.stop = stop;
    }

    /// Notes in words what is waited for.
    pub(crate) fn set_what(&mut self, what: &str) {
        self.what.clear();
        self.what.push_str(what);
    }

    /// Returns an error if the client must stop.
    pub(crate) fn stop_check(&self) -> Result<(), ClientError> {
        self.stop.check()
    }

    /// To be called several times a second during a wait. Returns an error if the wait must end.
    pub(crate) fn tick(&self, why: WaitReason<'_>) -> Result<(), ClientError> {
        self.tick_within(why, Duration::MAX)
    }

    /// The same for a wait that ends after `left` at the latest.
    pub(crate) fn tick_within(&self, why: WaitReason<'_>, left: Duration) -> Result<(), ClientError> {
        self.stop.check()?;
        let now = Instant::now();
        self.tell_of(why, (self.deadline.waited(now), self.deadline.left(now).min(left)));
        self.check(now)
    }

    /// Tells the watch.
    pub(crate) fn tell(&self, why: WaitReason<'_>, now: Instant) {
        self.tell_of(why, (self.deadline.waited(now), self.deadline.left(now)));
    }

    /// Tells the watch of a wait that has its own time: how long it has taken, and how long it may still take.
    pub(crate) fn tell_of(&self, why: WaitReason<'_>, (waited, left): (Duration, Duration)) {
        if self.for_growth && matches!(why, WaitReason::Answer) {
            return;
        }
        self.watch.tell(&Wait { server: &self.server, what: &self.what, why, waited, left });
    }

    /// Returns an error if the time is over.
    pub(crate) fn check(&self, now: Instant) -> Result<(), ClientError> {
        if !self.deadline.is_over(now) {
            return Ok(());
        }
        let (server, what, most) = (self.server.clone(), self.what.clone(), self.deadline.most());
        Err(match self.deadline.bound() {
            Bound::Answer => ClientError::Silent { server, after: most },
            Bound::Recovery => ClientError::Silent { server, after: self.deadline.waited(now) },
            Bound::Wait => {
                ClientError::Waited { server, what, most, text: "it promised its answer for later".to_owned() }
            }
        })
    }

    /// Waits until `until`. The end of the deadline does not end it; the caller has compared them.
    pub(crate) fn sleep_until(&self, until: Instant, why: WaitReason<'_>) -> Result<(), ClientError> {
        loop {
            self.stop.check()?;
            let now = Instant::now();
            let left = until.saturating_duration_since(now);
            if left.is_zero() {
                return Ok(());
            }
            self.tell(why, now);
            std::thread::sleep(left.min(TICK));
        }
    }

    /// Sleeps, unless the client must stop.
    pub(crate) fn rest(&self, how_long: Duration) -> Result<(), ClientError> {
        self.stop.sleep(how_long)
    }

    /// Waits for `pause` before the next attempt, but not beyond the deadline.
    pub(crate) fn pause(&self, pause: Duration, failed: &ClientError) -> Result<(), ClientError> {
        let now = Instant::now();
        let until = now + pause.min(self.deadline.left(now));
        self.sleep_until(until, WaitReason::Failed(&failed.to_string()))
    }
}
