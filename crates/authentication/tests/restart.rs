//! Keys that are kept on the disk.

use std::fs;
use std::time::Duration;

use authentication::{ErrorKind, Settings};

use crate::issuer_server::KEYS;
use crate::world::{World, principal, refusal, status, wait_for};

fn settings(world: &World) -> Settings {
    Settings { key_cache: Some(world.path("keys")), ..world.settings() }
}

/// A node that has fetched the keys and stopped.
fn fetched() -> World {
    let world = World::new();
    principal(&world.with(settings(&world)), &world.token()).unwrap();
    wait_for("the file", || {
        fs::read_dir(world.path("keys"))
            .unwrap()
            .any(|file| file.unwrap().path().extension().is_some_and(|ending| ending == "keys"))
    });
    world.server.set_away(true);
    world
}

#[test]
fn a_restart_while_the_issuer_is_away_keeps_the_keys() {
    let world = fetched();
    world.clock.hours(5);
    let authenticator = world.with(settings(&world));
    assert_eq!(principal(&authenticator, &world.token()).unwrap(), "wlcg-ana");
    assert_eq!(status(&authenticator).keys_age, Some(Duration::from_secs(5 * 3600)), "their age is kept, too");
    assert_eq!((status(&authenticator).keys, world.server.asked(KEYS)), (1, 1));
    // Keys that are due are used, and fetched as well.
    world.clock.hours(42);
    let authenticator = world.with(settings(&world));
    principal(&authenticator, &world.token()).unwrap();
    wait_for("the refresh", || status(&authenticator).fetches_failed == 1);
    world.clock.hours(1);
    let authenticator = world.with(settings(&world));
    assert_eq!(refusal(&authenticator, &world.token()).kind(), ErrorKind::Unavailable);
    // Without the directory there are none.
    assert_eq!(refusal(&world.authenticator(), &world.token()).kind(), ErrorKind::Unavailable);
}

#[test]
fn a_damaged_file_is_not_used_and_replaced() {
    let world = fetched();
    let file = fs::read_dir(world.path("keys")).unwrap().next().unwrap().unwrap().path();
    let good = fs::read(&file).unwrap();
    let mut bad = good.clone();
    let middle = bad.len() / 2;
    bad[middle] ^= 1;
    fs::write(&file, &bad).unwrap();
    assert_eq!(refusal(&world.with(settings(&world)), &world.token()).kind(), ErrorKind::Unavailable);
    world.server.set_away(false);
    principal(&world.with(settings(&world)), &world.token()).unwrap();
    wait_for("the new file", || fs::read(&file).unwrap() == good);
}

#[test]
fn a_disk_that_cannot_be_written_stops_nobody() {
    let world = World::new();
    let authenticator = world.with(settings(&world));
    fs::remove_dir(world.path("keys")).unwrap();
    assert_eq!(principal(&authenticator, &world.token()).unwrap(), "wlcg-ana");
}
