//! The table for a terminal.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::figures::{client_cpu, label, notes, of_machines, rate, title_of, took, why_not};
use super::{Bound, Cell, Row, Summary, Unit};

/// The most remarks that are printed.
const REMARKS_MAX: usize = 40;

/// Returns the rows as text. In place of a figure that must not be used, it prints the reason.
#[must_use]
pub fn text(summary: &Summary) -> String {
    let mut out = String::new();
    let mut flags = BTreeSet::new();
    let mut notes = BTreeSet::new();
    let mut title = String::new();
    for row in &summary.rows {
        let of = title_of(row);
        if of != title {
            let _ = writeln!(out, "{}{of}", if title.is_empty() { "" } else { "\n" });
            title = of;
        }
        for (number, cell) in row.cells.iter().enumerate() {
            notes.extend(of_machines(cell));
            flags.extend(cell.flags.iter().copied());
            let phase = if number == 0 { row.phase.as_str() } else { "" };
            let _ = writeln!(out, "  {phase:<14} {:<12} {}", cell.system, figure(cell, row.unit));
        }
        if let Some(bounds) = bounds(row) {
            let _ = writeln!(out, "{:17}bounded by {bounds}", "");
        }
    }
    for note in notes {
        let _ = writeln!(out, "{note}");
    }
    for remark in summary.remarks.iter().take(REMARKS_MAX) {
        let _ = writeln!(out, "{}", remark.line());
    }
    if summary.remarks.len() > REMARKS_MAX {
        let _ = writeln!(out, "and {} more remarks in summary.json", summary.remarks.len() - REMARKS_MAX);
    }
    if !summary.unlike.is_empty() {
        let _ = writeln!(
            out,
            "{} settings differ among machines with the same task; report.html lists them",
            summary.unlike.len()
        );
    }
    for changed in summary.changed.iter().take(REMARKS_MAX) {
        let _ = writeln!(out, "during the run, {}", changed.words());
    }
    for flag in flags {
        let _ = writeln!(out, "[{}] {flag}", flag.letter());
    }
    out
}

/// Returns the verdicts of a row in few words; `None` if none is known.
fn bounds(row: &Row) -> Option<String> {
    let mut said: Vec<(&str, Vec<&str>)> = Vec::new();
    for cell in &row.cells {
        let Some(verdict) = &cell.verdict else { continue };
        let says = verdict.bound.says();
        match said.iter_mut().find(|(other, _)| *other == says) {
            Some((_, systems)) => systems.push(&cell.system),
            None => said.push((says, vec![&cell.system])),
        }
    }
    let whose = |(says, systems): &(&str, Vec<&str>)| format!("{says} ({})", systems.join(", "));
    (said.iter().any(|(says, _)| *says != Bound::NotKnown.says()))
        .then(|| said.iter().map(whose).collect::<Vec<_>>().join("; "))
}

fn figure(cell: &Cell, unit: Unit) -> String {
    let letters: String = cell.flags.iter().map(|flag| flag.letter()).collect();
    let letters = if letters.is_empty() { letters } else { format!(" [{letters}]") };
    if cell.flags.iter().any(|flag| flag.is_fatal()) {
        return why_not(cell) + &letters;
    }
    let mut out = rate(cell.median, unit) + label(unit);
    if let Some(interval) = cell.interval {
        let _ = write!(out, " ({} to {})", rate(interval.low, unit), rate(interval.high, unit));
    }
    if let Some([p50, p99, _]) = cell.latency_us {
        let _ = write!(out, ", p50 {}, p99 {}", took(p50), took(p99));
    }
    if let Some(cpu) = cell.client_cpu {
        let _ = write!(out, ", {}", client_cpu(cpu, unit));
    }
    for note in notes(cell, unit) {
        let _ = write!(out, ", {note}");
    }
    if let Some(against) = cell.against_first {
        let sure = match against.differs() {
            Some(true) => "",
            Some(false) => ", maybe none",
            None => ", too few repeats",
        };
        let _ = write!(out, ", x {:.2}{sure}", against.ratio);
    }
    out + &letters
}
