//! Requests that are sent without waiting for answers: large writes are stored while more comes, and nobody may notice.

#![allow(clippy::unwrap_used, clippy::panic)] // also outside of the tests' own functions

mod world;

use std::collections::HashMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::time::Duration;

use disk::{Disk, DiskOp};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use wire::request::{Bind, Close, PgFlags, Pgwrite, Read, Sync, Target, Truncate, Write};
use wire::response::BindReply;
use wire::{ErrorNumber as E, FileHandle, HANDSHAKE_REPLY_LEN, Handshake, Request, StreamId};
use world::client::{Answer, Client, NEW};
use world::{World, content};

const MIB: usize = 1 << 20;

fn write(me: &mut Client, handle: FileHandle, offset: u64, data: &[u8]) -> StreamId {
    let len = u32::try_from(data.len()).unwrap();
    me.send(&Request::Write(Write { handle, offset, path_id: 0, len }), data)
}

fn pgwrite(me: &mut Client, handle: FileHandle, offset: u64, wire: &[u8]) -> StreamId {
    let wire_len = u32::try_from(wire.len()).unwrap();
    me.send(&Request::Pgwrite(Pgwrite { handle, offset, path_id: 0, flags: PgFlags::NONE, wire_len }), wire)
}

fn close(me: &mut Client, handle: FileHandle) -> StreamId {
    me.send(&Request::Close(Close { handle }), &[])
}

fn answers(me: &mut Client, count: usize) -> HashMap<StreamId, Answer> {
    (0..count).map(|_| me.answer()).collect()
}

#[test]
fn what_is_sent_at_once_is_done_in_its_order() {
    for seed in 0..6 {
        let world = World::new();
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut me = world.connect();
        let handle = me.open("/f", NEW);
        let mut model: Vec<u8> = Vec::new();
        for _ in 0..8 {
            let mut expected = HashMap::new();
            for _ in 0..8 {
                let offset = rng.random_range(0..3 * MIB);
                match rng.random_range(0..10) {
                    kind @ 0..6 => {
                        let len = match kind {
                            0 => rng.random_range(1..20_000),
                            1 => rng.random_range(1..MIB),
                            _ => rng.random_range(MIB..9 * MIB / 2),
                        };
                        let data = content(rng.random(), len);
                        model.resize(model.len().max(offset + len), 0);
                        model[offset..offset + len].copy_from_slice(&data);
                        let stream = if rng.random() {
                            write(&mut me, handle, offset as u64, &data)
                        } else {
                            let mut wire = Vec::new();
                            wire::page::encode(offset as u64, &data, &mut wire).unwrap();
                            pgwrite(&mut me, handle, offset as u64, &wire)
                        };
                        expected.insert(stream, None);
                    }
                    6 => {
                        let stream = me.send(
                            &Request::Truncate(Truncate { len: offset as u64, target: Target::Handle(handle) }),
                            &[],
                        );
                        model.resize(offset, 0);
                        expected.insert(stream, None);
                    }
                    7 => {
                        expected.insert(me.send(&Request::Sync(Sync { handle }), &[]), None);
                    }
                    _ => {
                        let read =
                            Read { handle, offset: offset as u64, len: 8192, path_id: None, read_ahead: Vec::new() };
                        let end = (offset + 8192).min(model.len());
                        let wanted = model.get(offset..end).unwrap_or_default().to_vec();
                        expected.insert(me.send(&Request::Read(read), &[]), Some(wanted));
                    }
                }
            }
            for (stream, answer) in answers(&mut me, expected.len()) {
                match (expected.remove(&stream).unwrap(), answer) {
                    (None, Answer::Ok(_)) => {}
                    (None, Answer::Bad(bad)) => assert_eq!(bad.offsets, [0; 0]),
                    (Some(wanted), Answer::Ok(read)) => assert!(read == wanted, "seed {seed}: a read out of order"),
                    (_, other) => panic!("seed {seed}: {other:?}"),
                }
            }
        }
        me.close(handle).ok();
        assert!(me.get("/f") == model, "seed {seed}");
    }
}

#[test]
fn a_close_waits_for_what_was_sent_before_it() {
    let world = World::new();
    let data = content(1, 9 * MIB);
    let mut me = world.connect();
    let handle = me.open("/f", NEW);
    world.disk.call_next(DiskOp::Write, 2, || std::thread::sleep(Duration::from_millis(300)));
    write(&mut me, handle, 0, &data[..5 * MIB]);
    write(&mut me, handle, 5 * MIB as u64, &data[5 * MIB..]);
    close(&mut me, handle);
    for answer in answers(&mut me, 3).into_values() {
        answer.ok();
    }
    assert!(me.get("/f") == data);
}

#[test]
fn a_page_that_came_damaged_is_missing_though_what_was_sent_before_is_stored_late() {
    // Which of the next writes is the one to the file, nobody knows.
    for nth in 1..=3 {
        damaged_page_behind_a_slow_write(nth);
    }
}

fn damaged_page_behind_a_slow_write(nth: u64) {
    let world = World::new();
    let mut me = world.connect();
    let handle = me.open("/f", NEW);
    let (old, new) = (content(1, MIB), content(2, MIB));
    let mut wire = Vec::new();
    wire::page::encode(0, &new, &mut wire).unwrap();
    wire[4100 * 3 + 100] ^= 1;
    // The earlier bytes of the same place reach the disk when the damaged ones are here already.
    world.disk.call_next(DiskOp::Write, nth, || std::thread::sleep(Duration::from_millis(300)));
    let first = write(&mut me, handle, 0, &old);
    let second = pgwrite(&mut me, handle, 0, &wire);
    let third = close(&mut me, handle);
    let mut answers = answers(&mut me, 3);
    answers.remove(&first).unwrap().ok();
    let Some(Answer::Bad(bad)) = answers.remove(&second) else { panic!() };
    assert_eq!(bad.offsets, [3 * 4096]);
    assert_eq!(answers.remove(&third).unwrap().number(), E::CHECKSUM);
}

#[test]
fn a_part_that_the_disk_refused_is_told_and_missing_until_it_comes_again() {
    let world = World::new();
    let data = content(1, 10 * MIB);
    let mut me = world.connect();
    let handle = me.open("/f", NEW);
    let free = world.disk.space().unwrap().free;
    // The first part of the first request has room, and nothing after it.
    world.disk.set_free(6 << 20);
    let first = write(&mut me, handle, 0, &data[..9 * MIB]);
    let second = write(&mut me, handle, 9 * MIB as u64, &data[9 * MIB..]);
    let read = Read { handle, offset: MIB as u64, len: 4096, path_id: None, read_ahead: Vec::new() };
    let third = me.send(&Request::Read(read), &[]);
    let mut answers = answers(&mut me, 3);
    assert_eq!(answers.remove(&first).unwrap().number(), E::NO_SPACE);
    assert_eq!(answers.remove(&second).unwrap().number(), E::NO_SPACE);
    assert!(answers.remove(&third).unwrap().ok() == data[MIB..MIB + 4096]);
    world.disk.set_free(free);
    let again = write(&mut me, handle, 4 * MIB as u64, &data[4 * MIB..9 * MIB]);
    let fourth = close(&mut me, handle);
    let mut answers = self::answers(&mut me, 2);
    answers.remove(&again).unwrap().ok();
    let (_, refused) = answers.remove(&fourth).unwrap().error();
    assert!(refused.contains("bytes 9437184 to 10485760 were refused"), "{refused}");
}

#[test]
fn after_a_refused_part_the_rest_of_its_request_is_refused_too() {
    let data = content(1, 9 * MIB);
    let world = World::new();
    let mut me = world.connect();
    let handle = me.open("/f", NEW);
    // The head of the file of sums; then for each part a write to the file, and one of its sums.
    world.disk.fail_next_under(DiskOp::Write, "store/objects/", 4, ErrorKind::StorageFull);
    let first = write(&mut me, handle, 0, &data);
    let second = close(&mut me, handle);
    let mut answers = answers(&mut me, 2);
    assert_eq!(answers.remove(&first).unwrap().number(), E::NO_SPACE);
    let (_, why) = answers.remove(&second).unwrap().error();
    assert!(why.contains("bytes 4194304 to 9437184 were refused"), "{why}");
}

#[test]
fn what_was_sent_before_a_lost_connection_is_there_for_who_goes_on() {
    let world = World::new();
    let data = content(1, 4 * MIB);
    let mut me = world.connect();
    let handle = me.open("/f?oss.asize=4194304", NEW);
    me.write(handle, 0, &data[..MIB]).ok();
    world.disk.call_next(DiskOp::Write, 1, || std::thread::sleep(Duration::from_millis(300)));
    write(&mut me, handle, MIB as u64, &data[MIB..]);
    // All of it is at the server, and the client is gone before it is stored.
    std::thread::sleep(Duration::from_millis(100));
    me.cut();
    let mut me = world.connect();
    let handle = me.open("/f", world::client::UPDATE);
    assert_eq!(me.stat_handle(handle).size, 4 << 20);
    me.close(handle).ok();
    assert!(me.get("/f") == data);
}

#[test]
fn what_is_stored_late_of_a_lost_connection_is_under_what_comes_after_it() {
    for nth in 1..=3 {
        let world = World::new();
        let (data, lost) = (content(1, 4 * MIB), content(2, 3 * MIB));
        let mut me = world.connect();
        let handle = me.open("/f?oss.asize=4194304", NEW);
        me.write(handle, 0, &data[..MIB]).ok();
        world.disk.call_next(DiskOp::Write, nth, || std::thread::sleep(Duration::from_millis(300)));
        write(&mut me, handle, MIB as u64, &lost);
        std::thread::sleep(Duration::from_millis(100));
        me.cut();
        let mut me = world.connect();
        let handle = me.open("/f", world::client::UPDATE);
        me.write(handle, MIB as u64, &data[MIB..2 * MIB]).ok();
        me.write(handle, 2 * MIB as u64, &data[2 * MIB..]).ok();
        me.close(handle).ok();
        assert!(me.get("/f") == data);
    }
}

/// Another connection of this session, and its number.
fn bound(world: &World, me: &Client) -> (Client, u8) {
    let mut further = Client::connect(world.server().address());
    further.socket.write_all(&Handshake.to_bytes()).unwrap();
    further.socket.read_exact(&mut [0; HANDSHAKE_REPLY_LEN]).unwrap();
    let reply = further.call(&Request::Bind(Bind { session: me.session })).ok();
    (further, BindReply::decode(&reply).unwrap().path_id)
}

/// The head of a write whose data comes on another stream.
fn write_on(me: &mut Client, handle: FileHandle, offset: usize, len: usize, path_id: u8) -> StreamId {
    let (offset, len) = (offset as u64, u32::try_from(len).unwrap());
    me.send(&Request::Write(Write { handle, offset, path_id, len }), &[])
}

#[test]
fn data_to_be_written_comes_on_the_stream_that_was_named() {
    let world = World::new();
    let mut me = world.connect();
    let handle = me.open("/f", NEW);
    let data = content(1, 12 * MIB);
    let mut streams: Vec<_> = (0..3).map(|_| bound(&world, &me)).collect();
    // Several at once; the heads of all come before any data, and the data of the last stream first.
    let lens = [100, MIB, 5 * MIB, 70_000, 3 * MIB + 1];
    let mut heads = Vec::new();
    let mut at = 0;
    for (number, len) in lens.into_iter().enumerate() {
        let which = number % streams.len();
        heads.push((which, write_on(&mut me, handle, at, len, streams[which].1), at..at + len));
        at += len;
    }
    me.stat("/").unwrap();
    for which in (0..streams.len()).rev() {
        for (_, stream, range) in heads.iter().filter(|(on, ..)| *on == which) {
            let further = &mut streams[which].0;
            further.raw(&data[range.clone()]);
            let (answered, answer) = further.answer();
            assert_eq!(answered, *stream);
            answer.ok();
        }
    }
    // Pages, as they would come on the first.
    let page = &data[at..at + 1000];
    let wire = [&types::Crc32c::of(page).0.to_be_bytes()[..], page].concat();
    let (offset, wire_len) = (at as u64, u32::try_from(wire.len()).unwrap());
    let path_id = streams[0].1;
    let request = Pgwrite { handle, offset, path_id, flags: PgFlags::NONE, wire_len };
    let stream = me.send(&Request::Pgwrite(request), &[]);
    streams[0].0.raw(&wire);
    assert_eq!(streams[0].0.answer().0, stream);
    me.sync(handle).ok();
    me.close(handle).ok();
    assert!(me.get("/f") == data[..at + 1000]);
}

#[test]
fn what_is_refused_of_a_stream_is_read_away_there() {
    let world = World::new();
    let mut me = world.connect();
    let handle = me.open("/f", NEW);
    let (mut further, path_id) = bound(&world, &me);
    // No such stream: nobody knows where the data is, but it is not here.
    write_on(&mut me, handle, 0, 5000, path_id + 1);
    assert_eq!(me.answer().1.number(), E::ARG_INVALID);
    let nothing = FileHandle([7; 4]);
    for len in [10, 3 * MIB] {
        write_on(&mut me, nothing, 0, len, path_id);
        further.raw(&content(2, len));
        assert_eq!(further.answer().1.number(), E::FILE_NOT_OPEN);
    }
    write_on(&mut me, handle, 0, 5, path_id);
    further.raw(b"hello");
    further.answer().1.ok();
    me.close(handle).ok();
    assert!(me.get("/f") == b"hello");
}

#[test]
fn data_that_is_late_on_a_stream_changes_nothing_of_a_session_that_has_ended() {
    let world = World::new();
    let data = content(1, 3 * MIB);
    let mut me = world.connect();
    let handle = me.open("/f?oss.asize=3145728", NEW);
    let (mut further, path_id) = bound(&world, &me);
    write_on(&mut me, handle, 0, 3 * MIB, path_id);
    further.raw(&content(2, 3 * MIB)[..2 * MIB]);
    me.cut();
    let mut me = world.connect();
    let handle = me.open("/f", world::client::UPDATE);
    me.write(handle, 0, &data).ok();
    further.raw(&content(2, 3 * MIB)[2 * MIB..]);
    let _ = further.frame();
    me.close(handle).ok();
    assert!(me.get("/f") == data);
}
