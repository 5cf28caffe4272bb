//! How many lines the log of the node gets about what one caller was not let do, or could not. Otherwise somebody who may do nothing could fill the disk
//! of the log. The audit log has a limit of its own.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Lines that a caller gets at once.
const BURST: u32 = 20;
/// How often it gets a further one.
const EVERY: Duration = Duration::from_secs(5);
/// Callers that are told apart. All others share one bucket.
const CALLERS_MAX: usize = 256;

/// A token bucket for each caller.
#[derive(Debug, Default)]
pub(crate) struct Denials(Mutex<HashMap<String, Bucket>>);

#[derive(Debug)]
struct Bucket {
    tokens: u32,
    /// When the last token came.
    filled: Instant,
    /// Lines that were held back since the last one that was written.
    held: u64,
}

impl Bucket {
    fn new(now: Instant) -> Self {
        Self { tokens: BURST, filled: now, held: 0 }
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled).as_secs() / EVERY.as_secs();
        let new = u32::try_from(passed).unwrap_or(u32::MAX).min(BURST);
        self.tokens = self.tokens.saturating_add(new).min(BURST);
        self.filled = if self.tokens == BURST { now } else { self.filled + EVERY * new };
    }
}

impl Denials {
    /// Whether a line about `who` is written now, and how many were held back before it. Otherwise it is counted.
    pub(crate) fn may_be_logged(&self, who: &str, now: Instant) -> Option<u64> {
        let mut buckets = self.0.lock();
        let mut who = who;
        if !buckets.contains_key(who) && buckets.len() >= CALLERS_MAX {
            buckets.retain(|_, bucket| {
                bucket.refill(now);
                bucket.tokens < BURST || bucket.held > 0
            });
            if buckets.len() >= CALLERS_MAX {
                who = "";
            }
        }
        let bucket = buckets.entry(who.to_owned()).or_insert_with(|| Bucket::new(now));
        bucket.refill(now);
        match bucket.tokens.checked_sub(1) {
            Some(rest) => {
                bucket.tokens = rest;
                Some(std::mem::take(&mut bucket.held))
            }
            None => {
                bucket.held += 1;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_gets_a_burst_and_then_little_and_the_next_line_says_what_was_held_back() {
        let (denials, begin) = (Denials::default(), Instant::now());
        assert_eq!((0..100).filter(|_| denials.may_be_logged("eve", begin) == Some(0)).count(), 20);
        assert_eq!(denials.may_be_logged("ana", begin), Some(0));
        assert_eq!(denials.may_be_logged("eve", begin + EVERY), Some(80));
        assert_eq!(denials.may_be_logged("eve", begin + EVERY), None);
    }

    #[test]
    fn the_table_is_bounded() {
        let (denials, begin) = (Denials::default(), Instant::now());
        let through = (0..10_000).filter(|n| denials.may_be_logged(&format!("uid {n}"), begin).is_some()).count();
        assert_eq!(through, CALLERS_MAX + BURST as usize);
        assert!(denials.0.lock().len() <= CALLERS_MAX + 1);
        // Later, those that are idle make room.
        assert_eq!(denials.may_be_logged("ana", begin + EVERY * 30), Some(0));
        assert!(denials.0.lock().len() < 5);
    }
}
