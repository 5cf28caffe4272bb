//! Locations of objects in a cluster: groups of stores (`G`), missing replicas (`O`), nodes (`N`), and the in-sync replicas of open writes (in `W`).

use std::collections::BTreeSet;

use kv::{Prefetch, Read, Txn};
use types::{
    BootGeneration, BootId, Group, GroupId, InSyncReplica, Member, NodeId, NodeRecord, ObjectId, ReplicaIndex, StoreId,
    UploadId,
};

use crate::ahead::{replicas_ahead, tell, writer_ahead};
use crate::codec::{BadValue, Decoder, Encoder};
use crate::context::operations;
use crate::groups::group::{MEMBERS_MAX, group, write_group};
use crate::groups::members::must_be_member;
use crate::scan::scan_numbers;
use crate::writers::commit::commit;
use crate::writers::interrupt::interrupt_writer;
use crate::writers::located::located_writing;
use crate::writers::record::{current_writer, is_being_written};
use crate::{
    Commit, CommitReply, Content, Context, FileState, Interrupt, InterruptReply, NsError, OpTag, Operation, StoreEntry,
    Sums, UploadRecord, UploadState, WantedState, WriterKind, WriterRecord, WriterToken, keys, object_record, stat_ino,
    store,
};
/// The boot of an ended writer of a cluster whose in-sync stores had all restarted: they may have lost what its client was told.
const BEFORE_ALL_RESTARTED: BootId = BootId(0);
/// The shard index beside a missing replica. A replica is a whole object; other indexes are for erasure coding.
const WHOLE_OBJECT: ReplicaIndex = ReplicaIndex(0);
/// Store u64, shard u16.
const MISSING_REPLICA_BYTES: usize = 10;

/// Makes a group, or changes its members. The epoch must be one above the group's current epoch (0 if it does not exist).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PutGroup {
    /// The new record of the group.
    pub group: Group,
}

/// Stores the record of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PutNode {
    /// The whole record.
    pub record: NodeRecord,
}

/// Changes the in-sync replicas of an open write. The request cannot add a replica, because a new one would lack the earlier bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetInSyncReplicas {
    /// The writer.
    pub writer: WriterToken,
    /// The remaining in-sync replicas, the primary first. Each of them must be in sync already. Unless `takes_over` is set, the primary stays the
    /// same and must be the store that made the request: the caller has checked that.
    pub in_sync: Vec<InSyncReplica>,
    /// Another primary takes over. The request raises the epoch, which fences every handle with a lower one.
    pub takes_over: bool,
    /// The primary ends the open write without its client ([`WriterRecord::is_ending`]). Nothing takes that back.
    pub is_ending: bool,
}

/// [`Commit`] in a cluster. Members of the group that do not hold the object yet get a missing replica. A repeated request gets the same answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommitPlaced {
    /// The result for the object.
    pub commit: Commit,
    /// The group in which the writer was opened. An object whose open write has ended is looked up there. Before that, the writer's record names the
    /// group.
    pub group: GroupId,
    /// The store that makes the request: the primary of the open write.
    pub by: StoreId,
    /// The stores that hold the object durably. Stores that are not in sync do not count.
    pub holders: Vec<StoreId>,
}

/// [`Interrupt`] in a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterruptPlaced {
    /// The writer, and the kept length.
    pub interrupt: Interrupt,
    /// The store that makes the request: the primary. If all in-sync replicas have a new boot generation, any of them. `None`: the manager.
    pub by: Option<StoreId>,
    /// The stores that hold the kept bytes. Stores that are not in sync do not count.
    pub holders: Vec<StoreId>,
}

/// A store has received a replica that it missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyDone {
    /// The group.
    pub group: GroupId,
    /// The object.
    pub object: ObjectId,
    /// The state of the copied object ([`AtRest::state`]). A copy of an object that has changed meanwhile does not count.
    pub state: u32,
    /// The store that has it now.
    pub store: StoreId,
}

/// An object without an open write, for repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtRest {
    /// Its length in bytes.
    pub len: u64,
    /// Checksums of the whole object. `None`: its writer went away, and only the length is known.
    pub sums: Option<Sums>,
    /// It is complete, or was complete before an in-place change began.
    pub is_whole: bool,
    /// The epoch of its last writer.
    pub epoch: u32,
    /// A number that changes with every write to the object.
    pub state: u32,
}

/// The records of all nodes, including removed ones.
pub fn nodes(read: &dyn Read) -> Result<Vec<NodeRecord>, NsError> {
    scan_numbers(read, b"N", &keys::end_of(b"N"), usize::MAX, |number, _, value| decode_node(NodeId(number), value))
}

/// The record of a node. `None`: it has none yet.
fn node(read: &dyn Read, node: NodeId) -> Result<Option<NodeRecord>, NsError> {
    let key = keys::node(node);
    read.get(&key)?.map(|value| decode_node(node, &value).map_err(|bad| bad.at(&key))).transpose()
}

/// The stores that hold an object: members of its group that have received it and do not miss it. Empty if the group does not exist.
pub fn holders(read: &dyn Read, group: GroupId, object: ObjectId) -> Result<Vec<StoreId>, NsError> {
    tell(read, &|| replicas_ahead(group, object))?;
    let Some(group) = self::group(read, group)? else { return Ok(Vec::new()) };
    let missing = missing_of(read, group.group, object)?;
    let members = group.members.iter().filter(|member| holds(member, object, &missing));
    Ok(members.map(|member| member.store).collect())
}

/// Whether a member holds an object: the member has received it and is not in `missing`.
pub(crate) fn holds(member: &Member, object: ObjectId, missing: &[StoreId]) -> bool {
    member.has(object) && !missing.contains(&member.store)
}

/// An object that can be copied, also a hidden one that is kept. `None`: it has an open write, or does not exist.
pub fn at_rest(read: &dyn Read, group: GroupId, object: ObjectId) -> Result<Option<AtRest>, NsError> {
    if let Some(record) = object_record(read, group, object)? {
        let content = stat_ino(read, record.ino)?.content().copied();
        let is_it = |content: &Content| {
            content.object == object && matches!(content.state, FileState::Complete | FileState::Interrupted(_))
        };
        let (epoch, state) = (record.epoch, record.generation);
        return Ok(content.filter(is_it).map(|content| AtRest {
            len: content.len,
            sums: content.sums,
            is_whole: content.state == FileState::Complete,
            epoch,
            state,
        }));
    }
    let upload = UploadRecord::get(read, UploadId(object.0))?;
    let upload = upload.filter(|upload| upload.placed == group && upload.state != UploadState::BeingWritten);
    Ok(upload.map(|upload| {
        let (epoch, len, sums) = (upload.epoch, upload.kept_len, upload.sums);
        AtRest { len, sums, is_whole: sums.is_some(), epoch, state: epoch }
    }))
}

/// The stores of a group that miss a replica of the object.
pub fn missing_of(read: &dyn Read, group: GroupId, object: ObjectId) -> Result<Vec<StoreId>, NsError> {
    let key = keys::missing(group, object);
    let value = read.get(&key)?;
    Ok(value.map(|value| decode_stores(&value).map_err(|bad| bad.at(&key))).transpose()?.unwrap_or_default())
}

/// Objects after `after` with a missing replica on a store of the group, and those stores; at most `limit`.
pub fn missing(
    read: &dyn Read,
    group: GroupId,
    after: Option<ObjectId>,
    limit: usize,
) -> Result<Vec<(ObjectId, Vec<StoreId>)>, NsError> {
    let start = keys::missing(group, ObjectId(after.map_or(0, |after| after.0.saturating_add(1))));
    let end = keys::end_of(&keys::missing_in(group));
    scan_numbers(read, &start, &end, limit, |_, second, value| Ok((ObjectId(second), decode_stores(value)?)))
}

/// Objects after `after`, in the order of their groups, with a missing replica on any store, and those stores; at most `limit`.
pub fn missing_in_all_groups(
    read: &dyn Read,
    after: Option<(GroupId, ObjectId)>,
    limit: usize,
) -> Result<Vec<(GroupId, ObjectId, Vec<StoreId>)>, NsError> {
    let mut start = b"O".to_vec();
    if let Some((group, object)) = after {
        start = keys::missing(group, object).to_vec();
        start.push(0);
    }
    scan_numbers(read, &start, &keys::end_of(b"O"), limit, |first, second, value| {
        Ok((GroupId(first), ObjectId(second), decode_stores(value)?))
    })
}

/// See [`PutGroup`]. [`NsError::Stale`] if the group has changed meanwhile, or if one of its stores may not get new objects.
pub fn put_group(txn: &mut dyn Txn, _ctx: &Context, request: &PutGroup) -> Result<(), NsError> {
    let group = &request.group;
    let what = || format!("group {}", group.group);
    if group.members.is_empty() || group.members.len() > MEMBERS_MAX {
        return Err(NsError::Invalid { what: what(), why: "it has no stores, or more than 64" });
    }
    let before = self::group(txn, group.group)?.map_or(0, |before| before.epoch);
    if before.checked_add(1) != Some(group.epoch) {
        return Err(NsError::Stale { what: what(), why: "it has been changed meanwhile" });
    }
    let is_out = |entry: StoreEntry| entry.state != WantedState::Online;
    for member in &group.members {
        // A store that is no longer listed counts as out too.
        if store(txn, member.store)?.is_none_or(is_out) {
            return Err(NsError::Stale { what: what(), why: "a store of it must not be used for new files any more" });
        }
    }
    write_group(txn, group);
    Ok(())
}

/// See [`PutNode`]. [`NsError::NotFound`] if the node is not in the cluster.
pub fn put_node(txn: &mut dyn Txn, _ctx: &Context, request: &PutNode) -> Result<(), NsError> {
    must_be_member(txn, request.record.node)?;
    let mut out = Encoder::new(21);
    out.0.extend_from_slice(&request.record.boot.0.to_be_bytes());
    out.u32(request.record.boot_generation.0);
    txn.put(&keys::node(request.record.node), &out.0);
    Ok(())
}

/// See [`SetInSyncReplicas`]. [`NsError::Stale`] if the writer was fenced or has ended, or if a replica is not in sync. Also if the primary would
/// change without `takes_over`. [`NsError::Invalid`] if a store is named twice.
pub fn set_in_sync_replicas(
    txn: &mut dyn Txn,
    _ctx: &Context,
    request: &SetInSyncReplicas,
) -> Result<WriterToken, NsError> {
    let mut writer = current_writer(txn, &request.writer)?;
    let what = || format!("object {:016x}", request.writer.object.0);
    if !request.takes_over {
        must_be_primary(&writer, request.in_sync.first().map(|one| one.store))?;
    }
    let before = &writer.placement.in_sync;
    let is_one = |in_sync_replica: &InSyncReplica| before.contains(in_sync_replica);
    if request.in_sync.is_empty() || !request.in_sync.iter().all(is_one) {
        let why = "a store that is not in sync any more is to continue";
        return Err(NsError::Stale { what: what(), why });
    }
    let stores: BTreeSet<StoreId> = request.in_sync.iter().map(|one| one.store).collect();
    if stores.len() != request.in_sync.len() {
        return Err(NsError::Invalid { what: what(), why: "a store is listed twice as in sync" });
    }
    let ends = request.is_ending && !writer.is_ending;
    if *before == request.in_sync && !request.takes_over && !ends {
        return Ok(writer.token());
    }
    writer.placement.in_sync.clone_from(&request.in_sync);
    writer.is_ending |= request.is_ending;
    if request.takes_over {
        writer.epoch = writer.epoch.saturating_add(1);
    }
    writer.put(txn);
    Ok(writer.token())
}

fn must_be_primary(writer: &WriterRecord, store: Option<StoreId>) -> Result<(), NsError> {
    if store.is_some() && writer.primary().map(|one| one.store) == store {
        return Ok(());
    }
    let why = "the store that says so is not the one that orders its changes";
    Err(NsError::Stale { what: format!("object {:016x}", writer.object.0), why })
}

/// Whether every in-sync replica has a new boot generation or is removed as lost. Then no store is certain to have all acknowledged bytes, and each
/// one has the synced bytes.
fn have_all_new_boot_generations(read: &dyn Read, writer: &WriterRecord) -> Result<bool, NsError> {
    for one in &writer.placement.in_sync {
        let entry = store(read, one.store)?.filter(|entry| entry.state != WantedState::Lost);
        let node = entry.map(|entry| entry.node);
        let record = node.map(|node| self::node(read, node)).transpose()?.flatten();
        if record.is_some_and(|record| record.boot_generation == one.boot_generation) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The in-sync replicas among `holders`. No other store received any of the bytes.
fn in_sync_holders(writer: &WriterRecord, holders: &[StoreId]) -> Vec<StoreId> {
    let in_sync = writer.placement.in_sync.iter().map(|one| one.store);
    in_sync.filter(|store| holders.contains(store)).collect()
}

/// See [`CommitPlaced`]. [`NsError::Stale`] if the writer was fenced or has ended, or if the requesting store is not its primary.
pub fn commit_placed(txn: &mut dyn Txn, ctx: &Context, request: &CommitPlaced) -> Result<CommitReply, NsError> {
    let token = &request.commit.writer;
    let writer = match current_writer(txn, token) {
        Err(error @ NsError::Stale { .. }) => {
            // The first answer may have been lost.
            let record = object_record(txn, request.group, token.object)?;
            let done = record.filter(|done| done.epoch == token.epoch && done.len == request.commit.content.len);
            let done = done.map(|done| CommitReply::Complete { ino: done.ino, replaced: None, upload: None });
            return done.ok_or(error);
        }
        found => found?,
    };
    must_be_primary(&writer, Some(request.by))?;
    let reply = commit(txn, ctx, &request.commit);
    let is_kept = match &reply {
        Ok(CommitReply::Complete { .. }) => true,
        Ok(CommitReply::Unlinked) => false,
        // The commit failed but the upload is kept, so its holders must be on record.
        Err(error) => error.keeps_changes(),
    };
    if is_kept {
        record_missing_replicas(
            txn,
            writer.placement.group,
            token.object,
            &in_sync_holders(&writer, &request.holders),
        )?;
    }
    reply
}

/// See [`InterruptPlaced`]. [`NsError::Stale`] if the writer was fenced or has ended, or if the requesting store may not end it.
pub fn interrupt_placed(
    txn: &mut dyn Txn,
    ctx: &Context,
    request: &InterruptPlaced,
) -> Result<InterruptReply, NsError> {
    let Interrupt { writer: token, mut kept_len } = request.interrupt;
    let mut writer = current_writer(txn, &token)?;
    let are_all_restarted = !writer.placement.in_sync.is_empty() && have_all_new_boot_generations(txn, &writer)?;
    if let Some(by) = request.by {
        let took_part = writer.placement.in_sync.iter().any(|one| one.store == by);
        if !took_part || !are_all_restarted {
            must_be_primary(&writer, Some(by))?;
        }
    }
    if are_all_restarted {
        // Its client is told when it returns.
        writer.boot = BEFORE_ALL_RESTARTED;
    }
    let holders = in_sync_holders(&writer, &request.holders);
    if holders.is_empty()
        && writer.kind == WriterKind::Update
        && let Some((_, before)) = located_writing(txn, &writer)?
    {
        // Every store that had the change is lost. The file has lost its bytes; it has not become empty.
        kept_len = before.len;
    }
    let reply = interrupt_writer(txn, ctx, &writer, kept_len)?;
    if reply != InterruptReply::Unlinked {
        record_missing_replicas(txn, writer.placement.group, token.object, &holders)?;
    }
    Ok(reply)
}

/// See [`CopyDone`].
pub fn copy_done(txn: &mut dyn Txn, _ctx: &Context, request: &CopyDone) -> Result<(), NsError> {
    let (group, object) = (request.group, request.object);
    if at_rest(txn, group, object)?.is_none_or(|now| now.state != request.state) {
        let why = "it has been changed or removed meanwhile";
        return Err(NsError::Stale { what: format!("a replica of object {:016x}", object.0), why });
    }
    let mut stores = missing_of(txn, group, object)?;
    stores.retain(|store| *store != request.store);
    put_missing_replica(txn, group, object, &stores);
    Ok(())
}

/// Records a missing replica for each member that does not hold the object.
fn record_missing_replicas(
    txn: &mut dyn Txn,
    group: GroupId,
    object: ObjectId,
    holders: &[StoreId],
) -> Result<(), NsError> {
    let members = self::group(txn, group)?.map(|group| group.members).unwrap_or_default();
    let missing: Vec<StoreId> =
        members.iter().map(|member| member.store).filter(|store| !holders.contains(store)).collect();
    put_missing_replica(txn, group, object, &missing);
    Ok(())
}

pub(crate) fn put_missing_replica(txn: &mut dyn Txn, group: GroupId, object: ObjectId, stores: &[StoreId]) {
    let key = keys::missing(group, object);
    if stores.is_empty() {
        txn.delete(&key);
        return;
    }
    let mut out = Encoder::new(1 + stores.len() * MISSING_REPLICA_BYTES);
    for store in stores {
        out.u64(store.0);
        out.u16(WHOLE_OBJECT.0);
    }
    txn.put(&key, &out.0);
}

pub(crate) fn decode_stores(value: &[u8]) -> Result<Vec<StoreId>, BadValue> {
    let mut from = Decoder::new(value, "missing replicas")?;
    let count = value.len().saturating_sub(1) / MISSING_REPLICA_BYTES;
    let mut stores = Vec::with_capacity(count);
    for _ in 0..count {
        let (store, shard) = (StoreId(from.u64()?), ReplicaIndex(from.u16()?));
        if shard != WHOLE_OBJECT {
            return Err(BadValue::Newer("a missing shard of an erasure-coded object", u64::from(shard.0)));
        }
        stores.push(store);
    }
    from.end()?;
    Ok(stores)
}

pub(crate) fn decode_node(node: NodeId, value: &[u8]) -> Result<NodeRecord, BadValue> {
    let mut from = Decoder::new(value, "a node")?;
    let (boot, boot_generation) = (BootId(from.u128()?), BootGeneration(from.u32()?));
    from.end()?;
    Ok(NodeRecord { node, boot, boot_generation })
}

operations! {
    PutGroup, put_group -> ();
    PutNode, put_node -> ();
    SetInSyncReplicas, set_in_sync_replicas -> WriterToken;
    InterruptPlaced, interrupt_placed -> InterruptReply;
    CopyDone, copy_done -> ();
}

impl Operation for CommitPlaced {
    const TAG: OpTag = OpTag::CommitPlaced;
    type Reply = CommitReply;
    fn ahead(&self, ctx: &Context) -> Vec<Prefetch> {
        let mut wanted = writer_ahead(&self.commit.writer, Some(ctx));
        wanted.extend(replicas_ahead(self.group, self.commit.writer.object));
        wanted
    }
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<CommitReply, NsError> {
        commit_placed(txn, ctx, self)
    }
    /// The primary commits again with other replicas.
    fn is_remembered(result: &Result<CommitReply, NsError>) -> bool {
        result.is_ok()
    }
    /// The end of an open write deletes its record.
    fn is_undone(&self, read: &dyn Read) -> Result<bool, NsError> {
        is_being_written(read, &self.commit.writer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_replica_records_the_whole_object_shard_and_refuses_others() {
        let kv = kv::MemoryKv::new();
        let stores = [StoreId(0x0102_0304_0506_0708), StoreId(9)];
        kv::transact(&kv, kv::Durability::Synced, move |txn| {
            put_missing_replica(txn, GroupId(3), ObjectId(4), &stores);
            (kv::OpOutcome::Commit, ())
        })
        .unwrap();
        let [(_, value)] = &kv.dump()[..] else { panic!("one key") };
        let mut value = value.clone();
        let (first, second) = (&b"\x01\x02\x03\x04\x05\x06\x07\x08\0\0"[..], &b"\0\0\0\0\0\0\0\x09\0\0"[..]);
        assert_eq!(value, [&[crate::codec::VERSION], first, second].concat(), "the bytes are part of the format");
        assert_eq!(decode_stores(&value), Ok(stores.to_vec()));
        *value.last_mut().unwrap() = 1;
        assert_eq!(decode_stores(&value), Err(BadValue::Newer("a missing shard of an erasure-coded object", 1)));
        value.pop();
        assert!(matches!(decode_stores(&value), Err(BadValue::Damaged(_))));
    }
}
