//! Simulations by seed: without bugs nothing is found, with one on purpose it is.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // a test may fail this way

use std::time::Duration;

use cluster::replication::Planted;
use sim::{Counts, Faults, Settings, run};

/// A bounded set; `make sim` does many more (`WEIR_SEEDS`).
fn seeds() -> std::ops::Range<u64> {
    0..std::env::var("WEIR_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(100)
}

#[test]
fn nothing_is_lost_whatever_happens() {
    let mut all = Counts::default();
    for seed in seeds() {
        match run(&Settings::of_seed(seed)) {
            Ok(counts) => all = all.plus(counts),
            Err(violation) => panic!("{violation}"),
        }
    }
    println!("{all}");
    // That nothing was found says something only where much has happened.
    let happened = [
        all.closed / 1000,
        all.reads / 1000,
        all.taken_over / 100,
        all.left_out / 100,
        all.power_failures / 100,
        all.partitions / 100,
        all.disk_errors / 100,
        all.copied / 100,
        all.deleted / 100,
        all.interrupted / 10,
        all.drained / 10,
        all.lost_stores / 10,
    ];
    assert!(happened.iter().all(|count| *count > 0), "{all}");
}

#[test]
fn without_faults_nobody_comes_back_and_nothing_is_owed() {
    for seed in [1, 3] {
        // As many copies at the close as there are to be.
        let settings = Settings { faults: Faults::none(), replicas: 2, sync: 2, ..Settings::of_seed(seed) };
        let counts = run(&settings).unwrap_or_else(|violation| panic!("{violation}"));
        assert!(counts.closed > 40, "{counts}");
        let nothing = [counts.reopened, counts.taken_over, counts.left_out, counts.given_up, counts.lost];
        assert_eq!(nothing, [0; 5], "{counts}");
        // What is kept for a client that is gone is on its primary alone at first.
        assert!(counts.copied <= counts.interrupted, "{counts}");
    }
}

#[test]
fn a_run_happens_again_as_it_was() {
    for seed in [5, 14] {
        let settings = Settings::of_seed(seed);
        assert_eq!(run(&settings).unwrap(), run(&settings).unwrap());
    }
}

/// Servers that are cut off for long, readers that hold on to what they have opened, and nothing else.
fn cut_off(seed: u64) -> Settings {
    let faults = Faults { partition_every: Some(Duration::from_millis(1500)), ..Faults::none() };
    Settings { faults, replicas: 2, sync: 2, clients: 6, duration: Duration::from_secs(120), ..Settings::of_seed(seed) }
}

#[test]
fn who_is_cut_off_shows_nothing_old() {
    let mut all = Counts::default();
    for seed in 0..30 {
        all = all.plus(run(&cut_off(seed)).unwrap_or_else(|violation| panic!("{violation}")));
    }
    assert!(all.left_out > 100 && all.reads > 1000, "{all}");
}

/// Each bug is found within so many seeds.
#[test]
fn bugs_on_purpose_are_found() {
    for planted in [
        Planted::AnswerBeforeReplicas,
        Planted::AnswerBeforeSync,
        Planted::EpochNotChecked,
        Planted::LeaseNotChecked,
        Planted::LeftOutSilently,
    ] {
        let settings = |seed| match planted {
            Planted::LeaseNotChecked => cut_off(seed),
            _ => Settings::of_seed(seed),
        };
        let found = (0..600).find_map(|seed| run(&Settings { planted: Some(planted), ..settings(seed) }).err());
        match found {
            Some(violation) => println!("{planted:?}: {violation}"),
            None => panic!("{planted:?} was not found"),
        }
    }
}
