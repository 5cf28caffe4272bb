//! From trials to rows.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::ceiling::{At, Ceiling, put};
use super::flags::{self, Flag};
use super::jobs::{self, Jobs};
use super::verdict::{self, Verdict};
use super::{NetworkDetails, machines};
use crate::campaign::{Campaign, Phase, System, Work};
use crate::fault::FaultRecord;
use crate::latency::Latency;
use crate::measure::Measured;
use crate::result::{Caches, PhaseRecord, TrialRecord};
use crate::statistics::{Comparison, Interval, Recovery, compare, median, median_interval, recovery, steady};
use crate::target::Failure;
use crate::workload::{Unit, Workload};

/// Confidence of all intervals.
pub const CONFIDENCE: f64 = 0.95;
/// How wide an interval may be to each side before it is told of.
const WIDTH_MAX: f64 = 0.1;
/// Wall time under which a phase has no steady state to speak of.
const STEADY_SECONDS_MIN: usize = 30;

/// Where a figure comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Source {
    /// Line of `trials.jsonl`, from 0.
    pub trial: usize,
    /// Place in its phases, from 0.
    pub phase: usize,
}

/// One system in a row.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// Its name.
    pub system: String,
    /// The figure of each repeat.
    pub values: Vec<f64>,
    /// Where each of these is recorded.
    pub sources: Vec<Source>,
    /// Their median.
    pub median: f64,
    /// Where the true median lies.
    pub interval: Option<Interval>,
    /// Against the first system of the row.
    pub against_first: Option<Comparison>,
    /// Latencies of all repeats: 50, 99 and 99.9 % in microseconds.
    pub latency_us: Option<[u64; 3]>,
    /// CPU seconds of the client for each GB, or for each million operations.
    pub client_cpu: Option<f64>,
    /// CPU seconds of its server for each GB, or for each million operations; of watched servers that told all of it.
    pub server_cpu: Option<f64>,
    /// Agents whose share is not in it, and why.
    pub missing: Vec<String>,
    /// Agents whose own rate was far from the others', with their median rates against the median of all.
    pub outliers: Vec<Outlier>,
    /// Operations that began later than a detector could have waited, in all repeats.
    pub missed: u64,
    /// What was acknowledged and is not there any more, in all repeats.
    pub lost: u64,
    /// Operations that failed, in all repeats: of work during which something is broken they may.
    pub failed: u64,
    /// Share of the bytes that each server moved, or each site, where the protocol tells.
    pub served: BTreeMap<String, f64>,
    /// Of a job: elapsed, user and system time in seconds, the median of the repeats.
    pub times_s: Option<[f64; 3]>,
    /// What a failure did to the rate, of each repeat.
    pub recoveries: Vec<Recovery>,
    /// Seconds at the beginning that its figures leave out, in the repeat that has most of them.
    pub warm_up_s: u32,
    /// What its jobs came to, where workers are jobs.
    #[serde(default)]
    pub jobs: Option<Jobs>,
    /// What the stages below it reached by themselves, the lowest first.
    pub ceilings: Vec<Ceiling>,
    /// Of flows: what else came of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkDetails>,
    /// What bounded it; `None` where it must not be used.
    pub verdict: Option<Verdict>,
    /// What speaks against it.
    pub flags: BTreeSet<Flag>,
}

impl Cell {
    /// The figure, if it may be used.
    #[must_use]
    pub fn usable(&self) -> Option<f64> {
        (!self.flags.iter().any(|flag| flag.is_fatal())).then_some(self.median)
    }
}

/// A machine that is unlike the others.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Outlier {
    /// Its name.
    pub agent: String,
    /// Its rate against the median of all agents'.
    pub ratio: f64,
}

/// A phase of a work, on all systems.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The work's name.
    pub work: String,
    /// Its parameters.
    pub parameters: Vec<(String, String)>,
    /// The phase.
    pub phase: String,
    /// What its figures count.
    pub unit: Unit,
    /// The systems, in the campaign's order.
    pub cells: Vec<Cell>,
}

/// All rows.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// In the campaign's order.
    pub rows: Vec<Row>,
}

/// Where a phase stands: its work, then its place in that; roles follow each other.
type Place = (usize, usize);
/// What each system did there, repeat by repeat.
type BySystem<'a> = BTreeMap<usize, Vec<(Source, &'a TrialRecord, &'a PhaseRecord)>>;

/// Sums the trials of a campaign up; `memory_bytes` has the machine that measured, 0 where that is not known.
#[must_use]
pub fn summarise(trials: &[TrialRecord], campaign: &Campaign, memory_bytes: u64) -> Summary {
    let works = campaign.works();
    let mut all: BTreeMap<Place, BySystem<'_>> = BTreeMap::new();
    for (line, trial) in trials.iter().enumerate() {
        for (number, phase) in trial.phases.iter().enumerate() {
            let work = same_phase(&works, trial.trial.work, phase.number);
            let cells = all.entry((work, number)).or_default();
            cells.entry(trial.trial.system).or_default().push((Source { trial: line, phase: number }, trial, phase));
        }
    }
    let phase = |work: usize, number: usize| works.get(work).and_then(|work: &Work| work.phases.get(number));
    let at = |((work, _), cells): (&Place, &BySystem<'_>)| {
        let (_, _, record) = cells.values().next()?.first()?;
        let phase = phase(*work, record.number);
        Some(At { phase, row: row(cells, phase, campaign)? })
    };
    let mut rows: Vec<At<'_>> = all.iter().filter_map(at).collect();
    put(&mut rows, campaign);
    flags::put(&mut rows, trials, campaign, memory_bytes);
    verdict::put(&mut rows, trials, campaign);
    Summary { rows: rows.into_iter().map(|at| at.row).collect() }
}

/// The first work that has the very same phase: a new file has one writer, so works that differ in chunks alone write theirs alike, and what
/// they do there are repeats of one figure.
fn same_phase(works: &[Work], work: usize, number: usize) -> usize {
    let Some(this) = works.get(work) else { return work };
    if !matches!(this.phases.get(number), Some(Phase::Stream(spec)) if spec.makes_files()) {
        return work;
    }
    let is_same = |other: &Work| {
        let so_far = other.phases.get(..=number) == this.phases.get(..=number);
        other.name == this.name && other.targets == this.targets && so_far
    };
    works.iter().position(is_same).unwrap_or(work)
}

fn row(cells: &BySystem<'_>, of: Option<&Phase>, campaign: &Campaign) -> Option<Row> {
    let (_, trial, phase) = cells.values().next()?.first()?;
    let unit = of.map_or(Unit::Operations, |of| of.workload().unit());
    let made = |(system, some): (&usize, &Vec<_>)| cell(some, of?.workload(), campaign.systems.get(*system));
    let mut made: Vec<Cell> = cells.iter().filter_map(made).collect();
    let first = made.first().map(|cell| cell.values.clone()).unwrap_or_default();
    for cell in made.iter_mut().skip(1) {
        cell.against_first = compare(&cell.values, &first, CONFIDENCE);
    }
    Some(Row {
        work: trial.work.clone(),
        parameters: of.map_or_else(|| trial.parameters.clone(), |of| of.parameters(&trial.parameters)),
        phase: phase.phase.clone(),
        unit,
        cells: made,
    })
}

/// The figure of one repeat.
struct Figure {
    rate: f64,
    /// What of the beginning it leaves out.
    warm_up_s: u32,
    /// Whether nothing shows that it went on changing.
    is_steady: bool,
}

/// From the common start to the end of the last worker; of a long phase without its warm-up. What is done at its end, such as making durable, is
/// always in it.
#[allow(clippy::cast_precision_loss)] // counts and times
fn figure(measured: &Measured, of: &dyn Workload) -> Figure {
    let unit = of.unit();
    let rate = match unit {
        Unit::Bytes => measured.byte_rate(),
        Unit::Operations => measured.operation_rate(),
        Unit::Efficiency => jobs::efficiency(&measured.tally.jobs),
    };
    let whole = Figure { rate, warm_up_s: 0, is_steady: true };
    let series = measured.series(unit);
    // What is broken on purpose has no steady state, and nobody leaves that out.
    // A job's efficiency is that of the whole job.
    if series.len() < STEADY_SECONDS_MIN || of.expects_failures() || unit == Unit::Efficiency {
        return whole;
    }
    let Some(found) = steady(&series) else { return Figure { is_steady: false, ..whole } };
    let is_steady = found.trend.is_none();
    let cut = found.warm_up;
    let before: f64 = series.iter().take(cut).sum();
    let left = measured.wall_s - cut as f64;
    if cut == 0 || left <= 0.0 {
        return Figure { is_steady, ..whole };
    }
    let rate = (rate * measured.wall_s - before).max(0.0) / left;
    Figure { rate, warm_up_s: u32::try_from(cut).unwrap_or(u32::MAX), is_steady }
}

#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // counts and times
fn cell(some: &[(Source, &TrialRecord, &PhaseRecord)], of: &dyn Workload, system: Option<&System>) -> Option<Cell> {
    let (_, first, _) = some.first()?;
    let unit = of.unit();
    let mut flags = BTreeSet::new();
    let (mut values, mut latency) = (Vec::new(), Latency::default());
    let (mut cpu, mut amount, mut missed, mut lost, mut failed) = (0.0, 0.0, 0, 0, 0);
    let mut served: BTreeMap<String, f64> = BTreeMap::new();
    let mut times: [Vec<f64>; 3] = Default::default();
    let mut recoveries = Vec::new();
    let mut warm_up_s = 0;
    for (_, trial, phase) in some {
        let measured = &phase.measured;
        let figure = figure(measured, of);
        values.push(figure.rate);
        warm_up_s = warm_up_s.max(figure.warm_up_s);
        latency.merge(&measured.tally.latency);
        cpu += measured.client_cpu_s;
        missed += measured.tally.missed;
        lost += measured.tally.lost;
        failed += measured.tally.failed();
        for (server, bytes) in &measured.tally.served {
            let site = system.map_or(server.as_str(), |system| system.site_of(server));
            *served.entry(site.to_owned()).or_default() += *bytes as f64;
        }
        let user_s = (measured.client_cpu_s - measured.client_system_s).max(0.0);
        for (all, one) in times.iter_mut().zip([measured.wall_s, user_s, measured.client_system_s]) {
            all.push(one);
        }
        amount += match unit {
            Unit::Bytes | Unit::Efficiency => measured.tally.bytes as f64 / 1e9,
            Unit::Operations => measured.tally.operations as f64 / 1e6,
        };
        let series = measured.series(Unit::Bytes);
        let at = |fault: &FaultRecord| (fault.what == "fail").then(|| fault.at_s.round() as usize);
        // The faults stand with the first role; what checks afterwards has not met them.
        let failed_at = trial.phases.iter().filter(|other| other.number == phase.number);
        let failed_at = failed_at.flat_map(|other| &other.faults).find_map(at).filter(|_| phase.phase != "check");
        recoveries.extend(failed_at.and_then(|at_s| recovery(&series, at_s)));
        let of_failures = |failure| measured.tally.failures.get(&failure).copied().unwrap_or(0);
        let unsupported = of_failures(Failure::Unsupported) > 0 && measured.tally.operations == 0;
        let failures = (measured.tally.failed() > 0 && !of.expects_failures())
            || !measured.idle_workers.is_empty()
            || measured.tally.operations == 0;
        let found = [
            (Flag::WrongData, measured.tally.wrong > 0),
            (Flag::Lost, measured.tally.lost > 0),
            (Flag::Failures, failures && !unsupported),
            (Flag::Unsupported, unsupported),
            (Flag::EndedEarly, trial.ended.is_some()),
            (Flag::MaybeCached, phase.caches == Caches::Unknown),
            (Flag::MissedDeadlines, measured.tally.missed > 0),
            (Flag::LostAgents, !phase.machines.missing.is_empty()),
            (Flag::NotSteady, !figure.is_steady),
            (Flag::Synthetic, measured.tally.jobs.iter().any(|job| job.synthetic)),
            (Flag::ManyJobs, jobs::are_many(&measured.tally.jobs)),
        ];
        flags.extend(found.into_iter().filter(|(_, is_so)| *is_so).map(|(flag, _)| flag));
    }
    let middle = median(&values)?;
    let interval = median_interval(&values, CONFIDENCE);
    match interval {
        None => {
            flags.insert(Flag::FewRepeats);
        }
        Some(interval) if interval.high - middle > WIDTH_MAX * middle || middle - interval.low > WIDTH_MAX * middle => {
            flags.insert(Flag::Scattered);
        }
        Some(_) => {}
    }
    let outcomes: Vec<_> = some.iter().flat_map(|(_, _, phase)| &phase.measured.tally.network).collect();
    let of_jobs: Vec<_> =
        some.iter().map(|(_, _, phase)| (&phase.measured.tally.jobs[..], phase.measured.wall_s)).collect();
    let records: Vec<&PhaseRecord> = some.iter().map(|(_, _, phase)| *phase).collect();
    let outliers = machines::outliers(&records, unit);
    if !outliers.is_empty() {
        flags.insert(Flag::OutlierAgents);
    }
    let missing: BTreeSet<&String> = records.iter().flat_map(|phase| &phase.machines.missing).collect();
    let us = |q| latency.quantile(q).map_or(0, |took| u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    Some(Cell {
        system: first.system.clone(),
        values,
        sources: some.iter().map(|(source, _, _)| *source).collect(),
        median: middle,
        interval,
        against_first: None,
        latency_us: (latency.count() > 0).then(|| [us(0.5), us(0.99), us(0.999)]),
        // Of several roles the first has it all.
        client_cpu: (amount > 0.0 && cpu > 0.0).then(|| cpu / amount),
        server_cpu: machines::server_cpu_s(&records).filter(|_| amount > 0.0).map(|cpu| cpu / amount),
        missing: missing.into_iter().cloned().collect(),
        outliers,
        missed,
        lost,
        failed,
        served: shares(served),
        times_s: of.is_job().then(|| times.map(|all| median(&all).unwrap_or_default())),
        recoveries,
        warm_up_s,
        jobs: jobs::sum(&of_jobs),
        ceilings: Vec::new(),
        network: NetworkDetails::of(&outcomes),
        verdict: None,
        flags,
    })
}

/// Of the whole.
fn shares(mut served: BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let all: f64 = served.values().sum();
    served.values_mut().for_each(|bytes| *bytes /= all.max(1.0));
    served
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::Trial;
    use crate::load::{Reading, Tally};
    use crate::report::Stage;
    use crate::result::Machines;

    fn campaign() -> Campaign {
        let text = r#"
            name = "c"
            repeats = 8
            [[system]]
            name = "a"
            place = "root://a//"
            disk = "b"
            peer = "h:1"
            [[system]]
            name = "b"
            place = "/b"
            [[streams]]
            name = "w"
            phases = ["write"]
            file = "200MB"
            block = "1MiB"
            [[client]]
            name = "client"
            block = "1MiB"
            work = ["make", "make-and-sum"]
            [[network]]
            name = "net"
            directions = ["to", "from"]
            flows = [2, 1]
        "#;
        Campaign::parse(text).unwrap()
    }

    /// Of the streams: work 3, as flows with two and with one come first, and then the client alone.
    fn trial(system: usize, repeat: u32, megabytes: u64) -> TrialRecord {
        let mut tally = Tally { operations: 10, bytes: megabytes * 1_000_000, ..Tally::default() };
        tally.latency.add(std::time::Duration::from_millis(5));
        let reading = Reading { operations: 10, bytes: tally.bytes, failures: 0 };
        let measured = Measured {
            wall_s: 2.0,
            tally,
            seconds: vec![reading],
            client_cpu_s: 0.1,
            client_system_s: 0.0,
            client: vec![],
            idle_workers: vec![],
        };
        let machines = Machines::default();
        let (phase, faults) = ("write".to_owned(), Vec::new());
        let phase = PhaseRecord { number: 0, phase, began: 0, caches: Caches::Kept, faults, measured, machines };
        TrialRecord {
            trial: Trial { system, work: 3, repeat },
            system: ["a", "b"][system].into(),
            work: "w".into(),
            parameters: vec![],
            phases: vec![phase],
            ended: None,
        }
    }

    #[test]
    fn systems_stand_side_by_side() {
        let trials: Vec<_> =
            (0..8).flat_map(|n| [trial(0, n, 200 + u64::from(n)), trial(1, n, 400 + u64::from(n))]).collect();
        let summary = summarise(&trials, &campaign(), 0);
        let [row] = &summary.rows[..] else { panic!("{summary:?}") };
        let [a, b] = &row.cells[..] else { panic!("{row:?}") };
        assert_eq!((row.unit, a.median, b.median), (Unit::Bytes, 101.75e6, 201.75e6));
        assert!(a.interval.is_some() && a.flags.is_empty(), "{:?}", a.flags);
        let against = b.against_first.unwrap();
        assert!((1.9..2.1).contains(&against.ratio) && against.differs() == Some(true));
        assert!(b.latency_us.is_some_and(|[p50, ..]| (4990..5020).contains(&p50)));
    }

    #[test]
    fn new_files_have_one_writer_whatever_their_chunks_are_later() {
        let text = r#"
            name = "c"
            repeats = 2
            [[system]]
            name = "a"
            place = "/a"
            [[streams]]
            name = "w"
            phases = ["write", "rewrite"]
            file = "200MB"
            block = "1MiB"
            streams = [1, 6]
            chunks = [2, 4]
        "#;
        let campaign = Campaign::parse(text).unwrap();
        let works = campaign.works();
        let mut trials = Vec::new();
        for (work, repeat) in (0..works.len()).flat_map(|work| [(work, 0), (work, 1)]) {
            let mut trial = trial(0, repeat, 200);
            (trial.trial.work, trial.parameters) = (work, works[work].parameters.clone());
            let mut rewrite = trial.phases[0].clone();
            (rewrite.number, rewrite.phase) = (1, "rewrite".to_owned());
            trial.phases.push(rewrite);
            trials.push(trial);
        }
        let summary = summarise(&trials, &campaign, 0);
        let row = |row: &Row| {
            let of = |name: &str| row.parameters.iter().find(|(key, _)| key == name).unwrap().1.clone();
            (row.phase.clone(), of("streams"), of("chunks"), row.cells[0].values.len())
        };
        let mut rows: Vec<_> = summary.rows.iter().map(row).collect();
        rows.sort();
        let right = [
            ("rewrite", "1", "2", 2),
            ("rewrite", "1", "4", 2),
            ("rewrite", "6", "2", 2),
            ("rewrite", "6", "4", 2),
            ("write", "1", "1", 4),
            ("write", "6", "1", 4),
        ];
        assert_eq!(rows, right.map(|(phase, streams, chunks, n)| (phase.into(), streams.into(), chunks.into(), n)));
    }

    #[test]
    fn what_speaks_against_a_figure_is_told() {
        let mut trials: Vec<_> = (0..3).map(|n| trial(0, n, 200)).collect();
        trials[1].phases[0].measured.tally.wrong = 1;
        trials[2].phases[0].caches = Caches::Unknown;
        trials[0].ended = Some("stopped".into());
        let flags = &summarise(&trials, &campaign(), 0).rows[0].cells[0].flags;
        assert_eq!(
            flags.iter().copied().collect::<Vec<_>>(),
            vec![Flag::WrongData, Flag::EndedEarly, Flag::MaybeCached, Flag::FewRepeats]
        );
        let scattered: Vec<_> = (0..8).map(|n| trial(0, n, 100 + 50 * u64::from(n))).collect();
        assert!(summarise(&scattered, &campaign(), 0).rows[0].cells[0].flags.contains(&Flag::Scattered));
    }

    #[test]
    fn the_warm_up_of_a_long_phase_is_left_out() {
        let long = |repeat: u32, of: fn(u32) -> u64| {
            let mut trial = trial(0, repeat, 0);
            let measured = &mut trial.phases[0].measured;
            let mut done = 0;
            measured.seconds = (0..60)
                .map(|second| {
                    done += of(second) + u64::from((second + repeat) % 3);
                    Reading { operations: 1, bytes: done, failures: 0 }
                })
                .collect();
            (measured.tally.bytes, measured.wall_s) = (done, 60.0);
            trial
        };
        let starting: Vec<_> =
            (0..6).map(|n| long(n, |second| if second < 15 { 300_000 } else { 1_000_000 })).collect();
        let cell = summarise(&starting, &campaign(), 0).rows.remove(0).cells.remove(0);
        assert_eq!(cell.warm_up_s, 15);
        assert!((cell.median - 1e6).abs() < 1e3 && !cell.flags.contains(&Flag::NotSteady), "{cell:?}");
        let falling: Vec<_> = (0..6).map(|n| long(n, |second| 1_000_000 - 10_000 * u64::from(second))).collect();
        let cell = summarise(&falling, &campaign(), 0).rows.remove(0).cells.remove(0);
        assert!(cell.flags.contains(&Flag::NotSteady));
    }

    #[test]
    fn what_a_memory_can_hold_and_unequal_durability_are_told() {
        let trials: Vec<_> =
            (0..6).flat_map(|n| [trial(0, n, 200 + u64::from(n)), trial(1, n, 400 + u64::from(n))]).collect();
        let mut campaign = campaign();
        let flags = |campaign: &Campaign, memory: u64| -> Vec<Vec<Flag>> {
            let row = summarise(&trials, campaign, memory).rows.remove(0);
            row.cells.iter().map(|cell| cell.flags.iter().copied().collect()).collect()
        };
        // Made durable inside the timing: nothing of it is a memory's doing.
        assert_eq!(flags(&campaign, 1 << 40), [vec![], vec![]]);
        campaign.streams[0].durability = crate::target::Durability::None;
        let (equal, memory) = (Flag::UnequalDurability, Flag::FitsMemory);
        // What a server keeps in its memory is not known.
        assert_eq!(flags(&campaign, 1 << 40), [vec![equal], vec![memory, equal]]);
        assert_eq!(flags(&campaign, 100 << 20), [vec![equal], vec![equal]]);
        campaign.systems[0].place = crate::campaign::Many::One("/a".to_owned());
        assert_eq!(flags(&campaign, 100 << 20), [vec![], vec![]]);
        campaign.streams[0].direct = true;
        assert_eq!(flags(&campaign, 1 << 40), [vec![], vec![]]);
    }

    #[test]
    fn each_stage_is_the_ceiling_of_those_that_go_through_it() {
        let mut trials: Vec<_> = (0..8).flat_map(|n| [trial(0, n, 200), trial(1, n, 400)]).collect();
        for repeat in 0..8 {
            let mut alone = trial(0, repeat, 2000);
            alone.trial.work = 2;
            let mut summed = alone.phases[0].clone();
            summed.number = 1;
            summed.measured.tally.bytes = 600_000_000;
            alone.phases.push(summed);
            trials.push(alone);
            // Flows to the system, and from it: one stream writes, so only one flow to it bounds it.
            for (work, megabytes) in [(0, [7000, 7000]), (1, [500, 10])] {
                let mut flows = trial(0, repeat, megabytes[0]);
                flows.trial.work = work;
                let mut back = flows.phases[0].clone();
                (back.number, back.measured.tally.bytes) = (1, megabytes[1] * 1_000_000);
                flows.phases.push(back);
                trials.push(flows);
            }
        }
        let summary = summarise(&trials, &campaign(), 0);
        let row = summary.rows.iter().find(|row| row.work == "w" && row.cells.len() == 2).unwrap();
        let ceilings = |cell: &Cell| -> Vec<_> { cell.ceilings.iter().map(|c| (c.stage, c.rate, c.share)).collect() };
        // root:// sums what it sends.
        let right = [(Stage::Disk, 200e6, 0.5), (Stage::Network, 250e6, 0.4), (Stage::Client, 300e6, 1.0 / 3.0)];
        assert_eq!(ceilings(&row.cells[0]), right);
        assert_eq!(ceilings(&row.cells[1]), [(Stage::Client, 1000e6, 0.2)]);
    }
}
