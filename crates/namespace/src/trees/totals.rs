//! A directory's own totals (`A`): entries, bytes and latest change. They are in shards, so that a change does not rewrite the parent's record.

use std::ops::ControlFlow;

use kv::{Read, ScanOrder, Txn};
use types::{Ino, Timestamp};

use crate::codec::{BadValue, Decoder, Encoder};
use crate::tree::node::{Located, RecordLocation};
use crate::{Context, Inode, NsError, keys};

/// The totals of one directory, without the directories below it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// The number of names in it.
    pub entries: u64,
    /// Committed (or kept) bytes of its files. A file counts once for each name.
    pub bytes: u64,
    /// When its entries last changed, if that was after its times were set explicitly.
    pub changed: Option<Timestamp>,
}

/// One shard. Its numbers may be negative: only the sum has a meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Shard {
    pub entries: i64,
    pub bytes: i64,
    pub changed: Option<Timestamp>,
}

const TAG_CHANGED: u8 = 0x01;

pub(crate) fn encode_shard(shard: &Shard) -> Vec<u8> {
    let mut out = Encoder::new(32);
    out.i64(shard.entries);
    out.i64(shard.bytes);
    if let Some(changed) = shard.changed {
        out.tag(TAG_CHANGED, &changed.0.to_be_bytes());
    }
    out.0
}

pub(crate) fn decode_shard(value: &[u8]) -> Result<Shard, BadValue> {
    let mut from = Decoder::new(value, "a directory's totals")?;
    let mut shard = Shard { entries: from.i64()?, bytes: from.i64()?, changed: None };
    from.tags(|tag, field| match tag {
        TAG_CHANGED => {
            shard.changed = Some(Timestamp(crate::codec::field_u64(field)?.cast_signed()));
            Ok(true)
        }
        _ => Ok(false),
    })?;
    Ok(shard)
}

/// Whether the directory's entries changed, or only the length of a file in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Touch {
    Entries,
    LengthOnly,
}

/// The shard that this run of a server changes: managers that change one directory do not get in each other's way.
pub(crate) fn shard_of(ctx: &Context) -> u16 {
    u16::try_from(ctx.session.0 % u64::from(ctx.limits.total_shards.max(1))).unwrap_or(0)
}

/// Adds to the totals of `dir`.
pub(crate) fn adjust(
    txn: &mut dyn Txn,
    ctx: &Context,
    dir: Ino,
    entries: i64,
    bytes: i64,
    touch: Touch,
) -> Result<(), NsError> {
    let key = keys::total(dir, shard_of(ctx));
    let mut shard = match txn.get(&key)? {
        None => Shard::default(),
        Some(value) => decode_shard(&value).map_err(|bad| bad.at(&key))?,
    };
    shard.entries = shard.entries.wrapping_add(entries);
    shard.bytes = shard.bytes.wrapping_add(bytes);
    if touch == Touch::Entries {
        shard.changed = shard.changed.max(Some(ctx.now));
    }
    txn.put(&key, &encode_shard(&shard));
    Ok(())
}

/// Counts the first entry of a directory that this very operation has made. Nobody else can have counted there, so nothing is read: an engine over a network
/// would need a round trip for it.
pub(crate) fn begin(txn: &mut dyn Txn, ctx: &Context, dir: Ino) {
    let shard = Shard { entries: 1, bytes: 0, changed: Some(ctx.now) };
    txn.put(&keys::total(dir, shard_of(ctx)), &encode_shard(&shard));
}

/// The change of the totals for a new length.
pub(crate) fn difference(new: u64, old: u64) -> i64 {
    new.wrapping_sub(old).cast_signed()
}

/// Adds `bytes` in every directory with a name of this file.
pub(crate) fn adjust_bytes(txn: &mut dyn Txn, ctx: &Context, file: &Located, bytes: i64) -> Result<(), NsError> {
    if bytes == 0 || crate::planted::is(crate::planted::Bug::TotalsDrift) {
        return Ok(());
    }
    let ino = file.inode.ino;
    match &file.place {
        RecordLocation::Entry(parent, _) => adjust(txn, ctx, *parent, 0, bytes, Touch::LengthOnly),
        RecordLocation::Own => {
            for (parent, _) in crate::tree::node::links_of(txn, ino)? {
                adjust(txn, ctx, parent, 0, bytes, Touch::LengthOnly)?;
            }
            Ok(())
        }
    }
}

fn shards(read: &dyn Read, dir: Ino) -> Result<Vec<(Vec<u8>, Shard)>, NsError> {
    let start = keys::totals(dir);
    let mut found = Vec::new();
    let mut bad = None;
    read.scan(&start, &keys::end_of(&start), ScanOrder::Ascending, &mut |key, value| match decode_shard(value) {
        Ok(shard) => {
            found.push((key.to_vec(), shard));
            ControlFlow::Continue(())
        }
        Err(error) => {
            bad = Some(error.at(key));
            ControlFlow::Break(())
        }
    })?;
    bad.map_or(Ok(found), Err)
}

/// The totals of directory `dir`.
pub fn totals(read: &dyn Read, dir: Ino) -> Result<Totals, NsError> {
    let (mut entries, mut bytes, mut changed) = (0_i64, 0_i64, None);
    for (_, shard) in shards(read, dir)? {
        entries = entries.wrapping_add(shard.entries);
        bytes = bytes.wrapping_add(shard.bytes);
        changed = changed.max(shard.changed);
    }
    match (u64::try_from(entries), u64::try_from(bytes)) {
        (Ok(entries), Ok(bytes)) => Ok(Totals { entries, bytes, changed }),
        _ => Err(BadValue::Damaged("the totals are below zero").at(&keys::totals(dir))),
    }
}

/// For a directory, its record with the times of its entries' latest change. Other inodes are unchanged.
pub(crate) fn with_latest_change(read: &dyn Read, mut inode: Inode) -> Result<Inode, NsError> {
    if inode.is_dir()
        && let Some(changed) = totals(read, inode.ino)?.changed
    {
        // Setting times explicitly clears the marks of the shards, so an existing mark is later than the record's time.
        inode.mtime = changed;
        inode.ctime = inode.ctime.max(changed);
    }
    Ok(inode)
}

/// Clears the latest change in all shards. The record's own time applies until the next change.
pub(crate) fn forget_latest_change(txn: &mut dyn Txn, dir: Ino) -> Result<(), NsError> {
    for (key, shard) in shards(txn, dir)? {
        if shard.changed.is_some() {
            txn.put(&key, &encode_shard(&Shard { changed: None, ..shard }));
        }
    }
    Ok(())
}

/// Replaces all shards, damaged ones too, by one with these sums. Fails on the shard of a newer version, and leaves it.
pub(crate) fn set_all(txn: &mut dyn Txn, dir: Ino, entries: i64, bytes: i64) -> Result<(), NsError> {
    let start = keys::totals(dir);
    let (mut old, mut changed, mut newer) = (Vec::new(), None, None);
    txn.scan(&start, &keys::end_of(&start), ScanOrder::Ascending, &mut |key, value| {
        match decode_shard(value) {
            Ok(shard) => changed = changed.max(shard.changed),
            Err(BadValue::Damaged(_)) => {}
            Err(bad) => newer = Some(bad.at(key)),
        }
        old.push(key.to_vec());
        ControlFlow::Continue(())
    })?;
    if let Some(newer) = newer {
        return Err(newer);
    }
    for key in old {
        txn.delete(&key);
    }
    txn.put(&keys::total(dir, 0), &encode_shard(&Shard { entries, bytes, changed }));
    Ok(())
}

/// Deletes all shards together with the directory.
pub(crate) fn delete_all(txn: &mut dyn Txn, dir: Ino) -> Result<(), NsError> {
    for (key, _) in shards(txn, dir)? {
        txn.delete(&key);
    }
    Ok(())
}
