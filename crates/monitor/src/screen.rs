//! Formats the rates as lines of text, cut to the terminal.

use types::units::{show_duration, show_size};

use crate::rates::{Rates, Times};
use crate::show::Size;

const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

/// The lines. On a terminal of `size` they fit, and headings are bold.
pub fn lines(node: &str, rates: &Rates, size: Option<Size>) -> Vec<String> {
    let mut lines = vec![format!("weir {} at {node}, up {}", rates.version, up(rates.up_seconds))];
    lines.push(format!(
        "requests {}   read {}/s   written {}/s   errors {}   told to wait {}",
        per_second(rates.requests_per_second),
        bytes(rates.read_bytes_per_second),
        bytes(rates.written_bytes_per_second),
        per_second(rates.errors_per_second),
        per_second(rates.waits_per_second)
    ));
    lines.push(format!(
        "connections {} of {}   sessions {}   files open {} of {}   being written {}   transfers {} and {} waiting",
        rates.connections,
        rates.connections_limit,
        rates.sessions,
        rates.open_files,
        rates.open_files_limit,
        rates.writers,
        rates.transfers_running,
        rates.transfers_waiting
    ));
    lines.push(format!(
        "journal {}/s   syncs {}, p50 {}, p99 {}   {:.1} records a sync",
        bytes(rates.journal_bytes_per_second),
        per_second(rates.syncs.per_second),
        time(rates.syncs.p50_seconds),
        time(rates.syncs.p99_seconds),
        rates.records_per_sync
    ));
    lines.push(space(rates));
    lines.push(format!(
        "memory {}{}   processors {:.2}   threads {}   descriptors {} of {}",
        bytes(rates.memory_bytes),
        recent(rates),
        rates.processors,
        rates.threads,
        rates.descriptors,
        rates.descriptors_limit
    ));
    lines.push(String::new());
    let heading = lines.len();
    lines.push(row("request", ["per second".into(), "mean".into(), "p50".into(), "p99".into()]));
    lines.extend(rates.requests.iter().map(|request| {
        let Times { per_second: rate, mean_seconds, p50_seconds, p99_seconds } = request.times;
        row(&request.kind, [number(rate), time(mean_seconds), time(p50_seconds), time(p99_seconds)])
    }));
    if rates.requests.is_empty() {
        lines.push("no requests".into());
    }
    match size {
        Some(size) => fitted(lines, size, &[0, heading]),
        None => lines,
    }
}

/// As many of `lines` as fit on a terminal of `size`, with a count of the rest; the lines of `bold` in bold.
pub fn fitted(mut lines: Vec<String>, size: Size, bold: &[usize]) -> Vec<String> {
    if lines.len() > size.rows && size.rows > 1 {
        let more = format!("{} lines more", lines.len() + 1 - size.rows);
        lines.truncate(size.rows - 1);
        lines.push(more);
    }
    lines.truncate(size.rows);
    for (place, line) in lines.iter_mut().enumerate() {
        *line = line.chars().take(size.columns).collect();
        if bold.contains(&place) {
            *line = format!("{BOLD}{line}{PLAIN}");
        }
    }
    lines
}

fn row(name: &str, cells: [String; 4]) -> String {
    let [rate, mean, p50, p99] = cells;
    format!("{name:<10} {rate:>11} {mean:>9} {p50:>9} {p99:>9}")
}

/// The memory for recently written data, and what readers got from it.
fn recent(rates: &Rates) -> String {
    if rates.recent_memory_bytes <= 0.0 {
        return String::new();
    }
    let share =
        rates.recent_share_of_reads.map_or_else(String::new, |share| format!(": {:.0} % of reads", share * 100.0));
    format!(" ({} for recent data{share})", bytes(rates.recent_memory_bytes))
}

fn space(rates: &Rates) -> String {
    let (Some(free), Some(total)) = (rates.space_free_bytes, rates.space_total_bytes) else {
        return "space unknown".into();
    };
    let refusing = if rates.space_refusing { ": new data is REFUSED" } else { "" };
    let floor = rates.space_floor_bytes.map_or_else(String::new, |floor| format!(", {} kept back", bytes(floor)));
    let deletions = rates.deletions_waiting.map_or_else(String::new, |n| format!("   deletions waiting {n}"));
    format!("space {} free of {}{floor}{refusing}{deletions}", bytes(free), bytes(total))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // sizes, far below 2^63; negative ones do not occur
fn bytes(bytes: f64) -> String {
    show_size(bytes.max(0.0) as u64)
}

fn time(seconds: Option<f64>) -> String {
    seconds.map_or_else(
        || "-".into(),
        |seconds| show_duration(std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default()),
    )
}

fn per_second(rate: f64) -> String {
    format!("{}/s", number(rate))
}

/// A number with commas between thousands; a small one with a decimal.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // rates, far below 2^63
fn number(value: f64) -> String {
    if value < 10.0 && value.fract() != 0.0 {
        return format!("{value:.1}");
    }
    let digits = (value.round().max(0.0) as u64).to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a time
fn up(seconds: f64) -> String {
    let minutes = (seconds / 60.0) as u64;
    match minutes {
        0..2 => format!("{seconds:.0} s"),
        2..120 => format!("{minutes} min"),
        120..2880 => format!("{} h", minutes / 60),
        _ => format!("{} days", minutes / 1440),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::Request;

    fn busy() -> Rates {
        let times =
            Times { per_second: 12_345.0, mean_seconds: Some(8e-6), p50_seconds: Some(7e-6), p99_seconds: Some(0.012) };
        let request = |kind: &str| Request { kind: kind.into(), times };
        Rates {
            version: "1".into(),
            up_seconds: 10_000.0,
            requests: ["stat", "open", "read", "close"].into_iter().map(request).collect(),
            requests_per_second: 49_380.0,
            space_total_bytes: Some(1e12),
            space_free_bytes: Some(1e11),
            space_floor_bytes: Some(1e9),
            space_refusing: true,
            recent_memory_bytes: f64::from(64 << 20),
            recent_share_of_reads: Some(0.974),
            ..Rates::default()
        }
    }

    #[test]
    fn the_screen_shows_every_rate() {
        let lines = lines("node:1", &busy(), None);
        assert_eq!(lines[0], "weir 1 at node:1, up 2 h");
        assert!(lines[1].starts_with("requests 49,380/s   read 0 B/s"), "{}", lines[1]);
        assert!(lines[4].contains("REFUSED"), "{}", lines[4]);
        assert!(
            lines[5].starts_with("memory 0 B (64.0 MiB for recent data: 97 % of reads)   processors"),
            "{}",
            lines[5]
        );
        assert_eq!(lines[8], "stat            12,345      8 µs      7 µs     12 ms");
        assert_eq!(lines.len(), 12);
    }

    #[test]
    fn a_small_terminal_gets_what_fits() {
        for (columns, rows) in [(200, 50), (40, 9), (20, 3), (1, 1)] {
            let shown = lines("node:1", &busy(), Some(Size { columns, rows }));
            assert!(shown.len() <= rows);
            for line in shown {
                let bare = line.replace(BOLD, "").replace(PLAIN, "");
                assert!(bare.chars().count() <= columns, "{bare}");
            }
        }
    }

    #[test]
    fn numbers_have_commas() {
        let shown: Vec<_> = [0.0, 0.25, 9.96, 10.4, 999.6, 1_234_567.0].map(number).into();
        assert_eq!(shown, ["0", "0.2", "10.0", "10", "1,000", "1,234,567"]);
    }
}
