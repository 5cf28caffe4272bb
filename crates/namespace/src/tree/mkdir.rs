//! Making directories.

use kv::Txn;
use types::{Ino, NsPath};

use crate::tree::inode::{DirectoryRecord, Kind};
use crate::tree::new_access::{USUAL_MODE, access_of_directory};
use crate::tree::node::{Dentry, Dir, new_inode, put_directory};
use crate::tree::walk::{Last, MissingName, Resolved, Walk, walk};
use crate::trees::totals::{Touch, adjust};
use crate::{AccessKind, Context, NsError, OpTag, Operation, permit};

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
fn make(txn: &mut dyn Txn, ctx: &Context, path: &NsPath, parent: &Dir, name: &[u8], mode: u16) -> Result<Dir, NsError> {
    permit(&ctx.actor, &parent.access, AccessKind::Write, &|| path.to_string())?;
    permit(&ctx.actor, &parent.access, AccessKind::Pass, &|| path.to_string())?;
    let ino = ctx.ids.next_ino()?;
    let (access, default_acl) = access_of_directory(txn, &ctx.actor, parent, mode)?;
    let record = DirectoryRecord { parent: parent.ino, name: name.to_vec(), tree: parent.tree, default_acl };
    let inode = new_inode(ctx, ino, access, Kind::Directory(record.clone()));
    put_directory(txn, ctx, &inode, &record);
    adjust(txn, ctx, parent.ino, ino.0, 1, 0, Touch::Entries)?;
    Ok(Dir::new(&inode, &record))
}

/// Creates the missing directories of a path. A link's target may not contain `..` after a missing name.
fn make_way<'a>(
    txn: &mut dyn Txn,
    ctx: &Context,
    path: &NsPath,
    from: Dir,
    names: impl Iterator<Item = &'a [u8]>,
    mode: u16,
) -> Result<(Dir, u32), NsError> {
    let (mut dir, mut made) = (from, 0);
    for name in names {
        if name == b".." {
            return Err(NsError::NotFound(path.to_string(), "directory on the way (a link leads over `..`)"));
        }
        dir = make(txn, ctx, path, &dir, name, mode)?;
        made += 1;
    }
    Ok((dir, made))
}

/// Walks `path`, which will name a file, and creates the missing directories before its last name.
pub(crate) fn resolve_making(txn: &mut dyn Txn, ctx: &Context, path: &NsPath, last: Last) -> Result<Resolved, NsError> {
    match walk(txn, &ctx.actor, path, last)? {
        Walk::MissingName(MissingName { only_directory: true, .. }) => Err(NsError::OnlyDirectory(path.to_string())),
        Walk::Resolved(resolved) => resolved.checked(path)?.for_no_directory(path),
        Walk::MissingName(MissingName { dir, name, mut rest, .. }) => {
            // `rest` still has at least the last name.
            let last_name = rest.pop().unwrap_or_default();
            if last_name.is_empty() || last_name == b".." {
                return Err(NsError::NotFound(path.to_string(), "directory on the way"));
            }
            let names = std::iter::once(name.as_slice()).chain(rest.iter().map(Vec::as_slice));
            let mode = ctx.limits.mkpath_mode | USUAL_MODE;
            let (parent, _) = make_way(txn, ctx, path, dir, names, mode)?;
            Ok(Resolved { parent, name: last_name, entry: None, only_directory: false })
        }
    }
}

/// See [`Mkdir`].
pub fn mkdir(txn: &mut dyn Txn, ctx: &Context, request: &Mkdir) -> Result<MkdirResult, NsError> {
    let path = &request.path;
    // With `parents`, a symbolic link to a directory at the end of the path counts as a directory, as for `mkdir -p`.
    let last = if request.parents { Last::Follow } else { Last::Keep };
    match walk(txn, &ctx.actor, path, last)? {
        Walk::MissingName(missing) if request.parents => {
            let MissingName { dir, name, rest, .. } = missing;
            let names = std::iter::once(name.as_slice()).chain(rest.iter().map(Vec::as_slice));
            let (dir, made) = make_way(txn, ctx, path, dir, names, request.mode)?;
            Ok(MkdirResult { ino: dir.ino, made })
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
            let dir = make(txn, ctx, path, &parent, &name, request.mode)?;
            Ok(MkdirResult { ino: dir.ino, made: 1 })
        }
    }
}

impl Operation for Mkdir {
    const TAG: OpTag = OpTag::Mkdir;
    type Reply = MkdirResult;
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<MkdirResult, NsError> {
        mkdir(txn, ctx, self)
    }
}
