//! Provokes every kind of finding by deliberate damage to a real data directory.
#![allow(clippy::unwrap_used)] // a test may fail this way

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::node;
use crate::session::Session;
use config::Config;
use foundation::{DataDir, Foundation, IfNew, Purpose};
use kv::{Batch, ScanOrder};
use maintenance::fsck::FsckOptions;
use maintenance::fsck::check::{CheckOptions, Counts, Progress, check};
use maintenance::fsck::finding::ProblemKind;
use maintenance::fsck::report::Report;
use namespace::{Actor, Content};
use store::NewReplica;
use types::{BootId, NsPath, ObjectId, ReplicaId, Timestamp};
use wire::request::OpenOptions;

const NOW: Timestamp = Timestamp(1_700_000_000_000_000_000);
const SMALL: &[u8] = b"a small recording";

/// A data directory with files in it.
struct World {
    place: tempfile::TempDir,
}

fn large() -> Vec<u8> {
    (0..300_000u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[1]).collect()
}

impl World {
    /// `/run/small`, `/run/large`, `/run/other` (as long as `large`).
    fn new() -> Self {
        let world = Self { place: tempfile::tempdir().unwrap() };
        world.served(|session| {
            session.mkdir("/run");
            session.put("/run/small", SMALL);
            session.put("/run/large", &large());
            let mut other = large();
            other.reverse();
            session.put("/run/other", &other);
        });
        world
    }

    fn data(&self) -> PathBuf {
        self.place.path().join("data")
    }

    /// Opens the foundation of a server.
    fn opened<T>(&self, what: impl FnOnce(&Foundation) -> T) -> T {
        let data = DataDir::open(&self.data(), IfNew::Make, NOW).unwrap();
        let config = Config { segment_size: 1 << 20, ..Config::defaults() };
        let foundation = Foundation::open(&data, &config.foundation(), Purpose::Check, NOW).unwrap();
        let result = what(&foundation);
        foundation.close().unwrap();
        result
    }

    /// Runs a server during `what`.
    fn served(&self, what: impl FnOnce(&mut Session)) {
        self.served_as(|_| (), what, || ());
    }

    fn served_as(
        &self,
        set: impl FnOnce(&mut xrootd::ServerConfig),
        what: impl FnOnce(&mut Session),
        before_the_stop: impl FnOnce(),
    ) {
        self.opened(|foundation| {
            let mut config = xrootd::ServerConfig::new("127.0.0.1:0".parse().unwrap(), BootId(1));
            set(&mut config);
            let (namespace, store) = (Arc::clone(&foundation.names.namespace), Arc::clone(&foundation.objects.store));
            let server = xrootd::Server::start(config, service::Role::Alone { namespace, store }).unwrap();
            let mut session = Session::open(server.address(), 4711);
            what(&mut session);
            before_the_stop();
            server.stop(Instant::now() + Duration::from_secs(5));
        });
    }

    /// Runs a server and kills it after `what`, before its keeper's next round. What remains is all that the kernel has by then, and
    /// nothing else.
    fn killed(&self, what: impl FnOnce(&mut Session)) -> Self {
        let left = Self { place: tempfile::tempdir().unwrap() };
        let unkept = |config: &mut xrootd::ServerConfig| config.service.times.keeper = Duration::from_secs(3600);
        self.served_as(unkept, what, || copy(&self.data(), &left.data()));
        left
    }

    fn look(&self, args: &FsckOptions) -> (Counts, Report) {
        self.opened(|foundation| {
            let mut report = Report::new(100);
            let counts = maintenance::fsck::look(foundation, args, &mut report).unwrap();
            (counts, report)
        })
    }

    /// Writes so much that the journal is trimmed, so that only the indexes have its earlier records.
    fn aged(&self) {
        self.served(|session| {
            session.mkdir("/filler");
            for number in 0..150 {
                session.put(&format!("/filler/{number}"), &large()[..60_000]);
            }
        });
        self.opened(|foundation| {
            let before = foundation.journal.oldest();
            for _ in 0..4 {
                for index in [&foundation.names.index, &foundation.objects.index] {
                    while index.sweep_now().unwrap() || index.checkpoint_now().unwrap() {}
                }
                foundation.objects.store.tick().unwrap();
                synced(foundation);
            }
            assert!(foundation.journal.oldest() > before, "nothing was trimmed");
        });
    }

    /// The kinds and paths of the findings.
    fn findings(&self) -> Vec<(ProblemKind, String)> {
        let args = FsckOptions::default();
        let (_, report) = self.look(&args);
        report.listed().iter().map(|finding| (finding.problem.kind(), finding.subject())).collect()
    }

    /// The file in the store that holds a large object.
    fn object_of(&self, replica: ReplicaId) -> PathBuf {
        let name = replica.to_string();
        walk(&self.data().join("store/objects")).into_iter().find(|path| path.ends_with(&name)).unwrap()
    }
}

fn walk(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(walk(&path)) } else { files.push(path) }
    }
    files
}

/// Ignores the progress of a check.
struct Silent;

impl Progress for Silent {
    fn step(&mut self, _: &Counts) {}
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (entry, to) = (entry.as_ref().unwrap(), to.join(entry.as_ref().unwrap().file_name()));
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            copy(&entry.path(), &to);
        } else if kind.is_file() {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn parsed(path: &str) -> NsPath {
    NsPath::parse(path.as_bytes()).unwrap()
}

fn content(foundation: &Foundation, path: &str) -> Content {
    let path = NsPath::parse(path.as_bytes()).unwrap();
    let inode = foundation.names.namespace.read(|read| namespace::lookup(read, &Actor::admin(), &path)).unwrap();
    *inode.content().unwrap()
}

fn replica(foundation: &Foundation, path: &str) -> ReplicaId {
    ReplicaId::first(content(foundation, path).object)
}

fn synced(foundation: &Foundation) {
    foundation.journal.sync_to(foundation.journal.appended()).unwrap();
}

#[test]
fn a_sound_directory_has_no_findings() {
    let world = World::new();
    let (counts, report) = world.look(&FsckOptions::default());
    assert_eq!((report.found(), counts.replicas, counts.complete, counts.names), (0, 3, 3, 3));
    assert_eq!(counts.bytes, SMALL.len() as u64 + 600_000);
    assert_eq!(counts.bytes_read, counts.bytes, "every byte was read");
    let (counts, report) = world.look(&FsckOptions { quick: true, ..FsckOptions::default() });
    assert_eq!((report.found(), counts.bytes_read), (0, 0));
}

#[test]
fn open_writes_are_no_findings() {
    let world = World::new();
    world.served(|session| {
        let new = session.create("/run/new");
        session.write(new, 0, &large());
        let over = session.open_file("/run/small", OpenOptions::DELETE | OpenOptions::UPDATE);
        session.write(over, 0, b"never closed");
        // The connection ends without a close, and the server right after it.
    });
    assert_eq!(world.findings(), []);
}

/// The store had no space at the open: the name stays, interrupted before its first byte. Nothing is lost.
#[test]
fn an_open_write_that_never_began() {
    let world = World::new();
    world.served(|session| {
        session.create("/run/new");
    });
    world.opened(|foundation| {
        let writers = foundation.names.namespace.read(|read| namespace::writers(read, None, 10)).unwrap();
        let context = foundation.names.namespace.context(NOW, &Actor::admin(), None);
        let interrupt = namespace::Interrupt { writer: writers[0].token(), kept_len: 0 };
        foundation.names.namespace.change_wait(kv::Durability::Synced, context, interrupt).unwrap();
        foundation.objects.store.delete(writers[0].replica()).unwrap();
        synced(foundation);
    });
    assert_eq!(world.findings(), []);
}

#[test]
fn a_missing_object() {
    let world = World::new();
    world.opened(|foundation| {
        foundation.objects.store.delete(replica(foundation, "/run/large")).unwrap();
        synced(foundation);
    });
    assert_eq!(world.findings(), [(ProblemKind::ObjectMissing, "/run/large".into())]);
}

#[test]
fn a_flipped_bit_in_a_large_file() {
    let world = World::new();
    let object = world.opened(|foundation| replica(foundation, "/run/large"));
    let object = world.object_of(object);
    let mut bytes = fs::read(&object).unwrap();
    bytes[200_000] ^= 1;
    fs::write(&object, bytes).unwrap();
    assert_eq!(world.findings(), [(ProblemKind::Damaged, "/run/large".into())]);
    let quick = world.look(&FsckOptions { quick: true, ..FsckOptions::default() });
    assert_eq!(quick.1.found(), 0, "--quick does not read");
}

#[test]
fn a_removed_file_of_the_store() {
    let world = World::new();
    let object = world.opened(|foundation| replica(foundation, "/run/large"));
    fs::remove_file(world.object_of(object)).unwrap();
    let findings = world.findings();
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(matches!(findings[0].0, ProblemKind::Unreadable | ProblemKind::Damaged), "{findings:?}");
    assert_eq!(findings[0].1, "/run/large");
}

#[test]
fn two_exchanged_files_of_the_store() {
    let world = World::new();
    let (one, two) = world.opened(|foundation| (replica(foundation, "/run/large"), replica(foundation, "/run/other")));
    let (one, two) = (world.object_of(one), world.object_of(two));
    let aside = world.place.path().join("aside");
    fs::rename(&one, &aside).unwrap();
    fs::rename(&two, &one).unwrap();
    fs::rename(&aside, &two).unwrap();
    let mut findings = world.findings();
    findings.sort();
    let expected = [(ProblemKind::Damaged, "/run/large".into()), (ProblemKind::Damaged, "/run/other".into())];
    assert_eq!(findings, expected);
}

#[test]
fn an_unreferenced_object_and_its_removal() {
    let world = World::new();
    world.opened(|foundation| {
        let replica = ReplicaId::first(ObjectId(1 << 40));
        let new = NewReplica {
            path_hint: b"/gone",
            expected_len: None,
            incarnation: foundation.names.namespace.incarnation(),
        };
        let writer = foundation.objects.store.create(replica, new).unwrap();
        writer.write(0, b"nobody's").unwrap();
        writer.complete().unwrap();
        synced(foundation);
    });
    let unreferenced = [(ProblemKind::Unreferenced, "object 0000010000000000".to_owned())];
    assert_eq!(world.findings(), unreferenced);
    // A plain repair leaves the object: it could be the only replica of a file whose name is lost.
    let args = FsckOptions { repair: true, ..FsckOptions::default() };
    assert_eq!(world.look(&args).1.remaining(), 1);
    assert_eq!(world.findings(), unreferenced);
    let args = FsckOptions { remove_unreferenced: true, ..args };
    let (_, report) = world.look(&args);
    assert_eq!((report.found(), report.remaining()), (1, 0));
    assert_eq!(world.findings(), []);
}

#[test]
fn an_object_changed_behind_the_namespace() {
    let world = World::new();
    world.opened(|foundation| {
        let writer = foundation.objects.store.reopen(replica(foundation, "/run/small")).unwrap();
        writer.write(0, b"A").unwrap();
        writer.complete().unwrap();
        let writer = foundation.objects.store.reopen(replica(foundation, "/run/large")).unwrap();
        writer.write(300_000, b"more").unwrap();
        writer.complete().unwrap();
        synced(foundation);
    });
    let mut findings = world.findings();
    findings.sort();
    let expected = [(ProblemKind::LengthDiffers, "/run/large".into()), (ProblemKind::SumsDiffer, "/run/small".into())];
    assert_eq!(findings, expected);
}

#[test]
fn an_object_that_only_the_namespace_has_as_complete() {
    let world = World::new();
    world.opened(|foundation| {
        let writer = foundation.objects.store.reopen(replica(foundation, "/run/large")).unwrap();
        writer.write(0, b"A").unwrap();
        writer.sync().unwrap();
    });
    assert_eq!(world.findings(), [(ProblemKind::StateDiffers, "/run/large".into())]);
}

#[test]
fn an_open_write_and_an_upload_without_bytes() {
    let world = World::new();
    world.served(|session| {
        let new = session.create("/run/new");
        session.write(new, 0, b"some");
        let over = session.open_file("/run/small", OpenOptions::DELETE | OpenOptions::UPDATE);
        session.write(over, 0, b"some");
    });
    world.opened(|foundation| {
        let writers = foundation.names.namespace.read(|read| namespace::writers(read, None, 10)).unwrap();
        assert_eq!(writers.len(), 2);
        // Make one of them an interrupted upload first.
        let upload = writers.iter().find(|writer| matches!(writer.kind, namespace::WriterKind::Upload(_))).unwrap();
        let context = foundation.names.namespace.context(NOW, &Actor::admin(), None);
        let interrupt = namespace::Interrupt { writer: upload.token(), kept_len: 4 };
        foundation.names.namespace.change_wait(kv::Durability::Synced, context, interrupt).unwrap();
        for writer in writers {
            foundation.objects.store.delete(writer.replica()).unwrap();
        }
        synced(foundation);
    });
    let mut findings = world.findings();
    findings.sort();
    let expected = [
        (ProblemKind::WriterWithoutObject, "/run/new".into()),
        (ProblemKind::UploadWithoutObject, "/run/small".into()),
    ];
    assert_eq!(findings, expected);
}

/// The server answers an open when the kernel has the namespace's record. The beginning of the object reaches the kernel with the first
/// bytes.
#[test]
fn an_open_killed_before_the_first_byte_is_no_damage() {
    let world = World::new().killed(|session| {
        session.create("/run/new");
        session.open_file("/run/small", OpenOptions::DELETE | OpenOptions::UPDATE);
        let begun = session.create("/run/begun");
        session.write(begun, 0, b"some");
        session.create("/run/newer");
    });
    let (counts, report) = world.look(&FsckOptions::default());
    assert_eq!((counts.being_written, report.listed()), (4, &[][..]));
    // If the journal has lost something, nobody knows that so little was cut off.
    world.opened(|foundation| {
        let read = kv::Kv::snapshot(&*foundation.names.embedded);
        let found = |was_repaired| {
            let (how, mut found) = (CheckOptions { quick: true, was_repaired }, 0);
            check(&*read, &foundation.objects.store, how, &mut Silent, &mut |_| found += 1).unwrap();
            found
        };
        assert_eq!(found(false), 0);
        assert!(found(true) >= 1);
    });
    world.opened(|foundation| {
        let writers = foundation.names.namespace.read(|read| namespace::writers(read, None, 10)).unwrap();
        let there =
            |writer: &&namespace::WriterRecord| foundation.objects.store.status(writer.replica()).unwrap().is_some();
        let there: Vec<_> = writers.iter().filter(there).map(|writer| writer.path.escape_ascii().to_string()).collect();
        assert!(there.contains(&"/run/begun".into()) && !there.contains(&"/run/newer".into()), "{there:?}");
        foundation.objects.store.delete(replica(foundation, "/run/begun")).unwrap();
        synced(foundation);
    });
    assert_eq!(world.findings(), [(ProblemKind::WriterWithoutObject, "/run/begun".into())]);
    // Whether the clients come back or not, later checks find nothing wrong either.
    world.served_as(
        |config| config.service.times.grace = Duration::from_millis(100),
        |_| (),
        || std::thread::sleep(Duration::from_millis(2500)),
    );
    assert_eq!(world.findings(), []);
}

/// Fsck notices any single missing key of the namespace.
#[test]
fn contradicting_records_of_the_namespace() {
    for letter in *b"DIAB" {
        let world = World::new();
        world.opened(|foundation| {
            let mut keys = Vec::new();
            let snapshot = foundation.names.index.snapshot();
            let mut visit = |key: &[u8], _: &[u8]| {
                keys.push(key.to_vec());
                std::ops::ControlFlow::Continue(())
            };
            snapshot.scan(&[letter], &[letter + 1], ScanOrder::Ascending, &mut visit).unwrap();
            drop(snapshot);
            let mut batch = Batch::new();
            batch.delete(keys.last().unwrap());
            foundation.names.index.append(&batch).unwrap();
            synced(foundation);
        });
        let findings = world.findings();
        let noticed = findings.iter().any(|(kind, _)| matches!(kind, ProblemKind::Keys | ProblemKind::Unreferenced));
        assert!(noticed, "{} was taken away: {findings:?}", char::from(letter));
    }
}

/// Fsck names wrong totals, and `--repair` counts them again; the entries stay the same.
#[test]
fn wrong_totals() {
    let world = World::new();
    let right = world.opened(|foundation| {
        let dir = foundation
            .names
            .namespace
            .read(|read| namespace::stat(read, &Actor::admin(), &parsed("/run")))
            .unwrap()
            .ino;
        let right = foundation.names.namespace.read(|read| namespace::totals(read, dir)).unwrap();
        let mut batch = Batch::new();
        let mut shard = vec![2];
        shard.extend_from_slice(&7_i64.to_be_bytes());
        shard.extend_from_slice(&(-3_i64).to_be_bytes());
        batch.put(&[b"A".as_slice(), &dir.0.to_be_bytes(), &5_u16.to_be_bytes()].concat(), &shard);
        foundation.names.index.append(&batch).unwrap();
        synced(foundation);
        right
    });
    let wrong = [(ProblemKind::Keys, "/run".to_owned())];
    assert_eq!(world.findings(), wrong);
    assert_eq!(world.findings(), wrong, "looking alone changes nothing");
    let args = FsckOptions { repair: true, ..FsckOptions::default() };
    let (_, report) = world.look(&args);
    assert_eq!((report.found(), report.remaining()), (1, 0), "{:?}", report.listed());
    assert_eq!(report.listed()[0].repaired.as_deref(), Some("counted again: 3 entries and 600017 bytes"));
    assert_eq!(world.findings(), []);
    let mended = world.opened(|foundation| {
        let dir = foundation
            .names
            .namespace
            .read(|read| namespace::stat(read, &Actor::admin(), &parsed("/run")))
            .unwrap()
            .ino;
        foundation.names.namespace.read(|read| namespace::totals(read, dir)).unwrap()
    });
    assert_eq!(mended, right);
}

#[test]
fn a_file_without_a_record() {
    let world = World::new();
    world.aged();
    let name = world.opened(|foundation| {
        let replica = replica(foundation, "/run/large");
        let mut key = vec![b'p'];
        key.extend_from_slice(&replica.object.0.to_be_bytes());
        key.extend_from_slice(&replica.index.0.to_be_bytes());
        assert!(foundation.objects.index.snapshot().get(&key).unwrap().is_some(), "the key of the store's record");
        let mut batch = Batch::new();
        batch.delete(&key);
        foundation.objects.index.append(&batch).unwrap();
        synced(foundation);
        replica
    });
    let object = world.object_of(name);
    let mut findings = world.findings();
    findings.sort();
    assert_eq!(findings[0], (ProblemKind::ObjectMissing, "/run/large".into()));
    assert_eq!((findings[1].0, findings.len()), (ProblemKind::UnexplainedFile, 2), "{findings:?}");
    assert!(object.exists(), "it is left alone");
}

#[test]
fn a_damaged_checkpoint() {
    for which in ["namespace", "store"] {
        let world = World::new();
        world.aged();
        assert_eq!(world.findings(), []);
        let file = walk(&world.data().join(which).join("checkpoint")).into_iter().max().unwrap();
        let mut bytes = fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
        fs::write(&file, bytes).unwrap();
        assert_eq!(world.findings(), [(ProblemKind::Checkpoint, String::new())], "{}", file.display());
    }
}

#[test]
fn repair_marks_damaged_files_and_keeps_them() {
    let world = World::new();
    let object = world.opened(|foundation| replica(foundation, "/run/large"));
    let object = world.object_of(object);
    let mut bytes = fs::read(&object).unwrap();
    bytes[5] ^= 1;
    fs::write(&object, &bytes).unwrap();
    let args = FsckOptions { repair: true, ..FsckOptions::default() };
    let (_, report) = world.look(&args);
    assert_eq!((report.found(), report.remaining()), (1, 0));
    world.opened(|foundation| {
        let path = NsPath::parse(b"/run/large").unwrap();
        let mark = foundation
            .names
            .namespace
            .read(|read| namespace::get_xattr(read, &Actor::admin(), &path.clone().into(), b"weir.damaged"));
        assert!(String::from_utf8(mark.unwrap()).unwrap().contains("damaged"));
    });
    assert_eq!(fs::read(&object).unwrap(), bytes, "not a byte was changed");
}

/// The journal is damaged in the middle. The records after the damage are lost, everything else on the disk stays. Fsck lists the affected
/// files.
#[test]
fn after_a_repaired_journal() {
    let world = World::new();
    let data = world.data();
    let segment = walk(&data.join("journal")).into_iter().min().unwrap();
    let mut bytes = fs::read(&segment).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[used / 2] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    let refused = node::weir_ends(&["fsck", "--data", data.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(5), "{}", String::from_utf8_lossy(&refused.stderr));

    let objects = walk(&data.join("store/objects"));
    let repaired = node::weir_ends(&["fsck", "--repair-journal", "--json", "--data", data.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&repaired.stderr).into_owned();
    assert!(said.contains("are lost") && said.contains("damaged-"), "{said}");
    let saved = walk(&data.join("journal"))
        .into_iter()
        .find(|path| path.parent().unwrap().file_name().unwrap().to_str().unwrap().starts_with("damaged-"));
    assert_eq!(fs::read(saved.unwrap()).unwrap(), bytes, "what was cut is saved as it was");
    assert_eq!(walk(&data.join("store/objects")), objects, "no file of the store was removed");

    // The large files are whole. The small one was in the journal: it exists, or a finding names it as missing.
    let findings = world.findings();
    assert!(findings.iter().all(|(_, subject)| subject == "/run/small"), "{findings:?}");
    world.served(|session| {
        let handle = session.open_file("/run/large", OpenOptions::READ);
        assert_eq!(session.read(handle, 0, 300_000), large());
        session.close(handle);
        session.put("/run/new", b"and life goes on");
    });
    assert!(world.findings().iter().all(|(_, subject)| subject == "/run/small"));
}

/// The same after a kill: the indexes were behind, so the lost part of the journal held names. The objects are kept and listed, and no
/// number is given out twice.
#[test]
fn after_a_kill_and_a_repaired_journal() {
    let place = tempfile::tempdir().unwrap();
    let world = World { place };
    let data = world.data();
    let node = node::Node::start(&data, &[]);
    let mut session = Session::open(node.address.parse().unwrap(), 1);
    session.mkdir("/run");
    for number in 0..20 {
        session.put(&format!("/run/{number}"), &large());
    }
    node.signal(rustix::process::Signal::KILL);
    node.ended(Duration::from_secs(10));

    let segment = walk(&data.join("journal")).into_iter().min().unwrap();
    let mut bytes = fs::read(&segment).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[used / 2] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    let objects = walk(&data.join("store/objects"));
    assert_eq!(objects.len(), 40, "20 files and their checksums");
    let repaired = node::weir_ends(&["fsck", "--repair-journal", "--data", data.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&repaired.stderr).into_owned();
    assert!(said.contains("are lost") && said.contains("begins incarnation 2"), "{said}");

    // Every object has its name or is listed; none was removed.
    let findings = world.findings();
    let (_, report) = world.look(&FsckOptions::default());
    let counts = world.look(&FsckOptions::default()).0;
    assert!(counts.names < 20, "the damage cost no name: {}", counts.names);
    assert!(report.found() + counts.names >= 20, "{} names, {findings:?}", counts.names);
    for _ in 0..2 {
        let node = node::Node::start(&data, &[]);
        let mut session = Session::open(node.address.parse().unwrap(), 1);
        for number in 0..5 {
            let path = format!("/new{}-{number}", node.child.id());
            session.put(&path, &large());
            let handle = session.open_file(&path, OpenOptions::READ);
            assert_eq!(session.read(handle, 0, 300_000), large());
        }
        node.signal(rustix::process::Signal::KILL);
        node.ended(Duration::from_secs(10));
    }
    for object in objects {
        assert!(object.exists(), "{} was removed", object.display());
    }
}

/// Both indexes are removed. They are rebuilt from checkpoints and journal, also where the journal was trimmed.
#[test]
fn indexes_come_back() {
    let world = World::new();
    world.aged();
    for which in ["namespace", "store"] {
        fs::remove_dir_all(world.data().join(which).join("index")).unwrap();
    }
    let (counts, report) = world.look(&FsckOptions::default());
    assert_eq!((report.found(), counts.names), (0, 153));
    world.served(|session| {
        let handle = session.open_file("/run/small", OpenOptions::READ);
        assert_eq!(session.read(handle, 0, 100), SMALL);
        session.close(handle);
    });
}

/// The command itself: exit codes, output, JSON.
#[test]
fn the_command_says_what_it_found() {
    let world = World::new();
    let data = world.data();
    let data = data.to_str().unwrap();
    let clean = node::weir_ends(&["fsck", "--data", data]);
    let said = String::from_utf8(clean.stdout).unwrap();
    assert_eq!(clean.status.code(), Some(0), "{said}");
    assert!(said.ends_with("nothing wrong\n"), "{said}");

    world.opened(|foundation| {
        foundation.objects.store.delete(replica(foundation, "/run/large")).unwrap();
        synced(foundation);
    });
    let found = node::weir_ends(&["fsck", "--data", data]);
    let said = String::from_utf8(found.stdout).unwrap();
    assert_eq!(found.status.code(), Some(1), "{said}");
    assert!(said.starts_with("/run/large: its object of 300000 bytes is not on the disk"), "{said}");
    assert!(said.ends_with("1 found, 1 still there\n"), "{said}");

    let found = node::weir_ends(&["fsck", "--json", "--data", data]);
    assert_eq!(found.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap();
    assert_eq!(json["kinds"]["object-missing"]["found"], 1);
    assert_eq!(json["listed"][0]["path"], "/run/large");

    let repaired = node::weir_ends(&["fsck", "--repair", "--data", data]);
    assert_eq!(repaired.status.code(), Some(0), "{}", String::from_utf8_lossy(&repaired.stdout));
}

/// The store's index and checkpoints are gone, and the journal was trimmed: the object files have all that the rebuild needs.
#[test]
fn a_lost_index_of_the_store_is_rebuilt() {
    let world = World::new();
    world.served(|session| session.put("/run/empty", b""));
    world.aged();
    let before = world.opened(|foundation| foundation.objects.store.replicas(None, 1000).unwrap());
    let data = || DataDir::open(&world.data(), IfNew::Refuse, NOW).unwrap();
    let config = Config { segment_size: 1 << 20, ..Config::defaults() };
    assert_eq!(
        maintenance::index_repair::rebuild::rebuild(&data(), &config.foundation()).unwrap(),
        None,
        "nothing is lost yet"
    );

    for folder in ["index", "checkpoint"] {
        fs::remove_dir_all(world.data().join("store").join(folder)).unwrap();
    }
    let refused = |reason: &str| {
        let data = data();
        let error = Foundation::open(&data, &config.foundation(), Purpose::Serve, NOW).map(drop).unwrap_err();
        assert!(error.is_lost_store() && error.to_string().contains(reason), "{error}");
        let failure = foundation::refused(&data, error).to_string();
        assert!(failure.contains("--rebuild-store"), "{failure}");
    };
    refused("cannot be built again");
    // Interrupted before its end: half an index must not pass for a whole one.
    assert!(maintenance::index_repair::rebuild::rebuild(&data(), &config.foundation()).unwrap().is_some());
    refused("a rebuild of the store's index was started");
    let run = || {
        let args = ["weir", "fsck", "--rebuild-store", "--data"].map(std::ffi::OsString::from);
        weir::run(args.into_iter().chain([world.data().into()]))
    };
    // Its own report says that the index was lost and rebuilt.
    assert_eq!(run(), weir::exit::Exit::Done);

    assert_eq!(world.findings(), []);
    world.opened(|foundation| {
        let after = foundation.objects.store.replicas(None, 1000).unwrap();
        let known = |replicas: &[(ReplicaId, store::ReplicaStatus)]| -> Vec<_> {
            replicas.iter().map(|(replica, status)| (*replica, status.len, status.state.clone())).collect()
        };
        assert_eq!(known(&after), known(&before));
        assert!(foundation.was_repaired, "nothing is cleared away from now on");
        assert_eq!(content(foundation, "/run/empty").len, 0);
        assert!(foundation.objects.store.open_read(replica(foundation, "/run/empty")).is_ok());
    });
    world.served(|session| session.put("/run/new", SMALL));
    assert_eq!(run(), weir::exit::Exit::Done, "and nothing is lost any more");
}
