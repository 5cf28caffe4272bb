//! A bounded pool of aligned buffers for direct writes.

use std::ops::{Deref, DerefMut};

use disk::AlignedBuf;
use parking_lot::{Condvar, Mutex};

/// Bytes of one buffer.
pub(crate) const BUFFER: usize = 1 << 20;

pub(crate) struct Buffers {
    state: Mutex<(Vec<AlignedBuf>, usize)>,
    given_back: Condvar,
    max: usize,
}

/// A buffer that returns to the pool when dropped.
pub(crate) struct Buffer<'a> {
    pool: &'a Buffers,
    buf: Option<AlignedBuf>,
}

impl Buffers {
    pub(crate) fn new(max: usize) -> Self {
        Self { state: Mutex::new((Vec::new(), 0)), given_back: Condvar::new(), max: max.max(4) }
    }

    /// Waits for a free buffer. The holder of one must wait only for the disk.
    pub(crate) fn take(&self) -> Buffer<'_> {
        let mut state = self.state.lock();
        loop {
            if let Some(buf) = state.0.pop() {
                return Buffer { pool: self, buf: Some(buf) };
            }
            if state.1 < self.max {
                state.1 += 1;
                return Buffer { pool: self, buf: Some(AlignedBuf::new(BUFFER)) };
            }
            self.given_back.wait(&mut state);
        }
    }
}

impl Deref for Buffer<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.buf.as_deref().unwrap_or(&[])
    }
}

impl DerefMut for Buffer<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.buf.as_deref_mut().unwrap_or(&mut [])
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        if let Some(buf) = self.buf.take() {
            self.pool.state.lock().0.push(buf);
            self.pool.given_back.notify_one();
        }
    }
}
