//! The buffers of one copy: as many as there are, and whoever has none left waits.

use std::sync::atomic::{AtomicBool, Ordering};

use disk::AlignedBuf;
use parking_lot::{Condvar, Mutex};

/// Buffers that go round between reading and writing.
#[derive(Debug)]
pub struct Pool {
    free: Mutex<Vec<AlignedBuf>>,
    returned: Condvar,
    stopped: AtomicBool,
}

impl Pool {
    /// `count` buffers of `len` bytes.
    #[must_use]
    pub fn new(count: usize, len: usize) -> Self {
        let free = (0..count).map(|_| AlignedBuf::new(len)).collect();
        Self { free: Mutex::new(free), returned: Condvar::new(), stopped: AtomicBool::new(false) }
    }

    /// Takes one, waiting until there is one; `None`: the copy has been given up.
    pub fn take(&self) -> Option<AlignedBuf> {
        let mut free = self.free.lock();
        loop {
            if self.stopped.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(buffer) = free.pop() {
                return Some(buffer);
            }
            self.returned.wait(&mut free);
        }
    }

    /// Takes one if there is one, and the copy has not been given up.
    pub fn try_take(&self) -> Option<AlignedBuf> {
        let mut free = self.free.lock();
        if self.stopped.load(Ordering::Relaxed) { None } else { free.pop() }
    }

    /// Gives one back.
    pub fn give(&self, buffer: AlignedBuf) {
        self.free.lock().push(buffer);
        self.returned.notify_one();
    }

    /// Gives the copy up: nobody waits any more.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        let _held = self.free.lock();
        self.returned.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_gets_what_comes_back_and_goes_when_it_ends() {
        let pool = Pool::new(1, 4096);
        let only = pool.take();
        assert!(only.is_some() && pool.try_take().is_none());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| pool.take().is_some());
            pool.give(only.unwrap_or_else(|| AlignedBuf::new(0)));
            assert!(waiting.join().is_ok_and(|got| got));
            let waiting = scope.spawn(|| pool.take().is_some());
            pool.stop();
            assert!(waiting.join().is_ok_and(|got| !got));
        });
        pool.give(AlignedBuf::new(0));
        assert!(pool.try_take().is_none(), "who has others under way asks for no more");
    }
}
