//! Measures the committer and the index on a real disk.
//!
//! `cargo run --release -p weir-kv --example kv_bench -- FOLDER commit|fill|scan|reopen [OPTIONS]`
//!
//! - `commit`: runs operations like those of a namespace (read one key, put three, delete one) with `--outstanding N`
//!   (64) for `--seconds N` (10). `--written` waits for the kernel only; `--simple` puts a single key. Prints the rate,
//!   latency quantiles for each second, and memory.
//! - `fill`: puts `--keys N` (1,000,000) keys of 40 bytes with values of 120 bytes, 100 per operation.
//! - `scan`: reads everything, in both directions, and random keys.
//! - `reopen`: measures how long opening takes after a clean stop, or after this program was killed while it filled.

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use disk::{Disk, RealDisk};
use hdrhistogram::Histogram;
use journal::{Journal, JournalConfig, StreamId};
use kv::{
    Durability, Embedded, EmbeddedConfig, IndexConfig, JournaledIndex, Kv, LsmConfig, LsmEngine, OpOutcome, ScanOrder,
};

struct Node {
    journal: Arc<Journal>,
    index: Arc<JournaledIndex>,
    kv: Arc<Embedded>,
}

fn open(dir: &Path) -> Node {
    let start = Instant::now();
    std::fs::create_dir_all(dir).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(dir).unwrap());
    let config = JournalConfig { streams: vec![StreamId::NAMESPACE], ..JournalConfig::default() };
    let (journal, opened) = Journal::open(Arc::clone(&disk), "journal", config).unwrap();
    let (journal, log) = (Arc::new(journal), start.elapsed());
    let engine = LsmEngine::open(&dir.join("namespace/index"), LsmConfig::default()).unwrap();
    let aside = engine.set_aside();
    let (index, recovery) = JournaledIndex::open(
        Arc::clone(&journal),
        StreamId::NAMESPACE,
        Box::new(engine),
        disk,
        "namespace/checkpoint",
        IndexConfig::default(),
    )
    .unwrap();
    println!("opened in {:.3?} (log {log:.3?}, {} records): {recovery:?} {aside:?}", start.elapsed(), opened.records);
    let kv = Arc::new(Embedded::new(Arc::clone(&index), EmbeddedConfig::default()).unwrap());
    Node { journal, index, kv }
}

fn close(node: Node) {
    let start = Instant::now();
    node.kv.stop();
    node.index.close().unwrap();
    node.journal.close().unwrap();
    println!("closed in {:.3?}; {} MiB of memory", start.elapsed(), memory_mib());
}

fn memory_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

fn mix(number: u64) -> u64 {
    let x = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Like a directory entry: the directory, then a name.
fn key(number: u64) -> Vec<u8> {
    format!("D{:08}/file-{:016x}-{number:010}", number / 1000, mix(number)).into_bytes()
}

struct Client {
    kv: Arc<Embedded>,
    next: AtomicU64,
    durability: Durability,
    simple: bool,
    stop: AtomicBool,
    done: AtomicU64,
    running: AtomicU64,
    latencies: parking_lot::Mutex<Histogram<u64>>,
}

/// Submits one operation, and the next one after its answer.
fn go_on(client: &Arc<Client>) {
    if client.stop.load(Ordering::Relaxed) {
        client.running.fetch_sub(1, Ordering::SeqCst);
        return;
    }
    let number = client.next.fetch_add(1, Ordering::Relaxed);
    let start = Instant::now();
    let again = Arc::clone(client);
    let simple = client.simple;
    client.kv.submit(
        client.durability,
        Box::new(move |txn| {
            if simple {
                txn.put(&number.to_be_bytes(), b"a short value");
                return OpOutcome::Commit;
            }
            let name = key(number);
            assert!(txn.get(&name).unwrap().is_none());
            txn.put(&name, &[b'i'; 120]);
            txn.put(format!("I{number:016x}").as_bytes(), &name);
            txn.put(format!("A{:08}", number / 1000).as_bytes(), &number.to_be_bytes());
            txn.delete(format!("W{:016x}", number.wrapping_sub(64)).as_bytes());
            OpOutcome::Commit
        }),
        Box::new(move |result| {
            result.unwrap();
            again.done.fetch_add(1, Ordering::Relaxed);
            again.latencies.lock().saturating_record(u64::try_from(start.elapsed().as_nanos()).unwrap());
            go_on(&again);
        }),
    );
}

fn commit(dir: &Path, options: &BTreeMap<String, u64>) {
    let node = open(dir);
    let get = |name: &str, usual| options.get(name).copied().unwrap_or(usual);
    let outstanding = get("outstanding", 64);
    let client = Arc::new(Client {
        kv: Arc::clone(&node.kv),
        next: AtomicU64::new(u64::from(std::process::id()) << 32),
        durability: if options.contains_key("written") { Durability::Written } else { Durability::Synced },
        simple: options.contains_key("simple"),
        stop: AtomicBool::new(false),
        done: AtomicU64::new(0),
        running: AtomicU64::new(outstanding),
        latencies: parking_lot::Mutex::new(Histogram::new_with_bounds(1, 60_000_000_000, 3).unwrap()),
    });
    let mut all = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).unwrap();
    let start = Instant::now();
    for _ in 0..outstanding {
        go_on(&client);
    }
    for second in 1..=get("seconds", 10) {
        let (before, syncs) = (client.done.load(Ordering::Relaxed), node.journal.stats().syncs);
        std::thread::sleep((start + Duration::from_secs(second)).saturating_duration_since(Instant::now()));
        let rate = client.done.load(Ordering::Relaxed) - before;
        let latencies =
            std::mem::replace(&mut *client.latencies.lock(), Histogram::new_with_bounds(1, 60_000_000_000, 3).unwrap());
        all.add(&latencies).unwrap();
        println!(
            "{second:4} s {rate:8}/s {:6} syncs/s {} memory {} MiB overlay {} KiB",
            node.journal.stats().syncs - syncs,
            quantiles(&latencies),
            memory_mib(),
            node.index.stats().overlay_bytes >> 10,
        );
    }
    client.stop.store(true, Ordering::SeqCst);
    while client.running.load(Ordering::SeqCst) > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let done = client.done.load(Ordering::Relaxed);
    println!(
        "{outstanding} outstanding: {:.0}/s, {} ({:?}, {:?})",
        f64::from(u32::try_from(done).unwrap()) / start.elapsed().as_secs_f64(),
        quantiles(&all),
        node.kv.stats(),
        node.index.stats()
    );
    drop(client);
    close(node);
}

fn quantiles(latencies: &Histogram<u64>) -> String {
    let at = |quantile| Duration::from_nanos(latencies.value_at_quantile(quantile));
    let max = Duration::from_nanos(latencies.max());
    format!("p50 {:.0?} p99 {:.0?} p99.9 {:.0?} max {max:.0?}", at(0.5), at(0.99), at(0.999))
}

fn fill(dir: &Path, options: &BTreeMap<String, u64>) {
    let node = open(dir);
    let keys = options.get("keys").copied().unwrap_or(1_000_000);
    let (start, waiting) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let mut highest = 0;
    for first in (0..keys).step_by(100) {
        waiting.fetch_add(1, Ordering::SeqCst);
        let waiting = Arc::clone(&waiting);
        node.kv.submit(
            Durability::Written,
            Box::new(move |txn| {
                for number in first..(first + 100).min(keys) {
                    txn.put(&key(number), &[b'v'; 120]);
                }
                OpOutcome::Commit
            }),
            Box::new(move |result| {
                result.unwrap();
                waiting.fetch_sub(1, Ordering::SeqCst);
            }),
        );
        if first % 500_000 == 0 {
            highest = highest.max(memory_mib());
            println!(
                "{:8.1?} {first} keys, {} MiB of memory, log {} MiB, {:?}",
                start.elapsed(),
                memory_mib(),
                node.journal.retained_bytes() >> 20,
                node.index.stats()
            );
        }
    }
    while waiting.load(Ordering::SeqCst) > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("{keys} keys in {:.1?}, at most {highest} MiB of memory", start.elapsed());
    if !options.contains_key("kill") {
        close(node);
    } else {
        // Like SIGKILL: nothing is cleaned up.
        std::process::abort();
    }
}

fn scan(dir: &Path) {
    let node = open(dir);
    let mut keys = 0u64;
    for order in [ScanOrder::Ascending, ScanOrder::Descending] {
        let start = Instant::now();
        keys = 0;
        node.kv
            .snapshot()
            .scan(b"", b"\xff", order, &mut |_, _| {
                keys += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
        let rate = f64::from(u32::try_from(keys).unwrap()) / start.elapsed().as_secs_f64();
        println!("{order:?}: {keys} keys in {:.2?}, {rate:.0}/s; {} MiB of memory", start.elapsed(), memory_mib());
    }
    for (what, offset) in [("present", 0), ("absent", u64::MAX / 2)] {
        let start = Instant::now();
        let snapshot = node.kv.snapshot();
        let reads = 200_000u32;
        let found = (0..u64::from(reads))
            .filter(|number| {
                let number = mix(*number) % keys.max(1) + offset;
                snapshot.get(&key(number)).unwrap().is_some()
            })
            .count();
        let rate = f64::from(reads) / start.elapsed().as_secs_f64();
        println!("random reads of {what} keys: {rate:.0}/s, {found} found; {} MiB of memory", memory_mib());
    }
    close(node);
}

fn main() {
    let mut words = std::env::args().skip(1);
    let (Some(dir), Some(what)) = (words.next(), words.next()) else {
        println!(
            "kv_bench FOLDER commit|fill|scan|reopen [--outstanding N] [--seconds N] [--keys N] [--written] [--simple] [--kill]"
        );
        return;
    };
    let mut options = BTreeMap::new();
    let words: Vec<String> = words.collect();
    for (at, word) in words.iter().enumerate() {
        if let Some(name) = word.strip_prefix("--") {
            let value = words.get(at + 1).and_then(|value| value.parse().ok()).unwrap_or(1);
            options.insert(name.to_owned(), value);
        }
    }
    let dir = Path::new(&dir);
    match what.as_str() {
        "commit" => commit(dir, &options),
        "fill" => fill(dir, &options),
        "scan" => scan(dir),
        _ => close(open(dir)),
    }
}
