//! Open writes when connections are lost and servers restart.

use std::time::Duration;

use crate::world::client::{Answer, Client, NEW, READ, REPLACE, UPDATE, arg};
use crate::world::{GRACE, World, content};
use service::Unfinished;
use types::Crc32c;
use wire::ErrorNumber as E;
use wire::request::{DirlistOptions, OpenOptions, PgFlags, Target};
use wire::response::{BadPages, StatFlags};

const MIB: usize = 1 << 20;

/// Writes the first half of `data` and disconnects.
fn half(world: &World, path: &str, options: OpenOptions, data: &[u8]) -> Client {
    let mut me = world.connect();
    let handle = me.open(path, options);
    me.pgwrite(handle, 0, &data[..data.len() / 2]);
    me
}

/// Returns as XrdCl does: opens the same path for update only, and skips acknowledged data.
fn rest(world: &World, path: &str, data: &[u8]) {
    let mut me = world.connect();
    let handle = me.open(path, UPDATE);
    me.pgwrite(handle, (data.len() / 2) as u64, &data[data.len() / 2..]);
    me.close(handle).ok();
}

#[test]
fn a_writer_that_lost_its_connection_continues() {
    for len in [10_000, 3 * MIB] {
        let world = World::new();
        let data = content(1, len);
        let path = format!("/f?oss.asize={len}");
        half(&world, &path, NEW, &data).cut();
        rest(&world, &path, &data);
        assert!(world.connect().get("/f") == data);
    }
}

#[test]
fn the_old_handle_is_fenced_even_if_its_connection_is_alive() {
    let world = World::new();
    let data = content(1, 200_000);
    let mut old = world.connect();
    let handle = old.open("/f", NEW);
    old.pgwrite(handle, 0, &data[..100_000]);
    let mut new = world.connect();
    let second = new.open("/f", UPDATE);
    new.pgwrite(second, 100_000, &data[100_000..]);
    let (number, text) = old.write(handle, 0, b"too late").error();
    assert_eq!(number, E::FILE_NOT_OPEN);
    assert!(text.contains("opened again"), "{text}");
    assert_eq!(old.close(handle).number(), E::FILE_NOT_OPEN);
    new.close(second).ok();
    assert!(world.connect().get("/f") == data);
}

#[test]
fn opening_twice_on_one_connection_gives_one_writer() {
    let world = World::new();
    let data = content(1, 3 * MIB);
    let path = format!("/f?oss.asize={}", data.len());
    half(&world, &path, NEW, &data).cut();
    let mut me = world.connect();
    let first = me.open(&path, UPDATE);
    let twin = me.open(&path, UPDATE);
    me.pgwrite(first, (2 * MIB) as u64, &data[2 * MIB..]);
    me.pgwrite(twin, (data.len() / 2) as u64, &data[data.len() / 2..2 * MIB]);
    me.close(twin).ok();
    me.close(first).ok();
    assert!(world.connect().get("/f") == data);
}

#[test]
fn a_second_handle_that_is_never_closed_blocks_nothing() {
    let world = World::new();
    let data = content(1, MIB);
    half(&world, "/f", NEW, &data).cut();
    let mut me = world.connect();
    let first = me.open("/f", UPDATE);
    let _twin = me.open("/f", UPDATE);
    me.pgwrite(first, (data.len() / 2) as u64, &data[data.len() / 2..]);
    me.close(first).ok();
    me.cut();
    std::thread::sleep(GRACE + Duration::from_millis(500));
    assert!(world.connect().get("/f") == data);
}

/// A node with a long grace period, and a half-written file whose writer has lost its connection.
fn left_behind(path: &str, options: OpenOptions, data: &[u8]) -> World {
    let world = World::with(|config| config.service.times.grace = Duration::from_secs(600));
    half(&world, path, options, data).cut();
    world.until("the writer is detached", || world.server().connections() == 0);
    world
}

#[test]
fn another_client_of_the_same_principal_replaces_what_a_dead_writer_left() {
    for len in [10_000, 3 * MIB] {
        let (old, new) = (content(1, len), content(2, len));
        let world = left_behind("/f", NEW, &old);
        let mut other = world.connect_as("other", 200);
        other.patient = false;
        other.put("/f", REPLACE, &new);
        assert!(other.get("/f") == new);
        // The writer comes back too late, and learns that.
        assert_eq!(world.connect().try_open("/f", UPDATE).number(), E::FILE_NOT_OPEN);
        assert!(other.get("/f") == new);
    }
}

#[test]
fn another_client_of_the_same_principal_goes_on_with_what_a_dead_writer_left() {
    let data = content(1, 3 * MIB);
    let world = left_behind(&format!("/f?oss.asize={}", data.len()), NEW, &data);
    let mut other = world.connect_as("other", 200);
    other.patient = false;
    let handle = other.open("/f?weir.resume=1", UPDATE);
    other.pgwrite(handle, (data.len() / 2) as u64, &data[data.len() / 2..]);
    assert_eq!(world.connect().try_open("/f", UPDATE).number(), E::FILE_NOT_OPEN, "the old writer is fenced");
    other.close(handle).ok();
    assert_eq!(world.connect().try_open("/f", UPDATE).number(), E::FILE_NOT_OPEN, "also after that");
    assert!(other.get("/f") == data);
}

#[test]
fn a_dead_writers_file_that_is_whole_is_completed_before_it_is_replaced_or_continued() {
    let data = content(1, 10_000);
    for options in [REPLACE, UPDATE] {
        let world = World::with(|config| config.service.times.grace = Duration::from_secs(600));
        let mut me = world.connect();
        let handle = me.open("/f?oss.asize=10000", NEW);
        me.pgwrite(handle, 0, &data);
        me.cut();
        world.until("the writer is detached", || world.server().connections() == 0);
        let mut other = world.connect_as("other", 200);
        let handle = other.open("/f?weir.resume=1", UPDATE);
        other.close(handle).ok();
        assert!(other.get("/f") == data);
        let handle = other.open("/f", options);
        other.write(handle, 0, b"new").ok();
        other.close(handle).ok();
        assert_eq!(other.get("/f")[..3], *b"new");
    }
}

#[test]
fn an_open_without_the_wish_to_go_on_ends_no_new_file_and_says_who_writes_it() {
    let data = content(1, 2 * MIB);
    let world = left_behind("/f", NEW, &data);
    let mut other = world.connect_as("other", 200);
    for answer in [other.try_open("/f", UPDATE), other.truncate(Target::Path(arg("/f")), 5)] {
        let (number, text) = answer.error();
        assert_eq!(number, E::FILE_LOCKED, "{text}");
        for part in [
            "tester.100@127.0.0.1 (principal 0)",
            "opened it",
            "lost its connection",
            "come back within 9 min",
            "weir.resume=1",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    assert_eq!(other.try_open("/f", NEW).number(), E::EXISTS);
    rest(&world, "/f", &data);
    assert!(world.connect().get("/f") == data);
}

#[test]
fn a_file_whose_writer_is_there_is_neither_replaced_nor_continued_by_others() {
    let world = World::new();
    let mut me = world.connect();
    let handle = me.open("/f", NEW);
    me.write(handle, 0, b"mine").ok();
    let mut other = world.connect_as("other", 200);
    for (path, options) in [("/f", REPLACE), ("/f?weir.resume=1", UPDATE)] {
        let (number, text) = other.try_open(path, options).error();
        assert_eq!(number, E::FILE_LOCKED, "{text}");
        assert!(text.contains("is being written by tester.100@127.0.0.1 (principal 0)"), "{text}");
        assert!(text.contains("opened it 0 s ago"), "{text}");
    }
    me.write(handle, 4, b" still").ok();
    me.close(handle).ok();
    assert_eq!(other.get("/f"), b"mine still");
}

#[test]
fn a_change_in_place_that_a_dead_writer_left_blocks_nobody() {
    for path in [None, Some(5)] {
        let world = World::with(|config| config.service.times.grace = Duration::from_secs(600));
        let mut other = world.connect_as("other", 200);
        other.put("/f", NEW, &[b'a'; 100]);
        let mut me = world.connect();
        let handle = me.open("/f", UPDATE);
        me.write(handle, 0, b"changed").ok();
        me.cut();
        world.until("the writer is detached", || world.server().connections() == 1);
        match path {
            Some(len) => {
                other.truncate(Target::Path(arg("/f")), len).ok();
                assert_eq!(other.get("/f"), b"chang");
            }
            None => {
                let handle = other.open("/f", UPDATE);
                other.write(handle, 7, b" again").ok();
                other.close(handle).ok();
                assert_eq!(other.get("/f")[..13], *b"changed again");
            }
        }
    }
}

#[test]
fn another_client_cannot_take_a_writer_over() {
    let world = World::new();
    let mut me = world.connect();
    let handle = me.open("/f", NEW);
    me.write(handle, 0, b"mine").ok();
    let mut other = world.connect_as("other", 200);
    assert_eq!(other.try_open("/f", UPDATE).number(), E::FILE_LOCKED);
    me.write(handle, 4, b" still").ok();
    me.close(handle).ok();
    assert_eq!(other.get("/f"), b"mine still");
}

#[test]
fn the_server_completes_a_file_that_is_known_to_be_whole() {
    for len in [3000, 2 * MIB] {
        let world = World::new();
        let data = content(1, len);
        let mut me = world.connect();
        let handle = me.open(&format!("/f?oss.asize={len}"), NEW);
        me.pgwrite(handle, 0, &data);
        me.cut();
        let mut other = world.connect_as("other", 1);
        world.until("the file is completed", || other.checksum("/f").is_ok());
        assert!(other.get("/f") == data);
    }
}

#[test]
fn a_file_that_is_not_known_to_be_whole_is_interrupted() {
    let world = World::new();
    let data = content(1, 2 * MIB);
    half(&world, &format!("/short?oss.asize={}", data.len()), NEW, &data).cut();
    let mut me = world.connect();
    let unknown = me.open("/unknown", NEW);
    me.pgwrite(unknown, 0, &data);
    let gaps = me.open(&format!("/gaps?oss.asize={}", data.len()), NEW);
    me.pgwrite(gaps, 0, &data[..MIB]);
    me.pgwrite(gaps, (MIB + 4096) as u64, &data[MIB + 4096..]);
    me.cut();
    let mut other = world.connect_as("other", 1);
    for (path, kept) in [("/short", MIB), ("/unknown", 2 * MIB), ("/gaps", MIB)] {
        world.until(path, || other.try_open(path, READ).number_of_error() == Some(E::IN_PROGRESS));
        let (_, text) = other.try_open(path, READ).error();
        assert!(text.contains("interrupted") && text.contains("weir.partial=1"), "{text}");
        assert!(other.checksum(path).is_err());
        assert_eq!(other.stat(path).unwrap().size, kept as u64, "{path}");
        assert!(other.get(&format!("{path}?weir.partial=1")) == data[..kept], "{path}");
    }
    other.rm("/gaps").ok();
    other.put("/short", REPLACE, b"a new copy");
    assert_eq!(other.get("/short"), b"a new copy");
}

#[test]
fn a_close_with_another_length_than_announced_fails() {
    let world = World::new();
    let data = content(1, MIB);
    let mut me = world.connect();
    let handle = me.open(&format!("/f?oss.asize={}", data.len()), NEW);
    me.pgwrite(handle, 0, &data[..MIB / 2]);
    let (_, text) = me.close(handle).error();
    assert!(text.contains("1048576") && text.contains("524288"), "{text}");
    world.until("it is interrupted", || me.try_open("/f", READ).number_of_error() == Some(E::IN_PROGRESS));
    me.put("/old", NEW, b"the old one");
    let handle = me.open("/old?oss.asize=100", REPLACE);
    me.write(handle, 0, b"half").ok();
    me.close(handle).error();
    assert_eq!(me.get("/old"), b"the old one");
}

#[test]
fn an_overwrite_shows_the_old_file_until_it_is_closed() {
    let world = World::new();
    let (old, new) = (content(1, 2 * MIB), content(2, MIB));
    world.connect().put("/f", NEW, &old);
    let mut reader = world.connect_as("reader", 7);
    let held = reader.open("/f", READ);
    half(&world, "/f", REPLACE, &new).cut();
    assert!(reader.get("/f") == old);
    // A return with update never writes into the old file.
    let mut me = world.connect();
    let handle = me.open("/f", UPDATE);
    me.pgwrite(handle, (MIB / 2) as u64, &new[MIB / 2..]);
    assert!(reader.get("/f") == old);
    assert_eq!(reader.stat("/f").unwrap().size, old.len() as u64);
    me.close(handle).ok();
    assert!(reader.get("/f") == new);
    std::thread::sleep(Duration::from_millis(300));
    assert!(reader.read(held, 0, 4 << 20).ok() == old, "a reader keeps the content that it opened");
}

#[test]
fn a_client_that_overwrites_again_ends_its_own_upload_first() {
    for (sent, shown) in [(10_000, 2_u64), (5_000, 1)] {
        let world = World::with(|config| config.service.times.grace = Duration::from_secs(600));
        let [old, first, second] = [1, 2, 3].map(|seed| content(seed, 10_000));
        world.connect_as("other", 1).put("/f", NEW, &old);
        let mut me = world.connect();
        let handle = me.open("/f?oss.asize=10000", REPLACE);
        me.pgwrite(handle, 0, &first[..sent]);
        me.cut();
        std::thread::sleep(Duration::from_millis(200)); // until the server notices
        let mut me = world.connect();
        let handle = me.open("/f?oss.asize=10000", REPLACE);
        assert!(world.connect_as("other", 1).get("/f") == if shown == 2 { first } else { old }, "{sent} sent");
        // The client's own recovery finds the one open write.
        me.pgwrite(handle, 0, &second[..5_000]);
        me.cut();
        rest(&world, "/f", &second);
        assert!(world.connect().get("/f") == second);
    }
}

#[test]
fn posc_shows_nothing_before_the_close() {
    let world = World::new();
    let mut me = world.connect();
    let handle = me.open("/f", OpenOptions(NEW.0 | OpenOptions::POSC.0));
    me.write(handle, 0, b"persist").ok();
    assert_eq!(me.list("/", DirlistOptions::NONE), []);
    me.close(handle).ok();
    assert_eq!(me.get("/f"), b"persist");
    let handle = me.open("/g", OpenOptions(NEW.0 | OpenOptions::POSC.0));
    me.write(handle, 0, b"never closed").ok();
    me.cut();
    std::thread::sleep(GRACE + Duration::from_millis(300));
    assert_eq!(world.connect().list("/", DirlistOptions::NONE).len(), 1);
}

#[test]
fn writers_continue_after_the_server_was_killed() {
    for (options, over) in [(NEW, false), (REPLACE, true), (OpenOptions(NEW.0 | OpenOptions::POSC.0), false)] {
        for len in [9000, 3 * MIB] {
            let mut world = World::new();
            let data = content(3, len);
            if over {
                world.connect().put("/f", NEW, b"old");
            }
            let me = half(&world, &format!("/f?oss.asize={len}"), options, &data);
            world.kill_and_restart();
            drop(me);
            if over {
                assert_eq!(world.connect_as("other", 1).get("/f"), b"old");
            }
            rest(&world, &format!("/f?oss.asize={len}"), &data);
            assert!(world.connect().get("/f") == data);
        }
    }
}

#[test]
fn acknowledged_closes_survive_a_power_failure() {
    let mut world = World::new();
    let mut me = world.connect();
    for len in [0usize, 100, 70_000, 2 * MIB] {
        me.put(&format!("/f{len}"), NEW, &content(len as u64, len));
    }
    me.put("/f100", REPLACE, b"a second content");
    me.rm("/f0").ok();
    world.crash_and_restart(3);
    let mut me = world.connect();
    assert_eq!(me.get("/f100"), b"a second content");
    for len in [70_000, 2 * MIB] {
        assert!(me.get(&format!("/f{len}")) == content(len as u64, len));
    }
    assert_eq!(me.stat("/f0").unwrap_err(), E::NOT_FOUND);
}

#[test]
fn after_a_power_failure_a_writer_with_lost_bytes_is_refused() {
    let mut world = World::new();
    let data = content(3, 2 * MIB);
    let mut me = half(&world, "/f?oss.asize=2097152", NEW, &data);
    let synced = me.open("/other", NEW);
    me.sync(synced).ok();
    world.crash_and_restart(5);
    let mut me = world.connect();
    let answer = me.try_open("/f?oss.asize=2097152", UPDATE);
    assert!(
        matches!(answer, Answer::Error(..)),
        "bytes may be lost, and the client would not send them again: {answer:?}"
    );
    std::thread::sleep(GRACE + Duration::from_millis(300));
    assert!(me.checksum("/f").is_err(), "half a file must not become a whole one");
}

#[test]
fn a_client_that_starts_again_replaces_its_own_unfinished_file() {
    let world = World::new();
    let data = content(1, MIB);
    half(&world, "/f", NEW, &data).cut();
    world.until("the writer is detached", || world.server().connections() == 0);
    let mut me = world.connect();
    me.put("/f?tried=somewhere", NEW, &data);
    assert!(me.get("/f") == data);
}

#[test]
fn endsess_ends_the_old_session_at_once() {
    let world = World::new();
    let old = half(&world, "/f", NEW, &content(1, MIB));
    let mut stranger = world.connect_as("other", 9);
    stranger.endsess(old.session).ok();
    assert_eq!(world.server().connections(), 2, "another client's session is not ours to end");
    let mut me = world.connect();
    me.endsess(old.session).ok();
    world.until("the old connection is cut", || world.server().connections() == 2);
}

#[test]
fn readers_of_a_growing_file_see_durable_bytes_only() {
    let world = World::new();
    let data = content(1, 3 * MIB);
    let mut writer = world.connect();
    let handle = writer.open("/f", NEW);
    writer.pgwrite(handle, MIB as u64, &data[MIB..2 * MIB]);
    let mut reader = world.connect_as("reader", 1);
    let open = reader.open("/f?weir.follow=1", READ);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(reader.stat("/f").unwrap().size, 0, "a size is not a prefix");
    assert_eq!(reader.read(open, 0, 100).ok(), b"");
    writer.pgwrite(handle, 0, &data[..MIB]);
    world.until("the prefix is published", || reader.stat("/f").unwrap().size == 2 * MIB as u64);
    assert!(reader.read(open, 0, 4 << 20).ok() == data[..2 * MIB]);
    writer.pgwrite(handle, 2 * MIB as u64, &data[2 * MIB..]);
    writer.close(handle).ok();
    assert!(reader.pgread(open, 0, 4 << 20).ok() == data, "the same handle, after the close");
}

#[test]
fn a_reader_that_does_not_follow_is_refused_while_the_writer_is_there() {
    let world = World::new();
    let data = content(1, 2 * MIB);
    let mut writer = world.connect();
    let handle = writer.open("/f", NEW);
    writer.pgwrite(handle, 0, &data[..MIB]);
    let mut reader = world.connect_as("reader", 1);
    let (number, text) = reader.try_open("/f", READ).error();
    assert_eq!(number, E::FILE_LOCKED);
    for part in ["is being written by tester.100@127.0.0.1 (principal 0)", "opened it", "weir cp --follow"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(reader.stat("/f").unwrap().flags.has(StatFlags::POSC_PENDING));
    assert!(!writer.stat("/f").unwrap().flags.has(StatFlags::POSC_PENDING), "its own writer sees a plain file");
    let own = writer.open("/f", READ);
    assert!(writer.read(own, 0, 4 << 20).ok() == data[..MIB], "its own writer reads it");
    // What replaces a complete file, or changes it in place, hides nothing.
    writer.pgwrite(handle, MIB as u64, &data[MIB..]);
    writer.close(handle).ok();
    for options in [REPLACE, UPDATE] {
        let handle = writer.open("/f", options);
        assert!(reader.get("/f") == data);
        assert!(!reader.stat("/f").unwrap().flags.has(StatFlags::POSC_PENDING));
        if options == UPDATE {
            writer.close(handle).ok();
        }
    }
}

#[test]
fn a_reader_that_does_not_follow_waits_for_a_writer_that_lost_its_connection() {
    let data = content(1, 2 * MIB);
    let world = left_behind("/f", NEW, &data);
    let mut reader = world.connect_as("reader", 1);
    reader.patient = false;
    for path in ["/f", "/f?weir.follow=0"] {
        let answer = reader.try_open(path, READ);
        assert!(matches!(answer, Answer::Wait(1..=5)), "{answer:?}");
    }
    for path in ["/f?weir.follow=1", "/f?weir.partial=1"] {
        reader.open(path, READ);
    }
    rest(&world, "/f", &data);
    assert!(reader.get("/f") == data);
}

#[test]
fn by_configuration_a_reader_waits_for_the_whole_file_or_follows() {
    for (usual, followed) in [(Unfinished::Wait, "/daq"), (Unfinished::Refuse, "/"), (Unfinished::Follow, "/daq")] {
        let world = World::with(|config| {
            config.service.unfinished.usual = usual;
            config.service.unfinished.followed = vec![types::NsPath::parse(followed.as_bytes()).unwrap()];
        });
        let mut writer = world.connect();
        writer.mkdir("/daq", wire::request::MkdirOptions::NONE).ok();
        for path in ["/f", "/daq/f"] {
            let handle = writer.open(path, NEW);
            writer.write(handle, 0, b"some").ok();
        }
        let mut reader = world.connect_as("reader", 1);
        reader.patient = false;
        reader.open("/daq/f", READ);
        match reader.try_open("/f", READ) {
            Answer::Wait(_) => assert_eq!(usual, Unfinished::Wait),
            answer => assert!(usual != Unfinished::Wait && matches!(answer, Answer::Ok(_)), "{answer:?}"),
        }
    }
}

#[test]
fn a_damaged_page_is_requested_again_and_never_stored() {
    let world = World::new();
    let data = content(1, 40_000);
    let mut me = world.connect();
    let handle = me.open("/f?oss.asize=40000", NEW);
    let mut wire = Vec::new();
    wire::page::encode(0, &data, &mut wire).unwrap();
    let mut damaged = wire.clone();
    damaged[4100 * 2 + 100] ^= 1;
    damaged[4100 * 9 + 7] ^= 1;
    let Answer::Bad(bad) = me.pgwrite_wire(handle, 0, &damaged, PgFlags::NONE) else { panic!() };
    assert_eq!(bad.offsets, [8192, 9 * 4096]);
    assert_eq!((bad.first_len, bad.last_len), (4096, 40_000 - 9 * 4096));
    // One page is corrected, the other is not: there is no file.
    let page = |n: usize| wire[4100 * n..(4100 * (n + 1)).min(wire.len())].to_vec();
    assert_eq!(me.pgwrite_wire(handle, 8192, &page(2), PgFlags::RETRY), Answer::Bad(BadPages::default()));
    assert_eq!(me.read(handle, 9 * 4096, 10).ok().len(), 0, "nothing of the damaged page was written");
    let (number, _) = me.close(handle).error();
    assert_eq!(number, E::CHECKSUM);
    // Both pages are corrected.
    let handle = me.open("/g?oss.asize=40000", NEW);
    me.pgwrite_wire(handle, 0, &damaged, PgFlags::NONE);
    me.pgwrite_wire(handle, 8192, &page(2), PgFlags::RETRY);
    me.pgwrite_wire(handle, 9 * 4096, &page(9), PgFlags::RETRY);
    me.close(handle).ok();
    assert_eq!(me.checksum("/g?cks.type=crc32c").unwrap(), format!("crc32c {:08x}", Crc32c::of(&data).0));
}

#[test]
fn after_a_stop_writers_can_return() {
    let mut world = World::new();
    let data = content(1, 2 * MIB);
    let me = half(&world, "/f", NEW, &data);
    let report = world.stop();
    assert_eq!(report.writers_left, 1);
    drop(me);
    world.start();
    rest(&world, "/f", &data);
    assert!(world.connect().get("/f") == data);
}

impl Answer {
    fn number_of_error(self) -> Option<E> {
        match self {
            Answer::Error(number, _) => Some(number),
            _ => None,
        }
    }
}
