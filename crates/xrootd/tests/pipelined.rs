//! Requests that are sent without waiting for answers. The server stores large writes while it receives more, and no
//! client may notice.

#![allow(clippy::unwrap_used, clippy::panic)] // also outside of the tests' own functions

use std::collections::HashMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::time::Duration;

use crate::world::client::{Answer, Client, NEW};
use crate::world::{self, World, content};
use disk::{Disk, DiskOp};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use wire::request::{Bind, Close, PgFlags, Pgwrite, Read, Sync, Target, Truncate, Write};
use wire::response::BindReply;
use wire::{ErrorNumber as E, FileHandle, HANDSHAKE_REPLY_LEN, Handshake, Request, StreamId};

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
fn pipelined_requests_are_handled_in_order() {
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
                        let read = Read::new(handle, offset as u64, 8192);
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
fn a_close_waits_for_earlier_writes() {
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
fn a_damaged_page_stays_missing_even_if_earlier_data_is_stored_later() {
    // It is unknown which of the next writes goes to the file.
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
    // The earlier data of the same range reaches the disk after the damaged page has arrived.
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
fn a_part_that_the_disk_refused_is_reported_and_missing_until_sent_again() {
    let world = World::new();
    let data = content(1, 10 * MIB);
    let mut me = world.connect();
    let handle = me.open("/f", NEW);
    let free = world.disk.space().unwrap().free;
    // There is room for the first part of the first request only.
    world.disk.set_free(6 << 20);
    let first = write(&mut me, handle, 0, &data[..9 * MIB]);
    let second = write(&mut me, handle, 9 * MIB as u64, &data[9 * MIB..]);
    let read = Read::new(handle, MIB as u64, 4096);
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
fn after_a_refused_part_the_rest_of_the_request_is_refused() {
    let data = content(1, 9 * MIB);
    let world = World::new();
    let mut me = world.connect();
    let handle = me.open("/f", NEW);
    // First the header of the file of sums. Then, for each part, one write to the file and one of its sums.
    world.disk.fail_next_under(DiskOp::Write, "store/objects/", 4, ErrorKind::StorageFull);
    let first = write(&mut me, handle, 0, &data);
    let second = close(&mut me, handle);
    let mut answers = answers(&mut me, 2);
    assert_eq!(answers.remove(&first).unwrap().number(), E::NO_SPACE);
    let (_, why) = answers.remove(&second).unwrap().error();
    assert!(why.contains("bytes 4194304 to 9437184 were refused"), "{why}");
}

#[test]
fn data_sent_before_a_lost_connection_is_stored_for_the_returning_writer() {
    let world = World::new();
    let data = content(1, 4 * MIB);
    let mut me = world.connect();
    let handle = me.open("/f?oss.asize=4194304", NEW);
    me.write(handle, 0, &data[..MIB]).ok();
    world.disk.call_next(DiskOp::Write, 1, || std::thread::sleep(Duration::from_millis(300)));
    write(&mut me, handle, MIB as u64, &data[MIB..]);
    // The server has received everything, and the client disconnects before it is stored.
    std::thread::sleep(Duration::from_millis(100));
    me.cut();
    let mut me = world.connect();
    let handle = me.open("/f", world::client::UPDATE);
    assert_eq!(me.stat_handle(handle).size, 4 << 20);
    me.close(handle).ok();
    assert!(me.get("/f") == data);
}

#[test]
fn late_data_of_a_lost_connection_does_not_overwrite_newer_data() {
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

/// Binds another connection to this session. Returns it with its path id.
fn bound(world: &World, me: &Client) -> (Client, u8) {
    let mut further = Client::connect(world.server().address());
    further.socket.write_all(&Handshake.to_bytes()).unwrap();
    further.socket.read_exact(&mut [0; HANDSHAKE_REPLY_LEN]).unwrap();
    let reply = further.call(&Request::Bind(Bind { session: me.session })).ok();
    (further, BindReply::decode(&reply).unwrap().path_id)
}

/// Sends the header of a write whose data follows on another stream.
fn write_on(me: &mut Client, handle: FileHandle, offset: usize, len: usize, path_id: u8) -> StreamId {
    let (offset, len) = (offset as u64, u32::try_from(len).unwrap());
    me.send(&Request::Write(Write { handle, offset, path_id, len }), &[])
}

#[test]
fn data_of_a_write_comes_on_the_named_stream() {
    let world = World::new();
    let mut me = world.connect();
    let handle = me.open("/f", NEW);
    let data = content(1, 12 * MIB);
    let mut streams: Vec<_> = (0..3).map(|_| bound(&world, &me)).collect();
    // Several writes at once: all headers come before any data, and the data of the last stream comes first.
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
    // Pages, in the same way as on the first connection.
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
fn data_of_a_refused_write_is_discarded_on_its_stream() {
    let world = World::new();
    let mut me = world.connect();
    let handle = me.open("/f", NEW);
    let (mut further, path_id) = bound(&world, &me);
    // There is no such stream, so the data does not follow here.
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
fn late_data_on_a_stream_does_not_change_files_of_an_ended_session() {
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
