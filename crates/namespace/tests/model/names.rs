//! The model's directories, names and attributes.

use std::collections::BTreeMap;

use namespace::PathOperation as Op;
use types::ErrorCode;

use super::limits::split_path;
use super::{At, Kind, Model, ROOT, Res, Way, Who};

impl Model {
    pub fn mkdir(&mut self, who: &Who, path: &[u8], mode: u16, parents: bool) -> Res<(u64, u32)> {
        match self.way(who, path, parents, &[Op::CreateDirectory])? {
            Way::Missing(..) if !parents => Err(ErrorCode::NotFound),
            Way::Missing(mut dir, names, asked) => {
                let mut made = 0;
                let mut undo = self.clone();
                let count = names.len();
                for (number, name) in names.into_iter().enumerate() {
                    let limits = self.may_make_missing(who, path, (dir, &name), (count - number - 1, asked));
                    match limits.and_then(|()| self.make_dir(who, dir, name, mode)) {
                        Ok(new) => dir = new,
                        Err(error) => {
                            undo.next = self.next;
                            *self = undo;
                            return Err(error);
                        }
                    }
                    made += 1;
                }
                Ok((dir, made))
            }
            Way::At(At { dir, name, there: None }) => Ok((self.make_dir(who, dir, name, mode)?, 1)),
            Way::At(At { there: Some(ino), .. }) if parents && self.is_dir(ino) => Ok((ino, 0)),
            Way::At(_) => Err(ErrorCode::Exists),
        }
    }

    pub fn make_dir(&mut self, who: &Who, dir: u64, name: Vec<u8>, mode: u16) -> Res<u64> {
        if name == b".." {
            return Err(ErrorCode::NotFound);
        }
        self.may(who, dir, 2)?;
        self.may(who, dir, 1)?;
        self.room_for_one(self.charge_of_new(who, dir))?;
        let tree = self.tree(dir);
        let ino = self.new_node(who, dir, mode, Kind::Dir { entries: Default::default(), parent: dir, tree });
        self.entries_mut(dir).insert(name, ino);
        Ok(ino)
    }

    pub fn remove(&mut self, who: &Who, path: &[u8]) -> Res<(u64, Option<u64>)> {
        let (at, ino) = self.existing(who, path, false, Op::ModifyFile)?;
        if self.is_dir(ino) {
            return Err(ErrorCode::IsDirectory);
        }
        self.may_take_away(who, at.dir, ino)?;
        Ok((ino, self.unlink(at.dir, &at.name)))
    }

    pub fn unlink(&mut self, dir: u64, name: &[u8]) -> Option<u64> {
        let ino = self.entries_mut(dir).remove(name).unwrap();
        let now = self.now;
        self.node_mut(ino).ctime = now;
        self.maybe_drop(ino)
    }

    pub fn rmdir(&mut self, who: &Who, path: &[u8]) -> Res<u64> {
        if path == b"/" {
            return Err(ErrorCode::Invalid);
        }
        let (at, ino) = self.existing(who, path, false, Op::ModifyDirectory)?;
        if !self.is_dir(ino) {
            return Err(ErrorCode::NotDirectory);
        }
        self.may_take_away(who, at.dir, ino)?;
        if !self.entries(ino).is_empty() {
            return Err(ErrorCode::NotEmpty);
        }
        self.entries_mut(at.dir).remove(&at.name);
        self.nodes.remove(&ino);
        self.quotas.limits.retain(|(tree, _), _| *tree != ino);
        Ok(ino)
    }

    pub fn rename(&mut self, who: &Who, from: &[u8], to: &[u8], replace: bool) -> Res<(u64, Option<u64>)> {
        if from == b"/" || to == b"/" {
            return Err(ErrorCode::Invalid);
        }
        self.allowed(who, &[Op::RenameFile, Op::ModifyFile, Op::ModifyDirectory], &split_path(to))?;
        let (src, ino) = self.existing_by_kind(who, from, false, (Op::RenameFile, Op::ModifyDirectory))?;
        self.may_take_away(who, src.dir, ino)?;
        let moves_dir = self.is_dir(ino);
        let (free, taken) = match moves_dir {
            true => (Op::ModifyDirectory, Op::ModifyDirectory),
            false => (Op::RenameFile, Op::ModifyFile),
        };
        let dst = self.at(who, to, false, &[free, taken])?;
        if moves_dir {
            let mut up = dst.dir;
            loop {
                if up == ino {
                    return Err(ErrorCode::Invalid);
                }
                if up == ROOT {
                    break;
                }
                up = self.parent(up);
            }
        }
        self.may(who, dst.dir, 2)?;
        if moves_dir && src.dir != dst.dir {
            self.may(who, ino, 2)?;
        }
        if (src.dir, &src.name) == (dst.dir, &dst.name) {
            return Ok((ino, None));
        }
        let same_tree = self.tree(src.dir) == self.tree(dst.dir);
        if !same_tree && (moves_dir || self.names_of(ino).len() > 1) {
            return Err(ErrorCode::CrossTree);
        }
        let before = self.clone();
        let mut replaced = None;
        if dst.there.is_none() {
            self.permits_at(who, &[free], to, &dst)?;
        }
        if let Some(there) = dst.there {
            if !replace {
                return Err(ErrorCode::Exists);
            }
            if there == ino {
                return Ok((ino, None));
            }
            self.permits_at(who, &[taken], to, &dst)?;
            match (self.is_dir(there), moves_dir) {
                (true, false) => return Err(ErrorCode::IsDirectory),
                (false, true) => return Err(ErrorCode::NotDirectory),
                _ => {}
            }
            self.may_take_away(who, dst.dir, there)?;
            if moves_dir {
                if !self.entries(there).is_empty() {
                    return Err(ErrorCode::NotEmpty);
                }
                self.entries_mut(dst.dir).remove(&dst.name);
                self.nodes.remove(&there);
                self.quotas.limits.retain(|(tree, _), _| *tree != there);
            } else {
                self.unlink(dst.dir, &dst.name);
            }
            replaced = Some(there);
        }
        if !same_tree {
            let node = self.node(ino);
            let charge = |dir| (self.tree(dir), node.owner, node.group);
            let bytes = self.file(ino).map_or(0, |file| file.len);
            let charges = (charge(src.dir), charge(dst.dir));
            let may = self.may_move_open(ino, charges.0, charges.1);
            if let Err(full) = may.and_then(|()| self.room_for_move(charges.0, charges.1, bytes)) {
                let next = self.next;
                *self = before;
                self.next = next;
                return Err(full);
            }
        }
        self.entries_mut(src.dir).remove(&src.name);
        self.entries_mut(dst.dir).insert(dst.name, ino);
        let now = self.now;
        let node = self.node_mut(ino);
        node.ctime = node.ctime.max(now);
        if let Kind::Dir { parent, .. } = &mut node.kind {
            *parent = dst.dir;
        }
        Ok((ino, replaced))
    }

    pub fn link(&mut self, who: &Who, existing: &[u8], new: &[u8], links_max: usize) -> Res<u64> {
        self.allowed(who, &[Op::CreateFile], &split_path(new))?;
        let (src, ino) = self.existing(who, existing, false, Op::Link)?;
        if self.is_dir(ino) {
            return Err(ErrorCode::IsDirectory);
        }
        let dst = self.at(who, new, false, &[Op::CreateFile])?;
        if dst.there.is_some() {
            return Err(ErrorCode::Exists);
        }
        self.may(who, dst.dir, 2)?;
        if self.tree(src.dir) != self.tree(dst.dir) {
            return Err(ErrorCode::CrossTree);
        }
        if self.names_of(ino).len() >= links_max {
            return Err(ErrorCode::TooMany);
        }
        self.entries_mut(dst.dir).insert(dst.name, ino);
        let now = self.now;
        self.node_mut(ino).ctime = now;
        Ok(ino)
    }

    pub fn symlink(&mut self, who: &Who, path: &[u8], target: &[u8]) -> Res<u64> {
        if target.is_empty() || target.contains(&0) {
            return Err(ErrorCode::Invalid);
        }
        let at = self.at(who, path, false, &[Op::CreateFile])?;
        if at.there.is_some() {
            return Err(ErrorCode::Exists);
        }
        self.may(who, at.dir, 2)?;
        self.room_for_one(self.charge_of_new(who, at.dir))?;
        let ino = self.new_node(who, at.dir, 0o777, Kind::Link(target.to_vec()));
        self.entries_mut(at.dir).insert(at.name, ino);
        Ok(ino)
    }

    pub fn chmod(&mut self, who: &Who, path: &[u8], mode: u16) -> Res<()> {
        let (_, ino) = self.to_modify(who, path, true)?;
        self.owns(who, ino)?;
        let now = self.now;
        let node = self.node_mut(ino);
        node.mode = mode;
        node.keep_setgid_for(who);
        node.ctime = now;
        Ok(())
    }

    pub fn chown(&mut self, who: &Who, path: &[u8], owner: Option<u32>, group: Option<u32>) -> Res<()> {
        let (_, ino) = self.to_modify(who, path, true)?;
        self.owns(who, ino)?;
        let now = self.now;
        let admin = who.id == 0;
        let node = self.node(ino);
        if owner.is_some_and(|owner| owner != node.owner) && !admin {
            return Err(ErrorCode::Denied);
        }
        if group.is_some_and(|group| group != node.group && !who.groups.contains(&group)) && !admin {
            return Err(ErrorCode::Denied);
        }
        let tree = match &node.kind {
            Kind::Dir { tree, .. } => *tree,
            _ => self.tree(self.names_of(ino)[0].0),
        };
        let to = (tree, owner.unwrap_or(node.owner), group.unwrap_or(node.group));
        let bytes = self.file(ino).map_or(0, |file| file.len);
        self.may_move_open(ino, (tree, node.owner, node.group), to)?;
        self.room_for_move((tree, node.owner, node.group), to, bytes)?;
        let node = self.node_mut(ino);
        node.owner = owner.unwrap_or(node.owner);
        node.group = group.unwrap_or(node.group);
        if (owner.is_some() || group.is_some()) && !matches!(node.kind, Kind::Dir { .. }) {
            node.drop_set_id();
            node.keep_setgid_for(who);
        }
        node.ctime = now;
        Ok(())
    }

    pub fn utimes(&mut self, who: &Who, path: &[u8], mtime: Option<i64>, atime: Option<i64>) -> Res<()> {
        let (_, ino) = self.to_modify(who, path, true)?;
        self.owns(who, ino)?;
        let now = self.now;
        let node = self.node_mut(ino);
        node.mtime = mtime.unwrap_or(node.mtime);
        node.atime = atime.or(node.atime);
        node.ctime = now;
        Ok(())
    }

    pub fn set_xattr(&mut self, who: &Who, path: &[u8], name: &[u8], value: &[u8], mode: u8, max: usize) -> Res<()> {
        let (_, ino) = self.to_modify(who, path, true)?;
        self.may(who, ino, 2)?;
        let now = self.now;
        let node = self.node_mut(ino);
        put_xattr(&mut node.xattrs, name, value, mode, max)?;
        node.ctime = now;
        Ok(())
    }

    pub fn remove_xattr(&mut self, who: &Who, path: &[u8], name: &[u8]) -> Res<()> {
        let (_, ino) = self.to_modify(who, path, true)?;
        self.may(who, ino, 2)?;
        let now = self.now;
        let node = self.node_mut(ino);
        node.xattrs.remove(name).ok_or(ErrorCode::NotFound)?;
        node.ctime = now;
        Ok(())
    }

    pub fn make_tree(&mut self, who: &Who, path: &[u8]) -> Res<()> {
        if path == b"/" {
            return Err(ErrorCode::Invalid);
        }
        if who.id != 0 {
            return Err(ErrorCode::Denied);
        }
        let (at, ino) = self.existing(who, path, false, Op::ModifyDirectory)?;
        if !self.is_dir(ino) {
            return Err(ErrorCode::NotDirectory);
        }
        if !self.entries(ino).is_empty() {
            return Err(ErrorCode::NotEmpty);
        }
        if self.tree(at.dir) != self.tree(ino) {
            return Err(ErrorCode::Exists);
        }
        let now = self.now;
        let node = self.node_mut(ino);
        if let Kind::Dir { tree, .. } = &mut node.kind {
            *tree = ino;
        }
        node.ctime = now;
        Ok(())
    }

    pub fn set_policy(&mut self, who: &Who, path: &[u8], policy: Option<&str>) -> Res<()> {
        if who.id != 0 {
            return Err(ErrorCode::Denied);
        }
        let (_, ino) = self.existing(who, path, true, Op::ModifyDirectory)?;
        if !self.is_dir(ino) {
            return Err(ErrorCode::NotDirectory);
        }
        let node = self.node_mut(ino);
        if policy.is_none() && node.policy.is_none() {
            return Err(ErrorCode::NotFound);
        }
        node.policy = policy.map(str::to_owned);
        Ok(())
    }

    /// The policy that applies in a directory, and the directory on which it was set.
    pub fn policy_of(&self, dir: u64) -> Option<(&str, u64)> {
        match &self.node(dir).policy {
            Some(policy) => Some((policy, dir)),
            None if dir == ROOT => None,
            None => self.policy_of(self.parent(dir)),
        }
    }

    pub fn hold(&mut self, session: u64, ino: u64) -> Res<()> {
        if !self.nodes.contains_key(&ino) {
            return Err(ErrorCode::NotFound);
        }
        if self.is_dir(ino) {
            return Err(ErrorCode::IsDirectory);
        }
        self.node_mut(ino).holders.insert(session);
        Ok(())
    }

    pub fn release_hold(&mut self, session: u64, ino: u64) -> Res<Option<u64>> {
        let held = self.nodes.get_mut(&ino).is_some_and(|node| node.holders.remove(&session));
        if !held {
            return Err(ErrorCode::NotFound);
        }
        Ok(self.maybe_drop(ino))
    }
}

/// Sets an attribute of a file. `mode`: 0 in any case, 1 only a new one, 2 only an existing one.
pub fn put_xattr(all: &mut BTreeMap<Vec<u8>, Vec<u8>>, name: &[u8], value: &[u8], mode: u8, max: usize) -> Res<()> {
    let there = all.contains_key(name);
    match (mode, there) {
        (1, true) => return Err(ErrorCode::Exists),
        (2, false) => return Err(ErrorCode::NotFound),
        _ => {}
    }
    if !there && all.len() >= max {
        return Err(ErrorCode::TooMany);
    }
    all.insert(name.to_vec(), value.to_vec());
    Ok(())
}
