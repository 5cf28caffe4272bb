//! The number of fsyncs of each operation is what `docs/formats.md` says: counted beneath a real server on a real disk,
//! one client, nothing else going on.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test may fail this way

mod session;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use disk::{Disk, DiskError, DiskFile, Entry, OpenOptions, RealDisk, Space};
use session::Session;
use types::{BootId, Timestamp};
use weir::config::Config;
use weir::datadir::{DataDir, IfNew};
use weir::foundation::{Foundation, Purpose};

/// A disk that counts what it syncs.
#[derive(Clone)]
struct Counting {
    inner: Arc<dyn Disk>,
    syncs: Arc<AtomicU64>,
}

struct CountingFile {
    inner: Arc<dyn DiskFile>,
    syncs: Arc<AtomicU64>,
}

impl Disk for Counting {
    fn open(&self, path: &str, options: OpenOptions) -> Result<Arc<dyn DiskFile>, DiskError> {
        let inner = self.inner.open(path, options)?;
        Ok(Arc::new(CountingFile { inner, syncs: Arc::clone(&self.syncs) }))
    }
    fn remove(&self, path: &str) -> Result<(), DiskError> {
        self.inner.remove(path)
    }
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.inner.rename(from, to)
    }
    fn create_dir_all(&self, path: &str) -> Result<(), DiskError> {
        self.inner.create_dir_all(path)
    }
    fn sync_dir(&self, path: &str) -> Result<(), DiskError> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        self.inner.sync_dir(path)
    }
    fn list(&self, path: &str) -> Result<Vec<Entry>, DiskError> {
        self.inner.list(path)
    }
    fn len_of(&self, path: &str) -> Result<Option<u64>, DiskError> {
        self.inner.len_of(path)
    }
    fn space(&self) -> Result<Space, DiskError> {
        self.inner.space()
    }
}

impl DiskFile for CountingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        self.inner.read_at(buf, offset)
    }
    fn read_vectored_at(&self, bufs: &mut [std::io::IoSliceMut<'_>], offset: u64) -> Result<usize, DiskError> {
        self.inner.read_vectored_at(bufs, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), DiskError> {
        self.inner.write_at(buf, offset)
    }
    fn sync_data(&self) -> Result<(), DiskError> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        self.inner.sync_data()
    }
    fn len(&self) -> Result<u64, DiskError> {
        self.inner.len()
    }
    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.inner.set_len(len)
    }
    fn allocate(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.inner.allocate(offset, len)
    }
    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }
    fn drop_cache(&self, offset: u64, len: u64) {
        self.inner.drop_cache(offset, len);
    }
}

struct World {
    server: server::Server,
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
        let disk = Arc::new(Counting { inner: real, syncs: Arc::clone(&syncs) });
        let foundation = Foundation::open_on(disk, &data, &Config::defaults(), Purpose::Serve, now).unwrap();
        let mut config = server::ServerConfig::new("127.0.0.1:0".parse().unwrap(), BootId(1));
        // The timed sync has its own row; it must not come in between here.
        config.times.keeper = Duration::from_secs(3600);
        let server = server::Server::start(config, Arc::clone(&foundation.namespace), Arc::clone(&foundation.store));
        Self { server: server.unwrap(), foundation, syncs, _place: place }
    }

    fn session(&self) -> Session {
        Session::open(self.server.address(), 4711)
    }

    /// Fsyncs while `what` is done. The least of several runs: a new log segment or a table of the index may be
    /// synced in the background in any one of them, in all of them not.
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

/// The table in `docs/formats.md`: operation and number.
fn documented() -> BTreeMap<String, u64> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats.md");
    let text = std::fs::read_to_string(path).unwrap();
    let section = text.split("## Fsyncs").nth(1).expect("docs/formats.md has a section `Fsyncs`");
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

    // Written inside, because a sync takes along whatever else waits for the log.
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

    assert_eq!(found, documented(), "counted, against the table in docs/formats.md");
    let end = world.server.stop(Instant::now() + Duration::from_secs(5));
    assert_eq!((end.connections_cut, end.writers_left), (0, 0));
    world.foundation.close().unwrap();
}

/// Many who close at the same moment share their fsyncs: that is what makes durable closes cheap.
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
