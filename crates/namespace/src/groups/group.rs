//! The records of groups of stores (`G`).

use kv::{Read, Txn};
use types::{Group, GroupId, Member, ObjectId, StoreId};

use crate::codec::{BadValue, Decoder, Encoder};
use crate::scan::scan_numbers;
use crate::{NsError, keys};

/// The most stores of one group.
pub(crate) const MEMBERS_MAX: usize = 64;

/// The record of a group.
pub fn group(read: &dyn Read, group: GroupId) -> Result<Option<Group>, NsError> {
    let key = keys::group(group);
    read.get(&key)?.map(|value| decode_group(group, &value).map_err(|bad| bad.at(&key))).transpose()
}

/// Groups after `after`, in their order, at most `limit`.
pub fn groups(read: &dyn Read, after: Option<GroupId>, limit: usize) -> Result<Vec<Group>, NsError> {
    let start = keys::group(GroupId(after.map_or(0, |after| after.0.saturating_add(1))));
    let end = keys::end_of(b"G");
    scan_numbers(read, &start, &end, limit, |number, _, value| decode_group(GroupId(number), value))
}

pub(crate) fn write_group(txn: &mut dyn Txn, group: &Group) {
    txn.put(&keys::group(group.group), &encode_group(group));
}

fn encode_group(group: &Group) -> Vec<u8> {
    let mut out = Encoder::new(7 + group.members.len() * 24);
    out.u32(group.epoch);
    out.u16(u16::try_from(group.members.len()).unwrap_or(u16::MAX));
    for member in &group.members {
        out.u64(member.store.0);
        out.u64(member.since.0);
        out.u64(member.through.0);
    }
    out.0
}

pub(crate) fn decode_group(group: GroupId, value: &[u8]) -> Result<Group, BadValue> {
    let mut from = Decoder::new(value, "a group of stores")?;
    let (epoch, count) = (from.u32()?, usize::from(from.u16()?));
    if count > MEMBERS_MAX {
        return Err(BadValue::Damaged("a group of more than 64 stores"));
    }
    let mut members = Vec::with_capacity(count);
    for _ in 0..count {
        let (store, since, through) = (StoreId(from.u64()?), ObjectId(from.u64()?), ObjectId(from.u64()?));
        members.push(Member { store, since, through });
    }
    from.end()?;
    Ok(Group { group, epoch, members })
}
