//! Limited resources: the memory of open writes, and connections.

#![allow(clippy::unwrap_used, clippy::panic)] // a test may fail this way

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::world::World;
use crate::world::client::{Answer, NEW, READ, UPDATE, arg};
use namespace::{Actor, Context, Durability, NsError, OpTag, Operation};
use wire::request::{Access, Mkdir, MkdirOptions};
use wire::{Handshake, Request};

/// The memory of an open write of unknown length.
const WRITER: u64 = 384 << 10;

#[test]
fn an_open_for_writing_waits_for_memory_but_a_returning_writer_does_not() {
    // One machine gets half of the memory.
    let world = World::with(|config| {
        config.service.limits.writers_memory_max = 4 * WRITER;
        config.service.times.grace = Duration::from_secs(60);
    });
    let mut me = world.connect();
    me.patient = false;
    let first = me.open("/a", NEW);
    let second = me.open("/b", NEW);
    assert!(matches!(me.try_open("/c", NEW), Answer::Wait(_)), "there is room for two");
    me.write(first, 0, b"begun").ok();
    me.cut();
    let mut me = world.connect();
    me.patient = false;
    let first = me.open("/a", UPDATE);
    me.write(first, 5, b" and gone on").ok();
    assert!(matches!(me.try_open("/c", NEW), Answer::Wait(_)), "the lost writer of /b still has its room");
    me.close(first).ok();
    let _ = second;
    world.until("room for a third", || matches!(me.try_open("/c", NEW), Answer::Ok(_)));
    assert_eq!(me.get("/a"), b"begun and gone on");
}

#[test]
fn writers_of_the_last_run_count_once_until_they_end() {
    let mut world = World::with(|config| {
        config.service.limits.writers_memory_max = 4 * WRITER;
        config.service.times.grace = Duration::from_secs(3);
    });
    let mut me = world.connect();
    let first = me.open("/a", NEW);
    me.write(first, 0, b"begun").ok();
    me.open("/b", NEW);
    world.kill_and_restart();
    let mut other = world.connect_as("other", 7);
    other.patient = false;
    assert!(matches!(other.try_open("/c", NEW), Answer::Wait(_)), "the lost writers have their room");
    let mut me = world.connect();
    me.patient = false;
    let first = me.open("/a", UPDATE);
    assert!(matches!(me.try_open("/c", NEW), Answer::Wait(_)), "who has come back has it still");
    me.close(first).ok();
    world.until("room for one, and one alone", || matches!(me.try_open("/c", NEW), Answer::Ok(_)));
    assert!(matches!(me.try_open("/d", NEW), Answer::Wait(_)), "the lost writer of /b");
    world.until("its grace period is over", || matches!(me.try_open("/d", NEW), Answer::Ok(_)));
    assert!(matches!(me.try_open("/e", NEW), Answer::Wait(_)), "no more than before the restart");
}

#[test]
fn the_longest_idle_connection_without_open_files_is_closed_for_a_new_one() {
    // One machine gets half of the connections.
    let world = World::with(|config| config.limits.connections_max = 6);
    let mut writer = world.connect();
    let handle = writer.open("/f", NEW);
    let mut oldest = world.connect();
    oldest.stat("/").unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let mut newer = world.connect();
    newer.stat("/").unwrap();
    let mut one_more = world.connect();
    one_more.stat("/").unwrap();
    newer.stat("/").unwrap();
    assert!(oldest.frame().is_err(), "it was idle for the longest time");
    writer.write(handle, 0, b"not disturbed").ok();

    // Every connection has open files now. A new one is told why it is refused, and does not hang.
    let kept = [newer.open("/g", NEW), one_more.open("/h", NEW)];
    let mut refused = TcpStream::connect(world.server().address()).unwrap();
    refused.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    refused.write_all(&Handshake.to_bytes()).unwrap();
    let mut said = Vec::new();
    refused.read_to_end(&mut said).unwrap();
    assert!(String::from_utf8_lossy(&said).contains("connections"), "{said:?}");
    newer.close(kept[0]).ok();
    one_more.close(kept[1]).ok();
    writer.close(handle).ok();
    assert_eq!(one_more.get("/f"), b"not disturbed");
}

/// A change that the committer works on until the sender is gone.
struct Stalled(Receiver<()>);

impl Operation for Stalled {
    const TAG: OpTag = OpTag::Chmod;
    type Reply = ();
    fn run(&self, _: &mut dyn kv::Txn, _: &Context) -> Result<(), NsError> {
        let _ = self.0.recv();
        Ok(())
    }
}

#[test]
fn what_is_answered_at_once_does_not_wait_for_requests_that_are_handed_on() {
    let world = World::with(|config| config.limits.requests_in_flight_max = 1);
    let mut me = world.connect();
    me.socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    me.put("/file", NEW, b"some bytes");
    let (go_on, stalled) = channel::<()>();
    let ctx = world.namespace().context(types::Timestamp::from_secs(1_700_000_000), &Actor::admin(), None);
    world.namespace().change(Durability::Written, ctx, Stalled(stalled), |_| ());
    let mkdir = |path| Mkdir { options: MkdirOptions::NONE, mode: Access(0o755), target: arg(path) };
    // It waits for the committer, and is the one request that may be handed on.
    let first = me.send(&Request::Mkdir(mkdir("/one")), &[]);
    let handle = me.open("/file", READ);
    assert_eq!(me.read(handle, 0, 100).ok(), b"some bytes");
    assert!(me.checksum("/file").unwrap().starts_with("adler32 "));
    me.close(handle).ok();
    // With a second one the connection reads no further.
    let second = me.send(&Request::Mkdir(mkdir("/two")), &[]);
    let ping = me.send(&Request::Ping, &[]);
    me.socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let answered = me.frame();
    assert!(answered.is_err(), "the ping was read while both requests waited: {answered:?}");
    me.socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    drop(go_on);
    assert_eq!(me.answer().0, first);
    // The answer to the first makes room. Which of the other two is answered first depends on the committer.
    let others = [me.answer().0, me.answer().0];
    assert!([[second, ping], [ping, second]].contains(&others), "{others:?}");
}
