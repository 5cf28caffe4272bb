//! The deletion queue (`Z`), and how unneeded things get into it: an inode, its object, the units of a striped object.

use std::ops::ControlFlow;

use kv::{ScanOrder, Txn};
use types::{GroupId, ObjectId, Timestamp};

use crate::codec::{BadValue, Decoder, Encoder, field_u64};
use crate::planted::{self, Bug};
use crate::tree::node::locate;
use crate::{Content, Context, FileState, Inode, Kind, NsError, OpTag, Operation, Read, keys, stripe_of};

/// The group to ask, if it is not the only group of a single node. A reader that does not know it would ask the wrong stores.
const TAG_GROUP: u8 = 0x80;

/// An object whose replicas the stores must delete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DueDeletion {
    /// Its position in the queue: the time when it was queued.
    pub seq: Timestamp,
    /// The object.
    pub object: ObjectId,
    /// The group of stores that holds it.
    pub group: GroupId,
}

/// Queues the deletion of an unneeded object; for a striped object, the deletion of its units.
pub(crate) fn queue(txn: &mut dyn Txn, ctx: &Context, group: GroupId, object: ObjectId) -> Result<(), NsError> {
    if group == GroupId::STRIPED {
        return drop_units(txn, ctx, object);
    }
    let mut out = Encoder::new(1 + 11);
    if group != GroupId::DEFAULT {
        out.tag_u64(TAG_GROUP, group.0);
        // A deleted object has no missing replicas.
        txn.delete(&keys::missing(group, object));
    }
    if !planted::is(Bug::ForgetTheDeletion) {
        txn.put(&keys::deletion(ctx.now, object), &out.0);
    }
    Ok(())
}

/// An entry of the queue.
pub(crate) fn decode(key: &[u8], value: &[u8]) -> Result<DueDeletion, NsError> {
    let bad = || BadValue::Damaged("the key of a deletion has a wrong length").at(key);
    let seq = keys::number_at(key, 1).ok_or_else(bad)?;
    let object = ObjectId(keys::number_at(key, 9).ok_or_else(bad)?);
    let seq = Timestamp((seq ^ (1 << 63)).cast_signed());
    let mut group = GroupId::DEFAULT;
    let tags = |from: Decoder<'_>| {
        from.tags(|tag, field| match tag {
            TAG_GROUP => field_u64(field).map(|number| group = GroupId(number)).map(|()| true),
            _ => Ok(false),
        })
    };
    Decoder::new(value, "a deletion").and_then(tags).map_err(|bad| bad.at(key))?;
    Ok(DueDeletion { seq, object, group })
}

/// An inode drops its object. Deletes the object's record and queues its deletion, unless a writer or another referrer needs it. Returns the object
/// if it was queued.
pub(crate) fn release_object(txn: &mut dyn Txn, ctx: &Context, content: &Content) -> Result<Option<ObjectId>, NsError> {
    if !matches!(content.state, FileState::Open(_)) {
        txn.delete(&keys::object(content.group, content.object));
    }
    if matches!(content.state, FileState::Open(_) | FileState::Updating(_)) {
        return Ok(None); // the end of its writer queues it
    }
    if content.shared && is_referred(txn, content.object)? {
        return Ok(None); // the last referrer queues it
    }
    queue(txn, ctx, content.group, content.object)?;
    Ok(Some(content.object))
}

/// Deletes an inode that has no names and no holders: its record, its attributes, and its reference to its object.
pub(crate) fn drop_inode(txn: &mut dyn Txn, ctx: &Context, inode: &Inode) -> Result<Option<ObjectId>, NsError> {
    txn.delete(&keys::inode(inode.ino));
    if inode.xattrs > 0 {
        crate::scan::delete_all(txn, &keys::xattr(inode.ino, b""))?;
    }
    match &inode.kind {
        Kind::File(content) => release_object(txn, ctx, content),
        _ => Ok(None),
    }
}

/// Drops the units of a striped object. A unit with an open write goes when that ends.
pub(crate) fn drop_units(txn: &mut dyn Txn, ctx: &Context, object: ObjectId) -> Result<(), NsError> {
    let Some(record) = stripe_of(txn, object)? else { return Ok(()) };
    txn.delete(&keys::stripe(object));
    for ino in record.units {
        if let Some(located) = locate(txn, ino)? {
            drop_inode(txn, ctx, &located.inode)?;
        }
    }
    Ok(())
}

/// Whether anything besides its inode refers to the object (`F`).
fn is_referred(read: &dyn Read, object: ObjectId) -> Result<bool, NsError> {
    let prefix = keys::referrers(object);
    let mut any = false;
    read.scan(&prefix, &keys::end_of(&prefix), ScanOrder::Ascending, &mut |_, _| {
        any = true;
        ControlFlow::Break(())
    })?;
    Ok(any)
}

/// Returns the oldest `limit` entries after `after`.
pub fn due_deletions(read: &dyn Read, after: Option<DueDeletion>, limit: usize) -> Result<Vec<DueDeletion>, NsError> {
    let mut start = match after {
        None => b"Z".to_vec(),
        Some(after) => keys::deletion(after.seq, after.object).to_vec(),
    };
    if after.is_some() {
        start.push(0);
    }
    let (mut found, mut bad) = (Vec::new(), None);
    if limit == 0 {
        return Ok(found);
    }
    read.scan(&start, b"[", ScanOrder::Ascending, &mut |key, value| {
        match decode(key, value) {
            Ok(due) => found.push(due),
            Err(error) => bad = Some(error),
        }
        if bad.is_some() || found.len() >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    bad.map_or(Ok(found), Err)
}

/// The stores have deleted these objects; at most 1,024 at a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeletionDone {
    /// The finished entries.
    pub done: Vec<DueDeletion>,
}

/// See [`DeletionDone`].
pub fn deletion_done(txn: &mut dyn Txn, _ctx: &Context, request: &DeletionDone) -> Result<(), NsError> {
    if request.done.len() > 1_024 {
        return Err(NsError::TooMany { what: "deletions at a time", bound: 1_024 });
    }
    for due in &request.done {
        txn.delete(&keys::deletion(due.seq, due.object));
    }
    Ok(())
}

impl Operation for DeletionDone {
    const TAG: OpTag = OpTag::DeletionDone;
    type Reply = ();
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<(), NsError> {
        deletion_done(txn, ctx, self)
    }
}
