//! A row on the page: its table, its plots, and the activity of the machines.

use std::fmt::Write;

use super::charts::{latencies, over_time, repeats};
use super::figures::{Figures, part};
use super::plot::COLOURS;
use super::view::{Colours, RowView};
use super::{escape, machines};
use crate::report::figures::{client_cpu, label, notes, of_machines, rate, title_of, took, why_not};
use crate::report::{Cell, Flag, Row, Summary};
use crate::result::PhaseRecord;
use crate::sampling::Sample;

/// The most machines of a system with plots in a row.
const MACHINES_MAX: usize = 8;

/// The mark of a system in its colour.
pub(super) fn key(colour: usize) -> String {
    format!("<span class=\"key s{}\"></span>", colour % COLOURS)
}

/// A flag's letter, with its meaning as a tooltip.
pub(super) fn flag(flag: Flag) -> String {
    let class = if flag.is_fatal() { "flag bad" } else { "flag" };
    format!("<span class=\"{class}\" title=\"{}\">{}</span>", escape(&flag.to_string()), flag.letter())
}

/// The columns, and whether they hold numbers.
const COLUMNS: [(&str, bool); 9] = [
    ("system", false),
    ("median", true),
    ("95 % interval", true),
    ("ratio", true),
    ("p50", true),
    ("p99", true),
    ("p99.9", true),
    ("client", true),
    ("notes", false),
];

fn head(out: &mut String, before: &[&str]) {
    out.push_str("<thead><tr>");
    for name in before {
        let _ = write!(out, "<th>{name}</th>");
    }
    for (name, is_number) in COLUMNS {
        let _ = write!(out, "<th{}>{name}</th>", if is_number { " class=\"n\"" } else { "" });
    }
    out.push_str("</tr></thead>");
}

/// The columns of a cell.
fn cells(out: &mut String, colour: usize, row: &Row, cell: &Cell) {
    let flags: String = cell.flags.iter().map(|found| flag(*found)).collect();
    let _ = write!(out, "<td class=\"s\">{}{}</td>", key(colour), escape(&cell.system));
    if cell.usable().is_none() {
        let _ = write!(out, "<td colspan=\"7\" class=\"bad\">{}</td><td>{flags}</td>", escape(&why_not(cell)));
        return;
    }
    let interval = cell.interval.map(|i| format!("{} to {}", rate(i.low, row.unit), rate(i.high, row.unit)));
    let ratio = cell.against_first.map(|against| {
        let range = against.interval.map(|i| format!(" ({:.2} to {:.2})", i.low, i.high)).unwrap_or_default();
        format!("{:.2}{range}", against.ratio)
    });
    let latency = |place: usize| cell.latency_us.map(|us| took(us[place]));
    let numbers = [
        Some(rate(cell.median, row.unit) + label(row.unit)),
        interval,
        ratio,
        latency(0),
        latency(1),
        latency(2),
        cell.client_cpu.map(|cpu| client_cpu(cpu, row.unit)),
    ];
    for text in numbers {
        let _ = write!(out, "<td class=\"n\">{}</td>", escape(&text.unwrap_or_default()));
    }
    let _ = write!(out, "<td>{flags}{}</td>", escape(&notes(cell, row.unit).join(", ")));
}

/// Adds a row. With `points_max` it has plots of that many points a line, as `figures` whose names begin with `name`.
pub(super) fn put(
    out: &mut String,
    view: &RowView<'_>,
    points_max: Option<usize>,
    (figures, name): (&mut Figures, &str),
) {
    let row = view.row;
    let _ = write!(out, "<section><div class=\"row\"><h3>{}</h3><div class=\"wide\"><table>", escape(&row.phase));
    head(out, &[]);
    out.push_str("<tbody>");
    for (number, cell) in row.cells.iter().enumerate() {
        out.push_str("<tr>");
        cells(out, view.colour(number), row, cell);
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
    bounds(out, row);
    for note in row.cells.iter().flat_map(of_machines) {
        let _ = write!(out, "<p class=\"soft\">{}</p>", escape(&note));
    }
    if let Some(points_max) = points_max {
        let of = format!("{}, {}", title_of(row), row.phase);
        let all = [
            ("repeats", repeats(view)),
            ("rate", over_time(view, points_max)),
            ("latency", latencies(view, points_max)),
        ];
        let drawn = all.into_iter().filter_map(|(kind, picture)| Some((kind, picture?)));
        let plots: String =
            drawn.map(|(kind, picture)| figures.put(&format!("{name}_{kind}"), &of, &picture)).collect();
        if !plots.is_empty() {
            let _ = write!(out, "<div class=\"plots\">{plots}</div>");
        }
    }
    out.push_str("</div>");
    if let Some(points_max) = points_max {
        machines_of(out, view, points_max, (figures, name));
    }
    out.push_str("</section>");
}

/// Adds the verdicts of the figures, with their evidence.
fn bounds(out: &mut String, row: &Row) {
    let known: Vec<_> = row.cells.iter().filter_map(|cell| Some((cell, cell.verdict.as_ref()?))).collect();
    if known.is_empty() {
        return;
    }
    out.push_str("<ul class=\"bounds\">");
    for (cell, verdict) in known {
        let (system, says, why) = (escape(&cell.system), escape(verdict.bound.says()), escape(&verdict.evidence));
        let _ =
            write!(out, "<li>{system} is bounded by: <strong>{says}</strong> <span class=\"soft\">({why})</span></li>");
    }
    out.push_str("</ul>");
}

/// Returns the machines that did the work (or the one that measured), and the watched servers.
fn machines_in(phase: &PhaseRecord) -> impl Iterator<Item = (String, &[Sample])> {
    let this = phase.machines.agents.is_empty().then(|| ("this client".to_owned(), &phase.measured.client[..]));
    let agents = phase.machines.agents.iter().map(|agent| (format!("client {}", agent.name), &agent.samples[..]));
    let servers = phase.machines.servers.iter().map(|server| (format!("server {}", server.name), &server.samples[..]));
    this.into_iter().chain(servers).chain(agents)
}

/// Returns the number of machines with plots.
pub(super) fn machines_shown(phase: &PhaseRecord) -> usize {
    machines_in(phase).take(MACHINES_MAX).count()
}

fn machines_of(out: &mut String, view: &RowView<'_>, points_max: usize, (figures, start): (&mut Figures, &str)) {
    let mut inside = String::new();
    for (number, phase) in view.typical() {
        let Some(cell) = view.row.cells.get(number) else { continue };
        for (name, samples) in machines_in(phase).take(MACHINES_MAX) {
            let of = format!("{}, {}, {}, {name}", title_of(view.row), view.row.phase, cell.system);
            let drawn = machines::plots(samples, points_max).into_iter().map(|(kind, picture)| {
                let file = format!("{start}_{}_{}_{kind}", part(&cell.system), part(&name));
                figures.put_of_machine(&file, &of, &picture)
            });
            let plots: String = drawn.collect();
            if !plots.is_empty() {
                let (key, system, name) = (key(view.colour(number)), escape(&cell.system), escape(&name));
                let _ = write!(inside, "<h4>{key}{system}: {name}</h4><div class=\"plots\">{plots}</div>");
            }
        }
        let more = machines_in(phase).count().saturating_sub(MACHINES_MAX);
        if more > 0 {
            let _ = write!(inside, "<p class=\"soft\">{more} more machines are in trials.jsonl.</p>");
        }
    }
    if !inside.is_empty() {
        let _ = write!(
            out,
            "<details><summary>Activity of the machines, in the repeat nearest to the median</summary>{inside}</details>"
        );
    }
}

/// Adds all figures in one table.
pub(super) fn all(out: &mut String, summary: &Summary, colours: Colours<'_>) {
    out.push_str("<div class=\"wide\"><table class=\"all\">");
    head(out, &["phase"]);
    let mut title = String::new();
    for row in &summary.rows {
        let of = title_of(row);
        if of != title {
            let _ = write!(out, "<tr><th colspan=\"{}\">{}</th></tr>", COLUMNS.len() + 1, escape(&of));
            title = of;
        }
        for (number, cell) in row.cells.iter().enumerate() {
            let _ = write!(out, "<tr><td>{}</td>", if number == 0 { escape(&row.phase) } else { String::new() });
            cells(out, colours.of(&cell.system), row, cell);
            out.push_str("</tr>");
        }
    }
    out.push_str("</table></div>");
}
