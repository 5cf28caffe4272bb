//! Data directories that lack a part, or whose parts come from different days. Neither looking nor starting may lose existing data.
#![allow(clippy::unwrap_used, clippy::panic)] // a test may fail this way

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::node;
use crate::session::Session;
use config::Config;
use disk::{Disk, DiskError, Entry, OpenOptions, RealDisk, Space};
use foundation::{DataDir, Foundation, IfNew, OpenError, Purpose};
use journal::JournalError;
use types::{BootId, Timestamp};
use weir::exit::Exit;

const NOW: Timestamp = Timestamp(1_700_000_000_000_000_000);

fn config() -> Config {
    Config { segment_size: 1 << 20, ballast: 1 << 20, ..Config::defaults() }
}

fn open(at: &Path, purpose: Purpose) -> Result<Foundation, OpenError> {
    let data = DataDir::open(at, IfNew::Make, NOW).unwrap();
    Foundation::open(&data, &config().foundation(), purpose, NOW)
}

fn served(at: &Path, what: impl FnOnce(&mut Session)) {
    let foundation = open(at, Purpose::Serve).unwrap();
    let config = xrootd::ServerConfig::new("127.0.0.1:0".parse().unwrap(), BootId(1));
    let (namespace, store) = (Arc::clone(&foundation.names.namespace), Arc::clone(&foundation.objects.store));
    let server = xrootd::Server::start(config, service::Role::Alone { namespace, store }).unwrap();
    what(&mut Session::open(server.address(), 4711));
    server.stop(Instant::now() + Duration::from_secs(5));
    foundation.close().unwrap();
}

fn files_below(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            let bytes = fs::read(&path).unwrap();
            found.push((path, bytes));
        }
    }
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let from = entry.unwrap().path();
        let to = to.join(from.file_name().unwrap());
        if from.is_dir() { copy(&from, &to) } else { fs::copy(&from, &to).map(drop).unwrap() }
    }
}

fn large() -> Vec<u8> {
    (0..300_000u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[1]).collect()
}

#[test]
fn a_lost_journal_is_no_first_start() {
    let temp = tempfile::tempdir().unwrap();
    let data = temp.path().join("data");
    served(&data, |session| session.mkdir("/kept"));
    fs::rename(data.join("journal"), temp.path().join("journal")).unwrap();
    let before = files_below(&data.join("namespace"));
    for empty in [false, true, true] {
        if empty {
            fs::create_dir_all(data.join("journal")).unwrap();
        }
        let error = open(&data, Purpose::Serve).err().unwrap();
        assert!(matches!(error, OpenError::Journal(JournalError::Missing { .. })), "{error}");
        assert_eq!(error.exit(), Exit::Damaged);
        assert!(files_below(&data.join("namespace")) == before);
    }
    let refusal = node::refusal(&["serve", "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    assert!(refusal.0 == 5 && refusal.1.contains("is the disk mounted?"), "{refusal:?}");
    fs::remove_dir_all(data.join("journal")).unwrap();
    fs::rename(temp.path().join("journal"), data.join("journal")).unwrap();
    served(&data, |session| session.put("/kept/file", b"x"));
}

#[test]
fn a_first_start_interrupted_before_the_journal() {
    let temp = tempfile::tempdir().unwrap();
    drop(DataDir::open(temp.path(), IfNew::Make, NOW).unwrap());
    open(temp.path(), Purpose::Serve).unwrap().close().unwrap();
}

#[test]
fn an_old_namespace_is_refused_and_todays_objects_stay() {
    const PARTS: [&str; 3] = ["journal", "namespace", "store/index"];
    let temp = tempfile::tempdir().unwrap();
    let (data, backup) = (temp.path().join("data"), temp.path().join("backup"));
    served(&data, |session| session.put("/yesterday", &large()));
    PARTS.iter().for_each(|part| copy(&data.join(part), &backup.join(part)));
    let mut today = large();
    today.reverse();
    served(&data, |session| session.put("/today", &today));
    for part in PARTS {
        fs::remove_dir_all(data.join(part)).unwrap();
        copy(&backup.join(part), &data.join(part));
    }
    let objects = data.join("store/objects");
    let contents = || files_below(&objects);
    let before = contents();
    assert_eq!(before.len(), 4, "two contents and their checksums");
    for purpose in [Purpose::Serve, Purpose::Serve, Purpose::Check, Purpose::Check, Purpose::Serve] {
        let error = open(&data, purpose).err().unwrap();
        assert!(matches!(error, OpenError::OlderNamespace { .. }), "{error}");
    }
    let data_text = data.to_str().unwrap();
    let (code, text) = node::refusal(&["serve", "--data", data_text, "--listen", "127.0.0.1:0"]);
    assert!(code == 5 && text.contains("--repair-journal"), "{code} {text}");
    assert!(contents() == before);

    let repaired = node::weir_ends(&["fsck", "--data", data_text, "--repair-journal"]);
    let text = String::from_utf8(repaired.stderr).unwrap();
    assert!(text.contains("begins incarnation 2"), "{text}");
    let text = String::from_utf8(repaired.stdout).unwrap();
    assert!(text.contains("store/objects/"), "today's content is listed: {text}");
    served(&data, |session| session.put("/other", &large()));
    let after = contents();
    assert!(before.iter().all(|file| after.contains(file)), "today's content is still there, byte for byte");
    assert_eq!(after.len(), 6);
}

#[test]
fn looking_removes_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let data = temp.path();
    served(data, |session| session.put("/f", &large()));
    // An object whose record was lost with the power.
    let orphan = data.join("store/objects/99/00/0000000000990001.0");
    fs::create_dir_all(orphan.parent().unwrap()).unwrap();
    fs::write(&orphan, "bytes").unwrap();
    let foundation = open(data, Purpose::Check).unwrap();
    assert_eq!(foundation.objects.found.orphans_removed, 0);
    drop(foundation); // not closed: the next opening follows an unclean stop
    open(data, Purpose::Check).unwrap().close().unwrap();
    assert!(orphan.exists());
}

/// A disk that reports that it is full.
struct Full(RealDisk);

impl Disk for Full {
    fn open(&self, path: &str, options: OpenOptions) -> Result<Arc<dyn disk::DiskFile>, DiskError> {
        self.0.open(path, options)
    }
    fn remove(&self, path: &str) -> Result<(), DiskError> {
        self.0.remove(path)
    }
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.0.rename(from, to)
    }
    fn create_dir_all(&self, path: &str) -> Result<(), DiskError> {
        self.0.create_dir_all(path)
    }
    fn sync_dir(&self, path: &str) -> Result<(), DiskError> {
        self.0.sync_dir(path)
    }
    fn list(&self, path: &str) -> Result<Vec<Entry>, DiskError> {
        self.0.list(path)
    }
    fn len_of(&self, path: &str) -> Result<Option<u64>, DiskError> {
        self.0.len_of(path)
    }
    fn space(&self) -> Result<Space, DiskError> {
        Ok(Space { total: 1 << 30, free: (2 << 20) - 1 })
    }
}

#[test]
fn a_start_on_a_full_disk_gives_the_ballast_back_first() {
    let temp = tempfile::tempdir().unwrap();
    let data = temp.path();
    let foundation = open(data, Purpose::Serve).unwrap();
    foundation.ballast.ensure(1 << 20).unwrap();
    foundation.close().unwrap();
    drop(foundation);
    open(data, Purpose::Serve).unwrap().close().unwrap();
    assert!(data.join("ballast").exists(), "with room it stays");
    let locked = DataDir::open(data, IfNew::Make, NOW).unwrap();
    let full = Arc::new(Full(RealDisk::open(data).unwrap()));
    let foundation = Foundation::open_on(full, &locked, &config().foundation(), Purpose::Serve, NOW).unwrap();
    assert!(!data.join("ballast").exists());
    foundation.close().unwrap();
}
