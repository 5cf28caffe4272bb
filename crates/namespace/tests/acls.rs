//! ACLs as users meet them: who may do what, what new files inherit, and what chmod, chown and setfacl change.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::cell::Cell;
use std::sync::Arc;

use kv::{Durability, Kv, MemoryKv, OpOutcome, transact};
use namespace::{
    self as ns, AclEdit, Actor, Inode, Named, Namespace, NamespaceConfig, NsError, Operation, Read, SetAcl, WriteMode,
    XattrMode, parse_acl, parse_acl_names,
};
use types::{BootId, ClientIdentity, ErrorCode, NsPath, PrincipalId, Timestamp};

const EVE: u32 = 6;
const GROUP: u32 = 106;

pub fn path(text: impl AsRef<[u8]>) -> NsPath {
    NsPath::parse(text.as_ref()).unwrap()
}

pub fn actor(id: u32, groups: &[u32]) -> Actor {
    Actor::new(PrincipalId(id), groups.iter().map(|id| PrincipalId(*id)).collect())
}

pub fn eve() -> Actor {
    actor(EVE, &[GROUP])
}

pub fn open(who: &Actor, at: &str, how: WriteMode) -> ns::OpenWrite {
    let client = ClientIdentity { principal: who.principal, user: "u".into(), pid: 1, host: "h".into() };
    ns::OpenWrite { mode: 0o666, ..ns::OpenWrite::new(path(at), how, client, BootId(1)) }
}

/// A change of the entries in a text. `None` for a list without any.
pub fn modify(at: &str, text: &str) -> SetAcl {
    let entries = parse_acl(text, &|_, _| None).unwrap();
    let edit = |entries: Vec<ns::AclEntry>| (!entries.is_empty()).then_some(AclEdit::Modify(entries));
    SetAcl { path: path(at), access: edit(entries.access), default: edit(entries.default) }
}

pub struct World {
    pub kv: Arc<MemoryKv>,
    pub ns: Arc<Namespace>,
    now: Cell<i64>,
}

impl World {
    pub fn new() -> Self {
        Self::on(Arc::new(MemoryKv::new()))
    }

    fn on(kv: Arc<MemoryKv>) -> Self {
        let config = NamespaceConfig { id_range: 1 << 10, ..NamespaceConfig::default() };
        let ns = Namespace::open(Arc::<MemoryKv>::clone(&kv), Timestamp(1), config).unwrap();
        Self { kv, ns, now: Cell::new(1_000) }
    }

    pub fn by<O: Operation + Send + 'static>(&self, who: &Actor, op: O) -> Result<O::Reply, NsError> {
        self.now.set(self.now.get() + 1);
        let ctx = self.ns.context(Timestamp(self.now.get()), who, None);
        self.ns.change_wait(Durability::Synced, ctx, op)
    }

    pub fn admin<O: Operation + Send + 'static>(&self, op: O) -> O::Reply {
        self.by(&Actor::admin(), op).unwrap()
    }

    pub fn mkdir(&self, who: &Actor, at: &str, mode: u16) {
        self.by(who, ns::Mkdir { path: path(at), mode, parents: false }).unwrap();
    }

    pub fn close(&self, who: &Actor, writer: ns::WriterToken, len: u64) {
        let content = ns::Committed { len, sums: None, mtime: None };
        self.by(who, ns::Commit { writer, content, completion: ns::Completion::ByClient }).unwrap();
    }

    pub fn file(&self, who: &Actor, at: &str, mode: u16) {
        let opened = self.by(who, ns::OpenWrite { mode, ..open(who, at, WriteMode::NewOnly) }).unwrap();
        self.close(who, opened.writer, 3);
    }

    pub fn read<T>(&self, reading: impl FnOnce(&dyn Read) -> Result<T, NsError>) -> Result<T, NsError> {
        self.ns.read(reading)
    }

    pub fn stat(&self, at: &str) -> Inode {
        self.read(|read| ns::stat_no_follow(read, &Actor::admin(), &path(at))).unwrap()
    }

    /// Both ACLs of `at`, as text.
    pub fn acl(&self, at: &str) -> String {
        let inode = self.stat(at);
        ns::acl_text(&inode.access.acl(), inode.default_acl(), &|_| None)
    }

    pub fn check(&self) {
        let mut findings = Vec::new();
        ns::check(&*self.kv.snapshot(), &mut |finding| findings.push(finding)).unwrap();
        assert_eq!(findings, []);
    }
}

/// How Eve gets her permissions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Through {
    Owner,
    Mode,
    Others,
    NamedUser,
    OwningGroup,
    NamedGroup,
    OthersBesideNames,
}

const ALL: [Through; 7] = [
    Through::Owner,
    Through::Mode,
    Through::Others,
    Through::NamedUser,
    Through::OwningGroup,
    Through::NamedGroup,
    Through::OthersBesideNames,
];

/// Gives Eve exactly these permissions.
fn give(w: &World, at: &str, through: Through, bits: u16) {
    let chown = |owner: u32, group: u32| ns::Chown {
        path: path(at),
        owner: Some(PrincipalId(owner)),
        group: Some(PrincipalId(group)),
    };
    let chmod = |mode: u16| ns::Chmod { path: path(at), mode };
    let (owner, group) = match through {
        Through::Owner => (EVE, 7),
        Through::Mode | Through::OwningGroup => (7, GROUP),
        _ => (7, 7),
    };
    w.admin(chown(owner, group));
    // Everybody else gets the opposite.
    let not = 7 & !bits;
    w.admin(chmod(match through {
        Through::Owner => bits << 6 | not << 3 | not,
        Through::Others => not << 6 | not << 3 | bits,
        _ => not << 6 | bits << 3 | not,
    }));
    let acl = match through {
        Through::Owner | Through::Mode | Through::Others => return,
        Through::NamedUser => format!("user:{EVE}:7,user:99:7,group::7,mask::{bits},other::7"),
        Through::OwningGroup => format!("user:99:7,group::{bits},group:99:7,mask::7,other::{not}"),
        Through::NamedGroup => format!("user:99:{not},group::{not},group:{GROUP}:{bits},mask::7,other::{not}"),
        Through::OthersBesideNames => format!("user:99:{not},group::{not},group:99:{not},mask::{not},other::{bits}"),
    };
    w.admin(modify(at, &acl));
}

/// What an operation needs: on the directory `/d`, on the file `/d/f`, and whether the file must be Eve's.
struct Needs {
    name: &'static str,
    dir: u16,
    file: u16,
    own: bool,
    run: fn(&World, &Actor) -> Result<(), NsError>,
}

fn operations() -> Vec<Needs> {
    fn op<O: Operation + Send + 'static>(w: &World, who: &Actor, op: O) -> Result<(), NsError> {
        w.by(who, op).map(drop)
    }
    fn rename(from: &str, to: &str) -> ns::Rename {
        ns::Rename { from: path(from), to: path(to), replace: true }
    }
    let of = |name, dir, file, own, run| Needs { name, dir, file, own, run };
    vec![
        of("stat", 1, 0, false, |w, who| w.read(|read| ns::stat(read, who, &path("/d/f"))).map(drop)),
        of("lookup", 1, 0, false, |w, who| w.read(|read| ns::lookup(read, who, &path("/l"))).map(drop)),
        of("readlink", 1, 0, false, |w, who| w.read(|read| ns::readlink(read, who, &path("/d/s"))).map(drop)),
        of("open_read", 1, 4, false, |w, who| w.read(|read| ns::open_read(read, who, &path("/d/f"), true)).map(drop)),
        of("get_xattr", 1, 4, false, |w, who| {
            w.read(|read| ns::get_xattr(read, who, &path("/d/f").into(), b"k")).map(drop)
        }),
        of("list_xattrs", 1, 4, false, |w, who| {
            w.read(|read| ns::list_xattrs(read, who, &path("/d/f").into())).map(drop)
        }),
        of("set_xattr", 1, 2, false, |w, who| {
            let (name, value) = (b"k".to_vec(), vec![]);
            op(w, who, ns::SetXattr { of: path("/d/f").into(), name, value, mode: XattrMode::Set })
        }),
        of("remove_xattr", 1, 2, false, |w, who| {
            op(w, who, ns::RemoveXattr { of: path("/d/f").into(), name: b"k".to_vec() })
        }),
        of("truncate", 1, 2, false, |w, who| {
            let client = open(who, "/d/f", WriteMode::Update).client;
            op(w, who, ns::Truncate { path: path("/d/f"), len: 1, client, boot: BootId(1), request: None })
        }),
        of("update", 1, 2, false, |w, who| op(w, who, open(who, "/d/f", WriteMode::Update))),
        of("replace", 1, 2, false, |w, who| op(w, who, open(who, "/d/f", WriteMode::Replace))),
        of("new file", 3, 0, false, |w, who| op(w, who, open(who, "/d/n", WriteMode::NewOnly))),
        of("new file, hidden", 3, 0, false, |w, who| {
            op(w, who, ns::OpenWrite { posc: true, ..open(who, "/d/n", WriteMode::NewOnly) })
        }),
        of("new file, new directory", 3, 0, false, |w, who| {
            op(w, who, ns::OpenWrite { mkpath: true, ..open(who, "/d/n/m/f", WriteMode::Replace) })
        }),
        of("mkdir", 3, 0, false, |w, who| op(w, who, ns::Mkdir { path: path("/d/n"), mode: 0o777, parents: false })),
        of("mkdir -p", 3, 0, false, |w, who| {
            op(w, who, ns::Mkdir { path: path("/d/n/m"), mode: 0o777, parents: true })
        }),
        of("symlink", 3, 0, false, |w, who| op(w, who, ns::Symlink { path: path("/d/n"), target: b"f".to_vec() })),
        of("link", 3, 0, false, |w, who| op(w, who, ns::Link { existing: path("/d/f"), new: path("/d/n") })),
        of("link out", 1, 0, false, |w, who| op(w, who, ns::Link { existing: path("/d/f"), new: path("/p/n") })),
        of("link in", 3, 0, false, |w, who| op(w, who, ns::Link { existing: path("/p/f"), new: path("/d/n") })),
        of("rename", 3, 0, false, |w, who| op(w, who, rename("/d/f", "/d/n"))),
        of("rename out", 3, 0, false, |w, who| op(w, who, rename("/d/f", "/p/n"))),
        of("rename in", 3, 0, false, |w, who| op(w, who, rename("/p/f", "/d/n"))),
        of("rename over", 3, 0, false, |w, who| op(w, who, rename("/p/f", "/d/f"))),
        of("rename a directory", 3, 0, false, |w, who| op(w, who, rename("/d/e", "/d/n"))),
        of("rename a directory out", 3, 2, false, |w, who| {
            // What the case gives on the file, it gives on the directory.
            let access = w.stat("/d/f").access;
            w.admin(ns::Chown { path: path("/d/e"), owner: Some(access.owner), group: Some(access.group) });
            w.admin(ns::Chmod { path: path("/d/e"), mode: access.mode });
            w.admin(SetAcl {
                path: path("/d/e"),
                access: Some(AclEdit::Replace(access.acl().entries().collect())),
                default: None,
            });
            op(w, who, rename("/d/e", "/p/n"))
        }),
        of("remove", 3, 0, false, |w, who| op(w, who, ns::Remove { path: path("/d/f") })),
        of("rmdir", 3, 0, false, |w, who| op(w, who, ns::Rmdir { path: path("/d/e") })),
        of("remove any", 3, 0, false, |w, who| op(w, who, ns::RemoveAny { path: path("/d/e") })),
        of("chmod", 1, 0, true, |w, who| op(w, who, ns::Chmod { path: path("/d/f"), mode: 0o777 })),
        of("chgrp", 1, 0, true, |w, who| {
            op(w, who, ns::Chown { path: path("/d/f"), owner: None, group: Some(PrincipalId(GROUP)) })
        }),
        of("utimes", 1, 0, true, |w, who| {
            op(w, who, ns::Utimes { path: path("/d/f"), mtime: Some(Timestamp(1)), atime: None })
        }),
        of("set ACL", 1, 0, true, |w, who| op(w, who, modify("/d/f", "user:8:r"))),
        of("clear ACL", 1, 0, true, |w, who| {
            op(w, who, SetAcl { path: path("/d/f"), access: Some(AclEdit::Clear), default: None })
        }),
    ]
}

/// `/d` with a file, a directory and a symbolic link, and `/p`, where everybody may do everything.
fn world_of_operations() -> World {
    let (w, admin) = (World::new(), Actor::admin());
    w.mkdir(&admin, "/d", 0o700);
    w.mkdir(&admin, "/p", 0o777);
    w.mkdir(&admin, "/d/e", 0o700);
    w.admin(ns::Symlink { path: path("/d/s"), target: b"f".to_vec() });
    w.admin(ns::Symlink { path: path("/l"), target: b"p/../d/s".to_vec() });
    for at in ["/d/f", "/p/f"] {
        w.file(&admin, at, 0o600);
        let (name, value) = (b"k".to_vec(), b"v".to_vec());
        w.admin(ns::SetXattr { of: path(at).into(), name, value, mode: XattrMode::Set });
    }
    w
}

#[test]
fn each_operation_needs_what_it_needs_through_each_kind_of_entry() {
    let (mut granted, mut denied) = (0, 0);
    for through in ALL {
        for (dir, file) in (0..8).flat_map(|dir| (0..8).map(move |file| (dir, file))) {
            let fresh = || {
                let w = world_of_operations();
                give(&w, "/d", through, dir);
                give(&w, "/d/f", through, file);
                w
            };
            let mut w = fresh();
            for op in operations() {
                let result = (op.run)(&w, &eve());
                let may = dir & op.dir == op.dir && file & op.file == op.file;
                let may = may && (!op.own || through == Through::Owner);
                let about = format!("{} through {through:?} with {dir} on the directory, {file} on the file", op.name);
                match result {
                    Ok(()) => {
                        assert!(may, "{about} is allowed");
                        granted += 1;
                        w.check();
                        w = fresh();
                    }
                    Err(NsError::Denied { rule, .. }) => {
                        assert!(!may, "{about} is denied: {rule}");
                        denied += 1;
                    }
                    Err(error) => panic!("{about}: {error}"),
                }
            }
        }
    }
    assert!(granted > 2_000 && denied > 5_000, "{granted} {denied}");
}

#[test]
fn lists_of_members_and_chmod_work_together_as_in_posix() {
    let (w, owner) = (World::new(), actor(5, &[5]));
    w.admin(ns::Chmod { path: path("/"), mode: 0o777 });
    w.file(&owner, "/f", 0o640);
    let may = |want| {
        w.read(
            |read| Ok(ns::permit(&eve(), &ns::lookup(read, &eve(), &path("/f"))?.access, want, &String::new).is_ok()),
        )
        .unwrap()
    };
    assert!(!may(ns::AccessKind::Read));
    w.by(&owner, modify("/f", &format!("user:{EVE}:rw"))).unwrap();
    assert_eq!(w.acl("/f"), "user::rw-,user:6:rw-,group::r--,mask::rw-,other::---");
    assert_eq!(w.stat("/f").access.mode, 0o660, "ls shows the mask in place of the group");
    assert!(may(ns::AccessKind::Write));
    // chmod g-w withdraws it from all of them, and keeps the entries.
    w.by(&owner, ns::Chmod { path: path("/f"), mode: 0o640 }).unwrap();
    assert!(may(ns::AccessKind::Read) && !may(ns::AccessKind::Write));
    assert_eq!(w.acl("/f"), "user::rw-,user:6:rw-,group::r--,mask::r--,other::---");
    w.by(&owner, ns::Chmod { path: path("/f"), mode: 0o670 }).unwrap();
    assert!(may(ns::AccessKind::Write));
    assert_eq!(w.acl("/f"), "user::rw-,user:6:rw-,group::r--,mask::rwx,other::---");
    let names = parse_acl_names("user:6,group:77", &|_, _| None).unwrap();
    w.by(&owner, SetAcl { path: path("/f"), access: Some(AclEdit::Remove(names.access)), default: None }).unwrap();
    assert_eq!((w.acl("/f").as_str(), w.stat("/f").access.mode), ("user::rw-,group::r--,other::---", 0o640));
    assert_eq!(w.stat("/f").access.extended, None, "the record is as short as before");
    w.check();
}

#[test]
fn only_the_owner_and_the_administrator_change_an_acl() {
    let (w, owner) = (World::new(), actor(5, &[5]));
    w.mkdir(&Actor::admin(), "/d", 0o777);
    w.file(&owner, "/d/f", 0o666);
    let all = format!("user:{EVE}:rwx,mask::rwx");
    w.by(&owner, modify("/d/f", &all)).unwrap();
    let error = w.by(&eve(), modify("/d/f", "other::---")).unwrap_err();
    assert_eq!(error.to_string(), "/d/f: denied: only its owner (5) may, you are 6");
    w.admin(modify("/d/f", "other::---"));
    // The path counts: without `x` on the directory the owner cannot reach the file.
    w.admin(modify("/d", "user:5:rw"));
    let error = w.by(&owner, modify("/d/f", "other::r")).unwrap_err();
    assert_eq!(error.to_string(), "/d/f: denied: the ACL's entry user:5:rw- gives no x, and you are 5");
    w.check();
}

#[test]
fn what_is_no_acl_is_refused_and_changes_nothing() {
    let (w, admin) = (World::new(), Actor::admin());
    w.mkdir(&admin, "/d", 0o755);
    w.file(&admin, "/f", 0o644);
    w.admin(ns::Symlink { path: path("/l"), target: b"f".to_vec() });
    let refused = |op: SetAcl| w.by(&admin, op).unwrap_err();
    let error = refused(modify("/f", "default:user:6:r"));
    assert_eq!(
        (error.code(), error.to_string().as_str()),
        (ErrorCode::Invalid, "/f: only a directory has a default ACL, and this is none")
    );
    assert_eq!(refused(modify("/l", "user:6:r,default:other::r")).code(), ErrorCode::Invalid);
    // Nothing to clear is no error, as for setfacl -b.
    w.admin(SetAcl { path: path("/f"), access: Some(AclEdit::Clear), default: Some(AclEdit::Clear) });
    let error = refused(modify("/d", "user:6:r,mask::r,user:6:w"));
    assert_eq!(error.to_string(), "/d: user:6: the change names this entry of the ACL twice");
    assert_eq!(refused(modify("/d", "default:other::r,default:other::r")).code(), ErrorCode::Invalid);
    let users = |ids: std::ops::Range<usize>| ids.map(|id| format!("user:{id}:r")).collect::<Vec<_>>().join(",");
    w.admin(modify("/f", &users(0..ns::ACL_NAMED_MAX)));
    let full = w.acl("/f");
    let error = refused(modify("/f", "group:1:r"));
    assert_eq!(
        (error.code(), error.to_string().as_str()),
        (ErrorCode::TooMany, "named entries of one ACL: 64 is the limit here")
    );
    assert_eq!(
        refused(SetAcl {
            access: Some(AclEdit::Remove(vec![Named::User(PrincipalId(1)); 65])),
            ..modify("/f", "o::r")
        })
        .code(),
        ErrorCode::TooMany
    );
    assert_eq!(w.acl("/f"), full);
    w.admin(modify("/f", "user:1:w"));
    assert_eq!(refused(modify("/none", "o::r")).code(), ErrorCode::NotFound);
    // Over a link, the file changes.
    w.admin(SetAcl { path: path("/l"), access: Some(AclEdit::Clear), default: None });
    assert_eq!(w.acl("/f"), "user::rw-,group::r--,other::r--");
    assert_eq!(w.acl("/d"), "user::rwx,group::r-x,other::r-x");
    w.check();
}

#[test]
fn new_files_and_directories_inherit_the_default_acl_limited_by_their_mode() {
    let (w, owner) = (World::new(), actor(5, &[5]));
    w.admin(ns::Chmod { path: path("/"), mode: 0o777 });
    w.mkdir(&Actor::admin(), "/d", 0o777);
    w.admin(modify("/d", &format!("default:user:{EVE}:rwx,default:group::r-x,default:other::---")));
    let default = "default:user::rwx,default:user:6:rwx,default:group::r-x,default:mask::rwx,default:other::---";
    assert_eq!(w.acl("/d"), format!("user::rwx,group::rwx,other::rwx,{default}"), "it grants nothing on the directory");
    w.file(&owner, "/d/f", 0o640);
    assert_eq!(w.acl("/d/f"), "user::rw-,user:6:rwx,group::r-x,mask::r--,other::---");
    w.mkdir(&owner, "/d/sub", 0o775);
    assert_eq!(w.acl("/d/sub"), format!("user::rwx,user:6:rwx,group::r-x,mask::rwx,other::---,{default}"));
    w.file(&eve(), "/d/sub/f", 0o666);
    assert_eq!(w.acl("/d/sub/f"), "user::rw-,user:6:rwx,group::r-x,mask::rw-,other::---");
    // A file that is visible only when it is complete, in directories that nobody gave a mode.
    let hidden =
        ns::OpenWrite { posc: true, mkpath: true, mode: 0o600, ..open(&owner, "/d/sub/a/b/f", WriteMode::NewOnly) };
    w.admin(modify("/d/sub", "user:5:rwx"));
    let opened = w.by(&owner, hidden).unwrap();
    let uploads = w.read(|read| ns::uploads(read, None, 9)).unwrap();
    assert_eq!(uploads[0].extended.as_ref().map(|acl| acl.named.len()), Some(1));
    w.close(&owner, opened.writer, 9);
    assert_eq!(w.acl("/d/sub/a/b/f"), "user::rw-,user:6:rwx,group::r-x,mask::---,other::---");
    for made in ["/d/sub/a", "/d/sub/a/b"] {
        assert_eq!(w.acl(made), format!("user::rwx,user:6:rwx,group::r-x,mask::rwx,other::---,{default}"));
    }
    w.by(&owner, ns::Symlink { path: path("/d/l"), target: b"f".to_vec() }).unwrap();
    assert_eq!(w.acl("/d/l"), "user::rwx,group::rwx,other::rwx");
    // What exists keeps what it has: another name, another place, another content.
    w.file(&owner, "/plain", 0o600);
    w.admin(ns::Rename { from: path("/plain"), to: path("/d/moved"), replace: false });
    w.by(&owner, ns::Link { existing: path("/d/moved"), new: path("/d/linked") }).unwrap();
    let over = w.by(&owner, open(&owner, "/d/moved", WriteMode::Replace)).unwrap();
    w.close(&owner, over.writer, 5);
    assert_eq!(w.acl("/d/linked"), "user::rw-,group::---,other::---");
    let over = w.by(&owner, open(&owner, "/d/f", WriteMode::Replace)).unwrap();
    w.close(&owner, over.writer, 5);
    assert_eq!(w.acl("/d/f"), "user::rw-,user:6:rwx,group::r-x,mask::r--,other::---");
    w.admin(ns::Rename { from: path("/d/sub"), to: path("/sub"), replace: false });
    assert!(w.acl("/sub").ends_with(default), "{}", w.acl("/sub"));
    w.admin(SetAcl { path: path("/sub"), access: None, default: Some(AclEdit::Clear) });
    w.mkdir(&Actor::admin(), "/sub/new", 0o755);
    assert_eq!(w.acl("/sub/new"), "user::rwx,group::r-x,other::r-x");
    w.check();
}

#[test]
fn minimal_default_acl_replaces_the_umask_only() {
    let (w, owner) = (World::new(), actor(5, &[5]));
    w.mkdir(&Actor::admin(), "/d", 0o777);
    w.admin(SetAcl { path: path("/d"), access: None, default: Some(AclEdit::Replace(vec![])) });
    assert!(w.acl("/d").ends_with("default:user::rwx,default:group::rwx,default:other::rwx"));
    w.admin(modify("/d", "default:group::r-x,default:other::---"));
    w.file(&owner, "/d/f", 0o666);
    assert_eq!((w.acl("/d/f").as_str(), w.stat("/d/f").access.mode), ("user::rw-,group::r--,other::---", 0o640));
    assert_eq!(w.stat("/d/f").access.extended, None);
    w.check();
}

/// As for a umask: what no client asked for limits nothing.
#[test]
fn usual_modes_do_not_limit_a_default_acl() {
    let (w, owner) = (World::new(), actor(5, &[5]));
    w.admin(ns::Chmod { path: path("/"), mode: 0o777 });
    w.file(&owner, "/f", 0o644 | ns::USUAL_MODE);
    w.mkdir(&owner, "/e", 0o755 | ns::USUAL_MODE);
    assert_eq!((w.stat("/f").access.mode, w.stat("/e").access.mode), (0o644, 0o755), "no default ACL");
    w.mkdir(&Actor::admin(), "/d", 0o777);
    w.admin(modify("/d", "default:user:6:rwx,default:group::rwx,default:other::r-x"));
    w.file(&owner, "/d/f", 0o644 | ns::USUAL_MODE);
    assert_eq!(w.acl("/d/f"), "user::rw-,user:6:rwx,group::rwx,mask::rw-,other::r--");
    let hidden = ns::OpenWrite {
        posc: true,
        mkpath: true,
        mode: 0o644 | ns::USUAL_MODE,
        ..open(&owner, "/d/a/b/h", WriteMode::NewOnly)
    };
    let writer = w.by(&owner, hidden).unwrap().writer;
    w.close(&owner, writer, 1);
    assert_eq!(w.acl("/d/a/b/h"), w.acl("/d/f"));
    w.mkdir(&owner, "/d/e", 0o755 | ns::USUAL_MODE);
    for at in ["/d/a", "/d/a/b", "/d/e"] {
        assert!(
            w.acl(at).starts_with("user::rwx,user:6:rwx,group::rwx,mask::rwx,other::r-x,default:"),
            "{}",
            w.acl(at)
        );
    }
    w.check();
}

#[test]
fn new_file_needs_the_right_to_pass_even_a_directory_that_is_made_for_it() {
    let w = World::new();
    w.mkdir(&Actor::admin(), "/d", 0o777);
    w.admin(modify("/d", "default:user::rw,default:group::rwx,default:other::---"));
    for posc in [false, true] {
        let create = ns::OpenWrite { mkpath: true, posc, ..open(&eve(), "/d/new/f", WriteMode::NewOnly) };
        let denied = w.by(&eve(), create).unwrap_err();
        assert_eq!(denied.code(), ErrorCode::Denied, "{denied}");
    }
    let none = w.read(|read| ns::stat(read, &Actor::admin(), &path("/d/new"))).unwrap_err();
    assert_eq!(none.code(), ErrorCode::NotFound, "the directory is not made either");
    w.check();
}

#[test]
fn removal_of_entries_makes_no_default_acl() {
    let (w, admin) = (World::new(), Actor::admin());
    w.mkdir(&admin, "/d", 0o777);
    let names = |text: &str| parse_acl_names(text, &|_, _| None).unwrap();
    let remove = || AclEdit::Remove(names("user:6,group:7").access);
    w.admin(SetAcl { path: path("/d"), access: Some(remove()), default: Some(remove()) });
    assert_eq!(w.acl("/d"), "user::rwx,group::rwx,other::rwx");
    // One that is there stays, without these entries.
    w.admin(modify("/d", "default:user:6:r,default:other::---"));
    w.admin(SetAcl { path: path("/d"), access: None, default: Some(remove()) });
    assert!(w.acl("/d").ends_with("other::rwx,default:user::rwx,default:group::rwx,default:other::---"));
    w.check();
}

#[test]
fn file_removed_during_its_overwrite_comes_back_with_its_acl() {
    let (w, owner) = (World::new(), actor(5, &[5]));
    w.mkdir(&Actor::admin(), "/d", 0o777);
    w.file(&owner, "/d/f", 0o600);
    w.by(&owner, modify("/d/f", "user:6:r,group:9:w")).unwrap();
    let over = w.by(&owner, open(&owner, "/d/f", WriteMode::Replace)).unwrap();
    w.by(&owner, ns::Remove { path: path("/d/f") }).unwrap();
    w.close(&owner, over.writer, 5);
    assert_eq!(w.acl("/d/f"), "user::rw-,user:6:r--,group::---,group:9:-w-,mask::rw-,other::---");
    // But not if its writer may not create it any more: that needs both `w` and `x`.
    let over = w.by(&owner, open(&owner, "/d/f", WriteMode::Replace)).unwrap();
    w.by(&owner, ns::Remove { path: path("/d/f") }).unwrap();
    w.admin(modify("/d", "user:5:rw"));
    let content = ns::Committed { len: 5, sums: None, mtime: None };
    let commit = ns::Commit { writer: over.writer, content, completion: ns::Completion::ByClient };
    assert_eq!(w.by(&owner, commit).unwrap_err().code(), ErrorCode::Denied);
    w.check();
}

/// A manager commits for the writer, and may do everything.
#[test]
fn removed_file_does_not_come_back_for_a_writer_that_could_not_create_it() {
    let (w, admin) = (World::new(), Actor::admin());
    let content = ns::Committed { len: 5, sums: None, mtime: None };
    let commit = |writer| ns::Commit { writer, content, completion: ns::Completion::ByClient };
    w.mkdir(&admin, "/d", 0o755);
    let begins = || {
        w.file(&admin, "/d/f", 0o666);
        let over = w.by(&eve(), open(&eve(), "/d/f", WriteMode::Replace)).unwrap();
        w.admin(ns::Remove { path: path("/d/f") });
        over
    };
    let kept = begins();
    let refused = w.by(&admin, commit(kept.writer)).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Denied, "{refused}");
    assert_eq!(w.read(|read| ns::stat(read, &admin, &path("/d/f"))).unwrap_err().code(), ErrorCode::NotFound);
    // Later she may, and goes on with what was kept.
    w.admin(ns::Chmod { path: path("/d"), mode: 0o777 });
    let ns::OpenKind::Upload(upload) = kept.kind else { panic!("{:?}", kept.kind) };
    let resume =
        || ns::OpenWrite { resume: Some(ns::Resume::Upload(upload)), ..open(&eve(), "/d/f", WriteMode::Update) };
    let resumed = w.by(&eve(), resume()).unwrap();
    w.close(&admin, resumed.writer, 5);
    assert_eq!(w.stat("/d/f").owner(), PrincipalId(EVE));
    w.admin(ns::Remove { path: path("/d/f") });
    // The right at the open counts, even if it is gone at the close of a manager; and if it came later, it is too late.
    let over = begins();
    w.admin(ns::Chmod { path: path("/d"), mode: 0o755 });
    w.close(&admin, over.writer, 5);
    w.admin(ns::Remove { path: path("/d/f") });
    let over = begins();
    w.admin(ns::Chmod { path: path("/d"), mode: 0o777 });
    assert_eq!(w.by(&eve(), commit(over.writer)).unwrap_err().code(), ErrorCode::Denied);
    w.check();
}

/// As with open(2): the mode of a new file does not limit the open that creates it.
#[test]
fn creator_of_a_file_comes_back_to_it_whatever_its_mode_is() {
    let (w, owner) = (World::new(), actor(5, &[5]));
    w.admin(ns::Chmod { path: path("/"), mode: 0o777 });
    let create = ns::OpenWrite { mode: 0o444, ..open(&owner, "/f", WriteMode::NewOnly) };
    w.by(&owner, create).unwrap();
    let again = w.by(&owner, open(&owner, "/f", WriteMode::Update)).unwrap();
    // A file that was given away belongs to somebody else.
    w.admin(ns::Chown { path: path("/f"), owner: Some(PrincipalId(7)), group: None });
    let denied = w.by(&owner, open(&owner, "/f", WriteMode::Update)).unwrap_err();
    assert_eq!(denied.code(), ErrorCode::Denied, "{denied}");
    w.admin(ns::Chown { path: path("/f"), owner: Some(PrincipalId(5)), group: None });
    w.close(&owner, again.writer, 3);
    // It is complete, so its mode counts.
    let denied = w.by(&owner, open(&owner, "/f", WriteMode::Update)).unwrap_err();
    assert_eq!(denied.code(), ErrorCode::Denied, "{denied}");
    w.check();
}

#[test]
fn units_of_a_striped_file_may_be_written_by_whom_its_acl_lets() {
    let (w, admin) = (World::new(), Actor::admin());
    w.mkdir(&admin, "/d", 0o777);
    w.file(&admin, "/d/s", 0o600);
    w.admin(modify("/d/s", &format!("user:{EVE}:rw")));
    let stripe = types::Stripe::new(2, 64 << 10).unwrap();
    let units = vec![types::Placement::single_node(); 2];
    let placement = types::Placement { group: types::GroupId::STRIPED, in_sync: Vec::new() };
    let stripe = Some(ns::NewStripe { stripe, units, secret: types::striping::WriteSecret(5) });
    let over = ns::OpenWrite { placement, stripe, ..open(&eve(), "/d/s", WriteMode::Replace) };
    let opened = w.by(&eve(), over).unwrap();
    let unit = ns::OpenWrite {
        unit_of: Some(opened.writer),
        client: ns::unit_writer(PrincipalId(EVE), opened.object, 1),
        ..open(&eve(), "/d/s", WriteMode::Update)
    };
    w.by(&eve(), unit).unwrap();
    w.check();
}

/// The units were made with the access that the file had then.
#[test]
fn units_of_a_striped_file_follow_the_access_of_the_file() {
    let (w, owner) = (World::new(), actor(5, &[5]));
    w.mkdir(&Actor::admin(), "/d", 0o777);
    let stripe = types::Stripe::new(2, 64 << 10).unwrap();
    let units = vec![types::Placement::single_node(); 2];
    let placement = types::Placement { group: types::GroupId::STRIPED, in_sync: Vec::new() };
    let stripe = Some(ns::NewStripe { stripe, units, secret: types::striping::WriteSecret(5) });
    let create = ns::OpenWrite { placement, stripe, mode: 0o400, ..open(&owner, "/d/s", WriteMode::NewOnly) };
    let opened = w.by(&owner, create).unwrap();
    let unit = |who: &Actor, of: ns::WriterToken, unit| ns::OpenWrite {
        unit_of: Some(of),
        client: ns::unit_writer(who.principal, of.object, unit),
        ..open(who, "/d/s", WriteMode::Update)
    };
    for number in 0..2 {
        // Whatever the mode is: the file is the owner's own new one.
        let part = w.by(&owner, unit(&owner, opened.writer, number)).unwrap();
        w.admin(ns::Interrupt { writer: part.writer, kept_len: 3 });
    }
    w.admin(ns::EndStriped { writer: opened.writer });
    let resume = |op| ns::OpenWrite { resume: Some(ns::Resume::Visible), ..op };
    let goes_on = || w.by(&eve(), resume(open(&eve(), "/d/s", WriteMode::Update)));
    assert_eq!(goes_on().unwrap_err().code(), ErrorCode::Denied);
    w.by(&owner, modify("/d/s", &format!("user:{EVE}:rw"))).unwrap();
    let again = goes_on().unwrap();
    w.by(&eve(), resume(unit(&eve(), again.writer, 0))).unwrap();
    w.by(&owner, modify("/d/s", &format!("user:{EVE}:r"))).unwrap();
    for (number, about) in [(0, "the one that she has open"), (1, "the other one")] {
        let denied = w.by(&eve(), resume(unit(&eve(), again.writer, number))).unwrap_err();
        assert_eq!(denied.code(), ErrorCode::Denied, "{about}: {denied}");
    }
    w.by(&owner, modify("/d/s", &format!("user:{EVE}:w"))).unwrap();
    w.by(&eve(), resume(unit(&eve(), again.writer, 1))).unwrap();
    w.check();
}

#[test]
fn owners_give_files_to_their_own_groups_and_nobody_keeps_a_foreign_set_id() {
    let (w, owner) = (World::new(), actor(5, &[50, 51]));
    w.admin(ns::Chmod { path: path("/"), mode: 0o777 });
    w.file(&owner, "/f", 0o755);
    let chown = |owner: Option<u32>, group: Option<u32>| ns::Chown {
        path: path("/f"),
        owner: owner.map(PrincipalId),
        group: group.map(PrincipalId),
    };
    let mode = |at: &str| w.stat(at).access.mode;
    let chmod = |who: &Actor, at: &str, mode| w.by(who, ns::Chmod { path: path(at), mode });
    let text = |result: Result<(), NsError>| result.unwrap_err().to_string();
    assert!(text(w.by(&owner, chown(Some(6), None))).contains("only the administrator may change a file's owner"));
    assert!(text(w.by(&owner, chown(None, Some(52)))).contains("choose among its own groups only"));
    assert!(text(w.by(&actor(6, &[50]), chown(None, Some(50)))).contains("only its owner (5) may"));
    w.by(&owner, chown(Some(5), Some(51))).unwrap();
    // chown takes the set-id bits, and the set-group-id bit of a file that is not executable stays for a member.
    chmod(&owner, "/f", 0o6755).unwrap();
    w.by(&owner, chown(None, Some(50))).unwrap();
    assert_eq!(mode("/f"), 0o755);
    chmod(&owner, "/f", 0o6744).unwrap();
    w.by(&owner, chown(None, Some(51))).unwrap();
    assert_eq!(mode("/f"), 0o2744);
    w.admin(chown(None, Some(52)));
    assert_eq!(mode("/f"), 0o2744, "the administrator may give any group");
    // An owner that is not in the file's group sets no set-group-id bit, and a change of the ACL takes it too.
    chmod(&owner, "/f", 0o2755).unwrap();
    assert_eq!(mode("/f"), 0o755);
    w.admin(ns::Chmod { path: path("/f"), mode: 0o2755 });
    w.by(&owner, modify("/f", "user:6:r")).unwrap();
    assert_eq!(mode("/f"), 0o755);
    // A directory keeps its bits when it changes hands; its files get its group, and the bit only for members.
    w.mkdir(&owner, "/d", 0o777);
    w.admin(ns::Chmod { path: path("/d"), mode: 0o2777 });
    w.admin(ns::Chown { path: path("/d"), owner: Some(PrincipalId(7)), group: Some(PrincipalId(52)) });
    assert_eq!(mode("/d"), 0o2777);
    w.mkdir(&owner, "/d/e", 0o755);
    for (who, at) in [(&owner, "/d/f"), (&actor(8, &[52]), "/d/g")] {
        w.by(who, ns::OpenWrite { mode: 0o2755, ..open(who, at, WriteMode::NewOnly) }).unwrap();
    }
    assert_eq!((mode("/d/e"), w.stat("/d/e").access.group), (0o2755, PrincipalId(52)));
    assert_eq!((mode("/d/f"), w.stat("/d/f").access.group), (0o755, PrincipalId(52)));
    assert_eq!(mode("/d/g"), 0o2755);
    w.check();
}

/// Otherwise a program would run with the rights of its owner and group, and do what somebody else has written.
#[test]
fn whoever_writes_a_file_takes_its_set_id_bits() {
    let (w, owner) = (World::new(), actor(5, &[50]));
    w.admin(ns::Chmod { path: path("/"), mode: 0o777 });
    let mode = || w.stat("/f").access.mode;
    let fresh = |mode| {
        let _ = w.by(&Actor::admin(), ns::Remove { path: path("/f") });
        w.file(&owner, "/f", 0o777);
        w.by(&owner, ns::Chmod { path: path("/f"), mode }).unwrap();
    };
    for how in [WriteMode::Replace, WriteMode::Update] {
        // The group may not execute the last one, so its bit has another meaning.
        for (before, after) in [(0o6777, 0o777), (0o2777, 0o777), (0o1666, 0o1666), (0o6767, 0o2767)] {
            for who in [&eve(), &owner] {
                fresh(before);
                let writer = w.by(who, open(who, "/f", how)).unwrap().writer;
                assert_eq!(mode(), before, "nothing is written yet");
                // A manager records the end.
                w.close(&Actor::admin(), writer, 5);
                assert_eq!(mode(), after, "{how:?} of {before:o} by {}", who.principal);
            }
            fresh(before);
            let writer = w.by(&Actor::admin(), open(&Actor::admin(), "/f", how)).unwrap().writer;
            w.close(&Actor::admin(), writer, 5);
            assert_eq!(mode(), before, "the administrator may");
        }
    }
    // Also if the writer is lost.
    fresh(0o6777);
    let writer = w.by(&eve(), open(&eve(), "/f", WriteMode::Update)).unwrap().writer;
    w.admin(ns::Interrupt { writer, kept_len: 3 });
    assert_eq!(mode(), 0o777);
    // A file that is made again at the close is the writer's, with the group of the old one. Not even the administrator gives it such rights.
    for (who, before, after) in
        [(eve(), 0o6767, 0o767), (Actor::admin(), 0o6777, 0o777), (owner.clone(), 0o6767, 0o2767)]
    {
        fresh(before);
        let writer = w.by(&who, open(&who, "/f", WriteMode::Replace)).unwrap().writer;
        w.admin(ns::Remove { path: path("/f") });
        w.close(&who, writer, 5);
        assert_eq!((w.stat("/f").owner(), mode()), (who.principal, after));
    }
    w.check();
}

#[test]
fn acls_are_there_after_a_restart_and_the_check_compares_them() {
    let (w, admin) = (World::new(), Actor::admin());
    w.mkdir(&admin, "/d", 0o755);
    w.admin(modify("/d", "user:6:rwx,group:9:r,default:user:6:rwx"));
    w.file(&admin, "/d/f", 0o644);
    w.admin(modify("/", "user:9:r"));
    let shown = ["/", "/d", "/d/f"].map(|at| w.acl(at));
    let again = World::on(Arc::clone(&w.kv));
    assert_eq!(["/", "/d", "/d/f"].map(|at| again.acl(at)), shown);
    assert!(shown[2].contains("user:6:rwx") && shown[1].contains("default:mask::rwx"), "{shown:?}");
    again.check();
    // The entry of `/d` without its ACL, as an old version would have written it.
    let key = [b"D".as_slice(), &1_u64.to_be_bytes(), b"d"].concat();
    let whole = w.kv.snapshot().get(&key).unwrap().unwrap();
    for len in [28, 28 + 3 + 11] {
        let (key, value) = (key.clone(), whole[..len].to_vec());
        transact(&*w.kv, Durability::Synced, move |txn| {
            txn.put(&key, &value);
            (OpOutcome::Commit, ())
        })
        .unwrap();
        let mut findings = Vec::new();
        ns::check(&*w.kv.snapshot(), &mut |finding| findings.push(finding.what)).unwrap();
        assert_eq!(findings, ["the directory's record and its entry do not agree"], "cut at {len}");
    }
}

/// The bytes of ACLs; without one they are those of `golden.txt`. A change is a change of the format.
#[test]
fn bytes_of_acls_are_pinned() {
    let (w, admin) = (World::new(), Actor::admin());
    w.mkdir(&admin, "/d", 0o755);
    w.file(&admin, "/d/f", 0o644);
    w.by(&admin, ns::OpenWrite { posc: true, ..open(&admin, "/d/u", WriteMode::NewOnly) }).unwrap();
    let get = |key: &[u8]| w.kv.snapshot().get(key).unwrap().unwrap();
    let dir = w.stat("/d").ino.0.to_be_bytes();
    let keys = || {
        let upload = w.read(|read| ns::uploads(read, None, 9)).unwrap().last().unwrap().upload;
        let file = [b"D".as_slice(), &dir, b"f"].concat();
        let entry = [b"D".as_slice(), &1_u64.to_be_bytes(), b"d"].concat();
        [file, entry, [b"I".as_slice(), &dir].concat(), [b"U".as_slice(), &upload.0.to_be_bytes()].concat()]
    };
    let before = keys().map(|key| get(&key));
    w.admin(modify("/d/f", "user:258:rw,group:1:x"));
    w.admin(modify("/d", "user:7:rwx,default:user:6:rw,default:group:5:r"));
    let upload = ns::OpenWrite { posc: true, ..open(&admin, "/d/v", WriteMode::NewOnly) };
    w.by(&admin, upload).unwrap();
    let after = keys().map(|key| get(&key));
    let access = [0x86, 0, 11, 4, 6, 0, 0, 1, 2, 0x81, 0, 0, 0, 1];
    assert!(after[0].ends_with(&access) && after[0].len() == before[0].len() + access.len(), "{:02x?}", after[0]);
    let of_dir = [0x86, 0, 6, 5, 7, 0, 0, 0, 7];
    let entry = [&of_dir[..], &[0x87, 0, 0]].concat();
    assert_eq!(after[1][4..], [&before[1][4..], &entry].concat()[..], "mode apart");
    assert_eq!((&before[1][2..4], &after[1][2..4]), (&[1, 0o355][..], &[1, 0o375][..]));
    let record = [&of_dir[..], &[0x87, 0, 14, 7, 5, 5, 7, 6, 0, 0, 0, 6, 0x84, 0, 0, 0, 5]].concat();
    assert!(after[2].ends_with(&record) && after[2].len() == before[2].len() + record.len(), "{:02x?}", after[2]);
    let of_upload = [0x82, 0, 11, 5, 6, 0, 0, 0, 6, 0x84, 0, 0, 0, 5];
    assert!(after[3].ends_with(&of_upload) && after[3].len() == before[3].len() + of_upload.len(), "{:02x?}", after[3]);
    for at in ["/d/f", "/d"] {
        w.admin(SetAcl { path: path(at), access: Some(AclEdit::Clear), default: Some(AclEdit::Clear) });
    }
    w.admin(ns::Chmod { path: path("/d"), mode: 0o755 });
    w.admin(ns::Chmod { path: path("/d/f"), mode: 0o644 });
    let cleared = keys().map(|key| get(&key));
    assert_eq!([0, 1, 2].map(|at| cleared[at].len()), [0, 1, 2].map(|at| before[at].len()));
    assert_eq!(cleared[1], before[1], "an entry has no times, so it is as it was");
}

/// Cuts and changes of each byte of records with ACLs: damage, a later version, or another record; never a panic, and never an inode without its ACL.
#[test]
fn damaged_acls_are_refused() {
    let (w, admin) = (World::new(), Actor::admin());
    w.mkdir(&admin, "/d", 0o755);
    w.file(&admin, "/d/f", 0o600);
    w.admin(ns::Symlink { path: path("/l"), target: b"d".to_vec() });
    let plain = w.kv.dump();
    w.admin(modify("/d", "user:6:rwx,default:user:6:rwx"));
    w.admin(modify("/d/f", "user:6:rw,group:9:r"));
    let changed: Vec<_> =
        w.kv.dump().into_iter().filter(|pair| !plain.contains(pair) && b"DI".contains(&pair.0[0])).collect();
    assert_eq!(changed.len(), 3);
    for (key, value) in &changed {
        let at = value.iter().rposition(|byte| *byte == 0x86).unwrap();
        let try_with = |bytes: Vec<u8>| {
            let key = key.clone();
            transact(&*w.kv, Durability::Synced, move |txn| {
                txn.put(&key, &bytes);
                (OpOutcome::Commit, ())
            })
            .unwrap();
            let inode = |at: &str| w.read(|read| ns::stat(read, &Actor::admin(), &path(at)));
            (inode("/d"), inode("/d/f"), ns::check(&*w.kv.snapshot(), &mut |_| {}).is_ok())
        };
        for len in at + 1..value.len() {
            // A directory's record without its last field is whole, and the check compares it with its entry.
            let results = try_with(value[..len].to_vec());
            let is_cut_between_fields = value[len] == 0x87;
            let refused = [&results.0, &results.1]
                .into_iter()
                .any(|result| result.as_ref().is_err_and(|error| error.code() == ErrorCode::Damaged));
            assert_eq!(refused, !is_cut_between_fields, "{} cut at {len}", key.escape_ascii());
        }
        for byte in at..value.len() {
            for bits in [0x01, 0x08, 0x80, 0xff] {
                let mut bytes = value.clone();
                bytes[byte] ^= bits;
                let _ = try_with(bytes);
            }
        }
        // A field twice, a field before its place, and an entry that marks a default ACL with more than nothing.
        let tail = &value[at..];
        let is_entry = value.ends_with(&[0x87, 0, 0]);
        let mut marked = value.clone();
        marked.truncate(value.len() - 1);
        marked.extend_from_slice(&[1, 7]);
        for bad in [[value, tail].concat(), [value, &[0x01, 0, 0][..]].concat(), marked] {
            if bad.len() == value.len() + 1 && !is_entry {
                continue;
            }
            let results = try_with(bad);
            let is_damage = |result: &Result<Inode, NsError>| matches!(result, Err(NsError::Damaged { .. }));
            assert!(is_damage(&results.0) || is_damage(&results.1), "{}", key.escape_ascii());
        }
        // A tag that this version does not know, as an older one does not know that of an ACL.
        let mut newer = value.clone();
        newer[at] = 0xa6;
        let results = try_with(newer);
        let refused = |result: &Result<Inode, NsError>| matches!(result, Err(NsError::Newer { feature: 0xa6, .. }));
        assert!(refused(&results.0) || refused(&results.1));
        assert!(try_with(value.clone()).2);
    }
    // A symbolic link has no ACL.
    let key = [b"D".as_slice(), &1_u64.to_be_bytes(), b"l"].concat();
    let mut value = w.kv.snapshot().get(&key).unwrap().unwrap();
    value.extend_from_slice(&[0x86, 0, 1, 7]);
    transact(&*w.kv, Durability::Synced, move |txn| {
        txn.put(&key, &value);
        (OpOutcome::Commit, ())
    })
    .unwrap();
    let error = w.read(|read| ns::stat_no_follow(read, &Actor::admin(), &path("/l"))).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Damaged, "{error}");
}
