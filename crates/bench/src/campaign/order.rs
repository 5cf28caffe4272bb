//! The order of trials, and the time that they take.

use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use super::{Campaign, Phase, Trial, Work};
use crate::workload::Workload;

/// Returns all trials. The order has three levels:
/// - One repeat follows another, so that an interrupted campaign has some results of everything.
/// - Within a repeat, all work comes in random order.
/// - The systems do the same work one after the other, in random order, so that other load on the machine affects
///   all of them alike.
///
/// Work of the client alone is done once in each repeat, under the first system's number.
#[must_use]
pub fn order(campaign: &Campaign) -> Vec<Trial> {
    let mut random = StdRng::seed_from_u64(campaign.seed);
    let all = campaign.works();
    let mut works: Vec<usize> = (0..all.len()).collect();
    let mut systems: Vec<usize> = (0..campaign.systems.len()).collect();
    let mut trials = Vec::new();
    for repeat in 0..campaign.repeats {
        works.shuffle(&mut random);
        for work in &works {
            systems.shuffle(&mut random);
            let trial = |system: &usize| Trial { system: *system, work: *work, repeat };
            trials.extend(campaign.systems_of(&all[*work], &systems).iter().map(trial));
        }
    }
    trials
}

/// The estimate for a campaign.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Estimate {
    /// The number of trials.
    pub trials: usize,
    /// The bytes moved, in total.
    pub moved: u64,
    /// The most bytes on one system at a time.
    pub room: u64,
    /// The duration, if the systems have the assumed rates.
    pub time: Duration,
}

/// Makes an estimate from assumed rates, in bytes a second and small operations a second.
#[must_use]
pub fn estimate(campaign: &Campaign, byte_rate: u64, operation_rate: u64) -> Estimate {
    let works = campaign.works();
    let all: Vec<usize> = (0..campaign.systems.len()).collect();
    let mut found = Estimate { room: works.iter().map(Work::room).max().unwrap_or(0), ..Estimate::default() };
    for work in &works {
        let systems = campaign.systems_of(work, &all).len();
        let times = u64::from(campaign.repeats).saturating_mul(systems as u64);
        let phases = || work.phases.iter().map(Phase::workload);
        let moved = phases().map(Workload::moved).fold(0, u64::saturating_add);
        let seconds: u64 = phases().map(|phase| seconds_of(phase, byte_rate, operation_rate)).sum();
        found.trials += usize::try_from(times).unwrap_or(usize::MAX);
        found.moved = found.moved.saturating_add(moved.saturating_mul(times));
        found.time = found.time.saturating_add(Duration::from_secs(seconds.saturating_mul(times)));
    }
    found
}

fn seconds_of(work: &dyn Workload, byte_rate: u64, operation_rate: u64) -> u64 {
    let flat_out = work.moved() / byte_rate.max(1) + work.operations() / operation_rate.max(1);
    1 + flat_out.max(work.fixed_time().map_or(0, |time| time.as_secs()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn campaign(repeats: u32) -> Campaign {
        let text = format!(
            r#"
            name = "x"
            repeats = {repeats}
            [[system]]
            name = "a"
            place = "/a"
            [[system]]
            name = "b"
            place = "/b"
            [[streams]]
            name = "s"
            phases = ["write", "read"]
            file = ["1MB", "10MB", "100MB"]
            block = "64KiB"
            streams = [1, 2]
        "#
        );
        Campaign::parse(&text).unwrap()
    }

    #[test]
    fn each_trial_is_done_once_and_systems_do_the_same_work_in_turn() {
        let trials = order(&campaign(5));
        let all: BTreeSet<&Trial> = trials.iter().collect();
        assert_eq!((trials.len(), all.len()), (60, 60));
        assert!(trials.chunks(2).all(|pair| pair[0].work == pair[1].work && pair[0].repeat == pair[1].repeat));
        assert!(
            trials
                .chunks(12)
                .enumerate()
                .all(|(repeat, some)| some.iter().all(|trial| trial.repeat as usize == repeat))
        );
        let first_is_a = trials.chunks(2).filter(|pair| pair[0].system == 0).count();
        assert!((8..=22).contains(&first_is_a), "{first_is_a}");
        assert_ne!(
            trials[..12].iter().map(|trial| trial.work).collect::<Vec<_>>(),
            trials[12..24].iter().map(|trial| trial.work).collect::<Vec<_>>()
        );
    }

    #[test]
    fn more_repeats_extend_the_same_order() {
        assert_eq!(order(&campaign(7))[..60], order(&campaign(5))[..]);
    }

    #[test]
    fn an_estimate_adds_up() {
        let found = estimate(&campaign(5), 100_000_000, 1000);
        // 111 MB by one stream and by two, written and read, on two systems, five times.
        assert_eq!((found.trials, found.moved, found.room), (60, 111_000_000 * 3 * 2 * 10, 200_000_000));
        assert_eq!(found.time, Duration::from_secs(10 * (12 + 2 * (1 + 2))));
    }
}
