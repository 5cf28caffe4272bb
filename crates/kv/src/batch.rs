//! A batch: the resulting keys and values of a change, and its bytes in a journal record (`docs/reference/formats.md`).

use std::collections::BTreeMap;

use crate::KvError;
use crate::key::Key;
use crate::write_set::Bytes;

/// Longest key, in bytes.
pub const KEY_MAX: usize = 4096;
/// Longest value, in bytes.
pub const VALUE_MAX: usize = 1 << 20;
/// Longest encoded batch in bytes: the limit of one journal record.
pub const BATCH_MAX: usize = journal::PAYLOAD_MAX;
/// Keys from this byte on belong to the engine.
pub(crate) const RESERVED: u8 = 0xff;

const VERSION: u8 = 1;
const HEADER: usize = 6;
const ENTRY_HEADER: usize = 6;
const DELETED: u32 = u32::MAX;

/// Puts and deletions that happen together. Each key has one entry: a later one replaces an earlier one.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Batch {
    entries: BTreeMap<Key, Option<Bytes>>,
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` (1 to [`KEY_MAX`] bytes, the first not 0xff) to `value` (up to [`VALUE_MAX`] bytes). Appending the
    /// batch checks these limits.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.entries.insert(Key::new(key.into()), Some(value.into()));
    }

    /// Deletes `key`.
    pub fn delete(&mut self, key: &[u8]) {
        self.entries.insert(Key::new(key.into()), None);
    }

    /// Whether the batch has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entries in key order; `None` is a deletion.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.entries.iter().map(|(key, value)| (&**key.bytes(), value.as_deref()))
    }

    /// Encodes the batch as a journal record.
    ///
    /// # Errors
    /// [`KvError::TooLarge`], [`KvError::BadKey`]: an entry or the batch exceeds a limit.
    pub fn encode(&self) -> Result<Vec<u8>, KvError> {
        let mut out = Vec::new();
        encode(self.iter(), &mut out)?;
        Ok(out)
    }

    /// Decodes a journal record. Rejects everything that [`Batch::encode`] would not write.
    ///
    /// # Errors
    /// [`KvError::Damaged`], [`KvError::Unsupported`].
    pub fn decode(payload: &[u8]) -> Result<Self, KvError> {
        let mut entries = BTreeMap::new();
        for entry in decode(payload)? {
            let (key, value) = entry?;
            entries.insert(Key::new(key.into()), value.map(Bytes::from));
        }
        Ok(Self { entries })
    }

    pub(crate) fn from_map(entries: BTreeMap<Key, Option<Bytes>>) -> Self {
        Self { entries }
    }

    pub(crate) fn shared(&self) -> impl Iterator<Item = (Key, Option<Bytes>)> {
        self.entries.iter().map(|(key, value)| (key.clone(), value.clone()))
    }
}

/// Whether key and value are within the limits.
pub(crate) fn check(key: &[u8], value: Option<&[u8]>) -> Result<(), KvError> {
    if key.is_empty() || key.first() == Some(&RESERVED) {
        return Err(KvError::BadKey);
    }
    if key.len() > KEY_MAX {
        return Err(KvError::TooLarge { what: "a key", len: key.len(), limit: KEY_MAX });
    }
    match value {
        Some(value) if value.len() > VALUE_MAX => {
            Err(KvError::TooLarge { what: "a value", len: value.len(), limit: VALUE_MAX })
        }
        _ => Ok(()),
    }
}

/// Replaces the contents of `out` with the encoded `entries`; each key occurs once.
pub(crate) fn encode<'a>(
    entries: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    out: &mut Vec<u8>,
) -> Result<(), KvError> {
    out.clear();
    out.extend_from_slice(&[VERSION, 0, 0, 0, 0, 0]);
    let mut count = 0u32;
    for (key, value) in entries {
        check(key, value)?;
        count += 1;
        push_entry(key, value, out);
        if out.len() > BATCH_MAX {
            return Err(KvError::TooLarge { what: "a batch of changes", len: out.len(), limit: BATCH_MAX });
        }
    }
    if let Some(slot) = out.get_mut(2..HEADER) {
        slot.copy_from_slice(&count.to_le_bytes());
    }
    Ok(())
}

/// Appends one entry: length of the key, length of the value (all ones: deleted), both little-endian, then key and
/// value. Both must be within the limits.
#[allow(clippy::cast_possible_truncation)] // every caller checks KEY_MAX and VALUE_MAX
pub(crate) fn push_entry(key: &[u8], value: Option<&[u8]>, out: &mut Vec<u8>) {
    out.extend_from_slice(&(key.len() as u16).to_le_bytes());
    out.extend_from_slice(&value.map_or(DELETED, |value| value.len() as u32).to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(value.unwrap_or_default());
}

/// Takes one entry from the front of `rest`.
pub(crate) fn take_entry<'a>(rest: &mut &'a [u8]) -> Result<(&'a [u8], Option<&'a [u8]>), &'static str> {
    let (head, after) = rest.split_at_checked(ENTRY_HEADER).ok_or("an entry's lengths are cut")?;
    let &[k0, k1, v0, v1, v2, v3] = head else { return Err("an entry's lengths are cut") };
    let key_len = usize::from(u16::from_le_bytes([k0, k1]));
    let value_len = u32::from_le_bytes([v0, v1, v2, v3]);
    if key_len == 0 || key_len > KEY_MAX {
        return Err("a key's length is out of bounds");
    }
    let (key, after) = after.split_at_checked(key_len).ok_or("a key is cut")?;
    if key.first() == Some(&RESERVED) {
        return Err("a key begins with a reserved byte");
    }
    if value_len == DELETED {
        *rest = after;
        return Ok((key, None));
    }
    let value_len = usize::try_from(value_len).unwrap_or(usize::MAX);
    if value_len > VALUE_MAX {
        return Err("a value's length is out of bounds");
    }
    let (value, after) = after.split_at_checked(value_len).ok_or("a value is cut")?;
    *rest = after;
    Ok((key, Some(value)))
}

type Entry<'a> = Result<(&'a [u8], Option<&'a [u8]>), KvError>;

/// The entries of a record. An error is the last item; trailing bytes are an error.
pub(crate) fn decode(payload: &[u8]) -> Result<impl Iterator<Item = Entry<'_>>, KvError> {
    let damaged = |what: &str| KvError::Damaged(format!("a batch in the journal: {what}"));
    let (header, mut rest) = payload.split_at_checked(HEADER).ok_or_else(|| damaged("shorter than its header"))?;
    let &[version, flags, c0, c1, c2, c3] = header else { return Err(damaged("shorter than its header")) };
    if version != VERSION || flags != 0 {
        let what =
            format!("a batch in the journal has version {version} with flags {flags:#x}, which is not known here");
        return Err(KvError::Unsupported(what));
    }
    let mut left = u32::from_le_bytes([c0, c1, c2, c3]);
    let mut failed = false;
    Ok(std::iter::from_fn(move || {
        if failed {
            return None;
        }
        if left == 0 {
            failed = true;
            let trailing = rest.len();
            return (trailing > 0).then(|| {
                Err(KvError::Damaged(format!("a batch in the journal: {trailing} bytes after its last entry")))
            });
        }
        left -= 1;
        let entry = take_entry(&mut rest);
        failed = entry.is_err();
        Some(entry.map_err(|what| KvError::Damaged(format!("a batch in the journal: {what}"))))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Batch {
        let mut batch = Batch::new();
        batch.put(b"name", b"value");
        batch.put(b"empty", b"");
        batch.delete(b"gone");
        batch.put(b"name", b"newer");
        batch
    }

    #[test]
    fn the_bytes_are_pinned() {
        let bytes = sample().encode().unwrap();
        let expected = [
            b"\x01\x00\x03\x00\x00\x00".as_slice(),
            b"\x05\x00\x00\x00\x00\x00empty",
            b"\x04\x00\xff\xff\xff\xffgone",
            b"\x04\x00\x05\x00\x00\x00namenewer",
        ]
        .concat();
        assert_eq!(bytes, expected);
        assert_eq!(Batch::decode(&bytes).unwrap(), sample());
    }

    #[test]
    fn every_cut_and_every_trailing_byte_is_refused() {
        let bytes = sample().encode().unwrap();
        for len in 0..bytes.len() {
            assert!(Batch::decode(&bytes[..len]).is_err(), "cut at {len}");
        }
        assert!(Batch::decode(&[bytes.as_slice(), b"\0"].concat()).is_err());
        let mut other = bytes.clone();
        other[0] = 2;
        assert!(matches!(Batch::decode(&other), Err(KvError::Unsupported(_))));
        other[0] = 1;
        other[1] = 1;
        assert!(matches!(Batch::decode(&other), Err(KvError::Unsupported(_))));
    }

    #[test]
    fn any_flipped_byte_is_refused_or_decodes_within_bounds() {
        let bytes = sample().encode().unwrap();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut other = bytes.clone();
                other[at] ^= 1 << bit;
                if let Ok(batch) = Batch::decode(&other) {
                    assert!(batch.iter().all(|(key, value)| check(key, value).is_ok()));
                }
            }
        }
    }

    #[test]
    fn limits_are_exact() {
        let mut batch = Batch::new();
        batch.put(&[b'k'; KEY_MAX], &vec![b'v'; VALUE_MAX]);
        assert_eq!(Batch::decode(&batch.encode().unwrap()).unwrap(), batch);
        for (key, value) in [(vec![b'k'; KEY_MAX + 1], vec![]), (vec![b'k'], vec![0; VALUE_MAX + 1])] {
            let mut batch = Batch::new();
            batch.put(&key, &value);
            assert!(matches!(batch.encode(), Err(KvError::TooLarge { .. })));
        }
        for key in [b"".as_slice(), b"\xffk"] {
            let mut batch = Batch::new();
            batch.delete(key);
            assert!(batch.encode().is_err());
        }
    }
}
