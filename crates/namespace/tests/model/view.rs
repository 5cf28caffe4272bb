//! All visible state, from the real namespace and from the model. Numbers are kept apart and paired.

use std::collections::{BTreeMap, BTreeSet};

use kv::Read;
use namespace::{FileState, Inode, Kind as RealKind, UploadState, WriterKind};
use types::{FileName, Ino, PrincipalKind, SessionId};

use super::{Doing, Kind, Model, Pairs, ROOT, State, UpState};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeenFile {
    pub len: u64,
    pub state: &'static str,
    pub sums: Option<(u32, u32)>,
    pub generation: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SeenKind {
    File(SeenFile),
    Dir { entries: u64, bytes: u64, policy: Option<String> },
    Link(Vec<u8>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    pub owner: u32,
    pub group: u32,
    pub mode: u16,
    pub acl: String,
    pub nlink: u32,
    pub times: (i64, i64, i64, Option<i64>),
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub holders: u32,
    pub kind: SeenKind,
}

type SeenWriter = (String, Vec<u8>, u32, &'static str, u128, Option<u64>);
type SeenUpload = (Vec<u8>, String, Option<i64>, u64, Vec<u8>, (u32, u32, u16, usize), u32, Vec<(Vec<u8>, Vec<u8>)>);

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct View {
    pub names: BTreeMap<Vec<u8>, Seen>,
    /// Unlinked and held inodes, which have no path. In the order of their numbers.
    pub unlinked: Vec<Seen>,
    pub writers: BTreeMap<u64, SeenWriter>,
    pub uploads: BTreeMap<u64, SeenUpload>,
    pub queue: usize,
    /// Kind, name and number of each named user and group.
    pub principals: Vec<(PrincipalKind, String, u32)>,
    /// Numbers in a fixed order, for pairing.
    pub numbers: Vec<u64>,
    /// Usage and limits, by the path of the tree.
    pub quotas: BTreeMap<(Vec<u8>, super::quota::Of), ([u64; 4], super::quota::Limits)>,
}

fn show(client: &types::ClientIdentity) -> String {
    format!("{} {}.{}@{}", client.principal, client.user, client.pid, client.host)
}

fn real_node(read: &dyn Read, inode: &Inode, numbers: &mut Vec<u64>, xattrs: BTreeMap<Vec<u8>, Vec<u8>>) -> Seen {
    numbers.push(inode.ino.0);
    let kind = match &inode.kind {
        RealKind::File(content) => {
            numbers.push(content.object.0 | 1 << 63);
            SeenKind::File(SeenFile {
                len: content.len,
                state: match content.state {
                    FileState::Complete => "complete",
                    FileState::Open(_) => "open",
                    FileState::Updating(_) => "updating",
                    FileState::Interrupted(_) => "interrupted",
                },
                sums: content.sums.map(|sums| (sums.adler32.0, sums.crc32c.0)),
                generation: content.generation,
            })
        }
        RealKind::Directory(dir) => {
            let totals = namespace::totals(read, inode.ino).unwrap();
            numbers.push(dir.parent.0);
            if dir.tree.0 != 1 {
                numbers.push(dir.tree.0);
            }
            let policy = namespace::policy_of(read, inode.ino).unwrap();
            numbers.extend(policy.as_ref().map(|policy| policy.from.0));
            let policy = policy.map(|policy| policy.policy.to_string());
            SeenKind::Dir { entries: totals.entries, bytes: totals.bytes, policy }
        }
        RealKind::Symlink(target) => SeenKind::Link(target.clone()),
    };
    Seen {
        owner: inode.access.owner.0,
        group: inode.access.group.0,
        mode: inode.access.mode,
        acl: namespace::acl_text(&inode.access.acl(), inode.default_acl(), &|_| None),
        nlink: inode.nlink,
        times: (inode.mtime.0, inode.ctime.0, inode.btime.0, inode.atime.map(|t| t.0)),
        xattrs,
        holders: inode.holders,
        kind,
    }
}

/// The visible state of the real namespace. Listings are read in pages of `page`, to exercise resumption.
pub fn real(read: &dyn Read, page: usize, sessions: &[u64]) -> View {
    let admin = namespace::Actor::admin();
    let mut view = View::default();
    let mut stack = vec![(Vec::new(), namespace::stat_ino(read, Ino::ROOT).unwrap())];
    let mut linked = BTreeSet::new();
    while let Some((path, inode)) = stack.pop() {
        linked.insert(inode.ino);
        let shown = if path.is_empty() { b"/".to_vec() } else { path.clone() };
        let mut xattrs = BTreeMap::new();
        if inode.xattrs > 0 && !matches!(inode.kind, RealKind::Symlink(_)) {
            // By path. This walk never goes over links.
            if let Ok(p) = types::NsPath::parse(&shown) {
                xattrs = namespace::list_xattrs(read, &admin, &p.clone().into()).unwrap().into_iter().collect();
            }
        }
        assert_eq!(inode.xattrs as usize, xattrs.len());
        if inode.nlink == 1 && shown.len() < types::PATH_MAX {
            let back = namespace::path_of(read, inode.ino).unwrap();
            assert_eq!(back, shown, "path_of gives the one path");
        }
        view.names.insert(shown, real_node(read, &inode, &mut view.numbers, xattrs));
        if inode.is_dir() {
            let mut after: Option<FileName> = None;
            let mut children = Vec::new();
            loop {
                let part = namespace::list(read, inode.ino, after.as_ref(), page).unwrap();
                assert!(part.entries.len() <= page);
                after = part.entries.last().map(|entry| entry.name.clone()).or(after);
                for entry in part.entries {
                    let child = [path.as_slice(), b"/", entry.name.as_bytes()].concat();
                    children.push((child, entry.inode));
                }
                if !part.more {
                    break;
                }
            }
            assert!(children.is_sorted_by(|a, b| a.0 < b.0), "listings are in the order of bytes");
            stack.extend(children);
        }
    }
    let mut unlinked = BTreeSet::new();
    for session in sessions {
        for ino in namespace::holds(read, SessionId(*session), None, 1000).unwrap() {
            if !linked.contains(&ino) {
                unlinked.insert(ino);
            }
        }
    }
    for ino in unlinked {
        let inode = namespace::stat_ino(read, ino).unwrap();
        let seen = real_node(read, &inode, &mut view.numbers, BTreeMap::new());
        view.unlinked.push(seen);
    }
    for writer in namespace::writers(read, None, 10_000).unwrap() {
        let doing = match writer.kind {
            WriterKind::New => "new",
            WriterKind::Update => "update",
            WriterKind::Upload(_) => "upload",
        };
        let seen = (show(&writer.client), writer.path.clone(), writer.epoch, doing, writer.boot.0, writer.expected_len);
        view.writers.insert(writer.object.0, seen);
    }
    for upload in namespace::uploads(read, None, 10_000).unwrap() {
        let state = match upload.state {
            UploadState::BeingWritten => "making".into(),
            UploadState::Interrupted => "interrupted".into(),
            UploadState::Refused(code) => format!("refused {code:?}"),
        };
        let seen = (
            upload.path.clone(),
            state,
            upload.deadline.map(|t| t.0),
            upload.kept_len,
            upload.name.clone(),
            (
                upload.owner.0,
                upload.group.0,
                upload.mode,
                upload.extended.map_or(0, |extended| 1 + extended.named.len()),
            ),
            upload.epoch,
            upload.attributes.map_or(Vec::new(), |attributes| namespace::xattrs_of(read, attributes.at).unwrap()),
        );
        view.uploads.insert(upload.object.0, seen);
    }
    view.queue = namespace::due_deletions(read, None, 100_000).unwrap().len();
    view.principals = super::principals::listed(read, page);
    view.quotas = super::quota::real_quotas(read, page);
    view
}

impl Model {
    fn seen(&self, ino: u64, numbers: &mut Vec<u64>) -> Seen {
        let node = self.node(ino);
        numbers.push(ino);
        let names = self.names_of(ino).len();
        let (kind, nlink) = match &node.kind {
            Kind::File(file) => {
                numbers.push(file.object | 1 << 63);
                let state = match file.state {
                    State::Complete => "complete",
                    State::Open(_) => "open",
                    State::Updating(_) => "updating",
                    State::Interrupted(_) => "interrupted",
                };
                let seen = SeenFile { len: file.len, state, sums: file.sums, generation: file.generation };
                (SeenKind::File(seen), names)
            }
            Kind::Dir { entries, parent, tree } => {
                numbers.push(*parent);
                if *tree != 1 {
                    numbers.push(*tree);
                }
                let bytes = entries.values().filter_map(|ino| self.file(*ino)).map(|file| file.len).sum();
                let policy = self.policy_of(ino);
                numbers.extend(policy.map(|(_, from)| from));
                let policy = policy.map(|(policy, _)| policy.to_owned());
                (SeenKind::Dir { entries: entries.len() as u64, bytes, policy }, 1)
            }
            Kind::Link(target) => (SeenKind::Link(target.clone()), names),
        };
        Seen {
            owner: node.owner,
            group: node.group,
            mode: node.mode,
            acl: {
                let mut entries = super::acl::show(&node.entries(), "");
                entries.extend(node.default.iter().flat_map(|default| super::acl::show(default, "default:")));
                entries.join(",")
            },
            nlink: nlink as u32,
            times: (node.mtime, node.ctime, node.btime, node.atime),
            xattrs: node.xattrs.clone(),
            holders: node.holders.len() as u32,
            kind,
        }
    }

    /// The visible state of the model.
    pub fn view(&self) -> View {
        let (mut view, mut trees) = (View::default(), BTreeMap::new());
        let mut stack = vec![(Vec::new(), ROOT)];
        while let Some((path, ino)) = stack.pop() {
            let shown: Vec<u8> = if path.is_empty() { b"/".to_vec() } else { path.clone() };
            let seen = self.seen(ino, &mut view.numbers);
            if ino == ROOT || matches!(self.node(ino).kind, Kind::Dir { tree, .. } if tree == ino) {
                trees.insert(ino, shown.clone());
            }
            view.names.insert(shown, seen);
            if let Kind::Dir { entries, .. } = &self.node(ino).kind {
                stack.extend(entries.iter().map(|(name, child)| ([path.as_slice(), b"/", name].concat(), *child)));
            }
        }
        for (ino, node) in &self.nodes {
            if !node.holders.is_empty() && self.names_of(*ino).is_empty() {
                let mut seen = self.seen(*ino, &mut view.numbers);
                seen.xattrs.clear(); // attributes are requested by path
                view.unlinked.push(seen);
            }
        }
        for writer in self.writers.values() {
            let (client, path) = &self.who[writer.who];
            let doing = match writer.doing {
                Doing::New => "new",
                Doing::Update => "update",
                Doing::Upload => "upload",
            };
            let seen = (show(client), path.clone(), writer.epoch, doing, writer.boot, writer.expected);
            view.writers.insert(writer.object, seen);
        }
        for upload in self.uploads.values() {
            let state = match upload.state {
                UpState::Making => "making".into(),
                UpState::Interrupted => "interrupted".into(),
                UpState::Refused(code) => format!("refused {code:?}"),
            };
            let path = self.who[upload.who].1.clone();
            let further = upload.further.as_ref().map_or(0, std::collections::BTreeMap::len);
            let access = (upload.owner, upload.group, upload.mode, further);
            let xattrs = upload.xattrs.clone().into_iter().collect();
            let seen = (path, state, upload.deadline, upload.kept, upload.name.clone(), access, upload.epoch, xattrs);
            view.uploads.insert(upload.object, seen);
        }
        view.queue = self.queue.len();
        view.principals = self.principals.listed();
        view.quotas = self.quotas_by_path(&trees);
        view
    }
}

/// Compares the views and pairs the numbers. Unlinked inodes come in the order of their numbers, which is their order of creation on both sides.
pub fn compare(real: &View, model: &View, pairs: &mut Pairs) -> Result<(), String> {
    for (path, seen) in &real.names {
        let other = model.names.get(path);
        if other != Some(seen) {
            return Err(format!("{}:\n  real  {seen:?}\n  model {other:?}", path.escape_ascii()));
        }
    }
    if let Some(path) = model.names.keys().find(|path| !real.names.contains_key(*path)) {
        return Err(format!("{} is missing", path.escape_ascii()));
    }
    if real.unlinked != model.unlinked {
        return Err(format!("unlinked:\n  real  {:?}\n  model {:?}", real.unlinked, model.unlinked));
    }
    if real.numbers.len() != model.numbers.len() {
        return Err(format!("numbers differ: {:?} and {:?}", real.numbers, model.numbers));
    }
    for (a, b) in real.numbers.iter().zip(&model.numbers) {
        pairs.pair(*a, *b)?;
    }
    let by_object = |object: &u64| object | 1 << 63;
    if real.writers.len() != model.writers.len() || real.uploads.len() != model.uploads.len() {
        return Err(format!(
            "writers or uploads:\n  real  {:?} {:?}\n  model {:?} {:?}",
            real.writers, real.uploads, model.writers, model.uploads
        ));
    }
    for (object, seen) in &model.writers {
        let found = pairs.real(by_object(object)).and_then(|object| real.writers.get(&(object & !(1 << 63))));
        if found != Some(seen) {
            return Err(format!("writer:\n  real  {found:?}\n  model {seen:?}"));
        }
    }
    for (object, seen) in &model.uploads {
        let found = pairs.real(by_object(object)).and_then(|object| real.uploads.get(&(object & !(1 << 63))));
        if found != Some(seen) {
            return Err(format!("upload:\n  real  {found:?}\n  model {seen:?}"));
        }
    }
    super::harness::same("principals", &real.principals, &model.principals)?;
    super::harness::same("quotas", &real.quotas, &model.quotas)?;
    if real.queue != model.queue {
        return Err(format!("deletion queue: {} real, {} in the model", real.queue, model.queue));
    }
    Ok(())
}
