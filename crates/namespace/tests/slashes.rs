//! A path that ends in a slash, or in `/.`, names a directory in every operation, and never a file. The answers are those of POSIX, and so of a stock
//! XRootD server.

#![allow(clippy::unwrap_used, clippy::panic)] // a test may fail this way

use std::cell::Cell;
use std::sync::Arc;

use kv::{Durability, Kv, MemoryKv};
use namespace::{self as ns, Actor, Inode, Namespace, NamespaceConfig, NsError, Operation, WriteMode, XattrMode};
use types::{BootId, ClientIdentity, ErrorCode, NsPath, PrincipalId, Timestamp};

struct World {
    ns: Arc<Namespace>,
    now: Cell<i64>,
}

fn path(text: &str) -> NsPath {
    NsPath::parse(text.as_bytes()).unwrap()
}

fn client() -> ClientIdentity {
    ClientIdentity { principal: PrincipalId(0), user: "u".into(), pid: 7, host: "h".into() }
}

fn open(at: &str, how: WriteMode) -> ns::OpenWrite {
    ns::OpenWrite::new(path(at), how, client(), BootId(1))
}

impl World {
    /// `/f` with 5 bytes, the directories `/d` (empty) and `/full` (with `x`), and links: `/to-f`, `/to-d`, `/to-new` (to the missing `new/`).
    fn new() -> Self {
        let kv: Arc<dyn Kv> = Arc::new(MemoryKv::new());
        let ns = Namespace::open(Arc::clone(&kv), Timestamp(1), NamespaceConfig::default()).unwrap();
        let w = Self { ns, now: Cell::new(1_000) };
        w.file("/f");
        for at in ["/d", "/full"] {
            w.change(ns::Mkdir { path: path(at), mode: 0o755, parents: false }).unwrap();
        }
        w.file("/full/x");
        for (at, target) in [("/to-f", "f"), ("/to-d", "d"), ("/to-new", "new/")] {
            w.change(ns::Symlink { path: path(at), target: target.into() }).unwrap();
        }
        w
    }

    fn change<O: Operation + Send + 'static>(&self, op: O) -> Result<O::Reply, NsError> {
        self.now.set(self.now.get() + 1);
        let ctx = self.ns.context(Timestamp(self.now.get()), &Actor::admin(), None);
        self.ns.change_wait(Durability::Synced, ctx, op)
    }

    fn code<O: Operation + Send + 'static>(&self, op: O) -> Option<ErrorCode> {
        self.change(op).err().map(|error| error.code())
    }

    fn file(&self, at: &str) {
        let opened = self.change(open(at, WriteMode::NewOnly)).unwrap();
        let content = ns::Committed { len: 5, sums: None, mtime: None };
        self.change(ns::Commit { writer: opened.writer, content, completion: ns::Completion::ByClient }).unwrap();
    }

    fn stat(&self, at: &str) -> Result<Inode, NsError> {
        self.ns.read(|read| ns::stat(read, &Actor::admin(), &path(at)))
    }

    fn names(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.ns
            .read(|read| {
                let root = ns::stat(read, &Actor::admin(), &NsPath::root())?;
                ns::list_visit(read, root.ino, None, 100, &mut |name, _| {
                    found.push(String::from_utf8(name.to_vec()).unwrap());
                    std::ops::ControlFlow::Continue(())
                })
            })
            .unwrap();
        found
    }
}

const NAMES: [&str; 6] = ["d", "f", "full", "to-d", "to-f", "to-new"];
/// Ends of a path that make it one of a directory.
const ENDS: [&str; 5] = ["/", "//", "/.", "/./", "/.//."];

#[test]
fn no_open_makes_a_file_where_a_path_names_a_directory() {
    let w = World::new();
    for how in [WriteMode::NewOnly, WriteMode::Replace] {
        for posc in [false, true] {
            for mkpath in [false, true] {
                let open = |at: &str| ns::OpenWrite { posc, mkpath, ..open(at, how) };
                for end in ENDS {
                    // Behind a dot, the missing name is one on the way.
                    let free = if end.ends_with('.') && !mkpath { ErrorCode::NotFound } else { ErrorCode::IsDirectory };
                    assert_eq!(w.code(open(&format!("/new{end}"))), Some(free), "{end}");
                    let deep = if mkpath { ErrorCode::IsDirectory } else { ErrorCode::NotFound };
                    assert_eq!(w.code(open(&format!("/a/b{end}"))), Some(deep), "{end}");
                    assert_eq!(w.code(open(&format!("/f{end}"))), Some(ErrorCode::NotDirectory), "{end}");
                    let there = if how == WriteMode::NewOnly { ErrorCode::Exists } else { ErrorCode::IsDirectory };
                    assert_eq!(w.code(open(&format!("/d{end}"))), Some(there), "{end}");
                }
                if how == WriteMode::Replace {
                    assert_eq!(
                        w.code(open("/to-new")),
                        Some(ErrorCode::IsDirectory),
                        "the link's target ends in a slash"
                    );
                    assert_eq!(w.code(open("/to-f/")), Some(ErrorCode::NotDirectory));
                }
            }
        }
    }
    assert_eq!(w.names(), NAMES, "nothing was made, no directory on the way either");
    let refused = w.change(open("/new/", WriteMode::NewOnly)).unwrap_err().to_string();
    assert!(refused.starts_with("/new/: ends in a slash, so it names a directory"), "{refused}");
}

#[test]
fn an_open_for_update_does_not_reach_a_file_by_the_name_of_a_directory() {
    let w = World::new();
    for end in ENDS {
        assert_eq!(w.code(open(&format!("/f{end}"), WriteMode::Update)), Some(ErrorCode::NotDirectory), "{end}");
        assert_eq!(w.code(open(&format!("/d{end}"), WriteMode::Update)), Some(ErrorCode::IsDirectory), "{end}");
        assert_eq!(w.code(open(&format!("/new{end}"), WriteMode::Update)), Some(ErrorCode::NotFound), "{end}");
    }
    // Nor does a writer come back to its own file that way.
    let writing = w.change(open("/mine", WriteMode::NewOnly)).unwrap();
    let upload = w.change(ns::OpenWrite { posc: true, ..open("/hidden", WriteMode::NewOnly) }).unwrap();
    for end in ENDS {
        assert_eq!(w.code(open(&format!("/mine{end}"), WriteMode::Update)), Some(ErrorCode::NotDirectory), "{end}");
        assert_eq!(w.code(open(&format!("/hidden{end}"), WriteMode::Update)), Some(ErrorCode::NotFound), "{end}");
        let restarted = ns::OpenWrite { restarted: true, ..open(&format!("/mine{end}"), WriteMode::Replace) };
        assert_eq!(w.code(restarted), Some(ErrorCode::NotDirectory), "{end}");
    }
    assert_eq!(w.change(open("/mine", WriteMode::Update)).unwrap().object, writing.object);
    assert_eq!(w.change(open("/hidden", WriteMode::Update)).unwrap().object, upload.object);
}

#[test]
fn what_is_looked_up_by_the_name_of_a_directory_is_one() {
    let w = World::new();
    let code = |at: &str| w.stat(at).map(|inode| inode.is_dir()).map_err(|error| error.code());
    for end in ENDS {
        let at = |name: &str| format!("{name}{end}");
        assert_eq!(code(&at("/d")), Ok(true), "{end}");
        assert_eq!(code(&at("/to-d")), Ok(true), "{end}");
        assert_eq!(code(&at("/f")), Err(ErrorCode::NotDirectory), "{end}");
        assert_eq!(code(&at("/to-f")), Err(ErrorCode::NotDirectory), "{end}");
        assert_eq!(code(&at("/new")), Err(ErrorCode::NotFound), "{end}");
        let at = path(&at("/to-d"));
        let found = w.ns.read(|read| ns::stat_no_follow(read, &Actor::admin(), &at)).unwrap();
        assert!(found.is_dir(), "behind the slash, the link is on the way");
        let read =
            |at: String| w.ns.read(|read| ns::open_read(read, &Actor::admin(), &path(&at), true)).unwrap_err().code();
        assert_eq!(read(format!("/f{end}")), ErrorCode::NotDirectory);
        assert_eq!(read(format!("/d{end}")), ErrorCode::IsDirectory);
    }
    assert_eq!(w.stat("/./full//./x").unwrap().len(), 5, "dots and slashes on the way change nothing");
}

#[test]
fn files_are_not_changed_by_the_name_of_a_directory() {
    let w = World::new();
    for end in ENDS {
        let at = || path(&format!("/f{end}"));
        let not_a_directory = Some(ErrorCode::NotDirectory);
        assert_eq!(w.code(ns::Remove { path: at() }), not_a_directory, "{end}");
        assert_eq!(w.code(ns::RemoveAny { path: at() }), not_a_directory, "{end}");
        assert_eq!(w.code(ns::Rmdir { path: at() }), not_a_directory, "{end}");
        assert_eq!(w.code(ns::Remove { path: path(&format!("/to-f{end}")) }), not_a_directory, "{end}");
        assert_eq!(w.code(ns::Chmod { path: at(), mode: 0o600 }), not_a_directory, "{end}");
        assert_eq!(w.code(ns::Utimes { path: at(), mtime: Some(Timestamp(5)), atime: None }), not_a_directory, "{end}");
        let cut = ns::Truncate { path: at(), len: 1, client: client(), boot: BootId(1), request: None };
        assert_eq!(w.code(cut), not_a_directory, "{end}");
        let of = || ns::XattrOf::Path(at());
        let set = ns::SetXattr { of: of(), name: b"a".into(), value: b"b".into(), mode: XattrMode::Set };
        assert_eq!(w.code(set), not_a_directory, "{end}");
        let listed = w.ns.read(|read| ns::list_xattrs(read, &Actor::admin(), &of()));
        assert_eq!(listed.unwrap_err().code(), ErrorCode::NotDirectory, "{end}");
        assert_eq!(w.code(ns::Rename { from: at(), to: path("/g"), replace: true }), not_a_directory, "{end}");
        assert_eq!(w.code(ns::Link { existing: at(), new: path("/g") }), not_a_directory, "{end}");
    }
    let f = w.stat("/f").unwrap();
    assert_eq!((f.len(), f.access.mode, f.xattrs, f.nlink), (5, 0o644, 0, 1));
    assert_eq!(w.names(), NAMES);
}

#[test]
fn only_a_directory_gets_a_new_name_with_a_slash() {
    let w = World::new();
    let rename = |from: &str, to: &str| w.code(ns::Rename { from: path(from), to: path(to), replace: true });
    for from in ["/f", "/to-d"] {
        assert_eq!(rename(from, "/new/"), Some(ErrorCode::NotDirectory), "{from}");
        assert_eq!(rename(from, "/f/"), Some(ErrorCode::NotDirectory), "{from}");
        assert_eq!(rename(from, "/full/"), Some(ErrorCode::IsDirectory), "{from}");
    }
    assert_eq!(rename("/full", "/f/"), Some(ErrorCode::NotDirectory));
    assert_eq!(rename("/full", "/full/x/"), Some(ErrorCode::Invalid), "into itself, whatever is there");
    assert_eq!(w.code(ns::Link { existing: path("/f"), new: path("/new/") }), Some(ErrorCode::IsDirectory));
    assert_eq!(w.code(ns::Symlink { path: path("/new/"), target: b"f".into() }), Some(ErrorCode::IsDirectory));
    assert_eq!(w.names(), NAMES);
    assert_eq!(rename("/d/", "/new/"), None);
    assert!(w.stat("/new").unwrap().is_dir());
    assert_eq!(w.code(ns::Mkdir { path: path("/made/"), mode: 0o755, parents: false }), None);
    assert_eq!(w.code(ns::Mkdir { path: path("/made/"), mode: 0o755, parents: false }), Some(ErrorCode::Exists));
    assert_eq!(w.code(ns::Mkdir { path: path("/f/"), mode: 0o755, parents: true }), Some(ErrorCode::Exists));
    assert_eq!(w.code(ns::Rmdir { path: path("/made/") }), None);
    assert_eq!(w.code(ns::RemoveAny { path: path("/new/") }), None);
    assert_eq!(w.names(), ["f", "full", "to-d", "to-f", "to-new"]);
}

#[test]
fn a_directory_is_not_removed_moved_or_made_by_its_dot() {
    let w = World::new();
    let invalid = Some(ErrorCode::Invalid);
    assert_eq!(w.code(ns::RemoveAny { path: path("/d/.") }), invalid);
    assert_eq!(w.code(ns::Rmdir { path: path("/d/.") }), invalid);
    assert_eq!(w.code(ns::Rename { from: path("/d/."), to: path("/e"), replace: true }), invalid);
    assert_eq!(w.code(ns::Rename { from: path("/full"), to: path("/d/."), replace: true }), invalid);
    assert_eq!(w.code(ns::Mkdir { path: path("/new/."), mode: 0o755, parents: false }), Some(ErrorCode::NotFound));
    assert_eq!(w.code(ns::Mkdir { path: path("/f/."), mode: 0o755, parents: true }), Some(ErrorCode::NotDirectory));
    assert_eq!(w.names(), NAMES);
    assert_eq!(w.code(ns::Mkdir { path: path("/new/."), mode: 0o755, parents: true }), None);
    assert!(w.stat("/new").unwrap().is_dir());
}
