//! Buffers for bytes between nodes and disks. They are aligned, so a direct write needs no other copy. They are reused, so nobody clears them for
//! each message.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use store::AlignedBuf;

/// Buffers up to this size have memory of their own and are not kept.
const SMALL: usize = 64 << 10;
/// The sizes of kept buffers, and how many of each to keep at most. A client's bytes are stored in steps of these sizes.
const KEPT: [(usize, usize); 3] = [(256 << 10, 32), (1 << 20, 16), (4 << 20, 8)];

/// Bytes in such a buffer.
pub struct BulkBytes {
    memory: Memory,
    len: usize,
}

enum Memory {
    Small(Vec<u8>),
    /// `None` once the buffer has been given back.
    Large(Option<AlignedBuf>, Option<Arc<Kept>>),
}

/// A pool of reusable buffers.
#[derive(Clone, Default)]
pub struct BulkPool(Arc<Kept>);

#[derive(Default)]
struct Kept([Mutex<Vec<AlignedBuf>>; KEPT.len()]);

impl BulkPool {
    /// A buffer of `len` bytes. It may contain bytes of an earlier use.
    #[must_use]
    pub fn take(&self, len: usize) -> BulkBytes {
        let class = KEPT.iter().position(|(size, _)| len <= *size);
        let (Some(class), true) = (class, len > SMALL) else { return BulkBytes::new(len) };
        let kept = self.0.0.get(class).and_then(|kept| kept.lock().pop());
        let buffer = kept.unwrap_or_else(|| AlignedBuf::new(KEPT.get(class).map_or(len, |(size, _)| *size)));
        BulkBytes { memory: Memory::Large(Some(buffer), Some(Arc::clone(&self.0))), len }
    }

    /// A copy of these bytes.
    #[must_use]
    pub fn copy(&self, bytes: &[u8]) -> BulkBytes {
        let mut copy = self.take(bytes.len());
        copy.as_mut().copy_from_slice(bytes);
        copy
    }
}

impl fmt::Debug for BulkPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BulkPool")
    }
}

impl BulkBytes {
    /// `len` zeros, in memory of their own.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let memory =
            if len > SMALL { Memory::Large(Some(AlignedBuf::new(len)), None) } else { Memory::Small(vec![0; len]) };
        Self { memory, len }
    }

    /// Shortens to at most `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    fn memory(&self) -> &[u8] {
        match &self.memory {
            Memory::Small(bytes) => bytes,
            Memory::Large(buffer, _) => buffer.as_deref().unwrap_or_default(),
        }
    }
}

impl AsRef<[u8]> for BulkBytes {
    fn as_ref(&self) -> &[u8] {
        self.memory().get(..self.len).unwrap_or_default()
    }
}

impl AsMut<[u8]> for BulkBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        let memory = match &mut self.memory {
            Memory::Small(bytes) => bytes,
            Memory::Large(buffer, _) => buffer.as_deref_mut().unwrap_or_default(),
        };
        memory.get_mut(..self.len).unwrap_or_default()
    }
}

impl Drop for BulkBytes {
    fn drop(&mut self) {
        let Memory::Large(buffer, Some(pool)) = &mut self.memory else { return };
        let Some(buffer) = buffer.take() else { return };
        let class = KEPT.iter().zip(&pool.0).find(|((size, _), _)| *size == buffer.len());
        if let Some(((_, most), kept)) = class {
            let mut kept = kept.lock();
            if kept.len() < *most {
                kept.push(buffer);
            }
        }
    }
}

impl fmt::Debug for BulkBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BulkBytes({})", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_have_the_requested_length_and_are_reused() {
        let pool = BulkPool::default();
        for len in [0, 1, SMALL, SMALL + 1, 1 << 20, (1 << 20) + 1, 4 << 20, (4 << 20) + 1] {
            let mut bytes = pool.take(len);
            assert_eq!((bytes.as_ref().len(), bytes.as_mut().len()), (len, len));
            if len > SMALL {
                assert_eq!(bytes.as_ref().as_ptr() as usize % 4096, 0, "{len}");
            }
            bytes.truncate(7);
            assert_eq!(bytes.as_ref().len(), len.min(7));
        }
        let mut one = pool.take(100_000);
        one.as_mut().fill(1);
        let at = one.as_ref().as_ptr();
        drop(one);
        let again = pool.take(256 << 10);
        assert_eq!(again.as_ref().as_ptr(), at);
        assert_eq!(again.as_ref().len(), 256 << 10);
        assert_ne!(pool.take(256 << 10).as_ref().as_ptr(), at, "it is in use");
    }

    #[test]
    fn the_pool_keeps_no_more_than_its_limits() {
        let pool = BulkPool::default();
        let all: Vec<BulkBytes> = (0..100).map(|_| pool.take(1 << 20)).collect();
        drop(all);
        assert_eq!(pool.0.0.each_ref().map(|kept| kept.lock().len()), [0, 16, 0]);
    }
}
