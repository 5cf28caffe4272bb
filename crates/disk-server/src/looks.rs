//! Bounds the looks at whole replicas, so that they leave threads for the writes of clients, and ends them when the server stops.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The most replicas that a server reads at a time to compare them with an original.
const AT_ONCE: usize = 2;

/// See the module.
#[derive(Default)]
pub(super) struct Looks {
    running: AtomicUsize,
    is_stopped: AtomicBool,
}

/// The right to read one replica, until it is dropped.
pub(super) struct Look<'a>(&'a Looks);

impl Looks {
    /// `None`: others are being read, or the server stops. The manager asks again.
    pub(super) fn begin(&self) -> Option<Look<'_>> {
        if self.is_stopped.load(Ordering::Relaxed) {
            return None;
        }
        let one_more = |running: usize| (running < AT_ONCE).then_some(running + 1);
        self.running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok().map(|_| Look(self))
    }

    /// Ends those that run, and begins no more.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }
}

impl Look<'_> {
    /// Whether to read on.
    pub(super) fn goes_on(&self) -> bool {
        !self.0.is_stopped.load(Ordering::Relaxed)
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_replicas_are_read_at_a_time_and_none_after_the_stop() {
        let looks = Looks::default();
        let all: Vec<Look<'_>> = (0..AT_ONCE).map(|_| looks.begin().unwrap()).collect();
        assert!(looks.begin().is_none() && all[0].goes_on());
        drop(all);
        let last = looks.begin().unwrap();
        looks.stop();
        assert!(!last.goes_on(), "what runs ends");
        assert!(looks.begin().is_none());
    }
}
