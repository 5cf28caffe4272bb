//! Quotas, owners, modes and ACLs among faults, by seed. The bugs of the namespace are planted in the whole process, so these tests have one of
//! their own, and run one after another.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // a test may fail this way

use namespace::planted::{Bug, plant};
use sim::{Counts, Scenario, Settings, Violation, run};

/// The number of seeds to run. `make sim` runs many more (`WEIR_SEEDS`).
fn seeds() -> u64 {
    std::env::var("WEIR_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(100)
}

/// The first violation in some seeds.
fn found() -> Option<Box<Violation>> {
    (0..200).find_map(|seed| run(&Settings::new(Scenario::Sharing, seed)).err())
}

#[test]
fn usage_and_permissions_are_as_acknowledged_and_bugs_are_found() {
    let mut all = Counts::default();
    // Each takes longer than a seed of another scenario.
    let seeds = seeds().div_ceil(3);
    for seed in 0..seeds {
        all = all.plus(run(&Settings::new(Scenario::Sharing, seed)).unwrap_or_else(|violation| panic!("{violation}")));
    }
    println!("{all}");
    // A run without findings means something only if enough happened.
    assert!(all.access_changes > 50 * seeds && all.over_quota > seeds && all.closed > 10 * seeds, "{all}");
    assert!(all.power_failures > seeds && all.interrupted > seeds / 2, "{all}");

    for bug in [
        Bug::UsageIsForgotten,
        Bug::ReservationsStay,
        Bug::GrowthIgnoresTheQuota,
        Bug::GivenUsageStays,
        Bug::ReturnForgetsTheReservation,
    ] {
        plant(Some(bug));
        let violation = found();
        plant(None);
        println!("{bug:?}: {}", violation.unwrap_or_else(|| panic!("{bug:?} was not found")));
    }
}
