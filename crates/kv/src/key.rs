//! A key with its first bytes beside it. Most comparisons end there, without reading the rest of the key elsewhere in
//! memory.

use std::borrow::Borrow;
use std::cmp::Ordering;

use crate::write_set::Bytes;

/// The first 24 bytes of a key as big-endian numbers, padded with zeros. Where they differ, they sort like the keys.
type KeyPrefix = [u64; 3];

/// A key that sorts like its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    beginning: KeyPrefix,
    bytes: Bytes,
}

/// A borrowed [`Key`].
#[derive(Clone, Copy)]
pub(crate) struct KeyRef<'a> {
    beginning: KeyPrefix,
    bytes: &'a [u8],
}

impl Key {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self { beginning: beginning(&bytes), bytes }
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

impl<'a> KeyRef<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { beginning: beginning(bytes), bytes }
    }
}

fn beginning(key: &[u8]) -> KeyPrefix {
    let mut bytes = [0; 24];
    let len = key.len().min(24);
    bytes[..len].copy_from_slice(&key[..len]);
    let (words, _) = bytes.as_chunks::<8>();
    std::array::from_fn(|at| words.get(at).map_or(0, |word| u64::from_be_bytes(*word)))
}

/// Lets maps be searched with a borrowed key.
pub(crate) trait AsKey {
    fn as_key(&self) -> KeyRef<'_>;
}

impl AsKey for Key {
    #[inline]
    fn as_key(&self) -> KeyRef<'_> {
        KeyRef { beginning: self.beginning, bytes: &self.bytes }
    }
}

impl AsKey for KeyRef<'_> {
    #[inline]
    fn as_key(&self) -> KeyRef<'_> {
        *self
    }
}

impl<'a> Borrow<dyn AsKey + 'a> for Key {
    fn borrow(&self) -> &(dyn AsKey + 'a) {
        self
    }
}

impl Ord for KeyRef<'_> {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.beginning.cmp(&other.beginning).then_with(|| self.bytes.cmp(other.bytes))
    }
}
impl PartialOrd for KeyRef<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for KeyRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}
impl Eq for KeyRef<'_> {}

impl Ord for dyn AsKey + '_ {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_key().cmp(&other.as_key())
    }
}
impl PartialOrd for dyn AsKey + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for dyn AsKey + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.as_key() == other.as_key()
    }
}
impl Eq for dyn AsKey + '_ {}

impl Ord for Key {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_key().cmp(&other.as_key())
    }
}
impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}
impl Eq for Key {}

#[cfg(test)]
mod tests {
    use super::*;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    #[test]
    fn keys_sort_like_their_bytes() {
        let mut rng = SmallRng::seed_from_u64(1);
        let mut key = move || -> Vec<u8> {
            // Shorter than, equal to and longer than the first part; mostly with common prefixes.
            let len = [0, 1, 7, 8, 9, 22, 23, 24, 25, 26, 40][rng.random_range(0..11)];
            let mut key = vec![rng.random_range(0..2); len];
            if len > 0 {
                key[rng.random_range(0..len)] = [0, 1, 0xff][rng.random_range(0..3)];
            }
            key
        };
        for _ in 0..200_000 {
            let (a, b) = (key(), key());
            let (ours, plain) = (KeyRef::new(&a).cmp(&KeyRef::new(&b)), a.cmp(&b));
            assert_eq!(ours, plain, "{a:x?} and {b:x?}");
            assert_eq!(KeyRef::new(&a) == KeyRef::new(&b), a == b, "{a:x?} and {b:x?}");
        }
    }
}
