//! From trials to rows.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::ceiling::{At, Ceiling, put};
use super::flags::{self, Flag};
use super::jobs::{self, Jobs};
use super::verdict::{self, Verdict};
use super::{NetworkDetails, Remark, machines};
use crate::campaign::{Campaign, Phase, System, Work};
use crate::fault::FaultRecord;
use crate::latency::Latency;
use crate::measure::Measured;
use crate::result::{Caches, PhaseRecord, RunHead, TrialRecord, latest};
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
    /// Repeats that ended before this was done, or within it: they are not in the figure, if there are others.
    #[serde(default)]
    pub left_out: u32,
    /// What went wrong first, where that is why there is no figure.
    #[serde(default)]
    pub complaint: Option<String>,
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
    /// What is to be said of trials.
    #[serde(default)]
    pub remarks: Vec<Remark>,
}

impl Summary {
    /// Whether all that was to be measured was, and nothing is wrong with it.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let usable = self.rows.iter().flat_map(|row| &row.cells).all(|cell| cell.usable().is_some());
        usable && !self.rows.is_empty() && !self.remarks.iter().any(|remark| remark.not_done)
    }
}

/// Where a row stands: its work, the phase's place in that, and the role's place in the phase.
type Place = (usize, usize, usize);
/// A phase that was recorded.
type Recorded<'a> = (Source, &'a TrialRecord, &'a PhaseRecord);

/// What one system did there.
struct Repeats<'a> {
    /// Its name.
    system: &'a str,
    /// Repeats that went to the end of the phase.
    whole: Vec<Recorded<'a>>,
    /// Those that ended within it.
    partial: Vec<Recorded<'a>>,
    /// How many did not do it, or not to its end.
    left_out: u32,
}

/// All systems there, in the campaign's order.
type BySystem<'a> = BTreeMap<usize, Repeats<'a>>;

/// Sums the trials of a campaign up; `head` has what is known of the machine that measured.
#[must_use]
pub fn summarise(trials: &[TrialRecord], campaign: &Campaign, head: &RunHead) -> Summary {
    let works = campaign.works();
    let latest = latest(trials);
    let all = by_place(&works, &latest);
    let at = |(place, cells): (&Place, &BySystem<'_>)| {
        let work = works.get(place.0);
        let phase = work.and_then(|work: &Work| work.phases.get(place.1));
        Some(At { phase, row: row(cells, work?, phase, campaign)? })
    };
    let mut rows: Vec<At<'_>> = all.iter().filter_map(at).collect();
    put(&mut rows, campaign);
    flags::put(&mut rows, trials, campaign, head.memory_bytes);
    verdict::put(&mut rows, trials, campaign, &head.machine);
    let remarks = latest.iter().flat_map(|(_, trial)| Remark::of(trial)).collect();
    Summary { rows: rows.into_iter().map(|at| at.row).collect(), remarks }
}

/// The phases of all trials, those that were not done among them.
fn by_place<'a>(works: &[Work], latest: &[(usize, &'a TrialRecord)]) -> BTreeMap<Place, BySystem<'a>> {
    let mut all: BTreeMap<Place, BySystem<'a>> = BTreeMap::new();
    fn of<'b, 'a>(cells: &'b mut BySystem<'a>, trial: &'a TrialRecord) -> &'b mut Repeats<'a> {
        let nothing = || Repeats { system: &trial.system, whole: Vec::new(), partial: Vec::new(), left_out: 0 };
        cells.entry(trial.trial.system).or_insert_with(nothing)
    }
    for (line, trial) in latest {
        let (mut role, mut before) = (0, None);
        for (number, phase) in trial.phases.iter().enumerate() {
            role = if before == Some(phase.number) { role + 1 } else { 0 };
            before = Some(phase.number);
            let repeats = of(
                all.entry((same_phase(works, trial.trial.work, phase.number), phase.number, role)).or_default(),
                trial,
            );
            let some = if trial.is_whole(phase.number) { &mut repeats.whole } else { &mut repeats.partial };
            some.push((Source { trial: *line, phase: number }, *trial, phase));
        }
    }
    for (_, trial) in latest {
        // Of records that do not say which phases were not done, those that are there.
        let recorded = trial.phases.iter().map(|phase| phase.number).filter(|number| !trial.is_whole(*number));
        for number in trial.not_done.iter().copied().chain(recorded).collect::<BTreeSet<_>>() {
            let work = same_phase(works, trial.trial.work, number);
            all.entry((work, number, 0)).or_default();
            for (_, cells) in all.range_mut((work, number, 0)..=(work, number, usize::MAX)) {
                of(cells, trial).left_out += 1;
            }
        }
    }
    all
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

fn row(cells: &BySystem<'_>, work: &Work, of: Option<&Phase>, campaign: &Campaign) -> Option<Row> {
    let unit = of.map_or(Unit::Operations, |of| of.workload().unit());
    let recorded = cells.values().flat_map(|of| of.whole.iter().chain(&of.partial)).next();
    let title = recorded.map(|(_, _, phase)| phase.phase.clone()).or_else(|| Some(of?.workload().title()))?;
    let made = |(system, some): (&usize, &Repeats<'_>)| Some(cell(some, of?.workload(), campaign.systems.get(*system)));
    let mut made: Vec<Cell> = cells.iter().filter_map(made).collect();
    let first = made.first().filter(|cell| cell.usable().is_some()).map(|cell| cell.values.clone()).unwrap_or_default();
    for cell in made.iter_mut().skip(1) {
        cell.against_first = compare(&cell.values, &first, CONFIDENCE);
    }
    let parameters = of.map_or_else(|| work.parameters.clone(), |of| of.parameters(&work.parameters));
    Some(Row { work: work.name.clone(), parameters, phase: title, unit, cells: made })
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
    let each = measured.second_s.max(1) as usize;
    if series.len() * each < STEADY_SECONDS_MIN || of.expects_failures() || unit == Unit::Efficiency {
        return whole;
    }
    let Some(found) = steady(&series) else { return Figure { is_steady: false, ..whole } };
    let is_steady = found.trend.is_none();
    let before = series.iter().take(found.warm_up).sum::<f64>() * each as f64;
    let cut = found.warm_up * each;
    let left = measured.wall_s - cut as f64;
    if cut == 0 || left <= 0.0 {
        return Figure { is_steady, ..whole };
    }
    let rate = (rate * measured.wall_s - before).max(0.0) / left;
    Figure { rate, warm_up_s: u32::try_from(cut).unwrap_or(u32::MAX), is_steady }
}

#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // counts and times
fn cell(repeats: &Repeats<'_>, of: &dyn Workload, system: Option<&System>) -> Cell {
    let some = if repeats.whole.is_empty() { &repeats.partial } else { &repeats.whole };
    let unit = of.unit();
    let mut flags = BTreeSet::new();
    if repeats.whole.is_empty() {
        flags.insert(Flag::EndedEarly);
    }
    let mut complaint = None;
    for (_, _, phase) in repeats.whole.iter().chain(&repeats.partial) {
        let tally = &phase.measured.tally;
        // What is wrong, or gone, is so whether the repeat went on or not.
        flags.extend((tally.wrong > 0).then_some(Flag::WrongData));
        flags.extend((tally.lost > 0).then_some(Flag::Lost));
        let said = tally.complaints.first().map(|first| first.text.clone());
        complaint = complaint.or(said).or_else(|| phase.measured.idle_workers.first().cloned());
    }
    let (mut values, mut latency) = (Vec::new(), Latency::default());
    let (mut cpu, mut amount, mut missed, mut failed) = (0.0, 0.0, 0, 0);
    let lost = repeats.whole.iter().chain(&repeats.partial).map(|(_, _, phase)| phase.measured.tally.lost).sum();
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
        let at = |fault: &FaultRecord| (fault.what == "fail").then(|| fault.at_s.round() as usize);
        // The faults stand with the first role; what checks afterwards has not met them.
        let failed_at = trial.phases.iter().filter(|other| other.number == phase.number);
        let failed_at = failed_at.flat_map(|other| &other.faults).find_map(at).filter(|_| phase.phase != "check");
        recoveries.extend(failed_at.and_then(|at_s| recovered(measured, at_s)));
        let of_failures = |failure| measured.tally.failures.get(&failure).copied().unwrap_or(0);
        let unsupported = of_failures(Failure::Unsupported) > 0 && measured.tally.operations == 0;
        let failures = (measured.tally.failed() > 0 && !of.expects_failures())
            || !measured.idle_workers.is_empty()
            || measured.tally.operations == 0;
        let found = [
            (Flag::Failures, failures && !unsupported),
            (Flag::Unsupported, unsupported),
            (Flag::MaybeCached, phase.caches == Caches::Unknown),
            (Flag::MissedDeadlines, measured.tally.missed > 0),
            (Flag::LostAgents, !phase.machines.missing.is_empty()),
            (Flag::NotSteady, !figure.is_steady),
            (Flag::Synthetic, measured.tally.jobs.iter().any(|job| job.synthetic)),
            (Flag::ManyJobs, jobs::are_many(&measured.tally.jobs)),
        ];
        flags.extend(found.into_iter().filter(|(_, is_so)| *is_so).map(|(flag, _)| flag));
    }
    let middle = median(&values).unwrap_or_default();
    let interval = median_interval(&values, CONFIDENCE);
    match interval {
        None => flags.extend((!values.is_empty()).then_some(Flag::FewRepeats)),
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
    Cell {
        system: repeats.system.to_owned(),
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
        left_out: repeats.left_out,
        complaint: complaint.filter(|_| flags.iter().any(|flag| flag.is_fatal())),
        flags,
    }
}

/// What a failure did to the rate of a phase, up to that phase's own end: its series goes on until all roles have ended.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // some seconds
fn recovered(measured: &Measured, at_s: usize) -> Option<Recovery> {
    let each = measured.second_s.max(1) as usize;
    let mut series = measured.series(Unit::Bytes);
    series.truncate(measured.wall_s.max(0.0).floor() as usize / each);
    let found = recovery(&series, at_s / each)?;
    let back_after_s = found.back_after_s.map(|after| after * each);
    Some(Recovery { still_s: found.still_s * each, back_after_s, ..found })
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
    use crate::target::TargetError;

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
            second_s: 1,
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
            not_done: vec![],
            left: None,
        }
    }

    #[test]
    fn systems_stand_side_by_side() {
        let trials: Vec<_> =
            (0..8).flat_map(|n| [trial(0, n, 200 + u64::from(n)), trial(1, n, 400 + u64::from(n))]).collect();
        let summary = summarise(&trials, &campaign(), &RunHead::default());
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
        let summary = summarise(&trials, &campaign, &RunHead::default());
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
        let flags = &summarise(&trials, &campaign(), &RunHead::default()).rows[0].cells[0].flags;
        assert_eq!(
            flags.iter().copied().collect::<Vec<_>>(),
            vec![Flag::WrongData, Flag::MaybeCached, Flag::FewRepeats]
        );
        let scattered: Vec<_> = (0..8).map(|n| trial(0, n, 100 + 50 * u64::from(n))).collect();
        assert!(
            summarise(&scattered, &campaign(), &RunHead::default()).rows[0].cells[0].flags.contains(&Flag::Scattered)
        );
    }

    fn ended(mut trial: TrialRecord, at: usize) -> TrialRecord {
        (trial.ended, trial.not_done) = (Some("no agent is left".into()), (at..2).collect());
        trial.phases.truncate(at + 1);
        trial
    }

    /// With a second phase.
    fn two_phases(repeat: u32) -> TrialRecord {
        let mut trial = trial(0, repeat, 200);
        let read = PhaseRecord { number: 1, phase: "read".into(), ..trial.phases[0].clone() };
        trial.phases.push(read);
        trial
    }

    fn reading_campaign() -> Campaign {
        let mut campaign = campaign();
        campaign.streams[0].phases.push(crate::workload::Access::Read);
        campaign
    }

    #[test]
    fn a_repeat_that_ended_early_is_left_out_from_there_on() {
        let mut trials: Vec<_> = (0..7).map(two_phases).collect();
        // One whose second phase was cut off, with a figure that is none.
        trials[3] = ended(two_phases(3), 1);
        trials[3].phases[1].measured.tally.bytes = 1;
        let summary = summarise(&trials, &reading_campaign(), &RunHead::default());
        let [write, read] = &summary.rows[..] else { panic!("{summary:?}") };
        let (write, read) = (&write.cells[0], &read.cells[0]);
        assert_eq!((write.values.len(), write.left_out, write.usable()), (7, 0, Some(100e6)));
        assert_eq!((read.values.len(), read.left_out, read.usable()), (6, 1, Some(100e6)));
        assert!(!summary.is_whole());
        let text = crate::report::text(&summary);
        assert!(text.contains("without 1 repeat that ended early"), "{text}");
        assert!(text.contains("repeat 4 of w: ") && text.contains(" on a: ended early: no agent is left"), "{text}");
        // What it read wrong before it ended is wrong all the same.
        trials[3].phases[1].measured.tally.wrong = 1;
        assert!(
            summarise(&trials, &reading_campaign(), &RunHead::default()).rows[1].cells[0]
                .flags
                .contains(&Flag::WrongData)
        );
        // Done again, all is well.
        trials.push(two_phases(3));
        let again = summarise(&trials, &reading_campaign(), &RunHead::default());
        assert_eq!((again.rows[1].cells[0].values.len(), again.is_whole()), (7, true), "{again:?}");
        assert_eq!(again.rows[1].cells[0].sources.last(), Some(&Source { trial: 7, phase: 1 }));
    }

    #[test]
    fn what_was_not_done_has_a_row_that_says_so() {
        // All agents were lost in the first phase: nothing is recorded of either.
        let mut trial = ended(two_phases(0), 0);
        trial.phases.clear();
        let summary = summarise(&[trial], &reading_campaign(), &RunHead::default());
        let phases: Vec<_> = summary.rows.iter().map(|row| row.phase.as_str()).collect();
        assert_eq!(phases, ["write", "read"]);
        for row in &summary.rows {
            let cell = &row.cells[0];
            assert_eq!((cell.usable(), cell.left_out, &cell.system[..]), (None, 1, "a"));
            assert!(cell.flags.contains(&Flag::EndedEarly) && row.work == "w", "{cell:?}");
        }
        assert!(crate::report::text(&summary).contains("no figure: ended before all was done [E]"));
    }

    #[test]
    fn what_could_not_be_removed_is_a_remark() {
        let mut trials: Vec<_> = (0..6).map(|n| trial(0, n, 200)).collect();
        trials[2].left = Some("not all that it made could be removed: .nfs0001\u{1b}[2J".into());
        let summary = summarise(&trials, &campaign(), &RunHead::default());
        assert!(summary.is_whole() && summary.rows[0].cells[0].usable().is_some());
        let text = crate::report::text(&summary);
        assert!(text.contains(" on a: not all that it made could be removed: .nfs0001 [2J"), "{text}");
    }

    #[test]
    fn what_failed_first_is_named() {
        let mut trials: Vec<_> = (0..6).map(|n| trial(0, n, 200)).collect();
        let error = TargetError::Short { what: "read x".into(), moved: 1, asked: 2 };
        trials[1].phases[0].measured.tally.add_failure(std::time::Duration::ZERO, &error);
        let text = crate::report::text(&summarise(&trials, &campaign(), &RunHead::default()));
        assert!(text.contains(&format!("no figure: operations failed: {error}")), "{text}");
    }

    /// A driver that leaves out a phase of the middle has its later ones in their own rows.
    #[test]
    fn phases_that_a_system_does_not_do_move_no_others() {
        let mut other = two_phases(0);
        (other.trial.system, other.system) = (1, "b".into());
        other.phases.remove(0);
        let summary = summarise(&[two_phases(0), other], &reading_campaign(), &RunHead::default());
        let systems = |row: &Row| row.cells.iter().map(|cell| cell.system.clone()).collect::<Vec<_>>();
        assert_eq!(summary.rows.iter().map(systems).collect::<Vec<_>>(), [vec!["a"], vec!["a", "b"]]);
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
        let cell = summarise(&starting, &campaign(), &RunHead::default()).rows.remove(0).cells.remove(0);
        assert_eq!(cell.warm_up_s, 15);
        assert!((cell.median - 1e6).abs() < 1e3 && !cell.flags.contains(&Flag::NotSteady), "{cell:?}");
        let falling: Vec<_> = (0..6).map(|n| long(n, |second| 1_000_000 - 10_000 * u64::from(second))).collect();
        let cell = summarise(&falling, &campaign(), &RunHead::default()).rows.remove(0).cells.remove(0);
        assert!(cell.flags.contains(&Flag::NotSteady));
    }

    #[test]
    fn seconds_that_are_put_together_are_as_long_as_they_are() {
        let long = |second_s: u32| {
            let mut trial = trial(0, 0, 0);
            let measured = &mut trial.phases[0].measured;
            let rate = |second: u32| if second < 16 * second_s { 100_000 } else { 1_000_000 };
            let mut done = 0;
            let all: Vec<Reading> = (0..100 * second_s)
                .map(|second| {
                    done += rate(second);
                    Reading { operations: 1, bytes: done, failures: 0 }
                })
                .collect();
            measured.seconds = all.into_iter().skip(second_s as usize - 1).step_by(second_s as usize).collect();
            measured.seconds.push(Reading { operations: 1, bytes: done, failures: 0 });
            (measured.second_s, measured.tally.bytes, measured.wall_s) = (second_s, done, f64::from(100 * second_s));
            summarise(&[trial], &campaign(), &RunHead::default()).rows.remove(0).cells.remove(0)
        };
        for second_s in [1, 8] {
            let cell = long(second_s);
            assert!((cell.median - 1e6).abs() < 1e3, "{second_s}: {}", cell.median);
            assert_eq!(cell.warm_up_s, 20 * second_s, "{second_s}");
        }
    }

    #[test]
    fn what_comes_after_the_end_of_a_phase_is_no_standing_still() {
        let mut trial = trial(0, 0, 0);
        let measured = &mut trial.phases[0].measured;
        // Twenty seconds at 100, of which five stood still; then other roles went on for ten.
        let rates = (0..30).map(|second| if second >= 20 || (10..15).contains(&second) { 0 } else { 100 });
        let mut done = 0;
        let sums = rates.map(|rate| {
            done += rate;
            Reading { operations: 1, bytes: done, failures: 0 }
        });
        measured.seconds = sums.collect();
        measured.wall_s = 20.4;
        let found = recovered(measured, 10).unwrap();
        assert_eq!((found.still_s, found.back_after_s), (5, Some(5)));
        // The same in entries of two seconds.
        measured.seconds = measured.seconds.iter().skip(1).step_by(2).copied().collect();
        measured.second_s = 2;
        let found = recovered(measured, 10).unwrap();
        assert_eq!((found.still_s, found.back_after_s), (4, Some(4)));
    }

    #[test]
    fn what_a_memory_can_hold_and_unequal_durability_are_told() {
        let trials: Vec<_> =
            (0..6).flat_map(|n| [trial(0, n, 200 + u64::from(n)), trial(1, n, 400 + u64::from(n))]).collect();
        let mut campaign = campaign();
        let flags = |campaign: &Campaign, memory: u64| -> Vec<Vec<Flag>> {
            let row =
                summarise(&trials, campaign, &RunHead { memory_bytes: memory, ..RunHead::default() }).rows.remove(0);
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
        // HTTP promises nothing at a close, whatever others do.
        campaign.streams[0].durability = crate::target::Durability::Close;
        assert_eq!(flags(&campaign, 1 << 40), [vec![], vec![]]);
        campaign.systems[0].place = crate::campaign::Many::One("http://a/".to_owned());
        assert_eq!(flags(&campaign, 1 << 40), [vec![equal], vec![equal]]);
    }

    #[test]
    fn reads_that_a_servers_memory_can_serve_are_told() {
        let trials: Vec<_> = (0..6)
            .flat_map(|n| {
                let mut other = trial(1, n, 400);
                (other.phases[0].number, other.phases[0].phase) = (1, "random-read".into());
                let mut one = two_phases(n);
                one.phases[1].phase = "random-read".into();
                [one, other]
            })
            .collect();
        let mut campaign = campaign();
        campaign.streams[0].phases.push(crate::workload::Access::RandomRead);
        let flags = |campaign: &Campaign, memory_bytes: u64| -> Vec<Vec<Flag>> {
            let row = summarise(&trials, campaign, &RunHead { memory_bytes, ..RunHead::default() }).rows.remove(1);
            row.cells.iter().map(|cell| cell.flags.iter().copied().collect()).collect()
        };
        // What a server elsewhere has is not known; by path this machine's memory counts.
        assert_eq!(flags(&campaign, 1), [vec![Flag::MaybeCached], vec![]]);
        assert_eq!(flags(&campaign, 1 << 40), [vec![Flag::MaybeCached], vec![Flag::FitsMemory]]);
        campaign.systems[0].place = crate::campaign::Many::One("root://localhost//".to_owned());
        assert_eq!(flags(&campaign, 1), [vec![], vec![]]);
        assert_eq!(flags(&campaign, 1 << 40), [vec![Flag::MaybeCached], vec![Flag::FitsMemory]]);
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
        let summary = summarise(&trials, &campaign(), &RunHead::default());
        let row = summary.rows.iter().find(|row| row.work == "w" && row.cells.len() == 2).unwrap();
        let ceilings = |cell: &Cell| -> Vec<_> { cell.ceilings.iter().map(|c| (c.stage, c.rate, c.share)).collect() };
        // root:// sums what it sends.
        let right = [(Stage::Disk, 200e6, 0.5), (Stage::Network, 250e6, 0.4), (Stage::Client, 300e6, 1.0 / 3.0)];
        assert_eq!(ceilings(&row.cells[0]), right);
        assert_eq!(ceilings(&row.cells[1]), [(Stage::Client, 1000e6, 0.2)]);
    }
}
