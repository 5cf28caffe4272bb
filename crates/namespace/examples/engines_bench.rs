//! Compares the namespace on the embedded engine and on a PostgreSQL database, in turns on the same machine. One JSON object a line for each figure.
//!
//!     engines_bench --dir DIR --database URL [--rounds N] [--seconds N] [--entries N]
//!
//! life: files opened for writing and committed, with 64 and with 1,024 outstanding. stat: by 1 and by 8 threads, a path of 3 names. list: a directory
//! with attributes. DIR is removed afterwards. The database must have weir's tables (`weir db init`) and nothing else.

#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr
)]

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use database::{Postgres, PostgresConfig};
use disk::{Disk, RealDisk};
use journal::{Journal, JournalConfig, StreamId};
use kv::{Durability, Embedded, EmbeddedConfig, IndexConfig, JournaledIndex, Kv, LsmConfig, LsmEngine};
use namespace::{
    self as ns, Actor, Commit, Committed, Completion, Mkdir, Namespace, NamespaceConfig, OpenWrite, Sums, WriteMode,
};
use types::{Adler32, BootId, ClientIdentity, Crc32c, NsPath, Timestamp};

const DIRS: u64 = 100;

fn now() -> Timestamp {
    Timestamp(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64)
}

fn path(text: &str) -> NsPath {
    NsPath::parse(text.as_bytes()).unwrap()
}

fn embedded(dir: &Path) -> Arc<dyn Kv> {
    std::fs::create_dir_all(dir).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(dir).unwrap());
    let config = JournalConfig { streams: vec![StreamId::NAMESPACE], ..JournalConfig::default() };
    let (journal, _) = Journal::open(Arc::clone(&disk), "journal", config).unwrap();
    let engine = Box::new(LsmEngine::open(&dir.join("index"), LsmConfig::default()).unwrap());
    let (journal, config) = (Arc::new(journal), IndexConfig::default());
    let opened = JournaledIndex::open(journal, StreamId::NAMESPACE, engine, disk, "checkpoint", config);
    Arc::new(Embedded::new(opened.unwrap().0, EmbeddedConfig::default()).unwrap())
}

struct Load {
    ns: Arc<Namespace>,
    next: AtomicU64,
    stop: AtomicBool,
    done: AtomicU64,
    on_tracks: AtomicU64,
}

impl Load {
    /// One file from open to commit; its end starts the next one.
    fn life(self: &Arc<Self>) {
        if self.stop.load(Ordering::Relaxed) {
            self.on_tracks.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        let client = ClientIdentity {
            principal: types::PrincipalId(0),
            user: "bench".into(),
            pid: n as u32 % 64,
            host: "[::1]".into(),
        };
        let at = path(&format!("/b/d{:02}/file-{n:08}.root", n % DIRS));
        let open = OpenWrite { expected_len: Some(4096), ..OpenWrite::new(at, WriteMode::NewOnly, client, BootId(1)) };
        let load = Arc::clone(self);
        self.ns.change(Durability::Written, self.ns.context(now(), &Actor::admin(), None), open, move |opened| {
            let sums = Some(Sums { adler32: Adler32(7), crc32c: Crc32c(8) });
            let content = Committed { len: 4096, sums, mtime: None };
            let commit = Commit { writer: opened.unwrap().writer, content, completion: Completion::ByClient };
            let inner = Arc::clone(&load);
            let ctx = load.ns.context(now(), &Actor::admin(), None);
            load.ns.change(Durability::Synced, ctx, commit, move |committed| {
                committed.unwrap();
                inner.done.fetch_add(1, Ordering::Relaxed);
                inner.life();
            });
        });
    }
}

fn lives(load: &Arc<Load>, outstanding: u64, time: Duration) -> f64 {
    load.stop.store(false, Ordering::Relaxed);
    let (before, began) = (load.done.load(Ordering::Relaxed), Instant::now());
    load.on_tracks.store(outstanding, Ordering::Relaxed);
    for _ in 0..outstanding {
        load.life();
    }
    std::thread::sleep(time);
    load.stop.store(true, Ordering::Relaxed);
    while load.on_tracks.load(Ordering::Relaxed) > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    (load.done.load(Ordering::Relaxed) - before) as f64 / began.elapsed().as_secs_f64()
}

fn stats(ns: &Arc<Namespace>, threads: u64, files: u64, time: Duration) -> f64 {
    let began = Instant::now();
    let one = |thread: u64| {
        let (mut count, mut n) = (0u64, thread);
        while began.elapsed() < time {
            n = (n + 7919) % files;
            let at = path(&format!("/b/d{:02}/file-{n:08}.root", n % DIRS));
            ns.read(|read| ns::stat(read, &Actor::admin(), &at)).unwrap();
            count += 1;
        }
        count
    };
    let count: u64 = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || one(thread))).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    count as f64 / began.elapsed().as_secs_f64()
}

fn list(ns: &Arc<Namespace>, at: &str) -> f64 {
    let began = Instant::now();
    let dir = ns.read(|read| ns::stat(read, &Actor::admin(), &path(at))).unwrap().ino;
    let (mut after, mut count) = (None, 0);
    loop {
        let page = ns.read(|read| ns::list(read, dir, after.as_ref(), 1000)).unwrap();
        count += page.entries.len();
        after = page.entries.last().map(|entry| entry.name.clone());
        if !page.more {
            break;
        }
    }
    count as f64 / began.elapsed().as_secs_f64()
}

fn main() {
    let (mut dir, mut url, mut rounds, mut seconds, mut entries) = (PathBuf::new(), String::new(), 3, 3, 100_000u64);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().unwrap_or_else(|| panic!("{arg} needs a value"));
        match arg.as_str() {
            "--dir" => dir = value.into(),
            "--database" => url = value,
            "--rounds" => rounds = value.parse().unwrap(),
            "--seconds" => seconds = value.parse().unwrap(),
            "--entries" => entries = value.parse().unwrap(),
            other => panic!("unknown argument {other}"),
        }
    }
    let time = Duration::from_secs(seconds);
    let database = Arc::new(Postgres::open(&url.parse().unwrap(), "manager", PostgresConfig::default()).unwrap());
    let engines: [(&str, Arc<dyn Kv>); 2] = [("embedded", embedded(&dir)), ("postgres", Arc::clone(&database) as _)];
    let loads: Vec<(&str, Arc<Load>)> = engines
        .into_iter()
        .map(|(name, kv)| {
            let ns = Namespace::open(kv, now(), NamespaceConfig::default()).unwrap();
            let make = |at: String| {
                let mkdir = Mkdir { path: path(&at), mode: 0o755, parents: true };
                ns.change_wait(Durability::Synced, ns.context(now(), &Actor::admin(), None), mkdir).unwrap();
            };
            for n in 0..DIRS {
                make(format!("/b/d{n:02}"));
            }
            let [next, done, on_tracks] = [const { AtomicU64::new(0) }; 3];
            (name, Arc::new(Load { ns, next, stop: AtomicBool::new(false), done, on_tracks }))
        })
        .collect();
    for round in 0..rounds {
        for (name, load) in &loads {
            let say = |row: &str, rate: f64| {
                println!(r#"{{"row":"{row}","engine":"{name}","round":{round},"rate":{rate:.0},"unit":"1/s"}}"#);
            };
            say("lives, 64 outstanding", lives(load, 64, time));
            say("lives, 1024 outstanding", lives(load, 1024, time));
            let files = load.done.load(Ordering::Relaxed).saturating_sub(2000);
            say("stat, 1 thread", stats(&load.ns, 1, files, time));
            say("stat, 8 threads", stats(&load.ns, 8, files, time));
        }
    }
    for (name, load) in &loads {
        let mkdir = Mkdir { path: path("/list"), mode: 0o755, parents: true };
        let ctx = || load.ns.context(now(), &Actor::admin(), None);
        load.ns.change_wait(Durability::Synced, ctx(), mkdir).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        for n in 0..entries {
            let sender = sender.clone();
            let link = ns::Symlink { path: path(&format!("/list/entry-{n:08}")), target: b"x".to_vec() };
            load.ns.change(Durability::Synced, ctx(), link, move |made| sender.send(made.map(drop)).unwrap());
        }
        (0..entries).for_each(|_| receiver.recv().unwrap().unwrap());
        for round in 0..rounds {
            let rate = list(&load.ns, "/list");
            println!(r#"{{"row":"entries listed","engine":"{name}","round":{round},"rate":{rate:.0},"unit":"1/s"}}"#);
        }
    }
    println!("{:?}", database.stats());
    drop(loads);
    std::fs::remove_dir_all(&dir).unwrap();
}
