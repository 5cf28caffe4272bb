//! Simulations by seed: without bugs nothing is found, with one on purpose it is.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // a test may fail this way

use std::time::Duration;

use cluster::replication::Planted;
use sim::{Bug, Counts, Fault, Scenario, Settings, run};

/// A bounded set; `make sim` does many more (`WEIR_SEEDS`).
fn seeds() -> u64 {
    std::env::var("WEIR_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(100)
}

#[test]
fn nothing_is_lost_whatever_happens() {
    let mut all = Counts::default();
    for seed in 0..seeds() {
        match run(&Settings::new(Scenario::Everything, seed)) {
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
fn without_faults_nobody_comes_back_and_nothing_is_missing() {
    let (mut closed, seeds) = (0, 1..=8);
    for seed in seeds.clone() {
        let settings = Settings::new(Scenario::Quiet, seed);
        let counts = run(&settings).unwrap_or_else(|violation| panic!("{violation}"));
        closed += counts.closed;
        let nothing = [counts.reopened, counts.taken_over, counts.left_out, counts.removed_as_lost, counts.lost];
        assert_eq!(nothing, [0; 5], "{counts}");
        // What is kept for a client that is gone is on its primary alone at first.
        assert!(counts.copied <= counts.interrupted, "{counts}");
    }
    // One seed makes 25 files, another one 90.
    assert!(closed > 40 * seeds.count() as u64, "{closed}");
}

#[test]
fn a_run_happens_again_as_it_was() {
    for seed in [5, 14] {
        let settings = Settings::new(Scenario::Everything, seed);
        assert_eq!(run(&settings).unwrap(), run(&settings).unwrap());
    }
}

#[test]
fn who_is_cut_off_shows_nothing_old() {
    let mut all = Counts::default();
    // Each takes three times as long as one of the others.
    let seeds = seeds().div_ceil(3);
    for seed in 0..seeds {
        all = all.plus(run(&Settings::new(Scenario::CutOff, seed)).unwrap_or_else(|violation| panic!("{violation}")));
    }
    assert!(all.left_out > 3 * seeds && all.reads > 30 * seeds, "{all}");
}

#[test]
fn messages_of_a_session_before_do_no_harm() {
    let mut all = Counts::default();
    // Each takes half as long as one of the others.
    let seeds = seeds();
    for seed in 0..seeds {
        all = all.plus(run(&Settings::new(Scenario::Sessions, seed)).unwrap_or_else(|violation| panic!("{violation}")));
    }
    println!("{all}");
    assert!(all.kills > 4 * seeds && all.left_out > seeds && all.closed > 8 * seeds, "{all}");
}

/// Each bug is found within so many seeds, when it does its harm and not at the end of the run, and what is printed then finds it again, at the same moment and in the same words.
#[test]
fn bugs_on_purpose_are_found_and_found_again() {
    for (planted, name) in Bug::ALL {
        let scenario = match planted {
            // They do harm only while somebody who is cut off has readers.
            Bug::Machine(Planted::LeaseNotChecked) | Bug::TermCutShort => Scenario::CutOff,
            // It does harm only where sessions change while messages are on their way.
            Bug::Shell(disk_server::Planted::OldSessionHeard) => Scenario::Sessions,
            _ => Scenario::Everything,
        };
        let settings = |seed| Settings { planted: Some(planted), ..Settings::new(scenario, seed) };
        let violation = (0..600).find_map(|seed| run(&settings(seed)).err());
        let violation = violation.unwrap_or_else(|| panic!("{name} was not found"));
        println!("{name}: {violation}");
        assert!(!violation.what.contains("in the end"), "{violation}");
        again(&violation.settings);
    }
    // With another length, and without some faults.
    let without = |seed| {
        let (planted, duration) = (Some(Bug::Machine(Planted::AnswerBeforeReplicas)), Duration::from_secs(45));
        let mut settings = Settings { planted, duration, ..Settings::new(Scenario::Everything, seed) };
        for fault in [Fault::Disk, Fault::Message] {
            fault.leave_out(&mut settings.faults);
        }
        settings
    };
    let found = (0..600).map(without).find(|settings| run(settings).is_err()).unwrap();
    assert!(found.command().contains("--seconds 45 --without disk --without message --plant answer-before-replicas"));
    again(&found);
}

/// What the command that a violation prints says of it.
fn again(settings: &Settings) {
    let expected = run(settings).unwrap_err().to_string();
    let command = settings.command();
    let (_, words) = command.split_once(" -- ").unwrap();
    let words = words.split(' ').filter(|word| *word != "--tell");
    let ended = std::process::Command::new(env!("CARGO_BIN_EXE_weir-sim")).args(words).output().unwrap();
    assert!(!ended.status.success(), "{command}");
    assert_eq!(String::from_utf8_lossy(&ended.stderr).trim(), expected);
}
