//! The fixed set of buffers of one copy. A thread that finds none waits.

use std::sync::atomic::{AtomicBool, Ordering};

use disk::AlignedBuf;
use parking_lot::{Condvar, Mutex};

/// Buffers that circulate between reading and writing.
#[derive(Debug)]
pub struct Pool {
    free: Mutex<Vec<AlignedBuf>>,
    returned: Condvar,
    stopped: AtomicBool,
}

impl Pool {
    /// Makes `count` buffers of `len` bytes.
    #[must_use]
    pub fn new(count: usize, len: usize) -> Self {
        let free = (0..count).map(|_| AlignedBuf::new(len)).collect();
        Self { free: Mutex::new(free), returned: Condvar::new(), stopped: AtomicBool::new(false) }
    }

    /// Takes a buffer, and waits for one; `None`: the copy was cancelled.
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

    /// Takes a buffer if one is free and the copy was not cancelled.
    pub fn try_take(&self) -> Option<AlignedBuf> {
        let mut free = self.free.lock();
        if self.stopped.load(Ordering::Relaxed) { None } else { free.pop() }
    }

    /// Returns a buffer.
    pub fn give(&self, buffer: AlignedBuf) {
        self.free.lock().push(buffer);
        self.returned.notify_one();
    }

    /// Gives the copy up: all waiting ends.
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
    fn a_waiting_thread_gets_a_returned_buffer_and_stops_at_the_end() {
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
