//! `Q`: what a tree, or a user or group in it, uses and may use.

use std::fmt;
use std::time::Duration;

use kv::{Read, Txn};
use types::{PrincipalId, Timestamp, TreeId};

use crate::codec::{BadValue, Decoder, Encoder, field_u64};
use crate::{NsError, keys};

/// The grace of soft limits if nobody has set another one: 7 days.
const USUAL_GRACE_SECS: u64 = 7 * 86_400;

/// Whose usage a quota is about, in one tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum QuotaOf {
    /// All inodes of the tree.
    Tree,
    /// Those of this owner.
    User(PrincipalId),
    /// Those of this group.
    Group(PrincipalId),
}

/// An amount of storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Amount {
    /// Bytes.
    pub bytes: u64,
    /// Files, links and directories.
    pub files: u64,
}

/// A limit of bytes or of files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limit {
    /// Nothing may go above it.
    pub hard: Option<u64>,
    /// What stays above it for longer than the grace may not grow.
    pub soft: Option<u64>,
    /// Since when the usage is above the soft limit.
    pub over_since: Option<Timestamp>,
}

impl Limit {
    /// How much may still be added. `None`: any amount.
    fn room(&self, used: u64, grace: Duration, now: Timestamp) -> Option<u64> {
        if self.over_since.is_some_and(|since| since.plus(grace) <= now) {
            return Some(0);
        }
        self.hard.map(|hard| hard.saturating_sub(used))
    }

    /// Notes whether the usage is above the soft limit.
    fn note(&mut self, used: u64, now: Timestamp) {
        let is_over = self.soft.is_some_and(|soft| used > soft);
        // A time that has not come yet is from a clock that was wrong. The grace must not last until then.
        let since = self.over_since.map_or(now, |since| since.min(now));
        self.over_since = is_over.then_some(since);
    }
}

/// `Q`: the usage and the limits of a tree, or of a user or group in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotaRecord {
    /// The tree.
    pub tree: TreeId,
    /// Whose usage this is.
    pub of: QuotaOf,
    /// What is there.
    pub used: Amount,
    /// What open writes and kept uploads have reserved beside that.
    pub reserved: Amount,
    /// The limit of bytes.
    pub bytes: Limit,
    /// The limit of files.
    pub files: Limit,
    /// How long the usage may stay above a soft limit.
    pub grace: Duration,
}

const TAG_HARD_BYTES: u8 = 0x80;
const TAG_SOFT_BYTES: u8 = 0x81;
const TAG_HARD_FILES: u8 = 0x82;
const TAG_SOFT_FILES: u8 = 0x83;
const TAG_GRACE: u8 = 0x84;
const TAG_BYTES_SINCE: u8 = 0x85;
const TAG_FILES_SINCE: u8 = 0x86;

impl QuotaRecord {
    /// Nothing is used, and nothing limited.
    pub(crate) fn new(tree: TreeId, of: QuotaOf) -> Self {
        let (bytes, files) = (Limit::default(), Limit::default());
        let grace = Duration::from_secs(USUAL_GRACE_SECS);
        Self { tree, of, used: Amount::default(), reserved: Amount::default(), bytes, files, grace }
    }

    /// Whether somebody has set a limit.
    #[must_use]
    pub fn has_limits(&self) -> bool {
        [self.bytes.hard, self.bytes.soft, self.files.hard, self.files.soft].iter().any(Option::is_some)
    }

    /// How many bytes may still be reserved or used. `None`: any number.
    #[must_use]
    pub fn room_for_bytes(&self, now: Timestamp) -> Option<u64> {
        self.bytes.room(self.used.bytes.saturating_add(self.reserved.bytes), self.grace, now)
    }

    /// The same for files.
    #[must_use]
    pub fn room_for_files(&self, now: Timestamp) -> Option<u64> {
        self.files.room(self.used.files.saturating_add(self.reserved.files), self.grace, now)
    }

    /// Notes which usage is above its soft limit. Call it after each change of the usage or of the limits.
    pub(crate) fn note(&mut self, now: Timestamp) {
        self.bytes.note(self.used.bytes, now);
        self.files.note(self.used.files, now);
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::new(96);
        for amount in [self.used, self.reserved] {
            out.u64(amount.bytes);
            out.u64(amount.files);
        }
        let mut tag = |tag, value: Option<u64>| {
            if let Some(value) = value {
                out.tag_u64(tag, value);
            }
        };
        tag(TAG_HARD_BYTES, self.bytes.hard);
        tag(TAG_SOFT_BYTES, self.bytes.soft);
        tag(TAG_HARD_FILES, self.files.hard);
        tag(TAG_SOFT_FILES, self.files.soft);
        tag(TAG_GRACE, Some(self.grace.as_secs()).filter(|secs| *secs != USUAL_GRACE_SECS));
        tag(TAG_BYTES_SINCE, self.bytes.over_since.map(|since| since.0.cast_unsigned()));
        tag(TAG_FILES_SINCE, self.files.over_since.map(|since| since.0.cast_unsigned()));
        out.0
    }

    /// Decodes the value at the key of `tree` and `of`.
    pub(crate) fn decode(tree: TreeId, of: QuotaOf, value: &[u8]) -> Result<Self, BadValue> {
        let mut from = Decoder::new(value, "a quota")?;
        let mut amount = || Ok(Amount { bytes: from.u64()?, files: from.u64()? });
        let (used, reserved) = (amount()?, amount()?);
        let mut record = Self { used, reserved, ..Self::new(tree, of) };
        from.tags(|tag, field| {
            let value = || field_u64(field);
            let since = || field_u64(field).map(|since| Some(Timestamp(since.cast_signed())));
            match tag {
                TAG_HARD_BYTES => record.bytes.hard = Some(value()?),
                TAG_SOFT_BYTES => record.bytes.soft = Some(value()?),
                TAG_HARD_FILES => record.files.hard = Some(value()?),
                TAG_SOFT_FILES => record.files.soft = Some(value()?),
                TAG_GRACE => record.grace = Duration::from_secs(value()?),
                TAG_BYTES_SINCE => record.bytes.over_since = since()?,
                TAG_FILES_SINCE => record.files.over_since = since()?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(record)
    }

    /// The record, or an empty one.
    pub(crate) fn get(read: &dyn Read, tree: TreeId, of: QuotaOf) -> Result<Self, NsError> {
        let key = keys::quota(tree, of);
        match read.get(&key)? {
            Some(value) => Self::decode(tree, of, &value).map_err(|bad| bad.at(&key)),
            None => Ok(Self::new(tree, of)),
        }
    }

    /// Writes the record. One without usage and limits goes, so that users who have left leave nothing behind.
    pub(crate) fn put(&self, txn: &mut dyn Txn) {
        let key = keys::quota(self.tree, self.of);
        let nothing = Amount::default();
        if self.used == nothing && self.reserved == nothing && !self.has_limits() {
            txn.delete(&key);
        } else {
            txn.put(&key, &self.encode());
        }
    }
}

/// The record at a key.
pub(crate) fn decode_at(key: &[u8], value: &[u8]) -> Result<QuotaRecord, NsError> {
    let (tree, of) = at_key(key).ok_or_else(|| BadValue::Damaged("the key of a quota is not valid").at(key))?;
    QuotaRecord::decode(tree, of, value).map_err(|bad| bad.at(key))
}

/// Tree and owner of the usage in a key of a quota.
pub(crate) fn at_key(key: &[u8]) -> Option<(TreeId, QuotaOf)> {
    let tree = keys::number_at(key, 1).map(TreeId)?;
    let (kind, id) = key.get(9..)?.split_first_chunk::<1>()?;
    let id = PrincipalId(u32::from_be_bytes(id.try_into().ok()?));
    match kind {
        [0] if id.0 == 0 => Some((tree, QuotaOf::Tree)),
        [1] => Some((tree, QuotaOf::User(id))),
        [2] => Some((tree, QuotaOf::Group(id))),
        _ => None,
    }
}

impl fmt::Display for QuotaOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tree => f.write_str("tree"),
            Self::User(id) => write!(f, "user {id}"),
            Self::Group(id) => write!(f, "group {id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> QuotaRecord {
        QuotaRecord {
            used: Amount { bytes: 5, files: 6 },
            reserved: Amount { bytes: 7, files: 8 },
            bytes: Limit { hard: Some(9), soft: Some(4), over_since: Some(Timestamp(-1)) },
            files: Limit { hard: Some(10), soft: Some(5), over_since: Some(Timestamp(2)) },
            grace: Duration::from_secs(3),
            ..QuotaRecord::new(TreeId(1), QuotaOf::User(PrincipalId(2)))
        }
    }

    #[test]
    fn values_and_keys_read_back() {
        let record = record();
        for record in [record, QuotaRecord::new(TreeId(1), QuotaOf::Tree)] {
            assert_eq!(QuotaRecord::decode(record.tree, record.of, &record.encode()), Ok(record));
            assert_eq!(at_key(&keys::quota(record.tree, record.of)), Some((record.tree, record.of)));
        }
        let whole = record.encode();
        // A value that is cut between two fields is still valid.
        let cuts = (0..whole.len()).filter(|len| QuotaRecord::decode(record.tree, record.of, &whole[..*len]).is_ok());
        assert_eq!(cuts.count(), 7);
        let group = keys::quota(TreeId(1), QuotaOf::Group(PrincipalId(2)));
        for bad in [&group[..group.len() - 1], &[&group[..], b"\0"].concat(), b"Q\0\0\0\0\0\0\0\x01\x03\0\0\0\0"] {
            assert_eq!(at_key(bad), None, "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn a_soft_limit_holds_after_its_grace_and_begins_again_below_it() {
        let secs = |secs: i64| Timestamp(secs * 1_000_000_000);
        let mut record = QuotaRecord { reserved: Amount::default(), ..record() };
        record.bytes = Limit { hard: Some(100), soft: Some(10), over_since: None };
        for (used, at, room) in
            [(10, 0, 90), (11, 1, 89), (20, 3, 80), (20, 4, 0), (12, 5, 0), (10, 6, 90), (11, 7, 89)]
        {
            record.used.bytes = used;
            record.note(secs(at));
            assert_eq!(record.room_for_bytes(secs(at)), Some(room), "{used} at {at}");
        }
        record.note(secs(1_000_000));
        (record.bytes.over_since, record.used.bytes) = (Some(secs(1_000_000)), 12);
        record.note(secs(20));
        assert_eq!(record.room_for_bytes(secs(22)), Some(88));
        assert_eq!(record.room_for_bytes(secs(23)), Some(0), "a clock that was ahead does not make the grace longer");
        record.used.bytes = 11;
        (record.bytes.over_since, record.reserved.bytes) = (Some(secs(6)), 80);
        assert_eq!(record.room_for_bytes(secs(7)), Some(9), "what is reserved is not free");
        record.bytes.hard = Some(50);
        assert_eq!(record.room_for_bytes(secs(7)), Some(0), "a limit below the usage");
        record.bytes = Limit { soft: Some(50), ..Limit::default() };
        record.note(secs(8));
        assert_eq!(record.room_for_bytes(secs(8)), None);
    }
}
