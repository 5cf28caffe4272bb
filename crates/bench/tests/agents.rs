//! A coordinator and agents on real sockets: files do not depend on the machine that makes them, and peers that
//! must be refused are.

#![allow(clippy::unwrap_used)] // a test may fail this way

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_bench::agent::{self, AgentEnd, AgentError};
use weir_bench::campaign::Phase;
use weir_bench::content::Content;
use weir_bench::coordinate::message::{AgentMessage, CoordinatorMessage, TrialFolder};
use weir_bench::coordinate::{Coordinator, CoordinatorEvent, Job, Kind, PROGRAM, PeerIntroduction, Setting};
use weir_bench::network::Program;
use weir_bench::peer::{self, Fresh, Hello, Peer, Role, Secret, Token};
use weir_bench::target::{Durability, IoOptions, RelName, TargetDir, Window};
use weir_bench::workload::{Access, Site, SmallPhase, SmallSpec, StreamSpec};

fn token(byte: u8) -> Token {
    Token::new(Secret::new([byte; 32]), weir_bench::run::now_secs(), Duration::from_secs(3600))
}

type Words = Arc<Mutex<Vec<String>>>;

fn coordinator(agents: usize) -> (Coordinator, Words) {
    let words = Words::default();
    let heard = Arc::clone(&words);
    let hear = move |news: &CoordinatorEvent| heard.lock().unwrap().push(format!("{news:?}"));
    let setting = Setting {
        listen: Some(("127.0.0.1:0".to_owned(), token(1))),
        systems: vec![("disk".to_owned(), Vec::new())],
        agents,
        phases: 1,
        watchers: 0,
    };
    let coordinator = Coordinator::start(setting, hear).unwrap();
    assert_eq!(coordinator.view().lock().unwrap().planned, agents, "who looks at once sees how many are planned");
    (coordinator, words)
}

fn setting(coordinator: &Coordinator, name: &str, token: Token) -> agent::Setting {
    agent::Setting {
        join: coordinator.address().unwrap().to_string(),
        token,
        name: name.to_owned(),
        kind: Kind::Agent,
        settings: client::Settings::default(),
        allowed: agent::Allowed::default(),
        program: Program { path: "/nonexistent".into(), arguments: vec![] },
        stop: Arc::default(),
    }
}

fn start(setting: agent::Setting) -> JoinHandle<Result<AgentEnd, AgentError>> {
    std::thread::spawn(move || agent::run(&setting, &mut || {}))
}

/// A peer that is controlled by the test.
fn stranger(coordinator: &Coordinator, program: &str) -> Peer<TcpStream> {
    let mut stream = TcpStream::connect(coordinator.address().unwrap()).unwrap();
    let token = token(1);
    let hello = Hello { role: Role::Agent, wanted: &[Role::Coordinator], token: &token };
    peer::connect(&mut stream, "the coordinator", hello, &Fresh::draw().unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut peer = Peer { stream, name: "the coordinator".to_owned() };
    peer.send(&PeerIntroduction { program: program.to_owned(), name: "stranger".to_owned(), kind: Kind::Agent })
        .unwrap();
    peer
}

fn phases() -> [Phase; 2] {
    let io_options = IoOptions { direct: false, durability: Durability::None, window: Window::Fixed(1) };
    let stream = StreamSpec {
        access: Access::Write,
        streams: 5,
        files: 2,
        file_bytes: 300_000,
        block_bytes: 65_536,
        chunks: 1,
        io_options,
        rate: None,
        write_percent: 50,
        verify: true,
        generation: 0,
        oldest_generation: 0,
        seed: 3,
    };
    let small = SmallSpec {
        phase: SmallPhase::Create,
        clients: 7,
        files: 11,
        file_bytes: 777,
        one_directory: true,
        io_options,
        rate: None,
        batch: false,
        verify: true,
        least_ms: 0,
    };
    [Phase::Stream(stream), Phase::Small(small)]
}

/// All files with their contents.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            let name = path.components().rev().take(2).map(|part| part.as_os_str().to_str().unwrap().to_owned());
            found.insert(name.collect::<Vec<_>>().join("<"), std::fs::read(path).unwrap());
        }
    }
    found
}

fn make(place: &Path, phase: &Phase) -> Site {
    let target = TargetDir::parse(place.to_str().unwrap())
        .unwrap()
        .target(&RelName::new("weir-bench-t").unwrap(), &client::Settings::default());
    let mut session = target.session().unwrap();
    session.make_home().unwrap();
    phase.workload().directories().iter().for_each(|name| session.make_directory(name).unwrap());
    Site::on(target, Arc::new(Content::new(9)))
}

#[test]
fn files_do_not_depend_on_the_machine_that_makes_them() {
    for phase in phases() {
        let alone = tempfile::tempdir().unwrap();
        let site = make(alone.path(), &phase);
        let all = 0..phase.workload().parts();
        let _ = phase.workload().worker_pool(&site, all).unwrap().run(None, |_| true);
        let right = files(alone.path());
        assert!(right.len() == 10 || right.len() == 77);
        for agents in [1, 3] {
            let together = tempfile::tempdir().unwrap();
            make(together.path(), &phase);
            let (coordinator, _) = coordinator(agents);
            let started: Vec<_> =
                (0..agents).map(|number| start(setting(&coordinator, &format!("n{number}"), token(1)))).collect();
            assert!(coordinator.wait(&mut || true));
            coordinator.muster().unwrap();
            let place = together.path().to_str().unwrap().to_owned();
            let home = Some(TrialFolder { places: vec![place], folder: "weir-bench-t".to_owned() });
            // A process that certainly exists: this one.
            let client_processes = vec![std::fs::read_to_string("/proc/self/comm").unwrap().trim_end().to_owned()];
            let job =
                Job { phase: phase.clone(), home, copies: None, peers: vec![], client_processes, seed: 9, limit: None };
            let outcome = coordinator.run(job, &mut |_| true).unwrap();
            assert_eq!((outcome.agents.len(), outcome.missing, outcome.refused), (agents, vec![], None));
            let watched = outcome.agents.iter().flat_map(|agent| &agent.samples).map(|sample| sample.processes.len());
            assert!(watched.clone().count() >= agents && watched.min() >= Some(1));
            let bytes: u64 = right.values().map(|content| content.len() as u64).sum();
            assert_eq!(outcome.roles[0].1.tally.bytes, bytes);
            assert_eq!(outcome.roles[0].1.seconds.last().unwrap().bytes, bytes);
            assert!(files(together.path()) == right, "{agents} agents, {}", phase.workload().title());
            drop(coordinator);
            for agent in started {
                assert_eq!(agent.join().unwrap().unwrap(), AgentEnd::Told("the campaign is over".to_owned()));
            }
        }
    }
}

#[test]
fn another_version_and_another_token_are_refused() {
    let (coordinator, words) = coordinator(2);
    let mut old = stranger(&coordinator, "weir 0.0.1");
    let CoordinatorMessage::Leave { why } = old.receive().unwrap() else { panic!("it was let in") };
    assert!(
        why.contains("its version is weir 0.0.1")
            && why.contains(PROGRAM)
            && why.contains("the same version on all machines")
    );
    let wrong = start(setting(&coordinator, "wrong", token(2))).join().unwrap().unwrap_err();
    assert!(matches!(&wrong, AgentError::Hello(error) if error.to_string().contains("another")), "{wrong}");
    let kind = Kind::Watcher { system: "tape".to_owned(), processes: Vec::new() };
    let lost = agent::Setting { kind, ..setting(&coordinator, "lost", token(1)) };
    let refused = start(lost).join().unwrap().unwrap_err().to_string();
    assert!(refused.contains("no system `tape`") && refused.contains("its systems are disk"), "{refused}");
    std::thread::sleep(Duration::from_millis(300));
    let words = words.lock().unwrap().join("\n");
    assert_eq!(words.matches("Refused").count(), 3, "{words}");
    assert_eq!(coordinator.agents(), 0);
}

#[test]
fn a_peer_that_sends_nonsense_is_dropped() {
    let (coordinator, words) = coordinator(1);
    let mut liar = stranger(&coordinator, PROGRAM);
    assert!(coordinator.wait(&mut || true));
    liar.send(&AgentMessage::Watched { number: None, sample: weir_bench::sampling::Sample::default() }).unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    let why = loop {
        match liar.receive() {
            Ok(CoordinatorMessage::Leave { why }) => break why,
            Ok(_) => assert!(Instant::now() < end),
            Err(error) => panic!("{error}"),
        }
    };
    assert!(why.contains("it is an agent"), "{why}");
    drop(liar);
    // Bytes that are not a message.
    let mut noise = stranger(&coordinator, PROGRAM);
    std::io::Write::write_all(&mut noise.stream, b"\x05\0\0\0{{{{{").unwrap();
    while Instant::now() < end && words.lock().unwrap().iter().filter(|word| word.contains("Lost")).count() < 2 {
        std::thread::sleep(Duration::from_millis(50));
    }
    let words = words.lock().unwrap().join("\n");
    assert!(words.contains("an unexpected message"), "{words}");
    assert_eq!(coordinator.agents(), 0);
}

#[test]
fn an_agent_that_is_stopped_ends_its_work_and_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let [phase, _] = phases();
    let Phase::Stream(spec) = phase else { panic!("streams") };
    let phase = Phase::Stream(StreamSpec { file_bytes: 1 << 30, rate: Some(1 << 20), ..spec });
    make(folder.path(), &phase);
    let (coordinator, _) = coordinator(1);
    let stop = Arc::new(AtomicBool::new(false));
    let agent = start(agent::Setting { stop: Arc::clone(&stop), ..setting(&coordinator, "n", token(1)) });
    assert!(coordinator.wait(&mut || true));
    coordinator.muster().unwrap();
    let place = folder.path().to_str().unwrap().to_owned();
    let home = Some(TrialFolder { places: vec![place], folder: "weir-bench-t".to_owned() });
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let coordinator = &coordinator;
        let run = scope.spawn(move || {
            let job = Job { phase, home, copies: None, peers: vec![], client_processes: vec![], seed: 9, limit: None };
            coordinator.run(job, &mut |_| true).unwrap()
        });
        while files(folder.path()).values().map(Vec::len).sum::<usize>() < 1 << 20 {
            assert!(begun.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(20));
        }
        // The agent is stopped on its machine, as by a signal, and the coordinator loses it.
        stop.store(true, Ordering::Relaxed);
        let outcome = run.join().unwrap();
        assert_eq!((outcome.roles.len(), &outcome.missing[..]), (0, &["n (connection lost)".to_owned()][..]));
    });
    assert_eq!(agent.join().unwrap().unwrap(), AgentEnd::Stopped);
    let size = || files(folder.path()).values().map(Vec::len).sum::<usize>();
    let after = size();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(size(), after);
}
