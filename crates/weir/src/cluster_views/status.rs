//! `weir status`.

use cluster::Presence;
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
    let mut lines = table_lines(&["node", "name", "role", "state", "stores", "location", "clients", "nodes"], &rows);
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
    let copying = if status.copying > 0 { format!(", {} being copied", status.copying) } else { String::new() };
    let left = left(&status.repair, false).map(|left| format!("; {left}")).unwrap_or_default();
    lines.push(format!("{}{copying}{left}", how_many(status.missing, "missing replica")));
    lines.extend(failed(&status.repair));
    if status.groups_under_replicated > 0 {
        let all = counted(status.groups_under_replicated, "group");
        let without = match status.groups_unavailable {
            0 => String::new(),
            count => format!(", {count} of them with none online: what only they have cannot be read"),
        };
        lines.push(format!("{all} under-replicated{without} (`weir missing` lists the files)"));
    }
    lines.push(format!("{} to be deleted from stores", how_many(status.deletions, "object")));
    if status.is_older_than_stores {
        lines.push("the namespace is older than the objects on the stores, as after a restore from a backup: files that were created since have no names".into());
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
        node.roles.clone(),
        match node.presence {
            None => "answers".into(),
            Some(Presence::Online) => "online".into(),
            Some(Presence::Suspect) => "suspect".into(),
            Some(Presence::Away) => "away".into(),
        },
        node.stores.to_string(),
        node.locations.join(" "),
        node.clients.join(" "),
        node.nodes.join(" "),
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
