//! The records of existing objects (`B`), by the groups of stores that hold them.

use kv::Txn;
use types::{GroupId, Ino, ObjectId};

use crate::ahead::{replicas_ahead, tell};
use crate::codec::{BadValue, Decoder, Encoder};
use crate::scan::collect;
use crate::{Content, NsError, Read, keys};

/// `B`: a committed object, or an interrupted one that is visible. These records list a group's objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectRecord {
    /// The group of stores.
    pub group: GroupId,
    /// The object.
    pub object: ObjectId,
    /// The inode that points to it.
    pub ino: Ino,
    /// Length in bytes.
    pub len: u64,
    /// The inode's generation when this was written.
    pub generation: u32,
    /// The writer's epoch.
    pub epoch: u32,
}

impl ObjectRecord {
    pub(crate) fn put(&self, txn: &mut dyn Txn) {
        let mut out = Encoder::new(25);
        out.u64(self.ino.0);
        out.u64(self.len);
        out.u32(self.generation);
        out.u32(self.epoch);
        txn.put(&keys::object(self.group, self.object), &out.0);
    }

    pub(crate) fn decode(group: GroupId, object: ObjectId, value: &[u8]) -> Result<Self, BadValue> {
        let mut from = Decoder::new(value, "an object")?;
        let (ino, len) = (Ino(from.u64()?), from.u64()?);
        let (generation, epoch) = (from.u32()?, from.u32()?);
        from.end()?;
        Ok(Self { group, object, ino, len, generation, epoch })
    }
}

pub(crate) fn object_of(ino: Ino, content: &Content, epoch: u32) -> ObjectRecord {
    ObjectRecord {
        group: content.group,
        object: content.object,
        ino,
        len: content.len,
        generation: content.generation,
        epoch,
    }
}

/// The objects of `group` in order after `after`, at most `limit`. Audits of stores use it.
pub fn objects(
    read: &dyn Read,
    group: GroupId,
    after: Option<ObjectId>,
    limit: usize,
) -> Result<Vec<ObjectRecord>, NsError> {
    let start = keys::object(group, ObjectId(after.map_or(0, |object| object.0.saturating_add(1))));
    let end = keys::end_of(&keys::object(group, ObjectId(u64::MAX)));
    collect(read, &start, &end, limit, |key, value| {
        let bad = || BadValue::Damaged("the key of an object has a wrong length").at(key);
        let object = keys::number_at(key, 9).map(ObjectId).ok_or_else(bad)?;
        ObjectRecord::decode(group, object, value).map(Some).map_err(|error| error.at(key))
    })
}

/// One object's record.
pub fn object_record(read: &dyn Read, group: GroupId, object: ObjectId) -> Result<Option<ObjectRecord>, NsError> {
    tell(read, &|| replicas_ahead(group, object))?;
    let key = keys::object(group, object);
    read.get(&key)?.map(|value| ObjectRecord::decode(group, object, &value).map_err(|bad| bad.at(&key))).transpose()
}
