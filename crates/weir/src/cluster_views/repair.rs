//! `weir repair`.

use manager::{RepairView, StuckView};

use super::progress::{failed, left};
use super::{counted, show, store_meant};
use crate::Failure;
use crate::cli::RepairArgs;
use crate::control::ControlRequest;
use crate::exit::Exit;

/// Runs the command.
pub(crate) fn run(args: &RepairArgs) -> Result<Exit, Failure> {
    let store = args.store.as_ref().map(|said| store_meant(&args.manager.data, said)).transpose()?;
    show(
        &args.manager,
        &ControlRequest::Repair { remove_lost: store.map(|store| store.0), force: args.force },
        in_words,
    )
}

fn in_words(view: &RepairView) -> Vec<String> {
    if view.lost.is_empty() {
        return vec!["no store is removed as lost".into()];
    }
    let mut lines: Vec<String> = view
        .lost
        .iter()
        .map(|lost| match lost.groups {
            0 => format!("store {} at {} is replaced: no group depends on it any more", lost.store, lost.location),
            groups => {
                format!("store {} at {} is lost; {} depend on it", lost.store, lost.location, counted(groups, "group"))
            }
        })
        .collect();
    lines.push(under_way(view));
    lines.extend(failed(&view.progress));
    let of_lost = |stuck: &&StuckView| view.lost.iter().any(|lost| lost.store == stuck.store);
    for stuck in view.stuck.iter().filter(of_lost) {
        lines.push(format!("group {} stays without store {}: {}", stuck.group, stuck.store, stuck.why));
    }
    lines
}

/// The copies in progress, in words.
pub(super) fn under_way(view: &RepairView) -> String {
    let more = if view.missing.and_more { "more than " } else { "" };
    let groups = counted(view.backfill, "group");
    let left = left(&view.progress, view.backfill > 0).map(|left| format!("; {left}")).unwrap_or_default();
    format!("{groups} in backfill; missing replicas: {more}{}, {} being copied{left}", view.missing.count, view.copying)
}

#[cfg(test)]
mod tests {
    use manager::{CopyProgress, Counted, FailedCopyView, LeaverView};

    use super::*;

    #[test]
    fn a_repair_shows_losses_progress_and_failures() {
        let lost = |groups| LeaverView { store: "7".into(), location: "s/r/h".into(), groups, is_empty: false };
        let missing = Counted { count: 3, and_more: false };
        let view = RepairView {
            lost: vec![lost(2)],
            draining: Vec::new(),
            backfill: 1,
            missing,
            copying: 2,
            stuck: Vec::new(),
            progress: CopyProgress::default(),
        };
        assert_eq!(
            in_words(&view),
            [
                "store 7 at s/r/h is lost; 2 groups depend on it",
                "1 group in backfill; missing replicas: 3, 2 being copied"
            ]
        );
        let last_failed = Some(FailedCopyView {
            path: Some("/f".into()),
            from: "store 1".into(),
            to: "store 2".into(),
            why: "the source store does not answer".into(),
            times: 1,
        });
        let missing_bytes = Counted { count: 3 << 20, and_more: false };
        let progress = CopyProgress { failed: 1, last_failed, missing_bytes, ..CopyProgress::default() };
        let lines = in_words(&RepairView { progress, ..view.clone() });
        assert_eq!(
            lines[1..],
            [
                "1 group in backfill; missing replicas: 3, 2 being copied; at least 3.00 MiB to copy",
                "1 replica could not be made yet, and repair tries again: /f, from store 1 to store 2: the source store does not answer",
            ]
        );
        let stuck = vec![StuckView { group: 4, store: "7".into(), why: "no room".into() }];
        let lines = in_words(&RepairView { lost: vec![lost(0)], stuck, ..view.clone() });
        assert_eq!(lines[0], "store 7 at s/r/h is replaced: no group depends on it any more");
        assert_eq!(lines[2], "group 4 stays without store 7: no room");
        assert_eq!(in_words(&RepairView { lost: Vec::new(), ..view }), ["no store is removed as lost"]);
    }
}
