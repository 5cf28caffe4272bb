//! How much of the processors strangers can use: computations for `gsi` and `krb5` take turns.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// How many clients can wait for their turn.
const WAITING_MAX: usize = 64;
/// How long a client waits for its turn. A computation takes some milliseconds.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// So many may compute at once, and a bounded number wait for that.
pub(crate) struct Turns {
    at_once: usize,
    wait: Duration,
    taken: Mutex<Taken>,
    freed: Condvar,
}

#[derive(Default)]
struct Taken {
    computing: usize,
    waiting: usize,
}

/// A turn, until it is dropped.
pub(crate) struct Turn<'a>(&'a Turns);

impl Turns {
    /// Turns for half of the processors, so that clients that are logged in have the others.
    pub(crate) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self::with((processors / 2).max(1), WAIT_MAX)
    }

    fn with(at_once: usize, wait: Duration) -> Self {
        Self { at_once, wait, taken: Mutex::new(Taken::default()), freed: Condvar::new() }
    }

    /// Waits for a turn; `None`: too many wait, or it took too long.
    pub(crate) fn take(&self) -> Option<Turn<'_>> {
        let mut taken = self.taken.lock();
        if taken.computing >= self.at_once {
            if taken.waiting >= WAITING_MAX {
                return None;
            }
            taken.waiting += 1;
            let is_full = |taken: &mut Taken| taken.computing >= self.at_once;
            let result = self.freed.wait_while_for(&mut taken, is_full, self.wait);
            taken.waiting -= 1;
            if result.timed_out() && taken.computing >= self.at_once {
                return None;
            }
        }
        taken.computing += 1;
        Some(Turn(self))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.taken.lock().computing -= 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_bounded_in_number_and_time() {
        let turns = Turns::with(2, Duration::from_millis(20));
        let (one, two) = (turns.take(), turns.take());
        assert!(one.is_some() && two.is_some());
        assert!(turns.take().is_none(), "after a wait");
        assert_eq!(turns.taken.lock().waiting, 0);
        drop(one);
        assert!(turns.take().is_some());
        turns.taken.lock().waiting = WAITING_MAX;
        let three = turns.take();
        assert!(three.is_some());
        let before = std::time::Instant::now();
        assert!(Turns::take(&turns).is_none());
        assert!(before.elapsed() < Duration::from_millis(20), "nobody waits behind the last one");
    }

    #[test]
    fn whoever_waits_gets_the_turn_that_is_given_back() {
        let turns = Turns::with(1, Duration::from_secs(60));
        std::thread::scope(|scope| {
            let first = turns.take();
            let waiting = scope.spawn(|| turns.take().is_some());
            while turns.taken.lock().waiting == 0 {
                std::thread::yield_now();
            }
            drop(first);
            assert!(waiting.join().is_ok_and(|got| got));
        });
        assert_eq!(turns.taken.lock().computing, 0);
    }
}
