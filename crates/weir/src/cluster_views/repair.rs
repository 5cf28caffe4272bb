//! `weir repair`.

use control::ControlRequest;
use manager::{CopyProgress, RepairView, StuckView};

use super::progress::{Progress, failed, left};
use super::{asked, counted, print, show};
use crate::Failure;
use crate::cli::{RepairArgs, TargetArgs};
use crate::exit::Exit;
use crate::wrap::wrapped;

/// Repair has ended if it has done nothing in so many looks: it pauses between two steps.
const LOOKS_AT_REST: u32 = 4;

/// Runs the command.
pub(crate) fn run(args: &RepairArgs) -> Result<Exit, Failure> {
    if !args.wait {
        return show(&args.manager, &ControlRequest::Repair, |view| wrapped(in_words(view)));
    }
    let view = wait(&args.manager.data)?;
    print(&args.manager, &view, |view| wrapped(in_words(view)))?;
    Ok(if is_complete(&view) { Exit::Done } else { Exit::Wrong })
}

/// Waits until repair has nothing left that it can do. Prints each change of the progress on stderr.
fn wait(data: &TargetArgs) -> Result<RepairView, Failure> {
    let (mut progress, mut at_rest) = (Progress::default(), 0);
    loop {
        let view: RepairView = asked(data, &ControlRequest::Repair)?;
        at_rest = if view.is_at_work { 0 } else { at_rest + 1 };
        if at_rest >= LOOKS_AT_REST {
            return Ok(view);
        }
        progress.show_and_pause(in_words(&view));
    }
}

/// Whether no replica is missing, and others have replaced all stores that were removed as lost.
fn is_complete(view: &RepairView) -> bool {
    view.missing.count == 0 && view.lost.iter().all(|lost| lost.groups == 0)
}

/// `1 group still depends`, `2 groups still depend`.
pub(super) fn counted_groups(groups: u64) -> String {
    format!("{} still {}", counted(groups, "group"), if groups == 1 { "depends" } else { "depend" })
}

fn in_words(view: &RepairView) -> Vec<String> {
    if view.lost.is_empty() && !view.is_at_work && view.missing.count == 0 {
        return vec!["no store is removed as lost, and no replica is missing".into()];
    }
    let mut lines: Vec<String> = view
        .lost
        .iter()
        .map(|lost| match lost.groups {
            0 => format!("store {} at {} is replaced", lost.store, lost.location),
            groups => {
                let left = counted_groups(groups);
                format!("store {} at {} is removed as lost: {left} on it", lost.store, lost.location)
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
    let progress = CopyProgress {
        bytes_per_second: view.progress.bytes_per_second.filter(|_| view.copying > 0),
        ..view.progress.clone()
    };
    let left = left(&progress, view.backfill > 0).map(|left| format!("; {left}")).unwrap_or_default();
    format!("{groups} in backfill; missing replicas: {more}{}, {} being copied{left}", view.missing.count, view.copying)
}

#[cfg(test)]
mod tests {
    use manager::{Counted, FailedCopyView, LeaverView};

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
            is_at_work: true,
        };
        assert_eq!(
            in_words(&view),
            [
                "store 7 at s/r/h is removed as lost: 2 groups still depend on it",
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
        assert_eq!(lines[0], "store 7 at s/r/h is replaced");
        assert_eq!(lines[2], "group 4 stays without store 7: no room");
        let nothing = Counted { count: 0, and_more: false };
        let at_rest = RepairView { lost: Vec::new(), missing: nothing, is_at_work: false, ..view.clone() };
        assert_eq!(in_words(&at_rest), ["no store is removed as lost, and no replica is missing"]);
        assert!(is_complete(&at_rest) && !is_complete(&view));
        assert!(!is_complete(&RepairView { missing: nothing, ..view.clone() }), "a group depends on a lost store");
        assert!(is_complete(&RepairView { lost: vec![lost(0)], ..at_rest }));
    }
}
