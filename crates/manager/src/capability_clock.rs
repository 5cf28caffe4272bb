//! The clock by which capabilities expire.

use cluster::Time;
use types::Timestamp;

/// The clock by which capabilities expire. Disk servers get it with their sessions. It is the time of day when this manager started plus the time
/// since then. If the system clock were set back, expired capabilities would become valid again.
#[derive(Clone, Copy)]
pub(crate) struct CapabilityClock {
    /// When the manager started, by both clocks.
    began: (Time, Timestamp),
}

impl CapabilityClock {
    /// Starts at these readings of the manager's clock and the time of day.
    pub(crate) fn start(now: Time, wall: Timestamp) -> Self {
        Self { began: (now, wall) }
    }

    /// The time for capabilities, at `now` by the manager's clock.
    pub(crate) fn time(self, now: Time) -> Timestamp {
        let (began, wall) = self.began;
        wall.plus(now.since(began))
    }
}
