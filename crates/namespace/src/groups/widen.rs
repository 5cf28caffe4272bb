//! Moves a complete object to a group with more stores, so that it gets more replicas. The stores that have it keep it, and repair makes the others.

use kv::Txn;
use types::{GroupId, Ino, ObjectId, StoreId};

use crate::context::operations;
use crate::groups::placing::put_missing_replica;
use crate::groups::registry::administrator;
use crate::tree::inode::Kind;
use crate::tree::node::locate;
use crate::{Context, FileState, NsError, ObjectRecord, at_rest, group, keys, missing_of, object_record};

/// See the module. Only the administrator may do this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WidenObject {
    /// The inode of the file, or of the stripe unit.
    pub ino: Ino,
    /// Its object.
    pub object: ObjectId,
    /// The state of the object when the caller decided this ([`crate::AtRest::state`]).
    pub state: u32,
    /// The group that gets it. It has all stores of the present group, and no store is joining or leaving one of the two.
    pub to: GroupId,
}

/// See [`WidenObject`]. [`NsError::Stale`] if the file or one of the groups has changed meanwhile.
pub fn widen_object(txn: &mut dyn Txn, ctx: &Context, request: &WidenObject) -> Result<(), NsError> {
    administrator(ctx)?;
    let stale = |why| NsError::Stale { what: format!("object {:016x}", request.object.0), why };
    let mut located = locate(txn, request.ino)?.ok_or_else(|| stale("the file was removed meanwhile"))?;
    let Kind::File(content) = &mut located.inode.kind else { return Err(stale("it is not a file")) };
    let (from, object) = (content.group, content.object);
    if object != request.object || content.state != FileState::Complete || content.shared {
        return Err(stale("the file was changed or replaced meanwhile"));
    }
    if from == request.to {
        return Ok(());
    }
    if at_rest(txn, from, object)?.is_none_or(|now| now.state != request.state) {
        return Err(stale("the file was changed meanwhile"));
    }
    let record = object_record(txn, from, object)?.ok_or_else(|| stale("the file was removed meanwhile"))?;
    let (Some(before), Some(wider)) = (group(txn, from)?, group(txn, request.to)?) else {
        return Err(stale("a group of stores does not exist"));
    };
    let is_settled = |member: &types::Member| member.is_current() && !member.is_leaving() && member.has(object);
    if !before.members.iter().chain(&wider.members).all(is_settled) {
        return Err(stale("a store is just joining or leaving its group"));
    }
    let is_in = |members: &[types::Member], store: StoreId| members.iter().any(|member| member.store == store);
    if !before.members.iter().all(|member| is_in(&wider.members, member.store)) {
        return Err(stale("the new group lacks a store that the present one has"));
    }
    let mut missing = missing_of(txn, from, object)?;
    missing.extend(wider.members.iter().map(|member| member.store).filter(|store| !is_in(&before.members, *store)));
    txn.delete(&keys::object(from, object));
    txn.delete(&keys::missing(from, object));
    content.group = request.to;
    ObjectRecord { group: request.to, ..record }.put(txn);
    put_missing_replica(txn, request.to, object, &missing);
    located.store(txn, ctx);
    Ok(())
}

operations! {
    WidenObject, widen_object -> ();
}
