//! The state of the simulated disk.

use std::collections::BTreeMap;
use std::io;

use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

use super::faults::{CrashFaults, CrashReport};
use super::image::PAGE;
use super::inode::{FileNode, chance};
use super::names::{DirNode, Effect, NameChange, NodeId, keep_earlier_changes};
use crate::{Access, DiskError, DiskOp, Entry, OpenOptions, Space};

const ROOT: NodeId = 0;
const FREE_AT_FIRST: u64 = 1 << 40;

#[derive(Clone)]
enum Node {
    File(FileNode),
    Dir(DirNode),
}

pub(super) type PlannedCall = Box<dyn FnOnce() + Send>;

/// A call that must fail.
struct Planned {
    op: DiskOp,
    /// The prefix of its path.
    under: String,
    /// The number of matching calls left, including this one.
    left: u64,
    kind: io::ErrorKind,
}

pub(super) struct World {
    nodes: BTreeMap<NodeId, Node>,
    next_node: NodeId,
    name_changes: Vec<NameChange>,
    pub(super) free: u64,
    /// Files open without direct I/O.
    pub(super) refuses_direct: bool,
    planned: Vec<Planned>,
    calls: Vec<(DiskOp, u64, PlannedCall)>,
    pub(super) rng: SmallRng,
    pub(super) data_syncs: u64,
    pub(super) dir_syncs: u64,
    pub(super) changes: u64,
    freeze_in: Option<u64>,
    pub(super) frozen: Option<Box<World>>,
}

fn error(op: DiskOp, path: &str, kind: io::ErrorKind) -> DiskError {
    DiskError { op, path: path.to_owned(), source: io::Error::from(kind) }
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            nodes: BTreeMap::from([(ROOT, Node::Dir(DirNode::default()))]),
            next_node: ROOT + 1,
            name_changes: Vec::new(),
            free: FREE_AT_FIRST,
            refuses_direct: false,
            planned: Vec::new(),
            calls: Vec::new(),
            rng: SmallRng::seed_from_u64(seed),
            data_syncs: 0,
            dir_syncs: 0,
            changes: 0,
            freeze_in: None,
            frozen: None,
        }
    }

    // ---- faults

    pub(super) fn fail_next(&mut self, op: DiskOp, under: &str, nth: u64, kind: io::ErrorKind) {
        self.planned.push(Planned { op, under: under.to_owned(), left: nth.max(1), kind });
    }

    /// Whether this call of `op` must fail.
    pub(super) fn planned_failure(&mut self, op: DiskOp, path: &str) -> Option<io::ErrorKind> {
        let mut due = None;
        self.planned.retain_mut(|Planned { op: planned, under, left, kind }| {
            if *planned != op || !path.starts_with(&**under) {
                return true;
            }
            *left -= 1;
            if *left == 0 && due.is_none() {
                due = Some(*kind);
                return false;
            }
            *left = (*left).max(1);
            true
        });
        due
    }

    fn check(&mut self, op: DiskOp, path: &str) -> Result<(), DiskError> {
        match self.planned_failure(op, path) {
            Some(kind) => Err(error(op, path, kind)),
            None => Ok(()),
        }
    }

    pub(super) fn freeze_after(&mut self, changes: u64) {
        self.frozen = None;
        if changes == 0 {
            self.frozen = Some(Box::new(self.after_kill()));
            self.freeze_in = None;
        } else {
            self.freeze_in = Some(changes);
        }
    }

    /// Counts a changing call.
    pub(super) fn changed(&mut self) {
        self.changes += 1;
        if let Some(left) = self.freeze_in {
            if left > 1 {
                self.freeze_in = Some(left - 1);
            } else {
                self.freeze_in = None;
                self.frozen = Some(Box::new(self.after_kill()));
            }
        }
    }

    fn copy(&self, nodes: BTreeMap<NodeId, Node>, name_changes: Vec<NameChange>) -> World {
        let mut world = World::new(self.changes);
        world.nodes = nodes;
        world.next_node = self.next_node;
        world.name_changes = name_changes;
        world.free = self.free;
        world.refuses_direct = self.refuses_direct;
        world.drop_unreachable();
        world
    }

    pub(super) fn after_kill(&self) -> World {
        let mut nodes = self.nodes.clone();
        for node in nodes.values_mut() {
            if let Node::File(file) = node {
                file.opens = 0;
            }
        }
        self.copy(nodes, self.name_changes.clone())
    }

    pub(super) fn after_crash(&self, rng: &mut dyn RngCore, faults: CrashFaults, report: &mut CrashReport) -> World {
        let mut there: Vec<bool> = self.name_changes.iter().map(|_| chance(rng, faults.metadata_kept)).collect();
        keep_earlier_changes(&self.name_changes, &mut there);
        let mut nodes = BTreeMap::new();
        for (id, node) in &self.nodes {
            let found = match node {
                Node::Dir(dir) => Node::Dir(DirNode { durable: dir.durable.clone(), current: BTreeMap::new() }),
                Node::File(file) => {
                    let image = file.after_crash(rng, faults, report);
                    let unreadable = file.unreadable.clone();
                    Node::File(FileNode { durable: image.clone(), current: image, unreadable, ..FileNode::default() })
                }
            };
            nodes.insert(*id, found);
        }
        for (change, there) in self.name_changes.iter().zip(&there) {
            if *there {
                report.names_kept += 1;
                apply_durably(&mut nodes, change);
            } else {
                report.names_lost += 1;
            }
        }
        for node in nodes.values_mut() {
            if let Node::Dir(dir) = node {
                dir.current = dir.durable.clone();
            }
        }
        self.copy(nodes, Vec::new())
    }

    /// Drops files without a name (current, durable, or in a change between), and counts names.
    fn drop_unreachable(&mut self) {
        let mut links: BTreeMap<NodeId, u64> = BTreeMap::new();
        let mut held: Vec<NodeId> = vec![ROOT];
        let mut reached = std::collections::BTreeSet::from([ROOT]);
        for effect in self.name_changes.iter().flat_map(|c| &c.effects) {
            if let Some(node) = effect.node
                && reached.insert(node)
            {
                held.push(node);
            }
        }
        while let Some(id) = held.pop() {
            if let Some(Node::Dir(dir)) = self.nodes.get(&id) {
                for child in dir.current.values() {
                    *links.entry(*child).or_default() += 1;
                }
                for child in dir.current.values().chain(dir.durable.values()) {
                    if reached.insert(*child) {
                        held.push(*child);
                    }
                }
            }
        }
        self.nodes.retain(|id, node| reached.contains(id) || matches!(node, Node::File(file) if file.opens > 0));
        for (id, node) in &mut self.nodes {
            if let Node::File(file) = node {
                file.links = links.get(id).copied().unwrap_or(0);
            }
        }
    }

    pub(super) fn rot(&mut self, path: &str, offset: u64) -> bool {
        let Ok(id) = self.find(DiskOp::Open, path) else { return false };
        match self.nodes.get_mut(&id) {
            Some(Node::File(file)) => {
                file.durable.flip(offset);
                file.current.flip(offset)
            }
            _ => false,
        }
    }

    pub(super) fn make_unreadable(&mut self, path: &str, offset: u64) -> bool {
        let Ok(id) = self.find(DiskOp::Open, path) else { return false };
        match self.nodes.get_mut(&id) {
            Some(Node::File(file)) => file.unreadable.insert(offset / PAGE),
            _ => false,
        }
    }

    pub(super) fn call_next(&mut self, op: DiskOp, nth: u64, call: PlannedCall) {
        self.calls.push((op, nth.max(1), call));
    }

    /// The function to run inside this call of `op`, if any.
    pub(super) fn planned_call(&mut self, op: DiskOp) -> Option<PlannedCall> {
        let mut due = None;
        for (at, (planned, left, _)) in self.calls.iter_mut().enumerate() {
            if *planned == op {
                *left = left.saturating_sub(1);
                if *left == 0 && due.is_none() {
                    due = Some(at);
                }
            }
        }
        due.map(|at| self.calls.remove(at).2)
    }

    // ---- paths

    fn dir(&self, id: NodeId) -> Option<&DirNode> {
        match self.nodes.get(&id) {
            Some(Node::Dir(dir)) => Some(dir),
            _ => None,
        }
    }

    fn find(&self, op: DiskOp, path: &str) -> Result<NodeId, DiskError> {
        let mut at = ROOT;
        for part in path.split('/').filter(|p| !p.is_empty()) {
            let dir = self.dir(at).ok_or_else(|| error(op, path, io::ErrorKind::NotADirectory))?;
            at = *dir.current.get(part).ok_or_else(|| error(op, path, io::ErrorKind::NotFound))?;
        }
        Ok(at)
    }

    fn parent<'p>(&self, op: DiskOp, path: &'p str) -> Result<(NodeId, &'p str), DiskError> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let id = self.find(op, above)?;
        if self.dir(id).is_none() {
            return Err(error(op, path, io::ErrorKind::NotADirectory));
        }
        Ok((id, name))
    }

    fn change_names(&mut self, effects: Vec<Effect>) {
        for effect in &effects {
            let before = match self.nodes.get_mut(&effect.dir) {
                Some(Node::Dir(dir)) => match effect.node {
                    Some(node) => dir.current.insert(effect.name.clone(), node),
                    None => dir.current.remove(&effect.name),
                },
                _ => None,
            };
            if let Some(Node::File(file)) = effect.node.and_then(|n| self.nodes.get_mut(&n)) {
                file.links += 1;
            }
            if let Some(before) = before {
                if let Some(Node::File(file)) = self.nodes.get_mut(&before) {
                    file.links -= 1;
                }
                self.free_if_unused(before);
            }
        }
        self.name_changes.push(NameChange::new(effects));
        self.changed();
    }

    /// A file without names and handles frees its space. Its bytes stay, because a crash may restore the name.
    fn free_if_unused(&mut self, id: NodeId) {
        if let Some(Node::File(file)) = self.nodes.get(&id)
            && file.links == 0
            && file.opens == 0
        {
            self.free += file.pages() * PAGE;
        }
    }

    // ---- the calls

    pub(super) fn open(&mut self, path: &str, options: OpenOptions) -> Result<NodeId, DiskError> {
        let id = match options.access {
            Access::CreateNew => {
                self.check(DiskOp::Create, path)?;
                let (dir, name) = self.parent(DiskOp::Create, path)?;
                if self.dir(dir).is_some_and(|d| d.current.contains_key(name)) {
                    return Err(error(DiskOp::Create, path, io::ErrorKind::AlreadyExists));
                }
                let id = self.next_node;
                self.next_node += 1;
                self.nodes.insert(id, Node::File(FileNode::default()));
                self.change_names(vec![Effect { dir, name: name.to_owned(), node: Some(id) }]);
                id
            }
            Access::Read | Access::ReadWrite => {
                self.check(DiskOp::Open, path)?;
                self.find(DiskOp::Open, path)?
            }
        };
        match self.nodes.get_mut(&id) {
            Some(Node::File(file)) => file.opens += 1,
            _ => return Err(error(DiskOp::Open, path, io::ErrorKind::IsADirectory)),
        }
        Ok(id)
    }

    pub(super) fn close(&mut self, id: NodeId) {
        if let Some(Node::File(file)) = self.nodes.get_mut(&id) {
            file.opens = file.opens.saturating_sub(1);
        }
        self.free_if_unused(id);
    }

    pub(super) fn file(&mut self, op: DiskOp, path: &str, id: NodeId) -> Result<&mut FileNode, DiskError> {
        match self.nodes.get_mut(&id) {
            Some(Node::File(file)) => Ok(file),
            _ => Err(error(op, path, io::ErrorKind::NotFound)),
        }
    }

    pub(super) fn remove(&mut self, path: &str) -> Result<(), DiskError> {
        self.check(DiskOp::Remove, path)?;
        let id = self.find(DiskOp::Remove, path)?;
        if self.dir(id).is_some() {
            return Err(error(DiskOp::Remove, path, io::ErrorKind::IsADirectory));
        }
        let (dir, name) = self.parent(DiskOp::Remove, path)?;
        self.change_names(vec![Effect { dir, name: name.to_owned(), node: None }]);
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        self.check(DiskOp::Rename, from)?;
        let id = self.find(DiskOp::Rename, from)?;
        let (from_dir, from_name) = self.parent(DiskOp::Rename, from)?;
        let (to_dir, to_name) = self.parent(DiskOp::Rename, to)?;
        if (from_dir, from_name) == (to_dir, to_name) {
            return Ok(());
        }
        if self.dir(to_dir).and_then(|d| d.current.get(to_name)).is_some_and(|n| self.dir(*n).is_some()) {
            return Err(error(DiskOp::Rename, to, io::ErrorKind::IsADirectory));
        }
        self.change_names(vec![
            Effect { dir: to_dir, name: to_name.to_owned(), node: Some(id) },
            Effect { dir: from_dir, name: from_name.to_owned(), node: None },
        ]);
        Ok(())
    }

    pub(super) fn create_dir_all(&mut self, path: &str) -> Result<(), DiskError> {
        self.check(DiskOp::CreateDir, path)?;
        let mut at = ROOT;
        for part in path.split('/').filter(|p| !p.is_empty()) {
            let dir = self.dir(at).ok_or_else(|| error(DiskOp::CreateDir, path, io::ErrorKind::NotADirectory))?;
            at = match dir.current.get(part) {
                Some(id) => *id,
                None => {
                    let id = self.next_node;
                    self.next_node += 1;
                    self.nodes.insert(id, Node::Dir(DirNode::default()));
                    self.change_names(vec![Effect { dir: at, name: part.to_owned(), node: Some(id) }]);
                    id
                }
            };
        }
        if self.dir(at).is_none() {
            return Err(error(DiskOp::CreateDir, path, io::ErrorKind::AlreadyExists));
        }
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, path: &str) -> Result<(), DiskError> {
        self.dir_syncs += 1;
        self.check(DiskOp::SyncDir, path)?;
        let id = self.find(DiskOp::SyncDir, path)?;
        if self.dir(id).is_none() {
            return Err(error(DiskOp::SyncDir, path, io::ErrorKind::NotADirectory));
        }
        let mut there: Vec<bool> = self
            .name_changes
            .iter_mut()
            .map(|change| {
                change.unsynced.retain(|d| *d != id);
                change.unsynced.is_empty()
            })
            .collect();
        keep_earlier_changes(&self.name_changes, &mut there);
        let mut left = Vec::new();
        for (change, there) in std::mem::take(&mut self.name_changes).into_iter().zip(there) {
            if there {
                apply_durably(&mut self.nodes, &change);
            } else {
                left.push(change);
            }
        }
        self.name_changes = left;
        if self.dir_syncs.is_multiple_of(64) {
            self.drop_unreachable();
        }
        self.changed();
        Ok(())
    }

    pub(super) fn list(&mut self, path: &str) -> Result<Vec<Entry>, DiskError> {
        self.check(DiskOp::List, path)?;
        let id = self.find(DiskOp::List, path)?;
        let dir = self.dir(id).ok_or_else(|| error(DiskOp::List, path, io::ErrorKind::NotADirectory))?;
        Ok(dir
            .current
            .iter()
            .map(|(name, node)| Entry { name: name.clone(), is_dir: self.dir(*node).is_some() })
            .collect())
    }

    pub(super) fn len_of(&mut self, path: &str) -> Result<Option<u64>, DiskError> {
        match self.find(DiskOp::Open, path) {
            Ok(id) => match self.nodes.get(&id) {
                Some(Node::File(file)) => Ok(Some(file.current.len())),
                _ => Err(error(DiskOp::Open, path, io::ErrorKind::IsADirectory)),
            },
            Err(e) if e.source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    pub(super) fn space(&mut self) -> Result<Space, DiskError> {
        self.check(DiskOp::Space, "")?;
        let used: u64 = self
            .nodes
            .values()
            .map(|node| match node {
                Node::File(file) if file.links + file.opens > 0 => file.pages() * PAGE,
                _ => 0,
            })
            .sum();
        Ok(Space { total: self.free + used, free: self.free })
    }
}

fn apply_durably(nodes: &mut BTreeMap<NodeId, Node>, change: &NameChange) {
    for effect in &change.effects {
        if let Some(Node::Dir(dir)) = nodes.get_mut(&effect.dir) {
            match effect.node {
                Some(node) => {
                    dir.durable.insert(effect.name.clone(), node);
                }
                None => {
                    dir.durable.remove(&effect.name);
                }
            }
        }
    }
}
