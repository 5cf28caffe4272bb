//! `weir status`: the verdict and its reasons, then how the cluster or the node is.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use config::units::show_size;
use control::ControlRequest;
use manager::{Counted, DamageCounts, ManagerState, NodeView, StatusView};
use monitor::health::{UNKNOWN, check_line, unknown_line};

use super::progress::{failed, left};
use super::{counted, show};
use crate::Failure;
use crate::cli::StatusArgs;
use crate::context::{Target, on_own_thread};
use crate::exit::Exit;
use crate::health::{ActiveStatus, DiskView, NodeStatus, StandbyStatus, StatusAnswer};
use crate::table::table_lines;
use crate::wrap::{WIDTH, wrapped};

const HEADING: [&str; 6] = ["node", "name", "state", "stores", "location", "clients"];
/// The columns of the table that is left if the whole one is too wide: the others follow below each row.
const NARROW: usize = 4;

/// How long a check waits for the answer. Monitoring systems end a check after 10 s, or more.
const CHECK: Duration = Duration::from_secs(8);

/// Runs the command, without `--check`.
pub(crate) fn run(args: &StatusArgs) -> Result<Exit, Failure> {
    show(&args.manager, &ControlRequest::Status, in_words)
}

/// Runs the command with `--check`: prints one line and returns Nagios's exit code.
pub(crate) fn check(args: &StatusArgs) -> u8 {
    let target = args.manager.data.clone();
    // On its own thread, with everything that may take long: an administrator's certificate may be renewed first.
    let asked = on_own_thread(move || {
        let target = Target::of(&target)?;
        let answer = target.ask_silently::<StatusAnswer>(&ControlRequest::Status);
        answer.map_err(|error| target.failure(error, "this is answered by a running manager"))
    });
    let (code, line) = match asked.map(|answer| answer.recv_timeout(CHECK)) {
        Ok(Ok(Ok(answer))) => check_line(answer.health()),
        Ok(Ok(Err(failure))) => (UNKNOWN, unknown_line(&failure.to_string())),
        Ok(Err(_)) => (UNKNOWN, unknown_line(&format!("no answer for {} s", CHECK.as_secs()))),
        Err(error) => (UNKNOWN, unknown_line(&error.to_string())),
    };
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Ok(()) => code,
        Err(_) => UNKNOWN,
    }
}

/// A line of the verdict with its word in a colour.
fn coloured(line: &str) -> String {
    let (before, rest) = line.split_at(if line.starts_with("- ") { 2 } else { 0 });
    for (word, colour) in [("healthy", 32), ("warning", 33), ("critical", 31)] {
        if let Some(after) = rest.strip_prefix(word) {
            return format!("{before}\x1b[{colour}m{word}\x1b[0m{after}");
        }
    }
    line.to_owned()
}

fn in_words(answer: &StatusAnswer) -> Vec<String> {
    let health = answer.health();
    let is_coloured = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    let mut lines = wrapped(health.lines());
    let of_verdict = lines.len();
    lines.push(String::new());
    match answer {
        StatusAnswer::Manager { status: Some(status), .. } => lines.extend(of_cluster(status)),
        StatusAnswer::Manager { status: None, .. } => {
            lines.push("a manager, which cannot read its names now: its nodes and stores are not known".into());
        }
        StatusAnswer::Single { node, .. } => {
            lines.push("a single node".into());
            lines.extend(of_node(node));
        }
        StatusAnswer::Standby { standby, .. } => lines.extend(of_standby(standby)),
        StatusAnswer::Disk { node, manager, .. } => {
            let manager = manager.as_deref().map(|at| format!(" of the cluster at root://{at}/")).unwrap_or_default();
            lines.push(format!("a disk server{manager}"));
            lines.extend(of_node(node));
        }
    }
    lines.push(format!("full at the present rate: {}", health.space_ends.words()));
    let mut lines = wrapped(lines);
    if is_coloured {
        lines.iter_mut().take(of_verdict).for_each(|line| *line = coloured(line));
    }
    lines
}

fn of_standby(standby: &StandbyStatus) -> Vec<String> {
    let StandbyStatus { node, standby_seconds, active, database_trouble, answers_readers } = standby;
    let active = match active {
        Some(ActiveStatus { node, nodes, clients, is_connected }) => {
            let is_away = if *is_connected { "" } else { ", without a connection" };
            format!("the active manager is node {node} at {nodes}, for clients at root://{clients}/{is_away}")
        }
        None => "the active manager is not known".to_owned(),
    };
    vec![
        format!("a standby manager, node {node}, since {standby_seconds} s"),
        active,
        match database_trouble {
            Some(why) => format!("the database does not answer: {why}"),
            None => "the database answers".to_owned(),
        },
        match answers_readers {
            true => "readers are answered here".to_owned(),
            false => "readers are sent to the active manager".to_owned(),
        },
    ]
}

fn of_node(node: &NodeStatus) -> Vec<String> {
    let disk = |DiskView { name, capacity, available }: &DiskView| match capacity {
        0 => format!("{name}: its space cannot be determined"),
        _ => format!("{name}: {} free of {}", show_size(*available), show_size(*capacity)),
    };
    let NodeStatus { disks, sessions, open_files, writers } = node;
    let mut lines: Vec<String> = disks.iter().map(disk).collect();
    lines.push(format!(
        "{}, {} open, {} being written",
        counted(*sessions, "client"),
        counted(*open_files, "file"),
        counted(*writers, "file")
    ));
    lines
}

/// The nodes. If the table is too wide for a terminal, locations and addresses follow on lines of their own.
fn nodes(status: &StatusView) -> Vec<String> {
    let rows: Vec<Vec<String>> = status.nodes.iter().map(row).collect();
    let lines = table_lines(&HEADING, &rows);
    if lines.iter().all(|line| line.chars().count() <= WIDTH) {
        return lines;
    }
    let narrow: Vec<Vec<String>> = rows.iter().map(|cells| cells[..NARROW].to_vec()).collect();
    let mut narrow = table_lines(&HEADING[..NARROW], &narrow).into_iter();
    let mut lines: Vec<String> = narrow.by_ref().take(2).collect();
    for (line, cells) in narrow.zip(&rows) {
        lines.push(line);
        let more = cells[NARROW..].iter().filter(|cell| !cell.is_empty());
        lines.extend(more.map(|cell| format!("    {cell}")));
    }
    lines
}

fn of_cluster(status: &StatusView) -> Vec<String> {
    let mut lines = nodes(status);
    lines.push(String::new());
    let all = status.stores.values().sum();
    let states: Vec<String> = status.stores.iter().map(|(state, count)| format!("{count} {state}")).collect();
    lines.push(match all {
        0 => "no stores".into(),
        _ => format!("{}: {}", counted(all, "store"), states.join(", ")),
    });
    lines.push(format!(
        "{} free of {} on stores that take files",
        show_size(status.available),
        show_size(status.capacity)
    ));
    lines.push(format!("{} being written", how_many(status.writers, "file")));
    let given = if status.is_default_given { ", as the stores stand on several hosts" } else { "" };
    lines.push(format!("default policy: {}{given}", status.default_policy));
    lines.extend(under_replicated(status));
    let copying = if status.copying > 0 { format!(", {} being copied", status.copying) } else { String::new() };
    let left = left(&status.repair, false).map(|left| format!("; {left}")).unwrap_or_default();
    lines.push(format!("{}{copying}{left}", how_many(status.missing, "missing replica")));
    lines.extend(failed(&status.repair));
    lines.extend(damaged(status.damaged));
    lines.push(format!("{} to be deleted from stores", how_many(status.deletions, "object")));
    lines
}

/// The damaged replicas, if there are any.
fn damaged(counts: DamageCounts) -> Option<String> {
    let DamageCounts { repairing, waiting, no_other, .. } = counts;
    let all = repairing + waiting + no_other;
    (all > 0).then(|| {
        format!(
            "{}: {repairing} being replaced, {waiting} waiting, {no_other} without an intact one; `weir scrub` lists them",
            counted(all, "damaged replica")
        )
    })
}

/// The files that have fewer replicas than they should, whatever the reason.
fn under_replicated(status: &StatusView) -> Vec<String> {
    let StatusView { under_replicated, unreadable, .. } = status;
    if under_replicated.count == 0 && !under_replicated.and_more {
        return vec!["all files have all their replicas".into()];
    }
    let mut lines =
        vec![format!("{} under-replicated; `weir missing` lists them", how_many(*under_replicated, "file"))];
    if unreadable.count > 0 || unreadable.and_more {
        let more = if unreadable.and_more { "more than " } else { "" };
        let count = unreadable.count;
        lines.push(format!("{more}{count} of them cannot be read now; `weir missing --unreadable` lists them"));
    }
    lines
}

fn how_many(counted: Counted, what: &str) -> String {
    let plural = match counted.count {
        1 => what.to_owned(),
        _ => format!("{what}s"),
    };
    let more = if counted.and_more { "more than " } else { "" };
    format!("{more}{} {plural}", counted.count)
}

fn row(node: &NodeView) -> Vec<String> {
    vec![
        node.node.to_string(),
        node.name.clone(),
        match node.presence {
            Some(_) if node.is_being_removed => "being removed".to_owned(),
            Some(presence) => presence.to_string(),
            None => match node.manager {
                None | Some(ManagerState::Active) => node.roles.clone(),
                Some(ManagerState::Standby) => "standby".to_owned(),
                Some(ManagerState::Offline) => "offline".to_owned(),
            },
        },
        node.stores.to_string(),
        node.locations.join(" "),
        node.clients.join(" "),
    ]
}

#[cfg(test)]
mod tests {
    use cluster::Presence;
    use monitor::health::{Finding, Health, Reason, Verdict};
    use types::NodeId;

    use super::*;

    fn node(number: u64, client: &str) -> NodeView {
        NodeView {
            node: NodeId(number),
            name: format!("ds{number}.a-long-domain.example.org"),
            roles: "disk".into(),
            presence: Some(Presence::Online),
            manager: None,
            is_being_removed: false,
            clients: vec![client.into()],
            nodes: Vec::new(),
            stores: 1,
            locations: vec!["a-long-site/r1/host".into()],
            capacity: 0,
            available: 0,
            load_permille: 0,
            activity: None,
        }
    }

    fn status(nodes: Vec<NodeView>) -> StatusView {
        StatusView {
            nodes,
            stores: [(cluster::placement::StoreState::Online, 2)].into(),
            capacity: 100 << 30,
            available: 50 << 30,
            writers: Counted::default(),
            missing: Counted::default(),
            copying: 0,
            repair: manager::CopyProgress::default(),
            under_replicated: Counted::default(),
            single_copy: Counted::default(),
            unreadable: Counted::default(),
            interrupted: Counted::default(),
            groups_under_replicated: 0,
            groups_unavailable: 0,
            deletions: Counted::default(),
            is_older_than_stores: false,
            damaged: DamageCounts::default(),
            is_held: false,
            default_policy: "replica(1)".into(),
            is_default_given: false,
        }
    }

    fn health() -> Health {
        let finding = Finding { reason: Reason::NodeAway, severity: Verdict::Warning, text: "word ".repeat(30) };
        Health { verdict: Verdict::Warning, reasons: vec![finding], ..Health::default() }
    }

    #[test]
    fn only_the_words_of_the_verdict_have_colours() {
        assert_eq!(coloured("healthy"), "\x1b[32mhealthy\x1b[0m");
        assert_eq!(coloured("- critical: a store"), "- \x1b[31mcritical\x1b[0m: a store");
        assert_eq!(coloured("  that is offline: warning"), "  that is offline: warning");
    }

    #[test]
    fn a_status_fits_80_columns_whatever_the_names_are() {
        let nodes = vec![node(1, "ds1.a-long-domain.example.org:1094"), node(2, "[2001:db8:1234:5678::1]:1094")];
        let answer = StatusAnswer::Manager { health: health(), status: Some(Box::new(status(nodes))) };
        let lines = in_words(&answer);
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{lines:#?}");
        assert_eq!(lines[0], "warning");
        assert!(lines.contains(&"    ds1.a-long-domain.example.org:1094".to_owned()), "{lines:#?}");
        assert!(lines.contains(&"    a-long-site/r1/host".to_owned()), "{lines:#?}");
        assert_eq!(lines.last().map(String::as_str), Some("full at the present rate: not known yet"));
    }

    #[test]
    fn every_answer_reads_back() {
        let disks = vec![DiskView { name: "store 1".into(), capacity: 5, available: 3 }];
        let node_status = NodeStatus { disks, sessions: 1, open_files: 2, writers: 0 };
        for answer in [
            StatusAnswer::Manager { health: health(), status: Some(Box::new(status(vec![node(1, "h:1")]))) },
            StatusAnswer::Manager { health: health(), status: None },
            StatusAnswer::Single { health: health(), node: node_status.clone() },
            StatusAnswer::Disk { health: health(), node: node_status, manager: Some("h:1".into()) },
        ] {
            let text = serde_json::to_string(&answer).unwrap();
            assert_eq!(serde_json::from_str::<StatusAnswer>(&text).unwrap(), answer, "{text}");
        }
    }

    #[test]
    fn numbers_read_as_sentences() {
        let said = |count, and_more, what| how_many(Counted { count, and_more }, what);
        assert_eq!(said(0, false, "missing replica"), "0 missing replicas");
        assert_eq!(said(1, false, "missing replica"), "1 missing replica");
        assert_eq!(said(1, false, "file"), "1 file");
        assert_eq!(said(100_000, true, "file"), "more than 100000 files");
    }
}
