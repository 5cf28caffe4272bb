//! Whole sessions of random bytes against the real binary. It survives, serves others in time, keeps within its memory and keeps its data;
//! after kill -9, fsck finds nothing. `WEIR_FUZZ_SECONDS` (15) sets the duration; `WEIR_SEED` names the first session, to repeat a failure.
#![allow(clippy::unwrap_used, clippy::panic, clippy::cast_possible_truncation)] // a test may fail this way

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::fuzzed::{FIXED, Played, TOP, play};
use crate::node::{Node, weir_ends};
use crate::session::Session;
use rand::{RngCore, SeedableRng, rngs::StdRng};
use rustix::process::Signal;
use wire::request::OpenOptions;

/// Hostile clients at a time.
const PLAYERS: u64 = 4;
const SESSION_BYTES: usize = 1500;
const SESSION: Duration = Duration::from_secs(3);
/// An honest client gets answers to small requests within this time, whatever else the machine does.
const PATIENCE: Duration = Duration::from_secs(5);
const MEMORY_MAX: u64 = 512 << 20;
/// Short limits, so that the node cuts off many slow clients.
const CONFIG: &str = "grace_seconds = 1\n[times]\nrequest = \"1s\"\nanswer = \"1s\"\nlogin = \"1s\"\n";
/// Lengths of the files that exist before and must exist afterwards.
const LENGTHS: [usize; 6] = [0, 1, 4096, 60_000, 300_000, 3 << 20];
/// Bytes of one read of those files.
const STEP: u64 = 1 << 20;

fn fixed(number: usize) -> (String, Vec<u8>) {
    let mut data = vec![0; LENGTHS[number]];
    StdRng::seed_from_u64(number as u64).fill_bytes(&mut data);
    (format!("{FIXED}/{number}"), data)
}

/// Compares every byte of those files.
fn everything_stands(address: SocketAddr) {
    let mut honest = Session::open(address, 1);
    for number in 0..LENGTHS.len() {
        let (path, data) = fixed(number);
        let handle = honest.open_file(&path, OpenOptions::READ);
        let read: Vec<u8> = (0..5).flat_map(|step| honest.read(handle, step * STEP, STEP as u32)).collect();
        assert!(read == data, "{path} is not what it was");
        honest.close(handle);
    }
}

/// Other clients continue: existing files are served and new ones are accepted, in time.
fn others_are_served(address: SocketAddr, round: u64) {
    let began = Instant::now();
    let (path, data) = fixed(3);
    let mut honest = Session::open(address, 2);
    let handle = honest.open_file(&path, OpenOptions::READ);
    assert!(honest.read(handle, 100, 5000) == data[100..5100], "an honest client read something else");
    honest.close(handle);
    let path = format!("/honest/{round}");
    honest.put(&path, &data[..10_000]);
    honest.rm(&path);
    let took = began.elapsed();
    assert!(took < PATIENCE, "an honest client waited {took:?}");
}

fn memory(node: &Node) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// The metrics of what the node holds for clients.
fn held(log: &str) -> Vec<(String, f64)> {
    const HELD: [&str; 6] = [
        "weir_open_files",
        "weir_writers",
        "weir_writers_memory_bytes",
        "weir_transfer_buffers",
        "weir_transfers_running",
        "weir_connections",
    ];
    let address = log.split("metrics on http://").nth(1).and_then(|rest| rest.split("/metrics").next()).unwrap();
    let mut peer = TcpStream::connect(address).unwrap();
    peer.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    peer.read_to_string(&mut text).unwrap();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    let held = lines.filter(|(name, _)| HELD.contains(name));
    held.map(|(name, value)| (name.to_owned(), value.trim().parse().unwrap())).collect()
}

/// When all clients have gone, the node holds nothing of theirs: no file, no writer, no memory, no connection.
fn nothing_is_held(data: &Path) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let held = held(&Node::log_of(data));
        assert_eq!(held.len(), 6, "{held:?}");
        if held.iter().all(|(_, value)| *value == 0.0) {
            return;
        }
        assert!(Instant::now() < end, "held although everybody has gone: {held:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn from_environment(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |value| value.parse().unwrap())
}

/// Plays sessions from `next` on until `end`, or until one fails. Returns the counts of all.
fn play_until(address: SocketAddr, end: Instant, next: &AtomicU64, found: &AtomicBool) -> Played {
    let mut all = Played::default();
    while Instant::now() < end && !found.load(Ordering::Relaxed) {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        let mut bytes = vec![0; SESSION_BYTES];
        StdRng::seed_from_u64(seed).fill_bytes(&mut bytes);
        match std::panic::catch_unwind(|| play(address, &bytes, SESSION)) {
            Ok(played) => all.add(played),
            Err(_) => {
                found.store(true, Ordering::Relaxed);
                panic!("the session of seed {seed} found something: WEIR_SEED={seed}");
            }
        }
    }
    all
}

fn start(data: &Path, config: &Path) -> (Node, SocketAddr) {
    let node = Node::start(data, &["--config", config.to_str().unwrap(), "--metrics", "127.0.0.1:0"]);
    let address = node.address.parse().unwrap();
    (node, address)
}

#[test]
fn sessions_of_random_bytes_do_no_harm() {
    let place = tempfile::tempdir().unwrap();
    let (data, config) = (place.path().join("data"), place.path().join("weir.toml"));
    std::fs::write(&config, CONFIG).unwrap();
    let (mut node, address) = start(&data, &config);
    let mut honest = Session::open(address, 1);
    for number in 0..LENGTHS.len() {
        let (path, data) = fixed(number);
        honest.put(&path, &data);
    }
    honest.mkdir(TOP);
    drop(honest);

    let first = from_environment("WEIR_SEED", rand::random::<u32>().into());
    let end = Instant::now() + Duration::from_secs(from_environment("WEIR_FUZZ_SECONDS", 15));
    println!("sessions: WEIR_SEED={first}");
    let (next, found) = (AtomicU64::new(first), AtomicBool::new(false));
    let (played, most) = std::thread::scope(|scope| {
        let players: Vec<_> = (0..PLAYERS).map(|_| scope.spawn(|| play_until(address, end, &next, &found))).collect();
        let (mut round, mut most) = (0, 0);
        while Instant::now() < end && !found.load(Ordering::Relaxed) {
            others_are_served(address, round);
            assert!(node.child.try_wait().unwrap().is_none(), "the node has ended: {}", Node::log_of(&data));
            most = most.max(memory(&node));
            round += 1;
            std::thread::sleep(Duration::from_millis(100));
        }
        let mut all = Played::default();
        players.into_iter().for_each(|player| all.add(player.join().unwrap()));
        (all, most)
    });
    let sessions = next.load(Ordering::Relaxed) - first;
    println!("sessions: {sessions} of them, {played:?}, {} MiB at most", most >> 20);
    assert!(
        played.opened > 50 && played.good > 500 && played.refused > 200,
        "too little happened to prove anything: {played:?}"
    );
    assert!(most < MEMORY_MAX, "{} MiB", most >> 20);
    let log = Node::log_of(&data);
    assert!(!log.contains("panicked"), "a thread of the node panicked:\n{log}");

    everything_stands(address);
    nothing_is_held(&data);
    node.signal(Signal::KILL);
    node.ended(Duration::from_secs(10));
    let (again, address) = start(&data, &config);
    everything_stands(address);
    // Gives interrupted files their second of grace, after which they end.
    std::thread::sleep(Duration::from_secs(3));
    everything_stands(address);
    again.stop();
    // Do not read every byte: a session may have made a sparse file of terabytes. The fixed files were compared above.
    let checked = weir_ends(&["fsck", "--quick", "--data", data.to_str().unwrap()]);
    assert!(checked.status.success(), "fsck found something: {}", String::from_utf8_lossy(&checked.stdout));
}
