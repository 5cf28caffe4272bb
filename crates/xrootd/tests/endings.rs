//! How open writes end when their clients send unusual requests at unusual moments.

#![allow(clippy::unwrap_used)] // a test may fail this way

use std::time::Duration;

use crate::world::client::{Answer, Client, NEW, READ, REPLACE, UPDATE, arg};
use crate::world::{GRACE, World, content};
use wire::request::{Access, Close, Open, PgFlags, Target, Write as WriteRequest};
use wire::response::OpenReply;
use wire::{ErrorNumber as E, FileHandle, Request, StreamId};

const MIB: usize = 1 << 20;

fn open_request(path: &str, options: wire::request::OpenOptions) -> Request {
    Request::Open(Open::plain(Access(0o644), options, arg(path)))
}

#[test]
fn a_reopen_that_must_wait_does_not_disturb_the_close() {
    // One worker has a queue of closes, so that the reopen arrives between a close and its commit.
    let world = World::with(|config| config.service.limits.workers = 1);
    // On a busy machine all of them may be closed before the reopens.
    let has_met = (0..20).any(|round| reopen_what_is_being_closed(&world, round) > 0);
    assert!(has_met, "each re-open came too late to mean anything");
}

/// Closes eight files and reopens them at once. Returns how often the reopen was told to wait.
fn reopen_what_is_being_closed(world: &World, round: u32) -> usize {
    let name = |n: u8| format!("/{round}-{n}");
    let mut me = world.connect();
    let files: Vec<FileHandle> = (0..8)
        .map(|n| {
            let handle = me.open(&name(n), NEW);
            me.write(handle, 0, &content(n.into(), 6 * MIB)).ok();
            handle
        })
        .collect();
    let mut bytes = Vec::new();
    for (n, &handle) in (0u8..).zip(&files) {
        Request::Close(Close { handle }).encode(StreamId([1, n]), &mut bytes).unwrap();
    }
    for n in 0u8..8 {
        open_request(&name(n), UPDATE).encode(StreamId([2, n]), &mut bytes).unwrap();
    }
    me.raw(&bytes);
    let mut waited = 0;
    let mut again = Vec::new();
    for _ in 0..16 {
        match me.answer() {
            (StreamId([1, n]), answer) => assert!(matches!(answer, Answer::Ok(_)), "close of {n}: {answer:?}"),
            (_, Answer::Wait(_)) => waited += 1,
            (_, answer) => again.push(OpenReply::decode(&answer.ok()).unwrap().handle),
        }
    }
    for handle in again {
        me.close(handle).ok();
    }
    let mut other = world.connect_as("other", 1);
    for n in 0..8 {
        assert!(other.get(&name(n)) == content(n.into(), 6 * MIB));
        other.put(&name(n), REPLACE, b"new");
    }
    waited
}

#[test]
fn a_file_with_a_refused_write_is_not_closed_as_complete() {
    for (len, options) in [(2 * MIB, NEW), (2 * MIB, REPLACE)] {
        let world = World::new();
        let mut me = world.connect();
        me.put("/f", NEW, b"old");
        let path = if options == NEW { "/new" } else { "/f" };
        let handle = me.open(path, options);
        me.write(handle, 0, &content(1, MIB)).ok();
        world.disk.set_free(0);
        std::thread::sleep(Duration::from_millis(150));
        assert_eq!(me.write(handle, MIB as u64, &content(2, len - MIB)).number(), E::NO_SPACE);
        world.disk.set_free(1 << 40);
        std::thread::sleep(Duration::from_millis(150));
        // Another handle of the same writer also knows the refused range.
        let twin = me.open(path, UPDATE);
        let (number, text) = me.close(twin).error();
        assert_eq!(number, E::NO_SPACE, "{text}");
        assert!(text.contains("1048576"), "{text}");
        if options == NEW {
            world.until("it is interrupted", || matches!(me.try_open("/new", READ), Answer::Error(E::IN_PROGRESS, _)));
        } else {
            assert_eq!(me.get("/f"), b"old");
        }
        // If the range is written again in time, the file is complete.
        let handle = me.open("/again", NEW);
        world.disk.set_free(0);
        std::thread::sleep(Duration::from_millis(150));
        assert_eq!(me.write(handle, 0, &content(3, 2 * MIB)).number(), E::NO_SPACE);
        world.disk.set_free(1 << 40);
        world.until("there is space", || matches!(me.write(handle, 0, &content(3, MIB)), Answer::Ok(_)));
        me.write(handle, MIB as u64, &content(4, MIB)).ok();
        me.close(handle).ok();
        assert!(me.get("/again") == [content(3, MIB), content(4, MIB)].concat());
    }
}

#[test]
fn an_out_of_step_pgwrite_ends_the_connection_only_a_few_times() {
    let world = World::new();
    let data = content(2, 200 * 4096);
    let mut wire = Vec::new();
    wire::page::encode(0, &data, &mut wire).unwrap();
    let mut damaged = wire.clone();
    for n in 0..200 {
        damaged[4100 * n] ^= 1;
    }
    let send = |me: &mut Client, handle: FileHandle| {
        let wire_len = u32::try_from(damaged.len()).unwrap();
        let request = wire::request::Pgwrite { handle, offset: 0, path_id: 0, flags: PgFlags::NONE, wire_len };
        me.send(&Request::Pgwrite(request), &damaged);
        me.frame()
    };
    let mut me = world.connect();
    let mut handle = me.open("/f", NEW);
    for round in 0..3 {
        assert!(send(&mut me, handle).is_err(), "round {round}: answered");
        me = world.connect();
        handle = me.open("/f", UPDATE);
    }
    let (_, response, _) = send(&mut me, handle).expect("an end of it");
    assert!(matches!(response, wire::Response::Error { number: E::TOO_MANY_ERRORS, .. }), "{response:?}");
    me.pgwrite(handle, 0, &data);
    me.close(handle).ok();
    assert!(me.get("/f") == data);
}

#[test]
fn the_late_close_of_a_second_handle_does_not_affect_the_next_update() {
    let world = World::new();
    let mut me = world.connect();
    let first = me.open("/f", NEW);
    me.write(first, 0, &[b'a'; 100]).ok();
    let twin = me.open("/f", UPDATE);
    me.close(first).ok();
    let third = me.open("/f", UPDATE);
    me.write(third, 0, &[b'b'; 50]).ok();
    me.close(twin).ok();
    me.write(third, 50, &[b'b'; 50]).ok();
    me.close(third).ok();
    assert_eq!(me.get("/f"), [b'b'; 100]);
}

#[test]
fn after_endsess_the_old_session_has_no_open_files() {
    let world = World::new();
    for n in 0..30 {
        let mut old = world.connect();
        let handle = old.open(&format!("/f{n}"), NEW);
        // The session is in the middle of a long write, so its thread does not notice the end at once.
        let wire_len = 3 << 20;
        let request = WriteRequest { handle, offset: 0, path_id: 0, len: wire_len };
        old.send(&Request::Write(request), &content(1, MIB));
        let mut me = world.connect();
        let mut bytes = Vec::new();
        Request::Endsess(wire::request::Endsess { session: old.session }).encode(StreamId([1, 1]), &mut bytes).unwrap();
        open_request(&format!("/f{n}"), NEW).encode(StreamId([1, 2]), &mut bytes).unwrap();
        me.raw(&bytes);
        let (_, first) = me.answer();
        let (_, second) = me.answer();
        assert!(matches!((&first, &second), (Answer::Ok(_), Answer::Ok(_))), "{n}: {first:?} {second:?}");
    }
}

#[test]
fn with_a_full_worker_queue_every_file_is_closed() {
    let world = World::with(|config| {
        config.service.limits.workers = 1;
        config.service.limits.worker_queue_max = 0;
    });
    let mut me = world.connect();
    let handle = me.open("/f", NEW);
    me.write(handle, 0, b"some").ok();
    me.cut();
    let mut me = world.connect();
    me.patient = false;
    let again = me.open("/f", UPDATE);
    me.write(again, 4, b" more").ok();
    me.close(again).ok();
    me.truncate(Target::Path(arg("/f")), 4).ok();
    let old = me.open("/g", NEW);
    me.write(old, 0, b"old").ok();
    me.cut();
    let mut me = world.connect();
    me.patient = false;
    world.until("the writer is detached", || world.server().connections() == 1);
    let new = me.open("/g", NEW);
    me.write(new, 0, b"new").ok();
    me.close(new).ok();
    assert_eq!((me.get("/f"), me.get("/g")), (b"some".to_vec(), b"new".to_vec()));
}

fn inode(world: &World, path: &str) -> namespace::Inode {
    let path = types::NsPath::parse(path.as_bytes()).unwrap();
    world.namespace().read(|read| namespace::stat(read, &namespace::Actor::admin(), &path)).unwrap()
}

/// Runs `update` on files of several sizes, and waits until each is the same as before.
fn leaves_files_as_they_were(what: &str, update: impl Fn(&mut World, &str)) {
    leaves_files_as_they_were_for("tester", what, update);
}

/// `next` is the user of the client that changes the file afterwards.
fn leaves_files_as_they_were_for(next: &str, what: &str, update: impl Fn(&mut World, &str)) {
    for len in [0, 100, 10_000, 3 * MIB] {
        let mut world = World::new();
        let data = content(4, len);
        world.connect_as("other", 1).put("/f", NEW, &data);
        let before = inode(&world, "/f");
        assert!(before.content().unwrap().sums.is_some());
        update(&mut world, "/f");
        let is_complete = |world: &World| inode(world, "/f").content().unwrap().state == namespace::FileState::Complete;
        world.until(what, || is_complete(&world));
        let after = inode(&world, "/f");
        assert_eq!((after.content(), after.mtime), (before.content(), before.mtime), "{what}, {len} bytes");
        assert!(world.connect().get("/f") == data, "{what}, {len} bytes");
        // The old update does not block the next one, which takes effect.
        let mut me = world.connect_as(next, 100);
        let handle = me.open("/f", UPDATE);
        me.write(handle, 0, b"new").ok();
        me.close(handle).ok();
        let changed = inode(&world, "/f");
        assert_ne!(changed.content().unwrap().sums, before.content().unwrap().sums);
        assert!(changed.mtime > before.mtime && changed.content().unwrap().sums.is_some());
    }
}

#[test]
fn an_update_without_a_write_leaves_the_file_as_it_was() {
    leaves_files_as_they_were("open, close", |world, path| {
        let mut me = world.connect();
        let handle = me.open(path, UPDATE);
        me.close(handle).ok();
    });
    leaves_files_as_they_were("open, sync, read, close", |world, path| {
        let mut me = world.connect();
        let handle = me.open(path, UPDATE);
        me.sync(handle).ok();
        me.read(handle, 0, 50).ok();
        me.write(handle, 0, b"").ok();
        me.close(handle).ok();
    });
    leaves_files_as_they_were("opened again on another connection, closed", |world, path| {
        let mut me = world.connect();
        me.open(path, UPDATE);
        let mut again = world.connect();
        let handle = again.open(path, UPDATE);
        again.close(handle).ok();
    });
    leaves_files_as_they_were("open, connection lost", |world, path| {
        let mut me = world.connect();
        me.open(path, UPDATE);
        me.cut();
    });
}

#[test]
fn an_update_without_a_write_leaves_the_file_as_it_was_even_after_a_kill() {
    leaves_files_as_they_were("open, killed", |world, path| {
        let mut me = world.connect();
        me.open(path, UPDATE);
        world.kill_and_restart();
    });
    leaves_files_as_they_were("open, killed, opened again, closed", |world, path| {
        world.connect().open(path, UPDATE);
        world.kill_and_restart();
        let mut me = world.connect();
        let handle = me.open(path, UPDATE);
        me.close(handle).ok();
    });
    // The client itself might return to changes that the power failure has undone. It is refused.
    leaves_files_as_they_were_for("another", "open, power lost", |world, path| {
        let mut me = world.connect();
        me.open(path, UPDATE);
        me.put("/synced", NEW, b"x");
        world.crash_and_restart(3);
    });
}

#[test]
fn an_update_whose_writes_were_all_refused_leaves_the_file_as_it_was() {
    leaves_files_as_they_were("a write that was refused", |world, path| {
        let mut me = world.connect();
        let handle = me.open(path, UPDATE);
        world.disk.set_free(0);
        std::thread::sleep(Duration::from_millis(150));
        assert_eq!(me.write(handle, 4 << 20, &content(9, MIB)).number(), E::NO_SPACE);
        world.disk.set_free(1 << 40);
        std::thread::sleep(Duration::from_millis(150));
        assert_eq!(me.close(handle).number(), E::NO_SPACE);
    });
}

#[test]
fn an_update_interrupted_after_a_write_does_not_count_as_unchanged() {
    let mut world = World::new();
    let data = content(4, 10_000);
    let mut me = world.connect();
    me.put("/f", NEW, &data);
    let before = inode(&world, "/f");
    for killed in [false, true] {
        let mut me = world.connect();
        let handle = me.open("/f", UPDATE);
        me.write(handle, 0, if killed { b"first" } else { b"other" }).ok();
        if killed {
            world.kill_and_restart();
        }
        me.cut();
        let complete = |world: &World| inode(world, "/f").content().unwrap().state == namespace::FileState::Complete;
        world.until("it is ended", || complete(&world));
        let after = inode(&world, "/f");
        assert_eq!(after.content().unwrap().sums, None);
        assert!(after.content().unwrap().generation > before.content().unwrap().generation);
    }
}

#[test]
fn a_second_close_after_a_failed_close_reports_the_reason() {
    // A running keeper would meet the failed sync first.
    let world = World::with(|config| config.service.times.keeper = Duration::from_secs(600));
    let mut me = world.connect();
    let handle = me.open("/f", NEW);
    me.write(handle, 0, &content(1, 3 * MIB)).ok();
    let twin = me.open("/f", UPDATE);
    // Not a sync of the journal, which may be making spare segments.
    world.disk.fail_next_under(disk::DiskOp::Sync, "store/objects/", 1, std::io::ErrorKind::Other);
    let (number, text) = me.close(handle).error();
    assert_eq!(number, E::IO_ERROR, "{text}");
    assert!(text.contains("/f") && text.contains("marked as interrupted"), "what becomes of it: {text}");
    for again in [handle, twin] {
        let (same_number, same_text) = me.close(again).error();
        assert_eq!((same_number, &same_text), (number, &text));
    }
    let again = me.open("/f", UPDATE);
    let (number, second) = me.close(again).error();
    assert_eq!(number, E::IO_ERROR, "{second}");
    assert!(second.contains("Sync") && second.contains("marked as interrupted"), "{second}");
    // The slot of the handle does not remember its earlier file.
    let handle = me.open("/g", NEW);
    me.close(handle).ok();
    assert_eq!(me.close(handle).number(), E::FILE_NOT_OPEN);
}

#[test]
fn a_second_close_of_an_upload_without_a_name_reports_where_it_is() {
    let world = World::new();
    let mut me = world.connect();
    me.put("/f", NEW, b"old");
    let handle = me.open("/f", REPLACE);
    me.write(handle, 0, b"new").ok();
    let twin = me.open("/f", UPDATE);
    me.rm("/f").ok();
    me.mkdir("/f", wire::request::MkdirOptions::NONE).ok();
    let (number, text) = me.close(handle).error();
    assert!(text.contains("/f") && text.contains("kept as upload"), "{text}");
    for again in [twin, handle] {
        assert_eq!(me.close(again).error(), (number, text.clone()));
    }
    // The same for a file that is known to be incomplete.
    let handle = me.open("/g?oss.asize=10", NEW);
    me.write(handle, 0, b"half").ok();
    let twin = me.open("/g", UPDATE);
    let (number, text) = me.close(handle).error();
    assert!(text.contains("10 bytes were announced"), "{text}");
    assert_eq!(me.close(twin).error(), (number, text));
    world.until("it is marked", || matches!(me.try_open("/g", UPDATE), Answer::Error(E::IN_PROGRESS, _)));
    let (_, text) = me.try_open("/g", UPDATE).error();
    assert!(text.contains("4 bytes were kept") && !text.contains("went away"), "its writer is still here: {text}");
}

#[test]
fn a_client_that_restarts_a_write_fences_all_its_earlier_handles() {
    let world = World::new();
    let mut me = world.connect();
    me.put("/f", NEW, b"old");
    let handles: Vec<_> = (0..3).map(|_| me.open("/f", REPLACE)).collect();
    for handle in &handles {
        me.write(*handle, 0, b"begun").ok();
    }
    let mut again = world.connect();
    let new = again.open("/f?tried=somewhere", REPLACE);
    for handle in handles {
        assert_eq!(me.write(handle, 5, b"more").number(), E::FILE_NOT_OPEN);
        assert_eq!(me.close(handle).number(), E::FILE_NOT_OPEN);
    }
    again.write(new, 0, b"new").ok();
    again.close(new).ok();
    assert_eq!(me.get("/f"), b"new");
}

#[test]
fn a_failed_truncation_leaves_a_usable_file() {
    let world = World::new();
    let mut me = world.connect();
    me.put("/f", NEW, &content(1, 2 * MIB));
    world.disk.set_free(0);
    std::thread::sleep(Duration::from_millis(150));
    let refused = me.truncate(Target::Path(arg("/f")), 8 << 20);
    world.disk.set_free(1 << 40);
    std::thread::sleep(GRACE + Duration::from_millis(300));
    if let Answer::Error(number, text) = refused {
        assert_eq!(number, E::NO_SPACE, "{text}");
        // Truncated or not, the file can be read and is not considered open for writing.
        assert!(me.get("/f")[..2 * MIB] == content(1, 2 * MIB));
    }
    world.connect_as("other", 1).put("/f", REPLACE, b"new");
}

#[test]
fn an_open_during_a_stop_is_put_off_before_anything_is_looked_up_for_it() {
    let world = World::new();
    let mut me = world.connect();
    me.patient = false;
    assert_eq!(me.try_open("not/absolute", READ).number(), E::NOT_AUTHORIZED);
    world.server().service().begin_stop();
    for path in ["not/absolute", "/nothing"] {
        assert!(matches!(me.try_open(path, READ), Answer::Wait(1)), "{path}");
    }
}

/// A node that counts as broken does not sync its open writes when it stops.
#[test]
fn a_node_that_stops_is_not_broken() {
    let world = World::new();
    let server = world.server();
    server.service().begin_stop();
    // Threads end meanwhile.
    for _ in 0..50 {
        assert_eq!(server.service().broken(), None);
        std::thread::sleep(Duration::from_millis(2));
    }
}
