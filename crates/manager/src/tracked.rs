//! Locks that count how many of them the thread holds. A test fails if the namespace is read under a lock.
//!
//! A read of the namespace may take milliseconds once it is a database on another machine. Under a lock it would delay all other opens for as long.

#[cfg(debug_assertions)]
use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, DerefMut};

use parking_lot::{Mutex, MutexGuard};

#[cfg(debug_assertions)]
thread_local! {
    /// How many of the manager's locks this thread holds.
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// A mutex. Debug builds count how many of them each thread holds.
pub(crate) struct Tracked<T>(Mutex<T>);

/// The guard of [`Tracked::lock`]. Like the guard in it, it stays in its thread.
pub(crate) struct TrackedGuard<'a, T>(MutexGuard<'a, T>);

impl<T> Tracked<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Waits for the lock.
    pub(crate) fn lock(&self) -> TrackedGuard<'_, T> {
        let guard = self.0.lock();
        #[cfg(debug_assertions)]
        HELD.with(|held| held.set(held.get() + 1));
        TrackedGuard(guard)
    }
}

impl<T: Default> Default for Tracked<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> fmt::Debug for Tracked<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tracked")
    }
}

impl<T> Drop for TrackedGuard<'_, T> {
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        HELD.with(|held| held.set(held.get() - 1));
    }
}

impl<T> Deref for TrackedGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for TrackedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// Panics in debug builds if this thread holds one of the manager's locks. `what` describes the operation.
#[inline]
#[track_caller]
pub(crate) fn assert_none_held(what: &str) {
    #[cfg(debug_assertions)]
    HELD.with(|held| assert_eq!(held.get(), 0, "{what} while this thread holds a lock of the manager"));
    #[cfg(not(debug_assertions))]
    let _ = what;
}

// Release builds do not count locks.
#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_knows_of_its_own_locks() {
        let (first, second) = (Tracked::new(1), Tracked::<u8>::default());
        assert_none_held("nothing is done");
        let one = first.lock();
        let two = second.lock();
        assert!(std::panic::catch_unwind(|| assert_none_held("something is done")).is_err());
        // The locks of another thread do not count.
        std::thread::scope(|scope| scope.spawn(|| assert_none_held("something is done elsewhere")).join().unwrap());
        drop(one);
        assert!(std::panic::catch_unwind(|| assert_none_held("something is done")).is_err());
        drop(two);
        assert_none_held("nothing is done");
    }
}
