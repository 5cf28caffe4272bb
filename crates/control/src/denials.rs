//! How many lines the log of the node gets about what one caller was not let do, or could not. Otherwise somebody who may do nothing could fill the disk
//! of the log. The audit log has a limit of its own.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use audit::TokenBucket;
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
    lines: TokenBucket,
    /// Lines that were held back since the last one that was written.
    held: u64,
}

impl Denials {
    /// Whether a line about `who` is written now, and how many were held back before it. Otherwise it is counted.
    pub(crate) fn may_be_logged(&self, who: &str, now: Instant) -> Option<u64> {
        let mut buckets = self.0.lock();
        let mut who = who;
        if !buckets.contains_key(who) && buckets.len() >= CALLERS_MAX {
            buckets.retain(|_, bucket| bucket.held > 0 || !bucket.lines.is_full(now));
            if buckets.len() >= CALLERS_MAX {
                who = "";
            }
        }
        let new = || Bucket { lines: TokenBucket::new(BURST, EVERY, now), held: 0 };
        let bucket = buckets.entry(who.to_owned()).or_insert_with(new);
        if bucket.lines.take(now) {
            return Some(std::mem::take(&mut bucket.held));
        }
        bucket.held += 1;
        None
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
