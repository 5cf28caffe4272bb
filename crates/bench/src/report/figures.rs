//! Figures as readable text.

use std::time::Duration;

use super::remarks::plain;
use super::{Cell, Flag, Jobs, Outlier, OutlierSetting, Row, Unit};
use crate::load::OpenedWith;
use crate::statistics::Comparison;
use crate::target::AutoWindow;

/// A rate.
pub(crate) fn rate(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Bytes if value >= 1e9 => format!("{:.2} GB/s", value / 1e9),
        Unit::Bytes => format!("{:.1} MB/s", value / 1e6),
        Unit::Operations => format!("{value:.0} /s"),
        Unit::Efficiency => format!("{:.1} %", 100.0 * value),
    }
}

/// The name of what a rate of this unit is, if the unit does not show it.
pub(super) fn label(unit: Unit) -> &'static str {
    match unit {
        Unit::Bytes | Unit::Operations => "",
        Unit::Efficiency => " CPU efficiency",
    }
}

/// A latency, with two digits if it is short.
pub(super) fn took(us: u64) -> String {
    types::units::show_duration(Duration::from_micros(us))
}

/// The name of a row's work with its parameters.
pub(super) fn title_of(row: &Row) -> String {
    titled(&row.work, &row.parameters)
}

/// A work with its parameters.
pub(super) fn titled(work: &str, parameters: &[(String, String)]) -> String {
    let parameters: Vec<String> = parameters.iter().map(|(name, value)| format!("{name} {value}")).collect();
    format!("{work}: {}", parameters.join(", "))
}

/// The reason why a figure is missing, with the first complaint.
pub(super) fn why_not(cell: &Cell) -> String {
    let why: Vec<String> = cell.flags.iter().filter(|flag| flag.is_fatal()).map(Flag::to_string).collect();
    let first = cell.complaint.as_ref().map(|text| format!(": {}", plain(text))).unwrap_or_default();
    format!("no figure: {}{first}", why.join("; "))
}

/// The client's CPU cost, as a text with its unit.
pub(super) fn client_cpu(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Bytes | Unit::Efficiency => format!("{value:.2} s CPU/GB"),
        Unit::Operations => format!("{value:.0} us CPU each"),
    }
}

#[allow(clippy::cast_precision_loss)] // bytes for people
fn of_jobs(jobs: &Jobs) -> String {
    let [_, least, most] = jobs.efficiency.map(|share| 100.0 * share);
    let events = if jobs.event_rate > 0.0 { format!("{}, ", event_rate(jobs)) } else { String::new() };
    let reading = jobs.io_cpu_share.map(|share| format!(", {:.0} % of the CPU for reading", 100.0 * share));
    let opened = jobs.opened_with.map(|with| format!(", opened {}", opened_with(with)));
    let moved = jobs.moved.map_or("an unknown amount".to_owned(), types::units::show_size);
    format!(
        "{events}single jobs of all repeats {least:.0} to {most:.0} %{}{}, received {moved} for {} requested, in {}",
        reading.unwrap_or_default(),
        opened.unwrap_or_default(),
        types::units::show_size(jobs.asked),
        crate::units::counted(jobs.requests, "request", "requests"),
    )
}

/// The events a second of jobs.
pub(crate) fn event_rate(jobs: &Jobs) -> String {
    format!("{:.0} events/s", jobs.event_rate)
}

/// The bench's own figure, relative to that of another tool on the same work.
fn of_ours(cell: &Cell) -> Option<String> {
    let times = |ours: Comparison| {
        let range = ours.interval.map(|i| format!(" ({:.2} to {:.2})", i.low, i.high)).unwrap_or_default();
        format!("x {:.2}{range}", ours.ratio)
    };
    let ours = cell.ours.map(times);
    // A tool that burns CPU looks efficient, so speed comes first.
    match (cell.ours_event_rate.map(times), ours) {
        (Some(events), Some(efficiency)) => {
            Some(format!("the bench's own jobs do {events} of its events/s, at {efficiency} of its CPU efficiency"))
        }
        (Some(events), None) => Some(format!("the bench's own jobs do {events} of its events/s")),
        (None, ours) => Some(format!("the bench's own figure is {} of it", ours?)),
    }
}

fn opened_with(with: OpenedWith) -> &'static str {
    match with {
        OpenedWith::Weir => "with weir's Python package",
        OpenedWith::FsspecXrootd => "with fsspec-xrootd",
        OpenedWith::Path => "by uproot itself",
        OpenedWith::Several => "with several packages",
    }
}

/// The most settings that are named for an outlier.
const APART_MAX: usize = 4;

/// The machines that a figure's flags concern, with possible explanations.
pub(super) fn of_machines(cell: &Cell) -> Vec<String> {
    let missing = cell.missing.iter().map(|who| format!("without the agent {who}"));
    let outlier = |one: &Outlier| {
        let mut apart: Vec<String> = one.apart.iter().take(APART_MAX).map(OutlierSetting::words).collect();
        let more = one.apart.len().saturating_sub(APART_MAX);
        apart.extend((more > 0).then(|| format!("{more} more settings")));
        let unlike = if apart.is_empty() { String::new() } else { format!("; unlike them, {}", apart.join(", ")) };
        format!("agent {}: x {:.2} of the others on {}{unlike}", one.agent, one.ratio, cell.system)
    };
    missing.chain(cell.outliers.iter().map(outlier)).collect()
}

/// The notes of a figure.
pub(super) fn notes(cell: &Cell, unit: Unit) -> Vec<String> {
    let share = |of: f64| format!("{:.0} %", 100.0 * of);
    let mut notes: Vec<String> =
        cell.server_cpu.iter().map(|cpu| format!("{} of the server", client_cpu(*cpu, unit))).collect();
    notes.extend(cell.ceilings.iter().map(|of| format!("{} of the {}", share(of.share), of.stage.name())));
    // Each of its parts begins with a comma.
    let network = cell.network.as_ref().map(|network| network.text(|figure| rate(figure, Unit::Bytes)));
    notes.extend(network.and_then(|text| text.strip_prefix(", ").map(str::to_owned)));
    if let Some([elapsed, user, system]) = cell.times_s {
        notes.push(format!("elapsed {elapsed:.2} s, user {user:.2} s, system {system:.2} s"));
    }
    if cell.served.len() > 1 {
        let by: Vec<String> = cell.served.iter().map(|(server, of)| format!("{server} {}", share(*of))).collect();
        notes.push(format!("served by {}", by.join(", ")));
    }
    notes.extend(cell.auto_window.map(|AutoWindow { least, most }| {
        let requests = if most == 1 { "request" } else { "requests" };
        let from = if least < most { format!("{least} to ") } else { String::new() };
        format!("{from}{most} {requests} allowed under way on a file")
    }));
    notes.extend(cell.recoveries.iter().map(|recovery| match recovery.back_after_s {
        Some(after_s) => format!("back after {after_s} s ({} s still)", recovery.still_s),
        None => format!("never back ({} s still)", recovery.still_s),
    }));
    notes.extend(cell.jobs.as_ref().map(of_jobs));
    notes.extend(of_ours(cell));
    if cell.left_out > 0 {
        let repeats = if cell.left_out == 1 { "1 repeat that" } else { &format!("{} repeats that", cell.left_out) };
        notes.push(format!("without {repeats} ended early"));
    }
    if cell.failed > 0 {
        notes.push(format!("{} failed", cell.failed));
    }
    if cell.missed > 0 {
        notes.push(format!("{} missed deadlines", cell.missed));
    }
    if cell.warm_up_s > 0 {
        notes.push(format!("{} s of warm-up left out", cell.warm_up_s));
    }
    notes
}
