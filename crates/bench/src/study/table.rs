//! A study's own table: for each system the best figure of each column, the parameters that reach a rate, and what
//! the study's demand would need.

use super::{Prepared, StudyDescription, features_text};
use crate::report::{Bound, Cell, Row, Summary, Unit, event_rate};

/// Returns the table. `rate` is the requested rate in bytes a second.
#[must_use]
pub fn table(prepared: &Prepared, summary: &Summary, rate: Option<u64>) -> String {
    let about = &prepared.about;
    let systems: Vec<String> = prepared.campaign.systems.iter().map(|system| system.name.clone()).collect();
    let mut text = format!("{}\n\n", about.title);
    let divided = super::scale::text(&prepared.scaled);
    if !divided.is_empty() {
        text.push_str(&format!("Scaled down; the figures are those of the scaled work:\n{divided}\n"));
    }
    if about.features {
        text.push_str(&features_text(&systems));
        text.push('\n');
    }
    let mut lines = vec![[vec!["best of each".to_owned()], systems.clone()].concat()];
    for [title, work, phase] in &about.columns {
        let best = |system: &String| {
            let found = best(&rows(summary, work, phase), system);
            found.map_or("no figure".to_owned(), |(row, cell)| figure(row, cell))
        };
        lines.push([vec![title.clone()], systems.iter().map(best).collect()].concat());
    }
    text.push_str(&aligned(&lines));
    text.push_str(&of_jobs(about, summary, &systems));
    if let Some([work, phase]) = &about.rated {
        let found = rows(summary, work, phase);
        if let Some(wanted) = about.demand {
            text.push_str(&demand(&found, &systems, wanted));
        }
        if let Some(rate) = rate {
            text.push_str(&format!(
                "\nParameters that reach {}/s ({phase}):\n{}",
                bytes(rate),
                reaching(&found, &systems, rate)
            ));
        }
    }
    text
}

/// Explains the figures of jobs, and compares those of another tool with the bench's own on the same work.
fn of_jobs(about: &StudyDescription, summary: &Summary, systems: &[String]) -> String {
    let of_study: Vec<&Row> = about.columns.iter().flat_map(|[_, work, phase]| rows(summary, work, phase)).collect();
    if !of_study.iter().any(|row| row.unit == Unit::Efficiency) {
        return String::new();
    }
    let mut text = "\nPercentages are the CPU efficiency of jobs: CPU time / wall time. A client that burns more CPU for the same events \
                    looks more efficient. Compare the speed of clients by events/s.\n"
        .to_owned();
    let mut lines = Vec::new();
    for row in of_study {
        for cell in row.cells.iter().filter(|cell| systems.contains(&cell.system)) {
            let (Some(ours), Some(jobs), Some(_)) = (cell.ours_event_rate, &cell.jobs, cell.usable()) else { continue };
            let count = row.parameters.iter().find(|(name, _)| name == "jobs").map_or("", |(_, value)| value.as_str());
            let (phase, rate) = (&row.phase, event_rate(jobs));
            let times = format!("the bench's own jobs x {:.2}", ours.ratio);
            lines.push(format!("  {}, jobs {count}, {}: {phase} {rate}, {times}\n", row.work, cell.system));
        }
    }
    if !lines.is_empty() {
        text.push_str("Events/s of the same number of jobs:\n");
        text.extend(lines);
    }
    text
}

/// Returns what the study's demand would need.
#[allow(clippy::cast_precision_loss)] // rates
fn demand(rows: &[&Row], systems: &[String], wanted: u64) -> String {
    let line = |system: &String| match best(rows, system) {
        Some((row, cell)) if cell.median > 0.0 => {
            let number = (wanted as f64 / cell.median).ceil();
            let (servers, clients) = match side(cell) {
                Some(LimitingSide::Client) => ("at most ", ""),
                Some(LimitingSide::Server) => ("", "at most "),
                None => ("", ""),
            };
            let how = format!("{} with {}", row.phase, parameters(row));
            format!("  {system}: {servers}{number} such servers, {clients}{number} such clients, {how}\n")
        }
        _ => format!("  {system}: no figure\n"),
    };
    let gigabits = wanted as f64 * 8.0 / 1e9;
    format!(
        "\nThe study's {gigabits:.0} Gb/s ({}/s), if rates of servers and clients add up, which was not measured; what did not bound \
         the figure may do with fewer:\n{}",
        bytes(wanted),
        systems.iter().map(line).collect::<String>()
    )
}

/// The side that limits a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LimitingSide {
    Client,
    Server,
}

/// Returns the limiting side, if known. Then fewer machines of the other side are enough.
fn side(cell: &Cell) -> Option<LimitingSide> {
    match cell.verdict.as_ref()?.bound {
        Bound::Generator | Bound::ClientCpu | Bound::ClientCore => Some(LimitingSide::Client),
        Bound::DiskStage | Bound::ServerCpu | Bound::ServerCore | Bound::Disk => Some(LimitingSide::Server),
        _ => None,
    }
}

/// Returns the parameters that reach a rate with the least effort: the fewest streams, chunks and concurrent
/// requests.
#[allow(clippy::cast_precision_loss)] // rates
fn reaching(rows: &[&Row], systems: &[String], rate: u64) -> String {
    let cost = |row: &Row, cell: &Cell| -> f64 {
        let of = |name: &str| {
            let (_, value) = row.parameters.iter().find(|(key, _)| key == name)?;
            // An automatic window is no number. The cell says how large it was.
            value.parse().ok().or(cell.auto_window.filter(|_| name == "window").map(|window| window.most as f64))
        };
        ["streams", "chunks", "window", "clients", "files"].iter().map(|name| of(name).unwrap_or(1.0)).product()
    };
    let line = |system: &String| {
        let usable = rows.iter().filter_map(|row| Some((*row, usable(row, system)?)));
        let mut fit: Vec<(&Row, &Cell)> = usable.filter(|(_, cell)| cell.median >= rate as f64).collect();
        fit.sort_by(|a, b| cost(a.0, a.1).total_cmp(&cost(b.0, b.1)).then(b.1.median.total_cmp(&a.1.median)));
        match fit.first() {
            Some((row, cell)) => format!("  {system}: {} ({})\n", parameters(row), show_rate(row, cell)),
            None => format!("  {system}: none of the measured ones\n"),
        }
    };
    systems.iter().map(line).collect()
}

/// Returns the rows of a work, or of all works whose names have the beginning before `*`.
fn rows<'a>(summary: &'a Summary, work: &str, phase: &str) -> Vec<&'a Row> {
    summary.rows.iter().filter(|row| fits(row, work, phase)).collect()
}

/// Whether a row belongs to a column.
pub(crate) fn fits(row: &Row, work: &str, phase: &str) -> bool {
    let is_work = work.strip_suffix('*').map_or(row.work == work, |start| row.work.starts_with(start));
    row.phase == phase && is_work
}

fn usable<'a>(row: &'a Row, system: &str) -> Option<&'a Cell> {
    row.cells.iter().find(|cell| cell.system == system).filter(|cell| cell.usable().is_some())
}

/// Returns the best figure of a system in some rows.
pub(crate) fn best<'a>(rows: &[&'a Row], system: &str) -> Option<(&'a Row, &'a Cell)> {
    let all = rows.iter().filter_map(|row| Some((*row, usable(row, system)?)));
    all.max_by(|a, b| a.1.median.total_cmp(&b.1.median))
}

/// Decimal, like rates.
#[allow(clippy::cast_precision_loss)] // rates
fn bytes(rate: u64) -> String {
    if rate >= 1_000_000_000 { format!("{:.2} GB", rate as f64 / 1e9) } else { format!("{:.1} MB", rate as f64 / 1e6) }
}

fn show_rate(row: &Row, cell: &Cell) -> String {
    crate::report::rate(cell.median, row.unit)
}

/// The figure, and the range of the repeats, which shows a system that varies.
fn figure(row: &Row, cell: &Cell) -> String {
    let least = cell.values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = cell.values.iter().copied().fold(0.0, f64::max);
    let apart =
        if cell.values.len() > 1 && least > 0.0 { format!(", {:.2} x apart", most / least) } else { String::new() };
    let events = match &cell.jobs {
        Some(jobs) if row.unit == Unit::Efficiency && jobs.event_rate > 0.0 => format!(", {}", event_rate(jobs)),
        _ => String::new(),
    };
    format!("{}{events}{apart}", show_rate(row, cell))
}

fn parameters(row: &Row) -> String {
    let all: Vec<String> = row.parameters.iter().map(|(name, value)| format!("{name} {value}")).collect();
    if all.is_empty() { "no parameters".to_owned() } else { all.join(", ") }
}

/// Aligns columns.
pub(super) fn aligned(lines: &[Vec<String>]) -> String {
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |line: &Vec<String>| {
        let cells: Vec<String> = line
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell}{}", " ".repeat(width - cell.chars().count())))
            .collect();
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    lines.iter().map(line).collect()
}
