//! Which bodies are there (`B`), by the groups of stores that hold them.

use kv::Txn;
use types::{BodyId, GroupId, Ino};

use crate::codec::{BadValue, Decoder, Encoder};
use crate::scan::collect;
use crate::{Content, NsError, Read, keys};

/// `B`: a committed (or interrupted and visible) body; by these a group's bodies are enumerated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BodyRecord {
    /// The group of stores.
    pub group: GroupId,
    /// The body.
    pub body: BodyId,
    /// The inode whose content it is.
    pub ino: Ino,
    /// Length in bytes.
    pub len: u64,
    /// The inode's generation when this was written.
    pub generation: u32,
    /// The writer's epoch.
    pub epoch: u32,
}

impl BodyRecord {
    pub(crate) fn put(&self, txn: &mut dyn Txn) {
        let mut out = Encoder::new(25);
        out.u64(self.ino.0);
        out.u64(self.len);
        out.u32(self.generation);
        out.u32(self.epoch);
        txn.put(&keys::body(self.group, self.body), &out.0);
    }

    pub(crate) fn decode(group: GroupId, body: BodyId, value: &[u8]) -> Result<Self, BadValue> {
        let mut from = Decoder::new(value, "a body")?;
        let (ino, len) = (Ino(from.u64()?), from.u64()?);
        let (generation, epoch) = (from.u32()?, from.u32()?);
        from.end()?;
        Ok(Self { group, body, ino, len, generation, epoch })
    }
}

pub(crate) fn body_of(ino: Ino, content: &Content, epoch: u32) -> BodyRecord {
    BodyRecord {
        group: content.group,
        body: content.body,
        ino,
        len: content.len,
        generation: content.generation,
        epoch,
    }
}

/// The bodies of `group` in order after `after`, at most `limit`: for audits of stores.
pub fn bodies(
    read: &dyn Read,
    group: GroupId,
    after: Option<BodyId>,
    limit: usize,
) -> Result<Vec<BodyRecord>, NsError> {
    let start = keys::body(group, BodyId(after.map_or(0, |body| body.0.saturating_add(1))));
    let end = keys::end_of(&keys::body(group, BodyId(u64::MAX)));
    collect(read, &start, &end, limit, |key, value| {
        let bad = || BadValue::Damaged("the key of a body has a wrong length").at(key);
        let body = keys::number_at(key, 9).map(BodyId).ok_or_else(bad)?;
        BodyRecord::decode(group, body, value).map(Some).map_err(|error| error.at(key))
    })
}

/// One body's record.
pub fn body_record(read: &dyn Read, group: GroupId, body: BodyId) -> Result<Option<BodyRecord>, NsError> {
    let key = keys::body(group, body);
    read.get(&key)?.map(|value| BodyRecord::decode(group, body, &value).map_err(|bad| bad.at(&key))).transpose()
}
