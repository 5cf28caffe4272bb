//! Sleeping until something has happened, with one system call to wake everybody.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex;

/// Counts how often something happened. Whoever wants to wait notes the count while it holds the lock under which the
/// thing would be seen, lets the lock go, and waits for the count to change. The woken need no lock to wake one after
/// the other, as they would with a condition variable: sixty threads are running again after one system call.
#[derive(Default)]
pub(crate) struct Event {
    count: AtomicU32,
}

impl Event {
    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// Returns when the count is not `seen` any more; also without reason.
    pub(crate) fn wait(&self, seen: u32) {
        if self.count() == seen {
            // It has changed already, or a signal came: both mean to look again.
            let _ = futex::wait(&self.count, futex::Flags::PRIVATE, seen, None);
        }
    }

    pub(crate) fn notify_all(&self) {
        self.notify(u32::MAX >> 1);
    }

    pub(crate) fn notify_one(&self) {
        self.notify(1);
    }

    fn notify(&self, threads: u32) {
        self.count.fetch_add(1, Ordering::Release);
        // It cannot fail for an address of ours.
        let _ = futex::wake(&self.count, futex::Flags::PRIVATE, threads);
    }
}
