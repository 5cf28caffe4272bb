//! Another store takes a member's place in a group: it joins, is owed page by page what was there before, and when it has all, the other one leaves.

use kv::Txn;
use types::{Group, GroupId, Member, ObjectId, Placement, StoreId};

use crate::context::operations;
use crate::groups::group::{MEMBERS_MAX, write_group};
use crate::groups::placing::{holds, put_missing_replica};
use crate::{
    Context, NsError, UploadRecord, UploadState, WantedState, group, missing, missing_of, objects, store, uploads,
    writers_page,
};

/// Contents that one change takes on.
const PAGE: usize = 256;
/// Of those that a member which leaves was owed, so many pages are forgiven with that; the rest is by and by ([`ForgiveMissingReplica`]). One change holds no more.
const FORGIVEN_PAGES: usize = 32;

/// A store joins a group, in the place of a member that is to leave it. That one stays until the new one has all ([`LeaveGroup`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JoinGroup {
    /// The group.
    pub group: GroupId,
    /// As it was when this was decided.
    pub epoch: u32,
    /// Who joins.
    pub store: StoreId,
    /// Whose place it takes.
    pub in_place_of: StoreId,
}

/// A member that joined later is owed the next contents of those that were there before. What is owed is not held: see [`crate::holders`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackfillMember {
    /// The group.
    pub group: GroupId,
    /// The member.
    pub store: StoreId,
    /// How many pages of some hundreds of contents, at most [`BackfillMember::PAGES_MAX`].
    pub pages: usize,
}

impl BackfillMember {
    /// Pages of one such change.
    pub const PAGES_MAX: usize = 16;
}

/// Nothing of these contents is owed any more to stores that are not in the group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForgiveMissingReplica {
    /// The group.
    pub group: GroupId,
    /// The contents, at most [`ForgiveMissingReplica::OBJECTS_MAX`].
    pub objects: Vec<ObjectId>,
}

impl ForgiveMissingReplica {
    /// Contents of one such change.
    pub const OBJECTS_MAX: usize = PAGE;
}

/// A member whose place another one has taken leaves its group. [`NsError::StillNeeded`] until all the others have all that it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaveGroup {
    /// The group.
    pub group: GroupId,
    /// Who leaves.
    pub store: StoreId,
}

fn the_group(txn: &dyn Txn, number: GroupId) -> Result<Group, NsError> {
    group(txn, number)?.ok_or_else(|| NsError::NotFound(number.to_string(), "group of stores"))
}

fn stale(group: GroupId, why: &'static str) -> NsError {
    NsError::Stale { what: format!("group {group}"), why }
}

/// See [`JoinGroup`].
pub fn join_group(txn: &mut dyn Txn, ctx: &Context, request: &JoinGroup) -> Result<(), NsError> {
    let mut group = the_group(txn, request.group)?;
    if group.epoch != request.epoch {
        return Err(stale(group.group, "it has been changed meanwhile"));
    }
    if store(txn, request.store)?.is_none_or(|entry| entry.state != WantedState::Online) {
        return Err(stale(group.group, "the store that would join must not be used any more"));
    }
    let is_there = |one: StoreId| group.members.iter().position(|member| member.store == one);
    let at = is_there(request.in_place_of).ok_or_else(|| stale(group.group, "its member has left already"))?;
    if is_there(request.store).is_some() || group.members.len() >= MEMBERS_MAX {
        return Err(stale(group.group, "the store is a member already, or there are 64"));
    }
    // Operations are run one after the other: all contents that were opened before have lower numbers, and all that come have higher ones, those with this
    // member taking part among them. Whatever is written under a lower one and is not there yet is owed to all members when it comes to its end.
    let since = ctx.ids.next_object()?;
    let joins = Member { store: request.store, since, through: ObjectId(0) };
    if group.members[at].is_current() {
        group.members[at].through = Member::LEAVES;
        group.members.insert(at + 1, joins);
    } else {
        // It never had all. Somebody else has what it was owed; what was written since it joined may be on it alone.
        let (number, leaves) = (group.group, request.in_place_of);
        nothing_needs(txn, &group, leaves)?;
        forgive(txn, number, leaves)?;
        group.members[at] = joins;
    }
    group.epoch = group.epoch.saturating_add(1);
    write_group(txn, &group);
    Ok(())
}

/// See [`BackfillMember`].
pub fn backfill_member(txn: &mut dyn Txn, _ctx: &Context, request: &BackfillMember) -> Result<(), NsError> {
    for _ in 0..request.pages.clamp(1, BackfillMember::PAGES_MAX) {
        if fill_page(txn, request.group, request.store)? {
            break;
        }
    }
    Ok(())
}

/// Whether that was all.
fn fill_page(txn: &mut dyn Txn, number: GroupId, store: StoreId) -> Result<bool, NsError> {
    let mut group = the_group(txn, number)?;
    let at = group.members.iter().position(|member| member.store == store);
    let at = at.ok_or_else(|| stale(number, "the member has left already"))?;
    let member = &mut group.members[at];
    if member.is_current() {
        return Ok(true);
    }
    let page = objects(txn, number, Some(member.through), PAGE)?;
    let page: Vec<ObjectId> =
        page.into_iter().map(|record| record.object).filter(|object| *object < member.since).collect();
    let all = ObjectId(member.since.0.saturating_sub(1));
    // Also where there are more, which were all written since it joined; and with the last one of all it counts as current, so that nothing comes after.
    let is_last = page.len() < PAGE || page.last() == Some(&all);
    if is_last {
        owe_kept_uploads(txn, number, member)?;
    }
    member.through = if is_last { all } else { page.last().copied().unwrap_or(all) };
    for object in page {
        also_owe(txn, number, object, store)?;
    }
    // Who the members are has not changed, and so the epoch has not.
    write_group(txn, &group);
    Ok(is_last)
}

fn also_owe(txn: &mut dyn Txn, group: GroupId, object: ObjectId, store: StoreId) -> Result<(), NsError> {
    let mut stores = missing_of(txn, group, object)?;
    if !stores.contains(&store) {
        stores.push(store);
        put_missing_replica(txn, group, object, &stores);
    }
    Ok(())
}

/// Uploads that could not become visible are contents, too, and are listed elsewhere.
fn owe_kept_uploads(txn: &mut dyn Txn, group: GroupId, member: &Member) -> Result<(), NsError> {
    let mut after = None;
    loop {
        let page = uploads(txn, after, PAGE)?;
        let kept = |upload: &&UploadRecord| upload.placed == group && upload.state != UploadState::InMaking;
        for upload in page.iter().filter(kept).filter(|upload| upload.object < member.since) {
            also_owe(txn, group, upload.object, member.store)?;
        }
        after = page.last().map(|upload| upload.upload);
        if page.len() < PAGE {
            return Ok(());
        }
    }
}

/// See [`LeaveGroup`].
pub fn leave_group(txn: &mut dyn Txn, _ctx: &Context, request: &LeaveGroup) -> Result<(), NsError> {
    let mut group = the_group(txn, request.group)?;
    let number = group.group;
    let leaves = |member: &Member| member.store == request.store;
    let Some(at) = group.members.iter().position(leaves) else { return Ok(()) };
    if !group.members[at].is_leaving() {
        return Err(stale(number, "no other store has replaced the member that is about to leave"));
    }
    if group.members.iter().any(|member| !leaves(member) && !member.is_current()) {
        return Err(needed(request.store, "a store that replaces it has not received everything yet"));
    }
    nothing_needs(txn, &group, request.store)?;
    forgive(txn, number, request.store)?;
    group.members.remove(at);
    group.epoch = group.epoch.saturating_add(1);
    write_group(txn, &group);
    Ok(())
}

fn needed(store: StoreId, by: &str) -> NsError {
    NsError::StillNeeded { what: format!("store {store}"), by: by.into() }
}

/// Others that stay have all of the group that this store has. What it does not have itself, and what nobody has, does not count: nobody gets it from
/// here. What those are owed that are to go as well does not count either, as who takes their place is owed it; but what is on nobody else keeps this one
/// until that is so.
fn nothing_needs(txn: &dyn Txn, group: &Group, leaves: StoreId) -> Result<(), NsError> {
    let (group, members) = (group.group, &group.members);
    let mut after = None;
    loop {
        let page = writers_page(txn, after, PAGE)?;
        // Whose it is nobody knows.
        if !page.damaged.is_empty() {
            return Err(needed(leaves, "the record of a writer cannot be read"));
        }
        // What is written becomes a content of the group at its end, and may be on those alone who take part.
        let is_there =
            |placement: &Placement| placement.group == group && placement.in_sync.iter().any(|one| one.store == leaves);
        if page.writers.iter().any(|writer| is_there(&writer.placement)) {
            return Err(needed(leaves, "it has an open write"));
        }
        if page.next.is_none() {
            break;
        }
        after = page.next;
    }
    let (mut go, mut lost) = (vec![leaves], Vec::new());
    for member in members {
        let wanted = store(txn, member.store)?.map(|entry| entry.state);
        if member.is_leaving() || matches!(wanted, Some(WantedState::Draining | WantedState::Lost)) {
            go.push(member.store);
        }
        if wanted == Some(WantedState::Lost) {
            lost.push(member.store);
        }
    }
    let (goes, is_lost) = (|store: StoreId| go.contains(&store), |store: StoreId| lost.contains(&store));
    if !has_successors(members, leaves, is_lost) {
        return Err(needed(
            leaves,
            "of the remaining stores all are removed as lost, or have not received everything yet",
        ));
    }
    let mut after = None;
    loop {
        let page = missing(txn, group, after, PAGE)?;
        if page.iter().any(|(object, missing)| is_needed(members, *object, missing, leaves, goes, is_lost)) {
            return Err(needed(leaves, "other stores miss replicas that it has"));
        }
        if page.iter().any(|(object, missing)| is_alone_with(members, *object, missing, leaves, is_lost)) {
            return Err(needed(leaves, "no other store has everything that it has"));
        }
        after = page.last().map(|(object, _)| *object);
        if page.len() < PAGE {
            return Ok(());
        }
    }
}

/// Whether `store`, which goes, has to wait until a content is copied: one of those that go has it, and somebody who stays in the group is owed it. What
/// one has that was given up keeps that one, and nobody else: it may be lost, and nobody gets it from another one.
#[must_use]
pub fn is_needed(
    members: &[Member],
    object: ObjectId,
    missing: &[StoreId],
    store: StoreId,
    goes: impl Fn(StoreId) -> bool,
    is_lost: impl Fn(StoreId) -> bool,
) -> bool {
    let counts = |one: StoreId| goes(one) && (one == store || !is_lost(one));
    let is_missing = |member: &Member| missing.contains(&member.store);
    members.iter().any(|member| counts(member.store) && holds(member, object, missing))
        && members.iter().any(|member| !member.is_leaving() && !goes(member.store) && is_missing(member))
}

/// Whether a content is on a member that was not given up, so that others will have it by and by.
#[must_use]
pub fn is_on_others(
    members: &[Member],
    object: ObjectId,
    missing: &[StoreId],
    is_lost: impl Fn(StoreId) -> bool,
) -> bool {
    members.iter().any(|member| !is_lost(member.store) && holds(member, object, missing))
}

/// Whether a content would be gone with this member: it has it, and of those who would be left nobody has. Who was given up counts for nothing, nor do
/// others that leave, for one that leaves. Of one that was given up itself it is still known where it was, and it may be there again.
#[must_use]
pub fn is_alone_with(
    members: &[Member],
    object: ObjectId,
    missing: &[StoreId],
    store: StoreId,
    is_lost: impl Fn(StoreId) -> bool,
) -> bool {
    let Some(this) = members.iter().find(|member| member.store == store) else { return false };
    let is_left = |member: &Member| {
        member.store != store && !is_lost(member.store) && !(this.is_leaving() && member.is_leaving())
    };
    holds(this, object, missing) && !members.iter().any(|member| is_left(member) && holds(member, object, missing))
}

/// Whether somebody is left who was not given up, when this member goes: of one whose place was taken those who stay; of one whose place is taken at once,
/// since it was never given all, somebody who was. What it was given so far it may by now have alone, and nothing that is owed tells of that.
#[must_use]
pub fn has_successors(members: &[Member], store: StoreId, is_lost: impl Fn(StoreId) -> bool) -> bool {
    let Some(this) = members.iter().find(|member| member.store == store) else { return true };
    let mut others = members.iter().filter(|member| member.store != store && !is_lost(member.store));
    match (this.is_leaving(), this.is_current()) {
        (true, _) => others.any(|member| !member.is_leaving()),
        (false, false) if !is_lost(store) => others.any(Member::is_current),
        (false, _) => true,
    }
}

/// Nothing is owed any more to a store that leaves. To others what was owed still is. That it is still said of some is nobody's concern: who is not in a
/// group is neither counted on nor given anything of it, and should it come back, it has to be given all.
fn forgive(txn: &mut dyn Txn, group: GroupId, leaves: StoreId) -> Result<(), NsError> {
    let mut after = None;
    for _ in 0..FORGIVEN_PAGES {
        let page = missing(txn, group, after, PAGE)?;
        after = page.last().map(|(object, _)| *object);
        let is_last = page.len() < PAGE;
        for (object, mut stores) in page.into_iter().filter(|(_, stores)| stores.contains(&leaves)) {
            stores.retain(|store| *store != leaves);
            put_missing_replica(txn, group, object, &stores);
        }
        if is_last {
            break;
        }
    }
    Ok(())
}

/// See [`ForgiveMissingReplica`]. [`NsError::TooMany`].
pub fn forgive_missing_replica(
    txn: &mut dyn Txn,
    _ctx: &Context,
    request: &ForgiveMissingReplica,
) -> Result<(), NsError> {
    if request.objects.len() > ForgiveMissingReplica::OBJECTS_MAX {
        return Err(NsError::TooMany {
            what: "objects of one change",
            bound: ForgiveMissingReplica::OBJECTS_MAX as u64,
        });
    }
    let number = request.group;
    let Some(group) = group(txn, number)? else { return Ok(()) };
    for object in &request.objects {
        let missing = missing_of(txn, number, *object)?;
        let is_member = |store: &StoreId| group.members.iter().any(|member| member.store == *store);
        let stores: Vec<StoreId> = missing.iter().copied().filter(is_member).collect();
        if stores.len() < missing.len() {
            put_missing_replica(txn, number, *object, &stores);
        }
    }
    Ok(())
}

operations! {
    JoinGroup, join_group -> ();
    BackfillMember, backfill_member -> ();
    LeaveGroup, leave_group -> ();
    ForgiveMissingReplica, forgive_missing_replica -> ();
}
