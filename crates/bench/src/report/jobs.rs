//! Sums up jobs that read and compute.

use serde::{Deserialize, Serialize};

use crate::load::{JobTally, OpenedWith};
use crate::measure::Measured;
use crate::statistics::median;

/// All jobs of a cell, of all repeats.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Jobs {
    /// The CPU efficiency (CPU time / wall time) of single jobs: median, least, most.
    pub efficiency: [f64; 3],
    /// The events a second of all jobs of a repeat together; the median of the repeats.
    pub event_rate: f64,
    /// The events a second of each repeat.
    #[serde(default)]
    pub event_rates: Vec<f64>,
    /// The share of CPU time for reading; `None`: uproot does not report it.
    pub io_cpu_share: Option<f64>,
    /// The share of their time that jobs waited for the system; `None`: uproot does not report it.
    pub waited_share: Option<f64>,
    /// The bytes that jobs wanted.
    pub asked: u64,
    /// The bytes that the system sent for that; `None`: not known.
    pub moved: Option<u64>,
    /// The number of requests.
    pub requests: u64,
    /// How uproot opened the files, if the jobs were its.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened_with: Option<OpenedWith>,
}

/// Returns the median CPU efficiency of a repeat's jobs.
pub(super) fn efficiency(jobs: &[JobTally]) -> f64 {
    median(&jobs.iter().map(JobTally::efficiency).collect::<Vec<_>>()).unwrap_or(0.0)
}

/// Returns the client's CPU time of the work. Of jobs it is their own: this process's would have that of a delaying
/// proxy, and that of uproot's processes the imports before the start.
pub(super) fn client_cpu_s(measured: &Measured) -> f64 {
    let jobs = &measured.tally.jobs;
    if jobs.is_empty() { measured.client_cpu_s } else { jobs.iter().map(|job| job.cpu_s).sum() }
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
    let first = all.first().and_then(|job| job.opened_with);
    let is_same = all.iter().all(|job| job.opened_with == first);
    let opened_with = if is_same { first } else { Some(OpenedWith::Several) };
    let of_ours = |share: f64| opened_with.is_none().then_some(share);
    let (asked, moved): (u64, u64) = (count(|job| job.asked), count(|job| job.moved));
    let event_rates: Vec<f64> = repeats.iter().map(rate).collect();
    Some(Jobs {
        efficiency: [
            median(&each)?,
            each.iter().copied().fold(f64::INFINITY, f64::min),
            each.iter().copied().fold(0.0, f64::max),
        ],
        event_rate: median(&event_rates)?,
        event_rates,
        io_cpu_share: of_ours(share(sum(|job| job.io_cpu_s), sum(|job| job.cpu_s))),
        waited_share: of_ours(share(sum(|job| job.waited_s), sum(|job| job.wall_s))),
        asked,
        moved: (moved > 0 || asked == 0).then_some(moved),
        requests: count(|job| job.requests),
        opened_with,
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
        assert_eq!(found.event_rates, [30.0, 1.0]);
        assert!((found.io_cpu_share.unwrap() - 4.0 / 22.0).abs() < 1e-9);
        assert!((efficiency(&first) - 0.7).abs() < 1e-9);
        assert!(are_many(&first) && !are_many(&second) && !are_many(&[]));
        assert_eq!(sum(&[]), None);
        // What uproot does not report is not 0.
        let by_uproot = [JobTally { asked: 7, opened_with: Some(OpenedWith::Weir), ..job(5.0, 100) }];
        let found = sum(&[(&by_uproot, 10.0)]).unwrap();
        assert_eq!((found.io_cpu_share, found.waited_share, found.moved, found.asked), (None, None, None, 7));
        assert_eq!(found.opened_with, Some(OpenedWith::Weir));
    }
}
