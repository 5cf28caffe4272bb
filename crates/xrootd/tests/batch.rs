//! Batches: many small requests in one frame, each with its own result.

#![allow(clippy::unwrap_used, clippy::panic)] // a test may fail this way

use std::io::ErrorKind;
use std::time::Duration;

use crate::world::client::{Answer, Client, NEW};
use crate::world::{World, content};
use disk::DiskOp;
use types::Crc32c;
use wire::batch::{self, List, Op};
use wire::request::{Batch, MkdirOptions, QueryKind};
use wire::response::StatReply;
use wire::{ErrorNumber as E, Request, RequestHeader, RequestKind, Response, StreamId};

/// An entry of a batch.
struct Wish<'a>(Op, &'a str, &'a [u8]);

fn create<'a>(path: &'a str, data: &'a [u8]) -> Wish<'a> {
    Wish(Op::Create { replace: false, mode: 0o640, crc32c: Crc32c::of(data).0 }, path, data)
}

fn replace<'a>(path: &'a str, data: &'a [u8]) -> Wish<'a> {
    Wish(Op::Create { replace: true, mode: 0o640, crc32c: Crc32c::of(data).0 }, path, data)
}

fn frame(wishes: &[Wish<'_>]) -> (Request, Vec<u8>) {
    let mut list = List::default();
    for Wish(op, path, data) in wishes {
        list.push(*op, path.as_bytes(), data.len()).unwrap();
    }
    let data: Vec<u8> = wishes.iter().flat_map(|wish| wish.2.iter().copied()).collect();
    (Request::Batch(list.request()), [list.bytes(), &data].concat())
}

fn ask(client: &mut Client, wishes: &[Wish<'_>]) -> Vec<Response> {
    let (request, behind) = frame(wishes);
    let body = client.call_with(&request, &behind).ok();
    batch::answers(&body, wishes.len()).unwrap()
}

fn request_error(answer: &Response) -> (E, String) {
    match answer {
        Response::Error { number, text } => (*number, String::from_utf8_lossy(text).into_owned()),
        other => panic!("not refused: {other:?}"),
    }
}

fn limits(client: &mut Client) -> String {
    let body = client.query(QueryKind::Config, batch::CONFIG_KEY).ok();
    String::from_utf8(body).unwrap().trim_end_matches(['\n', '\0']).to_owned()
}

#[test]
fn files_are_created_with_their_data_directories_and_times() {
    let world = World::new();
    let mut me = world.connect();
    assert!(batch::Limits::parse(&limits(&mut me)).is_some(), "a server that takes batches says so");
    let (small, large) = (content(1, 4096), content(2, 200_000));
    let answers = ask(
        &mut me,
        &[
            create("/a/b/small?weir.mtime=1500000000000000000", &small),
            create("/a/empty", b""),
            create("/a/large", &large),
        ],
    );
    assert_eq!(answers, vec![Response::Ok(Vec::new()); 3]);
    let (stat, empty) = (me.stat("/a/b/small").unwrap(), me.stat("/a/empty").unwrap());
    assert_eq!((stat.size, stat.mtime, stat.extra.unwrap().mode & 0o777), (4096, 1_500_000_000, 0o640));
    assert_eq!(empty.size, 0);
    assert!(me.get("/a/b/small") == small && me.get("/a/large") == large);
    assert_eq!(me.checksum("/a/b/small").unwrap(), format!("adler32 {:08x}", types::Adler32::of(&small).0));
    assert_eq!(world.server().watch().figures().writers, 0, "nothing is left open");
}

#[test]
fn a_refused_entry_does_not_fail_the_others() {
    let world = World::new();
    let mut me = world.connect();
    me.put("/taken", NEW, b"what was there");
    me.mkdir("/dir", MkdirOptions::NONE).ok();
    let damaged = Wish(Op::Create { replace: false, mode: 0, crc32c: 5 }, "/damaged", b"other bytes");
    let mut wishes = vec![
        create("/one", b"1"),
        create("/taken", b"not this"),
        replace("/dir", b"nor this"),
        damaged,
        create("/../out", b"x"),
        create("/taken/below", b"x"),
        create("/line\nend", b"x"),
        Wish(Op::Unknown(99), "/one", b""),
        Wish(Op::Stat, "/nothing", b""),
        Wish(Op::Stat, "/taken", b""),
        Wish(Op::Remove, "/nothing", b""),
        replace("/two", b"22"),
    ];
    let answers = ask(&mut me, &wishes);
    let expected = [
        None,
        Some(E::EXISTS),
        Some(E::IS_DIRECTORY),
        Some(E::CHECKSUM),
        Some(E::NOT_AUTHORIZED),
        Some(E::FS_ERROR),
        Some(E::ARG_INVALID),
        Some(E::UNSUPPORTED),
        Some(E::NOT_FOUND),
        None,
        Some(E::NOT_FOUND),
        None,
    ];
    for (n, (answer, expected)) in answers.iter().zip(expected).enumerate() {
        match expected {
            None => assert!(matches!(answer, Response::Ok(_)), "{n}: {answer:?}"),
            Some(number) => assert_eq!(request_error(answer).0, number, "{n}: {answer:?}"),
        }
    }
    assert!(request_error(&answers[1]).1.contains("/taken"), "it is said of which");
    let Response::Ok(stat) = &answers[9] else { panic!() };
    assert_eq!(StatReply::decode(stat).unwrap().size, 14);
    assert_eq!(
        (me.get("/one"), me.get("/two"), me.get("/taken")),
        (b"1".into(), b"22".into(), b"what was there".into())
    );
    assert_eq!(me.stat("/damaged").unwrap_err(), E::NOT_FOUND, "what came damaged has left nothing");
    // Entries that replace and remove existing files.
    wishes = vec![replace("/one", b"another"), Wish(Op::Remove, "/two", b""), Wish(Op::Remove, "/dir", b"")];
    assert_eq!(ask(&mut me, &wishes), vec![Response::Ok(Vec::new()); 3]);
    assert_eq!(me.get("/one"), b"another");
    assert_eq!((me.stat("/two").unwrap_err(), me.stat("/dir").unwrap_err()), (E::NOT_FOUND, E::NOT_FOUND));
}

#[test]
fn a_name_that_occurs_twice_is_created_once() {
    let world = World::new();
    let mut me = world.connect();
    let answers = ask(&mut me, &[create("/f", b"one"), create("/f", b"two")]);
    let made: Vec<bool> = answers.iter().map(|answer| matches!(answer, Response::Ok(_))).collect();
    let expected: &[u8] = if made[0] { b"one" } else { b"two" };
    assert_eq!(made.iter().filter(|made| **made).count(), 1, "{answers:?}");
    assert_eq!(me.get("/f"), expected);
}

/// Creates files in a batch, with a power failure right after the answer.
fn survives(world: &mut World) -> bool {
    let contents: Vec<Vec<u8>> = (0..100).map(|n| content(n, 4096)).collect();
    let paths: Vec<String> = (0..100).map(|n| format!("/d/{n}")).collect();
    let mut me = world.connect();
    me.mkdir("/d", MkdirOptions::NONE).ok();
    me.put("/d/0", NEW, b"to be replaced");
    let wishes: Vec<Wish<'_>> = paths.iter().zip(&contents).map(|(path, content)| replace(path, content)).collect();
    assert_eq!(ask(&mut me, &wishes), vec![Response::Ok(Vec::new()); 100]);
    world.crash_and_restart(1);
    let mut me = world.connect();
    paths.iter().zip(&contents).all(|(path, content)| me.stat(path).is_ok() && me.get(path) == *content)
}

#[test]
fn acknowledged_files_survive_a_power_failure_and_a_kill() {
    let quiet = |config: &mut xrootd::ServerConfig| config.service.times.keeper = Duration::from_secs(60);
    assert!(survives(&mut World::with(quiet)));
    let lies = World::with(|config| {
        quiet(config);
        config.service.planted = Some(service::PlantedBug::AcknowledgeBeforeSync);
    });
    let mut lies = lies;
    assert!(!survives(&mut lies), "the test would not notice a loss");

    let mut world = World::new();
    assert_eq!(ask(&mut world.connect(), &[create("/f", b"there")]), [Response::Ok(Vec::new())]);
    world.kill_and_restart();
    assert_eq!(world.connect().get("/f"), b"there");
}

#[test]
fn a_batch_whose_answer_is_lost_can_be_repeated() {
    let mut world = World::new();
    let (request, behind) = frame(&[create("/f", b"once"), create("/g", b"too")]);
    let mut me = world.connect();
    me.send(&request, &behind);
    me.cut();
    world.until("it is done all the same", || world.connect().checksum("/g").is_ok());
    let mut me = world.connect();
    let answers = ask(&mut me, &[create("/f", b"once"), replace("/g", b"too")]);
    assert_eq!((request_error(&answers[0]).0, &answers[1]), (E::EXISTS, &Response::Ok(Vec::new())));
    assert_eq!((me.get("/f"), me.get("/g")), (b"once".into(), b"too".into()));
    // An incomplete batch has no effect.
    let mut me = world.connect();
    let (request, behind) = frame(&[create("/h", b"never")]);
    me.send(&request, &behind[..behind.len() - 1]);
    me.cut();
    assert_eq!(world.connect().stat("/h").unwrap_err(), E::NOT_FOUND);
    assert_eq!(world.stop().writers_left, 0);
}

#[test]
fn hostile_lengths_are_refused_and_the_connection_continues() {
    let world = World::new();
    let mut me = world.connect();
    let (request, behind) = frame(&[create("/f", b"data"), create("/g", b"more")]);
    let Request::Batch(good) = request else { panic!() };
    let mut bytes = Vec::new();
    Request::Batch(good).encode(StreamId([9, 9]), &mut bytes).unwrap();
    // The version, the number of entries, and the length of the list.
    for (at, value) in [(4, 2), (4, 0), (4, 255), (8, 0xff), (11, 0), (11, 1), (11, 3), (12, 0xff), (15, 0), (15, 255)]
    {
        let mut changed = bytes.clone();
        changed[at] = value;
        me.raw(&[&changed[..], &behind].concat());
        let (stream, answer) = me.answer();
        assert_eq!(stream, StreamId([9, 9]));
        let (number, text) = answer.error();
        assert!([E::ARG_INVALID, E::ARG_MISSING, E::ARG_TOO_LONG].contains(&number), "{at}={value}: {text}");
        assert!(at != 4 || text.contains("1 is spoken here"), "{text}");
    }
    // Set each byte of the list, including its lengths, to several values.
    for at in 0..good.list_len as usize {
        for value in [0, 1, 0x7f, 0xff] {
            let mut changed = behind.clone();
            changed[at] = value;
            me.raw(&[&bytes[..], &changed].concat());
            assert!(!matches!(me.answer().1, Answer::Wait(_)), "{at}={value}");
        }
    }
    let over = RequestHeader { stream: StreamId([1, 1]), kind: RequestKind::Batch, params: [0; 16], dlen: 5 << 20 };
    me.raw(&[&over.to_bytes()[..], &vec![0; 5 << 20]].concat());
    assert_eq!(me.answer().1.number(), E::ARG_TOO_LONG);
    assert_eq!(ask(&mut me, &[create("/last", b"alive")]), [Response::Ok(Vec::new())]);
    assert_eq!(me.get("/last"), b"alive");
}

#[test]
fn a_batch_waits_for_the_memory_of_open_writes_and_counts_towards_it() {
    let world = World::with(|config| config.service.limits.writers_memory_max = 16 << 20);
    let mut me = world.connect();
    me.patient = false;
    let Some(told) = batch::Limits::parse(&limits(&mut me)) else { panic!() };
    assert!(told.bytes < 1 << 20, "a batch is a small part of what there is: {told:?}");
    let data = content(3, 250_000);
    let too_much: Vec<Wish<'_>> = (0..8).map(|_| create("/never", &data)).collect();
    let (request, behind) = frame(&too_much);
    let (number, text) = me.call_with(&request, &behind).error();
    assert_eq!(number, E::ARG_TOO_LONG);
    assert!(text.contains(&told.bytes.to_string()), "the limit is said: {text}");
    // Open as many files for writing as this client may.
    let mut open = Vec::new();
    while let Answer::Ok(body) = me.try_open(&format!("/open{}", open.len()), NEW) {
        open.push(wire::response::OpenReply::decode(&body).unwrap().handle);
    }
    let (request, behind) = frame(&[create("/a", &data), create("/b", &data)]);
    assert!(matches!(me.call_with(&request, &behind), Answer::Wait(1)));
    for handle in open {
        me.close(handle).ok();
    }
    assert!(matches!(me.call_with(&request, &behind), Answer::Ok(_)));
    assert!(me.get("/b") == data);
    world.until("its memory is given back", || world.server().watch().figures().writers_memory.now == 0);
    // With very little memory, batches are neither offered nor accepted.
    let tiny = World::with(|config| config.service.limits.writers_memory_max = 4 << 20);
    let mut me = tiny.connect();
    assert_eq!(limits(&mut me), batch::CONFIG_KEY);
    let (request, behind) = frame(&[create("/a", b"x")]);
    assert_eq!(me.call_with(&request, &behind).number(), E::UNSUPPORTED);
    assert_eq!(me.stat("/a").unwrap_err(), E::NOT_FOUND);
}

#[test]
fn on_a_full_disk_new_files_are_refused_and_removals_continue() {
    let mut world = World::new();
    let mut me = world.connect();
    assert_eq!(ask(&mut me, &[create("/old", &content(1, 4096))]), [Response::Ok(Vec::new())]);
    world.disk.set_free(0);
    // Too large for the journal: it has its own file.
    let data = content(2, 200_000);
    world.until("it is noticed", || {
        let answers = ask(&mut me, &[create("/new", &data), Wish(Op::Stat, "/old", b"")]);
        assert!(matches!(answers[1], Response::Ok(_)), "{answers:?}");
        matches!(&answers[0], Response::Error { number: E::NO_SPACE, .. })
    });
    // A file whose write had begun does not look complete.
    assert!(me.checksum("/new").is_err());
    assert_eq!(ask(&mut me, &[Wish(Op::Remove, "/old", b"")]), [Response::Ok(Vec::new())]);
    let _ = world.stop();
}

#[test]
fn a_file_that_cannot_be_written_leaves_no_name() {
    let world = World::new();
    let mut me = world.connect();
    let (large, small) = (content(2, 200_000), content(3, 4096));
    assert_eq!(ask(&mut me, &[create("/there", &small)]), [Response::Ok(Vec::new())]);
    for op in [DiskOp::Write, DiskOp::Create] {
        world.disk.fail_next_under(op, "store/objects/", 1, ErrorKind::StorageFull);
        let answers = ask(&mut me, &[create("/d/new", &large), create("/d/beside", &small)]);
        assert_eq!((request_error(&answers[0]).0, &answers[1]), (E::NO_SPACE, &Response::Ok(Vec::new())), "{op:?}");
        assert_eq!(me.stat("/d/new").unwrap_err(), E::NOT_FOUND, "{op:?}: it was never there");
        world.disk.fail_next_under(op, "store/objects/", 1, ErrorKind::StorageFull);
        assert_eq!(request_error(&ask(&mut me, &[replace("/there", &large)])[0]).0, E::NO_SPACE, "{op:?}");
        assert_eq!((me.get("/d/beside"), me.get("/there")), (small.clone(), small.clone()));
        assert_eq!(world.server().watch().figures().writers, 0, "nothing is left open");
        assert_eq!(ask(&mut me, &[create("/d/new", &large)]), [Response::Ok(Vec::new())], "{op:?}");
        assert_eq!(me.get("/d/new"), large);
        let (new, beside) = (Wish(Op::Remove, "/d/new", b""), Wish(Op::Remove, "/d/beside", b""));
        assert_eq!(ask(&mut me, &[new, beside]), vec![Response::Ok(Vec::new()); 2]);
    }
}

#[test]
fn a_batch_replaces_what_dead_writers_of_the_same_principal_left_and_nothing_else() {
    let world = World::with(|config| config.service.times.grace = Duration::from_secs(600));
    let mut dead = world.connect();
    let handle = dead.open("/dead", NEW);
    dead.write(handle, 0, b"half").ok();
    dead.cut();
    world.until("the writer is detached", || world.server().connections() == 0);
    let mut alive = world.connect();
    let handle = alive.open("/alive", NEW);
    alive.write(handle, 0, b"mine").ok();
    let mut me = world.connect_as("other", 200);
    let answers = ask(&mut me, &[replace("/dead", b"new"), replace("/alive", b"new"), create("/more", b"more")]);
    assert_eq!((&answers[0], &answers[2]), (&Response::Ok(Vec::new()), &Response::Ok(Vec::new())));
    let (number, text) = request_error(&answers[1]);
    assert!(number == E::FILE_LOCKED && text.contains("is being written by tester.100@"), "{text}");
    alive.close(handle).ok();
    assert_eq!(
        [me.get("/dead"), me.get("/alive"), me.get("/more")],
        [b"new".to_vec(), b"mine".to_vec(), b"more".to_vec()]
    );
}

#[test]
fn a_batch_before_the_login_is_refused() {
    let world = World::new();
    let mut me = Client::connect(world.server().address());
    me.raw(&wire::Handshake.to_bytes());
    let mut reply = [0; wire::HANDSHAKE_REPLY_LEN];
    std::io::Read::read_exact(&mut me.socket, &mut reply).unwrap();
    let (request, behind) = frame(&[create("/f", b"x")]);
    assert_eq!(me.call_with(&request, &behind).number(), E::INVALID_REQUEST);
    assert!(matches!(request, Request::Batch(Batch { entries: 1, .. })));
    assert_eq!(world.connect().stat("/f").unwrap_err(), E::NOT_FOUND);
}
