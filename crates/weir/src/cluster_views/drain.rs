//! `weir drain`.

use std::io::Write as _;
use std::time::Duration;

use manager::{LeaverView, RepairView};
use types::StoreId;

use super::progress::failed;
use super::repair::under_way;
use super::{asked, counted, show, store_meant};
use crate::Failure;
use crate::cli::DrainArgs;
use crate::control::ControlRequest;
use crate::exit::Exit;

/// How often the command asks for the progress.
const LOOK: Duration = Duration::from_millis(500);

/// Runs the command.
pub(crate) fn run(args: &DrainArgs) -> Result<Exit, Failure> {
    let store = args.store.as_ref().map(|said| store_meant(&args.manager.data, said)).transpose()?;
    if let Some(store) = store.filter(|_| args.wait) {
        wait(args, store)?;
    }
    show(&args.manager, &ControlRequest::Drain { store: store.map(|store| store.0), stop: args.stop }, in_words)
}

/// Waits until the store is empty. Prints each change of the progress on stderr.
fn wait(args: &DrainArgs, store: StoreId) -> Result<(), Failure> {
    let mut view: RepairView = asked(&args.manager.data, &ControlRequest::Drain { store: Some(store.0), stop: false })?;
    let mut told = String::new();
    loop {
        let Some(leaver) = view.draining.iter().find(|leaver| leaver.store == store.to_string()) else {
            return Err(Failure::message(
                Exit::Failed,
                format!("store {store} is not draining any more: draining was stopped"),
            ));
        };
        if leaver.is_empty {
            return Ok(());
        }
        let stuck = stuck(&view, leaver).into_iter().next();
        let line = stuck.unwrap_or_else(|| format!("{}; {}", standing(leaver), under_way(&view)));
        if line != told {
            // Stderr may be closed.
            let _ = writeln!(std::io::stderr(), "{line}");
            told = line;
        }
        std::thread::sleep(LOOK);
        view = asked(&args.manager.data, &ControlRequest::Drain { store: None, stop: false })?;
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

fn counted_groups(groups: u64) -> String {
    format!("{} still {}", counted(groups, "group"), if groups == 1 { "depends" } else { "depend" })
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
