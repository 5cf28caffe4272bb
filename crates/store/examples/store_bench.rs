//! Rates of the store on a real disk, one JSON line each: `store_bench FOLDER [small|stream|read]…`.
//!
//! Compare ratios within one run; absolute figures drift with the machine.

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use disk::{Access, AlignedBuf, Disk, OpenOptions, RealDisk};
use journal::{Journal, JournalConfig, StreamId};
use kv::{IndexConfig, JournaledIndex, MemoryEngine};
use rustix::time::{ClockId, clock_gettime};
use store::{NewReplica, Store, StoreConfig};
use types::{Crc32c, Incarnation, ObjectId, ReplicaId};

type Failure = Box<dyn std::error::Error>;

struct Node {
    disk: Arc<dyn Disk>,
    journal: Arc<Journal>,
    store: Arc<Store>,
}

fn open(folder: &Path) -> Result<Node, Failure> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(folder)?);
    let streams = vec![StreamId::STORE_INDEX, StreamId::STORE_DATA];
    let (journal, _) = Journal::open(Arc::clone(&disk), "journal", JournalConfig { streams, ..Default::default() })?;
    let journal = Arc::new(journal);
    let engine = Box::new(MemoryEngine::new());
    let (index, _) = JournaledIndex::open(
        Arc::clone(&journal),
        StreamId::STORE_INDEX,
        engine,
        Arc::clone(&disk),
        "checkpoint",
        IndexConfig::default(),
    )?;
    let (store, _) = Store::open(Arc::clone(&disk), "store", Arc::clone(&journal), index, StoreConfig::default())?;
    Ok(Node { disk, journal, store })
}

/// CPU seconds of this process.
fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0)).as_secs_f64()
}

fn say(line: &serde_json::Value) {
    #[allow(clippy::print_stdout)] // the output of a benchmark
    {
        println!("{line}");
    }
}

fn new_replica(expected_len: Option<u64>) -> NewReplica<'static> {
    NewReplica { path_hint: b"/bench/file", expected_len, incarnation: Incarnation(1) }
}

static OBJECT: AtomicU64 = AtomicU64::new(1);

fn next_replica() -> ReplicaId {
    ReplicaId::first(ObjectId(OBJECT.fetch_add(1, Ordering::Relaxed)))
}

/// Durable files of 4 KiB. One thread works, and `outstanding` files wait for the same sync.
fn small(node: &Node, outstanding: usize) -> Result<(), Failure> {
    let content = vec![7u8; 4096];
    let (begun, cpu_begun) = (Instant::now(), cpu());
    let mut files = 0u64;
    while begun.elapsed() < Duration::from_secs(3) {
        let mut last = None;
        for _ in 0..outstanding {
            let writer = node.store.create(next_replica(), new_replica(Some(4096)))?;
            writer.write(0, &content)?;
            last = Some(writer.complete()?.seq);
            files += 1;
        }
        if let Some(last) = last {
            node.journal.sync_to(last)?;
        }
    }
    let (wall, cpu) = (begun.elapsed().as_secs_f64(), cpu() - cpu_begun);
    say(&serde_json::json!({"bench": "small_4k_durable", "outstanding": outstanding, "files": files,
        "per_second": files as f64 / wall, "per_cpu_second": files as f64 / cpu}));
    let begun = Instant::now();
    node.store.tick()?;
    say(&serde_json::json!({"bench": "settle", "seconds": begun.elapsed().as_secs_f64()}));
    Ok(())
}

const STREAM: u64 = 2 << 30;
const CHUNK: usize = 8 << 20;

fn pattern() -> AlignedBuf {
    let mut buf = AlignedBuf::new(CHUNK);
    for (at, byte) in buf.iter_mut().enumerate() {
        *byte = at.wrapping_mul(2_654_435_761).to_le_bytes()[2];
    }
    buf
}

/// A bare writer: CRC32C of each page, direct I/O in calls of `chunk` bytes, one sync at the end.
fn bare(node: &Node, chunk: usize) -> Result<f64, Failure> {
    let buf = pattern();
    let file = node.disk.open("bare", OpenOptions { access: Access::CreateNew, direct: true })?;
    file.allocate(0, STREAM)?;
    let begun = Instant::now();
    let mut sums = 0u32;
    for at in (0..STREAM).step_by(chunk) {
        let part = &buf[..chunk];
        sums ^= part.chunks(4096).fold(0, |sum, page| sum ^ Crc32c::of(page).0);
        file.write_at(part, at)?;
    }
    file.sync_data()?;
    let rate = STREAM as f64 / begun.elapsed().as_secs_f64();
    std::hint::black_box(sums);
    node.disk.remove("bare")?;
    Ok(rate)
}

fn stream_once(node: &Node, aligned: bool, chunk: usize) -> Result<(ReplicaId, f64, f64), Failure> {
    let aligned_buf = pattern();
    let shifted: Vec<u8> = std::iter::once(0).chain(aligned_buf.iter().copied()).collect();
    let data = if aligned { &aligned_buf[..chunk] } else { &shifted[1..=chunk] };
    let replica = next_replica();
    let (begun, cpu_begun) = (Instant::now(), cpu());
    let writer = node.store.create(replica, new_replica(Some(STREAM)))?;
    for at in (0..STREAM).step_by(chunk) {
        writer.write(at, data)?;
    }
    let completed = writer.complete()?;
    node.journal.sync_to(completed.seq)?;
    let wall = begun.elapsed().as_secs_f64();
    Ok((replica, STREAM as f64 / wall, (cpu() - cpu_begun) / (STREAM >> 30) as f64))
}

fn stream(node: &Node) -> Result<(), Failure> {
    for (aligned, chunk) in [(true, CHUNK), (false, CHUNK), (false, 1 << 20), (false, 256 << 10), (false, 64 << 10)] {
        let mut shares = Vec::new();
        for _ in 0..3 {
            let base = bare(node, CHUNK)?;
            let same = bare(node, chunk)?;
            let (replica, rate, cpu_per_gib) = stream_once(node, aligned, chunk)?;
            shares.push((rate / base, rate, base, cpu_per_gib, rate / same));
            node.store.delete(replica)?;
            node.journal.sync_to(node.journal.appended())?;
            node.store.tick()?;
        }
        shares.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (share, rate, base, cpu_per_gib, share_of_same) = shares[1];
        say(&serde_json::json!({"bench": "stream", "chunk": chunk, "aligned": aligned, "share_of_bare_8_mib": share,
            "share_of_bare_same_chunk": share_of_same,
            "mb_per_second": rate / 1e6, "bare_mb_per_second": base / 1e6, "cpu_seconds_per_gib": cpu_per_gib}));
    }
    Ok(())
}

fn read(node: &Node) -> Result<(), Failure> {
    let (replica, _, _) = stream_once(node, true, CHUNK)?;
    let reader = node.store.open_read(replica)?;
    for (name, frames) in
        [("read_pages cold", true), ("read_pages warm", true), ("read_pages warm", true), ("read warm", false)]
    {
        let (begun, cpu_begun) = (Instant::now(), cpu());
        let mut out = Vec::new();
        let mut plain = vec![0; CHUNK];
        let mut at = 0;
        while at < STREAM {
            let got = if frames {
                // Cleared, and thus zeroed again, each time, like a caller that keeps its buffer.
                out.clear();
                reader.read_pages(at, 2 << 20, &mut out)?
            } else {
                reader.read(at, &mut plain)?
            };
            at += got as u64;
        }
        let (wall, cpu) = (begun.elapsed().as_secs_f64(), cpu() - cpu_begun);
        let gib = (STREAM >> 30) as f64;
        say(&serde_json::json!({"bench": name, "gib_per_second": gib / wall, "cpu_seconds_per_gib": cpu / gib}));
    }
    let (begun, cpu_begun) = (Instant::now(), cpu());
    let mut buf = vec![0; (2 << 20) + 4 * 512];
    for at in (0..STREAM).step_by(2 << 20) {
        reader.read_pages_into(at, 2 << 20, &mut buf)?;
    }
    let (wall, cpu) = (begun.elapsed().as_secs_f64(), cpu() - cpu_begun);
    let gib = (STREAM >> 30) as f64;
    say(
        &serde_json::json!({"bench": "read_pages_into warm", "gib_per_second": gib / wall, "cpu_seconds_per_gib": cpu / gib}),
    );
    Ok(())
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let folder = tempfile::tempdir_in(arguments.next().unwrap_or_else(|| ".".into()))?;
    let wanted: Vec<String> = arguments.collect();
    let runs = |name: &str| wanted.is_empty() || wanted.iter().any(|w| w == name);
    let node = open(folder.path())?;
    if runs("small") {
        for outstanding in [1, 8, 32, 128] {
            small(&node, outstanding)?;
        }
    }
    if runs("stream") {
        stream(&node)?;
    }
    if runs("read") {
        read(&node)?;
    }
    Ok(())
}
