//! Checksums that are kept beside a file: as long as its content is the same.

#![allow(clippy::unwrap_used, clippy::panic)] // a test may fail this way

use std::cell::Cell;
use std::sync::Arc;

use kv::{Durability, Kv, MemoryKv};
use namespace::{self as ns, Actor, Inode, KeepDigest, Namespace, NamespaceConfig, NsError, Operation, WriteMode};
use types::{BootId, ClientIdentity, DigestKind, ErrorCode, Ino, NsPath, ObjectId, PrincipalId, Timestamp};

struct World {
    kv: Arc<dyn Kv>,
    ns: Arc<Namespace>,
    now: Cell<i64>,
}

fn path() -> NsPath {
    NsPath::parse(b"/f").unwrap()
}

impl World {
    fn new() -> Self {
        let kv: Arc<dyn Kv> = Arc::new(MemoryKv::new());
        let ns = Namespace::open(Arc::clone(&kv), Timestamp(1), NamespaceConfig::default()).unwrap();
        Self { kv, ns, now: Cell::new(1_000) }
    }

    fn change<O: Operation + Send + 'static>(&self, op: O) -> Result<O::Reply, NsError> {
        self.now.set(self.now.get() + 1);
        let ctx = self.ns.context(Timestamp(self.now.get()), &Actor::admin(), None);
        let result = self.ns.change_wait(Durability::Synced, ctx, op);
        let mut findings = Vec::new();
        ns::check(&*self.kv.snapshot(), &mut |finding| findings.push(finding)).unwrap();
        assert_eq!(findings, [], "the attributes are counted");
        result
    }

    fn write(&self, how: WriteMode, len: u64) {
        let client = ClientIdentity { principal: PrincipalId(0), user: "u".into(), pid: 7, host: "h".into() };
        let opened = self.change(ns::OpenWrite::new(path(), how, client, BootId(1))).unwrap();
        let content = ns::Committed { len, sums: None, mtime: None };
        self.change(ns::Commit { writer: opened.writer, content, completion: ns::Completion::ByClient }).unwrap();
    }

    fn inode(&self) -> Inode {
        self.ns.read(|read| ns::stat(read, &Actor::admin(), &path())).unwrap()
    }

    fn kept(&self, kind: DigestKind) -> Option<Vec<u8>> {
        let inode = self.inode();
        self.ns.read(|read| ns::kept_digest(read, &inode, kind)).unwrap()
    }

    fn keep(&self, kind: DigestKind, value: &[u8]) {
        let inode = self.inode();
        let content = inode.content().unwrap();
        let (object, generation) = (content.object, content.generation);
        self.change(KeepDigest { ino: inode.ino, object, generation, kind, value: value.to_vec() }).unwrap();
    }
}

#[test]
fn a_checksum_is_kept_until_the_content_changes() {
    let w = World::new();
    w.write(WriteMode::NewOnly, 5);
    assert_eq!(w.kept(DigestKind::Md5), None);
    let before = w.inode();
    w.keep(DigestKind::Md5, b"one");
    w.keep(DigestKind::Sha256, b"two");
    w.keep(DigestKind::Md5, b"three");
    assert_eq!(w.kept(DigestKind::Md5).as_deref(), Some(b"three".as_slice()));
    assert_eq!(w.kept(DigestKind::Sha256).as_deref(), Some(b"two".as_slice()));
    assert_eq!((w.inode().ctime, w.inode().mtime), (before.ctime, before.mtime), "a question changes no time");
    for how in [WriteMode::Update, WriteMode::Replace] {
        w.keep(DigestKind::Md5, b"again");
        assert_eq!(w.inode().xattrs, if how == WriteMode::Update { 2 } else { 1 });
        w.write(how, 6);
        assert_eq!((w.kept(DigestKind::Md5), w.kept(DigestKind::Sha256)), (None, None));
        assert_eq!(w.inode().xattrs, 0, "{how:?}: they go with the content");
    }
}

#[test]
fn a_checksum_of_other_content_is_not_kept() {
    let w = World::new();
    w.write(WriteMode::NewOnly, 5);
    let inode = w.inode();
    let content = *inode.content().unwrap();
    let keep = |ino, object, generation| {
        w.change(KeepDigest { ino, object, generation, kind: DigestKind::Md5, value: b"x".to_vec() }).unwrap();
    };
    keep(inode.ino, ObjectId(content.object.0 + 1), content.generation);
    keep(inode.ino, content.object, content.generation.wrapping_add(1));
    keep(Ino(inode.ino.0 + 1), content.object, content.generation);
    assert_eq!((w.kept(DigestKind::Md5), w.inode().xattrs), (None, 0));
    for value in [vec![], vec![0; 65]] {
        let (ino, object, generation) = (inode.ino, content.object, content.generation);
        let refused = w.change(KeepDigest { ino, object, generation, kind: DigestKind::Md5, value });
        assert_eq!(refused.unwrap_err().code(), ErrorCode::TooLarge);
    }
}
