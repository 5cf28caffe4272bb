//! `weir status`.

use manager::{Counted, NodeView, StatusView};

use super::progress::{failed, left};
use super::{counted, show};
use crate::Failure;
use crate::cli::ManagerArgs;
use crate::config::units::show_size;
use crate::control::ControlRequest;
use crate::exit::Exit;
use crate::table::table_lines;

/// Runs the command.
pub(crate) fn run(args: &ManagerArgs) -> Result<Exit, Failure> {
    show(args, &ControlRequest::ClusterStatus, in_words)
}

fn in_words(status: &StatusView) -> Vec<String> {
    let rows: Vec<Vec<String>> = status.nodes.iter().map(row).collect();
    let mut lines = table_lines(&["node", "name", "state", "stores", "location", "clients"], &rows);
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
    lines.extend(under_replicated(status));
    let copying = if status.copying > 0 { format!(", {} being copied", status.copying) } else { String::new() };
    let left = left(&status.repair, false).map(|left| format!("; {left}")).unwrap_or_default();
    lines.push(format!("{}{copying}{left}", how_many(status.missing, "missing replica")));
    lines.extend(failed(&status.repair));
    lines.push(format!("{} to be deleted from stores", how_many(status.deletions, "object")));
    if status.is_older_than_stores {
        lines.push("the namespace is older than the objects on the stores, as after a restore".into());
        lines.push("from a backup: files that were created since have no names".into());
    }
    lines
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
        node.presence.map_or_else(|| node.roles.clone(), |presence| presence.to_string()),
        node.stores.to_string(),
        node.locations.join(" "),
        node.clients.join(" "),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_sentences() {
        let said = |count, and_more, what| how_many(Counted { count, and_more }, what);
        assert_eq!(said(0, false, "missing replica"), "0 missing replicas");
        assert_eq!(said(1, false, "missing replica"), "1 missing replica");
        assert_eq!(said(1, false, "file"), "1 file");
        assert_eq!(said(100_000, true, "file"), "more than 100000 files");
    }
}
