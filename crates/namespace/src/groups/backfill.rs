//! A store replaces a member of a group. It joins, then the objects that existed before are recorded page by page as missing replicas. When it has
//! all of them, the other member leaves.

use kv::Txn;
use types::{Group, GroupId, Member, ObjectId, Placement, StoreId};

use crate::context::operations;
use crate::groups::group::{MEMBERS_MAX, write_group};
use crate::groups::placing::{holds, put_missing_replica};
use crate::{
    Context, NsError, UploadRecord, UploadState, WantedState, group, missing, missing_of, objects, store, uploads,
    writers_page,
};

/// Objects that one page holds.
const PAGE: usize = 256;
/// When a member leaves, one change forgives this many pages of its missing replicas: more do not fit into it. Later changes forgive the rest
/// ([`DropMissingReplicas`]).
const FORGIVEN_PAGES: usize = 32;

/// A store joins a group and replaces a member. That member stays until the new one has everything ([`LeaveGroup`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JoinGroup {
    /// The group.
    pub group: GroupId,
    /// The group's epoch when the caller decided this.
    pub epoch: u32,
    /// The store that joins.
    pub store: StoreId,
    /// The member that it replaces.
    pub in_place_of: StoreId,
}

/// Records the next objects that existed before a member joined as missing replicas of that member. The member does not hold a missing replica: see
/// [`crate::holders`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackfillMember {
    /// The group.
    pub group: GroupId,
    /// The member.
    pub store: StoreId,
    /// The number of pages (some hundred objects each), at most [`BackfillMember::PAGES_MAX`].
    pub pages: usize,
}

impl BackfillMember {
    /// The most pages of one change.
    pub const PAGES_MAX: usize = 16;
}

/// Forgets the missing replicas of these objects on stores that are not in the group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DropMissingReplicas {
    /// The group.
    pub group: GroupId,
    /// The objects, at most [`DropMissingReplicas::OBJECTS_MAX`].
    pub objects: Vec<ObjectId>,
}

impl DropMissingReplicas {
    /// The most objects of one change.
    pub const OBJECTS_MAX: usize = PAGE;
}

/// A replaced member leaves its group. Returns [`NsError::StillNeeded`] until the other members have everything that it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaveGroup {
    /// The group.
    pub group: GroupId,
    /// The store that leaves.
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
    // Operations run one after the other. So every object opened before has a lower number. Every later object has a higher number, and this member
    // can be an in-sync replica of it. When an open write with a lower number ends, all members without a replica get a missing replica.
    let since = ctx.ids.next_object()?;
    let joins = Member { store: request.store, since, through: ObjectId(0) };
    if group.members[at].is_current() {
        group.members[at].through = Member::LEAVES;
        group.members.insert(at + 1, joins);
    } else {
        // The replaced member never had everything, so other stores have its missing replicas. But it may be the only store with an object written
        // since it joined.
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

/// Adds one page. Returns whether it was the last one.
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
    // The page is also the last if more objects exist, because those were all written since the store joined. After the last one the member counts as
    // current, and nothing follows.
    let is_last = page.len() < PAGE || page.last() == Some(&all);
    if is_last {
        record_missing_replicas_of_uploads(txn, number, member)?;
    }
    member.through = if is_last { all } else { page.last().copied().unwrap_or(all) };
    for object in page {
        record_missing_replica(txn, number, object, store)?;
    }
    // The set of members is unchanged, so the epoch stays.
    write_group(txn, &group);
    Ok(is_last)
}

fn record_missing_replica(txn: &mut dyn Txn, group: GroupId, object: ObjectId, store: StoreId) -> Result<(), NsError> {
    let mut stores = missing_of(txn, group, object)?;
    if !stores.contains(&store) {
        stores.push(store);
        put_missing_replica(txn, group, object, &stores);
    }
    Ok(())
}

/// Kept uploads are objects too, but other records list them.
fn record_missing_replicas_of_uploads(txn: &mut dyn Txn, group: GroupId, member: &Member) -> Result<(), NsError> {
    let mut after = None;
    loop {
        let page = uploads(txn, after, PAGE)?;
        let kept = |upload: &&UploadRecord| upload.placed == group && upload.state != UploadState::BeingWritten;
        for upload in page.iter().filter(kept).filter(|upload| upload.object < member.since) {
            record_missing_replica(txn, group, upload.object, member.store)?;
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

/// Checks that the members that stay have every object of the group that this store has.
/// - An object that this store or no store has does not count: nobody can copy it from here.
/// - A missing replica of another member that leaves does not count: the store that replaces that member has a missing replica too.
/// - But an object that no other store has keeps this store in the group until it is copied.
fn nothing_needs(txn: &dyn Txn, group: &Group, leaves: StoreId) -> Result<(), NsError> {
    let (group, members) = (group.group, &group.members);
    let mut after = None;
    loop {
        let page = writers_page(txn, after, PAGE)?;
        // The damaged record may belong to this group.
        if !page.damaged.is_empty() {
            return Err(needed(leaves, "the record of a writer cannot be read"));
        }
        // The object joins the group when its open write ends, and may exist only on its in-sync replicas.
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

/// Whether `store`, which leaves, must wait until an object is copied. It must if a leaving store has the object and a member that stays misses it.
/// An object on a store that is removed as lost keeps only that store: it may be gone, and no other store can supply it.
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

/// Whether a store that is not removed as lost has the object, so that the other members get it later.
#[must_use]
pub fn is_on_others(
    members: &[Member],
    object: ObjectId,
    missing: &[StoreId],
    is_lost: impl Fn(StoreId) -> bool,
) -> bool {
    members.iter().any(|member| !is_lost(member.store) && holds(member, object, missing))
}

/// Whether this member has the only replica of an object among the members that would be left. Stores removed as lost do not count. Other leaving
/// members do not count for a leaving member. The replica of a store removed as lost is still on record, because the store may come back.
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

/// Whether a usable store is left when this member goes. Stores removed as lost never count. For a member that has been replaced, a member that stays
/// is enough. A member that never had everything is replaced at once. It needs a member that has everything: it may have the only replica of a copied
/// object, and no missing replica tells of that.
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

/// Forgets the missing replicas of a store that leaves; those of other stores stay. Missing replicas beyond the limit may stay on record for a while.
/// They do no harm: a store outside the group does not count and gets no copies, and if it joins again it must get everything.
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

/// See [`DropMissingReplicas`]. [`NsError::TooMany`].
pub fn drop_missing_replicas(txn: &mut dyn Txn, _ctx: &Context, request: &DropMissingReplicas) -> Result<(), NsError> {
    if request.objects.len() > DropMissingReplicas::OBJECTS_MAX {
        return Err(NsError::TooMany { what: "objects of one change", bound: DropMissingReplicas::OBJECTS_MAX as u64 });
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
    DropMissingReplicas, drop_missing_replicas -> ();
}
