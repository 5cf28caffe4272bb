//! Bad input is logged once, with the client and the reason; a client (or a crowd) that keeps sending it cannot fill
//! the log.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Lines a window.
const LINES_MAX: u32 = 20;
/// The window.
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
    /// The first window begins at `now`.
    pub fn new(now: Instant) -> Self {
        Self { state: Mutex::new(Window { began: now, lines: 0, held_back: 0 }) }
    }

    /// Whether one more line may be written at `now`, and how many were held back before it.
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

    /// Writes that `client` sent something that was refused because of `reason`.
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
    fn a_flood_is_held_back_and_counted() {
        let start = Instant::now();
        let complaints = Complaints::new(start);
        let admitted = (0..1000).filter(|_| complaints.admit(start).is_some()).count();
        assert_eq!(admitted, LINES_MAX as usize);
        assert_eq!(complaints.admit(start + WINDOW), Some(980));
        assert_eq!(complaints.admit(start + WINDOW), Some(0));
    }
}
