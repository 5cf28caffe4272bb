//! Whole sessions against a live server in this process: any bytes are choices of requests, changes in them, cuts and closed connections
//! (`fuzzed`), and coverage leads. Nothing may panic; another client is served in time and reads what it wrote; connections end; what was
//! there is there after each new start on the same folder.
#![no_main]

#[path = "../../crates/xrootd/tests/fuzzed/mod.rs"]
mod fuzzed;

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use disk::{Disk, RealDisk};
use fuzzed::{FIXED, TOP, play};
use journal::{Journal, JournalConfig, StreamId};
use kv::{Embedded, EmbeddedConfig, IndexConfig, JournaledIndex, MemoryEngine};
use libfuzzer_sys::fuzz_target;
use namespace::{Namespace, NamespaceConfig};
use store::{Store, StoreConfig};
use tempfile::TempDir;
use types::{BootId, Timestamp};
use xrootd::{Server, ServerConfig};

/// Of one input.
const SESSION: Duration = Duration::from_secs(2);
/// An honest client waits no longer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections whose clients have gone are gone after this time.
const QUIET: Duration = Duration::from_secs(20);
/// Inputs until the server is started anew on its folder, and starts until it gets a new one.
const INPUTS_A_START: u32 = 100;
const STARTS_A_FOLDER: u32 = 5;
const LENGTHS: [usize; 4] = [0, 4096, 60_000, 300_000];

thread_local! {
    static NODE: RefCell<Option<Node>> = const { RefCell::new(None) };
}

fuzz_target!(|bytes: &[u8]| {
    NODE.with_borrow_mut(|node| node.get_or_insert_with(Node::fresh).one(bytes));
});

struct Node {
    folder: TempDir,
    running: Option<Running>,
    inputs: u32,
    starts: u32,
}

struct Running {
    server: Server,
    embedded: Arc<Embedded>,
    journal: Arc<Journal>,
    indexes: [Arc<JournaledIndex>; 2],
}

impl Node {
    fn fresh() -> Self {
        // In memory, if there is such a place: its syncs cost nothing.
        let place =
            ["/dev/shm", "/tmp"].into_iter().find(|place| std::path::Path::new(place).is_dir()).expect("a place");
        let mut node =
            Self { folder: tempfile::tempdir_in(place).expect("a folder"), running: None, inputs: 0, starts: 0 };
        node.start();
        let mut honest = node.honest();
        honest.mkdir(TOP);
        for number in 0..LENGTHS.len() {
            honest.put(&format!("{FIXED}/{number}"), &content(number));
        }
        node
    }

    fn start(&mut self) {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(self.folder.path()).expect("the folder"));
        let journal = JournalConfig { segment_bytes: 8 << 20, ..JournalConfig::default() };
        let (journal, _) = Journal::open(Arc::clone(&disk), "journal", journal).expect("the log");
        let journal = Arc::new(journal);
        let index = |stream, place: &str| {
            let engine = Box::new(MemoryEngine::new());
            JournaledIndex::open(Arc::clone(&journal), stream, engine, Arc::clone(&disk), place, IndexConfig::default())
                .expect("an index")
                .0
        };
        let names = index(StreamId::NAMESPACE, "namespace/checkpoint");
        let records = index(StreamId::STORE_INDEX, "store/checkpoint");
        let embedded = Arc::new(Embedded::new(Arc::clone(&names), EmbeddedConfig::default()).expect("the committer"));
        embedded.on_batch_done(Arc::new(xrootd::batch_done));
        let kv = Arc::clone(&embedded) as Arc<dyn kv::Kv>;
        let namespace = Namespace::open(kv, Timestamp::from_secs(1_700_000_000), NamespaceConfig::default())
            .expect("the namespace");
        let config = StoreConfig { floor: Some(0), ..StoreConfig::default() };
        let index = Arc::clone(&records) as Arc<dyn store::RecordIndex>;
        let (store, _) = Store::open(disk, "store", Arc::clone(&journal), index, config).expect("the store");
        let mut config = ServerConfig::new("127.0.0.1:0".parse().expect("an address"), BootId(1));
        config.times.frame = Duration::from_millis(300);
        config.times.send = Duration::from_millis(300);
        config.times.login = Duration::from_millis(300);
        config.service.times.grace = Duration::from_millis(300);
        config.service.times.keeper = Duration::from_millis(50);
        let server = Server::start(config, service::Role::Alone { namespace, store }).expect("the server");
        self.running = Some(Running { server, embedded, journal, indexes: [names, records] });
        self.starts += 1;
    }

    fn stop(&mut self) {
        let Some(running) = self.running.take() else { return };
        running.server.stop(Instant::now() + Duration::from_secs(5));
        running.embedded.stop();
        for index in &running.indexes {
            index.close().expect("an index closes");
        }
        running.journal.close().expect("the log closes");
    }

    fn server(&self) -> &Server {
        &self.running.as_ref().expect("it runs").server
    }

    fn honest(&self) -> Honest {
        Honest::connect(self.server())
    }

    fn one(&mut self, bytes: &[u8]) {
        play(self.server().address(), bytes, SESSION);
        let began = Instant::now();
        assert_eq!(self.server().broken(), None);
        let mut honest = self.honest();
        let path = format!("/honest-{}", self.inputs);
        honest.put(&path, &content(1));
        assert!(honest.get(&path) == content(1));
        honest.remove(&path);
        honest.everything_stands();
        let took = began.elapsed();
        assert!(took < PATIENCE, "an honest client waited {took:?}");
        drop(honest);
        self.inputs += 1;
        if self.inputs.is_multiple_of(INPUTS_A_START) {
            let end = Instant::now() + QUIET;
            while self.server().connections() > 0 {
                assert!(Instant::now() < end, "{} connections do not end", self.server().connections());
                std::thread::sleep(Duration::from_millis(5));
            }
            self.stop();
            if self.starts.is_multiple_of(STARTS_A_FOLDER) {
                *self = Self::fresh();
            } else {
                self.start();
                self.honest().everything_stands();
            }
        }
    }
}

fn content(number: usize) -> Vec<u8> {
    let mut state = number as u32 + 1;
    (0..LENGTHS[number])
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect()
}

/// A client that does nothing wrong, and for whom nothing may go wrong.
struct Honest {
    socket: TcpStream,
}

impl Honest {
    fn connect(server: &Server) -> Self {
        let socket = TcpStream::connect(server.address()).expect("a connection");
        socket.set_nodelay(true).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let mut honest = Self { socket };
        honest.socket.write_all(&wire::Handshake.to_bytes()).expect("the handshake");
        honest.take(wire::HANDSHAKE_REPLY_LEN);
        let mut params = [0; 16];
        params[4..8].copy_from_slice(b"good");
        params[14] = 5;
        honest.ask(3007, params, b"");
        honest
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.socket.read_exact(&mut bytes).expect("an answer");
        bytes
    }

    fn ask(&mut self, code: u16, params: [u8; 16], data: &[u8]) -> Vec<u8> {
        let mut frame = vec![0, 7];
        frame.extend_from_slice(&code.to_be_bytes());
        frame.extend_from_slice(&params);
        frame.extend_from_slice(&(data.len() as u32).to_be_bytes());
        frame.extend_from_slice(data);
        self.socket.write_all(&frame).expect("a request");
        let mut whole = Vec::new();
        loop {
            let header = self.take(8);
            let status = u16::from_be_bytes([header[2], header[3]]);
            whole.extend(self.take(u32::from_be_bytes([header[4], header[5], header[6], header[7]]) as usize));
            assert!(
                header[..2] == [0, 7] && [0, 4000].contains(&status),
                "request {code}: {status} {}",
                whole.escape_ascii()
            );
            if status == 0 {
                return whole;
            }
        }
    }

    fn open(&mut self, path: &str, options: u16) -> [u8; 4] {
        let mut params = [0; 16];
        params[..2].copy_from_slice(&0o644u16.to_be_bytes());
        params[2..4].copy_from_slice(&options.to_be_bytes());
        *self.ask(3010, params, path.as_bytes()).first_chunk().expect("a handle")
    }

    fn with(handle: [u8; 4]) -> [u8; 16] {
        let mut params = [0; 16];
        params[..4].copy_from_slice(&handle);
        params
    }

    fn put(&mut self, path: &str, data: &[u8]) {
        let handle = self.open(path, 0x128); // new, for update, with the folders on the way
        self.ask(3019, Self::with(handle), data);
        self.ask(3003, Self::with(handle), b"");
    }

    fn get(&mut self, path: &str) -> Vec<u8> {
        let handle = self.open(path, 0x10);
        let mut params = Self::with(handle);
        params[12..].copy_from_slice(&(1u32 << 20).to_be_bytes());
        let data = self.ask(3013, params, b"");
        self.ask(3003, Self::with(handle), b"");
        data
    }

    fn remove(&mut self, path: &str) {
        self.ask(3014, [0; 16], path.as_bytes());
    }

    fn mkdir(&mut self, path: &str) {
        self.ask(3008, [0; 16], path.as_bytes());
    }

    fn everything_stands(&mut self) {
        for number in 0..LENGTHS.len() {
            assert!(self.get(&format!("{FIXED}/{number}")) == content(number), "file {number} is not what it was");
        }
    }
}
