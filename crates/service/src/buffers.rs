//! Transfer buffers: aligned for direct I/O, from a bounded pool, returned after every step.
//!
//! Nobody waits for a buffer: when the pool is empty, the caller gets a small one of its own. So slow clients that
//! hold buffers make transfers less efficient, but block nobody.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::Mutex;
use store::{AlignedBuf, AtRest};

use crate::config::{READV_STEP_BYTES, SMALL_TRANSFER_BYTES, TRANSFER_BYTES, WRITE_BUFFERS_SHARE, WRITE_BYTES};
use crate::figures::Bounded;

/// The smallest buffer. Direct I/O needs addresses and lengths that are multiples of this.
const ALIGN: usize = 4096;

/// Space behind a buffer for the checksums of its pages, as pgread sends them.
const SUMS_ROOM: usize = 4096;

/// `len` bytes, aligned for direct I/O, and [`SUMS_ROOM`].
struct Aligned {
    bytes: AlignedBuf,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Self {
        Self { bytes: AlignedBuf::new(len + SUMS_ROOM), len }
    }
}

/// The pool.
pub struct Buffers {
    state: Mutex<PoolState>,
    buffers_max: usize,
}

struct PoolState {
    free: Vec<Aligned>,
    free_long: Vec<Aligned>,
    /// Buffers of [`WRITE_BYTES`] in use.
    long_out: usize,
    free_growing: Vec<Vec<u8>>,
    out: usize,
    /// Growing buffers outside the pool that may hold a whole segment.
    grown: usize,
}

impl Buffers {
    /// A pool of `buffers_max` buffers.
    pub fn new(buffers_max: usize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(PoolState {
                free: Vec::new(),
                free_long: Vec::new(),
                long_out: 0,
                free_growing: Vec::new(),
                out: 0,
                grown: 0,
            }),
            buffers_max,
        })
    }

    /// A buffer for data to write. Its size is [`WRITE_BYTES`] if one is free and `wanted` exceeds
    /// [`TRANSFER_BYTES`]. Otherwise it is the same as [`Buffers::take`].
    pub fn take_for_write(self: &Arc<Self>, wanted: usize) -> Buffer {
        if wanted > TRANSFER_BYTES {
            let mut state = self.state.lock();
            if state.long_out < self.buffers_max / WRITE_BUFFERS_SHARE {
                state.long_out += 1;
                let aligned = state.free_long.pop();
                drop(state);
                let aligned = aligned.unwrap_or_else(|| Aligned::new(WRITE_BYTES));
                return Buffer { aligned: Some(aligned), pool: Some(Arc::clone(self)) };
            }
        }
        self.take(wanted)
    }

    /// A buffer of [`TRANSFER_BYTES`]. If all of these are in use, or `wanted` is small, its size is
    /// [`SMALL_TRANSFER_BYTES`].
    pub fn take(self: &Arc<Self>, wanted: usize) -> Buffer {
        if wanted > SMALL_TRANSFER_BYTES {
            let mut state = self.state.lock();
            if state.out < self.buffers_max {
                state.out += 1;
                let aligned = state.free.pop();
                drop(state);
                let aligned = aligned.unwrap_or_else(|| Aligned::new(TRANSFER_BYTES));
                return Buffer { aligned: Some(aligned), pool: Some(Arc::clone(self)) };
            }
        }
        Buffer { aligned: Some(Aligned::new(wanted.clamp(ALIGN, SMALL_TRANSFER_BYTES))), pool: None }
    }

    /// An empty buffer for answers, with its recommended amount of data: [`READV_STEP_BYTES`], or
    /// [`SMALL_TRANSFER_BYTES`] when the pool is empty.
    pub fn take_growing(self: &Arc<Self>, wanted: usize) -> GrowingBuffer {
        if wanted > SMALL_TRANSFER_BYTES {
            let mut state = self.state.lock();
            if state.out < self.buffers_max {
                state.out += 1;
                let bytes = state.free_growing.pop();
                drop(state);
                let bytes = bytes.unwrap_or_else(|| vec![0; READV_STEP_BYTES + GROWING_SLACK]);
                return GrowingBuffer {
                    bytes,
                    used: 0,
                    step: READV_STEP_BYTES,
                    pool: Some(Arc::clone(self)),
                    grown: None,
                };
            }
        }
        GrowingBuffer { bytes: Vec::new(), used: 0, step: SMALL_TRANSFER_BYTES, pool: None, grown: None }
    }

    /// Whether `buffer` may hold one segment that is longer than its step. A buffer of the pool always may. Of the
    /// others, as many may as the pool has buffers.
    pub fn may_grow(self: &Arc<Self>, buffer: &mut GrowingBuffer) -> bool {
        if buffer.pool.is_some() || buffer.grown.is_some() {
            return true;
        }
        let mut state = self.state.lock();
        if state.grown >= self.buffers_max {
            return false;
        }
        state.grown += 1;
        buffer.grown = Some(Arc::clone(self));
        true
    }

    /// Buffers in use, and their maximum.
    pub fn in_use(&self) -> Bounded {
        let state = self.state.lock();
        Bounded { now: state.out + state.long_out, most: self.buffers_max + self.buffers_max / WRITE_BUFFERS_SHARE }
    }

    /// Frees unused buffers, except `keep` of them.
    pub fn trim(&self, keep: usize) {
        let mut state = self.state.lock();
        state.free.truncate(keep);
        state.free_long.truncate(keep.div_ceil(WRITE_BUFFERS_SHARE));
        state.free_growing.truncate(keep);
    }
}

/// Space behind the data: for headers, and for the margin of the last read.
const GROWING_SLACK: usize = 4096 + AtRest::MARGIN;

/// A vector from the pool. Its old contents are not cleared, because clearing costs as much as filling.
pub struct GrowingBuffer {
    bytes: Vec<u8>,
    used: usize,
    /// Recommended maximum of data, in bytes.
    pub step: usize,
    pool: Option<Arc<Buffers>>,
    grown: Option<Arc<Buffers>>,
}

impl GrowingBuffer {
    /// The contents.
    pub fn filled(&self) -> &[u8] {
        &self.bytes[..self.used]
    }

    /// Empties the buffer.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Appends `len` bytes for the caller to fill. Another `margin` bytes behind them may be overwritten and do not
    /// count. Their initial contents are arbitrary.
    pub fn more(&mut self, len: usize, margin: usize) -> &mut [u8] {
        let begin = self.used;
        self.used += len;
        let end = self.used + margin;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        &mut self.bytes[begin..end]
    }
}

impl Drop for GrowingBuffer {
    fn drop(&mut self) {
        if let Some(buffers) = self.grown.take() {
            buffers.state.lock().grown -= 1;
        }
        if let Some(pool) = self.pool.take() {
            let bytes = std::mem::take(&mut self.bytes);
            let mut state = pool.state.lock();
            state.out -= 1;
            if bytes.capacity() <= READV_STEP_BYTES + 2 * GROWING_SLACK {
                state.free_growing.push(bytes);
            }
        }
    }
}

/// A buffer that returns to the pool when dropped.
pub struct Buffer {
    aligned: Option<Aligned>,
    pool: Option<Arc<Buffers>>,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let (Some(pool), Some(aligned)) = (self.pool.take(), self.aligned.take()) {
            let mut state = pool.state.lock();
            if aligned.len == WRITE_BYTES {
                state.long_out -= 1;
                state.free_long.push(aligned);
            } else {
                state.out -= 1;
                state.free.push(aligned);
            }
        }
    }
}

impl Buffer {
    /// The buffer with the space for the checksums of its pages, and of one more page.
    pub fn with_sums_room(&mut self) -> &mut [u8] {
        self.aligned.as_mut().map_or(&mut [], |a| &mut a.bytes[..a.len + SUMS_ROOM])
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.aligned.as_ref().map_or(&[], |a| &a.bytes[..a.len])
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.aligned.as_mut().map_or(&mut [], |a| &mut a.bytes[..a.len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_pool_gives_small_buffers_and_takes_back_only_its_own() {
        let pool = Buffers::new(2);
        let first = pool.take(1 << 20);
        let second = pool.take(8 << 20);
        assert_eq!((first.len(), second.len()), (TRANSFER_BYTES, TRANSFER_BYTES));
        assert_eq!(first.as_ptr().addr() % ALIGN, 0);
        let third = pool.take(1 << 20);
        assert_eq!(third.len(), SMALL_TRANSFER_BYTES);
        assert_eq!(third.as_ptr().addr() % ALIGN, 0);
        drop(first);
        drop(third);
        assert_eq!(pool.take(1 << 20).len(), TRANSFER_BYTES);
        drop(second);
        assert_eq!(pool.state.lock().out, 0);
        assert_eq!(pool.state.lock().free.len(), 2);
        assert_eq!(pool.take(100).len(), ALIGN);
        assert_eq!(pool.take(100).with_sums_room().len(), ALIGN + SUMS_ROOM);
    }

    #[test]
    fn growing_buffers_keep_their_data_and_return_to_the_pool_unless_large() {
        let pool = Buffers::new(1);
        let mut buffer = pool.take_growing(1 << 20);
        buffer.more(3, 4).copy_from_slice(b"abcxxxx");
        buffer.more(2, 0).copy_from_slice(b"de");
        assert_eq!(buffer.filled(), b"abcde");
        buffer.clear();
        buffer.more(1, 0).copy_from_slice(b"x");
        assert_eq!(buffer.filled(), b"x");
        drop(buffer);
        let mut buffer = pool.take_growing(1 << 20);
        assert_eq!((buffer.filled(), pool.state.lock().free_growing.len()), (&b""[..], 0));
        buffer.more(2 * TRANSFER_BYTES, 0);
        drop(buffer);
        let (free, out) = {
            let state = pool.state.lock();
            (state.free_growing.len(), state.out)
        };
        assert_eq!((free, out), (0, 0));
        let mut small = pool.take_growing(1);
        assert_eq!((small.more(5, 2).len(), small.filled().len()), (7, 5));
    }

    #[test]
    fn when_large_buffers_are_in_use_writes_get_normal_ones() {
        let pool = Buffers::new(WRITE_BUFFERS_SHARE);
        let first = pool.take_for_write(TRANSFER_BYTES + 1);
        assert_eq!((first.len(), first.as_ptr().addr() % ALIGN), (WRITE_BYTES, 0));
        let second = pool.take_for_write(8 << 20);
        assert_eq!(second.len(), TRANSFER_BYTES);
        drop(first);
        drop(second);
        assert_eq!(pool.take_for_write(TRANSFER_BYTES).len(), TRANSFER_BYTES);
        assert_eq!(pool.take_for_write(8 << 20).len(), WRITE_BYTES);
        let state = pool.state.lock();
        assert_eq!((state.out, state.long_out, state.free.len(), state.free_long.len()), (0, 0, 1, 1));
    }
}
