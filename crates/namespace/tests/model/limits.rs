//! The limits of a credential: as the namespace gets them, and the model's own rules about them.

use std::sync::atomic::{AtomicBool, Ordering};

use namespace::{PathLimits, PathOperation as Op};
use types::{ErrorCode, NsPath};

use super::{At, Model, Name, ROOT, Res, Who};

/// Each rule permits some operations on a path and below it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rules(pub Vec<(Vec<Op>, Vec<u8>)>);

/// A bug of limits that a test plants: they compare bytes and not names.
pub static BY_BYTES: AtomicBool = AtomicBool::new(false);

impl PathLimits for Rules {
    fn permit(&self, operation: Op, path: &NsPath) -> Result<(), String> {
        let covers = |prefix: &[u8]| match BY_BYTES.load(Ordering::Relaxed) {
            true => path.as_bytes().starts_with(prefix),
            false => path.is_at_or_below(&NsPath::parse(prefix).unwrap()),
        };
        match self.0.iter().any(|(operations, prefix)| operations.contains(&operation) && covers(prefix)) {
            true => Ok(()),
            false => Err(format!("no rule permits {operation:?} of {path}")),
        }
    }
}

impl Rules {
    fn grant(&self, operation: Op, path: &[Name]) -> bool {
        self.0
            .iter()
            .any(|(operations, prefix)| operations.contains(&operation) && path.starts_with(&split_path(prefix)))
    }
}

/// The names of a path.
pub fn split_path(path: &[u8]) -> Vec<Name> {
    path.split(|&b| b == b'/').filter(|name| !name.is_empty() && *name != b".").map(<[u8]>::to_vec).collect()
}

/// What makes a file, or replaces one that is not complete yet.
pub const MAKES: [Op; 2] = [Op::CreateFile, Op::ModifyFile];

impl Model {
    /// Whether the limits of `who` permit one of `wanted` on a path without links.
    pub fn allowed(&self, who: &Who, wanted: &[Op], path: &[Name]) -> Res<()> {
        let Some(limits) = &who.limits else { return Ok(()) };
        if path.iter().map(|name| name.len() + 1).sum::<usize>() > types::PATH_MAX {
            return Err(ErrorCode::NameTooLong);
        }
        match wanted.iter().any(|operation| limits.grant(*operation, path)) {
            true => Ok(()),
            false => Err(ErrorCode::Denied),
        }
    }

    /// The path of a directory.
    pub fn path_of_dir(&self, dir: u64) -> Vec<Name> {
        if dir == ROOT {
            return Vec::new();
        }
        let parent = self.parent(dir);
        let mut path = self.path_of_dir(parent);
        path.extend(self.entries(parent).iter().find(|(_, ino)| **ino == dir).map(|(name, _)| name.clone()));
        path
    }

    /// The path of a name in a directory. No name: of the directory itself.
    pub fn path_in(&self, dir: u64, name: &[u8]) -> Vec<Name> {
        let mut path = self.path_of_dir(dir);
        path.extend((!name.is_empty()).then(|| name.to_vec()));
        path
    }

    /// Whether the limits permit to go on from `dir` with `names`.
    pub fn may_go_on<'a>(&self, who: &Who, wanted: &[Op], dir: u64, names: impl Iterator<Item = &'a Name>) -> Res<()> {
        if who.limits.is_none() {
            return Ok(());
        }
        let names: Vec<Name> = names.cloned().collect();
        let until = names.iter().position(|name| name == b"..");
        let mut path = self.path_of_dir(dir);
        path.extend_from_slice(&names[..until.unwrap_or(names.len())]);
        match until {
            None => self.allowed(who, wanted, &path),
            Some(0) => Ok(()),
            Some(_) => self.allowed(who, &[Op::Stat], &path),
        }
    }

    /// Whether the limits permit one of `wanted` both on the requested path and where it leads.
    pub fn permits(&self, who: &Who, wanted: &[Op], asked: &[u8], place: &[Name]) -> Res<()> {
        let both = |operation: &Op| {
            let one = [*operation];
            self.allowed(who, &one, &split_path(asked)).and_then(|()| self.allowed(who, &one, place))
        };
        let mut results = wanted.iter().map(both);
        let first = results.next().unwrap();
        if first.is_ok() || results.any(|result| result.is_ok()) { Ok(()) } else { first }
    }

    pub fn permits_at(&self, who: &Who, wanted: &[Op], asked: &[u8], at: &At) -> Res<()> {
        if who.limits.is_none() {
            return Ok(());
        }
        self.permits(who, wanted, asked, &self.path_in(at.dir, &at.name))
    }

    /// Like `existing`, where the operation depends on what has the name.
    pub fn existing_by_kind(
        &self,
        who: &Who,
        path: &[u8],
        follow: bool,
        (of_file, of_dir): (Op, Op),
    ) -> Res<(At, u64)> {
        let at = self.at(who, path, follow, &[of_file, of_dir])?;
        let Some(ino) = at.there else { return Err(ErrorCode::NotFound) };
        let operation = if self.is_dir(ino) { of_dir } else { of_file };
        self.permits_at(who, &[operation], path, &at)?;
        Ok((at, ino))
    }

    /// What somebody changes who must have the right to change it, whatever it is.
    pub fn to_modify(&self, who: &Who, path: &[u8], follow: bool) -> Res<(At, u64)> {
        self.existing_by_kind(who, path, follow, (Op::ModifyFile, Op::ModifyDirectory))
    }

    /// Whether a missing directory of a path may be made. `behind` names follow it, and the path itself has the last `asked` of them.
    pub fn may_make_missing(
        &self,
        who: &Who,
        path: &[u8],
        (dir, name): (u64, &[u8]),
        (behind, asked): (usize, usize),
    ) -> Res<()> {
        let wanted = [Op::CreateDirectory];
        if name == b".." || who.limits.is_none() {
            return Ok(());
        }
        self.allowed(who, &wanted, &self.path_in(dir, name))?;
        if behind < asked {
            let names = split_path(path);
            self.allowed(who, &wanted, &names[..names.len() - behind])?;
        }
        Ok(())
    }

    /// Whether an upload may be continued, ended or forgotten.
    pub fn permits_upload(&self, who: &Who, wanted: &[Op], object: u64) -> Res<()> {
        if who.limits.is_none() {
            return Ok(());
        }
        let upload = &self.uploads[&object];
        let asked = &self.who[upload.who].1;
        if !self.nodes.contains_key(&upload.parent) {
            return self.permits(who, wanted, asked, &split_path(asked));
        }
        self.permits(who, wanted, asked, &self.path_in(upload.parent, &upload.name))
    }
}
