//! Slow, stuck or hostile clients harm only themselves.

#![allow(clippy::unwrap_used)] // a test may fail this way

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::world::client::{Answer, Client, NEW, READ, arg};
use crate::world::{World, content};
use wire::request::{Access, MkdirOptions, Open, Read as ReadRequest, Stat, StatOptions, Target};
use wire::{ErrorNumber as E, FileHandle, Request, RequestHeader, RequestKind, StreamId};

fn header(kind: u16, params: [u8; 16], dlen: i32) -> Vec<u8> {
    let kind = RequestKind::from_code(kind);
    RequestHeader { stream: StreamId([9, 9]), kind, params, dlen }.to_bytes().to_vec()
}

/// A well-behaved client that must not notice anything.
fn honest(world: &World) {
    let mut me = world.connect_as("honest", 1);
    let began = Instant::now();
    assert!(me.get("/honest") == content(9, 100_000));
    me.mkdir("/honest-dir", MkdirOptions::MKPATH).ok();
    assert!(began.elapsed() < Duration::from_secs(5));
}

fn world() -> World {
    let world = World::with(|config| {
        config.times.frame = Duration::from_millis(300);
        config.times.login = Duration::from_millis(400);
        config.times.send = Duration::from_millis(600);
        config.limits.connections_max = 40;
        config.service.limits.handles_per_session_max = 10;
        config.limits.requests_in_flight_max = 4;
        config.limits.pending_bytes_max = 16 << 10;
        config.service.limits.transfer_buffers_max = 2;
    });
    world.connect().put("/honest", NEW, &content(9, 100_000));
    world
}

#[test]
fn malformed_frames_are_answered_and_the_connection_continues() {
    let world = world();
    let mut me = world.connect();
    let handle = me.open("/honest", READ);
    let mut h = [0; 16];
    h[..4].copy_from_slice(&handle.0);
    let mut negative = h;
    negative[4..12].copy_from_slice(&(-5i64).to_be_bytes());
    let mut huge = h;
    huge[4..12].copy_from_slice(&i64::MAX.to_be_bytes());
    huge[12..].copy_from_slice(&i32::MAX.to_be_bytes());
    let cases: &[(&str, Vec<u8>, &[E])] = &[
        ("unknown request", header(2999, [0; 16], 0), &[E::INVALID_REQUEST]),
        ("unknown request with payload", [header(3500, [0; 16], 5), b"12345".to_vec()].concat(), &[E::INVALID_REQUEST]),
        ("no path", header(3017, [0; 16], 0), &[E::ARG_MISSING, E::FILE_NOT_OPEN]),
        ("relative path", [header(3017, [0; 16], 3), b"a/b".to_vec()].concat(), &[E::NOT_AUTHORIZED]),
        ("dots", [header(3017, [0; 16], 5), b"/../x".to_vec()].concat(), &[E::NOT_AUTHORIZED]),
        ("long name", [header(3017, [0; 16], 301), vec![b'/'; 1], vec![b'n'; 300]].concat(), &[E::ARG_TOO_LONG]),
        ("NUL in a path", [header(3017, [0; 16], 4), b"/a\0b".to_vec()].concat(), &[E::ARG_INVALID]),
        ("negative offset", header(3013, negative, 0), &[E::ARG_INVALID]),
        ("somebody's handle", header(3013, [7; 16], 0), &[E::FILE_NOT_OPEN, E::ARG_INVALID]),
        ("odd readv", [header(3025, [0; 16], 17), vec![0; 17]].concat(), &[E::ARG_INVALID]),
        ("bind", header(3024, [0; 16], 0), &[E::INVALID_REQUEST]),
        ("fattr", [header(3020, [0; 16], 2), b"/\0".to_vec()].concat(), &[E::ARG_INVALID]),
        ("too long a path", [header(3017, [0; 16], 100_000), vec![b'/'; 100_000]].concat(), &[E::ARG_TOO_LONG]),
        (
            "write past the end of the world",
            [header(3019, huge_write(h), 4), b"data".to_vec()].concat(),
            &[E::ARG_INVALID, E::NOT_AUTHORIZED],
        ),
    ];
    for (what, bytes, expected) in cases {
        me.raw(bytes);
        let (stream, answer) = me.answer();
        assert_eq!(stream, StreamId([9, 9]), "{what}");
        let (number, text) = answer.error();
        assert!(expected.contains(&number), "{what}: {number:?} {text}");
        assert!(text.len() > 5, "{what}: an error without words");
    }
    me.raw(&header(3013, huge, 0));
    match me.answer().1 {
        Answer::Ok(body) => assert!(body.is_empty(), "bytes from nowhere"),
        other => assert_eq!(other.number(), E::ARG_INVALID),
    }
    assert_eq!(me.read(handle, 0, 10).ok(), &content(9, 10)[..]);
    honest(&world);
}

fn huge_write(handle: [u8; 16]) -> [u8; 16] {
    let mut params = handle;
    params[4..12].copy_from_slice(&(i64::MAX - 2).to_be_bytes());
    params
}

#[test]
fn impossible_lengths_end_the_connection_with_a_reason() {
    let world = world();
    for dlen in [-1, i32::MIN, i32::MAX] {
        let mut me = world.connect();
        me.raw(&header(3017, [0; 16], dlen));
        let (_, answer) = me.answer();
        let (number, text) = answer.error();
        assert!([E::ARG_INVALID, E::ARG_TOO_LONG].contains(&number), "{text}");
        assert!(me.frame().is_err(), "the connection ends");
    }
    honest(&world);
}

#[test]
fn requests_before_the_login_are_refused() {
    let world = world();
    let mut me = Client::connect(world.server().address());
    me.socket.write_all(&wire::Handshake.to_bytes()).unwrap();
    let mut reply = [0; wire::HANDSHAKE_REPLY_LEN];
    me.socket.read_exact(&mut reply).unwrap();
    let stat = Stat { options: StatOptions::NONE, target: Target::Path(arg("/honest")) };
    assert_eq!(me.call(&Request::Stat(stat)).number(), E::INVALID_REQUEST);
    let mut silent = TcpStream::connect(world.server().address()).unwrap();
    silent.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0, "who does not log in is cut off");
    let mut other = TcpStream::connect(world.server().address()).unwrap();
    other.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    other.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut rest = Vec::new();
    let _ = other.read_to_end(&mut rest);
    honest(&world);
}

#[test]
fn a_half_sent_frame_is_cut_off_and_an_idle_client_is_not() {
    let world = world();
    let mut idle = world.connect();
    let mut stuck = world.connect();
    stuck.raw(&header(3017, [0; 16], 10)[..20]);
    let mut stuck_data = world.connect();
    let handle = stuck_data.open("/stuck", NEW);
    let mut params = [0; 16];
    params[..4].copy_from_slice(&handle.0);
    stuck_data.raw(&header(3019, params, 1_000_000));
    stuck_data.raw(&[1; 1000]);
    let began = Instant::now();
    assert!(stuck.frame().is_err());
    assert!(stuck_data.frame().is_err());
    assert!(began.elapsed() < Duration::from_secs(5));
    assert!(idle.stat("/honest").is_ok(), "idle is allowed");
    honest(&world);
}

#[test]
fn a_client_that_reads_no_answers_blocks_nobody_and_is_cut_off() {
    let world = world();
    world.connect().put("/big", NEW, &content(1, 24 << 20));
    let mut slow: Vec<Client> = (0..6).map(|_| world.connect()).collect();
    for client in &mut slow {
        let handle = client.open("/big", READ);
        for _ in 0..4 {
            let read = ReadRequest::new(handle, 0, 24 << 20);
            client.send(&Request::Read(read), &[]);
        }
    }
    honest(&world);
    let mut other = world.connect();
    assert!(other.get("/big").len() == 24 << 20, "with no transfer buffer left in the pool");
    world.until("the stuck ones are cut off", || world.server().connections() <= 1);
}

#[test]
fn unread_answers_block_only_their_own_client() {
    let world = world();
    let mut greedy = world.connect();
    greedy.socket.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut bytes = Vec::new();
    for n in 0..60_000u32 {
        let open = Open::plain(Access(0o644), NEW, arg(&format!("/none/{n}/{}", "x".repeat(200))));
        Request::Open(open).encode(StreamId([1, 1]), &mut bytes).unwrap();
    }
    // At some point the server stops reading.
    let _ = greedy.socket.write_all(&bytes);
    honest(&world);
    drop(greedy);
    world.until("the greedy one is gone", || world.server().connections() == 0);
}

#[test]
fn limits_are_reported_and_released_again() {
    let world = world();
    let mut me = world.connect();
    let handles: Vec<FileHandle> = (0..10).map(|_| me.open("/honest", READ)).collect();
    let (number, text) = me.try_open("/honest", READ).error();
    assert_eq!(number, E::NO_MEMORY);
    assert!(text.contains("10"), "{text}");
    assert_eq!(me.try_open("/w", NEW).number(), E::NO_MEMORY);
    me.close(handles[3]).ok();
    let again = me.open("/honest", READ);
    assert_ne!(again, handles[3], "a handle that was closed does not mean a later file");
    // Connections without an open file would be closed for new ones.
    let busy = |mut client: Client| {
        client.open("/honest", READ);
        client
    };
    let mut many: Vec<Client> = (0..19).map(|_| busy(world.connect())).collect();
    let mut refused = TcpStream::connect(world.server().address()).unwrap();
    refused.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut said = Vec::new();
    let _ = refused.read_to_end(&mut said);
    assert!(String::from_utf8_lossy(&said).contains("40 connections"), "{}", said.escape_ascii());
    many.clear();
    world.until("there is room again", || world.server().connections() <= 1);
    honest(&world);
}

#[test]
fn handles_of_other_sessions_are_refused() {
    let world = world();
    let mut owner = world.connect();
    let mut thief = world.connect();
    let handle = owner.open("/honest", READ);
    assert_eq!(thief.read(handle, 0, 10).number(), E::FILE_NOT_OPEN);
    assert_eq!(thief.close(handle).number(), E::FILE_NOT_OPEN);
    assert_eq!(owner.read(handle, 0, 4).ok().len(), 4);
}

#[test]
fn a_damaged_page_and_a_full_disk_are_reported() {
    let world = world();
    let mut me = world.connect();
    me.put("/big", NEW, &content(4, 400_000));
    std::thread::sleep(Duration::from_millis(100));
    let object = find_object(&world);
    assert!(world.disk.rot(&object, 200_000));
    let handle = me.open("/big", READ);
    assert_eq!(me.pgread(handle, 0, 400_000).number(), E::CHECKSUM);
    assert_eq!(me.read(handle, 196_608, 8192).number(), E::CHECKSUM);
    assert!(me.read(handle, 0, 100_000).ok() == content(4, 400_000)[..100_000], "other pages are good");
    world.disk.set_free(0);
    let handle = me.try_open("/full", NEW);
    if let Answer::Ok(body) = handle {
        let handle = wire::response::OpenReply::decode(&body).unwrap().handle;
        let answer = me.write(handle, 0, &content(5, 2 << 20));
        assert_eq!(answer.number(), E::NO_SPACE);
    } else {
        assert_eq!(handle.number(), E::NO_SPACE);
    }
    world.disk.set_free(1 << 40);
    world.until("there is space again", || {
        let path = "/after";
        let _ = me.rm(path);
        matches!(me.try_open(path, NEW), Answer::Ok(_))
    });
}

/// The file of the only large replica.
fn find_object(world: &World) -> String {
    use disk::Disk;
    fn walk(disk: &disk::SimDisk, dir: &str, found: &mut Vec<String>) {
        for entry in disk.list(dir).unwrap_or_default() {
            let path = format!("{dir}/{}", entry.name);
            if entry.is_dir { walk(disk, &path, found) } else { found.push(path) }
        }
    }
    let mut found = Vec::new();
    walk(&world.disk, "store/objects", &mut found);
    let mut objects: Vec<String> = found.into_iter().filter(|path| !path.ends_with(".crc")).collect();
    objects.sort();
    objects.pop().unwrap()
}

/// The bytes that clients have read, according to the server.
fn bytes_out(world: &World) -> u64 {
    let body = world.connect_as("watcher", 2).query(wire::request::QueryKind::Stats, "a").ok();
    let text = String::from_utf8(body).unwrap();
    text.split_once("<out>").unwrap().1.split_once('<').unwrap().0.parse().unwrap()
}

#[test]
fn unread_small_answers_do_not_accumulate() {
    let world = world();
    let before = bytes_out(&world);
    let mut greedy = world.connect();
    let handle = greedy.open("/honest", READ);
    let mut bytes = Vec::new();
    for _ in 0..680 {
        let read = ReadRequest::new(handle, 0, 64 << 10);
        Request::Read(read).encode(StreamId([1, 1]), &mut bytes).unwrap();
    }
    // All requests in one packet, so that the server never waits for input.
    greedy.raw(&bytes);
    world.until("the greedy one is cut off", || world.server().connections() == 0);
    let read = bytes_out(&world) - before;
    assert!(read < 30 << 20, "{read} bytes of answers were made for a client that took none");
}

#[test]
fn a_slow_reader_does_not_count_as_a_stuck_sender() {
    let world = World::with(|config| {
        config.times.frame = Duration::from_millis(300);
        config.times.send = Duration::from_secs(10);
        config.limits.pending_bytes_max = 16 << 10;
    });
    world.connect().put("/f", NEW, &content(9, 64 << 10));
    let mut slow = world.connect();
    let handle = slow.open("/f", READ);
    let mut bytes = Vec::new();
    for _ in 0..600 {
        let read = ReadRequest::new(handle, 0, 64 << 10);
        Request::Read(read).encode(StreamId([1, 1]), &mut bytes).unwrap();
    }
    // Half of the last request is sent. The rest follows when the answers have been read.
    let last = bytes.len() - 10;
    slow.raw(&bytes[..last]);
    std::thread::sleep(Duration::from_millis(900));
    for n in 0..599 {
        assert_eq!(slow.answer().1.ok().len(), 64 << 10, "{n}");
    }
    slow.raw(&bytes[last..]);
    assert_eq!(slow.answer().1.ok().len(), 64 << 10);
}

#[test]
fn unread_long_readv_segments_are_limited_and_further_ones_must_wait() {
    let world = world();
    world.connect().put("/big", NEW, &content(1, 8 << 20));
    let mut me = world.connect();
    let handle = me.open("/big", READ);
    let segment = wire::request::Segment { handle, len: 2_000_000, offset: 0 };
    assert_eq!(me.readv(&[segment; 3]).unwrap().len(), 3);
    let mut slow: Vec<Client> = (0..10).map(|_| world.connect()).collect();
    for client in &mut slow {
        let handle = client.open("/big", READ);
        let segment = wire::request::Segment { handle, len: 2_000_000, offset: 0 };
        client.send(&Request::Readv(wire::request::Readv { path_id: 0, segments: vec![segment; 20] }), &[]);
    }
    // Two buffers of the pool and two others are stuck, so further clients are told to wait.
    std::thread::sleep(Duration::from_millis(300));
    me.patient = false;
    let ask = Request::Readv(wire::request::Readv { path_id: 0, segments: vec![segment] });
    assert!(matches!(me.call(&ask), Answer::Wait(_)));
    world.until("the stuck ones are cut off", || matches!(me.call(&ask), Answer::Ok(_)));
}
