//! A directory that somebody may not pass hides its names: every operation gives the same answer for a name that is there and for one that is not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::sync::Arc;

use crate::acls::{World, eve, modify, open, path};
use crate::model::limits::Rules;
use namespace::{self as ns, AclEdit, Actor, NsError, Operation, PathOperation, SetAcl, WriteMode, XattrMode};
use types::{BootId, ErrorCode, PrincipalId, Timestamp, UploadId};

/// An answer: its code, and its text with both names replaced. Of a success only the fact, because the two inodes differ.
type Answer = Result<(), (ErrorCode, String)>;

struct Asked {
    about: String,
    answer: Answer,
}

/// Asks for everything that the namespace does by path. `upload` is one whose path may be hidden too.
fn ask_all(w: &World, who: &Actor, at: &str, upload: UploadId) -> Vec<Asked> {
    let mut all = Vec::new();
    let mut add = |about: String, result: Result<(), NsError>| {
        let answer = result.map_err(|error| (error.code(), error.to_string().replace("there", "absnt")));
        all.push(Asked { about, answer });
    };
    let p = || path(at);
    let of = || ns::XattrOf::Path(p());
    add("stat".into(), w.read(|r| ns::stat(r, who, &p()).map(drop)));
    add("stat_no_follow".into(), w.read(|r| ns::stat_no_follow(r, who, &p()).map(drop)));
    add("lookup".into(), w.read(|r| ns::lookup(r, who, &p()).map(drop)));
    for partial in [false, true] {
        add(format!("open_read {partial}"), w.read(|r| ns::open_read(r, who, &p(), partial).map(drop)));
    }
    add("readlink".into(), w.read(|r| ns::readlink(r, who, &p()).map(drop)));
    add(
        "list".into(),
        w.read(|r| ns::lookup(r, who, &p()).and_then(|dir| ns::permit_list(who, &dir.access, false, &|| at.into()))),
    );
    add("open_list".into(), w.read(|r| ns::open_list(r, who, &p(), true).map(drop)));
    for name in [&b"k"[..], ns::STATE_ATTRIBUTE] {
        add(format!("get_xattr {}", name.len()), w.read(|r| ns::get_xattr(r, who, &of(), name).map(drop)));
    }
    add("list_xattrs".into(), w.read(|r| ns::list_xattrs(r, who, &of()).map(drop)));
    add("policy_for".into(), w.read(|r| ns::policy_for(r, who, &p()).map(drop)));
    for (how, mkpath) in [(WriteMode::NewOnly, false), (WriteMode::NewOnly, true), (WriteMode::Replace, true)] {
        let request = ns::OpenWrite { mkpath, ..open(who, at, how) };
        add(format!("policy_for_new {how:?} {mkpath}"), w.read(|r| ns::policy_for_new(r, who, &request).map(drop)));
    }
    fn done<O: Operation + Send + 'static>(w: &World, who: &Actor, op: O) -> Result<(), NsError> {
        w.by(who, op).map(drop)
    }
    let rename = |from: &str, to: &str, replace| ns::Rename { from: path(from), to: path(to), replace };
    for parents in [false, true] {
        add(format!("mkdir {parents}"), done(w, who, ns::Mkdir { path: p(), mode: 0o777, parents }));
    }
    add("remove".into(), done(w, who, ns::Remove { path: p() }));
    add("rmdir".into(), done(w, who, ns::Rmdir { path: p() }));
    add("remove_any".into(), done(w, who, ns::RemoveAny { path: p() }));
    for replace in [false, true] {
        add(format!("rename from {replace}"), done(w, who, rename(at, "/pub/new", replace)));
        for mine in ["/pub/file", "/pub/dir"] {
            add(format!("rename {mine} to {replace}"), done(w, who, rename(mine, at, replace)));
        }
    }
    add("link from".into(), done(w, who, ns::Link { existing: p(), new: path("/pub/new") }));
    add("link to".into(), done(w, who, ns::Link { existing: path("/pub/file"), new: p() }));
    add("symlink".into(), done(w, who, ns::Symlink { path: p(), target: b"x".to_vec() }));
    add("chmod".into(), done(w, who, ns::Chmod { path: p(), mode: 0o777 }));
    for (owner, group) in [(Some(who.principal), None), (None, Some(who.primary_group())), (Some(PrincipalId(9)), None)]
    {
        add(format!("chown {owner:?}"), done(w, who, ns::Chown { path: p(), owner, group }));
    }
    add("utimes".into(), done(w, who, ns::Utimes { path: p(), mtime: Some(Timestamp(1)), atime: None }));
    for (access, default) in [(Some(AclEdit::Clear), None), (None, Some(AclEdit::Replace(vec![])))] {
        add(format!("set ACL {default:?}"), done(w, who, SetAcl { path: p(), access, default }));
    }
    for mode in [XattrMode::Set, XattrMode::Create, XattrMode::Replace] {
        let op = ns::SetXattr { of: of(), name: b"k".to_vec(), value: vec![], mode };
        add(format!("set_xattr {mode:?}"), done(w, who, op));
    }
    add("remove_xattr".into(), done(w, who, ns::RemoveXattr { of: of(), name: b"k".to_vec() }));
    add("make tree".into(), done(w, who, ns::MakeTree { path: p() }));
    add("set policy".into(), done(w, who, ns::SetPolicy { path: p(), policy: types::Policy::default() }));
    add("remove policy".into(), done(w, who, ns::RemovePolicy { path: p() }));
    for len in [0, 3, 4] {
        let client = open(who, at, WriteMode::Update).client;
        let op = ns::Truncate { path: p(), len, client, boot: BootId(1), request: None };
        add(format!("truncate {len}"), done(w, who, op));
    }
    for how in [WriteMode::NewOnly, WriteMode::Replace, WriteMode::Update] {
        for bits in 0..8 {
            let bit = |at: u32| bits >> at & 1 == 1;
            let op = ns::OpenWrite { mkpath: bit(0), posc: bit(1), restarted: bit(2), ..open(who, at, how) };
            add(format!("open {how:?} {bits}"), done(w, who, op.clone()));
            let empty = Some(types::ObjectId(1));
            add(format!("open {how:?} {bits} if empty"), done(w, who, ns::OpenWrite { empty, ..op.clone() }));
            let other_boot = ns::OpenWrite { boot: BootId(2), ..op.clone() };
            add(format!("open {how:?} {bits} after a boot"), done(w, who, other_boot));
            for resume in [ns::Resume::Visible, ns::Resume::Upload(upload), ns::Resume::Upload(UploadId(99_999))] {
                let op = ns::OpenWrite { resume: Some(resume), ..op.clone() };
                add(format!("open {how:?} {bits} {resume:?}"), done(w, who, op));
            }
            let shared = ns::OpenWrite { sharing: Some(ns::Sharing::Keeps(None)), ..op };
            add(format!("open {how:?} {bits} shared"), done(w, who, shared));
        }
    }
    all
}

/// What has the hidden name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    File,
    FileOfEve,
    FileWithAcl,
    EmptyFile,
    Directory,
    FullDirectory,
    LinkOut,
    LinkToNothing,
    OpenWrite,
    OpenWriteOfEve,
    UpdateOfEve,
    Interrupted,
    InterruptedOfEve,
    Upload,
    UploadOfEve,
    KeptUpload,
    KeptUploadOfEve,
}

const EACH: [What; 17] = [
    What::File,
    What::FileOfEve,
    What::FileWithAcl,
    What::EmptyFile,
    What::Directory,
    What::FullDirectory,
    What::LinkOut,
    What::LinkToNothing,
    What::OpenWrite,
    What::OpenWriteOfEve,
    What::UpdateOfEve,
    What::Interrupted,
    What::InterruptedOfEve,
    What::Upload,
    What::UploadOfEve,
    What::KeptUpload,
    What::KeptUploadOfEve,
];

/// Puts it at `/h/there` while everybody may still do everything there. Returns an upload's number.
fn put(w: &World, what: What) -> UploadId {
    let (admin, eve) = (Actor::admin(), eve());
    let at = "/h/there";
    let is_eves = matches!(
        what,
        What::OpenWriteOfEve | What::UpdateOfEve | What::InterruptedOfEve | What::UploadOfEve | What::KeptUploadOfEve
    );
    let who = if is_eves { &eve } else { &admin };
    let mut opened = None;
    match what {
        What::File => w.file(&admin, at, 0o666),
        What::FileOfEve => w.file(&eve, at, 0o666),
        What::FileWithAcl => {
            w.file(&admin, at, 0o600);
            w.admin(modify(at, "user:6:rwx"));
        }
        What::EmptyFile => {
            let empty = w.by(&admin, open(&admin, at, WriteMode::NewOnly)).unwrap();
            w.close(&admin, empty.writer, 0);
        }
        What::Directory => w.mkdir(&admin, at, 0o777),
        What::FullDirectory => {
            w.mkdir(&admin, at, 0o777);
            w.file(&admin, "/h/there/deep", 0o666);
        }
        What::LinkOut => drop(w.admin(ns::Symlink { path: path(at), target: b"/pub/file".to_vec() })),
        What::LinkToNothing => drop(w.admin(ns::Symlink { path: path(at), target: b"nothing/at/all".to_vec() })),
        What::UpdateOfEve => {
            w.file(&eve, at, 0o666);
            opened = Some(w.by(&eve, open(&eve, at, WriteMode::Update)).unwrap());
        }
        What::OpenWrite | What::OpenWriteOfEve | What::Interrupted | What::InterruptedOfEve => {
            opened = Some(w.by(who, open(who, at, WriteMode::NewOnly)).unwrap());
        }
        What::Upload | What::UploadOfEve | What::KeptUpload | What::KeptUploadOfEve => {
            opened = Some(w.by(who, ns::OpenWrite { posc: true, ..open(who, at, WriteMode::NewOnly) }).unwrap());
        }
    }
    let is_ended =
        matches!(what, What::Interrupted | What::InterruptedOfEve | What::KeptUpload | What::KeptUploadOfEve);
    if let Some(opened) = opened.as_ref().filter(|_| is_ended) {
        w.by(who, ns::Interrupt { writer: opened.writer, kept_len: 2 }).unwrap();
    }
    match opened.map(|opened| opened.kind) {
        Some(ns::OpenKind::Upload(upload)) => upload,
        _ => UploadId(99_998),
    }
}

fn world(what: What, hide: &dyn Fn(&World)) -> (World, UploadId) {
    let (w, eve) = (World::new(), eve());
    w.admin(ns::Chmod { path: path("/"), mode: 0o755 });
    w.mkdir(&Actor::admin(), "/pub", 0o777);
    w.mkdir(&Actor::admin(), "/h", 0o777);
    w.file(&eve, "/pub/file", 0o666);
    w.mkdir(&eve, "/pub/dir", 0o777);
    for (link, target) in
        [("/pub/h", "../h"), ("/pub/there", "../h/there"), ("/pub/absnt", "../h/absnt"), ("/pub/up", "dir/../../h")]
    {
        w.admin(ns::Symlink { path: path(link), target: target.as_bytes().to_vec() });
    }
    for name in ["there", "absnt"] {
        let target = format!("../h/{name}/../../pub/file").into_bytes();
        w.admin(ns::Symlink { path: path(format!("/pub/peek-{name}")), target });
    }
    let upload = put(&w, what);
    hide(&w);
    w.check();
    (w, upload)
}

#[test]
fn no_operation_tells_whether_a_hidden_name_exists() {
    let by_mode = |w: &World| w.admin(ns::Chmod { path: path("/h"), mode: 0o766 });
    let by_name = |w: &World| w.admin(modify("/h", "user:6:rw"));
    let by_mask = |w: &World| w.admin(modify("/h", "user:6:rwx,mask::rw"));
    let by_group = |w: &World| w.admin(modify("/h", "group:106:rw,group:7:rwx"));
    let ways: [&dyn Fn(&World); 4] = [&by_mode, &by_name, &by_mask, &by_group];
    let mut denials = 0;
    for hide in ways {
        denials += answers_agree(hide, &eve(), &FORMS);
    }
    assert!(denials > 50_000, "{denials}");
}

/// What lies outside the limits of a credential is hidden from it, also where a link leads there and back.
#[test]
fn no_operation_tells_whether_a_name_outside_the_limits_exists() {
    let rules = Rules(vec![(PathOperation::ALL.to_vec(), b"/pub".to_vec())]);
    let limited = eve().with_limits(Arc::new(rules));
    let open_to_all = |_: &World| {};
    let closed = |w: &World| w.admin(ns::Chmod { path: path("/h"), mode: 0o700 });
    let denials = answers_agree(&open_to_all, &limited, &FORMS) + answers_agree(&closed, &limited, &FORMS);
    assert!(denials > 30_000, "{denials}");
    let through = ["/pub/peek-NAME", "/pub/peek-NAME/", "/pub/peek-NAME/x"];
    let denials = answers_agree(&open_to_all, &limited, &through) + answers_agree(&closed, &limited, &through);
    assert!(denials > 1_000, "{denials}");
}

const FORMS: [&str; 9] = [
    "/h/NAME",
    "/h/NAME/",
    "/h/NAME/.",
    "/h/NAME/deep",
    "/h/NAME/deep/er",
    "/pub/h/NAME",
    "/pub/up/NAME",
    "/pub/NAME/",
    "/pub/NAME/.",
];

/// Compares the answers about the name that is there with those about the one that is not. Returns the number of denials.
fn answers_agree(hide: &dyn Fn(&World), who: &Actor, forms: &[&str]) -> usize {
    let mut denials = 0;
    for (what, form) in EACH.into_iter().flat_map(|what| forms.iter().map(move |form| (what, form))) {
        let (w, upload) = world(what, hide);
        let there = ask_all(&w, who, &form.replace("NAME", "there"), upload);
        let (w, upload) = world(what, hide);
        let absent = ask_all(&w, who, &form.replace("NAME", "absnt"), upload);
        for (there, absent) in there.into_iter().zip(absent) {
            let about = format!("{what:?} at {form}: {}", there.about);
            assert_eq!(there.answer, absent.answer, "{about}");
            denials += usize::from(matches!(there.answer, Err((ErrorCode::Denied, _))));
        }
    }
    denials
}

/// Where the names can be looked up but not listed, POSIX tells who knows a name. What has the name stays closed all the same.
#[test]
fn directory_without_r_lists_nothing_and_keeps_its_names_apart() {
    let (w, _) = world(What::FileWithAcl, &|w| w.admin(modify("/h", "user:6:x")));
    let dir = w.read(|read| ns::lookup(read, &eve(), &path("/h"))).unwrap();
    let list =
        |dir: &ns::Inode, with_attributes| ns::permit_list(&eve(), &dir.access, with_attributes, &|| "/h".into());
    let refused = list(&dir, false).unwrap_err();
    assert_eq!(refused.to_string(), "/h: denied: the ACL's entry user:6:--x gives no r, and you are 6");
    // Who may list them but not look them up gets the names, and nothing of what has them.
    w.admin(modify("/h", "user:6:r"));
    let dir = w.read(|read| ns::lookup(read, &eve(), &path("/h"))).unwrap();
    assert!(list(&dir, false).is_ok());
    let refused = list(&dir, true).unwrap_err();
    assert_eq!(refused.to_string(), "/h: denied: the ACL's entry user:6:r-- gives no x, and you are 6");
    w.admin(modify("/h", "user:6:x"));
    assert!(w.read(|read| ns::stat(read, &eve(), &path("/h/there"))).is_ok());
    assert_eq!(w.read(|read| ns::stat(read, &eve(), &path("/h/absnt"))).unwrap_err().code(), ErrorCode::NotFound);
}

/// An upload has no name yet. Nobody else learns of it, whatever path they try.
#[test]
fn upload_of_another_is_not_found_at_any_path() {
    let (w, upload) = world(What::KeptUpload, &|_| {});
    let resume = |at: &str, upload| {
        let op = ns::OpenWrite { resume: Some(ns::Resume::Upload(upload)), ..open(&eve(), at, WriteMode::Update) };
        w.by(&eve(), op).unwrap_err()
    };
    let other = UploadId(77_777);
    for at in ["/h/there", "/h/absnt"] {
        let text = |upload: UploadId| resume(at, upload).to_string().replace(&upload.to_string(), "N");
        assert_eq!(text(upload), text(other), "{at}");
        assert_eq!(resume(at, upload).code(), ErrorCode::NotFound);
    }
    // Its owner resumes it, as long as it may pass the directory.
    let (w, upload) = world(What::KeptUploadOfEve, &|_| {});
    let op = ns::OpenWrite { resume: Some(ns::Resume::Upload(upload)), ..open(&eve(), "/h/there", WriteMode::Update) };
    w.admin(ns::Chmod { path: path("/h"), mode: 0o700 });
    assert_eq!(w.by(&eve(), op.clone()).unwrap_err().code(), ErrorCode::Denied);
    w.admin(ns::Chmod { path: path("/h"), mode: 0o711 });
    w.by(&eve(), op).unwrap();
    w.check();
}
