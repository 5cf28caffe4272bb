//! A plain model of the namespace: maps in memory, written from the rules and not from the code. It has its own inode and object numbers. [`Pairs`]
//! checks that they match the real ones one to one, for ever.

#![allow(dead_code)] // each program uses a part of it
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)] // a test may fail this way

pub mod acl;
pub mod harness;
pub mod life;
pub mod limits;
pub mod names;
pub mod principals;
pub mod quota;
pub mod view;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use types::{ClientIdentity, ErrorCode};

use limits::Rules;
use namespace::PathOperation as Op;

pub type Res<T> = Result<T, ErrorCode>;
pub type Name = Vec<u8>;

#[derive(Clone, Debug)]
pub struct Who {
    pub id: u32,
    pub groups: Vec<u32>,
    /// What the credential permits; `None`: everything.
    pub limits: Option<Rules>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Complete,
    Open(usize), // index of its writer's (client, path) in `who`
    Updating(usize),
    Interrupted(usize),
}

#[derive(Clone, Debug)]
pub struct File {
    pub object: u64,
    pub len: u64,
    pub state: State,
    pub sums: Option<(u32, u32)>,
    pub generation: u32,
    pub last_epoch: u32,
}

#[derive(Clone, Debug)]
pub enum Kind {
    File(File),
    Dir { entries: BTreeMap<Name, u64>, parent: u64, tree: u64 },
    Link(Vec<u8>),
}

#[derive(Clone, Debug)]
pub struct Node {
    pub owner: u32,
    pub group: u32,
    pub mode: u16,
    /// The entries of the access ACL that the mode does not hold, if there are any.
    pub further: Option<acl::Entries>,
    /// The default ACL of a directory.
    pub default: Option<acl::Entries>,
    pub mtime: i64,
    pub ctime: i64,
    pub btime: i64,
    pub atime: Option<i64>,
    pub xattrs: BTreeMap<Name, Vec<u8>>,
    /// The policy set on this directory, as text.
    pub policy: Option<String>,
    pub holders: BTreeSet<u64>,
    pub kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doing {
    New,
    Update,
    Upload,
}

#[derive(Clone, Debug)]
pub struct Writer {
    pub who: usize,
    pub object: u64,
    pub epoch: u32,
    pub doing: Doing,
    pub ino: u64,
    pub boot: u128,
    pub expected: Option<u64>,
    pub sums_before: Option<(u32, u32)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpState {
    Making,
    Interrupted,
    Refused(ErrorCode),
}

#[derive(Clone, Debug)]
pub struct Upload {
    pub who: usize,
    pub object: u64,
    pub state: UpState,
    pub parent: u64,
    pub name: Name,
    pub replaces: Option<u64>,
    /// Object and generation at the open.
    pub replaces_content: Option<(u64, u32)>,
    /// Its writer could create a file in the directory at the open.
    pub may_create: bool,
    pub owner: u32,
    pub group: u32,
    pub mode: u16,
    pub further: Option<acl::Entries>,
    pub deadline: Option<i64>,
    pub kept: u64,
    pub epoch: u32,
    pub xattrs: BTreeMap<Name, Vec<u8>>,
    /// The future number of the file, once it has had attributes.
    pub attributes_at: Option<u64>,
}

/// The memory of a writer that ended without its client.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub object: u64,
    pub until: i64,
    pub boot: u128,
    pub interrupted: bool,
    /// Nobody goes on with it: it was forgotten, or another client has taken it over.
    pub dropped: bool,
}

#[derive(Clone, Debug)]
pub struct Model {
    pub nodes: BTreeMap<u64, Node>,
    pub writers: BTreeMap<u64, Writer>, // by object
    pub uploads: BTreeMap<u64, Upload>, // by object
    pub ended: BTreeMap<usize, Ended>,  // by who
    pub queue: BTreeSet<u64>,
    /// (client, path) pairs that ever wrote.
    pub who: Vec<(ClientIdentity, Vec<u8>)>,
    pub next: u64,
    pub now: i64,
    pub principals: principals::Principals,
    pub quotas: quota::Quotas,
}

pub const ROOT: u64 = 1;
pub const KEEP: i64 = 86_400_000_000_000;
pub const TOMB: i64 = 3_600_000_000_000;

/// The end of a path.
#[derive(Debug)]
pub struct At {
    pub dir: u64,
    pub name: Name,
    pub there: Option<u64>,
}

pub enum Way {
    At(At),
    /// A directory is missing on the way: the directory above it, the remaining names, and how many of the last ones the path itself has.
    Missing(u64, VecDeque<Name>, usize),
}

impl Model {
    pub fn new(now: i64) -> Self {
        let root = Node {
            owner: 0,
            group: 0,
            mode: 0o755,
            further: None,
            default: None,
            mtime: now,
            ctime: now,
            btime: now,
            atime: None,
            xattrs: BTreeMap::new(),
            policy: None,
            holders: BTreeSet::new(),
            kind: Kind::Dir { entries: BTreeMap::new(), parent: ROOT, tree: 1 },
        };
        Self {
            nodes: BTreeMap::from([(ROOT, root)]),
            writers: BTreeMap::new(),
            uploads: BTreeMap::new(),
            ended: BTreeMap::new(),
            queue: BTreeSet::new(),
            who: Vec::new(),
            next: 100,
            now,
            principals: principals::Principals::default(),
            quotas: quota::Quotas::default(),
        }
    }

    pub fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn who(&mut self, client: &ClientIdentity, path: &[u8]) -> usize {
        let key = (client.clone(), path.to_vec());
        match self.who.iter().position(|known| *known == key) {
            Some(at) => at,
            None => {
                self.who.push(key);
                self.who.len() - 1
            }
        }
    }

    pub fn node(&self, ino: u64) -> &Node {
        &self.nodes[&ino]
    }
    pub fn node_mut(&mut self, ino: u64) -> &mut Node {
        self.nodes.get_mut(&ino).unwrap()
    }
    pub fn is_dir(&self, ino: u64) -> bool {
        matches!(self.node(ino).kind, Kind::Dir { .. })
    }
    pub fn entries(&self, ino: u64) -> &BTreeMap<Name, u64> {
        match &self.node(ino).kind {
            Kind::Dir { entries, .. } => entries,
            _ => panic!("not a directory"),
        }
    }
    pub fn entries_mut(&mut self, ino: u64) -> &mut BTreeMap<Name, u64> {
        let now = self.now;
        let node = self.node_mut(ino);
        node.mtime = now;
        node.ctime = node.ctime.max(now);
        match &mut node.kind {
            Kind::Dir { entries, .. } => entries,
            _ => panic!("not a directory"),
        }
    }
    pub fn parent(&self, ino: u64) -> u64 {
        match &self.node(ino).kind {
            Kind::Dir { parent, .. } => *parent,
            _ => panic!("not a directory"),
        }
    }
    pub fn tree(&self, ino: u64) -> u64 {
        match &self.node(ino).kind {
            Kind::Dir { tree, .. } => *tree,
            _ => panic!("not a directory"),
        }
    }
    pub fn file(&self, ino: u64) -> Option<&File> {
        match &self.nodes.get(&ino)?.kind {
            Kind::File(file) => Some(file),
            _ => None,
        }
    }
    pub fn file_mut(&mut self, ino: u64) -> Option<&mut File> {
        match &mut self.nodes.get_mut(&ino)?.kind {
            Kind::File(file) => Some(file),
            _ => None,
        }
    }
    pub fn names_of(&self, ino: u64) -> Vec<(u64, Name)> {
        let mut names = Vec::new();
        for (dir, node) in &self.nodes {
            if let Kind::Dir { entries, .. } = &node.kind {
                names.extend(entries.iter().filter(|(_, i)| **i == ino).map(|(name, _)| (*dir, name.clone())));
            }
        }
        names
    }

    /// Paths (not over links) of all nodes that `wanted` accepts, except the root.
    pub fn paths(&self, wanted: impl Fn(&Self, u64) -> bool) -> Vec<Name> {
        let mut found = Vec::new();
        let mut stack = vec![(Vec::new(), ROOT)];
        while let Some((path, dir)) = stack.pop() {
            for (name, ino) in self.entries(dir) {
                let child = [path.as_slice(), b"/", name].concat();
                if self.is_dir(*ino) {
                    stack.push((child.clone(), *ino));
                }
                if wanted(self, *ino) && child.len() < 1_000 {
                    found.push(child);
                }
            }
        }
        found
    }

    /// r, w or x (4, 2, 1) on a node.
    pub fn may(&self, who: &Who, ino: u64, bit: u16) -> Res<()> {
        if who.id == 0 || self.node(ino).grants(who, bit) { Ok(()) } else { Err(ErrorCode::Denied) }
    }

    /// w and x on a directory.
    pub fn may_create(&self, who: &Who, dir: u64) -> bool {
        self.may(who, dir, 2).is_ok() && self.may(who, dir, 1).is_ok()
    }

    pub fn owns(&self, who: &Who, ino: u64) -> Res<()> {
        if who.id == 0 || who.id == self.node(ino).owner { Ok(()) } else { Err(ErrorCode::Denied) }
    }

    /// `w` on the directory, and the sticky rule.
    pub fn may_take_away(&self, who: &Who, dir: u64, ino: u64) -> Res<()> {
        self.may(who, dir, 2)?;
        let sticky = self.node(dir).mode & 0o1000 != 0;
        if sticky && who.id != 0 && who.id != self.node(dir).owner && who.id != self.node(ino).owner {
            return Err(ErrorCode::Denied);
        }
        Ok(())
    }

    /// Walks a path to do one of `wanted` at its end.
    pub fn way(&self, who: &Who, path: &[u8], follow: bool, wanted: &[Op]) -> Res<Way> {
        let split = |path: &[u8]| -> VecDeque<Name> {
            path.split(|&b| b == b'/').filter(|n| !n.is_empty() && *n != b".").map(<[u8]>::to_vec).collect()
        };
        let mut names = split(path);
        self.allowed(who, wanted, names.make_contiguous())?;
        let mut dir = ROOT;
        let mut links = 0;
        let mut asked = names.len();
        while let Some(name) = names.pop_front() {
            // The last names are those of the path.
            asked = asked.min(names.len() + 1);
            self.may(who, dir, 1)?;
            if name == b".." {
                dir = self.parent(dir);
                self.may_go_on(who, wanted, dir, names.iter())?;
                continue;
            }
            let Some(&ino) = self.entries(dir).get(&name) else {
                if names.is_empty() {
                    return Ok(Way::At(At { dir, name, there: None }));
                }
                names.push_front(name);
                return Ok(Way::Missing(dir, names, asked));
            };
            match &self.node(ino).kind {
                Kind::Link(target) if follow || !names.is_empty() => {
                    links += 1;
                    if links > 40 {
                        return Err(ErrorCode::Loop);
                    }
                    if target[0] == b'/' {
                        dir = ROOT;
                    }
                    let mut new = split(target);
                    asked = asked.min(names.len());
                    new.append(&mut names);
                    names = new;
                    self.may_go_on(who, wanted, dir, names.iter())?;
                }
                _ if names.is_empty() => return Ok(Way::At(At { dir, name, there: Some(ino) })),
                Kind::Dir { .. } => dir = ino,
                _ => return Err(ErrorCode::NotDirectory),
            }
        }
        // A path that ends in a directory without naming it: the root, or a link to `/` or over `..`.
        let up = self.parent(dir);
        let name = self.entries(up).iter().find(|(_, i)| **i == dir).map(|(n, _)| n.clone()).unwrap_or_default();
        Ok(Way::At(At { dir: up, name, there: Some(dir) }))
    }

    pub fn at(&self, who: &Who, path: &[u8], follow: bool, wanted: &[Op]) -> Res<At> {
        match self.way(who, path, follow, wanted)? {
            Way::At(at) => Ok(at),
            Way::Missing(..) => Err(ErrorCode::NotFound),
        }
    }

    pub fn existing(&self, who: &Who, path: &[u8], follow: bool, wanted: Op) -> Res<(At, u64)> {
        let at = self.at(who, path, follow, &[wanted])?;
        let ino = at.there.ok_or(ErrorCode::NotFound)?;
        Ok((at, ino))
    }

    pub fn new_node(&mut self, who: &Who, dir: u64, mode: u16, kind: Kind) -> u64 {
        let ino = self.fresh();
        let parent = self.node(dir);
        let inherits = parent.mode & 0o2000 != 0;
        let group = if inherits { parent.group } else { who.groups[0] };
        let default = parent.default.clone();
        let now = self.now;
        let mut node = Node {
            owner: who.id,
            group,
            mode,
            further: None,
            default: None,
            mtime: now,
            ctime: now,
            btime: now,
            atime: None,
            xattrs: BTreeMap::new(),
            policy: None,
            holders: BTreeSet::new(),
            kind,
        };
        match node.kind {
            Kind::Link(_) => {}
            Kind::Dir { .. } => {
                node.inherit(default.as_ref());
                node.mode |= if inherits { 0o2000 } else { 0 };
            }
            Kind::File(_) => {
                node.inherit(default.as_ref());
                node.keep_setgid_for(who);
            }
        }
        self.nodes.insert(ino, node);
        ino
    }

    /// An inode lost a name or a holder. It is deleted if that was the last.
    pub fn maybe_drop(&mut self, ino: u64) -> Option<u64> {
        if !self.node(ino).holders.is_empty() || !self.names_of(ino).is_empty() {
            return None;
        }
        let node = self.nodes.remove(&ino).unwrap();
        match node.kind {
            Kind::File(file) => self.release(file.object),
            _ => None,
        }
    }

    /// An inode drops its object. The object is queued unless it has a writer.
    pub fn release(&mut self, object: u64) -> Option<u64> {
        if self.writers.contains_key(&object) {
            return None;
        }
        self.queue.insert(object);
        Some(object)
    }
}

/// Real numbers and the model's, one to one and for ever.
#[derive(Clone, Default, Debug)]
pub struct Pairs {
    to_model: HashMap<u64, u64>,
    to_real: HashMap<u64, u64>,
}

impl Pairs {
    pub fn pair(&mut self, real: u64, model: u64) -> Result<(), String> {
        let known = *self.to_model.entry(real).or_insert(model);
        let back = *self.to_real.entry(model).or_insert(real);
        if known == model && back == real {
            return Ok(());
        }
        Err(format!("number {real} stands for {known} and now for {model} (which was {back}): a number was reused"))
    }
    pub fn real(&self, model: u64) -> Option<u64> {
        self.to_real.get(&model).copied()
    }
}
