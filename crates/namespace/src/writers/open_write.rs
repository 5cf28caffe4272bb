//! Opening for writing: new files, uploads, updates in place, and the recovery of a writer that lost its connection.

use std::collections::BTreeSet;

use kv::{Prefetch, Txn};
use types::{InSyncReplica, Placement};

use crate::writers::open_ahead::ahead;
use crate::writers::open_new::open_new;
use crate::{Actor, Context, NsError, OpTag, OpenWrite, OpenedWrite, Operation, WriteMode, permit_client};

/// See [`OpenWrite`]. [`NsError::Stale`] if a requested in-sync replica has left the group. [`NsError::TooMany`] or [`NsError::Invalid`] if a record
/// has no room for all of them, or if one is named twice.
pub fn open_write(txn: &mut dyn Txn, ctx: &Context, request: &OpenWrite) -> Result<OpenedWrite, NsError> {
    ctx.actor.permit_path(request.operations(), &request.path, &request.path)?;
    let units = request.stripe.iter().flat_map(|stripe| &stripe.units);
    for Placement { group, in_sync } in std::iter::once(&request.placement).chain(units) {
        can_be_kept(in_sync)?;
        if in_sync.is_empty() {
            continue;
        }
        let Some(group) = crate::group(txn, *group)? else { continue };
        let what = || format!("group {}", group.group);
        if !in_sync.iter().all(|one| group.members.iter().any(|member| member.store == one.store)) {
            let why = "a store that should be in sync has left it meanwhile";
            return Err(NsError::Stale { what: what(), why });
        }
        // All members that stay get the object. If leaving members counted too, the object would end up with too few replicas.
        let stay = group.members.iter().filter(|member| !member.is_leaving()).count();
        if request.how != WriteMode::Update && stay < in_sync.len() {
            let why = "a store that should be in sync is about to leave it";
            return Err(NsError::Stale { what: what(), why });
        }
    }
    permit_client(&ctx.actor, &request.client, &|| request.path.to_string())?;
    if request.path.is_root() {
        return Err(NsError::IsDirectory(request.path.to_string()));
    }
    match request.how {
        WriteMode::Update => crate::writers::recover::open_update(txn, ctx, request),
        _ if request.resume.is_some() => {
            Err(NsError::Invalid { what: request.path.to_string(), why: "to resume, open for update" })
        }
        WriteMode::NewOnly | WriteMode::Replace => open_new(txn, ctx, request),
    }
}

/// A record with too many in-sync replicas could not be decoded again.
fn can_be_kept(in_sync: &[InSyncReplica]) -> Result<(), NsError> {
    const MAX: usize = Placement::IN_SYNC_MAX;
    if in_sync.len() > MAX {
        return Err(NsError::TooMany { what: "in-sync replicas of an open write", bound: MAX as u64 });
    }
    let stores: BTreeSet<_> = in_sync.iter().map(|one| one.store).collect();
    if stores.len() < in_sync.len() {
        return Err(NsError::Invalid { what: "an open write".into(), why: "a store is listed twice as in sync" });
    }
    Ok(())
}

impl Operation for OpenWrite {
    const TAG: OpTag = OpTag::OpenWrite;
    type Reply = OpenedWrite;
    fn ahead(&self, ctx: &Context) -> Vec<Prefetch> {
        ahead(ctx, self)
    }
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<OpenedWrite, NsError> {
        open_write(txn, ctx, self)
    }
    fn permit_again(&self, actor: &Actor) -> Result<(), NsError> {
        actor.permit_path(self.operations(), &self.path, &self.path)
    }
    /// A server opens again on other terms: with other stores, or back to the client's own writer.
    fn is_remembered(result: &Result<OpenedWrite, NsError>) -> bool {
        result.is_ok()
    }
}
