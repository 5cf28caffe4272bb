//! How many round trips an engine over a network needs to read what operations and views read, if it knows nothing beforehand. The commit of an operation
//! is one more.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may fail this way

use std::sync::{Arc, Mutex};

use kv::{Durability, Read};
use namespace::{self as ns, Actor, Namespace, NamespaceConfig, NsError, Operation, WriteMode};
use types::{
    BootGeneration, BootId, ClientIdentity, Group, GroupId, InSyncReplica, Ino, Member, NsPath, ObjectId, Placement,
    PrincipalId, StoreId, Timestamp,
};

mod network;

use network::{NetworkKv, Trips};

const GROUP: GroupId = GroupId(7);
const USER: PrincipalId = PrincipalId(5);

struct World {
    ns: Arc<Namespace>,
    last: Arc<Mutex<Trips>>,
    actor: Actor,
    next_number: u64,
    /// Counts that are not as expected.
    wrong: Vec<String>,
}

fn path(text: &str) -> NsPath {
    NsPath::parse(text.as_bytes()).unwrap()
}

fn client() -> ClientIdentity {
    ClientIdentity { principal: USER, user: "u".into(), pid: 1, host: "h".into() }
}

fn open(at: &str, how: WriteMode) -> ns::OpenWrite {
    let in_sync = vec![InSyncReplica { store: StoreId(1), boot_generation: BootGeneration(1) }];
    let placement = Placement { group: GROUP, in_sync };
    ns::OpenWrite { placement, ..ns::OpenWrite::new(path(at), how, client(), BootId(1)) }
}

fn committed(len: u64) -> ns::Committed {
    let sums = ns::Sums { adler32: types::Adler32(1), crc32c: types::Crc32c(2) };
    ns::Committed { len, sums: Some(sums), mtime: None }
}

fn commit(writer: ns::WriterToken, len: u64) -> ns::CommitPlaced {
    let commit = ns::Commit { writer, content: committed(len), completion: ns::Completion::ByClient };
    ns::CommitPlaced { commit, group: GROUP, by: StoreId(1), holders: vec![StoreId(1)] }
}

impl World {
    /// A namespace with a group of stores and directories of a user, in a tree of its own or in the default one.
    fn new(in_a_tree: bool) -> Self {
        let kv = Arc::new(NetworkKv::default());
        let last = Arc::clone(&kv.last);
        let mut config = NamespaceConfig::default();
        config.limits.total_shards = 3;
        let ns = Namespace::open(kv, Timestamp(1), config).unwrap();
        let actor = Actor::new(USER, Arc::from([PrincipalId(7), PrincipalId(8)]));
        let mut world = Self { ns, last, actor: Actor::admin(), next_number: 0, wrong: Vec::new() };
        world.change(ns::FoundCluster { roles: 3, name: "m".into(), key: [0; 32] });
        for store in 1..=3 {
            let location = format!("s/r/h{store}").parse().unwrap();
            world.change(ns::PutStore { store: StoreId(store), node: ns::FIRST_NODE, location, class: None });
        }
        let member = |store| Member { store: StoreId(store), since: ObjectId(1), through: ObjectId(0) };
        world.change(ns::PutGroup { group: Group { group: GROUP, epoch: 1, members: [1, 2, 3].map(member).to_vec() } });
        world.change(ns::Mkdir { path: path("/a"), mode: 0o755, parents: false });
        if in_a_tree {
            world.change(ns::MakeTree { path: path("/a") });
        }
        world.change(ns::Chown { path: path("/a"), owner: Some(USER), group: Some(PrincipalId(7)) });
        world.actor = actor;
        world.change(ns::Mkdir { path: path("/a/b/c/d/e"), mode: 0o755, parents: true });
        world
    }

    fn change<O: Operation + Send + 'static>(&mut self, op: O) -> O::Reply {
        let ctx = self.ns.context(Timestamp(5), &self.actor, None);
        self.ns.change_wait(Durability::Synced, ctx, op).unwrap()
    }

    fn counted(&mut self, what: &str, expected: u32) {
        let trips = self.last.lock().unwrap().clone();
        if trips.count != expected {
            self.wrong
                .push(format!("{what}: {} round trips, not {expected}; unasked: {:?}", trips.count, trips.missed));
        }
    }

    /// An operation that needs so many round trips to read.
    fn trips<O: Operation + Send + 'static>(&mut self, what: &str, expected: u32, op: O) -> O::Reply {
        let reply = self.change(op);
        self.counted(what, expected);
        reply
    }

    fn read<T>(&mut self, what: &str, expected: u32, reading: impl FnOnce(&dyn Read) -> Result<T, NsError>) -> T {
        let found = self.ns.read(reading).unwrap();
        self.counted(what, expected);
        found
    }

    fn file(&mut self, at: &str) -> ns::OpenedWrite {
        let opened = self.change(open(at, WriteMode::NewOnly));
        self.change(commit(opened.writer, 10));
        opened
    }

    fn finish(self, of: &str) {
        assert!(self.wrong.is_empty(), "{of}:\n{}", self.wrong.join("\n"));
    }
}

const DIR: &str = "/a/b/c/d/e";
const FILE: &str = "/a/b/c/d/e/f";
const OTHER: &str = "/a/b/c/d/e/g";

#[test]
fn reads_need_one_round_trip() {
    for in_a_tree in [false, true] {
        let mut w = World::new(in_a_tree);
        let actor = w.actor.clone();
        let file = w.file(FILE);
        w.change(ns::Mkdir { path: path("/a/b/c/d/e/dir"), mode: 0o755, parents: false });
        w.change(ns::SetXattr {
            of: path(FILE).into(),
            name: b"user.x".to_vec(),
            value: b"1".to_vec(),
            mode: ns::XattrMode::Set,
        });
        w.read("stat of a file", 1, |read| ns::stat(read, &actor, &path(FILE)));
        w.read("stat of a directory", 1, |read| ns::stat(read, &actor, &path(DIR)));
        w.read("stat of the root", 1, |read| ns::stat(read, &actor, &path("/")));
        w.read("stat by number", 1, |read| ns::stat_ino(read, file.ino));
        w.read("stat of the root by number", 1, |read| ns::stat_ino(read, Ino::ROOT));
        let opened = |read: &dyn Read, at: &str| {
            let inode = ns::open_read(read, &actor, &path(at), false)?;
            let content = *inode.content().unwrap();
            ns::object_record(read, content.group, content.object)?;
            match content.state {
                ns::FileState::Open(by) | ns::FileState::Updating(by) => {
                    ns::writer_of(read, by, content.object)?.unwrap();
                }
                _ => assert_eq!(ns::holders(read, content.group, content.object)?.len(), 1),
            }
            ns::missing_of(read, content.group, content.object)
        };
        w.read("open for reading, with its holders", 1, |read| opened(read, FILE));
        w.change(open(OTHER, WriteMode::NewOnly));
        w.read("open of a file that is being written", 1, |read| opened(read, OTHER));
        w.read("open of a directory to list", 1, |read| ns::open_list(read, &actor, &path(DIR), true));
        let dir = w.read("", 1, |read| ns::stat(read, &actor, &path(DIR))).ino;
        w.read("a page with directories", 2, |read| ns::list(read, dir, None, 100));
        let inner = w.read("", 1, |read| ns::stat(read, &actor, &path("/a/b/c/d/e/dir"))).ino;
        w.file("/a/b/c/d/e/dir/x");
        w.read("a page of files", 1, |read| ns::list(read, inner, None, 100));
        w.read("attribute", 1, |read| ns::get_xattr(read, &actor, &path(FILE).into(), b"user.x"));
        w.read("attributes", 1, |read| ns::list_xattrs(read, &actor, &path(FILE).into()));
        w.read("attributes by number", 1, |read| ns::list_xattrs(read, &actor, &ns::XattrOf::Inode(file.ino)));
        let new = open("/a/b/c/d/e/new", WriteMode::NewOnly);
        w.read("policy for a new file", 1, |read| ns::policy_for_new(read, &actor, &new));
        w.read("space", 1, |read| ns::space_at(read, &actor, &path(DIR), Timestamp(5)));
        w.finish(if in_a_tree { "in a tree" } else { "in the default tree" });
    }
}

#[test]
fn operations_need_one_round_trip_to_read() {
    for in_a_tree in [false, true] {
        let mut w = World::new(in_a_tree);
        let new = w.trips("create", 1, open(FILE, WriteMode::NewOnly));
        w.trips("commit of a new file", 2, commit(new.writer, 10));
        let new = w.trips("create in the root's child", 1, open("/a/f", WriteMode::NewOnly));
        w.trips("interrupt", 2, ns::Interrupt { writer: new.writer, kept_len: 3 });
        let over = w.trips("open to replace", 1, open(FILE, WriteMode::Replace));
        w.trips("commit of a replacement", 2, commit(over.writer, 20));
        let update = w.trips("open to change", 1, open(FILE, WriteMode::Update));
        w.trips("commit of a change", 2, commit(update.writer, 30));
        let posc = ns::OpenWrite { posc: true, ..open(OTHER, WriteMode::NewOnly) };
        let upload = w.trips("upload", 1, posc);
        w.trips("reserve", 2, ns::Reserve { writer: upload.writer, len: 100 });
        w.trips("commit of an upload", 2, commit(upload.writer, 10));
        let again = ns::OpenWrite { restarted: true, ..open("/a/b/r", WriteMode::Replace) };
        w.trips("restarted", 1, again.clone());
        w.trips("restarted again", 1, again);
        let deep = ns::OpenWrite { mkpath: true, ..open("/a/b/x/y/z/f", WriteMode::NewOnly) };
        w.trips("create with its directories", 1, deep);
        w.trips("mkdir", 1, ns::Mkdir { path: path("/a/b/c/d/e/m"), mode: 0o755, parents: false });
        w.trips("mkdir of many", 1, ns::Mkdir { path: path("/a/b/c/q/r/s"), mode: 0o755, parents: true });
        w.trips("symlink", 1, ns::Symlink { path: path("/a/b/c/d/e/l"), target: b"f".to_vec() });
        w.trips("rename", 1, ns::Rename { from: path(FILE), to: path("/a/b/c/f2"), replace: false });
        w.trips("rename over a file", 1, ns::Rename { from: path("/a/b/c/f2"), to: path(OTHER), replace: true });
        let (from, to) = (path("/a/b/c/d/e/m"), path("/a/b/c/m"));
        w.trips("rename of a directory", 1, ns::Rename { from, to, replace: false });
        let attribute = || ns::SetXattr {
            of: path(OTHER).into(),
            name: b"user.x".to_vec(),
            value: b"1".to_vec(),
            mode: ns::XattrMode::Set,
        };
        w.trips("set an attribute", 1, attribute());
        w.trips("remove an attribute", 1, ns::RemoveXattr { of: path(OTHER).into(), name: b"user.x".to_vec() });
        w.trips("chmod", 1, ns::Chmod { path: path(OTHER), mode: 0o640 });
        w.trips("chmod of a directory", 1, ns::Chmod { path: path(DIR), mode: 0o775 });
        let [owner, group] = [None, Some(PrincipalId(8))];
        w.trips("chown", 2, ns::Chown { path: path(OTHER), owner, group });
        w.trips("utimes", 1, ns::Utimes { path: path(DIR), mtime: Some(Timestamp(9)), atime: None });
        let access = Some(ns::AclEdit::Modify(ns::parse_acl("user:6:rwx", &|_, _| None).unwrap().access));
        w.trips("set an ACL", 1, ns::SetAcl { path: path(DIR), access, default: None });
        w.trips("remove", 2, ns::Remove { path: path(OTHER) }); // its group is not the user's first one
        w.file(FILE);
        w.trips("remove", 1, ns::Remove { path: path(FILE) });
        w.file(FILE);
        w.trips("link", 1, ns::Link { existing: path(FILE), new: path("/a/b/l") });
        w.trips("remove one of two names", 1, ns::Remove { path: path(FILE) });
        w.trips("rmdir", 1, ns::Rmdir { path: path("/a/b/c/m") });
        let alone = w.change(ns::OpenWrite::new(path("/a/b/t"), WriteMode::NewOnly, client(), BootId(1)));
        let content = committed(10);
        let completion = ns::Completion::ByClient;
        w.trips("commit on a single node", 2, ns::Commit { writer: alone.writer, content, completion });
        let (at, len) = (path("/a/b/t"), 3);
        let cut = ns::Truncate { path: at, len, client: client(), boot: BootId(1), request: None };
        // The record does not name the only group of a single node, so the object's other records are asked for later.
        w.trips("truncate", 2, cut);
        let session = w.trips("begin a session", 2, ns::OpenSession { client: client() });
        w.next_number += 1;
        let request = ns::RequestNumber { session, number: w.next_number };
        let ctx = w.ns.context(Timestamp(5), &w.actor, Some(request));
        let mkdir = ns::Mkdir { path: path("/a/b/c/d/e/n"), mode: 0o755, parents: false };
        w.ns.change_wait(Durability::Synced, ctx, mkdir).unwrap();
        w.counted("numbered mkdir", 1);
        w.actor = Actor::admin();
        let policy = "replica(2)".parse().unwrap();
        w.trips("set a policy", 1, ns::SetPolicy { path: path(DIR), policy });
        let of = ns::QuotaOf::User(USER);
        let [soft_bytes, hard_files, soft_files] = [None; 3];
        let root = path(if in_a_tree { "/a" } else { "/" });
        let hard_bytes = Some(Some(1 << 40));
        let limit = ns::SetQuota { path: root, of, hard_bytes, soft_bytes, hard_files, soft_files, grace: None };
        w.trips("set a quota", 1, limit);
        w.actor = Actor::new(USER, Arc::from([PrincipalId(7)]));
        let new = w.trips("create with a quota", 1, open(FILE, WriteMode::NewOnly));
        w.trips("commit with a quota", 2, commit(new.writer, 10));
        w.finish(if in_a_tree { "in a tree" } else { "in the default tree" });
    }
}
