//! Network tests between a client and a server on loopback, and with other callers.

#![allow(clippy::unwrap_used)] // a test may fail this way

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_bench::content::Content;
use weir_bench::network::{
    Direction, Listener, NetworkError, NetworkServer, NetworkSpec, Outcome, Processes, Program, Protocol,
    ServerSettings, Session,
};
use weir_bench::peer::{HelloError, Secret, Token};
use weir_bench::workload::{Site, Workload as _};

const LATE: Duration = Duration::from_secs(3600);

fn token(byte: u8) -> Token {
    Token::new(Secret::new([byte; 32]), weir_bench::run::now_secs(), LATE)
}

/// A network-test server that ends with the test.
struct TestServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    told: Arc<Mutex<Vec<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl TestServer {
    fn start(listen: &str, token: Token) -> Self {
        let settings = ServerSettings { listen: listen.parse().unwrap(), token, program: program() };
        let listener = Listener::bind(settings).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, told) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (stopped, telling) = (Arc::clone(&stop), Arc::clone(&told));
        let thread = std::thread::spawn(move || {
            listener.serve(&stopped, &|text| telling.lock().unwrap().push(text)).unwrap();
        });
        Self { address, stop, told, thread: Some(thread) }
    }

    fn remote(&self, token: Token) -> NetworkServer {
        NetworkServer {
            system: "there".into(),
            address: self.address.to_string(),
            iperf3: String::new(),
            token,
            program: program(),
        }
    }

    /// Waits until the server has reported something with `text` in it.
    fn has_told(&self, text: &str) -> bool {
        let end = Instant::now() + Duration::from_secs(10);
        while !self.told.lock().unwrap().iter().any(|line| line.contains(text)) {
            assert!(Instant::now() < end, "nobody told of {text}: {:?}", self.told.lock().unwrap());
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Not called by these tests, because a test's own program is not `weir`.
fn program() -> Program {
    Program { path: "/nonexistent".into(), arguments: vec![] }
}

fn spec() -> NetworkSpec {
    NetworkSpec {
        protocol: Protocol::Tcp,
        direction: Direction::To,
        flows: 2,
        processes: Processes::One,
        at_once: false,
        seconds: 1,
        block_bytes: 128 << 10,
        rate: None,
    }
}

fn run(server: &NetworkServer, spec: &NetworkSpec) -> Result<Outcome, NetworkError> {
    Session::prepare(server, spec, &Arc::new(Content::new(7)))?.run(|_| true)
}

#[test]
fn all_tcp_bytes_arrive_in_each_direction() {
    let server = TestServer::start("127.0.0.1:0", token(1));
    for (direction, ways) in
        [(Direction::To, &[true][..]), (Direction::From, &[false][..]), (Direction::Both, &[true, false][..])]
    {
        let outcome = run(&server.remote(token(1)), &NetworkSpec { direction, ..spec() }).unwrap();
        assert_eq!(outcome.failures().collect::<Vec<_>>(), Vec::<String>::new());
        assert_eq!(outcome.ways.iter().map(|way| way.to).collect::<Vec<_>>(), ways);
        for flow in outcome.flows() {
            assert!(flow.arrived == flow.sent && flow.bytes > 10 << 20, "{flow:?}");
            assert!((0.9..=1.0).contains(&flow.seconds), "{flow:?}");
            let tcp = flow.tcp.as_ref().unwrap();
            assert!(tcp.sent > 10 && tcp.segment_bytes > 500 && !tcp.congestion.is_empty(), "{tcp:?}");
        }
        // Each server has read the counters of the interface, which on loopback is the same one.
        for counted in [&outcome.client, &outcome.server] {
            assert_eq!(counted.interface, "lo");
            assert!(counted.counts.interfaces["lo"].sent >= outcome.bytes(), "{:?}", counted.counts);
            assert!(counted.cpu_s > 0.0);
        }
    }
    assert!(server.has_told("2 flows of TCP each way, for 1 s"));
}

#[test]
fn flows_keep_their_rate_and_report_progress() {
    let server = TestServer::start("[::1]:0", token(1));
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let spec = NetworkSpec { protocol, rate: Some(1_000_000), block_bytes: 1000, seconds: 2, ..spec() };
        let mut seen = 0;
        let session = Session::prepare(&server.remote(token(1)), &spec, &Arc::new(Content::new(7))).unwrap();
        let outcome = session
            .run(|received| {
                seen = seen.max(received.bytes);
                true
            })
            .unwrap();
        assert!((1.8e6..2.02e6).contains(&outcome.rate()), "{outcome:?}");
        let spread = outcome.spread().unwrap();
        assert!(spread.min > 0.8e6 && spread.max < 1.01e6, "{spread:?}");
        assert!((1_000_000..=4_000_000).contains(&seen), "{seen}");
    }
}

#[test]
fn datagrams_are_counted_on_both_sides() {
    let server = TestServer::start("127.0.0.1:0", Token::open());
    let spec = NetworkSpec {
        protocol: Protocol::Udp,
        direction: Direction::Both,
        rate: Some(2_000_000),
        block_bytes: 1400,
        ..spec()
    };
    let outcome = run(&server.remote(Token::open()), &spec).unwrap();
    assert_eq!(outcome.failures().count(), 0, "{outcome:?}");
    assert_eq!(outcome.flows().count(), 4);
    for flow in outcome.flows() {
        let datagrams = flow.datagrams.unwrap();
        assert!(datagrams.sent > 1000 && datagrams.duplicates == 0 && datagrams.reordered == 0, "{datagrams:?}");
        // Loopback loses nothing at this rate, unless this machine is very busy just now.
        assert!(datagrams.lost() * 10 < datagrams.sent, "{datagrams:?}");
        assert_eq!(flow.arrived, datagrams.received * 1400);
    }
}

#[test]
fn a_wrong_token_is_reported_on_both_sides() {
    let server = TestServer::start("127.0.0.1:0", token(1));
    let refused = run(&server.remote(token(2)), &spec()).unwrap_err();
    assert!(matches!(refused, NetworkError::Hello(HelloError::Refused { .. })), "{refused}");
    assert!(server.has_told("has another token"));
    let refused = server.remote(Token::open()).greet().unwrap_err().to_string();
    assert!(refused.contains("has a token, and this side has none"), "{refused}");
    server.remote(token(1)).greet().unwrap();
}

#[test]
fn without_a_token_a_server_listens_on_loopback_only() {
    let settings = ServerSettings { listen: "0.0.0.0:0".parse().unwrap(), token: Token::open(), program: program() };
    let refused = Listener::bind(settings).unwrap_err().to_string();
    assert!(refused.contains("weir bench token"), "{refused}");
}

#[test]
fn an_invalid_plan_is_refused_by_client_and_server() {
    let server = TestServer::start("127.0.0.1:0", token(1));
    let many = NetworkSpec { flows: 100_000, ..spec() };
    assert!(matches!(run(&server.remote(token(1)), &many), Err(NetworkError::Spec(_))));
    // A client that does not check the plan itself.
    let mut stream = TcpStream::connect(server.address).unwrap();
    let hello = weir_bench::peer::Hello {
        role: weir_bench::peer::Role::NetworkClient,
        wanted: &[weir_bench::peer::Role::NetworkServer],
        token: &token(1),
    };
    weir_bench::peer::connect(&mut stream, "far", hello, &weir_bench::peer::Fresh::draw().unwrap()).unwrap();
    let mut server = weir_bench::peer::Peer { stream, name: "far".into() };
    server.send(&serde_json::json!({ "plan": many })).unwrap();
    let answer: serde_json::Value = server.receive().unwrap();
    assert!(answer["refused"].as_str().unwrap().contains("flows is 100000"), "{answer}");
}

#[test]
fn strangers_and_silent_callers_do_not_disturb_others() {
    let server = TestServer::start("127.0.0.1:0", token(1));
    let mut web = TcpStream::connect(server.address).unwrap();
    web.write_all(&[b'G'; 100]).unwrap();
    let silent: Vec<_> = (0..50).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    assert!(server.has_told("is not a `weir bench`"));
    assert_eq!(run(&server.remote(token(1)), &spec()).unwrap().failures().count(), 0);
    drop(silent);
    let _ = web.read(&mut [0]);
}

#[test]
fn a_missing_server_and_another_program_are_distinguished() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let at = |address: String| NetworkServer {
        system: "s".into(),
        address,
        iperf3: String::new(),
        token: token(1),
        program: program(),
    };
    let refused = at(free.to_string()).greet().unwrap_err().to_string();
    assert!(refused.contains("is `weir bench flows` running there"), "{refused}");
    assert!(matches!(at("no port".into()).greet(), Err(NetworkError::Address { .. })));
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = other.accept().unwrap();
        stream.write_all(b"220 mail.example.org ESMTP; say HELO to us please.").unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let refused = at(address).greet().unwrap_err().to_string();
    assert!(refused.contains("is not a `weir bench`"), "{refused}");
    server.join().unwrap();
}

#[test]
fn a_stop_ends_both_sides_soon() {
    let server = TestServer::start("127.0.0.1:0", token(1));
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let spec = NetworkSpec { protocol, direction: Direction::Both, seconds: 3600, block_bytes: 1400, ..spec() };
        let session = Session::prepare(&server.remote(token(1)), &spec, &Arc::new(Content::new(7))).unwrap();
        let begun = Instant::now();
        let stopped = session.run(|_| begun.elapsed() < Duration::from_millis(300));
        assert!(matches!(stopped, Err(NetworkError::Stopped)), "{stopped:?}");
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        assert!(server.has_told("closed the connection"));
        server.told.lock().unwrap().clear();
    }
}

#[test]
fn a_process_that_cannot_be_started_is_reported() {
    let server = TestServer::start("127.0.0.1:0", token(1));
    let refused = run(&server.remote(token(1)), &NetworkSpec { processes: Processes::Each, ..spec() }).unwrap_err();
    assert!(refused.to_string().contains("cannot start /nonexistent"), "{refused}");
}

#[test]
fn several_systems_at_once_give_one_figure_with_its_parts() {
    let (a, b) = (TestServer::start("127.0.0.1:0", token(1)), TestServer::start("127.0.0.1:0", token(2)));
    let peers = vec![
        NetworkServer { system: "a".into(), ..a.remote(token(1)) },
        NetworkServer { system: "b".into(), ..b.remote(token(2)) },
    ];
    let site = Site { peers, ..Site::alone(Arc::new(Content::new(1))) };
    let spec = NetworkSpec { at_once: true, rate: Some(5_000_000), ..spec() };
    let worker_pool = spec.worker_pool(&site, 0..spec.parts()).unwrap();
    let measured = weir_bench::measure::measure(worker_pool, None, |_| true);
    let [(_, measured)] = &measured[..] else { panic!("{measured:?}") };
    assert_eq!(measured.tally.network.iter().map(|one| one.system.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(measured.tally.bytes, measured.tally.network.iter().map(Outcome::bytes).sum::<u64>());
    // Two systems, two flows each.
    assert!((17e6..21e6).contains(&measured.byte_rate()), "{}", measured.byte_rate());
    assert!(measured.seconds.iter().any(|reading| reading.bytes > 0) && measured.client_cpu_s > 0.0);
    let nobody = Site { peers: vec![], ..site };
    assert!(spec.worker_pool(&nobody, 0..2).is_err());
}
