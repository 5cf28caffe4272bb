//! `weir store remove --lost`: what will be lost, and the removal.

use config::units::show_size;
use control::ControlRequest;
use manager::{FileSum, LossView};

use super::{asked, counted, print, stores_meant};
use crate::Failure;
use crate::cli::RemoveStoreArgs;
use crate::exit::Exit;
use crate::wrap::wrapped;

/// Runs the command.
pub(crate) fn run(args: &RemoveStoreArgs) -> Result<Exit, Failure> {
    let RemoveStoreArgs { stores, manager, yes, dry_run, force, .. } = args;
    let stores = stores_meant(&manager.data, stores.store.as_deref(), stores.node.as_deref())?;
    let stores = stores.iter().map(|store| store.0).collect();
    let ask = ControlRequest::StoreRemoveLost { stores, confirmed: *yes, force: *force };
    let found: Result<LossView, String> = asked(&manager.data, &ask)?;
    let found = found.map_err(|why| Failure::message(Exit::Failed, format!("the node refused: {why}")))?;
    print(manager, &found, |found| wrapped(in_words(found)))?;
    match found.is_removed || *dry_run {
        true => Ok(Exit::Done),
        false => Err(Failure::message(Exit::Usage, "nothing was changed; to remove it as lost, for good, add --yes")),
    }
}

fn in_words(view: &LossView) -> Vec<String> {
    let LossView { stores, lost, first_lost, lost_writes, readable, waiting, is_removed } = view;
    let mut lines = stores.clone();
    let of = |sum: &FileSum| format!("{}, {}", counted(sum.files, "file"), show_size(sum.bytes));
    let (are, will) = if *is_removed { ("are lost", "") } else { ("will be lost", "will ") };
    lines.push(format!("{}: {are}, no other store has them", of(lost)));
    lines.extend(first_lost.iter().map(|path| format!("  {path}")));
    let more = lost.files.saturating_sub(first_lost.len() as u64);
    if more > 0 {
        lines.push(format!("  and {more} more"));
    }
    if *lost_writes > 0 {
        lines.push(format!("{} being written {will}end there", counted(*lost_writes, "file")));
    }
    lines.push(format!("{}: stay readable, repair makes their replicas", of(readable)));
    if waiting.files > 0 {
        lines.push(format!("{}: only on stores that are offline, too", of(waiting)));
    }
    if *is_removed {
        lines.push("removed as lost; `weir repair` shows how far others replace it".into());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_says_what_is_lost_and_what_is_not() {
        let view = LossView {
            stores: vec!["store 7 at s/r/h (node 2)".into()],
            lost: FileSum { files: 11, bytes: 3 << 20 },
            first_lost: (0..10).map(|number| format!("/f{number}")).collect(),
            lost_writes: 1,
            readable: FileSum { files: 1, bytes: 5 },
            waiting: FileSum { files: 2, bytes: 7 },
            is_removed: false,
        };
        let lines = in_words(&view);
        assert_eq!(lines[1], "11 files, 3.00 MiB: will be lost, no other store has them");
        assert_eq!((lines[2].as_str(), lines[11].as_str(), lines[12].as_str()), ("  /f0", "  /f9", "  and 1 more"));
        assert_eq!(
            lines[13..],
            [
                "1 file being written will end there",
                "1 file, 5 B: stay readable, repair makes their replicas",
                "2 files, 7 B: only on stores that are offline, too",
            ]
        );
        let lines = in_words(&LossView { is_removed: true, lost_writes: 0, ..view });
        assert_eq!(lines[1], "11 files, 3.00 MiB: are lost, no other store has them");
        assert!(lines.last().is_some_and(|last| last.starts_with("removed as lost")), "{lines:?}");
        assert!(lines.iter().all(|line| line.len() <= 80), "{lines:?}");
    }
}
