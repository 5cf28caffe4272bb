//! Sums up jobs that read and compute.

use serde::{Deserialize, Serialize};

use crate::load::JobTally;
use crate::statistics::median;

/// All jobs of a cell, of all repeats.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Jobs {
    /// The CPU efficiency (CPU time / wall time) of single jobs: median, least, most.
    pub efficiency: [f64; 3],
    /// The events a second of all jobs of a repeat together; the median of the repeats.
    pub event_rate: f64,
    /// The share of CPU time for reading.
    pub io_cpu_share: f64,
    /// The share of their time that jobs waited for the system.
    pub waited_share: f64,
    /// The bytes that jobs wanted.
    pub asked: u64,
    /// The bytes that the system sent for that.
    pub moved: u64,
    /// The number of requests.
    pub requests: u64,
}

/// Returns the median CPU efficiency of a repeat's jobs.
pub(super) fn efficiency(jobs: &[JobTally]) -> f64 {
    median(&jobs.iter().map(JobTally::efficiency).collect::<Vec<_>>()).unwrap_or(0.0)
}

/// Whether jobs competed for processors.
pub(super) fn are_many(jobs: &[JobTally]) -> bool {
    jobs.first().is_some_and(|job| jobs.len() > usize::try_from(job.cores).unwrap_or(usize::MAX))
}

/// Sums up jobs, repeat by repeat with the wall time of each; `None` without jobs.
#[allow(clippy::cast_precision_loss)] // counts and shares
pub(super) fn sum(repeats: &[(&[JobTally], f64)]) -> Option<Jobs> {
    let all: Vec<&JobTally> = repeats.iter().flat_map(|(jobs, _)| jobs.iter()).collect();
    let each: Vec<f64> = all.iter().map(|job| job.efficiency()).collect();
    let rate = |(jobs, wall): &(&[JobTally], f64)| {
        let events: u64 = jobs.iter().map(|job| job.events).sum();
        if *wall > 0.0 { events as f64 / wall } else { 0.0 }
    };
    let sum = |of: fn(&JobTally) -> f64| all.iter().map(|job| of(job)).sum::<f64>();
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let count = |of: fn(&JobTally) -> u64| all.iter().map(|job| of(job)).sum();
    Some(Jobs {
        efficiency: [
            median(&each)?,
            each.iter().copied().fold(f64::INFINITY, f64::min),
            each.iter().copied().fold(0.0, f64::max),
        ],
        event_rate: median(&repeats.iter().map(rate).collect::<Vec<_>>())?,
        io_cpu_share: share(sum(|job| job.io_cpu_s), sum(|job| job.cpu_s)),
        waited_share: share(sum(|job| job.waited_s), sum(|job| job.wall_s)),
        asked: count(|job| job.asked),
        moved: count(|job| job.moved),
        requests: count(|job| job.requests),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_summed_up() {
        let job = |cpu_s: f64, events| JobTally {
            wall_s: 10.0,
            cpu_s,
            io_cpu_s: 1.0,
            events,
            cores: 2,
            ..JobTally::default()
        };
        let (first, second) = ([job(5.0, 100), job(7.0, 100), job(9.0, 100)], [job(1.0, 20)]);
        let found = sum(&[(&first, 10.0), (&second, 20.0)]).unwrap();
        assert_eq!((found.efficiency, found.event_rate), ([0.6, 0.1, 0.9], 15.5));
        assert!((found.io_cpu_share - 4.0 / 22.0).abs() < 1e-9);
        assert!((efficiency(&first) - 0.7).abs() < 1e-9);
        assert!(are_many(&first) && !are_many(&second) && !are_many(&[]));
        assert_eq!(sum(&[]), None);
    }
}
