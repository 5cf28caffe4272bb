//! The journal's folder is gone, the indexes and the objects are not: what `weir fsck --reset-journal` recovers.
#![allow(clippy::unwrap_used, clippy::panic)] // a test may fail this way

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::node;
use crate::session::Session;
use config::Config;
use foundation::{DataDir, Foundation, IfNew, Purpose};
use maintenance::fsck::FsckOptions;
use maintenance::fsck::finding::ProblemKind;
use maintenance::fsck::report::Report;
use namespace::{Actor, Commit, Committed, Completion, Durability, OpenWrite, Sums, WriteMode};
use store::NewReplica;
use types::{BootId, ClientIdentity, Ino, NsPath, ObjectId, ReplicaId, Timestamp};
use wire::request::OpenOptions;

const NOW: Timestamp = Timestamp(1_700_000_000_000_000_000);

fn large() -> Vec<u8> {
    (0..300_000u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[1]).collect()
}

struct World {
    place: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        Self { place: tempfile::tempdir().unwrap() }
    }

    fn data(&self) -> PathBuf {
        self.place.path().join("data")
    }

    fn data_text(&self) -> String {
        self.data().to_str().unwrap().to_owned()
    }

    /// Opens the foundation of a server. `close` closes it; otherwise it stays as a kill leaves it.
    fn opened<T>(&self, close: bool, what: impl FnOnce(&Foundation) -> T) -> T {
        let data = DataDir::open(&self.data(), IfNew::Make, NOW).unwrap();
        let config = Config { segment_size: 1 << 20, ballast: 1 << 20, ..Config::defaults() };
        let foundation = Foundation::open(&data, &config.foundation(), Purpose::Check, NOW).unwrap();
        let result = what(&foundation);
        if close {
            foundation.close().unwrap();
        }
        result
    }

    fn served<T>(&self, close: bool, what: impl FnOnce(&Foundation, &mut Session) -> T) -> T {
        self.opened(close, |foundation| {
            let config = xrootd::ServerConfig::new("127.0.0.1:0".parse().unwrap(), BootId(1));
            let (namespace, store) = (Arc::clone(&foundation.names.namespace), Arc::clone(&foundation.objects.store));
            let server = xrootd::Server::start(config, service::Role::Alone { namespace, store }).unwrap();
            let result = what(foundation, &mut Session::open(server.address(), 4711));
            server.stop(Instant::now() + Duration::from_secs(5));
            result
        })
    }

    fn lose_the_journal(&self) {
        fs::remove_dir_all(self.data().join("journal")).unwrap();
    }

    /// The error of a start, which must fail.
    fn refused(&self) -> String {
        let (code, said) = node::refusal(&["serve", "--data", &self.data_text(), "--listen", "127.0.0.1:0"]);
        assert_eq!(code, 5, "{said}");
        said
    }

    fn reset_journal(&self) -> (i32, String) {
        let ended = node::weir_ends(&["fsck", "--reset-journal", "--data", &self.data_text()]);
        let said = [ended.stderr, ended.stdout].concat();
        (ended.status.code().unwrap(), String::from_utf8(said).unwrap())
    }

    fn findings(&self) -> Vec<(ProblemKind, String)> {
        let args = FsckOptions::default();
        let mut report = Report::new(100);
        self.opened(true, |foundation| maintenance::fsck::look(foundation, &args, &mut report)).unwrap();
        report.listed().iter().map(|finding| (finding.problem.kind(), finding.subject())).collect()
    }
}

fn walk(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(walk(&path)) } else { files.push(path) }
    }
    files.sort();
    files
}

fn numbers(foundation: &Foundation, path: &str) -> (Ino, ObjectId) {
    let path = NsPath::parse(path.as_bytes()).unwrap();
    let inode = foundation.names.namespace.read(|read| namespace::stat(read, &Actor::admin(), &path)).unwrap();
    (inode.ino, inode.content().unwrap().object)
}

/// A small file whose bytes stay in the journal; a server would move them out within a second.
fn put_into_the_journal(foundation: &Foundation, path: &str, bytes: &[u8]) -> (Ino, ObjectId) {
    let namespace = &foundation.names.namespace;
    let open = OpenWrite::new(
        NsPath::parse(path.as_bytes()).unwrap(),
        WriteMode::NewOnly,
        ClientIdentity { principal: types::PrincipalId(0), user: "u".into(), pid: 1, host: "h".into() },
        BootId(1),
    );
    let context = || namespace.context(NOW, &Actor::admin(), None);
    let opened = namespace.change_wait(Durability::Synced, context(), open).unwrap();
    let new = NewReplica { path_hint: path.as_bytes(), expected_len: None, incarnation: namespace.incarnation() };
    let writer = foundation.objects.store.create(ReplicaId::first(opened.object), new).unwrap();
    writer.write(0, bytes).unwrap();
    let completed = writer.complete().unwrap();
    let sums = Some(Sums { adler32: completed.adler32, crc32c: completed.crc32c });
    let content = Committed { len: completed.len, sums, mtime: None };
    let commit = Commit { writer: opened.writer, content, completion: Completion::ByClient };
    namespace.change_wait(Durability::Synced, context(), commit).unwrap();
    (opened.ino, opened.object)
}

fn read(session: &mut Session, path: &str, len: u32) -> Vec<u8> {
    let handle = session.open_file(path, OpenOptions::READ);
    let bytes = session.read(handle, 0, len);
    session.close(handle);
    bytes
}

#[test]
fn after_a_clean_stop_only_bytes_in_the_journal_are_lost() {
    let world = World::new();
    world.served(true, |foundation, session| {
        session.mkdir("/run");
        session.put("/run/large", &large());
        session.put("/run/settled", b"moved out of the log");
        foundation.objects.store.tick().unwrap();
    });
    let first = world.opened(true, |foundation| put_into_the_journal(foundation, "/run/small", b"in the log alone"));
    let objects = walk(&world.data().join("store/objects"));
    world.lose_the_journal();
    let said = world.refused();
    assert!(said.contains("--reset-journal") && said.contains("no journal"), "{said}");
    let plain = node::weir_ends(&["fsck", "--data", &world.data_text()]);
    assert_eq!(plain.status.code(), Some(5), "fsck alone begins nothing");

    let (code, said) = world.reset_journal();
    assert_eq!(code, 1, "one file is still missing its bytes: {said}");
    assert!(said.contains("the journal is lost") && said.contains("begins incarnation 2"), "{said}");
    assert!(said.contains("/run/small: its object of 16 bytes is not on the disk"), "{said}");
    assert_eq!(world.findings(), [(ProblemKind::ObjectMissing, "/run/small".to_owned())]);
    assert_eq!(walk(&world.data().join("store/objects")), objects);

    let mark = fs::read_to_string(world.data().join("store/JOURNAL-RESET")).unwrap();
    assert!(!mark.contains("segment 1\n"), "the missing bytes lay in segment 1; no other bytes may come there: {mark}");

    // A second run is refused and changes nothing.
    let (code, said) = world.reset_journal();
    assert!(code == 6 && said.contains("the journal is there"), "{code} {said}");

    for round in 0..2 {
        let node = node::Node::start(&world.data(), &[]);
        let mut session = Session::open(node.address.parse().unwrap(), 1);
        assert_eq!(read(&mut session, "/run/large", 300_000), large());
        assert_eq!(read(&mut session, "/run/settled", 100), b"moved out of the log");
        session.put(&format!("/run/new{round}"), &large());
        session.put(&format!("/run/new-small{round}"), b"new");
        assert_eq!(read(&mut session, &format!("/run/new-small{round}"), 10), b"new");
        node.stop();
    }
    world.opened(true, |foundation| {
        let (ino, object) = numbers(foundation, "/run/new0");
        assert!(ino.0 > first.0.0 + (1 << 32) && object.0 > first.1.0 + (1 << 32), "{ino} {object} {first:?}");
        assert!(foundation.was_repaired, "the store clears nothing away from now on");
    });
    // The repair marks the missing file and does nothing else.
    let repaired = node::weir_ends(&["fsck", "--repair", "--data", &world.data_text()]);
    assert_eq!(repaired.status.code(), Some(0), "{}", String::from_utf8_lossy(&repaired.stdout));
}

/// The indexes are as the last clean stop left them. Later names, objects and an open write are lost. The object files are kept, and no
/// number is given out again.
#[test]
fn after_a_kill_the_indexes_are_behind() {
    let world = World::new();
    world.served(true, |foundation, session| {
        session.mkdir("/run");
        session.put("/run/before", &large());
        session.put("/run/small", b"small");
        foundation.objects.store.tick().unwrap();
    });
    let node = node::Node::start(&world.data(), &[]);
    let mut session = Session::open(node.address.parse().unwrap(), 1);
    for number in 0..5 {
        session.put(&format!("/run/after{number}"), &large());
        session.put(&format!("/run/after-small{number}"), b"after");
    }
    let handle = session.create("/run/recording");
    session.write(handle, 0, &large());
    session.sync(handle);
    node.signal(rustix::process::Signal::KILL);
    node.ended(Duration::from_secs(10));
    let objects = walk(&world.data().join("store/objects"));
    assert_eq!(objects.len(), 14, "seven large contents and their checksums");
    world.lose_the_journal();

    let (code, said) = world.reset_journal();
    assert_eq!(code, 1, "{said}");
    let findings = world.findings();
    // The five objects whose names are lost are found, without a name. The open write never ended, so no record mentions it.
    let of = |wanted| findings.iter().filter(|(kind, _)| *kind == wanted).count();
    assert_eq!((of(ProblemKind::Unreferenced), of(ProblemKind::UnexplainedFile)), (5, 1), "{findings:?}");
    let used: BTreeSet<u64> = objects
        .iter()
        .filter_map(|path| u64::from_str_radix(path.file_name()?.to_str()?.split('.').next()?, 16).ok())
        .collect();
    for round in 0..3 {
        let node = node::Node::start(&world.data(), &[]);
        let mut session = Session::open(node.address.parse().unwrap(), 1);
        assert_eq!(read(&mut session, "/run/before", 300_000), large());
        assert_eq!(read(&mut session, "/run/small", 10), b"small");
        for number in 0..5 {
            let path = format!("/new{round}-{number}");
            session.put(&path, &large());
            assert_eq!(read(&mut session, &path, 300_000), large());
        }
        // A start after an unclean stop removes nothing either.
        if round == 1 {
            node.signal(rustix::process::Signal::KILL);
            node.ended(Duration::from_secs(10));
        } else {
            node.stop();
        }
        assert!(objects.iter().all(|path| path.exists()), "round {round}");
    }
    world.opened(true, |foundation| {
        for (round, number) in (0..3).flat_map(|round| (0..5).map(move |number| (round, number))) {
            let (_, object) = numbers(foundation, &format!("/new{round}-{number}"));
            assert!(used.iter().all(|used| *used < object.0), "{object}");
        }
    });
}

/// The index has the writer of an open write but not its bytes: a start succeeds, and the writer ends.
#[test]
fn an_open_write_does_not_keep_the_node_from_starting() {
    let world = World::new();
    world.served(true, |_, session| {
        session.put("/whole", &large());
        let handle = session.create("/recording");
        session.write(handle, 0, b"some bytes");
        session.sync(handle);
    });
    world.lose_the_journal();
    let (_, said) = world.reset_journal();
    assert!(said.contains("/recording"), "{said}");
    for _ in 0..2 {
        let node = node::Node::start(&world.data(), &["--grace-seconds", "1"]);
        let mut session = Session::open(node.address.parse().unwrap(), 1);
        assert_eq!(read(&mut session, "/whole", 300_000), large());
        std::thread::sleep(Duration::from_secs(2));
        session.put("/else", b"x");
        session.rm("/else");
        node.stop();
    }
}

/// After an interruption at any step, a start is refused, and a second run reaches the same end.
#[test]
fn a_second_run_completes_after_any_interruption() {
    let world = World::new();
    world.served(true, |_, session| session.put("/kept", &large()));
    world.lose_the_journal();
    let (code, said) = world.reset_journal();
    assert_eq!(code, 0, "{said}");
    let mark = world.data().join("store/JOURNAL-RESET");
    let done = fs::read_to_string(&mark).unwrap();
    // Only the mark exists, with nothing done yet: the plan as the first step writes it.
    let begun = {
        let rest = done.split("crc32c").next().unwrap().replace("finished 1", "finished 0");
        format!("{rest}crc32c {:08x}\n", types::Crc32c::of(rest.as_bytes()).0)
    };
    let segment = walk(&world.data().join("journal"))
        .into_iter()
        .find(|path| path.extension().is_some_and(|end| end == "wseg"))
        .unwrap();
    let first = done.lines().next().unwrap().strip_prefix("first ").unwrap().parse::<u64>().unwrap();
    assert!(first > 1 << 20);

    // Just before the end: all steps are done, but the mark does not say so yet.
    fs::write(&mark, &begun).unwrap();
    let said = world.refused();
    assert!(said.contains("was started in place of a lost one") && said.contains("--reset-journal"), "{said}");
    let (code, said) = world.reset_journal();
    assert_eq!(code, 0, "{said}");
    assert_eq!(fs::read_to_string(&mark).unwrap(), done);

    // Between the mark and the journal, and while its first segment is made. The indexes are as a later crash leaves them.
    for torn in [None, Some(Vec::new()), Some(vec![0; 1 << 20]), Some(b"WEIRLOG\n torn".to_vec())] {
        let world = World::new();
        world.served(true, |_, session| session.put("/kept", &large()));
        world.lose_the_journal();
        fs::write(world.data().join("store/JOURNAL-RESET"), &begun).unwrap();
        if let Some(torn) = torn {
            fs::create_dir_all(world.data().join("journal")).unwrap();
            fs::write(world.data().join("journal").join(segment.file_name().unwrap()), torn).unwrap();
        }
        assert!(world.refused().contains("--reset-journal"));
        let (code, said) = world.reset_journal();
        assert_eq!(code, 0, "{said}");
        assert_eq!(fs::read_to_string(world.data().join("store/JOURNAL-RESET")).unwrap(), done);
        world.served(true, |_, session| assert_eq!(read(session, "/kept", 300_000), large()));
        assert_eq!(world.findings(), []);
    }
}

/// A journal that lost its newest segments is given up only on request. A damaged one needs another repair.
#[test]
fn the_rest_of_the_journal_is_moved_aside() {
    let world = World::new();
    world.served(true, |_, session| session.put("/first", &large()));
    let backup = world.place.path().join("older");
    fs::create_dir_all(&backup).unwrap();
    for file in walk(&world.data().join("journal")) {
        fs::copy(&file, backup.join(file.file_name().unwrap())).unwrap();
    }
    world.served(true, |_, session| session.put("/second", &large()));
    let segment = walk(&world.data().join("journal")).into_iter().min().unwrap();
    let whole = fs::read(&segment).unwrap();

    let mut damaged = whole.clone();
    let used = damaged.iter().rposition(|byte| *byte != 0).unwrap();
    damaged[used / 2] ^= 1;
    fs::write(&segment, &damaged).unwrap();
    let (code, said) = world.reset_journal();
    assert!(code == 5 && said.contains("--repair-journal"), "{code} {said}");
    fs::write(&segment, &whole).unwrap();
    let (code, said) = world.reset_journal();
    assert!(code == 6 && said.contains("the journal is there"), "{code} {said}");
    assert!(!world.data().join("store/JOURNAL-RESET").exists());

    world.lose_the_journal();
    fs::rename(&backup, world.data().join("journal")).unwrap();
    world.refused();
    // Readable records are not given up without a message.
    let (code, said) = world.reset_journal();
    assert!(code == 6 && said.contains("a part of the journal is there"), "{code} {said}");
    fs::rename(world.data().join("journal"), world.data().join("journal-lost-by-hand")).unwrap();
    // Foreign files are moved aside.
    fs::create_dir(world.data().join("journal")).unwrap();
    fs::write(world.data().join("journal/notes"), "of somebody").unwrap();
    let (code, said) = world.reset_journal();
    assert!(code == 0 && said.contains("journal-lost-1"), "{code} {said}");
    assert_eq!(walk(&world.data().join("journal-lost-1")).len(), 1);
    world.served(true, |_, session| {
        assert_eq!(read(session, "/first", 300_000), large());
        assert_eq!(read(session, "/second", 300_000), large());
    });
    // Once more, after losing the new journal too.
    world.lose_the_journal();
    assert_eq!(world.reset_journal().0, 0);
    world.served(true, |_, session| assert_eq!(read(session, "/second", 300_000), large()));
    assert_eq!(world.findings(), []);
}

/// If the namespace's index is gone too, its checkpoint remains. Without a checkpoint no new journal is begun.
#[test]
fn without_index_and_checkpoint_no_journal_is_begun() {
    for which in ["namespace", "store"] {
        let world = World::new();
        world.served(true, |_, session| session.put("/kept", &large()));
        world.lose_the_journal();
        fs::rename(world.data().join(which).join("index"), world.place.path().join("index")).unwrap();
        let (code, said) = world.reset_journal();
        assert!(code == 5 && said.contains("nothing left"), "{which}: {code} {said}");
        assert!(!world.data().join("store/JOURNAL-RESET").exists() && !world.data().join("journal").exists());
        fs::remove_dir_all(world.data().join(which).join("index")).unwrap();
        fs::rename(world.place.path().join("index"), world.data().join(which).join("index")).unwrap();
        assert_eq!(world.reset_journal().0, 0);
        world.served(true, |_, session| assert_eq!(read(session, "/kept", 300_000), large()));
    }
}

/// Checkpoints count if they are newer than the index.
#[test]
fn a_missing_index_comes_back_from_its_checkpoint() {
    let world = World::new();
    world.served(true, |_, session| session.put("/kept", &large()));
    // The first journal is lost, and the new one's start writes checkpoints of the indexes.
    world.lose_the_journal();
    assert_eq!(world.reset_journal().0, 0);
    world.lose_the_journal();
    for which in ["namespace", "store"] {
        assert!(!walk(&world.data().join(which).join("checkpoint")).is_empty());
        fs::remove_dir_all(world.data().join(which).join("index")).unwrap();
    }
    let (code, said) = world.reset_journal();
    assert_eq!(code, 0, "{said}");
    world.served(true, |_, session| assert_eq!(read(session, "/kept", 300_000), large()));
    assert_eq!(world.findings(), []);
}
