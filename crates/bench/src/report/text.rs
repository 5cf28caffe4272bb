//! The table for a terminal.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::{Cell, Flag, Row, Summary, Unit};

/// Rows as text. A figure that must not be used is not printed: there is the reason in its place.
#[must_use]
pub fn text(summary: &Summary) -> String {
    let mut out = String::new();
    let mut flags = BTreeSet::new();
    let mut title = String::new();
    for row in &summary.rows {
        let of = title_of(row);
        if of != title {
            let _ = writeln!(out, "{}{of}", if title.is_empty() { "" } else { "\n" });
            title = of;
        }
        for (number, cell) in row.cells.iter().enumerate() {
            flags.extend(cell.flags.iter().copied());
            let phase = if number == 0 { row.phase.as_str() } else { "" };
            let _ = writeln!(out, "  {phase:<14} {:<12} {}", cell.system, figure(cell, row.unit));
        }
    }
    for flag in flags {
        let _ = writeln!(out, "[{}] {flag}", flag.letter());
    }
    out
}

fn title_of(row: &Row) -> String {
    let parameters: Vec<String> = row.parameters.iter().map(|(name, value)| format!("{name} {value}")).collect();
    format!("{}: {}", row.work, parameters.join(", "))
}

fn figure(cell: &Cell, unit: Unit) -> String {
    let letters: String = cell.flags.iter().map(|flag| flag.letter()).collect();
    let letters = if letters.is_empty() { letters } else { format!(" [{letters}]") };
    if cell.flags.iter().any(|flag| flag.is_fatal()) {
        let why: Vec<String> = cell.flags.iter().filter(|flag| flag.is_fatal()).map(Flag::to_string).collect();
        return format!("no figure: {}{letters}", why.join("; "));
    }
    let mut out = rate(cell.median, unit);
    if let Some(interval) = cell.interval {
        let _ = write!(out, " ({} to {})", rate(interval.low, unit), rate(interval.high, unit));
    }
    if let Some([p50, p99, _]) = cell.latency_us {
        let _ = write!(out, ", p50 {}, p99 {}", took(p50), took(p99));
    }
    if let Some(cpu) = cell.client_cpu {
        let _ = match unit {
            Unit::Bytes => write!(out, ", {cpu:.2} s CPU/GB"),
            Unit::Operations => write!(out, ", {cpu:.0} us CPU each"),
        };
    }
    if let Some(network) = &cell.network {
        out += &network.text(|figure| rate(figure, unit));
    }
    for ceiling in &cell.ceilings {
        let _ = write!(out, ", {:.0} % of the {}", 100.0 * ceiling.share, ceiling.stage.name());
    }
    if let Some([elapsed, user, system]) = cell.times_s {
        let _ = write!(out, ", elapsed {elapsed:.2} s, user {user:.2} s, system {system:.2} s");
    }
    if cell.served.len() > 1 {
        let shares: Vec<String> =
            cell.served.iter().map(|(server, share)| format!("{server} {:.0} %", 100.0 * share)).collect();
        let _ = write!(out, ", served by {}", shares.join(", "));
    }
    for recovery in &cell.recoveries {
        let _ = match recovery.back_after_s {
            Some(after_s) => write!(out, ", back after {after_s} s ({} s still)", recovery.still_s),
            None => write!(out, ", never back ({} s still)", recovery.still_s),
        };
    }
    if cell.failed > 0 {
        let _ = write!(out, ", {} failed", cell.failed);
    }
    if cell.missed > 0 {
        let _ = write!(out, ", {} missed deadlines", cell.missed);
    }
    if let Some(against) = cell.against_first {
        let sure = match against.differs() {
            Some(true) => "",
            Some(false) => ", maybe none",
            None => ", too few to say",
        };
        let _ = write!(out, ", x {:.2}{sure}", against.ratio);
    }
    out + &letters
}

fn rate(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Bytes if value >= 1e9 => format!("{:.2} GB/s", value / 1e9),
        Unit::Bytes => format!("{:.1} MB/s", value / 1e6),
        Unit::Operations => format!("{value:.0} /s"),
    }
}

fn took(us: u64) -> String {
    types::units::show_duration(std::time::Duration::from_micros(us))
}
