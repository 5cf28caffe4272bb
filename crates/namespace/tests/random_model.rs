//! Random operations against the plain model, on the engine in memory, with conflicts, lost answers and repeats.

#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

use std::sync::Arc;

use crate::model::harness::{World, run, seeds};
use kv::{Kv, MemoryFaults, MemoryKv};

fn world(seed: u64) -> World {
    let faults = MemoryFaults { conflicts: 100, maybe_committed: 60 };
    let kv: Arc<dyn Kv> = Arc::new(MemoryKv::with_faults(seed, faults));
    World::new(kv, seed, true)
}

#[test]
fn every_step_matches_the_model() {
    let seeds = seeds(24);
    println!("seeds 0..{seeds}, 600 steps each");
    let (mut oks, mut refusals, mut repeats, mut lost, mut policies, mut acls, mut renamed) = (0, 0, 0, 0, 0, 0, 0);
    let mut quotas = 0;
    let mut limited = (0, 0);
    for seed in 0..seeds {
        let mut world = world(seed);
        if let Err(error) = run(&mut world, seed, 600) {
            panic!("{error}");
        }
        oks += world.oks;
        refusals += world.refusals;
        repeats += world.repeats;
        lost += world.lost_answers;
        policies += world.policies;
        acls += world.acls;
        quotas += world.quotas;
        renamed += world.renamed_principals;
        limited = (limited.0 + world.limited.0, limited.1 + world.limited.1);
    }
    println!(
        "{oks} changes and reads, {refusals} refusals, {repeats} repeated requests, {lost} lost answers, {policies} policies, {acls} ACLs, {quotas} quotas, {renamed} principals renamed; with limits {} and {} refusals",
        limited.0, limited.1
    );
    // The cases that the test is for did happen.
    assert!(oks > seeds * 150 && refusals > seeds * 50 && repeats > seeds * 10 && lost > seeds * 5);
    assert!(policies > seeds && acls > seeds && renamed > seeds && quotas > seeds * 5);
    assert!(limited.0 > seeds * 20 && limited.1 > seeds * 20);
}
