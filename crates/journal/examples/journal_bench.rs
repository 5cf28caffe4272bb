//! Measures the journal in a real directory, compared with a raw loop of 4 KiB write + fdatasync on the same disk.
//!
//! `journal_bench FOLDER [threads] [seconds] [record bytes]`; FOLDER must be on the disk to measure, and is empty afterwards.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use disk::{Access, AlignedBuf, Disk, OpenOptions, RealDisk};
use hdrhistogram::Histogram;
use journal::{Journal, JournalConfig, StreamId};

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX).max(1)
}

fn show(what: &str, seconds: f64, latencies: &Histogram<u64>) {
    println!(
        "{what:44} {:>9.0}/s   p50 {:>6} µs   p99 {:>6} µs   p99.9 {:>6} µs   max {:>7} µs",
        latencies.len() as f64 / seconds,
        latencies.value_at_quantile(0.5),
        latencies.value_at_quantile(0.99),
        latencies.value_at_quantile(0.999),
        latencies.max()
    );
}

fn raw(disk: &dyn Disk, direct: bool, time: Duration) {
    let file = disk.open("raw", OpenOptions { access: Access::CreateNew, direct }).unwrap();
    let mut buf = AlignedBuf::new(1 << 20);
    for i in 0..64 {
        file.write_at(&buf, i << 20).unwrap();
    }
    file.sync_data().unwrap();
    buf.fill(0xa5);
    let mut latencies = Histogram::<u64>::new(3).unwrap();
    let began = Instant::now();
    while began.elapsed() < time {
        let at = (latencies.len() % (16 << 10)) * 4096;
        let call = Instant::now();
        file.write_at(&buf[..4096], at).unwrap();
        file.sync_data().unwrap();
        latencies.record(micros(call)).unwrap();
    }
    let how = if direct { "direct" } else { "buffered" };
    show(&format!("raw 4 KiB write + fdatasync, {how}"), began.elapsed().as_secs_f64(), &latencies);
    disk.remove("raw").unwrap();
}

fn log(disk: &Arc<dyn Disk>, threads: usize, bytes: usize, direct: bool, time: Duration) {
    let config = JournalConfig { direct, streams: vec![StreamId::NAMESPACE], ..JournalConfig::default() };
    let (journal, _) = Journal::open(Arc::clone(disk), "bench", config.clone()).unwrap();
    journal.prepare().unwrap();
    let before = journal.stats();
    let began = Instant::now();
    let parts: Vec<Histogram<u64>> = std::thread::scope(|scope| {
        let work = |_| {
            let journal = &journal;
            scope.spawn(move || {
                let payload = vec![7; bytes];
                let mut latencies = Histogram::<u64>::new(3).unwrap();
                while began.elapsed() < time {
                    let call = Instant::now();
                    let seq = journal.append(StreamId::NAMESPACE, &[&payload]).unwrap().seq;
                    journal.sync_to(seq).unwrap();
                    latencies.record(micros(call)).unwrap();
                    if seq.0 % 100_000 == 0 {
                        journal.set_trim(StreamId::NAMESPACE, seq).unwrap();
                    }
                }
                latencies
            })
        };
        let handles: Vec<_> = (0..threads).map(work).collect();
        handles.into_iter().map(|h| h.join().unwrap()).collect()
    });
    let seconds = began.elapsed().as_secs_f64();
    let mut latencies = Histogram::<u64>::new(3).unwrap();
    parts.iter().for_each(|part| latencies.add(part).unwrap());
    let how = if direct { "direct" } else { "buffered" };
    show(&format!("log, {threads} threads, {bytes} B, {how}"), seconds, &latencies);
    let stats = journal.stats();
    let syncs = stats.syncs - before.syncs;
    println!(
        "{:44} {:>9.0} syncs/s, {:.1} records a sync, {:.0} MB/s written",
        "",
        syncs as f64 / seconds,
        (stats.records_synced - before.records_synced) as f64 / syncs.max(1) as f64,
        (stats.bytes_written - before.bytes_written) as f64 / seconds / 1e6
    );
    journal.close().unwrap();
    drop(journal);
    remove(disk);
}

/// How long opening takes with about 1 GiB retained.
fn reopen(disk: &Arc<dyn Disk>) {
    let config = JournalConfig { streams: vec![StreamId::NAMESPACE], ..JournalConfig::default() };
    let (journal, _) = Journal::open(Arc::clone(disk), "bench", config.clone()).unwrap();
    let payload = vec![7; 1000];
    while journal.retained_bytes() < 1 << 30 {
        journal.append(StreamId::NAMESPACE, &[&payload]).unwrap();
    }
    journal.sync_to(journal.appended()).unwrap();
    drop(journal);
    let began = Instant::now();
    Journal::check(&**disk, "bench", &config).unwrap();
    println!("reading and checking alone: {:?}", began.elapsed());
    let began = Instant::now();
    let (journal, opened) = Journal::open(Arc::clone(disk), "bench", config).unwrap();
    println!("opening with {} records, {} bytes: {:?}", opened.records, journal.retained_bytes(), began.elapsed());
    drop(journal);
    remove(disk);
}

fn remove(disk: &Arc<dyn Disk>) {
    for entry in disk.list("bench").unwrap() {
        disk.remove(&format!("bench/{}", entry.name)).unwrap();
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let folder = PathBuf::from(args.next().unwrap_or_else(|| ".".to_owned()));
    let mut number = |default: u64| args.next().and_then(|a| a.parse().ok()).unwrap_or(default);
    let (threads, seconds, bytes) = (number(64), number(3), number(300));
    let time = Duration::from_secs(seconds);
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(&folder).unwrap());
    for direct in [false, true] {
        raw(&*disk, direct, time);
    }
    let bytes = usize::try_from(bytes).unwrap();
    for direct in [false, true] {
        for threads in [1, usize::try_from(threads).unwrap()] {
            log(&disk, threads, bytes, direct, time);
        }
    }
    reopen(&disk);
}
