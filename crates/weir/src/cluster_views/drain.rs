//! `weir drain`.

use control::ControlRequest;
use manager::{LeaverView, RepairView};
use types::StoreId;

use super::progress::{Progress, failed};
use super::repair::{counted_groups, under_way};
use super::{asked, print, stores_meant};
use crate::Failure;
use crate::cli::{DrainArgs, TargetArgs};
use crate::exit::Exit;
use crate::wrap::wrapped;

/// Draining cannot go on if nothing was done in so many looks, in half a minute: a store that would take the objects may just be starting again.
const LOOKS_AT_REST: u32 = 60;

/// Runs the command.
pub(crate) fn run(args: &DrainArgs) -> Result<Exit, Failure> {
    let DrainArgs { store, node, stop, wait, manager } = args;
    let stores = stores_meant(&manager.data, store.as_deref(), node.as_deref())?;
    if stores.is_empty() && (*stop || *wait) {
        return Err(Failure::message(Exit::Usage, "--stop and --wait need a store, or --node NODE"));
    }
    let mut view: RepairView = asked(&manager.data, &ControlRequest::Drain { store: None, stop: false })?;
    for store in &stores {
        view = asked(&manager.data, &ControlRequest::Drain { store: Some(store.0), stop: *stop })?;
    }
    if *wait {
        view = wait_for(&manager.data, &stores, view)?;
    }
    print(manager, &view, |view| wrapped(in_words(view)))?;
    let is_left =
        |leaver: &LeaverView| !leaver.is_empty && stores.iter().any(|store| leaver.store == store.to_string());
    Ok(if *wait && view.draining.iter().any(is_left) { Exit::Wrong } else { Exit::Done })
}

/// Waits until the stores are empty, or until nothing has moved for half a minute. Prints the progress on stderr.
fn wait_for(data: &TargetArgs, stores: &[StoreId], mut view: RepairView) -> Result<RepairView, Failure> {
    let (mut progress, mut at_rest) = (Progress::default(), 0);
    loop {
        let mut lines = Vec::new();
        let (mut left, mut goes_on) = (false, view.is_at_work);
        for store in stores {
            let Some(leaver) = view.draining.iter().find(|leaver| leaver.store == store.to_string()) else {
                return Err(Failure::message(
                    Exit::Failed,
                    format!("store {store} is not draining any more: draining was stopped"),
                ));
            };
            let stuck = stuck(&view, leaver);
            left |= !leaver.is_empty;
            // Its replicas are being deleted, however long that takes.
            goes_on |= !leaver.is_empty && leaver.groups == 0;
            lines.push(stuck.into_iter().next().unwrap_or_else(|| standing(leaver)));
        }
        at_rest = if goes_on { 0 } else { at_rest + 1 };
        if !left || at_rest >= LOOKS_AT_REST {
            return Ok(view);
        }
        lines.push(under_way(&view));
        progress.show_and_pause(lines);
        view = asked(data, &ControlRequest::Drain { store: None, stop: false })?;
    }
}

fn in_words(view: &RepairView) -> Vec<String> {
    if view.draining.is_empty() {
        return vec!["no store is draining".into()];
    }
    let mut lines: Vec<String> = view.draining.iter().map(standing).collect();
    if view.draining.iter().any(|leaver| !leaver.is_empty) {
        lines.push(under_way(view));
        lines.extend(failed(&view.progress));
    }
    lines.extend(view.draining.iter().flat_map(|leaver| stuck(view, leaver)));
    lines
}

fn standing(leaver: &LeaverView) -> String {
    let LeaverView { store, location, groups, is_empty } = leaver;
    match groups {
        0 if *is_empty => format!("store {store} at {location} is drained: its disk can be taken away"),
        0 => format!("store {store} at {location}: everything is on other stores; its replicas are being deleted"),
        _ => format!("store {store} at {location} is draining: {} on it", counted_groups(*groups)),
    }
}

fn stuck(view: &RepairView, leaver: &LeaverView) -> Vec<String> {
    let of_it = view.stuck.iter().filter(|stuck| stuck.store == leaver.store);
    of_it.map(|stuck| format!("group {} still needs store {}: {}", stuck.group, stuck.store, stuck.why)).collect()
}

#[cfg(test)]
mod tests {
    use manager::{CopyProgress, Counted, StuckView};

    use super::*;

    #[test]
    fn a_drain_shows_its_progress_and_its_obstacles() {
        let leaver = |groups, is_empty| LeaverView { store: "7".into(), location: "s/r/h".into(), groups, is_empty };
        let missing = Counted { count: 3, and_more: true };
        let stuck = vec![
            StuckView { group: 4, store: "7".into(), why: "no room".into() },
            StuckView { group: 5, store: "8".into(), why: "another one's".into() },
        ];
        let with = |leaver| RepairView {
            lost: Vec::new(),
            draining: vec![leaver],
            backfill: 1,
            missing,
            copying: 2,
            stuck: stuck.clone(),
            progress: CopyProgress::default(),
            is_at_work: true,
        };
        assert_eq!(
            in_words(&with(leaver(2, false))),
            [
                "store 7 at s/r/h is draining: 2 groups still depend on it",
                "1 group in backfill; missing replicas: more than 3, 2 being copied",
                "group 4 still needs store 7: no room",
            ]
        );
        let deleting = in_words(&with(leaver(0, false)));
        assert_eq!(deleting[0], "store 7 at s/r/h: everything is on other stores; its replicas are being deleted");
        let empty = in_words(&RepairView { stuck: Vec::new(), ..with(leaver(0, true)) });
        assert_eq!(empty, ["store 7 at s/r/h is drained: its disk can be taken away"]);
        assert_eq!(in_words(&RepairView { draining: Vec::new(), ..with(leaver(0, true)) }), ["no store is draining"]);
    }
}
