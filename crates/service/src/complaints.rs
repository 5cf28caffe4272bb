//! Limits log lines about bad input, so that a client, or a crowd of clients, cannot fill the log.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Maximum number of lines per window.
const LINES_MAX: u32 = 20;
/// The length of a window.
const WINDOW: Duration = Duration::from_secs(10);

/// Counts lines in windows of time.
pub struct Complaints {
    state: Mutex<Window>,
}

struct Window {
    began: Instant,
    lines: u32,
    held_back: u64,
}

impl Complaints {
    /// Begins the first window at `now`.
    pub fn new(now: Instant) -> Self {
        Self { state: Mutex::new(Window { began: now, lines: 0, held_back: 0 }) }
    }

    /// Whether another line may be logged at `now`. `Some` gives the number of lines that were suppressed before it.
    pub fn admit(&self, now: Instant) -> Option<u64> {
        let mut window = self.state.lock();
        if now.saturating_duration_since(window.began) >= WINDOW {
            window.began = now;
            window.lines = 0;
        }
        if window.lines >= LINES_MAX {
            window.held_back += 1;
            return None;
        }
        window.lines += 1;
        Some(std::mem::take(&mut window.held_back))
    }

    /// Logs that a request of `client` was refused because of `reason`.
    pub fn bad_input(&self, client: &dyn std::fmt::Display, reason: &dyn std::fmt::Display) {
        if let Some(held_back) = self.admit(Instant::now()) {
            tracing::warn!(%client, %reason, held_back, "bad input");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_lines_is_suppressed_and_counted() {
        let start = Instant::now();
        let complaints = Complaints::new(start);
        let admitted = (0..1000).filter(|_| complaints.admit(start).is_some()).count();
        assert_eq!(admitted, LINES_MAX as usize);
        assert_eq!(complaints.admit(start + WINDOW), Some(980));
        assert_eq!(complaints.admit(start + WINDOW), Some(0));
    }
}
