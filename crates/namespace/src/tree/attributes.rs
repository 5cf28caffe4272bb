//! chmod, chown, utimes.

use kv::{Prefetch, Txn};
use types::{NsPath, PrincipalId, Timestamp};

use crate::ahead::Ahead;
use crate::planted::{self, Bug};
use crate::quota::charge::{Charge, Delta, charge_of, move_usage, permit_open_move};
use crate::tree::node::{Located, locate_entry, put_directory};
use crate::tree::path_limits::ByKind;
use crate::tree::walk::{Last, resolve_by_kind};
use crate::trees::totals::forget_latest_change;
use crate::{AccessKind, Context, Kind, NsError, OpTag, Operation, permit};

/// Sets the permission bits; the owner may. If the file has further ACL entries, the group bits are their mask.
///
/// The set-group-ID bit stays off if the owner is no member of the file's group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chmod {
    /// The path.
    pub path: NsPath,
    /// New bits (`07777`), or the nine lowest ones with [`Chmod::NINE_BITS`].
    pub mode: u16,
}

impl Chmod {
    /// Added to the mode if the client's protocol has the nine lowest bits only. A directory then keeps its set-group-ID and sticky bits: the client can
    /// neither see nor mean them.
    pub const NINE_BITS: u16 = 1 << 15;

    /// The bits of an inode that has had these.
    fn applied_to(&self, before: u16, is_dir: bool) -> u16 {
        let kept = if is_dir { before & 0o3000 } else { 0 };
        if self.mode & Self::NINE_BITS == 0 { self.mode & 0o7777 } else { self.mode & 0o777 | kept }
    }
}

/// Sets owner or group. The administrator may; an owner may give the file to another of its own groups.
///
/// A file, not a directory, loses its set-user-ID bit. It loses the set-group-ID bit too if its group may execute it, or if the caller is no member of
/// its group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chown {
    /// The path.
    pub path: NsPath,
    /// New owner.
    pub owner: Option<PrincipalId>,
    /// New group.
    pub group: Option<PrincipalId>,
}

/// Sets explicit times. The owner may.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Utimes {
    /// The path.
    pub path: NsPath,
    /// Modification.
    pub mtime: Option<Timestamp>,
    /// Access.
    pub atime: Option<Timestamp>,
}

/// The inode at `path`, if the actor owns it.
pub(crate) fn find_own(txn: &dyn Txn, ctx: &Context, path: &NsPath) -> Result<Located, NsError> {
    let (parent, name, entry) = resolve_by_kind(txn, &ctx.actor, path, Last::Follow, ByKind::MODIFY)?;
    let located = locate_entry(txn, parent.ino, &name, entry)?;
    permit(&ctx.actor, &located.inode.access, AccessKind::Own, &|| path.to_string())?;
    Ok(located)
}

/// Writes changed attributes.
pub(crate) fn store(txn: &mut dyn Txn, ctx: &Context, mut located: Located) {
    located.inode.ctime = ctx.now;
    match &located.inode.kind {
        // A directory's entry repeats the owner, group, mode and access ACL.
        Kind::Directory(dir) => put_directory(txn, ctx, &located.inode, dir),
        _ => located.store(txn, ctx),
    }
}

/// See [`Chmod`].
pub fn chmod(txn: &mut dyn Txn, ctx: &Context, request: &Chmod) -> Result<(), NsError> {
    let mut located = find_own(txn, ctx, &request.path)?;
    let is_dir = located.inode.is_dir();
    located.inode.access.mode = request.applied_to(located.inode.access.mode, is_dir);
    located.inode.access.keep_setgid_for(&ctx.actor);
    store(txn, ctx, located);
    Ok(())
}

/// See [`Chown`].
pub fn chown(txn: &mut dyn Txn, ctx: &Context, request: &Chown) -> Result<(), NsError> {
    let mut located = find_own(txn, ctx, &request.path)?;
    let from = charge_of(txn, &located)?;
    let actor = &ctx.actor;
    let denied = |rule: &str| NsError::Denied { path: request.path.to_string(), rule: rule.into() };
    if let Some(owner) = request.owner {
        if owner != located.inode.access.owner && !actor.is_admin() {
            return Err(denied("only the administrator may change a file's owner"));
        }
        located.inode.access.owner = owner;
    }
    if let Some(group) = request.group {
        if group != located.inode.access.group && !actor.is_admin() && !actor.groups.contains(&group) {
            return Err(denied("an owner may choose among its own groups only"));
        }
        located.inode.access.group = group;
    }
    // Nobody may run with the rights of an owner or group that have not agreed to it. A directory's bits mean something else.
    let is_given = request.owner.is_some() || request.group.is_some();
    if is_given && !located.inode.is_dir() {
        let access = &mut located.inode.access;
        access.drop_set_id();
        access.keep_setgid_for(actor);
    }
    if let Some(from) = from.filter(|_| !planted::is(Bug::GivenUsageStays)) {
        let to = Charge::new(from.tree, &located.inode);
        let delta = Delta::one_file(located.inode.content().map_or(0, |content| content.len));
        permit_open_move(txn, (from, to), &located.inode, &request.path)?;
        move_usage(txn, ctx, (from, to), delta, &|| request.path.to_string())?;
    }
    store(txn, ctx, located);
    Ok(())
}

/// See [`Utimes`].
pub fn utimes(txn: &mut dyn Txn, ctx: &Context, request: &Utimes) -> Result<(), NsError> {
    let mut located = find_own(txn, ctx, &request.path)?;
    if let Some(mtime) = request.mtime {
        located.inode.mtime = mtime;
        if located.inode.is_dir() {
            forget_latest_change(txn, located.inode.ino)?;
        }
    }
    if let Some(atime) = request.atime {
        located.inode.atime = Some(atime);
    }
    store(txn, ctx, located);
    Ok(())
}

impl Operation for Chmod {
    const TAG: OpTag = OpTag::Chmod;
    type Reply = ();
    fn ahead(&self, _: &Context) -> Vec<Prefetch> {
        Ahead::walk(&self.path).record().list()
    }
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<(), NsError> {
        chmod(txn, ctx, self)
    }
}

impl Operation for Chown {
    const TAG: OpTag = OpTag::Chown;
    type Reply = ();
    fn ahead(&self, ctx: &Context) -> Vec<Prefetch> {
        Ahead::walk(&self.path).record().parent_changes(ctx).parent_usage(&ctx.actor).list()
    }
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<(), NsError> {
        chown(txn, ctx, self)
    }
}

impl Operation for Utimes {
    const TAG: OpTag = OpTag::Utimes;
    type Reply = ();
    fn ahead(&self, _: &Context) -> Vec<Prefetch> {
        Ahead::walk(&self.path).record().totals().list()
    }
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<(), NsError> {
        utimes(txn, ctx, self)
    }
}
