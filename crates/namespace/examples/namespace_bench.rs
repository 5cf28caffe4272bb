//! Measures the namespace library on a real disk. One JSON object a line for each figure; notes go to stderr.
//!
//!     namespace_bench --dir DIR [--quick] [--only life,latency,list,fill] [--seconds N] [--rate N] [--fill N]
//!                     [--outstanding N] [--csv FILE]
//!
//! life: whole lives of small files (open for writing, commit, durable), 64 outstanding, 1,000 directories.
//! latency: the same at a fixed rate; quantiles, and a curve by seconds as CSV.
//! list: a directory of a million entries with attributes.
//! fill: ten million files, then memory, and the time to open after SIGKILL under load.

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

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use disk::{Disk, RealDisk};
use hdrhistogram::Histogram;
use journal::{Journal, JournalConfig, StreamId};
use kv::{Durability, Embedded, EmbeddedConfig, IndexConfig, JournaledIndex, Kv, LsmConfig, LsmEngine};
use namespace::{
    Actor, Commit, Committed, Completion, Mkdir, Namespace, NamespaceConfig, NsError, OpenWrite, Sums, WriteMode,
};
use types::{Adler32, BootId, ClientIdentity, Crc32c, NsPath, Timestamp};

const DIRS: u64 = 1_000;

struct Options {
    dir: PathBuf,
    quick: bool,
    only: Option<Vec<String>>,
    seconds: u64,
    rate: u64,
    fill: u64,
    outstanding: u64,
    csv: Option<PathBuf>,
    role: Option<String>,
}

fn options() -> Options {
    let mut options = Options {
        dir: PathBuf::new(),
        quick: false,
        only: None,
        seconds: 0,
        rate: 20_000,
        fill: 0,
        outstanding: 64,
        csv: None,
        role: None,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().unwrap_or_else(|| panic!("{arg} needs a value"));
        match arg.as_str() {
            "--dir" => options.dir = value().into(),
            "--quick" => options.quick = true,
            "--only" => options.only = Some(value().split(',').map(str::to_owned).collect()),
            "--seconds" => options.seconds = value().parse().unwrap(),
            "--rate" => options.rate = value().parse().unwrap(),
            "--fill" => options.fill = value().parse().unwrap(),
            "--outstanding" => options.outstanding = value().parse().unwrap(),
            "--csv" => options.csv = Some(value().into()),
            "--role" => options.role = Some(value()),
            other => panic!("unknown argument {other}"),
        }
    }
    assert!(!options.dir.as_os_str().is_empty(), "--dir is needed");
    options
}

struct Node {
    journal: Arc<Journal>,
    index: Arc<JournaledIndex>,
    embedded: Arc<Embedded>,
    ns: Arc<Namespace>,
}

fn now() -> Timestamp {
    Timestamp(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64)
}

fn open(dir: &Path) -> Node {
    std::fs::create_dir_all(dir).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(dir).unwrap());
    let config = JournalConfig { streams: vec![StreamId::NAMESPACE], ..JournalConfig::default() };
    let (journal, _) = Journal::open(Arc::clone(&disk), "journal", config).unwrap();
    let journal = Arc::new(journal);
    let engine = Box::new(LsmEngine::open(&dir.join("index"), LsmConfig::default()).unwrap());
    let (index, recovery) = JournaledIndex::open(
        Arc::clone(&journal),
        StreamId::NAMESPACE,
        engine,
        disk,
        "checkpoint",
        IndexConfig::default(),
    )
    .unwrap();
    eprintln!("opened: {} records replayed, rebuilt: {:?}", recovery.replayed, recovery.rebuilt);
    let embedded = Arc::new(Embedded::new(Arc::clone(&index), EmbeddedConfig::default()).unwrap());
    let kv: Arc<dyn Kv> = Arc::<Embedded>::clone(&embedded);
    let ns = Namespace::open(kv, now(), NamespaceConfig::default()).unwrap();
    Node { journal, index, embedded, ns }
}

impl Node {
    fn close(self) {
        self.embedded.stop();
        self.index.close().unwrap();
    }

    fn make_dirs(&self) {
        for n in 0..DIRS {
            let path = NsPath::parse(format!("/d{n:03}").as_bytes()).unwrap();
            let op = Mkdir { path, mode: 0o755, parents: true };
            let ctx = self.ns.context(now(), &Actor::admin(), None);
            self.ns.change_wait(Durability::Written, ctx, op).unwrap();
        }
    }
}

fn status(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000_000, 3).unwrap()
}

/// CPU seconds of this process's threads so far, by thread name.
fn threads() -> std::collections::BTreeMap<String, f64> {
    let mut found = std::collections::BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let spent: f64 = read("schedstat").split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0.0);
        *found.entry(read("comm").trim().to_owned()).or_insert(0.0) += spent / 1e9;
    }
    found
}

/// CPU seconds of this process so far.
fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    ticks as f64 / 100.0
}

/// Runs lives of files on several tracks, one after the other. The completion of each operation submits the next one.
struct Load {
    ns: Arc<Namespace>,
    actor: Actor,
    run: u64,
    next: AtomicU64,
    end: u64,
    stop: AtomicBool,
    lives: AtomicU64,
    on_tracks: AtomicU64,
    one_dir: bool,
    /// The duration of each life, in ns. The curve writer takes the histogram.
    times: Option<parking_lot::Mutex<Histogram<u64>>>,
}

impl Load {
    fn new(ns: &Arc<Namespace>, run: u64, end: u64, timed: bool) -> Arc<Self> {
        Arc::new(Self {
            ns: Arc::clone(ns),
            actor: Actor::admin(),
            run,
            next: AtomicU64::new(0),
            end,
            stop: AtomicBool::new(false),
            lives: AtomicU64::new(0),
            on_tracks: AtomicU64::new(0),
            one_dir: false,
            times: timed.then(|| parking_lot::Mutex::new(histogram())),
        })
    }

    fn open_of(&self, n: u64) -> OpenWrite {
        let path = if self.one_dir {
            format!("/one/file-{:x}-{n:08}.root", self.run)
        } else {
            format!("/d{:03}/file-{:x}-{n:08}.root", n % DIRS, self.run)
        };
        OpenWrite {
            expected_len: Some(4096),
            ..OpenWrite::new(
                NsPath::parse(path.as_bytes()).unwrap(),
                WriteMode::NewOnly,
                ClientIdentity {
                    principal: types::PrincipalId(0),
                    user: "bench".into(),
                    pid: n as u32 % 64,
                    host: "[::1]".into(),
                },
                BootId(1),
            )
        }
    }

    /// Starts one life. With `again`, its end starts the next one on the same track.
    fn life(self: &Arc<Self>, due: Instant, again: bool) {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        if n >= self.end || self.stop.load(Ordering::Relaxed) {
            self.on_tracks.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let load = Arc::clone(self);
        let ctx = self.ns.context(now(), &self.actor, None);
        self.ns.change(Durability::Written, ctx, self.open_of(n), move |opened| {
            let opened = match opened {
                Ok(opened) => opened,
                Err(NsError::OutOfNumbers) => panic!("numbers did not come in time"),
                Err(error) => panic!("open: {error}"),
            };
            let sums = Some(Sums { adler32: Adler32(7), crc32c: Crc32c(8) });
            let content = Committed { len: 4096, sums, mtime: None };
            let op = Commit { writer: opened.writer, content, completion: Completion::ByClient };
            let ctx = load.ns.context(now(), &load.actor, None);
            let inner = Arc::clone(&load);
            load.ns.change(Durability::Synced, ctx, op, move |committed| {
                committed.unwrap();
                inner.lives.fetch_add(1, Ordering::Relaxed);
                if let Some(times) = &inner.times {
                    times.lock().saturating_record(due.elapsed().as_nanos() as u64);
                }
                if again {
                    inner.life(Instant::now(), true);
                } else {
                    inner.on_tracks.fetch_sub(1, Ordering::Relaxed);
                }
            });
        });
    }

    fn start(self: &Arc<Self>, outstanding: u64) {
        self.on_tracks.fetch_add(outstanding, Ordering::Relaxed);
        for _ in 0..outstanding {
            self.life(Instant::now(), true);
        }
    }

    fn wait(&self) {
        while self.on_tracks.load(Ordering::Relaxed) > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn run_number() -> u64 {
    (now().0 as u64 / 1_000_000) & 0xff_ffff
}

fn measure_life(options: &Options) {
    let seconds = if options.seconds > 0 {
        options.seconds
    } else if options.quick {
        3
    } else {
        20
    };
    let mut samples = Vec::new();
    let mut note = String::new();
    for _ in 0..if options.quick { 1 } else { 5 } {
        let dir = options.dir.join("life");
        let _ = std::fs::remove_dir_all(&dir);
        let node = open(&dir);
        node.make_dirs();
        let load = Load::new(&node.ns, run_number(), u64::MAX, false);
        let (begin, before) = (Instant::now(), cpu());
        load.start(options.outstanding);
        std::thread::sleep(Duration::from_secs(seconds));
        load.stop.store(true, Ordering::Relaxed);
        load.wait();
        let wall = begin.elapsed().as_secs_f64();
        let lives = load.lives.load(Ordering::Relaxed) as f64;
        let stats = node.journal.stats();
        let by_thread: Vec<String> = threads()
            .into_iter()
            .filter(|(_, spent)| spent / lives * 1e6 > 0.1)
            .map(|(name, spent)| format!("{name} {:.1}", spent / lives * 1e6))
            .collect();
        eprintln!("CPU us a life by thread: {}", by_thread.join(", "));
        note = format!(
            "{seconds} s a run, {} outstanding; {:.1} us CPU a life in all threads, {:.2} cores, {:.1} lives a sync",
            options.outstanding,
            (cpu() - before) / lives * 1e6,
            (cpu() - before) / wall,
            lives / stats.syncs as f64
        );
        eprintln!("life: {:.0}/s; {note}", lives / wall);
        samples.push(lives / wall);
        node.close();
        std::fs::remove_dir_all(&dir).unwrap();
    }
    let text: Vec<String> = samples.iter().map(|rate| format!("{rate:.0}")).collect();
    println!(r#"{{"row":"life-rate","samples":[{}],"unit":"1/s","note":"{note}"}}"#, text.join(","));
}

fn measure_latency(options: &Options) {
    let seconds = if options.seconds > 0 {
        options.seconds
    } else if options.quick {
        5
    } else {
        600
    };
    let dir = options.dir.join("latency");
    let _ = std::fs::remove_dir_all(&dir);
    let node = open(&dir);
    node.make_dirs();
    let load = Load::new(&node.ns, run_number(), u64::MAX, true);
    let csv = options.csv.clone().unwrap_or_else(|| options.dir.join("latency.csv"));
    let mut out = std::io::BufWriter::new(std::fs::File::create(&csv).unwrap());
    writeln!(out, "second,lives,p50_ms,p99_ms,p999_ms,max_ms,rss_kib").unwrap();
    let mut all = histogram();
    let step = Duration::from_secs(1) / options.rate as u32;
    let begin = Instant::now();
    let (mut sent, mut second) = (0u32, 0);
    while begin.elapsed() < Duration::from_secs(seconds) {
        // Lives are due at fixed times. The latency of a late start counts from the due time.
        let due = begin.elapsed().as_nanos() / step.as_nanos();
        while u128::from(sent) < due {
            load.on_tracks.fetch_add(1, Ordering::Relaxed);
            load.life(begin + step * sent, false);
            sent += 1;
        }
        if begin.elapsed().as_secs() > second {
            second = begin.elapsed().as_secs();
            let part = std::mem::replace(&mut *load.times.as_ref().unwrap().lock(), histogram());
            let ms = |q: f64| part.value_at_quantile(q) as f64 / 1e6;
            let max = part.max() as f64 / 1e6;
            let (p50, p99, p999) = (ms(0.5), ms(0.99), ms(0.999));
            writeln!(out, "{second},{},{p50:.3},{p99:.3},{p999:.3},{max:.3},{}", part.len(), status("VmRSS:")).unwrap();
            out.flush().unwrap();
            all.add(&part).unwrap();
            if second % 60 == 0 {
                let p999 = all.value_at_quantile(0.999) as f64 / 1e6;
                eprintln!("latency: {second} of {seconds} s, p99.9 so far {p999:.1} ms");
            }
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    load.wait();
    all.add(&*load.times.as_ref().unwrap().lock()).unwrap(); // the last part of a second
    let ms = |q: f64| all.value_at_quantile(q) as f64 / 1e6;
    let note = format!(
        "{} lives at {}/s for {seconds} s: p50 {:.2} p90 {:.2} p99 {:.2} p99.9 {:.2} max {:.1} ms; VmHWM {} KiB",
        all.len(),
        options.rate,
        ms(0.5),
        ms(0.9),
        ms(0.99),
        ms(0.999),
        all.max() as f64 / 1e6,
        status("VmHWM:")
    );
    println!(r#"{{"row":"life-p999","value":{:.3},"unit":"ms","note":"{note}"}}"#, ms(0.999));
    node.close();
    std::fs::remove_dir_all(&dir).unwrap();
}

fn measure_list(options: &Options) {
    let entries = if options.quick { 100_000 } else { 1_000_000 };
    let dir = options.dir.join("list");
    let _ = std::fs::remove_dir_all(&dir);
    let node = open(&dir);
    let path = NsPath::parse(b"/one").unwrap();
    let made = Mkdir { path: path.clone(), mode: 0o755, parents: true };
    node.ns.change_wait(Durability::Synced, node.ns.context(now(), &Actor::admin(), None), made).unwrap();
    let mut load = Load::new(&node.ns, run_number(), entries, false);
    Arc::get_mut(&mut load).unwrap().one_dir = true;
    load.start(1_000);
    load.wait();
    // As on a server that has run for a while: the entries are in the engine, not in the overlay.
    while node.index.sweep_now().unwrap() {}
    let mut samples = Vec::new();
    for _ in 0..5 {
        let begin = Instant::now();
        let (mut seen, mut bytes) = (0u64, 0u64);
        node.ns
            .read(|read| {
                let inode = namespace::lookup(read, &Actor::admin(), &path)?;
                let mut after = None;
                loop {
                    let page = namespace::list(read, inode.ino, after.as_ref(), 4_096)?;
                    for entry in &page.entries {
                        seen += 1;
                        bytes += entry.inode.len();
                    }
                    match page.entries.last() {
                        Some(last) if page.more => after = Some(last.name.clone()),
                        _ => return Ok(()),
                    }
                }
            })
            .unwrap();
        assert_eq!((seen, bytes), (entries, entries * 4096));
        samples.push(format!("{:.0}", seen as f64 / begin.elapsed().as_secs_f64()));
        eprintln!("list: {}/s", samples.last().unwrap());
    }
    let note = format!("{entries} entries in pages of 4,096, one thread");
    println!(r#"{{"row":"list-rate","samples":[{}],"unit":"1/s","note":"{note}"}}"#, samples.join(","));
    node.close();
    std::fs::remove_dir_all(&dir).unwrap();
}

/// The part of `fill` that is killed: fills the namespace, prints its memory, and continues to work.
fn fill_and_work(options: &Options) {
    let node = open(&options.dir);
    node.make_dirs();
    let begin = Instant::now();
    let load = Load::new(&node.ns, run_number(), options.fill, false);
    load.start(options.outstanding);
    load.wait();
    let rate = options.fill as f64 / begin.elapsed().as_secs_f64();
    println!("filled {rate:.0} {}", status("VmHWM:"));
    std::io::stdout().flush().unwrap();
    let load = Load::new(&node.ns, run_number(), u64::MAX, false);
    load.start(64);
    load.wait();
}

/// The part of `fill` that opens the killed namespace: prints the duration, works for a while, and prints its memory.
fn reopen(options: &Options) {
    let begin = Instant::now();
    let node = open(&options.dir);
    let path = NsPath::parse(b"/d500").unwrap();
    node.ns.read(|read| namespace::stat(read, &Actor::admin(), &path)).unwrap();
    let seconds = begin.elapsed().as_secs_f64();
    let load = Load::new(&node.ns, run_number(), u64::MAX, false);
    load.start(64);
    std::thread::sleep(Duration::from_secs(if options.quick { 3 } else { 30 }));
    load.stop.store(true, Ordering::Relaxed);
    load.wait();
    let entries: u64 = (0..DIRS)
        .map(|n| {
            let path = NsPath::parse(format!("/d{n:03}").as_bytes()).unwrap();
            let totals = node.ns.read(|read| {
                let inode = namespace::lookup(read, &Actor::admin(), &path)?;
                namespace::totals(read, inode.ino)
            });
            totals.unwrap().entries
        })
        .sum();
    println!("opened {seconds:.3} {} {} {entries}", status("VmHWM:"), status("VmRSS:"));
    node.close();
}

fn child(options: &Options, role: &str, dir: &Path, fill: u64) -> std::process::Child {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--role", role, "--dir"]).arg(dir).args(["--fill", &fill.to_string(), "--outstanding", "256"]);
    if options.quick {
        command.arg("--quick");
    }
    command.stdout(std::process::Stdio::piped()).spawn().unwrap()
}

fn words(child: &mut std::process::Child) -> Vec<String> {
    let mut line = String::new();
    std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    line.split_whitespace().map(str::to_owned).collect()
}

fn measure_fill(options: &Options) {
    let files = if options.fill > 0 {
        options.fill
    } else if options.quick {
        200_000
    } else {
        10_000_000
    };
    let dir = options.dir.join("fill");
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    let mut backfill = child(options, "fill", &dir, files);
    let filled = words(&mut backfill);
    assert_eq!(filled.first().map(String::as_str), Some("filled"), "the filling process failed");
    std::thread::sleep(Duration::from_secs(3));
    backfill.kill().unwrap(); // SIGKILL, under load
    backfill.wait().unwrap();
    let mut opening = child(options, "reopen", &dir, files);
    let opened = words(&mut opening);
    opening.wait().unwrap();
    assert_eq!(opened.first().map(String::as_str), Some("opened"), "the namespace did not open again");
    assert!(opened[4].parse::<u64>().unwrap() > files, "files are missing");
    let note =
        format!("{files} files, filled at {}/s; SIGKILL after 3 s of further load with 64 outstanding", filled[1]);
    println!(r#"{{"row":"open-after-kill","value":{},"unit":"s","note":"{note}"}}"#, opened[1]);
    let mib = |kib: &str| kib.parse::<f64>().unwrap() / 1024.0;
    let most = mib(&opened[2]).max(mib(&filled[2]));
    let note = format!(
        "largest VmHWM of: filling {:.0} MiB, opening after the kill and {} s of load {:.0} MiB (then resident {:.0})",
        mib(&filled[2]),
        if options.quick { 3 } else { 30 },
        mib(&opened[2]),
        mib(&opened[3])
    );
    println!(r#"{{"row":"memory-10m","value":{most:.1},"unit":"MiB","note":"{note}"}}"#);
    std::fs::remove_dir_all(&dir).unwrap();
}

fn main() {
    let options = options();
    match options.role.as_deref() {
        Some("fill") => return fill_and_work(&options),
        Some("reopen") => return reopen(&options),
        _ => {}
    }
    let wanted = |part: &str| options.only.as_ref().is_none_or(|only| only.iter().any(|name| name == part));
    if wanted("life") {
        measure_life(&options);
    }
    if wanted("latency") {
        measure_latency(&options);
    }
    if wanted("list") {
        measure_list(&options);
    }
    if wanted("fill") {
        measure_fill(&options);
    }
}
