//! Another store takes a member's place in a group: it joins, is owed page by page what was there before, and when it has all, the other one leaves.

use kv::Txn;
use types::{BodyId, Group, GroupId, Member, Placement, StoreId};

use crate::context::operations;
use crate::groups::group::{MEMBERS_MAX, write_group};
use crate::groups::placing::{holds, put_owed};
use crate::{
    Context, NsError, UploadRecord, UploadState, WantedState, bodies, group, owed, owed_of, store, uploads,
    writers_page,
};

/// Contents that one change takes on.
const PAGE: usize = 256;
/// Of those that a member which leaves was owed, so many pages are forgiven with that; the rest is by and by ([`ForgiveOwed`]). One change holds no more.
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
pub struct FillMember {
    /// The group.
    pub group: GroupId,
    /// The member.
    pub store: StoreId,
    /// How many pages of some hundreds of contents, at most [`FillMember::PAGES_MAX`].
    pub pages: usize,
}

impl FillMember {
    /// Pages of one such change.
    pub const PAGES_MAX: usize = 16;
}

/// Nothing of these contents is owed any more to stores that are not in the group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForgiveOwed {
    /// The group.
    pub group: GroupId,
    /// The contents, at most [`ForgiveOwed::BODIES_MAX`].
    pub bodies: Vec<BodyId>,
}

impl ForgiveOwed {
    /// Contents of one such change.
    pub const BODIES_MAX: usize = PAGE;
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
        return Err(stale(group.group, "the store that is to join is not to be used any more"));
    }
    let is_there = |one: StoreId| group.members.iter().position(|member| member.store == one);
    let at = is_there(request.in_place_of).ok_or_else(|| stale(group.group, "its member has left already"))?;
    if is_there(request.store).is_some() || group.members.len() >= MEMBERS_MAX {
        return Err(stale(group.group, "the store is a member already, or there are 64"));
    }
    // Operations are run one after the other: all contents that were opened before have lower numbers, and all that come have higher ones, those with this
    // member taking part among them. Whatever is written under a lower one and is not there yet is owed to all members when it comes to its end.
    let since = ctx.ids.next_body()?;
    let joins = Member { store: request.store, since, through: BodyId(0) };
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

/// See [`FillMember`].
pub fn fill_member(txn: &mut dyn Txn, _ctx: &Context, request: &FillMember) -> Result<(), NsError> {
    for _ in 0..request.pages.clamp(1, FillMember::PAGES_MAX) {
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
    let page = bodies(txn, number, Some(member.through), PAGE)?;
    let page: Vec<BodyId> = page.into_iter().map(|record| record.body).filter(|body| *body < member.since).collect();
    let all = BodyId(member.since.0.saturating_sub(1));
    // Also where there are more, which were all written since it joined; and with the last one of all it counts as current, so that nothing comes after.
    let is_last = page.len() < PAGE || page.last() == Some(&all);
    if is_last {
        owe_kept_uploads(txn, number, member)?;
    }
    member.through = if is_last { all } else { page.last().copied().unwrap_or(all) };
    for body in page {
        also_owe(txn, number, body, store)?;
    }
    // Who the members are has not changed, and so the epoch has not.
    write_group(txn, &group);
    Ok(is_last)
}

fn also_owe(txn: &mut dyn Txn, group: GroupId, body: BodyId, store: StoreId) -> Result<(), NsError> {
    let mut stores = owed_of(txn, group, body)?;
    if !stores.contains(&store) {
        stores.push(store);
        put_owed(txn, group, body, &stores);
    }
    Ok(())
}

/// Uploads that could not become visible are contents, too, and are listed elsewhere.
fn owe_kept_uploads(txn: &mut dyn Txn, group: GroupId, member: &Member) -> Result<(), NsError> {
    let mut after = None;
    loop {
        let page = uploads(txn, after, PAGE)?;
        let kept = |upload: &&UploadRecord| upload.placed == group && upload.state != UploadState::InMaking;
        for upload in page.iter().filter(kept).filter(|upload| upload.body < member.since) {
            also_owe(txn, group, upload.body, member.store)?;
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
        return Err(stale(number, "no other store has taken the place of the member that is to leave"));
    }
    if group.members.iter().any(|member| !leaves(member) && !member.is_current()) {
        return Err(needed(request.store, "a store that takes its place has not been given all"));
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
            return Err(needed(leaves, "the record of somebody who writes cannot be read"));
        }
        // What is written becomes a content of the group at its end, and may be on those alone who take part.
        let is_there = |placement: &Placement| {
            placement.group == group && placement.participants.iter().any(|one| one.store == leaves)
        };
        if page.writers.iter().any(|writer| is_there(&writer.placement)) {
            return Err(needed(leaves, "somebody writes there"));
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
        return Err(needed(leaves, "of those that would be left all were given up, or have not been given all"));
    }
    let mut after = None;
    loop {
        let page = owed(txn, group, after, PAGE)?;
        if page.iter().any(|(body, owed)| is_needed(members, *body, owed, leaves, goes, is_lost)) {
            return Err(needed(leaves, "copies of what it has are owed to others"));
        }
        if page.iter().any(|(body, owed)| is_alone_with(members, *body, owed, leaves, is_lost)) {
            return Err(needed(leaves, "nobody else has all that it has"));
        }
        after = page.last().map(|(body, _)| *body);
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
    body: BodyId,
    owed: &[StoreId],
    store: StoreId,
    goes: impl Fn(StoreId) -> bool,
    is_lost: impl Fn(StoreId) -> bool,
) -> bool {
    let counts = |one: StoreId| goes(one) && (one == store || !is_lost(one));
    let is_owed = |member: &Member| owed.contains(&member.store);
    members.iter().any(|member| counts(member.store) && holds(member, body, owed))
        && members.iter().any(|member| !member.is_leaving() && !goes(member.store) && is_owed(member))
}

/// Whether a content is on a member that was not given up, so that others will have it by and by.
#[must_use]
pub fn is_on_others(members: &[Member], body: BodyId, owed: &[StoreId], is_lost: impl Fn(StoreId) -> bool) -> bool {
    members.iter().any(|member| !is_lost(member.store) && holds(member, body, owed))
}

/// Whether a content would be gone with this member: it has it, and of those who would be left nobody has. Who was given up counts for nothing, nor do
/// others that leave, for one that leaves. Of one that was given up itself it is still known where it was, and it may be there again.
#[must_use]
pub fn is_alone_with(
    members: &[Member],
    body: BodyId,
    owed: &[StoreId],
    store: StoreId,
    is_lost: impl Fn(StoreId) -> bool,
) -> bool {
    let Some(this) = members.iter().find(|member| member.store == store) else { return false };
    let is_left = |member: &Member| {
        member.store != store && !is_lost(member.store) && !(this.is_leaving() && member.is_leaving())
    };
    holds(this, body, owed) && !members.iter().any(|member| is_left(member) && holds(member, body, owed))
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
        let page = owed(txn, group, after, PAGE)?;
        after = page.last().map(|(body, _)| *body);
        let is_last = page.len() < PAGE;
        for (body, mut stores) in page.into_iter().filter(|(_, stores)| stores.contains(&leaves)) {
            stores.retain(|store| *store != leaves);
            put_owed(txn, group, body, &stores);
        }
        if is_last {
            break;
        }
    }
    Ok(())
}

/// See [`ForgiveOwed`]. [`NsError::TooMany`].
pub fn forgive_owed(txn: &mut dyn Txn, _ctx: &Context, request: &ForgiveOwed) -> Result<(), NsError> {
    if request.bodies.len() > ForgiveOwed::BODIES_MAX {
        return Err(NsError::TooMany { what: "contents of one change", bound: ForgiveOwed::BODIES_MAX as u64 });
    }
    let number = request.group;
    let Some(group) = group(txn, number)? else { return Ok(()) };
    for body in &request.bodies {
        let owed = owed_of(txn, number, *body)?;
        let is_member = |store: &StoreId| group.members.iter().any(|member| member.store == *store);
        let stores: Vec<StoreId> = owed.iter().copied().filter(is_member).collect();
        if stores.len() < owed.len() {
            put_owed(txn, number, *body, &stores);
        }
    }
    Ok(())
}

operations! {
    JoinGroup, join_group -> ();
    FillMember, fill_member -> ();
    LeaveGroup, leave_group -> ();
    ForgiveOwed, forgive_owed -> ();
}
