//! The table of all machines, cut to the terminal.

use bench::coordinate::{Line, View};
use bench::units::{Family, show_rate, show_sum};
use console::table::spaced_table;

/// Cells as wide as any.
const RATE: &str = "12.3 MB/s";
const PERCENT: &str = "100 %";
const MEMORY: &str = "12.3 GiB";
/// The columns that are left out first if the terminal is too narrow.
const LEFT_OUT: [&str; 9] = ["dropped/s", "retrans/s", "memory", "wait", "busy", "written", "disk read", "in", "out"];

/// The lines that fit on a terminal of `size` (columns, rows). If not all agents fit, it shows the slowest.
pub(super) fn lines(title: &str, hint: &str, view: &View, (columns, rows): (usize, usize)) -> Vec<String> {
    let gap = columns.saturating_sub(title.chars().count() + hint.chars().count());
    let mut lines = vec![format!("{title}{}{hint}", " ".repeat(gap.max(1)))];
    let servers = if view.servers.is_empty() { Vec::new() } else { servers(view, columns) };
    // Room for the title, the heading and its rule, the total, a line that counts hidden agents, and the last line of the terminal.
    let room = rows.saturating_sub(6 + servers.len() + view.gone.len().min(3)).max(1);
    lines.extend(agents(view, room, columns));
    lines.extend(servers);
    let gone = view.gone.iter().rev().take(3).map(|who| format!("lost: {who}"));
    lines.extend(gone);
    lines.truncate(rows.saturating_sub(1).max(1));
    lines.iter().map(|line| line.chars().take(columns).collect()).collect()
}

fn agents(view: &View, room: usize, columns: usize) -> Vec<String> {
    let mut shown: Vec<&Line> = view.agents.iter().collect();
    let left_out = shown.len().saturating_sub(room);
    if left_out > 0 {
        shown.sort_by_key(|line| (line.bytes, line.operations));
        shown.truncate(room);
    }
    let mut table: Vec<Vec<String>> = shown.into_iter().map(agent).collect();
    let total = view.total();
    table.push(vec![
        "total".to_owned(),
        show_rate(total.bytes),
        total.operations.to_string(),
        total.failures.to_string(),
    ]);
    let heading =
        ["agent", "rate", "ops/s", "failed/s", "cpu", "wait", "in", "out", "retrans/s", "dropped/s", "memory"];
    let widest = ["", RATE, "100000", "", PERCENT, PERCENT, RATE, RATE, "", "", MEMORY];
    let mut lines = fitting(&heading, table, &widest, columns);
    if left_out > 0 {
        lines.push(format!("the slowest; {left_out} more"));
    }
    lines
}

fn agent(line: &Line) -> Vec<String> {
    vec![
        line.name.clone(),
        show_rate(line.bytes),
        line.operations.to_string(),
        line.failures.to_string(),
        percent(line.cpu),
        percent(line.iowait),
        speed(line.received),
        speed(line.sent),
        format!("{:.0}", line.retransmitted),
        format!("{:.0}", line.dropped),
        memory(line.memory),
    ]
}

fn servers(view: &View, columns: usize) -> Vec<String> {
    let server = |line: &Line| {
        vec![
            format!("{} ({})", line.name, line.system.as_deref().unwrap_or_default()),
            percent(line.cpu),
            percent(line.iowait),
            speed(line.received),
            speed(line.sent),
            format!("{:.0}", line.retransmitted),
            format!("{:.0}", line.dropped),
            speed(line.disk_read),
            speed(line.disk_written),
            percent(line.disk_busy),
            memory(line.memory),
        ]
    };
    let heading =
        ["server", "cpu", "wait", "in", "out", "retrans/s", "dropped/s", "disk read", "written", "busy", "memory"];
    let table: Vec<Vec<String>> = view.servers.iter().map(server).collect();
    let widest = ["", PERCENT, PERCENT, RATE, RATE, "", "", RATE, RATE, PERCENT, MEMORY];
    std::iter::once(String::new()).chain(fitting(&heading, table, &widest, columns)).collect()
}

/// The table, without the least important columns if it is wider than the terminal. All columns have room for the `widest` cells, so that
/// they stay in their places when the figures change.
fn fitting(heading: &[&str], mut rows: Vec<Vec<String>>, widest: &[&str], columns: usize) -> Vec<String> {
    let mut heading = heading.to_vec();
    rows.push(widest.iter().map(|cell| (*cell).to_owned()).collect());
    let width = |lines: &[String]| lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let mut lines = spaced_table(&heading, &rows, 3);
    for name in LEFT_OUT {
        if width(&lines) <= columns {
            break;
        }
        lines = spaced_table(&heading, &rows, 2);
        if width(&lines) > columns
            && let Some(at) = heading.iter().position(|column| *column == name)
        {
            heading.remove(at);
            // The total has fewer cells.
            rows.iter_mut().filter(|row| at < row.len()).for_each(|row| drop(row.remove(at)));
            lines = spaced_table(&heading, &rows, 2);
        }
    }
    lines.pop();
    lines
}

/// Memory is binary, as in the reports.
fn memory(bytes: u64) -> String {
    show_sum(bytes, Family::Binary)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a rate, and never negative
fn speed(bytes: f64) -> String {
    show_rate(bytes.max(0.0) as u64)
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use bench::load::Reading;
    use bench::sampling::Sample;

    use super::*;

    fn view(agents: usize, servers: usize) -> View {
        let line = |number: usize, system: Option<&str>| {
            let bytes = 1000 * number as u64;
            Line::new(
                &format!("n{number}"),
                system,
                Reading { operations: 1, bytes, failures: 0 },
                Some(&Sample::default()),
            )
        };
        View {
            planned: agents,
            agents: (0..agents).map(|number| line(number, None)).collect(),
            servers: (0..servers).map(|number| line(number, Some("weir"))).collect(),
            gone: vec!["n99 (connection lost)".into()],
            ..View::default()
        }
    }

    #[test]
    fn all_machines_and_a_total() {
        let lines = lines("1/2 large on weir: write 3 s", "q: stop", &view(3, 1), (160, 40));
        assert!(lines[0].starts_with("1/2 large") && lines[0].ends_with("q: stop"));
        let text = lines.join("\n");
        for part in ["n0 ", "n2 ", "total", "n0 (weir)", "lost: n99 (connection lost)", "3 kB/s", "0 B"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn a_narrow_terminal_has_whole_columns() {
        let mut view = view(3, 2);
        for line in view.agents.iter_mut().chain(&mut view.servers) {
            (line.bytes, line.operations, line.memory) = (1_234_000_000, 123_456, 20 << 30);
            (line.received, line.sent, line.disk_read, line.disk_written) = (1.23e9, 1.23e9, 1.23e9, 1.23e9);
        }
        let tables = |columns| [agents(&view, 9, columns), servers(&view, columns)].concat();
        let (wide, narrow) = (tables(130).join("\n"), tables(80));
        for column in ["dropped/s", "memory", "busy", "20.0 GiB"] {
            assert!(wide.contains(column), "{column} in {wide}");
        }
        assert!(narrow.iter().all(|line| line.chars().count() <= 80), "{narrow:#?}");
        let narrow = narrow.join("\n");
        for whole in ["1.23 GB/s", "failed/s", " in ", " out", "disk read"] {
            assert!(narrow.contains(whole), "{whole} in {narrow}");
        }
        assert!(!narrow.contains("dropped/s"), "{narrow}");
    }

    #[test]
    fn a_small_terminal_shows_the_slowest() {
        for (columns, rows) in [(80, 24), (40, 10), (10, 3), (1, 1)] {
            let lines = lines("title", "q: stop", &view(1000, 2), (columns, rows));
            assert!(lines.len() <= rows && lines.iter().all(|line| line.chars().count() <= columns));
        }
        let text = lines("title", "", &view(1000, 0), (120, 24)).join("\n");
        assert!(text.contains("n0 ") && !text.contains("n999") && text.contains("more"), "{text}");
    }
}
