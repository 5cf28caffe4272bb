//! Sleeping until something happens, with one system call to wake everybody.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex;

/// Counts how often something happened. To wait, a thread reads the count while it holds the lock that protects the
/// condition, releases the lock, and waits until the count changes. Woken threads need no lock, unlike those of a
/// condition variable, which wake one another in turn: one system call gets sixty threads running again.
#[derive(Default)]
pub(crate) struct Event {
    count: AtomicU32,
}

impl Event {
    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// Returns when the count differs from `seen`, and sometimes without a reason.
    pub(crate) fn wait(&self, seen: u32) {
        if self.count() == seen {
            // The count has changed already, or a signal arrived. The caller looks again in both cases.
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
        // The call cannot fail for an address of this process.
        let _ = futex::wake(&self.count, futex::Flags::PRIVATE, threads);
    }
}
