//! A namespace that was restored from a backup (`C restored`). It goes back in time, while stores, clients and nodes do not: the lost namespace has
//! handed out numbers, accepted nodes and given promises that this one does not know.
//!
//! - [`ContinueRestored`] raises the numbers of nodes and sessions, drops join tokens that may be used up, and sets the mark.
//! - [`DistrustWriters`]: an open write of the backup may have gone on, lost replicas or ended since. No store counts as having all of it.
//! - While the mark [holds](RestoredRecord::is_held), the caller removes and replaces nothing on stores that the lost namespace may have made.
//!   [`AcceptRestored`] ends that.
//! - [`RecordAbsent`] takes over what a comparison with the stores has found.

use kv::Txn;
use types::{BootGeneration, GroupId, InSyncReplica, ObjectId, StoreId, Timestamp};

use crate::codec::{BadValue, Decoder, Encoder};
use crate::context::operations;
use crate::format::pass_over_sessions;
use crate::groups::membership::pass_over_nodes;
use crate::groups::placing::put_missing_replica;
use crate::groups::registry::{administrator, get};
use crate::ids::untaken;
use crate::{Context, NsError, Read, WriterKey, WriterRecord, group, keys, missing_of, object_record, tokens};

const MARK: &[u8] = b"restored";

/// The boot generation of an in-sync replica that nobody trusts any more ([`DistrustWriters`]). No node ever has it.
pub const DISTRUSTED: BootGeneration = BootGeneration(0);

/// How many re-opens of one file since the backup the epochs leave room for.
const EPOCHS_LEFT_FREE: u32 = 1 << 16;
/// How many nodes may have joined since the backup.
const NODES_LEFT_FREE: u64 = 1 << 20;
/// How many sessions may have begun since the backup.
const SESSIONS_LEFT_FREE: u64 = 1 << 16;
/// How many nodes may join in a second, so that two lives that continue from one backup number no two nodes alike.
const NODES_PER_SECOND: u64 = 1 << 12;
/// The sessions of such lives begin this far apart at most. Numbers of sessions have 38 bits.
const SESSIONS_APART: u64 = 1 << 30;

/// `C restored`: the namespace was restored from a backup, and has lost later changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RestoredRecord {
    /// When the backup was taken.
    pub taken: Timestamp,
    /// When it was restored.
    pub restored: Timestamp,
    /// Epochs of writers up to this one may have been used by the lost namespace.
    pub epochs: u32,
    /// The first object number of the restored namespace. Lower ones are of the backup, or of the lost namespace.
    pub objects: ObjectId,
    /// Whether nobody has accepted the state yet ([`AcceptRestored`]).
    pub is_held: bool,
}

impl RestoredRecord {
    /// Whether this object may be what the lost namespace knew better, so that it is neither removed nor replaced.
    #[must_use]
    pub fn holds(&self, object: ObjectId) -> bool {
        self.is_held && object < self.objects
    }

    fn decode(value: &[u8]) -> Result<Self, BadValue> {
        let mut from = Decoder::new(value, "the mark of a restore")?;
        let (taken, restored) = (Timestamp(from.i64()?), Timestamp(from.i64()?));
        let (epochs, objects, is_held) = (from.u32()?, ObjectId(from.u64()?), from.u8()? != 0);
        from.end()?;
        Ok(Self { taken, restored, epochs, objects, is_held })
    }

    fn put(&self, txn: &mut dyn Txn) {
        let mut out = Encoder::new(30);
        out.i64(self.taken.0);
        out.i64(self.restored.0);
        out.u32(self.epochs);
        out.u64(self.objects.0);
        out.u8(u8::from(self.is_held));
        txn.put(&keys::mark(MARK), &out.0);
    }
}

/// Whether the namespace was restored, and has lost later changes. `None`: never.
pub fn restored(read: &dyn Read) -> Result<Option<RestoredRecord>, NsError> {
    get(read, &keys::mark(MARK), RestoredRecord::decode)
}

/// Continues a restored namespace above everything that the lost one may have handed out. Call it after [`crate::RaiseIncarnation`], and open the
/// namespace again afterwards. Only the administrator may do this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContinueRestored {
    /// When the backup was taken.
    pub taken: Timestamp,
    /// A random number. It separates the sessions of two lives that both continue from one backup.
    pub random: u64,
}

/// No store counts any more as having every acknowledged byte of these open writes: their clients must write again. Their epochs are raised, so that
/// no earlier primary can end them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DistrustWriters {
    /// At most [`DistrustWriters::WRITERS_MAX`].
    pub writers: Vec<(WriterKey, ObjectId)>,
}

impl DistrustWriters {
    /// The most open writes of one change.
    pub const WRITERS_MAX: usize = 512;
}

/// The administrator has seen what the stores have: the usual clean-up may go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AcceptRestored;

/// These stores do not have these objects of a group. They miss them from now on, so that repair makes the replicas from others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordAbsent {
    /// The group.
    pub group: GroupId,
    /// The objects and stores, at most [`RecordAbsent::REPLICAS_MAX`].
    pub absent: Vec<(ObjectId, StoreId)>,
}

impl RecordAbsent {
    /// The most replicas of one change.
    pub const REPLICAS_MAX: usize = 256;
}

/// See [`ContinueRestored`].
pub fn continue_restored(txn: &mut dyn Txn, ctx: &Context, request: &ContinueRestored) -> Result<(), NsError> {
    administrator(ctx)?;
    // The time separates two lives that both continue from one backup.
    let seconds = u64::try_from(ctx.now.secs()).unwrap_or(0);
    let minutes = seconds / 60;
    pass_over_nodes(txn, NODES_LEFT_FREE.saturating_add(seconds.saturating_mul(NODES_PER_SECOND)))?;
    pass_over_sessions(txn, SESSIONS_LEFT_FREE + request.random % SESSIONS_APART)?;
    // A node may have joined with it since, or it was revoked.
    for token in tokens(txn)?.iter().filter(|token| !token.is_used_up()) {
        txn.delete(&keys::token(&token.id));
    }
    let before = restored(txn)?.map_or(0, |before| before.epochs);
    let epochs = before.max(u32::try_from(minutes).unwrap_or(u32::MAX)).saturating_add(EPOCHS_LEFT_FREE);
    let objects = ObjectId(untaken(txn)?.object);
    RestoredRecord { taken: request.taken, restored: ctx.now, epochs, objects, is_held: true }.put(txn);
    Ok(())
}

/// See [`DistrustWriters`]. [`NsError::TooMany`].
pub fn distrust_writers(txn: &mut dyn Txn, ctx: &Context, request: &DistrustWriters) -> Result<(), NsError> {
    administrator(ctx)?;
    bounded(request.writers.len(), "open writes of one change", DistrustWriters::WRITERS_MAX)?;
    for (key, object) in &request.writers {
        let Some(mut writer) = WriterRecord::get(txn, *key, *object)? else { continue };
        writer.epoch = writer.epoch.saturating_add(EPOCHS_LEFT_FREE);
        for InSyncReplica { boot_generation, .. } in &mut writer.placement.in_sync {
            *boot_generation = DISTRUSTED;
        }
        writer.put(txn);
    }
    Ok(())
}

/// See [`AcceptRestored`].
pub fn accept_restored(txn: &mut dyn Txn, ctx: &Context, _request: &AcceptRestored) -> Result<(), NsError> {
    administrator(ctx)?;
    if let Some(record) = restored(txn)? {
        RestoredRecord { is_held: false, ..record }.put(txn);
    }
    Ok(())
}

/// See [`RecordAbsent`]. [`NsError::TooMany`]. Objects that the group does not have any more, and stores that are not its members, are passed over. When
/// the state is accepted already, nothing is recorded: replicas may have moved since the stores were asked.
pub fn record_absent(txn: &mut dyn Txn, ctx: &Context, request: &RecordAbsent) -> Result<(), NsError> {
    administrator(ctx)?;
    bounded(request.absent.len(), "replicas of one change", RecordAbsent::REPLICAS_MAX)?;
    if restored(txn)?.is_none_or(|record| !record.is_held) {
        return Ok(());
    }
    let Some(group) = group(txn, request.group)? else { return Ok(()) };
    for (object, store) in &request.absent {
        let is_member = group.members.iter().any(|member| member.store == *store);
        if !is_member || object_record(txn, group.group, *object)?.is_none() {
            continue;
        }
        let mut stores = missing_of(txn, group.group, *object)?;
        if !stores.contains(store) {
            stores.push(*store);
            put_missing_replica(txn, group.group, *object, &stores);
        }
    }
    Ok(())
}

fn bounded(len: usize, what: &'static str, most: usize) -> Result<(), NsError> {
    if len > most { Err(NsError::TooMany { what, bound: most as u64 }) } else { Ok(()) }
}

operations! {
    ContinueRestored, continue_restored -> ();
    DistrustWriters, distrust_writers -> ();
    AcceptRestored, accept_restored -> ();
    RecordAbsent, record_absent -> ();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes on disk, pinned. A change here is a change of the format.
    #[test]
    fn bytes_of_the_mark_are_pinned() {
        let record = RestoredRecord {
            taken: Timestamp(5),
            restored: Timestamp(-1),
            epochs: 1 << 16,
            objects: ObjectId(0x0102),
            is_held: true,
        };
        let kv = kv::MemoryKv::new();
        kv::transact(&kv, kv::Durability::Synced, move |txn| {
            record.put(txn);
            (kv::OpOutcome::Commit, ())
        })
        .unwrap();
        let [(key, value)] = &kv.dump()[..] else { panic!("one key") };
        assert_eq!(key, b"Crestored");
        let (taken, restored) = (&b"\0\0\0\0\0\0\0\x05"[..], &b"\xff\xff\xff\xff\xff\xff\xff\xff"[..]);
        let rest = &b"\0\x01\0\0\0\0\0\0\0\0\x01\x02\x01"[..];
        assert_eq!(*value, [&[crate::codec::VERSION], taken, restored, rest].concat());
        assert_eq!(RestoredRecord::decode(value), Ok(record));
        assert!(RestoredRecord::decode(&value[..value.len() - 1]).is_err());
    }

    #[test]
    fn only_objects_from_before_the_restore_are_held_and_only_until_it_is_accepted() {
        let (taken, restored) = (Timestamp(1), Timestamp(2));
        let record = RestoredRecord { taken, restored, epochs: 0, objects: ObjectId(100), is_held: true };
        assert!(record.holds(ObjectId(99)) && !record.holds(ObjectId(100)));
        assert!(!RestoredRecord { is_held: false, ..record }.holds(ObjectId(99)));
    }
}
