//! Walks a path: one get for each name, with `x` checked in each directory. Follows symbolic links. Checks the limits of the credential before the first
//! get, and again for the new path after each link.

use kv::Read;
use types::{Ino, NAME_MAX, NameError, NsPath, PATH_MAX};

use crate::ahead::{Ahead, tell};
use crate::tree::node::{Dentry, Dir, get_dentry, get_dir, get_directory, get_record};
use crate::tree::path_limits::ByKind;
use crate::tree::permission::permit_at;
use crate::tree::trail::{Place, Trail};
use crate::{AccessKind, Actor, Inode, Kind, NsError, PathOperation};

/// The most symbolic links on one path.
const LINKS_MAX: u32 = 40;

/// The end of a path.
#[derive(Debug)]
pub(crate) struct Resolved {
    /// The directory that holds the last name. For the root, the root itself.
    pub parent: Dir,
    /// This very operation has made it.
    pub parent_is_new: bool,
    /// The last name after following links; empty for the root.
    pub name: Vec<u8>,
    /// The entry of that name.
    pub entry: Option<Dentry>,
    /// The path ends in a slash, or in a link whose target does, so only a directory can have this name.
    pub only_directory: bool,
    /// Where the path leads, for the limits of the actor.
    pub place: Place,
}

impl Resolved {
    /// Refuses an entry that the end of the path excludes.
    pub(crate) fn checked(self, path: &NsPath) -> Result<Self, NsError> {
        match self.entry {
            Some(Dentry::Record(_) | Dentry::Pointer(_)) if self.only_directory => {
                Err(NsError::NotDirectory(shown(path)))
            }
            _ => Ok(self),
        }
    }

    /// Refuses a free name that the end of the path keeps for a directory.
    pub(crate) fn for_no_directory(self, path: &NsPath) -> Result<Self, NsError> {
        if self.entry.is_none() && self.only_directory {
            return Err(NsError::OnlyDirectory(shown(path)));
        }
        Ok(self)
    }

    /// Refuses a free name.
    fn existing(self, path: &NsPath) -> Result<(Dir, Vec<u8>, Dentry), NsError> {
        match self.entry {
            Some(entry) => Ok((self.parent, self.name, entry)),
            None => Err(NsError::NotFound(path.to_string(), "file or directory")),
        }
    }
}

/// What to do at the end of the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Last {
    /// Follow a symbolic link.
    Follow,
    /// Take a symbolic link for what the path names.
    Keep,
    /// Do not look whether the name exists, unless the path says that it is a directory: the result has no entry.
    Leave,
}

/// A walk that ended early: this name is missing in this directory, and `rest` follows.
pub(crate) struct MissingName {
    pub dir: Dir,
    pub name: Vec<u8>,
    pub rest: Vec<Vec<u8>>,
    /// As in [`Resolved`].
    pub only_directory: bool,
    /// If the actor has limits: where it is.
    pub limited: Option<MissingAt>,
}

/// Where a missing name is, for an actor with limits.
pub(crate) struct MissingAt {
    /// The path of the directory that lacks it.
    pub trail: Trail,
    /// How many of the names from there on the path itself has. The others are those of links.
    pub asked: usize,
}

pub(crate) enum Walk {
    Resolved(Resolved),
    /// A directory on the way is missing.
    MissingName(MissingName),
}

pub(crate) fn root(read: &dyn Read) -> Result<Dir, NsError> {
    get_dir(read, Ino::ROOT)
}

fn shown(path: &NsPath) -> String {
    path.to_string()
}

/// Walks `path` for `actor`, who will do one of `wanted` where it leads. Does not yet refuse a file where the path names a directory.
///
/// Limits of the actor that permit none of `wanted` deny the walk: on the path as given, and on each path that results from following a link.
pub(crate) fn walk(
    read: &dyn Read,
    actor: &Actor,
    path: &NsPath,
    last: Last,
    wanted: &[PathOperation],
) -> Result<Walk, NsError> {
    actor.permit_path(wanted, path, path)?;
    tell(read, &|| Ahead::walk(path).list())?;
    let mut dir = root(read)?;
    // Kept for links that lead there.
    let mut left_root = None;
    // Most paths have no links, so the walk borrows the names from the path. A link puts owned names in front of the rest.
    let mut from_path = path.components().peekable();
    let mut from_links: Vec<Vec<u8>> = Vec::new(); // reversed: the next name is at the end
    let mut taken = 0; // names from the path
    // Where `dir` is, from the first link on, if the actor has limits. Before that, the path itself says it.
    let mut trail: Option<Trail> = None;
    let mut links = 0;
    let mut owned;
    let mut only_directory = path.must_be_directory();
    // Behind a `.`, the last name is one on the way.
    let last = if path.ends_in_dot() { Last::Follow } else { last };
    loop {
        let (name, is_asked): (&[u8], bool) = match from_links.pop() {
            Some(name) => {
                owned = name;
                (&owned, false)
            }
            None => match from_path.next() {
                Some(name) => {
                    taken += 1;
                    (name, true)
                }
                // The path is the root, or ends in a link to `/` or `..`, so it names a directory itself.
                None => return Ok(Walk::Resolved(itself(read, dir, place(trail, b"")?)?)),
            },
        };
        let is_last = from_links.is_empty() && from_path.peek().is_none();
        if name == b".." {
            // Only the target of a link can contain `..`.
            pass(actor, &dir, path, (trail.as_ref(), taken))?;
            let (_, record) = get_directory(read, dir.ino)?;
            dir = get_dir(read, record.parent)?;
            if let Some(trail) = &mut trail {
                trail.leave();
                trail.permit_ahead(actor, path, wanted, names_ahead(&from_links, path, taken))?;
            }
            continue;
        }
        pass(actor, &dir, path, (trail.as_ref(), taken))?;
        if is_last && last == Last::Leave && !only_directory {
            let (place, name) = (place(trail, name)?, name.to_vec());
            let (parent, parent_is_new, entry) = (dir, false, None);
            return Ok(Walk::Resolved(Resolved { parent, parent_is_new, name, entry, only_directory, place }));
        }
        let entry = match get_dentry(read, dir.ino, name)? {
            Some(Dentry::Directory(next)) if !is_last => {
                let before = std::mem::replace(&mut dir, next);
                if before.ino == Ino::ROOT {
                    left_root = Some(before);
                }
                if let Some(trail) = &mut trail {
                    trail.enter(name);
                }
                continue;
            }
            entry => entry,
        };
        let link = match &entry {
            None if !is_last || path.ends_in_dot() => {
                let limited = actor.limits.is_some().then(|| missing_at(path, trail, (taken, is_asked)));
                let name = name.to_vec();
                let mut rest: Vec<Vec<u8>> = from_links.into_iter().rev().collect();
                rest.extend(from_path.map(<[u8]>::to_vec));
                return Ok(Walk::MissingName(MissingName { dir, name, rest, only_directory, limited }));
            }
            None | Some(Dentry::Directory(_)) => None,
            Some(_) if is_last && last != Last::Follow => None,
            Some(Dentry::Record(Inode { kind: Kind::Symlink(target), .. })) => Some(target.clone()),
            Some(Dentry::Record(_)) => None,
            Some(Dentry::Pointer(ino)) => match get_record(read, *ino)?.kind {
                Kind::Symlink(target) => Some(target),
                _ => None,
            },
        };
        let Some(target) = link else {
            let is_file = matches!(entry, Some(Dentry::Record(_) | Dentry::Pointer(_)));
            if is_last && !(is_file && path.ends_in_dot()) {
                let place = place(trail, name)?;
                let (parent, parent_is_new, name) = (dir, false, name.to_vec());
                return Ok(Walk::Resolved(Resolved { parent, parent_is_new, name, entry, only_directory, place }));
            }
            return Err(NsError::NotDirectory(shown(path)));
        };
        links += 1;
        if links > LINKS_MAX {
            return Err(NsError::Loop(shown(path)));
        }
        only_directory |= is_last && (target.ends_with(b"/") || target.ends_with(b"/."));
        push_target(&mut from_links, &target)?;
        let from_root = target.first() == Some(&b'/');
        if actor.limits.is_some() || actor.witness.is_some() {
            // The first link is a name of the path.
            let trail = trail.get_or_insert_with(|| Trail::of(path.components().take(taken.saturating_sub(1))));
            if from_root {
                trail.restart();
            }
            trail.permit_ahead(actor, path, wanted, names_ahead(&from_links, path, taken))?;
        }
        if from_root && dir.ino != Ino::ROOT {
            dir = left_root.take().map_or_else(|| root(read), Ok)?;
        }
    }
}

/// Denies the walk unless the actor may pass the directory, which is behind so many names of the path, or at the trail.
fn pass(actor: &Actor, dir: &Dir, path: &NsPath, (trail, taken): (Option<&Trail>, usize)) -> Result<(), NsError> {
    let place = || {
        let before = || Trail::of(path.components().take(taken.saturating_sub(1)));
        trail.cloned().unwrap_or_else(before).path().map_or_else(|_| shown(path), |at| at.to_string())
    };
    permit_at(actor, &dir.access, AccessKind::Pass, &|| shown(path), &place)
}

/// The names that a walk has before it.
fn names_ahead<'a>(from_links: &'a [Vec<u8>], path: &'a NsPath, taken: usize) -> impl Iterator<Item = &'a [u8]> {
    from_links.iter().rev().map(Vec::as_slice).chain(path.components().skip(taken))
}

fn place(trail: Option<Trail>, name: &[u8]) -> Result<Place, NameError> {
    trail.map_or(Ok(Place::default()), |trail| trail.place_of(name))
}

/// Where the walk misses a name. It has taken so many names from the path, perhaps with this one.
fn missing_at(path: &NsPath, trail: Option<Trail>, (taken, is_asked): (usize, bool)) -> MissingAt {
    let behind = path.components().count().saturating_sub(taken);
    // Without links, the missing name is the last one taken.
    let trail = trail.unwrap_or_else(|| Trail::of(path.components().take(taken.saturating_sub(1))));
    MissingAt { trail, asked: behind + usize::from(is_asked) }
}

/// For a path that ended in a directory and not in a name: the entry of that directory in its parent.
fn itself(read: &dyn Read, dir: Dir, place: Place) -> Result<Resolved, NsError> {
    if dir.ino == Ino::ROOT {
        let entry = Some(Dentry::Directory(dir.clone()));
        let (parent, name) = (dir, Vec::new());
        return Ok(Resolved { parent, parent_is_new: false, name, entry, only_directory: true, place });
    }
    let (_, record) = get_directory(read, dir.ino)?;
    let parent = get_dir(read, record.parent)?;
    let (name, entry) = (record.name, Some(Dentry::Directory(dir)));
    Ok(Resolved { parent, parent_is_new: false, name, entry, only_directory: true, place })
}

fn push_target(names: &mut Vec<Vec<u8>>, target: &[u8]) -> Result<(), NsError> {
    let waiting: usize = names.iter().map(|name| name.len() + 1).sum();
    if waiting + target.len() > 2 * PATH_MAX {
        return Err(NameError::PathTooLong(waiting + target.len()).into());
    }
    for name in target.split(|&b| b == b'/').rev().filter(|name| !name.is_empty() && *name != b".") {
        if name.len() > NAME_MAX {
            return Err(NameError::NameTooLong(name.len()).into());
        }
        names.push(name.to_vec());
    }
    Ok(())
}

/// Walks the path. A missing directory on the way counts as not found, and a file is refused where the path names a directory. Who creates what is no
/// directory calls [`Resolved::for_no_directory`].
pub(crate) fn resolve(
    read: &dyn Read,
    actor: &Actor,
    path: &NsPath,
    last: Last,
    wanted: &[PathOperation],
) -> Result<Resolved, NsError> {
    resolve_unchecked(read, actor, path, last, wanted)?.checked(path)
}

/// Like [`resolve`], but leaves it to the caller to call [`Resolved::checked`].
pub(crate) fn resolve_unchecked(
    read: &dyn Read,
    actor: &Actor,
    path: &NsPath,
    last: Last,
    wanted: &[PathOperation],
) -> Result<Resolved, NsError> {
    match walk(read, actor, path, last, wanted)? {
        Walk::Resolved(resolved) => Ok(resolved),
        Walk::MissingName(missing) => {
            Err(NsError::NotFound(format!("{path}: {}", missing.name.escape_ascii()), "directory on the way"))
        }
    }
}

/// Resolves a path that must exist.
pub(crate) fn resolve_existing(
    read: &dyn Read,
    actor: &Actor,
    path: &NsPath,
    last: Last,
    wanted: PathOperation,
) -> Result<(Dir, Vec<u8>, Dentry), NsError> {
    resolve(read, actor, path, last, &[wanted])?.existing(path)
}

/// Like [`resolve_existing`], for what is one operation on a file or link, and another one on a directory.
pub(crate) fn resolve_by_kind(
    read: &dyn Read,
    actor: &Actor,
    path: &NsPath,
    last: Last,
    wanted: ByKind,
) -> Result<(Dir, Vec<u8>, Dentry), NsError> {
    let resolved = resolve(read, actor, path, last, &wanted.either())?;
    if let Some(entry) = &resolved.entry {
        let operation = wanted.of(matches!(entry, Dentry::Directory(_)));
        resolved.place.permit(actor, &[operation], path)?;
    }
    resolved.existing(path)
}
