//! The directories of a cluster's nodes. A store and a manager's names survive a stop of any kind, and no directory is accepted in a wrong role.

use std::path::Path;
use std::sync::Arc;

use console::Exit;
use kv::Durability;
use namespace::{Actor, Mkdir};
use store::NewReplica;
use types::{ClusterId, Incarnation, NsPath, ObjectId, ReplicaId};
use weir_foundation::{DataDir, DirRole, IfNew, ManagerFoundation, Purpose, StoreFoundation, StoreOpenError};

use crate::harness::{CLUSTER, NOW, small};

/// A store that no other process can open while this value lives.
struct Locked {
    foundation: StoreFoundation,
    _lock: DataDir,
}

impl std::ops::Deref for Locked {
    type Target = StoreFoundation;
    fn deref(&self) -> &StoreFoundation {
        &self.foundation
    }
}

fn open(path: &Path, cluster: ClusterId) -> Result<Locked, StoreOpenError> {
    let (lock, foundation) = StoreFoundation::open_store(path, cluster, None, &small(), IfNew::Make, NOW)?;
    Ok(Locked { foundation, _lock: lock })
}

fn put(store: &StoreFoundation, object: u64, bytes: &[u8]) {
    let new = NewReplica { path_hint: b"/file", expected_len: None, incarnation: Incarnation(1) };
    let writer = store.objects.store.create(ReplicaId::first(ObjectId(object)), new).unwrap();
    writer.write(0, bytes).unwrap();
    let completed = writer.complete().unwrap();
    store.journal.sync_to(completed.seq).unwrap();
}

fn content(store: &StoreFoundation, object: u64) -> Vec<u8> {
    let reader = store.objects.store.open_read(ReplicaId::first(ObjectId(object))).unwrap();
    let mut bytes = vec![0; usize::try_from(reader.len()).unwrap()];
    reader.read(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn store_keeps_its_objects_after_any_stop() {
    let temp = tempfile::tempdir().unwrap();
    let (small, large) = (b"small".to_vec(), vec![7; 300_000]);
    let store = open(temp.path(), CLUSTER).unwrap();
    let id = store.objects.id;
    put(&store, 1, &small);
    put(&store, 2, &large);
    store.close().unwrap();
    drop(store);
    let store = open(temp.path(), CLUSTER).unwrap();
    assert!(store.opened.clean && store.objects.id == id);
    assert!(content(&store, 1) == small && content(&store, 2) == large);
    put(&store, 3, &small);
    // Drops it without closing, as in a crash.
    drop(store);
    let store = open(temp.path(), CLUSTER).unwrap();
    assert!(!store.opened.clean);
    assert!(content(&store, 2) == large && content(&store, 3) == small);
    store.close().unwrap();
}

#[test]
fn journal_of_a_store_is_trimmed_without_a_namespace() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path(), CLUSTER).unwrap();
    for object in 1..=200 {
        put(&store, object, &vec![1; 60_000]);
    }
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while store.journal.stats().segments_trimmed == 0 {
        assert!(
            std::time::Instant::now() < until,
            "12 MB went through a log of 1 MiB a segment, and nothing was trimmed"
        );
        store.objects.store.tick().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    store.close().unwrap();
}

#[test]
fn store_of_another_cluster_is_refused_untouched() {
    let temp = tempfile::tempdir().unwrap();
    drop(open(temp.path(), CLUSTER).unwrap());
    let format = std::fs::read(temp.path().join("FORMAT")).unwrap();
    let error = open(temp.path(), ClusterId(78)).err().unwrap();
    let (words, exit) = (error.to_string(), error.exit());
    assert!(words.contains(&CLUSTER.to_string()) && words.contains(&ClusterId(78).to_string()), "{words}");
    assert_eq!(exit, Exit::DataDirectory);
    assert_eq!(std::fs::read(temp.path().join("FORMAT")).unwrap(), format);
}

#[test]
fn store_without_its_journal_is_not_taken_for_a_new_one() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path(), CLUSTER).unwrap();
    put(&store, 1, b"content");
    store.close().unwrap();
    drop(store);
    std::fs::rename(temp.path().join("journal"), temp.path().join("elsewhere")).unwrap();
    let error = open(temp.path(), CLUSTER).err().unwrap();
    assert_eq!(error.exit(), Exit::Damaged, "{error}");
}

#[test]
fn manager_keeps_its_names_after_any_stop() {
    let temp = tempfile::tempdir().unwrap();
    let open = || {
        let data = DataDir::open_as(temp.path(), DirRole::Manager, None, IfNew::Make, NOW).unwrap();
        (ManagerFoundation::open_names(&data, &small(), Purpose::Serve, 0, NOW).unwrap(), data)
    };
    let path = |text: &str| NsPath::parse(text.as_bytes()).unwrap();
    let make = |manager: &ManagerFoundation, name: &str| {
        let ctx = manager.names.namespace.context(NOW, &Actor::admin(), None);
        let request = Mkdir { path: path(name), mode: 0o755, parents: false };
        Arc::clone(&manager.names.namespace).change_wait(Durability::Synced, ctx, request).unwrap();
    };
    let is_there = |manager: &ManagerFoundation, name: &str| {
        manager.names.namespace.read(|read| namespace::stat(read, &Actor::admin(), &path(name))).is_ok()
    };
    let (manager, data) = open();
    make(&manager, "/one");
    manager.close().unwrap();
    drop((manager, data));
    let (manager, data) = open();
    assert!(is_there(&manager, "/one"));
    make(&manager, "/two");
    // Does not close it, as in a crash.
    manager.names.engine.embedded().unwrap().stop();
    drop((manager, data));
    let (manager, _data) = open();
    assert!(is_there(&manager, "/one") && is_there(&manager, "/two") && !is_there(&manager, "/three"));
    manager.close().unwrap();
}
