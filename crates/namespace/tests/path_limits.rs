//! The limits of a credential on paths: which operation needs what, before and after symbolic links.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::sync::Arc;

use crate::acls::{World, actor, eve, modify, open, path};
use crate::model::limits::Rules;
use kv::{Durability, KvError, Read, ScanOrder, Visit};
use namespace::PathOperation::{
    self as Op, CreateDirectory, CreateFile, List, ModifyDirectory, ModifyFile, Poll, RenameFile, Stage, Stat,
};
use namespace::{self as ns, Actor, NsError, Operation, PathLimits, WriteMode, XattrMode};
use types::{BootId, ErrorCode, NsPath, PrincipalId, RequestNumber, Timestamp};

/// Some operations on some paths, and nothing below them.
#[derive(Debug)]
enum These {
    Only(Vec<(Op, &'static str)>),
    AllBut(Op, &'static str),
}

impl PathLimits for These {
    fn permit(&self, operation: Op, at: &NsPath) -> Result<(), String> {
        let is = |one: &(Op, &str)| one.0 == operation && one.1.as_bytes() == at.as_bytes();
        let granted = match self {
            Self::Only(these) => these.iter().any(is),
            Self::AllBut(operation, path) => !is(&(*operation, *path)),
        };
        if granted { Ok(()) } else { Err(format!("no {operation:?} of {}", at.as_bytes().escape_ascii())) }
    }
}

/// The administrator, so that nothing but the limits denies anything.
fn limited(limits: These) -> Actor {
    Actor::admin().with_limits(Arc::new(limits))
}

/// Everything at and below these paths, as Eve.
fn within(paths: &[&str]) -> Actor {
    only(&Op::ALL, paths)
}

fn only(operations: &[Op], paths: &[&str]) -> Actor {
    let rules = paths.iter().map(|path| (operations.to_vec(), path.as_bytes().to_vec())).collect();
    eve().with_limits(Arc::new(Rules(rules)))
}

fn stat(w: &World, who: &Actor, at: &str) -> Result<ns::Inode, NsError> {
    w.read(|read| ns::stat(read, who, &path(at)))
}

fn denied(result: Result<impl std::fmt::Debug, NsError>, about: &str) -> String {
    match result {
        Err(NsError::Denied { rule, .. }) => rule,
        other => panic!("{about}: {other:?}"),
    }
}

fn rename(from: &str, to: &str) -> ns::Rename {
    ns::Rename { from: path(from), to: path(to), replace: true }
}

struct Needs {
    name: &'static str,
    needs: Vec<(Op, &'static str)>,
    run: fn(&World, &Actor) -> Result<(), NsError>,
}

#[allow(clippy::too_many_lines)]
fn operations() -> Vec<Needs> {
    fn op<O: Operation + Send + 'static>(w: &World, who: &Actor, op: O) -> Result<(), NsError> {
        w.by(who, op).map(drop)
    }
    fn of(name: &'static str, needs: &[(Op, &'static str)], run: fn(&World, &Actor) -> Result<(), NsError>) -> Needs {
        Needs { name, needs: needs.to_vec(), run }
    }
    fn new(at: &str) -> ns::OpenWrite {
        open(&Actor::admin(), at, WriteMode::NewOnly)
    }
    vec![
        of("stat", &[(Stat, "/d/f")], |w, who| stat(w, who, "/d/f").map(drop)),
        of("stat behind a link", &[(Stat, "/l/f"), (Stat, "/d/f")], |w, who| stat(w, who, "/l/f").map(drop)),
        of("stat of a link's target", &[(Stat, "/d/s"), (Stat, "/d/f")], |w, who| stat(w, who, "/d/s").map(drop)),
        of("stat of a link", &[(Stat, "/d/s")], |w, who| {
            w.read(|read| ns::stat_no_follow(read, who, &path("/d/s"))).map(drop)
        }),
        of("lookup", &[(Stat, "/d/f")], |w, who| w.read(|read| ns::lookup(read, who, &path("/d/f"))).map(drop)),
        of("poll", &[(Poll, "/d/f")], |w, who| w.read(|read| ns::lookup_for(read, who, &path("/d/f"), Poll)).map(drop)),
        of("stage", &[(Stage, "/l/f"), (Stage, "/d/f")], |w, who| {
            w.read(|read| ns::lookup_for(read, who, &path("/l/f"), Stage)).map(drop)
        }),
        of("list", &[(List, "/l"), (List, "/d")], |w, who| {
            w.read(|read| ns::open_list(read, who, &path("/l/"), true)).map(drop)
        }),
        of("read", &[(Op::Read, "/l/s"), (Op::Read, "/d/s"), (Op::Read, "/d/f")], |w, who| {
            w.read(|read| ns::open_read(read, who, &path("/l/s"), false)).map(drop)
        }),
        of("readlink", &[(Stat, "/d/s")], |w, who| w.read(|read| ns::readlink(read, who, &path("/d/s"))).map(drop)),
        of("get_xattr", &[(Stat, "/d/f")], |w, who| {
            w.read(|read| ns::get_xattr(read, who, &path("/d/f").into(), b"k")).map(drop)
        }),
        of("list_xattrs", &[(Stat, "/d/f")], |w, who| {
            w.read(|read| ns::list_xattrs(read, who, &path("/d/f").into())).map(drop)
        }),
        of("set_xattr", &[(ModifyFile, "/d/f")], |w, who| {
            let (name, value) = (b"k".to_vec(), vec![]);
            op(w, who, ns::SetXattr { of: path("/d/f").into(), name, value, mode: XattrMode::Set })
        }),
        of("set_xattr of a directory", &[(ModifyDirectory, "/d/e")], |w, who| {
            let (name, value) = (b"k".to_vec(), vec![]);
            op(w, who, ns::SetXattr { of: path("/d/e").into(), name, value, mode: XattrMode::Set })
        }),
        of("remove_xattr", &[(ModifyFile, "/d/f")], |w, who| {
            op(w, who, ns::RemoveXattr { of: path("/d/f").into(), name: b"k".to_vec() })
        }),
        of("chmod", &[(ModifyFile, "/l/f"), (ModifyFile, "/d/f")], |w, who| {
            op(w, who, ns::Chmod { path: path("/l/f"), mode: 0o600 })
        }),
        of("chmod of a directory", &[(ModifyDirectory, "/l"), (ModifyDirectory, "/d")], |w, who| {
            op(w, who, ns::Chmod { path: path("/l"), mode: 0o700 })
        }),
        of("chown", &[(ModifyFile, "/d/f")], |w, who| {
            op(w, who, ns::Chown { path: path("/d/f"), owner: Some(PrincipalId(4)), group: None })
        }),
        of("utimes", &[(ModifyDirectory, "/d/e")], |w, who| {
            op(w, who, ns::Utimes { path: path("/d/e"), mtime: Some(Timestamp(1)), atime: None })
        }),
        of("set ACL", &[(ModifyFile, "/d/f")], |w, who| op(w, who, modify("/d/f", "user:8:r"))),
        of("set default ACL", &[(ModifyDirectory, "/d/e")], |w, who| op(w, who, modify("/d/e", "default:user:8:r"))),
        of("truncate", &[(ModifyFile, "/l/f"), (ModifyFile, "/d/f")], |w, who| {
            let client = open(who, "/l/f", WriteMode::Update).client;
            op(w, who, ns::Truncate { path: path("/l/f"), len: 1, client, boot: BootId(1), request: None })
        }),
        of("update", &[(ModifyFile, "/d/f")], |w, who| op(w, who, open(who, "/d/f", WriteMode::Update))),
        of("replace", &[(ModifyFile, "/l/f"), (ModifyFile, "/d/f")], |w, who| {
            op(w, who, open(who, "/l/f", WriteMode::Replace))
        }),
        of("replace, hidden", &[(ModifyFile, "/d/f")], |w, who| {
            op(w, who, ns::OpenWrite { posc: true, ..open(who, "/d/f", WriteMode::Replace) })
        }),
        of("replace nothing", &[(CreateFile, "/l/n"), (CreateFile, "/d/n")], |w, who| {
            op(w, who, open(who, "/l/n", WriteMode::Replace))
        }),
        of("new file", &[(CreateFile, "/d/n")], |w, who| op(w, who, open(who, "/d/n", WriteMode::NewOnly))),
        of("new file, hidden", &[(CreateFile, "/d/n")], |w, who| {
            op(w, who, ns::OpenWrite { posc: true, ..new("/d/n") })
        }),
        of("new file behind a dangling link", &[(CreateFile, "/d/none"), (CreateFile, "/d/new")], |w, who| {
            op(w, who, open(who, "/d/none", WriteMode::Replace))
        }),
        of(
            "new file, new directories",
            &[(CreateFile, "/d/n/m/f"), (CreateDirectory, "/d/n"), (CreateDirectory, "/d/n/m")],
            |w, who| op(w, who, ns::OpenWrite { mkpath: true, ..new("/d/n/m/f") }),
        ),
        of(
            "new file, new directory behind a link",
            &[(CreateFile, "/l/n/f"), (CreateDirectory, "/l/n"), (CreateFile, "/d/n/f"), (CreateDirectory, "/d/n")],
            |w, who| op(w, who, ns::OpenWrite { mkpath: true, ..new("/l/n/f") }),
        ),
        of(
            "new file, new directories of a dangling link",
            &[(CreateFile, "/d/none/f"), (CreateDirectory, "/d/new"), (CreateFile, "/d/new/f")],
            |w, who| op(w, who, ns::OpenWrite { mkpath: true, ..new("/d/none/f") }),
        ),
        of("mkdir", &[(CreateDirectory, "/l/n"), (CreateDirectory, "/d/n")], |w, who| {
            op(w, who, ns::Mkdir { path: path("/l/n"), mode: 0o777, parents: false })
        }),
        of("mkdir -p", &[(CreateDirectory, "/d/n"), (CreateDirectory, "/d/n/m")], |w, who| {
            op(w, who, ns::Mkdir { path: path("/d/n/m"), mode: 0o777, parents: true })
        }),
        of("mkdir -p of what is there", &[(CreateDirectory, "/d/e")], |w, who| {
            op(w, who, ns::Mkdir { path: path("/d/e"), mode: 0o777, parents: true })
        }),
        of("symlink", &[(CreateFile, "/l/n"), (CreateFile, "/d/n")], |w, who| {
            op(w, who, ns::Symlink { path: path("/l/n"), target: b"/secret".to_vec() })
        }),
        of("link", &[(Op::Link, "/l/f"), (Op::Link, "/d/f"), (CreateFile, "/k/n"), (CreateFile, "/p/n")], |w, who| {
            op(w, who, ns::Link { existing: path("/l/f"), new: path("/k/n") })
        }),
        of(
            "rename",
            &[(RenameFile, "/l/f"), (RenameFile, "/d/f"), (RenameFile, "/k/n"), (RenameFile, "/p/n")],
            |w, who| op(w, who, rename("/l/f", "/k/n")),
        ),
        of("rename over", &[(RenameFile, "/d/f"), (ModifyFile, "/k/f"), (ModifyFile, "/p/f")], |w, who| {
            op(w, who, rename("/d/f", "/k/f"))
        }),
        of("rename a link", &[(RenameFile, "/d/s"), (RenameFile, "/p/n")], |w, who| op(w, who, rename("/d/s", "/p/n"))),
        of(
            "rename a directory",
            &[(ModifyDirectory, "/l/e"), (ModifyDirectory, "/d/e"), (ModifyDirectory, "/p/n")],
            |w, who| op(w, who, rename("/l/e", "/p/n")),
        ),
        of("rename a directory over", &[(ModifyDirectory, "/d/e"), (ModifyDirectory, "/p/e")], |w, who| {
            op(w, who, rename("/d/e", "/p/e"))
        }),
        of("remove", &[(ModifyFile, "/l/f"), (ModifyFile, "/d/f")], |w, who| {
            op(w, who, ns::Remove { path: path("/l/f") })
        }),
        of("rmdir", &[(ModifyDirectory, "/d/e")], |w, who| op(w, who, ns::Rmdir { path: path("/d/e") })),
        of("remove any, a file", &[(ModifyFile, "/d/s")], |w, who| op(w, who, ns::RemoveAny { path: path("/d/s") })),
        of("remove any, a directory", &[(ModifyDirectory, "/l/e"), (ModifyDirectory, "/d/e")], |w, who| {
            op(w, who, ns::RemoveAny { path: path("/l/e") })
        }),
        of("make tree", &[(ModifyDirectory, "/d/e")], |w, who| op(w, who, ns::MakeTree { path: path("/d/e") })),
        of("set policy", &[(ModifyDirectory, "/l"), (ModifyDirectory, "/d")], |w, who| {
            op(w, who, ns::SetPolicy { path: path("/l"), policy: types::Policy::default() })
        }),
        of("remove policy", &[(ModifyDirectory, "/p")], |w, who| op(w, who, ns::RemovePolicy { path: path("/p") })),
    ]
}

/// `/d` with a file, a directory and symbolic links; `/p` with the same names; links `/l` and `/k` to them.
fn world() -> World {
    let (w, admin) = (World::new(), Actor::admin());
    w.admin(ns::Chmod { path: path("/"), mode: 0o777 });
    for dir in ["/d", "/p"] {
        w.mkdir(&admin, dir, 0o777);
        w.mkdir(&admin, &format!("{dir}/e"), 0o777);
        let at = format!("{dir}/f");
        w.file(&admin, &at, 0o666);
        let (name, value) = (b"k".to_vec(), b"v".to_vec());
        w.admin(ns::SetXattr { of: path(&at).into(), name, value, mode: XattrMode::Set });
    }
    for (link, target) in [("/d/s", "f"), ("/d/none", "new"), ("/l", "d"), ("/k", "/p/.")] {
        w.admin(ns::Symlink { path: path(link), target: target.as_bytes().to_vec() });
    }
    w.admin(ns::SetPolicy { path: path("/p"), policy: types::Policy::default() });
    w
}

#[test]
fn each_operation_needs_exactly_its_rights_before_and_after_links() {
    for op in operations() {
        let w = world();
        for (operation, at) in &op.needs {
            let about = format!("{} without {operation:?} of {at}", op.name);
            let rule = denied((op.run)(&w, &limited(These::AllBut(*operation, at))), &about);
            assert_eq!(rule, format!("no {operation:?} of {at}"), "{about}");
        }
        let done = (op.run)(&w, &limited(These::Only(op.needs.clone())));
        assert!(done.is_ok(), "{}: {done:?}", op.name);
        w.check();
    }
}

#[test]
fn denial_comes_before_anything_is_read() {
    /// Fails the test.
    struct Nothing;
    impl Read for Nothing {
        fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
            panic!("{} was read", key.escape_ascii())
        }
        fn scan(&self, start: &[u8], _: &[u8], _: ScanOrder, _: Visit<'_>) -> Result<(), KvError> {
            panic!("{} was scanned", start.escape_ascii())
        }
    }
    let (who, at) = (within(&["/a"]), path("/ab/f"));
    let found = ns::stat(&Nothing, &who, &at);
    assert_eq!(found.unwrap_err().to_string(), "/ab/f: denied: no rule permits Stat of /ab/f");
    denied(ns::open_read(&Nothing, &who, &at, false), "read");
    denied(ns::open_list(&Nothing, &who, &at, false), "list");
    denied(ns::list_xattrs(&Nothing, &who, &at.clone().into()), "attributes");
    denied(ns::policy_for(&Nothing, &who, &at), "policy");
}

#[test]
fn limits_compare_whole_names() {
    let w = world();
    for dir in ["/a", "/ab"] {
        w.mkdir(&Actor::admin(), dir, 0o777);
        w.file(&Actor::admin(), &format!("{dir}/f"), 0o666);
    }
    let who = within(&["/a"]);
    assert!(stat(&w, &who, "/a/f").is_ok() && stat(&w, &who, "//a/./f").is_ok() && stat(&w, &who, "/a/").is_ok());
    for at in ["/ab/f", "/ab", "/ab/", "/"] {
        denied(stat(&w, &who, at), at);
    }
    let file = within(&["/a/f"]);
    assert!(stat(&w, &file, "/a/f").is_ok());
    denied(stat(&w, &file, "/a"), "the directory above");
    denied(w.by(&file, rename("/a/f", "/a/ff")), "a name that begins the same");
}

/// Puts links into `/a`, which is all that the actor may use.
#[test]
fn links_lead_nowhere_outside_the_limits() {
    let w = World::new();
    w.admin(ns::Chmod { path: path("/"), mode: 0o777 });
    for dir in ["/a", "/b", "/b/deep", "/a/sub"] {
        w.mkdir(&Actor::admin(), dir, 0o777);
    }
    for file in ["/a/f", "/b/f", "/b/deep/f", "/a/sub/f"] {
        w.file(&Actor::admin(), file, 0o666);
    }
    let who = within(&["/a"]);
    let link = |at: &str, target: &str| {
        w.by(&who, ns::Symlink { path: path(at), target: target.as_bytes().to_vec() }).unwrap();
    };
    // Where it leads, and what the limits say about that.
    for (number, (target, end)) in [
        ("f", None),
        ("/a/f", None),
        ("../a/f", None),
        ("sub/../f", None),
        ("/../a/f", None),
        ("../../../a/f", None),
        ("sub/../sub/../../a/sub/f", None),
        ("/b/f", Some("Stat of /b/f")),
        ("/b/nothing", Some("Stat of /b/nothing")),
        ("/nothing/at/all", Some("Stat of /nothing/at/all")),
        ("../b/f", Some("Stat of /b/f")),
        ("sub/../../b/f", Some("Stat of /b/f")),
        ("..", Some("Stat of /")),
        ("/", Some("Stat of /")),
        // It comes back, but tells whether `/b/deep` exists.
        ("/b/deep/../../a/f", Some("Stat of /b/deep")),
        ("/b/none/../../a/f", Some("Stat of /b/none")),
        ("/b/f/../../a/f", Some("Stat of /b/f")),
        ("/b/../a/f", Some("Stat of /b")),
    ]
    .into_iter()
    .enumerate()
    {
        let at = format!("/a/link-{number}");
        link(&at, target);
        let result = stat(&w, &who, &at);
        match end {
            None => assert!(result.is_ok(), "{target}: {result:?}"),
            Some(end) => assert_eq!(denied(result, target), format!("no rule permits {end}"), "{target}"),
        }
        // Without the limits it leads somewhere or nowhere, and is not denied.
        assert!(!matches!(stat(&w, &eve(), &at), Err(NsError::Denied { .. })));
        // Nor does a link to it, or a path over it.
        link(&format!("/a/again-{number}"), &format!("link-{number}"));
        let again = stat(&w, &who, &format!("/a/again-{number}"));
        assert_eq!(again.is_ok(), end.is_none(), "{target}: {again:?}");
        // The link itself can be seen, moved and removed.
        assert!(w.read(|read| ns::readlink(read, &who, &path(&at))).is_ok());
        w.by(&who, rename(&at, "/a/moved")).unwrap();
        w.by(&who, ns::Remove { path: path("/a/moved") }).unwrap();
    }
    link("/a/out", "/b");
    for denied_open in [WriteMode::NewOnly, WriteMode::Replace, WriteMode::Update] {
        for name in ["f", "new"] {
            denied(w.by(&who, open(&who, &format!("/a/out/{name}"), denied_open)), "open");
        }
    }
    for op in [rename("/a/out/f", "/a/x"), rename("/a/f", "/a/out/x"), rename("/b/f", "/a/x"), rename("/a/f", "/b/x")] {
        denied(w.by(&who, op.clone()), &format!("{op:?}"));
    }
    denied(w.by(&who, ns::Link { existing: path("/a/out/f"), new: path("/a/x") }), "link from there");
    denied(w.by(&who, ns::Link { existing: path("/a/f"), new: path("/a/out/x") }), "link to there");
    // The path counts, not what else leads to the file.
    w.admin(ns::Link { existing: path("/b/f"), new: path("/a/second") });
    assert!(w.read(|read| ns::open_read(read, &who, &path("/a/second"), false)).is_ok());
    w.check();
}

#[test]
fn links_from_outside_into_the_limits_need_both_paths() {
    let w = world();
    w.mkdir(&Actor::admin(), "/a", 0o777);
    w.file(&Actor::admin(), "/a/f", 0o666);
    w.admin(ns::Symlink { path: path("/in"), target: b"a".to_vec() });
    denied(stat(&w, &within(&["/a"]), "/in/f"), "the path as given");
    denied(stat(&w, &within(&["/in"]), "/in/f"), "the path after the link");
    assert!(stat(&w, &within(&["/a", "/in"]), "/in/f").is_ok());
}

#[test]
fn creating_does_not_replace_and_changing_does() {
    let w = world();
    let creates = only(&[CreateFile, CreateDirectory, RenameFile, Stat], &["/p"]);
    let changes = only(&[CreateFile, CreateDirectory, RenameFile, Stat, ModifyFile, ModifyDirectory], &["/p"]);
    let writes = |who: &Actor, at: &str, how| w.by(who, open(who, at, how));
    // The usual upload: a temporary name, and a rename.
    let opened = writes(&creates, "/p/part", WriteMode::Replace).unwrap();
    // Its client starts again, or returns.
    let again = ns::OpenWrite { restarted: true, ..open(&creates, "/p/part", WriteMode::NewOnly) };
    let opened = w.by(&creates, again).unwrap_or_else(|error| panic!("{error}: {opened:?}"));
    let again = ns::OpenWrite { restarted: true, ..open(&creates, "/p/part", WriteMode::Replace) };
    let opened = w.by(&creates, again).unwrap_or_else(|error| panic!("{error}: {opened:?}"));
    let returned = writes(&creates, "/p/part", WriteMode::Update).unwrap();
    assert_eq!(opened.object, returned.object);
    w.by(&creates, ns::Interrupt { writer: returned.writer, kept_len: 2 }).unwrap();
    let resume = ns::OpenWrite { resume: Some(ns::Resume::Visible), ..open(&creates, "/p/part", WriteMode::Update) };
    let resumed = w.by(&creates, resume).unwrap();
    w.close(&creates, resumed.writer, 3);
    w.by(&creates, rename("/p/part", "/p/whole")).unwrap();
    // Now it is complete.
    assert_eq!(writes(&creates, "/p/whole", WriteMode::NewOnly).unwrap_err().code(), ErrorCode::Exists);
    for how in [WriteMode::Replace, WriteMode::Update] {
        for posc in [false, true] {
            let op = ns::OpenWrite { posc, restarted: posc, ..open(&creates, "/p/whole", how) };
            let rule = denied(w.by(&creates, op), "a complete file");
            assert_eq!(rule, "no rule permits ModifyFile of /p/whole");
        }
    }
    denied(w.by(&creates, rename("/p/whole", "/p/f")), "over another file");
    denied(w.by(&creates, ns::Remove { path: path("/p/whole") }), "remove");
    denied(w.by(&creates, rename("/p/e", "/p/new")), "a directory");
    // Somebody else's unfinished file is not its own.
    let other = open(&actor(7, &[7]), "/p/other", WriteMode::NewOnly);
    let begun = w.by(&actor(7, &[7]), other).unwrap();
    w.by(&actor(7, &[7]), ns::Interrupt { writer: begun.writer, kept_len: 2 }).unwrap();
    w.admin(ns::Chmod { path: path("/p/other"), mode: 0o666 });
    let resume = || ns::OpenWrite { resume: Some(ns::Resume::Visible), ..open(&eve(), "/p/other", WriteMode::Update) };
    denied(w.by(&creates, resume()), "resume");
    w.by(&changes, resume()).unwrap();
    w.by(&changes, rename("/p/whole", "/p/f")).unwrap();
    let replaced = writes(&changes, "/p/f", WriteMode::Replace).unwrap();
    w.close(&changes, replaced.writer, 3);
    w.check();
}

/// The file to replace is gone, so the close would create it again.
#[test]
fn upload_appears_again_only_where_it_may_be_created() {
    let w = world();
    let changes = only(&[ModifyFile], &["/p"]);
    let opened = w.by(&changes, open(&changes, "/p/f", WriteMode::Replace)).unwrap();
    w.admin(ns::Remove { path: path("/p/f") });
    let content = ns::Committed { len: 3, sums: None, mtime: None };
    let commit = ns::Commit { writer: opened.writer, content, completion: ns::Completion::ByClient };
    let error = w.by(&changes, commit).unwrap_err();
    assert!(matches!(error, NsError::UploadKept { code: ErrorCode::Denied, .. }), "{error}");
    w.check();
}

/// The same client comes back with another credential, which may not use the place where the file is now.
#[test]
fn client_returns_only_to_a_file_within_its_limits() {
    for hidden in [false, true] {
        let w = world();
        w.admin(ns::Symlink { path: path("/p/link"), target: b"/d".to_vec() });
        let (all, some) = (within(&["/"]), within(&["/p"]));
        let begin = |at: &str| ns::OpenWrite { posc: hidden, ..open(&eve(), at, WriteMode::Replace) };
        let back = |at: &str| open(&eve(), at, WriteMode::Update);
        // The link has led elsewhere.
        w.by(&all, begin("/p/link/n")).unwrap();
        w.admin(ns::Remove { path: path("/p/link") });
        w.admin(ns::Symlink { path: path("/p/link"), target: b"e".to_vec() });
        let rule = denied(w.by(&some, back("/p/link/n")), "another target");
        assert!(rule.ends_with(" of /d/n"), "{rule}");
        w.by(&all, back("/p/link/n")).unwrap();
        // The directory has moved.
        let begun = w.by(&all, begin("/p/e/n")).unwrap();
        w.by(&some, back("/p/e/n")).unwrap();
        w.admin(ns::Rmdir { path: path("/d/e") });
        w.admin(rename("/p/e", "/d/e"));
        let rule = denied(w.by(&some, back("/p/e/n")), "a directory that moved");
        assert!(rule.ends_with(" of /d/e/n"), "{rule}");
        if let ns::OpenKind::Upload(upload) = begun.kind {
            let rule = denied(w.by(&some, ns::ForgetUpload { upload, expired_by: None }), "by number");
            assert!(rule.ends_with(" of /d/e/n"), "{rule}");
            let writer = w.by(&all, back("/p/e/n")).unwrap().writer;
            w.by(&all, ns::Interrupt { writer, kept_len: 2 }).unwrap();
            let resume = ns::OpenWrite { resume: Some(ns::Resume::Upload(upload)), ..back("/p/e/n") };
            denied(w.by(&some, resume.clone()), "an upload whose directory moved");
            w.by(&all, resume).unwrap();
        } else {
            w.by(&all, back("/p/e/n")).unwrap();
        }
        w.check();
    }
}

#[test]
fn limits_hold_for_the_administrator() {
    let w = world();
    let admin = Actor::admin().with_limits(Arc::new(Rules(vec![(Op::ALL.to_vec(), b"/d".to_vec())])));
    assert!(stat(&w, &admin, "/d/f").is_ok());
    denied(stat(&w, &admin, "/p/f"), "elsewhere");
    w.by(&admin, ns::Chown { path: path("/d/f"), owner: Some(PrincipalId(4)), group: None }).unwrap();
    // What is about no path is not within the limits.
    let ino = w.stat("/d").ino;
    let rule = denied(w.by(&admin, ns::RecountTotals { dir: ino }), "totals");
    assert_eq!(rule, "the credential is limited to paths, and this is about more than a path");
    denied(w.by(&admin, ns::RemoveToken { id: [0; 16] }), "the cluster");
    let (above_ino, above_object) = (types::Ino(1), types::ObjectId(1));
    let raise = ns::RaiseIncarnation { at_least: types::Incarnation(1), above_ino, above_object };
    denied(w.by(&admin, raise), "the namespace");
    // Nor are the clients of others.
    let others = open(&eve(), "/d/n", WriteMode::NewOnly);
    let rule = denied(w.by(&admin, others.clone()), "another principal's client");
    assert!(rule.starts_with("it belongs to a client of principal 6"), "{rule}");
    w.admin(others);
}

#[test]
fn remembered_open_is_for_those_who_may_use_the_path() {
    let w = world();
    let client = open(&eve(), "/d/n", WriteMode::NewOnly).client;
    let session = w.admin(ns::OpenSession { client });
    let numbered = |who: &Actor, op: ns::OpenWrite| {
        let ctx = w.ns.context(Timestamp(5_000), who, Some(RequestNumber { session, number: 1 }));
        w.ns.change_wait(Durability::Synced, ctx, op)
    };
    let op = open(&eve(), "/d/n", WriteMode::NewOnly);
    let first = numbered(&within(&["/d"]), op.clone()).unwrap();
    assert_eq!(numbered(&within(&["/d"]), op.clone()).unwrap().writer, first.writer);
    denied(numbered(&within(&["/p"]), op), "the same request with another credential");
}

#[test]
fn policy_of_a_new_file_is_for_those_who_may_make_or_replace_it() {
    let w = world();
    for operation in Op::ALL {
        let found = w.read(|read| ns::policy_for(read, &only(&[operation], &["/d"]), &path("/d/n")));
        assert_eq!(found.is_ok(), matches!(operation, CreateFile | ModifyFile), "{operation:?}");
    }
}

#[test]
fn actors_are_equal_if_they_have_the_same_limits() {
    let limits: Arc<dyn PathLimits> = Arc::new(Rules(vec![]));
    let one = eve().with_limits(Arc::clone(&limits));
    assert_eq!(one, eve().with_limits(limits));
    assert_ne!(one, eve());
    assert_ne!(one, eve().with_limits(Arc::new(Rules(vec![]))));
    assert!(format!("{one:?}").contains("Rules"));
}
