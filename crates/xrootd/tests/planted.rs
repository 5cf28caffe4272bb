//! The most important scenarios, each run twice: on the unchanged server, where it must pass, and on a server with a
//! planted bug, where it must fail.

use std::time::Duration;

use crate::world::client::{Answer, NEW, READ, UPDATE};
use crate::world::{GRACE, World, content};
use service::PlantedBug;
use wire::request::PgFlags;

/// Runs a scenario on a server with `bug`. Returns whether it passed.
fn ends_well(bug: Option<PlantedBug>, story: fn(&mut World) -> bool) -> bool {
    let mut world = World::with(|config| config.service.planted = bug);
    story(&mut world)
}

fn found(bug: PlantedBug, story: fn(&mut World) -> bool) {
    assert!(ends_well(None, story), "the story fails without a bug: {bug:?}");
    assert!(!ends_well(Some(bug), story), "not found: {bug:?}");
}

#[test]
fn forget_fence() {
    found(PlantedBug::ForgetFence, |world| {
        let mut old = world.connect();
        let first = old.open("/f", NEW);
        old.write(first, 0, b"old bytes").ok();
        let mut new = world.connect();
        let second = new.open("/f", UPDATE);
        new.write(second, 0, b"new bytes").ok();
        let late = old.write(first, 0, b"too late!");
        new.close(second).ok();
        matches!(late, Answer::Error(..)) && world.connect().get("/f") == b"new bytes"
    });
}

#[test]
fn acknowledge_before_sync() {
    found(PlantedBug::AcknowledgeBeforeSync, |world| {
        world.config.service.times.keeper = Duration::from_secs(60);
        let mut me = world.connect();
        me.put("/f", NEW, b"acknowledged");
        world.crash_and_restart(1);
        let mut me = world.connect();
        me.stat("/f").is_ok() && matches!(me.try_open("/f", READ), Answer::Ok(_))
    });
}

#[test]
fn store_bad_pages() {
    found(PlantedBug::StoreBadPages, |world| {
        let mut me = world.connect();
        let handle = me.open("/f", NEW);
        let mut wire = Vec::new();
        wire::page::encode(0, &content(1, 8192), &mut wire).unwrap();
        wire[5000] ^= 1;
        me.pgwrite_wire(handle, 0, &wire, PgFlags::NONE);
        matches!(me.close(handle), Answer::Error(..))
    });
}

#[test]
fn believe_close() {
    found(PlantedBug::BelieveClose, |world| {
        let mut me = world.connect();
        let handle = me.open("/f?oss.asize=100", NEW);
        me.write(handle, 0, b"not a hundred bytes").ok();
        matches!(me.close(handle), Answer::Error(..)) && me.checksum("/f").is_err()
    });
}

#[test]
fn complete_everything() {
    found(PlantedBug::CompleteEverything, |world| {
        let mut me = world.connect();
        let handle = me.open("/f?oss.asize=100", NEW);
        me.write(handle, 0, b"not a hundred bytes").ok();
        me.cut();
        std::thread::sleep(GRACE + Duration::from_millis(500));
        world.connect().checksum("/f").is_err()
    });
}

#[test]
fn show_undurable() {
    found(PlantedBug::ShowUndurable, |world| {
        let mut me = world.connect();
        let handle = me.open("/f", NEW);
        me.write(handle, 1_000_000, b"a size is not a prefix").ok();
        world.connect_as("other", 1).stat("/f").unwrap().size == 0
    });
}

#[test]
fn forget_writers() {
    found(PlantedBug::ForgetWriters, |world| {
        let mut me = world.connect();
        let handle = me.open("/f?oss.asize=5", NEW);
        me.write(handle, 0, b"whole").ok();
        world.kill_and_restart();
        std::thread::sleep(GRACE + Duration::from_millis(500));
        world.connect_as("other", 1).checksum("/f").is_ok()
    });
}

#[test]
fn trust_handles() {
    found(PlantedBug::TrustHandles, |world| {
        world.connect().put("/f", NEW, b"private");
        let mut owner = world.connect();
        let handle = owner.open("/f", READ);
        let mut thief = world.connect_as("thief", 2);
        matches!(thief.read(handle, 0, 7), Answer::Error(..))
    });
}
