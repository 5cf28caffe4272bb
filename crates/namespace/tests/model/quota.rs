//! The model's quotas: usage is counted anew each time, so it cannot drift.

use std::collections::BTreeMap;

use namespace::{self as ns, PathOperation as Op};
use rand::Rng;
use types::{ErrorCode, NsPath, PrincipalId};

use super::harness::{Checked, World, admin, same};
use super::life::Handle;
use super::{Doing, Kind, Model, ROOT, Res, State, Who};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Of {
    Tree,
    User(u32),
    Group(u32),
}

/// Tree, owner, group.
pub type Charge = (u64, u32, u32);

/// What an open write or an upload has reserved.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub charge: Charge,
    pub bytes: Option<u64>,
    pub files: u64,
}

/// Hard limits of bytes and files.
pub type Limits = (Option<u64>, Option<u64>);

#[derive(Clone, Default, Debug)]
pub struct Quotas {
    pub limits: BTreeMap<(u64, Of), Limits>,
    /// By object. Those of objects without an open write or upload count no more.
    pub held: BTreeMap<u64, Held>,
}

/// What an open wants.
#[derive(Clone, Copy, Default)]
pub struct Wants {
    pub base: u64,
    pub announced: Option<u64>,
    pub kept: u64,
    pub files_later: u64,
    pub files_now: u64,
    pub is_new: bool,
}

/// Least and most of a step, in the test's configuration.
pub const STEP: (u64, u64) = (16, 64);

fn parts((_, owner, group): Charge) -> [Of; 3] {
    [Of::Tree, Of::User(owner), Of::Group(group)]
}

fn step(room: u64) -> u64 {
    (room / 64).clamp(STEP.0, STEP.1).min(room)
}

impl Model {
    fn is_tree(&self, tree: u64) -> bool {
        matches!(self.nodes.get(&tree), Some(node) if matches!(node.kind, Kind::Dir { tree: own, .. } if own == tree || tree == ROOT))
    }

    /// Used bytes and files, reserved bytes and files.
    pub fn usage(&self) -> BTreeMap<(u64, Of), [u64; 4]> {
        let mut usage: BTreeMap<(u64, Of), [u64; 4]> = BTreeMap::new();
        let mut add = |charge: Charge, amount: [u64; 4]| {
            for of in parts(charge) {
                let sum = usage.entry((charge.0, of)).or_default();
                sum.iter_mut().zip(amount).for_each(|(sum, more)| *sum += more);
            }
        };
        let mut seen = std::collections::BTreeSet::new();
        for (ino, node) in &self.nodes {
            let Kind::Dir { entries, tree, .. } = &node.kind else { continue };
            add((if *ino == ROOT { ROOT } else { *tree }, node.owner, node.group), [0, 1, 0, 0]);
            for child in entries.values() {
                if !self.is_dir(*child) && seen.insert(*child) {
                    let file = self.node(*child);
                    let bytes = self.file(*child).map_or(0, |file| file.len);
                    add((*tree, file.owner, file.group), [bytes, 1, 0, 0]);
                }
            }
        }
        for (object, held) in &self.quotas.held {
            let counts = self.writers.contains_key(object) || self.uploads.contains_key(object);
            if counts && self.is_tree(held.charge.0) {
                add(held.charge, [0, 0, held.bytes.unwrap_or(0), held.files]);
            }
        }
        usage.retain(|_, amount| *amount != [0; 4]);
        usage
    }

    /// How many bytes and files may still be added.
    fn room(&self, tree: u64, parts: &[Of]) -> Limits {
        let usage = self.usage();
        let (mut bytes, mut files): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
        for of in parts {
            let [used, used_files, held, held_files] = usage.get(&(tree, *of)).copied().unwrap_or_default();
            let (hard, hard_files) = self.quotas.limits.get(&(tree, *of)).copied().unwrap_or_default();
            bytes.extend(hard.map(|hard| hard.saturating_sub(used + held)));
            files.extend(hard_files.map(|hard| hard.saturating_sub(used_files + held_files)));
        }
        (bytes.into_iter().min(), files.into_iter().min())
    }

    /// Whom a new inode of `who` in this directory counts for.
    pub fn charge_of_new(&self, who: &Who, dir: u64) -> Charge {
        let parent = self.node(dir);
        let group = if parent.mode & 0o2000 != 0 { parent.group } else { who.groups[0] };
        (self.tree(dir), who.id, group)
    }

    pub fn room_for_one(&self, charge: Charge) -> Res<()> {
        if self.room(charge.0, &parts(charge)).1 == Some(0) { Err(ErrorCode::Quota) } else { Ok(()) }
    }

    /// Something that counts for `from` is to count for `to`.
    pub fn room_for_move(&self, from: Charge, to: Charge, bytes: u64) -> Res<()> {
        for (old, new) in parts(from).into_iter().zip(parts(to)) {
            let (room, files) = self.room(to.0, &[new]);
            let is_full = files == Some(0) || bytes > 0 && room.is_some_and(|room| room < bytes);
            if (from.0, old) != (to.0, new) && is_full {
                return Err(ErrorCode::Quota);
            }
        }
        Ok(())
    }

    /// Reserves for an open. Call it before the open changes anything that counts.
    pub fn reserve(&mut self, object: u64, charge: Charge, wants: Wants) -> Res<()> {
        let before = self.quotas.held.get(&object).copied();
        let charge = before.map_or(charge, |before| before.charge);
        let (room, files) = self.room(charge.0, &parts(charge));
        if files == Some(0) && wants.files_later + wants.files_now > 0 && before.is_none() {
            return Err(ErrorCode::Quota);
        }
        let bytes = match room {
            None => None,
            Some(room) => {
                let owed = wants.kept.saturating_sub(before.and_then(|before| before.bytes).unwrap_or(0));
                let more = match wants.announced {
                    Some(len) => len.saturating_sub(wants.base + wants.kept),
                    None => step(room.saturating_sub(owed)),
                };
                if owed + more > room || wants.is_new && room == 0 {
                    return Err(ErrorCode::Quota);
                }
                Some(wants.kept + more)
            }
        };
        self.quotas.held.remove(&object);
        if before.is_some() || bytes.is_some() || wants.files_later > 0 && files.is_some() {
            self.quotas.held.insert(object, Held { charge, bytes, files: wants.files_later });
        }
        Ok(())
    }

    fn base(&self, object: u64) -> u64 {
        let writer = &self.writers[&object];
        match writer.doing {
            Doing::Upload => 0,
            _ => self.file(writer.ino).filter(|file| file.object == object).map_or(0, |file| file.len),
        }
    }

    pub fn may_reach(&self, object: u64) -> Option<u64> {
        let bytes = self.quotas.held.get(&object)?.bytes?;
        Some(self.base(object) + bytes)
    }

    fn grow(&mut self, handle: &Handle, len: u64) -> Res<Option<u64>> {
        self.current(handle)?;
        let object = handle.object;
        let held = self.quotas.held.get(&object).copied();
        let Some(charge) = held.map(|held| held.charge).or_else(|| self.charge_of_writer(object)) else {
            return Ok(None);
        };
        let reached = match self.may_reach(object) {
            Some(reached) => reached,
            // Nothing limited it when it was opened.
            None if self.room(charge.0, &parts(charge)).0.is_none() => return Ok(None),
            None => self.base(object),
        };
        if len <= reached {
            return Ok(Some(reached));
        }
        let more = match self.room(charge.0, &parts(charge)).0 {
            Some(room) if room < len - reached => return Err(ErrorCode::Quota),
            Some(room) => (len - reached).max(step(room)),
            None => (len - reached).max(STEP.1),
        };
        let held = self.quotas.held.entry(object).or_insert(Held { charge, bytes: None, files: 0 });
        held.bytes = Some(held.bytes.unwrap_or(0) + more);
        Ok(Some(reached + more))
    }

    /// Whom an open write counts for that has reserved nothing.
    fn charge_of_writer(&self, object: u64) -> Option<Charge> {
        let writer = &self.writers[&object];
        if writer.doing == Doing::Upload {
            let upload = &self.uploads[&object];
            let has_place = self.nodes.contains_key(&upload.parent);
            return has_place.then(|| (self.tree(upload.parent), upload.owner, upload.group));
        }
        let is_its = self.file(writer.ino).is_some_and(|file| file.object == object);
        let (dir, _) = self.names_of(writer.ino).first().filter(|_| is_its)?.clone();
        let node = self.node(writer.ino);
        Some((self.tree(dir), node.owner, node.group))
    }

    /// An upload has reserved for whom its file counted at the open.
    pub fn room_for_replacement(&self, object: u64, old: Option<(u64, u64)>, len: u64) -> Res<()> {
        let upload = &self.uploads[&object];
        let held = self.quotas.held.get(&object).map(|held| held.charge);
        let from = held.unwrap_or((self.tree(upload.parent), upload.owner, upload.group));
        let Some((ino, old_len)) = old else {
            return match self.room(from.0, &parts(from)).1 {
                Some(0) => Err(ErrorCode::Quota),
                _ => Ok(()),
            };
        };
        let (node, more) = (self.node(ino), len.saturating_sub(old_len));
        let to = (self.tree(self.names_of(ino)[0].0), node.owner, node.group);
        for (then, now) in parts(from).into_iter().zip(parts(to)) {
            let is_other = (from.0, then) != (to.0, now);
            if is_other && more > 0 && self.room(to.0, &[now]).0.is_some_and(|room| room < more) {
                return Err(ErrorCode::Quota);
            }
        }
        Ok(())
    }

    /// An upload that ends without its file keeps only what is there of it.
    pub fn keeps(&mut self, object: u64, kept: u64) {
        let upload = &self.uploads[&object];
        let mut charge = self.quotas.held.get(&object).map(|held| held.charge);
        if charge.is_none() && self.nodes.contains_key(&upload.parent) {
            charge = Some((self.tree(upload.parent), upload.owner, upload.group));
        }
        let files = u64::from(upload.replaces.is_none());
        if let Some(charge) = charge {
            self.quotas.held.insert(object, Held { charge, bytes: Some(kept), files });
        }
    }

    /// A file that is being written stays with those for whom it has reserved, and goes to none that is limited.
    pub fn may_move_open(&self, ino: u64, from: Charge, to: Charge) -> Res<()> {
        let Some(file) = self.file(ino).filter(|file| matches!(file.state, State::Open(_) | State::Updating(_))) else {
            return Ok(());
        };
        let mut others = parts(from).into_iter().zip(parts(to)).filter(|(old, new)| (from.0, *old) != (to.0, *new));
        let no_limits = (None, None);
        let is_limited =
            others.any(|(_, new)| *self.quotas.limits.get(&(to.0, new)).unwrap_or(&no_limits) != no_limits);
        let reserves = self.quotas.held.contains_key(&file.object);
        if from != to && (is_limited || reserves) { Err(ErrorCode::Busy) } else { Ok(()) }
    }

    fn set_quota(
        &mut self,
        who: &Who,
        path: &[u8],
        of: Of,
        edit: (Option<Option<u64>>, Option<Option<u64>>),
    ) -> Res<()> {
        if who.id != 0 {
            return Err(ErrorCode::Denied);
        }
        let (at, ino) = self.existing(who, path, true, Op::ModifyDirectory)?;
        if !self.is_dir(ino) {
            return Err(ErrorCode::NotDirectory);
        }
        if ino != ROOT && self.tree(at.dir) == self.tree(ino) {
            return Err(ErrorCode::Invalid);
        }
        let limits = self.quotas.limits.entry((self.tree(ino), of)).or_default();
        *limits = (edit.0.unwrap_or(limits.0), edit.1.unwrap_or(limits.1));
        Ok(())
    }

    /// The usage and limits as a view shows them, by the path of the tree.
    pub fn quotas_by_path(&self, paths: &BTreeMap<u64, Vec<u8>>) -> BTreeMap<(Vec<u8>, Of), ([u64; 4], Limits)> {
        let mut all: BTreeMap<_, ([u64; 4], Limits)> = BTreeMap::new();
        for (at, amount) in self.usage() {
            all.entry(at).or_default().0 = amount;
        }
        for (at, limits) in &self.quotas.limits {
            if self.is_tree(at.0) && *limits != (None, None) {
                all.entry(*at).or_default().1 = *limits;
            }
        }
        all.into_iter().map(|((tree, of), quota)| ((paths[&tree].clone(), of), quota)).collect()
    }
}

/// The same of the real namespace.
pub fn real_quotas(read: &dyn kv::Read, page: usize) -> BTreeMap<(Vec<u8>, Of), ([u64; 4], Limits)> {
    let (mut all, mut after) = (BTreeMap::new(), None);
    loop {
        let found = ns::quotas(read, None, after, page).unwrap();
        for one in &found {
            let of = match one.of {
                ns::QuotaOf::Tree => Of::Tree,
                ns::QuotaOf::User(id) => Of::User(id.0),
                ns::QuotaOf::Group(id) => Of::Group(id.0),
            };
            let path = ns::path_of(read, types::Ino(one.tree.0)).unwrap_or_else(|_| b"gone".to_vec());
            let amount = [one.used.bytes, one.used.files, one.reserved.bytes, one.reserved.files];
            all.insert((path, of), (amount, (one.bytes.hard, one.files.hard)));
        }
        match found.last() {
            Some(last) if found.len() == page => after = Some((last.tree, last.of)),
            _ => return all,
        }
    }
}

impl World {
    /// Sets a quota, or lets an open write grow.
    pub fn change_quotas(&mut self) -> Checked {
        if self.rng.random_ratio(1, 2) {
            let Some(both) = self.any_handle() else { return Ok(()) };
            let len = self.rng.random_range(0..400);
            self.say(format!("grow {both:?} to {len}"));
            let real = self.change(&admin(), ns::Reserve { writer: both.token, len })?;
            let model = self.model.grow(&both.handle, len);
            if let Some((real, model)) = self.agree(real, model)? {
                same("may reach", real, model)?;
            }
            return Ok(());
        }
        let user = if self.rng.random_ratio(1, 8) { self.user() } else { admin() };
        let trees = self.model.paths(|model, ino| model.is_dir(ino) && model.tree(ino) == ino);
        let path = match self.rng.random_range(0..6) {
            0 => self.model.paths(|_, _| true).first().cloned().unwrap_or_else(|| b"/".to_vec()),
            1..5 if !trees.is_empty() => trees[self.rng.random_range(0..trees.len())].clone(),
            _ => b"/".to_vec(),
        };
        let (of, real_of) = match self.rng.random_range(0..5) {
            0 | 1 => (Of::Tree, ns::QuotaOf::Tree),
            2 | 3 => {
                let id = [0, 5, 6][self.rng.random_range(0..3)];
                (Of::User(id), ns::QuotaOf::User(PrincipalId(id)))
            }
            _ => {
                let id = [0, 5, 8, 9][self.rng.random_range(0..4)];
                (Of::Group(id), ns::QuotaOf::Group(PrincipalId(id)))
            }
        };
        let mut edit = |most: u64| match self.rng.random_range(0..8) {
            0 => None,
            1..6 => Some(None),
            _ => Some(Some(self.rng.random_range(0..most))),
        };
        let (bytes, files) = (edit(3_000), edit(40));
        self.say(format!("quota {} {of:?} {bytes:?} {files:?}", path.escape_ascii()));
        let op = ns::SetQuota {
            path: NsPath::parse(&path).unwrap(),
            of: real_of,
            hard_bytes: bytes,
            soft_bytes: None,
            hard_files: files,
            soft_files: None,
            grace: None,
        };
        let real = self.change(&user, op)?;
        let model = self.model.set_quota(&user, &path, of, (bytes, files));
        if self.agree(real, model)?.is_some() {
            self.quotas += 1;
        }
        Ok(())
    }
}
