//! Simulations by seed: without bugs nothing is found, with one on purpose it is.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // a test may fail this way

use cluster::replication::Planted;
use sim::{Counts, Faults, Settings, run};

/// A bounded set; `make sim` does many more.
const SEEDS: std::ops::Range<u64> = 0..150;

#[test]
fn nothing_is_lost_whatever_happens() {
    let mut all = Counts::default();
    for seed in SEEDS {
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
        all.owed / 100,
    ];
    assert!(happened.iter().all(|count| *count > 0), "{all}");
}

#[test]
fn without_faults_nobody_comes_back_and_nothing_is_owed() {
    for seed in [1, 3] {
        // As many copies at the close as there are to be.
        let settings = Settings { faults: Faults::none(), replicas: 2, sync: 2, ..Settings::of_seed(seed) };
        let counts = run(&settings).unwrap_or_else(|violation| panic!("{violation}"));
        assert!(counts.closed > 100, "{counts}");
        let nothing = [counts.reopened, counts.taken_over, counts.left_out, counts.given_up, counts.owed, counts.lost];
        assert_eq!(nothing, [0; 6], "{counts}");
    }
}

#[test]
fn a_run_happens_again_as_it_was() {
    for seed in [5, 14] {
        let settings = Settings::of_seed(seed);
        assert_eq!(run(&settings).unwrap(), run(&settings).unwrap());
    }
}

/// Each bug is found within so many seeds.
#[test]
fn bugs_on_purpose_are_found() {
    for planted in [
        Planted::AnswerBeforeReplicas,
        Planted::AnswerBeforeSync,
        Planted::EpochNotChecked,
        Planted::LeaseNotChecked,
        Planted::NotConfirmed,
        Planted::LeftOutSilently,
    ] {
        let found =
            (0..600).find_map(|seed| run(&Settings { planted: Some(planted), ..Settings::of_seed(seed) }).err());
        match found {
            Some(violation) => println!("{planted:?}: {violation}"),
            None => panic!("{planted:?} was not found"),
        }
    }
}
