//! The number of fsyncs of each operation agrees with `docs/reference/formats.md`. The test counts them beneath a real server on a real
//! disk, with one client and nothing else going on.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test may fail this way

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::session::Session;
use crate::watched::Watched;
use config::Config;
use disk::{Disk, DiskOp, RealDisk};
use foundation::{DataDir, Foundation, IfNew, Purpose};
use types::{BootId, Timestamp};

struct World {
    server: xrootd::Server,
    foundation: Foundation,
    syncs: Arc<AtomicU64>,
    _place: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let now = Timestamp(1_700_000_000_000_000_000);
        let data = DataDir::open(&place.path().join("data"), IfNew::Make, now).unwrap();
        let syncs = Arc::new(AtomicU64::new(0));
        let real: Arc<dyn Disk> = Arc::new(RealDisk::open(&data.path).unwrap());
        let counted = Arc::clone(&syncs);
        let watch = Arc::new(move |op| {
            if matches!(op, DiskOp::Sync | DiskOp::SyncDir) {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        let disk = Arc::new(Watched { inner: real, watch });
        let foundation =
            Foundation::open_on(disk, &data, &Config::defaults().foundation(), Purpose::Serve, now).unwrap();
        let mut config = xrootd::ServerConfig::new("127.0.0.1:0".parse().unwrap(), BootId(1));
        // The timed sync has its own row; it must not interfere here.
        config.service.times.keeper = Duration::from_secs(3600);
        let server = xrootd::Server::start(
            config,
            service::Role::Alone {
                namespace: Arc::clone(&foundation.names.namespace),
                store: Arc::clone(&foundation.objects.store),
            },
        );
        Self { server: server.unwrap(), foundation, syncs, _place: place }
    }

    fn session(&self) -> Session {
        Session::open(self.server.address(), 4711)
    }

    /// Fsyncs while `what` runs. Takes the least of several runs: in any one of them, a new journal segment or a table of the index may be
    /// synced in the background.
    fn count(&self, runs: usize, mut what: impl FnMut(usize)) -> u64 {
        (0..runs)
            .map(|run| {
                let before = self.syncs.load(Ordering::SeqCst);
                what(run);
                self.syncs.load(Ordering::SeqCst) - before
            })
            .min()
            .unwrap()
    }
}

/// The table in `docs/reference/formats.md`: operation and number.
fn documented() -> BTreeMap<String, u64> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/formats.md");
    let text = std::fs::read_to_string(path).unwrap();
    let section = text.split("## Fsyncs").nth(1).expect("docs/reference/formats.md has a section `Fsyncs`");
    section
        .lines()
        .take_while(|line| !line.starts_with("## "))
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| ")?.split(" | ");
            Some((cells.next()?.trim().to_owned(), cells.next()?.trim().parse().ok()?))
        })
        .collect()
}

#[test]
fn each_operation_syncs_as_often_as_documented() {
    const RUNS: usize = 5;
    let world = World::new();
    let mut session = world.session();
    let mut found = BTreeMap::new();
    let small = vec![7u8; 4096];
    let large = vec![8u8; 3 << 20];
    session.mkdir("/d");

    let mut handles = Vec::new();
    let mut counted = |name: &str, count: u64| {
        found.insert(name.to_owned(), count);
    };
    counted("open a new file", world.count(RUNS, |run| handles.push(session.create(&format!("/d/small{run}")))));
    counted("write, up to 64 KiB in all", world.count(RUNS, |run| session.write(handles[run], 0, &small)));
    counted("close, up to 64 KiB", world.count(RUNS, |run| session.close(handles[run])));

    handles.clear();
    (0..RUNS).for_each(|run| handles.push(session.create(&format!("/d/large{run}"))));
    counted(
        "write, more",
        world.count(RUNS, |run| {
            for (number, chunk) in large.chunks(1 << 20).enumerate() {
                session.write(handles[run], (number as u64) << 20, chunk);
            }
        }),
    );
    counted("close, more", world.count(RUNS, |run| session.close(handles[run])));

    // Created inside the measured part, because a sync also covers other waiting records.
    handles.clear();
    (0..RUNS).for_each(|run| handles.push(session.create(&format!("/d/synced{run}"))));
    counted(
        "write and sync, up to 64 KiB in all",
        world.count(RUNS, |run| {
            session.write(handles[run], 0, &small);
            session.sync(handles[run]);
        }),
    );
    (0..RUNS).for_each(|run| session.close(handles[run]));
    handles.clear();
    (0..RUNS).for_each(|run| handles.push(session.create(&format!("/d/synced-large{run}"))));
    counted(
        "write and sync, more",
        world.count(RUNS, |run| {
            for (number, chunk) in large.chunks(1 << 20).enumerate() {
                session.write(handles[run], (number as u64) << 20, chunk);
            }
            session.sync(handles[run]);
        }),
    );
    (0..RUNS).for_each(|run| session.close(handles[run]));

    counted("stat", world.count(RUNS, |run| drop(session.stat(&format!("/d/small{run}")))));
    counted(
        "open, read, close",
        world.count(RUNS, |run| {
            let handle = session.open_file(&format!("/d/large{run}"), wire::request::OpenOptions::READ);
            assert_eq!(session.read(handle, 5, 100), large[5..105]);
            session.close(handle);
        }),
    );
    counted("mkdir", world.count(RUNS, |run| session.mkdir(&format!("/d/dir{run}"))));
    counted("mv", world.count(RUNS, |run| session.mv(&format!("/d/dir{run}"), &format!("/d/moved{run}"))));
    counted("chmod", world.count(RUNS, |run| session.chmod(&format!("/d/small{run}"), 0o600)));
    counted("rmdir", world.count(RUNS, |run| session.rmdir(&format!("/d/moved{run}"))));
    counted("rm", world.count(RUNS, |run| session.rm(&format!("/d/large{run}"))));

    session.put("/d/over", &small);
    let replace = wire::request::OpenOptions::DELETE | wire::request::OpenOptions::UPDATE;
    counted(
        "overwrite, up to 64 KiB",
        world.count(RUNS, |_| {
            let handle = session.open_file("/d/over", replace);
            session.write(handle, 0, &small);
            session.close(handle);
        }),
    );

    assert_eq!(found, documented(), "counted, against the table in docs/reference/formats.md");
    let end = world.server.stop(Instant::now() + Duration::from_secs(5));
    assert_eq!((end.connections_cut, end.writers_left), (0, 0));
    world.foundation.close().unwrap();
}

/// Closes at the same moment share their fsyncs, which makes durable closes cheap.
#[test]
fn closes_at_the_same_time_share_fsyncs() {
    const THREADS: u64 = 16;
    const EACH: u64 = 25;
    let world = World::new();
    let before = world.syncs.load(Ordering::SeqCst);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let mut session = world.session();
            scope.spawn(move || {
                for file in 0..EACH {
                    session.put(&format!("/t{thread}/f{file}"), b"a small file");
                }
            });
        }
    });
    let syncs = world.syncs.load(Ordering::SeqCst) - before;
    assert!(syncs < THREADS * EACH / 2, "{} closes took {syncs} fsyncs", THREADS * EACH);
    assert!(syncs > 0, "nothing was synced at all");
}
