//! From trials to rows.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::ceiling::{Ceiling, PlacedRow, put};
use super::flags::{self, Flag};
use super::jobs::{self, Jobs};
use super::settings::{self, Changed, DifferingSetting, OutlierSetting};
use super::verdict::{self, Verdict};
use super::{NetworkDetails, Remark, machines};
use crate::campaign::{Campaign, Phase, System, Work};
use crate::fault::FaultRecord;
use crate::latency::Latency;
use crate::measure::Measured;
use crate::result::{Caches, PhaseRecord, RunHead, TrialRecord, known_settings, latest};
use crate::statistics::{Comparison, Interval, Recovery, compare, median, median_interval, recovery, steady};
use crate::target::{AutoWindow, Failure};
use crate::workload::{Unit, Workload};

/// The confidence of all intervals.
pub const CONFIDENCE: f64 = 0.95;
/// The largest width of an interval to each side without a flag.
const WIDTH_MAX: f64 = 0.1;
/// Seconds of a phase without a flag.
const BRIEF_S: f64 = 1.0;
/// The least data for which CPU time for each GB is shown. The kernel counts the time of processes in steps of 10 ms,
/// and each phase has costs that do not depend on its data.
const CPU_BYTES_MIN: f64 = 100e6;
/// The shortest phase that is examined for a steady state.
const STEADY_SECONDS_MIN: usize = 30;

/// The source of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Source {
    /// The line in `trials.jsonl`, from 0.
    pub trial: usize,
    /// The index among its phases, from 0.
    pub phase: usize,
}

/// One system in a row.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// Its name.
    pub system: String,
    /// The figure of each repeat.
    pub values: Vec<f64>,
    /// The source of each value.
    pub sources: Vec<Source>,
    /// Their median.
    pub median: f64,
    /// The interval of the true median.
    pub interval: Option<Interval>,
    /// The ratio to the first system of the row.
    pub against_first: Option<Comparison>,
    /// For another tool's figure: the ratio of the bench's own figure on the same work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ours: Option<Comparison>,
    /// The same for events a second, if the tool's figure is the CPU efficiency of jobs: a tool that burns CPU looks
    /// efficient without being fast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ours_event_rate: Option<Comparison>,
    /// The latencies of all repeats: 50, 99 and 99.9 %, in microseconds.
    pub latency_us: Option<[u64; 3]>,
    /// The client's CPU seconds for each GB, or for each million operations.
    pub client_cpu: Option<f64>,
    /// The same for its server, if watched servers reported all of it.
    pub server_cpu: Option<f64>,
    /// The agents whose share is missing, with the reason.
    pub missing: Vec<String>,
    /// The agents whose rate was far from the others', with their median rates relative to the median of all.
    pub outliers: Vec<Outlier>,
    /// Operations that started later than a detector could have waited, in all repeats.
    pub missed: u64,
    /// Acknowledged data that are missing, in all repeats.
    pub lost: u64,
    /// Failed operations, in all repeats. They are allowed while something is broken on purpose.
    pub failed: u64,
    /// The share of bytes that each server or site moved, if the protocol reveals the server.
    pub served: BTreeMap<String, f64>,
    /// How many requests automatic windows allowed under way on a file, in all repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_window: Option<AutoWindow>,
    /// For a job: elapsed, user and system time in seconds, the median of the repeats.
    pub times_s: Option<[f64; 3]>,
    /// The effect of a failure on the rate, for each repeat.
    pub recoveries: Vec<Recovery>,
    /// The seconds at the start that the figures leave out, in the repeat with most of them.
    pub warm_up_s: u32,
    /// Its jobs, if workers are jobs.
    #[serde(default)]
    pub jobs: Option<Jobs>,
    /// The rates of the stages below it, the lowest first.
    pub ceilings: Vec<Ceiling>,
    /// For network tests: further results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkDetails>,
    /// The bottleneck; `None`: the figure must not be used.
    pub verdict: Option<Verdict>,
    /// Repeats that ended before or within this phase. They are left out if there are others.
    #[serde(default)]
    pub left_out: u32,
    /// The first error, if it is the reason why there is no figure.
    #[serde(default)]
    pub complaint: Option<String>,
    /// The doubts about the figure.
    pub flags: BTreeSet<Flag>,
}

impl Cell {
    /// A cell with these values and no further results.
    #[cfg(test)]
    pub(super) fn for_test(system: &str, values: &[f64], median: f64, flags: &[Flag]) -> Self {
        Self {
            system: system.to_owned(),
            values: values.to_vec(),
            sources: vec![],
            median,
            interval: None,
            against_first: None,
            ours: None,
            ours_event_rate: None,
            latency_us: None,
            client_cpu: None,
            server_cpu: None,
            missing: vec![],
            outliers: vec![],
            missed: 0,
            lost: 0,
            failed: 0,
            served: BTreeMap::new(),
            auto_window: None,
            times_s: None,
            recoveries: vec![],
            warm_up_s: 0,
            jobs: None,
            ceilings: vec![],
            network: None,
            verdict: None,
            left_out: 0,
            complaint: None,
            flags: flags.iter().copied().collect(),
        }
    }

    /// Returns the figure, if it may be used.
    #[must_use]
    pub fn usable(&self) -> Option<f64> {
        (!self.flags.iter().any(|flag| flag.is_fatal())).then_some(self.median)
    }
}

/// A machine that differs from the others.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Outlier {
    /// Its name.
    pub agent: String,
    /// Its rate relative to the median of all agents.
    pub ratio: f64,
    /// Settings in which it differs from most of the others, as possible explanations.
    #[serde(default)]
    pub apart: Vec<OutlierSetting>,
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
    /// The unit of its figures.
    pub unit: Unit,
    /// The systems, in the campaign's order.
    pub cells: Vec<Cell>,
}

/// All rows.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// In the campaign's order.
    pub rows: Vec<Row>,
    /// Remarks on trials.
    #[serde(default)]
    pub remarks: Vec<Remark>,
    /// Settings that differ among machines with the same task.
    #[serde(default)]
    pub unlike: Vec<DifferingSetting>,
    /// Settings that changed during the run.
    #[serde(default)]
    pub changed: Vec<Changed>,
}

impl Summary {
    /// Whether everything was measured without an error.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let usable = self.rows.iter().flat_map(|row| &row.cells).all(|cell| cell.usable().is_some());
        usable && !self.rows.is_empty() && !self.remarks.iter().any(|remark| remark.not_done)
    }
}

/// The key of a row: its work, the phase's index in it, and the role's index in the phase.
type TargetDir = (usize, usize, usize);
/// A recorded phase.
type Recorded<'a> = (Source, &'a TrialRecord, &'a PhaseRecord);

/// The repeats of one system.
struct Repeats<'a> {
    /// Its name.
    system: &'a str,
    /// Repeats that completed the phase.
    whole: Vec<Recorded<'a>>,
    /// Repeats that ended within it.
    partial: Vec<Recorded<'a>>,
    /// The number of repeats that did not do it, or not completely.
    left_out: u32,
}

/// All systems, in the campaign's order.
type BySystem<'a> = BTreeMap<usize, Repeats<'a>>;

/// Sums up the trials of a campaign. `head` describes the machine that measured.
#[must_use]
pub fn summarise(trials: &[TrialRecord], campaign: &Campaign, head: &RunHead) -> Summary {
    let works = campaign.works();
    let latest = latest(trials);
    let all = by_place(&works, &latest);
    let at = |(place, cells): (&TargetDir, &BySystem<'_>)| {
        let work = works.get(place.0);
        let phase = work.and_then(|work: &Work| work.phases.get(place.1));
        Some(PlacedRow { phase, row: row(cells, work?, phase, campaign)? })
    };
    let mut rows: Vec<PlacedRow<'_>> = all.iter().filter_map(at).collect();
    put(&mut rows, campaign);
    put_beside_tools(&mut rows);
    flags::put(&mut rows, trials, campaign, head);
    leave_out_coarse_cpu(&mut rows, trials);
    verdict::put(&mut rows, trials, campaign, &head.machine);
    let remarks = latest.iter().flat_map(|(_, trial)| Remark::of(trial)).collect();
    let known = known_settings(head, trials);
    settings::put(rows.iter_mut().map(|at| &mut at.row), trials, &known);
    let (unlike, changed) = (settings::unlike(&known), settings::changed(head, trials));
    Summary { rows: rows.into_iter().map(|at| at.row).collect(), remarks, unlike, changed }
}

/// Adds to each tool's figure the ratio of the bench's own figure on the same work.
fn put_beside_tools(rows: &mut [PlacedRow<'_>]) {
    if !rows.iter().any(is_of_a_tool) {
        return;
    }
    let ours: Vec<Row> = rows.iter().filter(|at| !is_of_a_tool(at)).map(|at| at.row.clone()).collect();
    for at in rows.iter_mut().filter(|at| is_of_a_tool(at)) {
        let Some((phase, _)) = at.row.phase.rsplit_once(" by ") else { continue };
        let is_same =
            |row: &&Row| (&row.work, &row.parameters) == (&at.row.work, &at.row.parameters) && row.phase == phase;
        let Some(ours) = ours.iter().find(is_same) else { continue };
        for cell in at.row.cells.iter_mut().filter(|cell| cell.usable().is_some()) {
            let Some(own) = ours.cells.iter().find(|own| own.system == cell.system && own.usable().is_some()) else {
                continue;
            };
            cell.ours = compare(&own.values, &cell.values, CONFIDENCE);
            cell.ours_event_rate = own
                .jobs
                .as_ref()
                .zip(cell.jobs.as_ref())
                .and_then(|(own, tools)| compare(&own.event_rates, &tools.event_rates, CONFIDENCE));
        }
    }
}

/// Leaves out CPU times for each GB of rows that moved too little data for them, and servers' CPU times of which
/// nothing was counted.
#[allow(clippy::cast_precision_loss)] // bytes
fn leave_out_coarse_cpu(rows: &mut [PlacedRow<'_>], trials: &[TrialRecord]) {
    for at in rows {
        let is_of_bytes = at.row.unit != Unit::Operations;
        for cell in &mut at.row.cells {
            cell.server_cpu = cell.server_cpu.filter(|cpu| *cpu > 0.0);
            let phase = |source: &Source| trials.get(source.trial)?.phases.get(source.phase);
            let bytes = cell.sources.iter().filter_map(phase).map(|phase| phase.measured.tally.bytes as f64);
            if is_of_bytes && bytes.sum::<f64>() < CPU_BYTES_MIN {
                (cell.client_cpu, cell.server_cpu) = (None, None);
            }
        }
    }
}

fn is_of_a_tool(at: &PlacedRow<'_>) -> bool {
    at.phase.is_some_and(|phase| phase.workload().runs_a_tool())
}

/// Groups the phases of all trials, including those that were not done.
fn by_place<'a>(works: &[Work], latest: &[(usize, &'a TrialRecord)]) -> BTreeMap<TargetDir, BySystem<'a>> {
    let mut all: BTreeMap<TargetDir, BySystem<'a>> = BTreeMap::new();
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
        // Old records do not say which phases were not done; then only the recorded ones are whole.
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

/// Returns the first work with the same phase. A new file has one writer, so works that differ only in chunks write
/// their files in the same way, and those phases are repeats of one figure.
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
    // The single seconds of another tool are unknown. So if a tool is beside it, all figures use the whole time.
    let is_beside_a_tool = work.phases.iter().any(|phase| phase.workload().runs_a_tool());
    let made = |(system, some): (&usize, &Repeats<'_>)| {
        Some(cell(some, of?.workload(), is_beside_a_tool, campaign.systems.get(*system)))
    };
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
    /// The seconds at the start that it leaves out.
    warm_up_s: u32,
    /// Whether no trend is visible.
    is_steady: bool,
}

/// The rate from the common start to the end of the last worker; for a long phase without its warm-up. Work at the
/// end, such as a sync, is always included.
#[allow(clippy::cast_precision_loss)] // counts and times
fn figure(measured: &Measured, of: &dyn Workload, has_whole_time: bool) -> Figure {
    let unit = of.unit();
    let rate = match unit {
        Unit::Bytes => measured.byte_rate(),
        Unit::Operations => measured.operation_rate(),
        Unit::Efficiency => jobs::efficiency(&measured.tally.jobs),
    };
    let whole = Figure { rate, warm_up_s: 0, is_steady: true };
    let series = measured.series(unit);
    // A phase with a deliberate failure has no steady state, and keeps its start. A job's efficiency is that of the
    // whole job.
    let each = measured.second_s.max(1) as usize;
    let is_short = series.len() * each < STEADY_SECONDS_MIN;
    if has_whole_time || is_short || of.expects_failures() || unit == Unit::Efficiency {
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
fn cell(repeats: &Repeats<'_>, of: &dyn Workload, has_whole_time: bool, system: Option<&System>) -> Cell {
    let some = if repeats.whole.is_empty() { &repeats.partial } else { &repeats.whole };
    let unit = of.unit();
    let mut flags = BTreeSet::new();
    if repeats.whole.is_empty() {
        flags.insert(Flag::EndedEarly);
    }
    let mut complaint = None;
    for (_, _, phase) in repeats.whole.iter().chain(&repeats.partial) {
        let tally = &phase.measured.tally;
        // Wrong or missing data count even if the repeat did not end.
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
        let figure = figure(measured, of, has_whole_time);
        values.push(figure.rate);
        warm_up_s = warm_up_s.max(figure.warm_up_s);
        latency.merge(&measured.tally.latency);
        cpu += jobs::client_cpu_s(measured) + phase.helpers_cpu_s().unwrap_or(0.0);
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
        // The faults are recorded with the first role. A role that checks afterwards was not affected.
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
            (Flag::Brief, measured.wall_s < BRIEF_S && measured.tally.operations > 0),
            (Flag::NotSteady, !figure.is_steady),
            (Flag::Synthetic, measured.tally.jobs.iter().any(|job| job.synthetic)),
            (Flag::Compressible, measured.tally.jobs.iter().any(|job| job.compressible)),
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
    let flows: Vec<_> = some.iter().map(|(_, _, phase)| &phase.measured.tally.network[..]).collect();
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
        ours: None,
        ours_event_rate: None,
        latency_us: (latency.count() > 0).then(|| [us(0.5), us(0.99), us(0.999)]),
        // If there are several roles, the first has all of it.
        client_cpu: (amount > 0.0 && cpu > 0.0).then(|| cpu / amount),
        server_cpu: machines::server_cpu_s(&records).filter(|_| amount > 0.0).map(|cpu| cpu / amount),
        missing: missing.into_iter().cloned().collect(),
        outliers,
        missed,
        lost,
        failed,
        served: shares(served),
        auto_window: AutoWindow::of_all(some.iter().filter_map(|(_, _, phase)| phase.measured.tally.auto_window)),
        times_s: of.is_job().then(|| times.map(|all| median(&all).unwrap_or_default())),
        recoveries,
        warm_up_s,
        jobs: jobs::sum(&of_jobs),
        ceilings: Vec::new(),
        network: NetworkDetails::of(&flows),
        verdict: None,
        left_out: repeats.left_out,
        complaint: complaint.filter(|_| flags.iter().any(|flag| flag.is_fatal())),
        flags,
    }
}

/// Returns the effect of a failure on the rate, up to the end of the role's own work. The series continues until
/// all roles have ended.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // some seconds
fn recovered(measured: &Measured, at_s: usize) -> Option<Recovery> {
    let each = measured.second_s.max(1) as usize;
    let mut series = measured.series(Unit::Bytes);
    series.truncate(measured.wall_s.max(0.0).floor() as usize / each);
    let found = recovery(&series, at_s / each)?;
    let back_after_s = found.back_after_s.map(|after| after * each);
    Some(Recovery { still_s: found.still_s * each, back_after_s, ..found })
}

/// Returns shares of the total.
fn shares(mut served: BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let all: f64 = served.values().sum();
    served.values_mut().for_each(|bytes| *bytes /= all.max(1.0));
    served
}

#[cfg(test)]
mod tests;
