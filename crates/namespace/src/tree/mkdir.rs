//! Making directories.

use kv::{Prefetch, Txn};
use types::{Ino, NsPath};

use crate::ahead::Ahead;
use crate::planted::{self, Bug};
use crate::quota::charge::{Charge, Delta, add_if_room};
use crate::tree::inode::{DirectoryRecord, Kind};
use crate::tree::new_access::{USUAL_MODE, access_of_directory};
use crate::tree::node::{Dentry, Dir, new_inode, put_directory};
use crate::tree::trail::{Place, Trail};
use crate::tree::walk::{Last, MissingAt, MissingName, Resolved, Walk, walk};
use crate::trees::totals::{self, Touch, adjust};
use crate::{AccessKind, Context, NsError, OpTag, Operation, PathOperation, permit};

/// What mkdir made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MkdirResult {
    /// The directory.
    pub ino: Ino,
    /// The number of created directories; 0 if all existed (only with `parents`).
    pub made: u32,
}

/// Makes a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mkdir {
    /// The path.
    pub path: NsPath,
    /// Permission bits of the new directories. With [`USUAL_MODE`] if nobody asked for them.
    pub mode: u16,
    /// Also create the missing parents. Succeed if all exist.
    pub parents: bool,
}

/// Creates a directory. The caller has checked that the name is free.
fn make(
    txn: &mut dyn Txn,
    ctx: &Context,
    path: &NsPath,
    (parent, parent_is_new): (&Dir, bool),
    name: &[u8],
    mode: u16,
) -> Result<Dir, NsError> {
    permit(&ctx.actor, &parent.access, AccessKind::Write, &|| path.to_string())?;
    permit(&ctx.actor, &parent.access, AccessKind::Pass, &|| path.to_string())?;
    let ino = ctx.ids.next_ino()?;
    let (access, default_acl) = access_of_directory(txn, &ctx.actor, parent, mode)?;
    let record = DirectoryRecord { parent: parent.ino, name: name.to_vec(), tree: parent.tree, default_acl };
    let inode = new_inode(ctx, ino, access, Kind::Directory(record.clone()));
    put_directory(txn, ctx, &inode, &record);
    if parent_is_new {
        totals::begin(txn, ctx, parent.ino);
    } else {
        adjust(txn, ctx, parent.ino, 1, 0, Touch::Entries)?;
    }
    let charge = Charge::new(record.tree, &inode);
    add_if_room(txn, ctx, charge, Delta::one_file(0), &|| path.to_string())?;
    Ok(Dir::new(&inode, &record))
}

/// Creates the missing directories of a path, which are the first ones of `names`. A link's target may not contain `..` after a missing name. Returns the
/// last directory, and where it is.
fn make_way(
    txn: &mut dyn Txn,
    ctx: &Context,
    path: &NsPath,
    (from, mut limited): (Dir, Option<MissingAt>),
    (names, count): (&[&[u8]], usize),
    mode: u16,
) -> Result<(Dir, Option<MissingAt>), NsError> {
    let mut dir = from;
    for (number, name) in names.iter().enumerate().take(count) {
        if *name == b".." {
            return Err(NsError::NotFound(path.to_string(), "directory on the way (a link leads over `..`)"));
        }
        if let Some(at) = &mut limited {
            at.trail.enter(name);
            permit_missing(ctx, path, at, names.len() - number - 1)?;
        }
        dir = make(txn, ctx, path, (&dir, number > 0), name, mode)?;
    }
    Ok((dir, limited))
}

/// Denies to make the directory at the end of `at` unless the limits of the actor permit it there, and where the path has its name. `behind` names
/// follow.
fn permit_missing(ctx: &Context, path: &NsPath, at: &MissingAt, behind: usize) -> Result<(), NsError> {
    if planted::is(Bug::LimitsForgetMissingDirectories) {
        return Ok(());
    }
    let operation = [PathOperation::CreateDirectory];
    ctx.actor.permit_path(&operation, &at.trail.path()?, path)?;
    if behind >= at.asked {
        return Ok(());
    }
    let names = path.components().count().saturating_sub(behind);
    ctx.actor.permit_path(&operation, &Trail::of(path.components().take(names)).path()?, path)
}

/// Walks `path`, which will name a file, and creates the missing directories before its last name.
pub(crate) fn resolve_making(
    txn: &mut dyn Txn,
    ctx: &Context,
    path: &NsPath,
    last: Last,
    wanted: &[PathOperation],
) -> Result<Resolved, NsError> {
    match walk(txn, &ctx.actor, path, last, wanted)? {
        Walk::MissingName(MissingName { only_directory: true, .. }) => Err(NsError::OnlyDirectory(path.to_string())),
        Walk::Resolved(resolved) => resolved.checked(path)?.for_no_directory(path),
        Walk::MissingName(MissingName { dir, name, rest, limited, .. }) => {
            // `rest` still has at least the last name.
            let last_name = rest.last().cloned().unwrap_or_default();
            if last_name.is_empty() || last_name == b".." {
                return Err(NsError::NotFound(path.to_string(), "directory on the way"));
            }
            let names: Vec<&[u8]> = std::iter::once(&name).chain(&rest).map(Vec::as_slice).collect();
            let mode = ctx.limits.mkpath_mode | USUAL_MODE;
            let (parent, limited) = make_way(txn, ctx, path, (dir, limited), (&names, rest.len()), mode)?;
            let place = limited.map_or(Ok(Place::default()), |at| at.trail.place_of(&last_name))?;
            Ok(Resolved { parent, parent_is_new: true, name: last_name, entry: None, only_directory: false, place })
        }
    }
}

/// See [`Mkdir`].
pub fn mkdir(txn: &mut dyn Txn, ctx: &Context, request: &Mkdir) -> Result<MkdirResult, NsError> {
    let path = &request.path;
    // With `parents`, a symbolic link to a directory at the end of the path counts as a directory, as for `mkdir -p`.
    let last = if request.parents { Last::Follow } else { Last::Keep };
    match walk(txn, &ctx.actor, path, last, &[PathOperation::CreateDirectory])? {
        Walk::MissingName(missing) if request.parents => {
            let MissingName { dir, name, rest, limited, .. } = missing;
            let names: Vec<&[u8]> = std::iter::once(&name).chain(&rest).map(Vec::as_slice).collect();
            let (dir, _) = make_way(txn, ctx, path, (dir, limited), (&names, names.len()), request.mode)?;
            Ok(MkdirResult { ino: dir.ino, made: u32::try_from(names.len()).unwrap_or(u32::MAX) })
        }
        Walk::MissingName(missing) => {
            let at = format!("{path}: {}", missing.name.escape_ascii());
            Err(NsError::NotFound(at, "directory on the way"))
        }
        Walk::Resolved(Resolved { entry: Some(Dentry::Directory(dir)), .. }) if request.parents => {
            Ok(MkdirResult { ino: dir.ino, made: 0 })
        }
        Walk::Resolved(Resolved { entry: Some(_), .. }) => Err(NsError::Exists(path.to_string())),
        Walk::Resolved(Resolved { parent, name, entry: None, .. }) => {
            let dir = make(txn, ctx, path, (&parent, false), &name, request.mode)?;
            Ok(MkdirResult { ino: dir.ino, made: 1 })
        }
    }
}

impl Operation for Mkdir {
    const TAG: OpTag = OpTag::Mkdir;
    type Reply = MkdirResult;
    fn ahead(&self, ctx: &Context) -> Vec<Prefetch> {
        let ahead = Ahead::walk(&self.path).parent_changes(ctx).parent_usage(&ctx.actor);
        if self.parents { ahead.way(ctx).list() } else { ahead.list() }
    }
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<MkdirResult, NsError> {
        mkdir(txn, ctx, self)
    }
}
