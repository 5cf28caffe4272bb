//! Hostile peers with a valid certificate, strangers, and deliberately slow peers.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rand::{RngCore as _, SeedableRng as _};

use super::world::*;
use crate::*;

fn world() -> (Cluster, Node, LocalNode) {
    let cluster = Cluster::new(1);
    let (node, us) = (cluster.node(1, Roles::MANAGER), cluster.us(66, Roles::DISK));
    (cluster, node, us)
}

fn header(kind: Kind) -> FrameHeader {
    FrameHeader { kind, request: 0, message_len: 0, bulk_len: 0, answer_bulk_max: 0 }
}

fn request(number: u64, message: &[u8]) -> Vec<u8> {
    let message_len = u32::try_from(message.len()).unwrap();
    let header = FrameHeader { request: number, message_len, ..header(Kind::Request) };
    [&header.to_bytes()[..], message].concat()
}

/// The node's goodbye to a peer that sends `bytes` after a proper hello.
fn said_to(node: &Node, us: &LocalNode, bytes: &[u8]) -> String {
    let mut rogue = Rogue::greet(us, node);
    rogue.send(bytes);
    rogue.last_words()
}

#[test]
fn invalid_frames_end_only_their_connection_with_a_reason() {
    let (cluster, node, us) = world();
    let good = Link::up(&cluster.us(2, Roles::DISK), &node);
    let with_sum = |mut bytes: [u8; HEADER_BYTES], at: usize, to: &[u8]| {
        bytes[at..at + to.len()].copy_from_slice(to);
        let sum = types::Crc32c::of(&bytes[..28]).0;
        bytes[28..].copy_from_slice(&sum.to_le_bytes());
        bytes.to_vec()
    };
    let alive = header(Kind::Alive).to_bytes();
    let mut wrong_sum = alive;
    wrong_sum[31] ^= 0x80;
    for (bytes, reason) in [
        (vec![0x5a; 64], "no frame begins with"),
        (b"GET / HTTP/1.1\r\nHost: weir\r\nAccept: */*\r\n\r\n".to_vec(), "no frame begins with"),
        (wrong_sum.to_vec(), "CRC32C"),
        (with_sum(alive, 4, &[9]), "no kind 9"),
        (with_sum(alive, 5, &[1]), "flags"),
        (with_sum(alive, 8, &[1]), "has a number"),
        (with_sum(alive, 16, &[1]), "a message of 1 bytes"),
        (with_sum(request(1, b"").try_into().unwrap(), 16, &u32::MAX.to_le_bytes()), "a message of 4294967295 bytes"),
        (
            with_sum(request(1, b"").try_into().unwrap(), 20, &(BULK_BYTES_MAX + 1).to_le_bytes()),
            "a bulk of 16777217 bytes",
        ),
        (request(0, b"x"), "has no number"),
        (
            FrameHeader { request: 5, ..header(Kind::Answer) }.to_bytes().to_vec(),
            "answered request 5, which is not waiting",
        ),
        (
            FrameHeader { request: 5, ..header(Kind::Unanswered) }.to_bytes().to_vec(),
            "answered request 5, which is not waiting",
        ),
        ([request(2, b"later"), request(2, b"later")].concat(), "sent request 2 after 2"),
        ([request(2, b"later"), request(1, b"later")].concat(), "sent request 1 after 2"),
    ] {
        let said = said_to(&node, &us, &bytes);
        assert!(said.contains(reason), "{said:?} instead of {reason:?}");
        node.seen().wait_for(reason);
    }
    assert!(good.ask("still there").is_ok());
}

#[test]
fn random_bytes_do_no_harm() {
    let (cluster, node, us) = world();
    let mut random = rand::rngs::StdRng::seed_from_u64(1);
    for round in 0..20 {
        let mut bytes = vec![0; 40 + round * 50];
        random.fill_bytes(&mut bytes);
        // Half of them after a valid frame.
        if round % 2 == 0 {
            bytes.splice(0..0, request(1, b"echo"));
        }
        assert!(said_to(&node, &us, &bytes).contains("no frame begins with"));
    }
    assert!(Link::up(&cluster.us(2, Roles::DISK), &node).ask("still there").is_ok());
}

#[test]
fn frames_can_arrive_in_any_parts() {
    let (_cluster, node, us) = world();
    let mut rogue = Rogue::greet(&us, &node);
    let stream: Vec<u8> = (1..=3).flat_map(|number| request(number, b"echo")).collect();
    for byte in &stream {
        rogue.send(&[*byte]);
    }
    let mut answers = Vec::new();
    while answers.len() < 3 {
        let mut bytes = [0; HEADER_BYTES];
        assert!(rogue.halves.reading.fill(&mut bytes, soon()).unwrap());
        let header = FrameHeader::from_bytes(&bytes).unwrap();
        if header.kind == Kind::Answer {
            assert!(rogue.halves.reading.fill(&mut [0; 4], soon()).unwrap());
            answers.push(header.request);
        }
    }
    assert_eq!(answers, [1, 2, 3]);
}

#[test]
fn a_peer_that_exceeds_its_grant_is_cut() {
    let (_cluster, node, us) = world();
    let many: Vec<u8> = (1..=5).flat_map(|number| request(number, b"later")).collect();
    let said = said_to(&node, &us, &many);
    assert!(said.contains("sent 5 requests") && said.contains("it was granted 4"), "{said}");
    let greedy = |number| FrameHeader {
        request: number,
        answer_bulk_max: BULK_BYTES_MAX,
        message_len: 5,
        ..header(Kind::Request)
    };
    let much: Vec<u8> = (1..=3).flat_map(|number| [&greedy(number).to_bytes()[..], b"later"].concat()).collect();
    let said = said_to(&node, &us, &much);
    assert!(said.contains("sent 3 requests of 50331663 bytes"), "{said}");
}

#[test]
fn an_answer_with_too_much_bulk_is_refused() {
    let cluster = Cluster::new(1);
    // Here the rogue answers.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let liar = cluster.us(1, Roles::MANAGER);
    let us = cluster.us(2, Roles::DISK);
    let (our_name, their_name) = (us.credentials.name(), liar.credentials.name());
    let thread = std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        let config = std::sync::Arc::clone(&liar.credentials.current().server);
        let (mut halves, _) = crate::channel::accept(socket, config, soon(), SOON).unwrap();
        let ours = Hello {
            versions: Versions::SPOKEN,
            name: their_name,
            requests_max: 9,
            bytes_max: 1 << 30,
            software: "liar".into(),
        };
        crate::hello::exchange(&mut halves, &ours, &our_name, Expect::default(), soon(), &|_, _| Ok(())).unwrap();
        let mut asked = [0; HEADER_BYTES];
        halves.reading.fill(&mut asked, soon()).unwrap();
        let number = FrameHeader::from_bytes(&asked).unwrap().request;
        let answer = FrameHeader { request: number, bulk_len: 101, ..header(Kind::Answer) };
        halves.writing.send(&[&answer.to_bytes(), &[0; 101]]).unwrap();
        Rogue { halves }.last_words_after_request()
    });
    let ready = connect::<Vec<u8>>(&us, address, Expect::default()).unwrap();
    let pending = ready.peer().request(call("ask").expecting(100)).unwrap();
    let answers = Answers::default();
    let end = ready.run(&answers);
    assert!(end.to_string().contains("with 101 bytes of bulk; 100 were allowed"), "{end}");
    let Err(CallError::Ended(error)) = pending.wait(SOON) else { panic!() };
    assert!(error.to_string().contains("100 were allowed"), "{error}");
    assert!(thread.join().unwrap().contains("100 were allowed"));
}

#[test]
fn an_unfinished_frame_ends_the_connection() {
    let (_cluster, node, us) = world();
    let whole = request(1, b"a message of some length");
    for cut in [1, HEADER_BYTES - 1, HEADER_BYTES, whole.len() - 1] {
        let mut rogue = Rogue::greet(&us, &node);
        let began = Instant::now();
        rogue.send(&whole[..cut]);
        let told = rogue.end_of_stream();
        assert!(told.elapsed() < SOON && began.elapsed() >= quick().frame_time, "{cut}: {:?}", began.elapsed());
    }
    node.seen().wait_for("the rest of a frame took longer than 1s");
    // Sending byte by byte does not help: the limit is for the whole frame.
    let mut rogue = Rogue::greet(&us, &node);
    let drip = |byte: &u8| {
        std::thread::sleep(Duration::from_millis(50));
        rogue.halves.writing.send(&[&[*byte]])
    };
    assert!(whole.iter().map(drip).any(|sent| sent.is_err()), "{} bytes took almost 3 s", whole.len());
    // The bulk has more time, but also a limit.
    let mut rogue = Rogue::greet(&us, &node);
    let long = FrameHeader { request: 1, bulk_len: 1000, ..header(Kind::Request) };
    rogue.send(&[&long.to_bytes()[..], &[0; 999]].concat());
    rogue.end_of_stream();
    node.seen().wait_for("the bulk of a frame took longer than");
}

#[test]
fn a_silent_peer_is_cut() {
    let (_cluster, node, us) = world();
    let mut rogue = Rogue::greet(&us, &node);
    let began = Instant::now();
    rogue.end_of_stream();
    assert!(began.elapsed() >= quick().silence_max, "{:?}", began.elapsed());
    node.seen().wait_for("nothing came for 2.5s");
}

#[test]
fn a_peer_that_reads_nothing_is_cut() {
    let (_cluster, node, us) = world();
    let mut rogue = Rogue::greet(&us, &node);
    // Four answers of 8 MiB, which the rogue does not read while it sends signs of life.
    let ask = |number| {
        let ask = FrameHeader { request: number, message_len: 12, answer_bulk_max: 9 << 20, ..header(Kind::Request) };
        [&ask.to_bytes()[..], b"bulk 8388608"].concat()
    };
    rogue.send(&(1..=4).flat_map(ask).collect::<Vec<_>>());
    let until = Instant::now() + SOON;
    while rogue.halves.writing.send(&[&header(Kind::Alive).to_bytes()]).is_ok() {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(50));
    }
    node.seen().wait_for("taking what is sent took longer than 2s");
}

#[test]
fn strangers_get_no_further_than_tls() {
    let (cluster, mut node, _) = world();
    node.restart_with(Settings { connect_time: Duration::from_millis(500), ..quick() });
    let mut bytes = vec![0; 5000];
    rand::rngs::StdRng::seed_from_u64(2).fill_bytes(&mut bytes);
    for sent in [&b"GET / HTTP/1.1\r\n\r\n"[..], &bytes, b"", b"\x16\x03\x01"] {
        let mut stranger = TcpStream::connect(node.address()).unwrap();
        stranger.set_read_timeout(Some(SOON)).unwrap();
        stranger.write_all(sent).unwrap();
        let mut answer = Vec::new();
        // The end of the stream, or a reset, perhaps after an alert.
        let _ = stranger.read_to_end(&mut answer);
        assert!(answer.len() < 100, "{} bytes", answer.len());
    }
    // One with TLS but without a certificate.
    let joining = crate::credentials::joining(cluster.authority.fingerprint(), b"weir-node").unwrap();
    let socket = TcpStream::connect(node.address()).unwrap();
    let (mut halves, _) = crate::channel::connect(socket, joining, soon(), SOON).unwrap();
    assert!(!matches!(halves.reading.fill(&mut [0; 1], soon()), Ok(true)));
    assert!(node.seen().lines().is_empty());
    assert!(Link::up(&cluster.us(2, Roles::DISK), &node).ask("hello").is_ok());
}
