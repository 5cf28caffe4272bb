//! The wait before work that collided with another transaction is tried again.

use std::time::Duration;

use rand::Rng;

/// The wait grows up to so many doublings.
const DOUBLINGS_MAX: u32 = 8;

/// Waits for a random time of at most `unit`, doubled with each of `attempts`, so that two that collide do not collide again.
pub(crate) fn pause(unit: Duration, attempts: u32) {
    let most = unit * (1 << attempts.min(DOUBLINGS_MAX));
    std::thread::sleep(rand::rng().random_range(Duration::ZERO..=most));
}
