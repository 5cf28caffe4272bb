//! Crashes at any moment, on images: acknowledged records survive in order and complete, and no others appear.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::manual_is_multiple_of
)]

use crate::support::{Hits, Story};
use journal::PlantedBug;

fn seeds() -> u64 {
    std::env::var("WEIR_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1200)
}

#[test]
fn acknowledged_records_survive() {
    let mut hits = Hits::default();
    // `WEIR_SEED` selects one seed.
    let alone = std::env::var("WEIR_SEED").ok().and_then(|n| n.parse::<u64>().ok());
    for seed in alone.map_or(0..seeds(), |n| n..n + 1) {
        if let Err(broken) = Story::new(seed, None).run(&mut hits) {
            panic!("seed {seed}: {broken}");
        }
    }
    println!("{hits:#?}");
    let f = &hits.faults;
    for (what, count) in [
        ("kept", f.kept),
        ("lost", f.lost),
        ("torn", f.torn),
        ("zeroed", f.zeroed),
        ("reordered", f.reordered),
        ("lengths lost", f.lengths_lost),
        ("names kept", f.names_kept),
        ("names lost", f.names_lost),
        ("crashes", hits.crashes),
        ("kills", hits.kills),
        ("crashes in recovery", hits.crashes_in_recovery),
        ("cut tails", hits.cut_tails),
        ("poisoned by a write", hits.poisoned_by_write),
        ("poisoned by a sync", hits.poisoned_by_sync),
        ("refused for space", hits.refused_for_space),
        ("urgent when full", hits.urgent_when_full),
        ("trimmed", hits.trimmed),
        ("segments crossed", hits.segments_crossed),
        ("acknowledged", hits.acknowledged),
        ("losses told", hits.losses_told),
        ("survived though not acknowledged", hits.unacknowledged_survived),
        ("lost, not acknowledged", hits.unacknowledged_lost),
    ] {
        assert!(count > 0, "{what}: the stories never came to that");
    }
}

fn is_found(bug: PlantedBug) {
    let mut hits = Hits::default();
    let found = (0..seeds().max(3000)).find_map(|seed| {
        let broken = Story::new(seed, Some(bug)).run(&mut hits).err()?;
        Some((seed, broken))
    });
    let (seed, broken) = found.unwrap_or_else(|| panic!("{bug:?} was not found"));
    println!("{bug:?} found by seed {seed}: {broken}");
}

#[test]
fn planted_acknowledge_before_sync_is_found() {
    is_found(PlantedBug::AcknowledgeBeforeSync);
}

#[test]
fn planted_skip_crc_is_found() {
    is_found(PlantedBug::SkipCrc);
}

#[test]
fn planted_trim_too_early_is_found() {
    is_found(PlantedBug::TrimTooEarly);
}

#[test]
fn planted_leave_broken_tail_is_found() {
    is_found(PlantedBug::LeaveBrokenTail);
}

#[test]
fn planted_believe_tail_is_found() {
    is_found(PlantedBug::BelieveTail);
}

#[test]
fn planted_forget_failure_is_found() {
    is_found(PlantedBug::ForgetFailure);
}
