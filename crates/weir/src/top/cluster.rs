//! `weir top` for all nodes of a cluster, as the manager sees them.

use cluster::Presence;
use control::ControlRequest;
use manager::{ActivityView, NodeView, TopView};
use monitor::{Seen, Size, Source, fitted};
use types::units::show_size;

use crate::Failure;
use crate::cli::TargetArgs;
use crate::cluster_views::asked;
use crate::table::{spaced_table, table_lines};

const HEADING: [&str; 10] = ["node", "at", "state", "open", "wr", "in/s", "out/s", "load", "free", "heard"];
/// The columns of the address, and of the rates.
const AT: usize = 1;
const IN: usize = 5;
const OUT: usize = 6;
/// The shortest form of an address.
const AT_MIN: usize = 4;

pub(super) struct Cluster {
    target: TargetArgs,
}

impl Cluster {
    /// Asks the manager that `target` names.
    pub(super) fn new(target: &TargetArgs) -> Self {
        Self { target: target.clone() }
    }
}

impl Source for Cluster {
    fn look(&mut self) -> Result<Option<Box<dyn Seen>>, Failure> {
        let view: TopView = asked(&self.target, &ControlRequest::Top)?;
        Ok(Some(Box::new(SeenCluster(view))))
    }
}

/// The manager's view of a cluster at one moment.
struct SeenCluster(TopView);

impl Seen for SeenCluster {
    fn json(&self) -> String {
        serde_json::to_string(&self.0).unwrap_or_default()
    }

    fn lines(&self, size: Option<Size>) -> Vec<String> {
        let mut lines = totals(&self.0);
        let bold = [0, lines.len()];
        let mut nodes: Vec<&NodeView> = self.0.status.nodes.iter().collect();
        // The manager first, then nodes that need attention, so that they show even if not all fit.
        nodes.sort_by_key(|node| match node.presence {
            None => 0,
            Some(Presence::Away) => 1,
            Some(Presence::Suspect) => 2,
            Some(Presence::Online) => 3,
        });
        let rows: Vec<Vec<String>> = nodes.into_iter().map(row).collect();
        lines.extend(match size {
            Some(size) => narrow(rows, size.columns),
            None => table_lines(&HEADING, &rows),
        });
        match size {
            Some(size) => fitted(lines, size, &bold),
            None => lines,
        }
    }
}

/// The table of nodes on a terminal of so many columns. If it is too wide, the cells move together, and addresses get shorter: without the
/// port, then cut.
fn narrow(mut rows: Vec<Vec<String>>, columns: usize) -> Vec<String> {
    let widest = |lines: &[String]| lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let lines = table_lines(&HEADING, &rows);
    if widest(&lines) <= columns {
        return lines;
    }
    for cells in &mut rows {
        if let Some((host, _)) = cells[AT].rsplit_once(':') {
            cells[AT] = host.to_owned();
        }
        // The heading says it.
        for rate in [IN, OUT] {
            cells[rate] = cells[rate].trim_end_matches("/s").to_owned();
        }
    }
    let over = widest(&spaced_table(&HEADING, &rows, 1)).saturating_sub(columns);
    if over > 0 {
        let longest = rows.iter().map(|cells| cells[AT].chars().count()).max().unwrap_or(0);
        let room = longest.saturating_sub(over).max(AT_MIN);
        for cells in &mut rows {
            if cells[AT].chars().count() > room {
                cells[AT] = cells[AT].chars().take(room - 1).chain(['…']).collect();
            }
        }
    }
    spaced_table(&HEADING, &rows, 1)
}

fn totals(view: &TopView) -> Vec<String> {
    let status = &view.status;
    let servers: Vec<Presence> = status.nodes.iter().filter_map(|node| node.presence).collect();
    let count = |wanted: Presence| servers.iter().filter(|presence| **presence == wanted).count();
    let mut here = format!("{} of {} disk servers online", count(Presence::Online), servers.len());
    for (presence, name) in [(Presence::Suspect, "suspect"), (Presence::Away, "away")] {
        if count(presence) > 0 {
            here.push_str(&format!(", {} {name}", count(presence)));
        }
    }
    let stores: Vec<String> = status.stores.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let more = |counted: manager::Counted| format!("{}{}", counted.count, if counted.and_more { "+" } else { "" });
    vec![
        format!("{here}   stores {}", if stores.is_empty() { "none".into() } else { stores.join(", ") }),
        format!(
            "in {}/s   out {}/s   sessions {}   files open {}   being written {}",
            show_size(view.written_bytes_per_second),
            show_size(view.read_bytes_per_second),
            view.sessions,
            view.open_files,
            more(status.writers)
        ),
        format!(
            "missing replicas {}, being copied {}, copied {} ({})   to delete {}",
            more(status.missing),
            status.copying,
            view.repaired_replicas,
            show_size(view.repaired_bytes),
            more(status.deletions)
        ),
        format!("space {} free of {}", show_size(status.available), show_size(status.capacity)),
    ]
}

fn row(node: &NodeView) -> Vec<String> {
    let nothing = || "-".to_owned();
    // Do not show old values as if they were current.
    let fresh = node.activity.as_ref().filter(|said| said.is_fresh());
    let number = |of: fn(&ActivityView) -> u64| fresh.map_or_else(nothing, |said| of(said).to_string());
    let rate = |of: fn(&ActivityView) -> Option<u64>| {
        fresh.and_then(of).map_or_else(nothing, |rate| format!("{}/s", show_size(rate)))
    };
    let is_manager = node.presence.is_none();
    vec![
        node.node.to_string(),
        node.clients.first().unwrap_or(&node.name).clone(),
        match node.presence {
            None => "manager".into(),
            Some(Presence::Online) => "online".into(),
            Some(Presence::Suspect) => "suspect".into(),
            Some(Presence::Away) => "away".into(),
        },
        number(|said| said.activity.open_files),
        number(|said| said.activity.writing),
        rate(|said| said.written_bytes_per_second),
        rate(|said| said.read_bytes_per_second),
        fresh.map_or_else(nothing, |_| format!("{}%", node.load_permille.div_ceil(10))),
        if node.capacity == 0 { nothing() } else { show_size(node.available) },
        match &node.activity {
            _ if is_manager => nothing(),
            None => "not yet".into(),
            Some(said) if said.is_fresh() => "now".into(),
            Some(said) => format!("{} ago", age(said.age_millis / 1000)),
        },
    ]
}

fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use manager::{Counted, StatusView};
    use types::NodeId;

    use super::*;

    fn node(number: u64, presence: Option<Presence>, activity: Option<ActivityView>) -> NodeView {
        NodeView {
            node: NodeId(number),
            name: "host".into(),
            roles: "disk".into(),
            presence,
            manager: None,
            is_being_removed: false,
            clients: vec![format!("10.0.0.{number}:1094")],
            nodes: Vec::new(),
            stores: 1,
            locations: Vec::new(),
            capacity: 100 << 30,
            available: 50 << 30,
            load_permille: 251,
            activity,
        }
    }

    fn said(age_millis: u64) -> ActivityView {
        let rate = (age_millis < 3000).then_some(3 << 20);
        ActivityView {
            age_millis,
            activity: node::Activity {
                up_millis: 100_000,
                sessions: 2,
                open_files: 7,
                writing: 4,
                read_bytes: 0,
                written_bytes: 1 << 30,
                writers_memory: 4 * 393_216,
                writers_memory_max: 512 << 20,
            },
            read_bytes_per_second: rate.map(|_| 0),
            written_bytes_per_second: rate,
        }
    }

    fn view(nodes: Vec<NodeView>) -> TopView {
        TopView {
            read_bytes_per_second: 0,
            written_bytes_per_second: 3 << 20,
            sessions: 2,
            open_files: 7,
            repaired_replicas: 5,
            repaired_bytes: 5 << 20,
            status: StatusView {
                under_replicated: Counted::default(),
                single_copy: Counted::default(),
                unreadable: Counted::default(),
                interrupted: Counted::default(),
                groups_under_replicated: 0,
                groups_unavailable: 0,
                is_older_than_stores: false,
                damaged: manager::DamageCounts::default(),
                is_held: false,
                default_policy: "replica(1)".into(),
                is_default_given: false,
                nodes,
                stores: [(cluster::placement::StoreState::Online, 1)].into(),
                capacity: 100 << 30,
                available: 50 << 30,
                writers: Counted { count: 4, and_more: false },
                missing: Counted { count: 10_000, and_more: true },
                copying: 8,
                repair: manager::CopyProgress::default(),
                deletions: Counted::default(),
            },
        }
    }

    #[test]
    fn an_away_node_shows_when_it_was_heard_and_no_old_activity() {
        let nodes = vec![
            node(1, None, None),
            node(2, Some(Presence::Online), Some(said(900))),
            node(3, Some(Presence::Away), Some(said(130_000))),
            node(4, Some(Presence::Away), None),
        ];
        let lines = SeenCluster(view(nodes)).lines(None);
        assert_eq!(lines[0], "1 of 3 disk servers online, 2 away   stores 1 online");
        assert!(lines[1].starts_with("in 3.00 MiB/s   out 0 B/s"), "{}", lines[1]);
        assert!(lines[2].contains("missing replicas 10000+, being copied 8, copied 5 (5.00 MiB)"), "{}", lines[2]);
        let cells: Vec<Vec<&str>> = lines[6..].iter().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(cells[0], ["1", "10.0.0.1:1094", "manager", "-", "-", "-", "-", "-", "50.0", "GiB", "-"]);
        assert_eq!(cells[1][..8], ["3", "10.0.0.3:1094", "away", "-", "-", "-", "-", "-"]);
        assert_eq!(cells[1][8..], ["50.0", "GiB", "2", "min", "ago"]);
        assert_eq!(cells[2][10..], ["not", "yet"]);
        assert_eq!(
            cells[3],
            ["2", "10.0.0.2:1094", "online", "7", "4", "3.00", "MiB/s", "0", "B/s", "26%", "50.0", "GiB", "now"]
        );
    }

    #[test]
    fn the_table_fits_80_columns() {
        let mut nodes = vec![
            node(1, None, None),
            node(2, Some(Presence::Suspect), Some(said(900))),
            node(3, Some(Presence::Away), Some(said(130_000))),
        ];
        let fits = |nodes: Vec<NodeView>| {
            let lines = SeenCluster(view(nodes)).lines(Some(Size { columns: 80, rows: 40 }));
            // Nothing is cut off at the right: the last column is whole.
            assert!(
                lines[6].ends_with(" -") && lines[7].ends_with("2 min ago") && lines[8].ends_with("now"),
                "{lines:#?}"
            );
            assert!(lines.iter().all(|line| line.chars().count() <= 80 + 8), "{lines:#?}"); // bold takes some
            lines
        };
        assert!(fits(nodes.clone())[7].contains("10.0.0.3 "));
        nodes[1].clients = vec!["a-very-long-name.of-a-disk-server.example.org:1094".into()];
        assert!(fits(nodes)[8].contains("…"));
    }

    #[test]
    fn the_table_counts_the_nodes_that_do_not_fit() {
        let nodes = (1..=100).map(|number| node(number, Some(Presence::Online), Some(said(0)))).collect();
        let lines = SeenCluster(view(nodes)).lines(Some(Size { columns: 60, rows: 20 }));
        assert_eq!(lines.len(), 20);
        assert!(lines[19].contains("87 lines more"), "{}", lines[19]);
        assert!(lines.iter().all(|line| line.chars().count() <= 60 + 8));
    }
}
