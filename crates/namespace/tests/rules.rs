//! The rules that people rely on, each told as a story.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::sync::Arc;

use kv::{Durability, Kv, MemoryKv};
use namespace::{
    self as ns, Actor, Namespace, NamespaceConfig, NsError, OpenKind, Operation, RequestNumber, WriteMode,
};
use types::{BootId, ClientIdentity, ErrorCode, FileName, Ino, NsPath, ObjectId, PrincipalId, SessionId, Timestamp};

struct World {
    kv: Arc<dyn Kv>,
    ns: Arc<Namespace>,
    now: std::cell::Cell<i64>,
}

fn path(text: impl AsRef<[u8]>) -> NsPath {
    NsPath::parse(text.as_ref()).unwrap()
}

fn client(pid: u32) -> ClientIdentity {
    client_of(0, pid)
}

fn client_of(principal: u32, pid: u32) -> ClientIdentity {
    ClientIdentity { principal: PrincipalId(principal), user: "u".into(), pid, host: "h".into() }
}

fn open(at: &str, how: WriteMode, pid: u32) -> ns::OpenWrite {
    ns::OpenWrite::new(path(at), how, client(pid), BootId(1))
}

impl World {
    fn new() -> Self {
        let kv: Arc<dyn Kv> = Arc::new(MemoryKv::new());
        let ns = Namespace::open(Arc::clone(&kv), Timestamp(1), NamespaceConfig::default()).unwrap();
        Self { kv, ns, now: std::cell::Cell::new(1_000) }
    }

    fn as_who<O: Operation + Send + 'static>(&self, who: &Actor, op: O) -> Result<O::Reply, NsError> {
        self.now.set(self.now.get() + 1);
        let ctx = self.ns.context(Timestamp(self.now.get()), who, None);
        let result = self.ns.change_wait(Durability::Synced, ctx, op);
        let mut findings = Vec::new();
        ns::check(&*self.kv.snapshot(), &mut |finding| findings.push(finding)).unwrap();
        assert_eq!(findings, [], "the keys agree after each change");
        result
    }

    fn change<O: Operation + Send + 'static>(&self, op: O) -> Result<O::Reply, NsError> {
        self.as_who(&Actor::admin(), op)
    }

    fn refusal<O: Operation + Send + 'static>(&self, op: O) -> ErrorCode
    where
        O::Reply: std::fmt::Debug,
    {
        self.change(op).unwrap_err().code()
    }

    fn mkdir(&self, at: &str) -> Ino {
        self.change(ns::Mkdir { path: path(at), mode: 0o755, parents: true }).unwrap().ino
    }

    fn commit_op(writer: ns::WriterToken, len: u64) -> ns::Commit {
        let content = ns::Committed { len, sums: None, mtime: None };
        ns::Commit { writer, content, completion: ns::Completion::ByClient }
    }

    fn file(&self, at: &str, len: u64) -> ns::OpenedWrite {
        let opened = self.change(open(at, WriteMode::NewOnly, 99)).unwrap();
        self.change(Self::commit_op(opened.writer, len)).unwrap();
        opened
    }

    fn stat(&self, at: &str) -> Result<ns::Inode, NsError> {
        self.ns.read(|read| ns::stat(read, &Actor::admin(), &path(at)))
    }

    fn object(&self, at: &str) -> types::ObjectId {
        self.stat(at).unwrap().content().unwrap().object
    }

    fn queue(&self) -> Vec<types::ObjectId> {
        let due = self.ns.read(|read| ns::due_deletions(read, None, 100)).unwrap();
        due.into_iter().map(|due| due.object).collect()
    }
}

#[test]
fn second_of_two_clients_that_create_one_name_learns_that_it_exists() {
    let w = World::new();
    let first = w.change(open("/f", WriteMode::NewOnly, 1)).unwrap();
    assert_eq!(w.refusal(open("/f", WriteMode::NewOnly, 2)), ErrorCode::Exists);
    w.change(World::commit_op(first.writer, 5)).unwrap();
    assert_eq!(w.stat("/f").unwrap().len(), 5);
}

#[test]
fn two_clients_that_replace_one_file_write_their_own_objects_and_the_last_close_wins() {
    let w = World::new();
    let old = w.file("/f", 1).object;
    let a = w.change(open("/f", WriteMode::Replace, 1)).unwrap();
    let b = w.change(open("/f", WriteMode::Replace, 2)).unwrap();
    assert!(matches!((a.kind, b.kind), (OpenKind::Upload(_), OpenKind::Upload(_))));
    assert_eq!(w.object("/f"), old, "the old file stands and is served");
    w.change(World::commit_op(b.writer, 20)).unwrap();
    assert_eq!((w.object("/f"), w.stat("/f").unwrap().len()), (b.object, 20));
    w.change(World::commit_op(a.writer, 10)).unwrap();
    assert_eq!((w.object("/f"), w.stat("/f").unwrap().len()), (a.object, 10));
    assert_eq!(w.queue(), [old, b.object]);
}

#[test]
fn replacing_a_file_in_its_first_write_is_busy_and_names_the_writer() {
    let w = World::new();
    let writing = w.change(open("/f", WriteMode::NewOnly, 1)).unwrap();
    let error = w.change(open("/f", WriteMode::Replace, 2)).unwrap_err();
    let NsError::Busy { by, writer, .. } = &error else { panic!("{error}") };
    assert_eq!((by.pid, *writer), (1, writing.writer));
    assert!(error.to_string().contains("u.1@h"), "{error}");
}

#[test]
fn reopen_during_the_clients_own_overwrite_resumes_the_upload() {
    let w = World::new();
    let old = w.file("/f", 1).object;
    let upload = w.change(open("/f", WriteMode::Replace, 1)).unwrap();
    let again = w.change(open("/f", WriteMode::Update, 1)).unwrap();
    assert!(matches!(again.kind, OpenKind::Resumed(Some(_))));
    assert_eq!((again.object, again.writer.epoch), (upload.object, 2));
    assert_eq!(w.refusal(World::commit_op(upload.writer, 3)), ErrorCode::Stale);
    assert_eq!(w.object("/f"), old);
    w.change(World::commit_op(again.writer, 4)).unwrap();
    assert_eq!(w.object("/f"), upload.object);
    // Another client would be told to wait.
}

#[test]
fn reopen_after_the_end_never_reaches_another_clients_file() {
    let w = World::new();
    let mine = w.change(open("/f", WriteMode::NewOnly, 1)).unwrap();
    w.change(ns::Interrupt { writer: mine.writer, kept_len: 2 }).unwrap();
    w.change(ns::Remove { path: path("/f") }).unwrap();
    w.file("/f", 50);
    assert_eq!(w.refusal(open("/f", WriteMode::Update, 1)), ErrorCode::Stale);
    // Another client may change it in place. So may the first one after its recovery window.
    let other = w.change(open("/f", WriteMode::Update, 2)).unwrap();
    w.change(World::commit_op(other.writer, 60)).unwrap();
    w.now.set(w.now.get() + 3_601_000_000_000);
    assert_eq!(w.change(open("/f", WriteMode::Update, 1)).unwrap().kind, OpenKind::Update);
}

#[test]
fn reopen_finds_a_removed_file_gone_and_never_its_successor() {
    let w = World::new();
    let mine = w.change(open("/f", WriteMode::NewOnly, 1)).unwrap();
    w.change(ns::Remove { path: path("/f") }).unwrap();
    let theirs = w.file("/f", 9);
    assert_eq!(w.refusal(open("/f", WriteMode::Update, 1)), ErrorCode::Stale);
    assert_eq!(w.change(World::commit_op(mine.writer, 4)).unwrap(), ns::CommitReply::Unlinked);
    assert_eq!((w.queue(), w.object("/f")), (vec![mine.object], theirs.object));
}

#[test]
fn reopen_does_not_reach_a_file_in_a_replaced_directory() {
    let w = World::new();
    w.mkdir("/current");
    let mine = w.change(open("/current/f", WriteMode::NewOnly, 1)).unwrap();
    let rename = |from: &str, to: &str| ns::Rename { from: path(from), to: path(to), replace: false };
    w.change(rename("/current", "/old")).unwrap();
    w.mkdir("/current");
    w.file("/current/f", 9);
    let again = w.change(open("/current/f", WriteMode::Update, 1)).unwrap();
    assert_eq!(again.object, mine.object, "it goes on with what it was writing, wherever that is now");
    w.change(World::commit_op(again.writer, 4)).unwrap();
    assert_eq!((w.stat("/old/f").unwrap().len(), w.stat("/current/f").unwrap().len()), (4, 9));
}

#[test]
fn unsynced_bytes_after_a_boot_fail_the_reopen_and_interrupt_the_file() {
    let w = World::new();
    let mine = w.change(open("/f", WriteMode::NewOnly, 1)).unwrap();
    let after_boot = ns::OpenWrite { boot: BootId(2), ..open("/f", WriteMode::Update, 1) };
    assert_eq!(w.refusal(after_boot.clone()), ErrorCode::Interrupted, "without the store's word");
    assert!(matches!(w.stat("/f").unwrap().content().unwrap().state, ns::FileState::Open(_)));
    let recovered = Some(ns::RecoveredWrite { object: mine.object, all_there: false, kept_len: 3 });
    assert_eq!(w.refusal(ns::OpenWrite { recovered, ..after_boot.clone() }), ErrorCode::Interrupted);
    let inode = w.stat("/f").unwrap();
    assert!(matches!(inode.content().unwrap().state, ns::FileState::Interrupted(_)));
    assert_eq!(inode.len(), 3);

    let synced = w.change(open("/g", WriteMode::NewOnly, 1)).unwrap();
    let recovered = Some(ns::RecoveredWrite { object: synced.object, all_there: true, kept_len: 0 });
    let again = w.change(ns::OpenWrite { boot: BootId(2), recovered, ..open("/g", WriteMode::Update, 1) }).unwrap();
    assert_eq!(again.object, synced.object);
}

#[test]
fn reopen_that_matches_two_writers_is_refused() {
    let w = World::new();
    w.change(open("/f", WriteMode::NewOnly, 1)).unwrap();
    w.change(ns::Remove { path: path("/f") }).unwrap();
    w.change(open("/f", WriteMode::NewOnly, 1)).unwrap();
    let error = w.change(open("/f", WriteMode::Update, 1)).unwrap_err();
    assert!(matches!(error, NsError::Ambiguous { count: 2, .. }), "{error}");
    // Unless the client says which one.
    let writers = w.ns.read(|read| ns::writers(read, None, 10)).unwrap();
    let unlinked = |writer: &ns::WriterRecord| w.ns.read(|read| ns::is_unlinked(read, writer)).unwrap();
    assert_eq!(writers.iter().map(unlinked).collect::<Vec<_>>(), [true, false]);
    let only =
        |writer: &ns::WriterRecord| ns::OpenWrite { only: Some(writer.token()), ..open("/f", WriteMode::Update, 1) };
    assert_eq!(w.refusal(only(&writers[0])), ErrorCode::Stale, "it was removed");
    assert_eq!(w.change(only(&writers[1])).unwrap().object, writers[1].object);
    assert_eq!(w.refusal(only(&writers[1])), ErrorCode::Stale, "somebody has come back meanwhile");
}

#[test]
fn interrupted_file_is_read_and_resumed_only_by_explicit_wish() {
    let w = World::new();
    let mine = w.change(open("/f", WriteMode::NewOnly, 1)).unwrap();
    w.change(ns::Interrupt { writer: mine.writer, kept_len: 7 }).unwrap();
    let read = |partial| w.ns.read(|read| ns::open_read(read, &Actor::admin(), &path("/f"), partial));
    let error = read(false).unwrap_err();
    assert!(error.to_string().contains("?weir.partial=1"), "{error}");
    assert_eq!(read(true).unwrap().len(), 7);
    assert_eq!(w.refusal(open("/f", WriteMode::Update, 2)), ErrorCode::Interrupted);
    let resume = ns::OpenWrite { resume: Some(ns::Resume::Visible), ..open("/f", WriteMode::Update, 2) };
    let resumed = w.change(resume).unwrap();
    assert_eq!((resumed.object, resumed.len, resumed.writer.epoch), (mine.object, 7, 2));
    w.change(World::commit_op(resumed.writer, 8)).unwrap();
    assert_eq!(read(false).unwrap().len(), 8);
}

#[test]
fn files_interrupted_lately_are_counted_while_they_are_interrupted() {
    let w = World::new();
    let lately = |most| w.ns.read(|read| ns::interrupted_lately(read, most)).unwrap();
    assert_eq!(lately(10_000), (0, false));
    w.file("/complete", 5);
    for (number, name) in (1..).zip(["/kept", "/also-kept", "/removed", "/written-again"]) {
        let opened = w.change(open(name, WriteMode::NewOnly, number)).unwrap();
        w.change(ns::Interrupt { writer: opened.writer, kept_len: 7 }).unwrap();
    }
    assert_eq!(lately(10_000), (4, false));
    w.change(ns::Remove { path: path("/removed") }).unwrap();
    let again = w.change(open("/written-again", WriteMode::Replace, 9)).unwrap();
    w.change(World::commit_op(again.writer, 8)).unwrap();
    assert_eq!(lately(10_000), (2, false));
    // An hour later it is no news any more.
    w.now.set(w.now.get() + 3_601_000_000_000);
    w.change(ns::DropTombstones { after: None, limit: 100 }).unwrap();
    assert_eq!(lately(10_000), (0, false));
}

#[test]
fn restarted_copy_replaces_only_its_own_unfinished_file() {
    let w = World::new();
    let mine = w.change(open("/f", WriteMode::NewOnly, 1)).unwrap();
    let restart = |pid| ns::OpenWrite { restarted: true, ..open("/f", WriteMode::NewOnly, pid) };
    assert_eq!(w.refusal(restart(2)), ErrorCode::Exists);
    let again = w.change(restart(1)).unwrap();
    assert_eq!((again.ino, again.dropped), (mine.ino, vec![mine.object]));
    assert_eq!(w.refusal(World::commit_op(mine.writer, 1)), ErrorCode::Stale);
    w.change(ns::Interrupt { writer: again.writer, kept_len: 1 }).unwrap();
    let third = w.change(restart(1)).unwrap();
    w.change(World::commit_op(third.writer, 5)).unwrap();
    assert_eq!(w.queue(), [mine.object, again.object]);
    assert_eq!(w.refusal(restart(1)), ErrorCode::Exists, "it is complete now");
}

#[test]
fn restart_that_the_same_client_has_overtaken_drops_nothing() {
    let w = World::new();
    let now = || Some(w.ns.ids().upcoming_object());
    for (path, posc) in [("/f", false), ("/posc", true)] {
        let restart = |received_before| ns::OpenWrite {
            restarted: true,
            received_before,
            posc,
            ..open(path, WriteMode::Replace, 1)
        };
        w.change(ns::OpenWrite { posc, ..open(path, WriteMode::NewOnly, 1) }).unwrap();
        let early = now();
        let second = w.change(restart(now())).unwrap();
        assert_eq!(w.refusal(restart(early)), ErrorCode::Stale, "{path}");
        let third = w.change(restart(now())).unwrap();
        assert_eq!(third.dropped, [second.object], "{path}: it was received after that");
    }
    // The same for a file whose writer has ended meanwhile.
    let restart =
        |received_before| ns::OpenWrite { restarted: true, received_before, ..open("/g", WriteMode::NewOnly, 1) };
    let first = w.change(open("/g", WriteMode::NewOnly, 1)).unwrap();
    let early = now();
    let second = w.change(restart(now())).unwrap();
    assert_eq!(second.dropped, [first.object]);
    w.change(ns::Interrupt { writer: second.writer, kept_len: 1 }).unwrap();
    assert_eq!(w.refusal(restart(early)), ErrorCode::Stale);
    assert_eq!(w.change(restart(now())).unwrap().dropped, [second.object]);
}

#[test]
fn overwrite_that_ends_before_its_first_byte_leaves_nothing() {
    let w = World::new();
    w.file("/f", 5);
    let over = w.change(open("/f", WriteMode::Replace, 1)).unwrap();
    w.change(ns::Interrupt { writer: over.writer, kept_len: 0 }).unwrap();
    assert_eq!(w.ns.read(|read| ns::uploads(read, None, 10)).unwrap(), []);
    assert_eq!(w.queue(), [over.object]);
    assert_eq!(w.stat("/f").unwrap().len(), 5, "the old file stands");
    assert_eq!(w.refusal(World::commit_op(over.writer, 5)), ErrorCode::Stale);
}

#[test]
fn upload_that_cannot_become_visible_is_kept_a_day_and_can_be_resumed() {
    let w = World::new();
    w.mkdir("/d");
    let posc = |at: &str| ns::OpenWrite { posc: true, ..open(at, WriteMode::NewOnly, 1) };
    let orphan = w.change(posc("/d/f")).unwrap();
    assert_eq!(w.stat("/d/f").unwrap_err().code(), ErrorCode::NotFound, "hidden until closed");
    w.change(ns::Rmdir { path: path("/d") }).unwrap();
    let error = w.change(World::commit_op(orphan.writer, 6)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound, "{error}");
    assert!(error.to_string().contains("kept as upload"), "{error}");
    let late = w.change(posc("/g")).unwrap();
    w.file("/g", 2);
    assert_eq!(w.refusal(World::commit_op(late.writer, 6)), ErrorCode::Exists);
    assert_eq!(w.stat("/g").unwrap().len(), 2);

    let kept = w.ns.read(|read| ns::uploads(read, None, 10)).unwrap();
    assert_eq!(
        kept.iter().map(|up| (up.object, up.kept_len)).collect::<Vec<_>>(),
        [(orphan.object, 6), (late.object, 6)]
    );
    // One is resumed when the name is free again. The other is forgotten after a day.
    w.change(ns::Remove { path: path("/g") }).unwrap();
    let resume = Some(ns::Resume::Upload(kept[1].upload));
    let resumed = w.change(ns::OpenWrite { resume, ..open("/g", WriteMode::Update, 3) }).unwrap();
    w.change(World::commit_op(resumed.writer, 7)).unwrap();
    assert_eq!(w.object("/g"), late.object);
    let day = Timestamp(w.now.get() + 86_400_000_000_000);
    let (due, next) = w.ns.read(|read| ns::due_uploads(read, day, None, 10)).unwrap();
    assert_eq!((due.len(), next), (1, None));
    w.change(ns::ForgetUpload { upload: due[0].upload, expired_by: None }).unwrap();
    assert!(w.queue().contains(&orphan.object));
}

#[test]
fn an_upload_that_is_resumed_is_neither_forgotten_nor_left_to_its_first_writer() {
    let w = World::new();
    w.file("/f", 2);
    let first = w.change(open("/f", WriteMode::Replace, 1)).unwrap();
    w.change(ns::Interrupt { writer: first.writer, kept_len: 5 }).unwrap();
    let OpenKind::Upload(upload) = first.kind else { panic!("{:?}", first.kind) };
    let expired_by = Some(Timestamp(w.now.get() + 2 * 86_400_000_000_000));
    assert_eq!(w.refusal(ns::ForgetUpload { upload, expired_by: Some(Timestamp(w.now.get())) }), ErrorCode::Stale);
    let resume = Some(ns::Resume::Upload(upload));
    let second = w.change(ns::OpenWrite { resume, ..open("/f", WriteMode::Update, 2) }).unwrap();
    // It was on the list of expired ones.
    assert_eq!(w.refusal(ns::ForgetUpload { upload, expired_by }), ErrorCode::Stale);
    w.change(World::commit_op(second.writer, 9)).unwrap();
    assert_eq!((w.object("/f"), w.stat("/f").unwrap().len()), (first.object, 9));
    // The first writer returns. It would write into what the second one has closed.
    assert_eq!(w.refusal(open("/f", WriteMode::Update, 1)), ErrorCode::Stale);
    let third = w.change(open("/f", WriteMode::Replace, 3)).unwrap();
    w.change(ns::Interrupt { writer: third.writer, kept_len: 5 }).unwrap();
    let OpenKind::Upload(upload) = third.kind else { panic!("{:?}", third.kind) };
    w.change(ns::ForgetUpload { upload, expired_by }).unwrap();
}

#[test]
fn a_client_does_not_go_on_after_a_boot_in_which_its_bytes_may_have_been_lost() {
    let update = |boot: u128| ns::OpenWrite { boot: BootId(boot), ..open("/f", WriteMode::Update, 1) };
    let lost = |w: &World, boot: u128| match w.change(update(boot)) {
        Err(NsError::WriteEnded { .. }) => true,
        Ok(_) => false,
        Err(error) => panic!("{error}"),
    };
    // The grace period of a change in place has ended, in the same boot and in a later one. Or it had changed nothing that is left.
    for (boot, ends_unchanged) in [(1, false), (2, false), (2, true)] {
        let w = World::new();
        w.file("/f", 5);
        let first = w.change(update(1)).unwrap();
        if ends_unchanged {
            let sums = ns::Sums { adler32: types::Adler32(1), crc32c: types::Crc32c(2) };
            let (len, completion) = (5, ns::Completion::AtGraceEnd);
            let unchanged = ns::EndUnchanged { writer: first.writer, len, sums, certain: true, completion };
            assert!(w.change(unchanged).unwrap());
        } else {
            w.change(ns::Interrupt { writer: first.writer, kept_len: 5 }).unwrap();
        }
        assert_eq!(lost(&w, boot), boot == 2);
        if boot == 2 {
            assert!(lost(&w, boot), "nor when it repeats its open");
            // It says that it knows. From then on it is a client as any other.
            let resume = Some(ns::Resume::Visible);
            let writer = w.change(ns::OpenWrite { resume, ..update(boot) }).unwrap().writer;
            w.change(World::commit_op(writer, 5)).unwrap();
            assert!(!lost(&w, boot));
        }
    }
    // It comes back while the server waits for it. The server finds that bytes may be lost, and says so.
    let w = World::new();
    w.file("/f", 5);
    let first = w.change(update(1)).unwrap();
    let recovered = Some(ns::RecoveredWrite { object: first.object, all_there: false, kept_len: 5 });
    let back = ns::OpenWrite { recovered, ..update(2) };
    assert!(matches!(w.change(back).unwrap_err(), NsError::LostBytes { marked: true, .. }));
    assert!(lost(&w, 2), "stock clients open the file once more for each write that waits");
    assert!(w.change(ns::OpenWrite { boot: BootId(2), ..open("/f", WriteMode::Update, 9) }).is_ok(), "another client");
}

#[test]
fn an_empty_file_is_replaced_only_while_it_is_empty() {
    let w = World::new();
    w.file("/f", 0);
    let object = w.object("/f");
    let replace = || ns::OpenWrite { empty: Some(object), ..open("/f", WriteMode::Replace, 1) };
    let first = w.change(replace()).unwrap();
    w.change(World::commit_op(first.writer, 4)).unwrap();
    assert_eq!(w.refusal(replace()), ErrorCode::Stale, "it is another one, with data");
    w.change(ns::Remove { path: path("/f") }).unwrap();
    assert_eq!(w.refusal(replace()), ErrorCode::Stale, "it is gone");
}

#[test]
fn attributes_of_a_hidden_file_appear_with_it_or_go_with_it() {
    let w = World::new();
    let posc = |at: &str, pid| ns::OpenWrite { posc: true, ..open(at, WriteMode::NewOnly, pid) };
    let of = ns::XattrOf::Upload;
    let set = |writer, name: &str, mode| ns::SetXattr { of: of(writer), name: name.into(), value: b"v".to_vec(), mode };
    let names = |writer: ns::WriterToken| {
        let hidden = w.ns.read(|read| ns::is_hidden_upload(read, &writer)).unwrap();
        hidden.then(|| {
            let all = w.ns.read(|read| ns::list_xattrs(read, &Actor::admin(), &of(writer))).unwrap();
            all.into_iter().map(|(name, _)| String::from_utf8(name).unwrap()).collect::<Vec<_>>()
        })
    };
    let shown = |at: &str| w.ns.read(|read| ns::list_xattrs(read, &Actor::admin(), &path(at).into())).unwrap().len();

    let seen = w.change(posc("/seen", 1)).unwrap().writer;
    assert_eq!(names(seen), Some(vec![]));
    for name in ["a", "b", "c"] {
        w.change(set(seen, name, ns::XattrMode::Create)).unwrap();
    }
    assert_eq!(w.refusal(set(seen, "a", ns::XattrMode::Create)), ErrorCode::Exists);
    assert_eq!(w.refusal(set(seen, "d", ns::XattrMode::Replace)), ErrorCode::NotFound);
    w.change(ns::RemoveXattr { of: of(seen), name: b"b".to_vec() }).unwrap();
    assert_eq!(w.refusal(ns::RemoveXattr { of: of(seen), name: b"b".to_vec() }), ErrorCode::NotFound);
    assert_eq!(names(seen), Some(vec!["a".to_owned(), "c".to_owned()]));
    assert_eq!(w.ns.read(|read| ns::get_xattr(read, &Actor::admin(), &of(seen), b"c")).unwrap(), b"v");
    w.change(World::commit_op(seen, 3)).unwrap();
    assert_eq!((shown("/seen"), w.stat("/seen").unwrap().xattrs), (2, 2));
    assert_eq!(w.refusal(set(seen, "late", ns::XattrMode::Set)), ErrorCode::Stale);

    // An upload that is kept, resumed and completed. Then one that is forgotten, one without kept bytes, and one that restarts.
    let kept = w.change(posc("/kept", 1)).unwrap();
    w.change(set(kept.writer, "a", ns::XattrMode::Set)).unwrap();
    w.change(ns::Interrupt { writer: kept.writer, kept_len: 5 }).unwrap();
    let OpenKind::Upload(upload) = kept.kind else { panic!("{:?}", kept.kind) };
    let resume = Some(ns::Resume::Upload(upload));
    let resumed = w.change(ns::OpenWrite { resume, ..open("/kept", WriteMode::Update, 3) }).unwrap();
    assert_eq!(names(resumed.writer), Some(vec!["a".to_owned()]));
    w.change(World::commit_op(resumed.writer, 7)).unwrap();
    assert_eq!(shown("/kept"), 1);
    let forgotten = w.change(posc("/forgotten", 1)).unwrap();
    w.change(set(forgotten.writer, "a", ns::XattrMode::Set)).unwrap();
    w.change(ns::Interrupt { writer: forgotten.writer, kept_len: 5 }).unwrap();
    let OpenKind::Upload(upload) = forgotten.kind else { panic!("{:?}", forgotten.kind) };
    w.change(ns::ForgetUpload { upload, expired_by: None }).unwrap();
    let nothing = w.change(posc("/nothing", 1)).unwrap();
    w.change(set(nothing.writer, "a", ns::XattrMode::Set)).unwrap();
    w.change(ns::Interrupt { writer: nothing.writer, kept_len: 0 }).unwrap();
    let first = w.change(posc("/again", 1)).unwrap();
    w.change(set(first.writer, "a", ns::XattrMode::Set)).unwrap();
    let again = w.change(ns::OpenWrite { restarted: true, ..posc("/again", 1) }).unwrap();
    assert_ne!(again.object, first.object);
    assert_eq!(names(again.writer), Some(vec![]));

    // An upload that replaces a file has no attributes of its own.
    let over = w.change(open("/seen", WriteMode::Replace, 1)).unwrap();
    assert_eq!(names(over.writer), None);
    assert_eq!(w.refusal(set(over.writer, "a", ns::XattrMode::Set)), ErrorCode::Invalid);
}

#[test]
fn late_completion_undoes_nothing_that_was_acknowledged() {
    let late = |opened: &ns::OpenedWrite| ns::Commit {
        completion: ns::Completion::AtGraceEnd,
        ..World::commit_op(opened.writer, 10)
    };
    let rename = |from: &str, to: &str| ns::Rename { from: path(from), to: path(to), replace: true };
    let overwritten = |w: &World| {
        let new = w.change(open("/f", WriteMode::Replace, 2)).unwrap();
        w.change(World::commit_op(new.writer, 20)).unwrap();
    };
    let updated = |w: &World, close: bool| {
        let update = w.change(open("/f", WriteMode::Update, 2)).unwrap();
        if close {
            w.change(World::commit_op(update.writer, 20)).unwrap();
        }
        update.writer
    };
    type Meanwhile<'a> = (&'a str, Option<ErrorCode>, Box<dyn Fn(&World) + 'a>);
    let cases: Vec<Meanwhile<'_>> = vec![
        ("nothing", None, Box::new(|_| ())),
        ("rm", Some(ErrorCode::NotFound), Box::new(|w| w.change(ns::Remove { path: path("/f") }).map(drop).unwrap())),
        ("mv away", Some(ErrorCode::NotFound), Box::new(|w| w.change(rename("/f", "/g")).map(drop).unwrap())),
        ("mv over it", Some(ErrorCode::Exists), Box::new(|w| w.change(rename("/other", "/f")).map(drop).unwrap())),
        ("overwritten", Some(ErrorCode::Exists), Box::new(overwritten)),
        ("updated", Some(ErrorCode::Exists), Box::new(|w| _ = updated(w, true))),
        ("being updated", Some(ErrorCode::Busy), Box::new(|w| _ = updated(w, false))),
        (
            "update interrupted",
            Some(ErrorCode::Exists),
            Box::new(|w| {
                let writer = updated(w, false);
                w.change(ns::Interrupt { writer, kept_len: 2 }).map(drop).unwrap();
            }),
        ),
        (
            "removed and created again",
            Some(ErrorCode::Exists),
            Box::new(|w| {
                w.change(ns::Remove { path: path("/f") }).unwrap();
                w.file("/f", 20);
            }),
        ),
    ];
    for (what, refused, meanwhile) in cases {
        let w = World::new();
        w.file("/f", 1);
        w.file("/other", 3);
        let upload = w.change(open("/f", WriteMode::Replace, 1)).unwrap();
        meanwhile(&w);
        let before = w.stat("/f").ok();
        let result = w.change(late(&upload));
        match refused {
            None => assert_eq!((result.is_ok(), w.object("/f")), (true, upload.object), "{what}"),
            Some(code) => {
                assert_eq!(result.unwrap_err().code(), code, "{what}");
                assert_eq!(w.stat("/f").ok(), before, "{what}");
                let kept = w.ns.read(|read| ns::uploads(read, None, 10)).unwrap();
                assert_eq!(kept.iter().map(|up| (up.object, up.kept_len)).collect::<Vec<_>>(), [(upload.object, 10)]);
            }
        }
    }
    // A hidden upload appears under a name that was free and still is.
    let w = World::new();
    let hidden = w.change(ns::OpenWrite { posc: true, ..open("/p", WriteMode::NewOnly, 1) }).unwrap();
    w.change(late(&hidden)).unwrap();
    assert_eq!(w.object("/p"), hidden.object);
}

#[test]
fn creating_a_name_again_abandons_the_clients_earlier_write() {
    let w = World::new();
    let first = w.change(open("/f", WriteMode::NewOnly, 1)).unwrap();
    w.change(ns::Interrupt { writer: first.writer, kept_len: 2 }).unwrap();
    w.change(ns::Remove { path: path("/f") }).unwrap();
    let second = w.change(open("/f", WriteMode::NewOnly, 1)).unwrap();
    w.change(World::commit_op(second.writer, 5)).unwrap();
    assert_eq!(w.change(open("/f", WriteMode::Update, 1)).unwrap().object, second.object);
}

/// Forwards to a [`MemoryKv`] and counts the urgent changes.
struct Urgency(MemoryKv, std::sync::atomic::AtomicU32);

impl Kv for Urgency {
    fn snapshot(&self) -> Box<dyn kv::Read + Send + '_> {
        self.0.snapshot()
    }
    fn submit(&self, durability: Durability, op: kv::Op, done: kv::OpDone) {
        self.0.submit(durability, op, done);
    }
    fn submit_urgent(&self, durability: Durability, op: kv::Op, done: kv::OpDone) {
        self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.0.submit(durability, op, done);
    }
}

#[test]
fn urgent_changes_reach_the_engine_as_urgent() {
    let kv = Arc::new(Urgency(MemoryKv::new(), 0.into()));
    let ns = Namespace::open(Arc::clone(&kv) as Arc<dyn Kv>, Timestamp(1), NamespaceConfig::default()).unwrap();
    let ctx = || ns.context(Timestamp(2), &Actor::admin(), None);
    let urgent = || kv.1.load(std::sync::atomic::Ordering::Relaxed);
    ns.change_wait(Durability::Synced, ctx(), ns::Mkdir { path: path("/d"), mode: 0o755, parents: false }).unwrap();
    assert_eq!(urgent(), 0);
    ns.change_urgent_wait(Durability::Synced, ctx(), ns::Rmdir { path: path("/d") }).unwrap();
    assert_eq!(urgent(), 1);
}

#[test]
fn interrupted_in_place_update_loses_its_sums_but_stays_readable() {
    let w = World::new();
    let opened = w.change(open("/f", WriteMode::NewOnly, 1)).unwrap();
    let sums = Some(ns::Sums { adler32: types::Adler32(1), crc32c: types::Crc32c(2) });
    let content = ns::Committed { len: 5, sums, mtime: None };
    w.change(ns::Commit { writer: opened.writer, content, completion: ns::Completion::ByClient }).unwrap();
    assert_eq!(w.stat("/f").unwrap().content().unwrap().sums, sums);
    let update = w.change(open("/f", WriteMode::Update, 1)).unwrap();
    assert_eq!((update.object, update.kind, update.len), (opened.object, OpenKind::Update, 5));
    assert_eq!(w.refusal(open("/f", WriteMode::Update, 2)), ErrorCode::Busy);
    w.change(ns::Interrupt { writer: update.writer, kept_len: 6 }).unwrap();
    let content = *w.stat("/f").unwrap().content().unwrap();
    assert_eq!((content.len, content.sums, content.state), (6, None, ns::FileState::Complete));
    // The handle of an earlier writer of the same object, client and path is fenced too.
    assert_eq!(w.refusal(World::commit_op(opened.writer, 1)), ErrorCode::Stale);
    let next = w.change(open("/f", WriteMode::Update, 1)).unwrap();
    assert_eq!(w.refusal(World::commit_op(update.writer, 1)), ErrorCode::Stale);
    w.change(World::commit_op(next.writer, 9)).unwrap();
}

#[test]
fn clients_of_one_principal_change_a_complete_file_together() {
    let w = World::new();
    let made = w.change(open("/f", WriteMode::NewOnly, 1)).unwrap();
    let joins = |pid, sharing| ns::OpenWrite { sharing: Some(sharing), ..open("/f", WriteMode::Update, pid) };
    let any = ns::Sharing::Keeps(None);
    assert_eq!(w.refusal(joins(2, any)), ErrorCode::Busy, "a new file has one writer");
    w.change(World::commit_op(made.writer, 5)).unwrap();
    let first = w.change(joins(1, any)).unwrap();
    assert_eq!(first.kind, OpenKind::Update);
    for pid in [1, 2] {
        let joined = w.change(joins(pid, any)).unwrap();
        assert_eq!((joined.kind, joined.writer), (OpenKind::Resumed(None), first.writer), "{pid} fences nobody");
    }
    let of_another = ClientIdentity { principal: PrincipalId(5), ..client(2) };
    let of_another = ns::OpenWrite { client: of_another, ..joins(2, any) };
    assert_eq!(w.refusal(of_another), ErrorCode::Busy, "another principal");
    assert_eq!(w.refusal(open("/f", WriteMode::Update, 2)), ErrorCode::Busy, "it does not want to share");
    let in_a_later_boot = |pid| ns::OpenWrite { boot: BootId(2), ..joins(pid, any) };
    assert_eq!(w.refusal(in_a_later_boot(3)), ErrorCode::Busy);
    assert_eq!(w.refusal(in_a_later_boot(2)), ErrorCode::Stale, "what it has written may be lost");
    // Only this open write, and only in the epoch that the primary has.
    let only = |token, pid| ns::OpenWrite { only: Some(token), ..joins(pid, any) };
    assert_eq!(w.change(only(first.writer, 2)).unwrap().writer, first.writer);
    assert_eq!(w.refusal(only(made.writer, 2)), ErrorCode::Stale);
    let epoch = first.writer.epoch;
    assert_eq!(w.change(joins(2, ns::Sharing::Keeps(Some(epoch)))).unwrap().writer, first.writer);
    assert_eq!(w.refusal(joins(2, ns::Sharing::Keeps(Some(epoch + 1)))), ErrorCode::Stale);
    assert_eq!(w.refusal(joins(2, ns::Sharing::Raises(epoch + 1))), ErrorCode::Stale);
    let raised = w.change(joins(2, ns::Sharing::Raises(epoch))).unwrap();
    assert_eq!((raised.writer.key, raised.writer.epoch), (first.writer.key, epoch + 1), "it stays the first one's");
    assert_eq!(w.refusal(World::commit_op(first.writer, 5)), ErrorCode::Stale);
    w.change(World::commit_op(raised.writer, 5)).unwrap();
    assert_eq!(w.change(joins(2, any)).unwrap().kind, OpenKind::Update, "nobody writes it, so it begins");
}

#[test]
fn a_client_that_shares_a_file_and_is_lost_does_not_find_a_later_one() {
    for closes in [None, Some(1), Some(2)] {
        let w = World::new();
        let made = w.change(open("/f", WriteMode::NewOnly, 9)).unwrap();
        w.change(World::commit_op(made.writer, 5)).unwrap();
        let sharing = Some(ns::Sharing::Keeps(None));
        let joins = |pid| ns::OpenWrite { sharing, ..open("/f", WriteMode::Update, pid) };
        let first = w.change(joins(1)).unwrap();
        w.change(joins(2)).unwrap();
        if let Some(pid) = closes {
            let path = NsPath::parse(b"/f").unwrap();
            w.change(ns::NoteSharer {
                client: client(pid),
                path,
                object: first.object,
                is_away: false,
                boot: BootId(1),
            })
            .unwrap();
        }
        w.change(World::commit_op(first.writer, 5)).unwrap();
        let later = w.change(open("/f", WriteMode::Replace, 3)).unwrap();
        w.change(World::commit_op(later.writer, 5)).unwrap();
        for pid in [1, 2] {
            if closes == Some(pid) {
                let found = w.change(joins(pid)).unwrap();
                assert_eq!(found.object, later.object, "it has closed the earlier one");
                w.change(World::commit_op(found.writer, 5)).unwrap();
            } else {
                assert_eq!(w.refusal(joins(pid)), ErrorCode::Stale, "client {pid}");
            }
        }
    }
}

#[test]
fn in_place_update_without_changes_leaves_the_file_as_it_was() {
    let w = World::new();
    let sums = |n| ns::Sums { adler32: types::Adler32(n), crc32c: types::Crc32c(2) };
    let opened = w.change(open("/f", WriteMode::NewOnly, 1)).unwrap();
    let content = ns::Committed { len: 5, sums: Some(sums(1)), mtime: None };
    w.change(ns::Commit { writer: opened.writer, content, completion: ns::Completion::ByClient }).unwrap();
    let before = w.stat("/f").unwrap();
    let end = |writer, sums, certain, completion| ns::EndUnchanged { writer, len: 5, sums, certain, completion };
    for completion in [ns::Completion::ByClient, ns::Completion::AtGraceEnd] {
        let update = w.change(open("/f", WriteMode::Update, 1)).unwrap();
        assert_eq!(w.stat("/f").unwrap().content().unwrap().sums, None, "nothing is known of it meanwhile");
        assert!(!w.change(end(update.writer, sums(9), false, completion)).unwrap(), "other bytes");
        assert!(!w.change(ns::EndUnchanged { len: 6, ..end(update.writer, sums(1), true, completion) }).unwrap());
        // Also by a writer that came back.
        let again = w.change(open("/f", WriteMode::Update, 1)).unwrap();
        assert_eq!(w.refusal(end(update.writer, sums(1), true, completion)), ErrorCode::Stale);
        assert!(w.change(end(again.writer, sums(1), false, completion)).unwrap());
        let after = w.stat("/f").unwrap();
        assert_eq!((after.content(), after.mtime), (before.content(), before.mtime));
        assert_eq!(w.refusal(World::commit_op(again.writer, 1)), ErrorCode::Stale);
    }
    // Previously unknown checksums become known, if the server is certain.
    let update = w.change(open("/f", WriteMode::Update, 1)).unwrap();
    w.change(ns::Interrupt { writer: update.writer, kept_len: 5 }).unwrap();
    let before = w.stat("/f").unwrap();
    let update = w.change(open("/f", WriteMode::Update, 1)).unwrap();
    assert!(!w.change(end(update.writer, sums(3), false, ns::Completion::ByClient)).unwrap());
    assert!(w.change(end(update.writer, sums(3), true, ns::Completion::ByClient)).unwrap());
    let after = w.stat("/f").unwrap();
    assert_eq!(after.content().unwrap().sums, Some(sums(3)));
    assert_eq!(
        (after.content().unwrap().generation, after.mtime),
        (before.content().unwrap().generation, before.mtime)
    );
    // The file was removed meanwhile: its object is deleted.
    let update = w.change(open("/f", WriteMode::Update, 1)).unwrap();
    w.change(ns::Remove { path: path("/f") }).unwrap();
    assert!(w.change(end(update.writer, sums(3), true, ns::Completion::ByClient)).unwrap());
    assert_eq!(w.queue(), [update.object]);
    // Other open writes than updates are left alone.
    let new = w.change(open("/g", WriteMode::NewOnly, 1)).unwrap();
    assert!(!w.change(end(new.writer, sums(3), true, ns::Completion::ByClient)).unwrap());
}

#[test]
fn restart_drops_all_the_clients_unfinished_writes_of_the_path_and_lists_them() {
    let w = World::new();
    let stands = w.file("/f", 1).object;
    let mine: Vec<_> = (0..3).map(|_| w.change(open("/f", WriteMode::Replace, 1)).unwrap()).collect();
    let others = w.change(open("/f", WriteMode::Replace, 2)).unwrap();
    let again = w.change(ns::OpenWrite { restarted: true, ..open("/f", WriteMode::Replace, 1) }).unwrap();
    let objects: Vec<_> = mine.iter().map(|opened| opened.object).collect();
    assert_eq!(again.dropped, objects);
    assert_eq!(w.queue(), objects);
    for opened in &mine {
        assert_eq!(w.refusal(World::commit_op(opened.writer, 1)), ErrorCode::Stale);
    }
    assert_eq!(w.object("/f"), stands);
    w.change(World::commit_op(others.writer, 1)).unwrap();
    // Together with an unfinished new file.
    let new = w.change(open("/g", WriteMode::NewOnly, 1)).unwrap();
    let upload = w.change(ns::OpenWrite { posc: true, ..open("/h", WriteMode::NewOnly, 1) }).unwrap();
    w.change(ns::Rename { from: path("/g"), to: path("/k"), replace: false }).unwrap();
    let again = w.change(ns::OpenWrite { restarted: true, ..open("/k", WriteMode::NewOnly, 1) });
    assert_eq!(again.unwrap_err().code(), ErrorCode::Exists, "it is another path's writer");
    let again = w.change(ns::OpenWrite { restarted: true, ..open("/h", WriteMode::NewOnly, 1) }).unwrap();
    assert_eq!((again.dropped, again.kind), (vec![upload.object], OpenKind::New));
    w.change(World::commit_op(new.writer, 1)).unwrap();
}

#[test]
fn moves_between_trees_follow_the_rules() {
    let w = World::new();
    w.mkdir("/a/sub");
    w.mkdir("/t");
    w.change(ns::MakeTree { path: path("/t") }).unwrap();
    w.file("/a/one", 3);
    w.file("/a/two", 4);
    w.change(ns::Link { existing: path("/a/two"), new: path("/a/three") }).unwrap();
    let rename = |from: &str, to: &str| ns::Rename { from: path(from), to: path(to), replace: true };
    w.change(rename("/a/one", "/t/one")).unwrap();
    assert_eq!(w.refusal(rename("/a/sub", "/t/sub")), ErrorCode::CrossTree);
    assert_eq!(w.refusal(rename("/a/two", "/t/two")), ErrorCode::CrossTree);
    assert_eq!(w.refusal(ns::Link { existing: path("/t/one"), new: path("/a/x") }), ErrorCode::CrossTree);
    let totals = |at: &str| w.ns.read(|read| ns::totals(read, w.stat(at)?.ino)).unwrap();
    assert_eq!((totals("/t").entries, totals("/t").bytes), (1, 3));
    assert_eq!((totals("/a").entries, totals("/a").bytes), (3, 8), "one file of two names counts twice");
    // The root of a tree moves within the surrounding tree and keeps its own.
    w.change(rename("/t", "/a/t")).unwrap();
    w.change(ns::Remove { path: path("/a/three") }).unwrap();
    w.change(rename("/a/two", "/a/t/two")).unwrap();
    assert_eq!(w.refusal(ns::MakeTree { path: path("/a/t") }), ErrorCode::NotEmpty);
}

#[test]
fn links_are_followed_forty_times() {
    let w = World::new();
    w.file("/f", 1);
    let link = |at: String, target: String| ns::Symlink { path: path(at), target: target.into_bytes() };
    w.change(link("/l1".into(), "f".into())).unwrap();
    for n in 2..=41 {
        w.change(link(format!("/l{n}"), format!("/l{}", n - 1))).unwrap();
    }
    assert_eq!(w.stat("/l40").unwrap().len(), 1);
    assert_eq!(w.stat("/l41").unwrap_err().code(), ErrorCode::Loop);
    w.change(link("/self".into(), "self/x".into())).unwrap();
    assert_eq!(w.stat("/self").unwrap_err().code(), ErrorCode::Loop);
    // Targets that grow with each step are limited too.
    w.change(link("/grow".into(), format!("grow{}", "/x".repeat(2_000)))).unwrap();
    assert_eq!(w.stat("/grow").unwrap_err().code(), ErrorCode::NameTooLong);
}

#[test]
fn names_hold_any_bytes_up_to_the_limits() {
    let w = World::new();
    let odd = b"/\xff\xfe \n\t\\%\"'*?".to_vec();
    let long = [b"/".as_slice(), &[0xff; 255]].concat();
    for name in [odd, long.clone()] {
        let made = w.change(ns::Mkdir { path: path(&name), mode: 0o755, parents: false }).unwrap();
        assert_eq!(w.ns.read(|read| ns::path_of(read, made.ino)).unwrap(), name);
    }
    let deepest = path(long.repeat(16));
    assert_eq!(deepest.as_bytes().len(), 4096);
    let made = w.change(ns::Mkdir { path: deepest.clone(), mode: 0o755, parents: true }).unwrap();
    assert_eq!(made.made, 15);
    assert_eq!(w.ns.read(|read| ns::stat(read, &Actor::admin(), &deepest)).unwrap().ino, made.ino);
    // After the move it is deeper than any path in a request. Its number still finds it.
    w.mkdir("/below");
    let to = path([b"/below".as_slice(), &long].concat());
    w.change(ns::Rename { from: path(&long), to, replace: false }).unwrap();
    assert_eq!(w.ns.read(|read| ns::path_of(read, made.ino)).unwrap().len(), 4096 + 6);
}

#[test]
fn attributes_are_limited() {
    let w = World::new();
    w.file("/f", 1);
    let set = |name: Vec<u8>, len: usize| ns::SetXattr {
        of: path("/f").into(),
        name,
        value: vec![0; len],
        mode: ns::XattrMode::Set,
    };
    w.change(set(vec![b'n'; 255], 65_536)).unwrap();
    assert_eq!(w.refusal(set(vec![b'n'; 256], 1)), ErrorCode::NameTooLong);
    assert_eq!(w.refusal(set(b"n".to_vec(), 65_537)), ErrorCode::TooLarge);
    assert_eq!(w.refusal(set(Vec::new(), 1)), ErrorCode::Invalid);
    for n in 1..256 {
        w.ns.change_wait(
            Durability::Synced,
            w.ns.context(Timestamp(2_000), &Actor::admin(), None),
            set(format!("a{n}").into_bytes(), 1),
        )
        .unwrap();
    }
    assert_eq!(w.refusal(set(b"one more".to_vec(), 1)), ErrorCode::TooMany);
    // The server's mark of a damaged file has its place.
    w.change(set(ns::DAMAGED_MARK.to_vec(), 1)).unwrap();
    w.change(set(b"a1".to_vec(), 2)).unwrap();
    assert_eq!(w.refusal(set(b"one more".to_vec(), 1)), ErrorCode::TooMany);
    w.change(ns::Remove { path: path("/f") }).unwrap();
}

#[test]
fn numbered_requests_run_once() {
    let w = World::new();
    let session = w.change(ns::OpenSession { client: client(1) }).unwrap();
    let ask = |number, session, op: ns::Mkdir| {
        let ctx = w.ns.context(Timestamp(5_000), &Actor::admin(), Some(RequestNumber { session, number }));
        w.ns.change_wait(Durability::Synced, ctx, op).map_err(|error| error.code())
    };
    let mkdir = |at: &str| ns::Mkdir { path: path(at), mode: 0o755, parents: false };
    let first = ask(1, session, mkdir("/a")).unwrap();
    assert_eq!(ask(1, session, mkdir("/a")), Ok(first));
    assert_eq!(ask(2, session, mkdir("/a")), Err(ErrorCode::Exists));
    w.change(ns::Rmdir { path: path("/a") }).unwrap();
    assert_eq!(ask(2, session, mkdir("/a")), Err(ErrorCode::Exists), "a refusal is an answer too");
    assert_eq!(ask(1, SessionId(12_345), mkdir("/b")), Err(ErrorCode::Stale), "unknown session");
    assert_eq!(ask(0, session, mkdir("/b")), Err(ErrorCode::Invalid));
    assert_eq!(ask(66, session, mkdir("/c")).map(|made| made.made), Ok(1));
    assert_eq!(ask(2, session, mkdir("/d")), Err(ErrorCode::Stale), "outside of the window of 64");
    let ctx = w.ns.context(Timestamp(5_000), &Actor::admin(), Some(RequestNumber { session, number: 66 }));
    let other = w.ns.change_wait(Durability::Synced, ctx, ns::Rmdir { path: path("/c") });
    assert_eq!(other.unwrap_err().code(), ErrorCode::Invalid, "a number stands for one request");
    w.change(ns::CloseSession { session }).unwrap();
    assert_eq!(ask(67, session, mkdir("/e")), Err(ErrorCode::Stale));
    let mut left = Vec::new();
    let mut visit = |key: &[u8], _: &[u8]| {
        left.push(key.to_vec());
        std::ops::ControlFlow::Continue(())
    };
    w.kv.snapshot().scan(b"R", b"S", kv::ScanOrder::Ascending, &mut visit).unwrap();
    assert!(left.is_empty(), "a closed session leaves nothing: {left:?}");
}

fn numbered(session: SessionId, number: u64) -> Option<RequestNumber> {
    Some(RequestNumber { session, number })
}

#[test]
fn a_number_that_has_closed_one_file_does_not_close_another() {
    let w = World::new();
    let session = w.change(ns::OpenSession { client: client(1) }).unwrap();
    let [f, g] = ["/f", "/g"].map(|at| w.change(open(at, WriteMode::NewOnly, 1)).unwrap().writer);
    let close = |number, writer| {
        let ctx = w.ns.context(Timestamp(5_000), &Actor::admin(), numbered(session, number));
        w.ns.change_wait(Durability::Synced, ctx, World::commit_op(writer, 5)).map_err(|error| error.code())
    };
    close(1, f).unwrap();
    close(1, f).unwrap();
    assert_eq!(close(1, g), Err(ErrorCode::Invalid), "it was not answered as closed");
    assert!(w.ns.read(|read| ns::writer_of(read, g.key, g.object)).unwrap().is_some());
    close(2, g).unwrap();
    close(2, g).unwrap();
    assert_eq!(w.stat("/g").unwrap().len(), 5);
}

#[test]
fn the_number_of_an_open_that_was_taken_back_can_be_used_again() {
    let w = World::new();
    let session = w.change(ns::OpenSession { client: client(1) }).unwrap();
    let number = numbered(session, 1);
    let opens = || {
        let ctx = w.ns.context(Timestamp(5_000), &Actor::admin(), number);
        w.ns.change_wait(Durability::Synced, ctx, open("/f", WriteMode::NewOnly, 1)).unwrap()
    };
    let first = opens();
    assert_eq!(opens().writer, first.writer);
    w.change(ns::Abandon { writer: first.writer, request: number }).unwrap();
    assert_eq!(w.stat("/f").unwrap_err().code(), ErrorCode::NotFound);
    let second = opens();
    assert_ne!(second.object, first.object);
    assert_eq!(second.kind, OpenKind::New);
    w.change(World::commit_op(second.writer, 3)).unwrap();
    // The number of another open stays.
    let third = w.change(open("/g", WriteMode::NewOnly, 1)).unwrap();
    w.change(ns::Abandon { writer: third.writer, request: numbered(session, 65) }).unwrap();
    assert_eq!(opens().writer, second.writer, "its answer is still known");
}

#[test]
fn taking_back_leaves_nothing_of_an_upload_and_refuses_a_change_in_place() {
    let w = World::new();
    let old = w.file("/f", 3).object;
    let over = w.change(open("/f", WriteMode::Replace, 1)).unwrap();
    w.change(ns::Abandon { writer: over.writer, request: None }).unwrap();
    assert_eq!((w.object("/f"), w.stat("/f").unwrap().len()), (old, 3));
    assert_eq!(w.queue(), [over.object]);
    assert!(w.ns.read(|read| ns::uploads(read, None, 10)).unwrap().is_empty());
    let update = w.change(open("/f", WriteMode::Update, 2)).unwrap();
    assert_eq!(w.refusal(ns::Abandon { writer: update.writer, request: None }), ErrorCode::Invalid);
    w.change(World::commit_op(update.writer, 4)).unwrap();
    assert_eq!(w.stat("/f").unwrap().len(), 4);
}

#[test]
fn sessions_are_limited_and_unused_ones_give_way() {
    const DAY: i64 = 86_400_000_000_000;
    let limits = ns::Limits { sessions_max: 5, sessions_of_principal_max: 3, ..ns::Limits::default() };
    let kv: Arc<dyn Kv> = Arc::new(MemoryKv::new());
    let ns = Namespace::open(Arc::clone(&kv), Timestamp(1), NamespaceConfig { limits, ..NamespaceConfig::default() });
    let ns = ns.unwrap();
    let begin = |principal, at: i64| {
        let actor = Actor::new(PrincipalId(principal), Arc::from([PrincipalId(principal)]));
        let ctx = ns.context(Timestamp(at), &actor, None);
        let room = ns.has_room_for_session(Timestamp(at), &client_of(principal, 1)).map_err(|error| error.code());
        let begun = ns.change_wait(Durability::Synced, ctx, ns::OpenSession { client: client_of(principal, 1) });
        let begun = begun.map_err(|error| (error.code(), error.to_string()));
        assert_eq!(begun.as_ref().map(|_| ()).map_err(|(code, _)| *code), room);
        begun
    };
    let own: Vec<SessionId> = (0..3).map(|at| begin(7, at).unwrap()).collect();
    let (code, text) = begin(7, 3).unwrap_err();
    assert_eq!(code, ErrorCode::TooMany);
    assert!(text.contains("of this principal") && text.contains("3 is the limit"), "{text}");
    begin(8, 4).unwrap();
    begin(8, 4).unwrap();
    let (code, text) = begin(9, 5).unwrap_err();
    assert_eq!(code, ErrorCode::TooMany);
    assert!(text.contains("5 is the limit"), "{text}");
    // One that is used stays, the others give way. An ended one makes room as well.
    let mkdir = |at: i64, session| {
        let ctx = ns.context(Timestamp(at), &Actor::admin(), numbered(session, u64::try_from(at).unwrap()));
        let op = ns::Mkdir { path: path(format!("/d{at}")), mode: 0o755, parents: false };
        ns.change_wait(Durability::Synced, ctx, op).map_err(|error| error.code())
    };
    mkdir(DAY / 2, own[1]).unwrap();
    begin(9, DAY + 2).unwrap();
    assert_eq!(mkdir(DAY + 3, own[0]), Err(ErrorCode::Stale), "it has given way");
    mkdir(DAY + 3, own[1]).unwrap();
    let ctx = ns.context(Timestamp(DAY + 4), &Actor::admin(), None);
    for session in [own[1], own[2]] {
        let gone = ns.change_wait(Durability::Synced, ctx.clone(), ns::CloseSession { session });
        assert_eq!(gone.is_ok(), session == own[1]);
    }
}

#[test]
fn each_denial_names_its_rule() {
    let w = World::new();
    w.mkdir("/shared/deep");
    w.change(ns::Chmod { path: path("/shared"), mode: 0o1777 }).unwrap();
    let who = |id: u32| Actor::new(PrincipalId(id), Arc::from([PrincipalId(id + 100)]));
    let open_as = |id, at, how| ns::OpenWrite::new(path(at), how, client_of(id, 5), BootId(1));
    let f = open_as(5, "/shared/f", WriteMode::NewOnly);
    let opened = w.as_who(&who(5), f).unwrap();
    w.as_who(&who(5), World::commit_op(opened.writer, 1)).unwrap();
    let denial = |who: &Actor, op: ns::Remove| w.as_who(who, op).unwrap_err().to_string();
    let sticky = denial(&who(6), ns::Remove { path: path("/shared/f") });
    assert!(sticky.contains("sticky"), "{sticky}");
    let error = w.as_who(&who(6), open_as(6, "/shared/f", WriteMode::Replace)).unwrap_err().to_string();
    assert!(error.contains("mode 0644 of owner 5 group 105 gives others no w"), "{error}");
    let error = w.as_who(&who(6), ns::Chmod { path: path("/shared/f"), mode: 0 }).unwrap_err().to_string();
    assert!(error.contains("only its owner (5) may"), "{error}");
    let error = w.as_who(&who(6), open_as(6, "/shared/deep/x", WriteMode::NewOnly)).unwrap_err().to_string();
    assert!(error.contains("mode 0755 of owner admin"), "{error}");
    w.as_who(&who(5), ns::Remove { path: path("/shared/f") }).unwrap();
}

#[test]
fn held_inode_stays_when_its_name_goes() {
    let w = World::new();
    let file = w.file("/f", 4);
    let (one, two) = (SessionId(51), SessionId(52));
    for session in [one, two, one] {
        w.change(ns::Hold { session, ino: file.ino }).unwrap();
    }
    assert_eq!(w.change(ns::Remove { path: path("/f") }).unwrap().object, None);
    let inode = w.ns.read(|read| ns::stat_ino(read, file.ino)).unwrap();
    assert_eq!((inode.nlink, inode.len()), (0, 4));
    assert_eq!(w.change(ns::ReleaseHold { session: one, ino: file.ino }).unwrap(), None);
    assert_eq!(w.change(ns::ReleaseHold { session: two, ino: file.ino }).unwrap(), Some(file.object));
    assert_eq!(w.queue(), [file.object]);
    assert_eq!(w.refusal(ns::ReleaseHold { session: two, ino: file.ino }), ErrorCode::NotFound);
}

#[test]
fn object_with_another_referrer_is_not_queued() {
    let w = World::new();
    let file = w.file("/f", 4);
    // As a snapshot will do it: the inode says that its object is shared, and `F` names the referrer.
    let dentry_key = [b"D".as_slice(), &1u64.to_be_bytes(), b"f"].concat();
    let referrer = [b"F".as_slice(), &file.object.0.to_be_bytes(), b"snapshot"].concat();
    kv::transact(&*w.kv, Durability::Synced, move |txn| {
        let mut record = txn.get(&dentry_key).unwrap().unwrap();
        record.extend_from_slice(&[0x83, 0, 0]);
        txn.put(&dentry_key, &record);
        txn.put(&referrer, &[1]);
        (kv::OpOutcome::Commit, ())
    })
    .unwrap();
    assert!(w.stat("/f").unwrap().content().unwrap().shared);
    assert_eq!(w.change(ns::Remove { path: path("/f") }).unwrap().object, None);
    assert_eq!(w.queue(), []);
}

#[test]
fn numbers_are_never_reused_by_any_run_nor_after_a_restore() {
    let kv: Arc<dyn Kv> = Arc::new(MemoryKv::new());
    let config = NamespaceConfig { id_range: 8, ..NamespaceConfig::default() };
    let mut seen = std::collections::HashSet::new();
    let mut last = (Ino(0), types::ObjectId(0));
    for _run in 0..5 {
        let ns = Namespace::open(Arc::clone(&kv), Timestamp(1), config).unwrap();
        for _ in 0..6 {
            last = (ns.ids().next_ino().unwrap(), ns.ids().next_object().unwrap());
            assert!(seen.insert(last.1), "{last:?} came twice");
        }
    }
    let ns = Namespace::open(Arc::clone(&kv), Timestamp(1), config).unwrap();
    let restored = ns::RaiseIncarnation {
        at_least: types::Incarnation(7),
        above_ino: Ino(5_000),
        above_object: types::ObjectId(6_000),
    };
    let ctx = ns.context(Timestamp(2), &Actor::admin(), None);
    assert_eq!(ns.change_wait(Durability::Synced, ctx, restored).unwrap(), types::Incarnation(8));
    let ns = Namespace::open(kv, Timestamp(1), config).unwrap();
    assert_eq!(ns.incarnation(), types::Incarnation(8));
    assert!(ns.ids().next_ino().unwrap() > Ino(5_000) && ns.ids().next_object().unwrap() > types::ObjectId(6_000));
    assert!(last.0 < Ino(5_000));
}

#[test]
fn two_incarnations_from_one_copy_have_different_object_numbers() {
    const BEFORE: u64 = 5;
    let config = NamespaceConfig { id_range: 8, ..NamespaceConfig::default() };
    let life = |passed_over: u64| {
        let kv: Arc<dyn Kv> = Arc::new(MemoryKv::new());
        // The numbers that both share from before.
        let before = Namespace::open(Arc::clone(&kv), Timestamp(1), config).unwrap();
        assert!((1..=BEFORE).all(|number| before.ids().next_object().unwrap() == ObjectId(number)));
        let config = NamespaceConfig { objects_passed_over: passed_over, ..config };
        (Namespace::open(Arc::clone(&kv), Timestamp(1), config).unwrap(), kv)
    };
    let some = |ns: &Namespace| -> Vec<ObjectId> {
        // Each change takes numbers early enough.
        let object = |_| {
            let _ = ns.change_wait(
                Durability::Synced,
                ns.context(Timestamp(2), &Actor::admin(), None),
                ns::Remove { path: path("/none") },
            );
            ns.ids().next_object().unwrap()
        };
        (0..8).map(object).collect()
    };
    for (of_one, of_other) in [(1000, 20), (20, 1000)] {
        let ((one, _), (other, kv)) = (life(of_one), life(of_other));
        let theirs = some(&one);
        // The other incarnation's objects are reported: none, then some, then all.
        let mut made = some(&other);
        assert!(!other.is_older_than(ObjectId(BEFORE), || 500));
        for known in [3, 5, 8] {
            assert!(other.is_older_than(theirs[known - 1], || 500), "{known} of them are noticed");
            assert!(!other.is_older_than(theirs[known - 1], || 500) && !other.is_older_than(theirs[0], || 500));
            made.extend(some(&other));
        }
        // It stays true for a new run that skips nothing.
        made.extend(some(&Namespace::open(kv, Timestamp(3), config).unwrap()));
        assert!(theirs.iter().all(|object| !made.contains(object)), "{theirs:?} {made:?}");
        assert!(made.is_sorted(), "{made:?}");
    }
}

/// Lists a directory of a hundred thousand entries (`WEIR_ENTRIES` for more) in pages, in bounded memory, while it changes.
#[test]
fn large_directory_is_listed_in_pages_that_resume_after_a_name() {
    let entries: u64 = std::env::var("WEIR_ENTRIES").ok().and_then(|n| n.parse().ok()).unwrap_or(100_000);
    let w = World::new();
    let dir = w.mkdir("/big");
    for n in 0..entries {
        let ctx = w.ns.context(Timestamp(5_000), &Actor::admin(), None);
        let op = ns::Symlink { path: path(format!("/big/{n:08}")), target: b"t".to_vec() };
        w.ns.change_wait(Durability::Synced, ctx, op).unwrap();
    }
    let (mut after, mut seen): (Option<FileName>, u64) = (None, 0);
    loop {
        let page = w.ns.read(|read| ns::list(read, dir, after.as_ref(), 1_000)).unwrap();
        assert!(page.entries.len() <= 1_000, "a page is bounded");
        for entry in &page.entries {
            assert_eq!(entry.name.as_bytes(), format!("{seen:08}").as_bytes());
            seen += 1;
        }
        after = page.entries.last().map(|entry| entry.name.clone());
        if !page.more {
            break;
        }
        // The name after which the next page starts may be gone by then.
        if seen == 5_000 {
            let gone = path(format!("/big/{:08}", seen - 1));
            w.ns.change_wait(
                Durability::Synced,
                w.ns.context(Timestamp(5_001), &Actor::admin(), None),
                ns::Remove { path: gone },
            )
            .unwrap();
        }
    }
    assert_eq!(seen, entries);
    let mut visited = 0;
    let more =
        w.ns.read(|read| {
            ns::list_visit(read, dir, Some(b"00001999"), 10, &mut |name, inode| {
                assert_eq!(name, format!("{:08}", 2_000 + visited).as_bytes());
                assert_eq!(inode.len(), 1);
                visited += 1;
                std::ops::ControlFlow::Continue(())
            })
        })
        .unwrap();
    assert_eq!((visited, more), (10, true));
    let huge = w.ns.read(|read| ns::list(read, dir, None, usize::MAX)).unwrap();
    assert!(huge.entries.len() <= 65_536, "whatever is asked for");
}

/// Wrong totals of every kind are reported as such and recounted. Unknown values stay refused.
#[test]
fn wrong_totals_are_recounted() {
    let w = World::new();
    let (dir, empty) = (w.mkdir("/dir"), w.mkdir("/empty"));
    w.mkdir("/dir/below");
    w.file("/dir/a", 5);
    w.file("/elsewhere", 7);
    w.change(ns::Link { existing: path("/elsewhere"), new: path("/dir/linked") }).unwrap();
    // More than one page, as for a large directory.
    for n in 0..2_500 {
        let ctx = w.ns.context(Timestamp(5_000), &Actor::admin(), None);
        let op = ns::Symlink { path: path(format!("/dir/s{n}")), target: b"t".to_vec() };
        w.ns.change_wait(Durability::Synced, ctx, op).unwrap();
    }
    let right = |dir| w.ns.read(|read| ns::totals(read, dir)).unwrap();
    let before = (right(dir), right(empty));
    assert_eq!((before.0.entries, before.0.bytes), (2_503, 12));
    let shard = |dir: Ino, shard: u16| [b"A".as_slice(), &dir.0.to_be_bytes(), &shard.to_be_bytes()].concat();
    let put = |key: Vec<u8>, value: Option<Vec<u8>>| {
        kv::transact(&*w.kv, Durability::Synced, move |txn| {
            match &value {
                Some(value) => txn.put(&key, value),
                None => txn.delete(&key),
            }
            (kv::OpOutcome::Commit, ())
        })
        .unwrap();
    };
    let wrong = |entries: i64, bytes: i64| {
        Some([vec![2], entries.to_be_bytes().to_vec(), bytes.to_be_bytes().to_vec()].concat())
    };
    let findings = || {
        let mut findings = Vec::new();
        ns::check(&*w.kv.snapshot(), &mut |finding| findings.push(finding)).unwrap();
        findings
    };
    for (of, number, value) in [
        (dir, 3, wrong(1, 0)),
        (dir, 3, wrong(0, -1)),
        (dir, 3, wrong(-5_000, 0)),
        (dir, 3, Some(vec![2, 2, 3])),
        (empty, 0, wrong(2, 0)),
        (empty, 9, Some(vec![2])),
    ] {
        put(shard(of, number), value.clone());
        let found = findings();
        assert!(!found.is_empty() && found.iter().all(|f| f.totals_of == Some(of)), "{of} {value:?}: {found:?}");
        w.change(ns::RecountTotals { dir: of }).unwrap();
        if number != 0 {
            assert_eq!((right(dir), right(empty)), before, "the time of the latest change stays too");
        }
        assert_eq!((right(empty).entries, right(empty).bytes), (0, 0));
    }
    put(shard(dir, 0), None);
    assert_eq!(findings().len(), 1);
    w.change(ns::RecountTotals { dir }).unwrap();
    assert_eq!((right(dir).entries, right(dir).bytes), (2_503, 12));
    let somebody = Actor::new(PrincipalId(5), Arc::from([PrincipalId(5)]));
    assert_eq!(w.as_who(&somebody, ns::RecountTotals { dir }).unwrap_err().code(), ErrorCode::Denied);
    assert_eq!(w.refusal(ns::RecountTotals { dir: w.stat("/dir/a").unwrap().ino }), ErrorCode::NotFound);
    // With an entry that cannot be decoded, the right totals are unknown. So the totals stay.
    put([b"D".as_slice(), &dir.0.to_be_bytes(), b"torn"].concat(), Some(vec![2, 2, 3]));
    let recount = || {
        let ctx = w.ns.context(Timestamp(6_000), &Actor::admin(), None);
        w.ns.change_wait(Durability::Synced, ctx, ns::RecountTotals { dir }).unwrap_err().code()
    };
    assert_eq!(recount(), ErrorCode::Damaged);
    assert_eq!(right(dir).entries, 2_503);
    put([b"D".as_slice(), &dir.0.to_be_bytes(), b"torn"].concat(), None);
    // The totals of a newer version cannot be understood. They stay, and the check does not offer to recount them.
    put(shard(dir, 3), Some(vec![9, 9, 9]));
    assert!(findings().iter().all(|finding| finding.totals_of.is_none()) && !findings().is_empty());
    assert_eq!(recount(), ErrorCode::Unsupported);
    assert_eq!(w.kv.snapshot().get(&shard(dir, 3)).unwrap(), Some(vec![9, 9, 9]));
}

#[test]
fn the_state_of_a_file_is_an_attribute() {
    let w = World::new();
    w.file("/f", 1);
    w.mkdir("/d");
    let name = || ns::STATE_ATTRIBUTE.to_vec();
    let state = |at: &str| {
        let state = w.ns.read(|read| ns::get_xattr(read, &Actor::admin(), &path(at).into(), ns::STATE_ATTRIBUTE));
        state.map(|state| String::from_utf8(state).unwrap())
    };
    assert_eq!(state("/f").unwrap(), "complete");
    assert_eq!(state("/d").unwrap_err().code(), ErrorCode::NotFound);
    let of = || path("/f").into();
    let set = ns::SetXattr { of: of(), name: name(), value: b"complete".to_vec(), mode: ns::XattrMode::Set };
    assert_eq!(w.refusal(set), ErrorCode::Invalid);
    assert_eq!(w.refusal(ns::RemoveXattr { of: of(), name: name() }), ErrorCode::Invalid);
}
