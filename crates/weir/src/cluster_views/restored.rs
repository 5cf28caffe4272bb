//! `weir restored`: how the names of a restored manager and its disk servers disagree.

use config::units::show_size;
use console::time_text::show_time;
use control::ControlRequest;
use manager::{ComparisonView, DisagreeingFile, ExtraReplica, FileElsewhere};

use super::{asked, counted, print};
use crate::Failure;
use crate::cli::RestoredArgs;
use crate::exit::Exit;
use crate::wrap::wrapped;

/// Runs the command.
pub(crate) fn run(args: &RestoredArgs) -> Result<Exit, Failure> {
    let ask = ControlRequest::Restored { list: args.list, accept: args.accept, force: args.force };
    let found: Result<ComparisonView, String> = asked(&args.manager.data, &ask)?;
    let found = found.map_err(|why| Failure::message(Exit::Failed, format!("the node refused: {why}")))?;
    print(&args.manager, &found, |found| wrapped(in_words(found)))?;
    let disagree = found.lost_count + found.elsewhere_count + found.finished_count + found.changed_count;
    let agrees = disagree == 0 && found.extra_count == 0;
    Ok(if args.accept || agrees && found.not_compared.is_empty() { Exit::Done } else { Exit::Wrong })
}

fn in_words(view: &ComparisonView) -> Vec<String> {
    let mut lines = vec![format!(
        "restored {} from a backup of {}; compared with {}",
        show_time(view.restored),
        show_time(view.taken),
        counted(view.stores, "store")
    )];
    if !view.not_compared.is_empty() {
        lines.push(format!("not compared, as they are offline or do not answer: {}", view.not_compared.join(", ")));
    }
    let files = |lines: &mut Vec<String>, count: u64, listed: &[DisagreeingFile], what: &str| {
        lines.push(format!("{} {what}", counted(count, "file")));
        lines.extend(
            listed
                .iter()
                .map(|file| format!("  {}: {}; not on {}", file.path, show_size(file.len), file.locations.join(", "))),
        );
        more(lines, count, listed.len());
    };
    files(&mut lines, view.lost_count, &view.lost, "lost: removed or replaced after the backup, no store has them");
    let at_stores = |lines: &mut Vec<String>, count: u64, listed: &[FileElsewhere], what: &str| {
        if count > 0 {
            lines.push(format!("{} {what}", counted(count, "file")));
            lines.extend(listed.iter().map(|FileElsewhere { path, len, object, location }| {
                format!("  {path}: {}, object {object} on {location}", show_size(*len))
            }));
            more(lines, count, listed.len());
        }
    };
    let what = "moved to other stores after the backup: copy them out, only these stores have them";
    at_stores(&mut lines, view.elsewhere_count, &view.elsewhere, what);
    let what = "completed after the backup: copy them out, the names have what was there before";
    at_stores(&mut lines, view.finished_count, &view.finished, what);
    let what = "changed in place after the backup: stores have other bytes than the names say";
    files(&mut lines, view.changed_count, &view.changed, what);
    lines.push(format!("{} with fewer replicas than they should have", counted(view.under_replicated_count, "file")));
    lines.push(format!(
        "{} without a name, {}: most likely written after the backup",
        counted(view.extra_count, "replica"),
        show_size(view.extra_bytes)
    ));
    lines.extend(view.extra.iter().map(extra));
    more(&mut lines, view.extra_count, view.extra.len());
    if !view.draining.is_empty() {
        let stores = view.draining.join(", ");
        lines.push(format!(
            "draining: {stores}. The acceptance sets them to read-only; drain them again when nothing there is needed"
        ));
    }
    if view.and_more {
        lines.push("there are more disagreements than could be kept in memory".into());
    }
    lines.push(match view.is_held {
        true => "nothing is repaired or removed on the stores until you run `weir restored --accept`".into(),
        false => "accepted: repair and clean-up go on".into(),
    });
    lines
}

fn more(lines: &mut Vec<String>, count: u64, listed: usize) {
    let more = count.saturating_sub(listed as u64);
    if more > 0 {
        lines.push(format!("  and {more} more"));
    }
}

fn extra(replica: &ExtraReplica) -> String {
    let ExtraReplica { made_as, object, len, is_complete, location } = replica;
    let made_as = if made_as.is_empty() { "made under an unknown path".into() } else { format!("made as {made_as}") };
    let state = if *is_complete { "" } else { ", not complete" };
    format!("  {made_as}: {}{state}, object {object} on {location}", show_size(*len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_told_in_words_within_80_columns() {
        let file = |path: &str| DisagreeingFile { path: path.into(), len: 3000, locations: vec!["s/r/h1".into()] };
        let extra = ExtraReplica {
            made_as: "/new".into(),
            object: "000000000000002a".into(),
            len: 5,
            is_complete: false,
            location: "s/r/h2".into(),
        };
        let view = ComparisonView {
            is_held: true,
            stores: 2,
            not_compared: vec!["s/r/h3 (store 3)".into()],
            lost: vec![file("/gone")],
            lost_count: 3,
            elsewhere: vec![FileElsewhere {
                path: "/moved".into(),
                len: 7,
                object: "000000000000002b".into(),
                location: "s/r/h4".into(),
            }],
            elsewhere_count: 2,
            finished: vec![FileElsewhere {
                path: "/replaced".into(),
                len: 9,
                object: "000000000000002c".into(),
                location: "s/r/h6".into(),
            }],
            finished_count: 1,
            draining: vec!["s/r/h5".into()],
            changed: vec![file("/changed")],
            changed_count: 1,
            under_replicated_count: 1,
            extra: vec![extra],
            extra_count: 1,
            extra_bytes: 5,
            ..ComparisonView::default()
        };
        let lines = in_words(&view);
        let has = |words: &str| assert!(lines.iter().any(|line| line.contains(words)), "{words}: {lines:#?}");
        has("not compared, as they are offline or do not answer: s/r/h3 (store 3)");
        has("3 files lost: removed or replaced after the backup");
        has("  /gone: 2.93 KiB; not on s/r/h1");
        has("  and 2 more");
        has("2 files moved to other stores after the backup");
        has("  /moved: 7 B, object 000000000000002b on s/r/h4");
        has("1 file completed after the backup: copy them out");
        has("  /replaced: 9 B, object 000000000000002c on s/r/h6");
        has("draining: s/r/h5. The acceptance sets them to read-only");
        has("1 file changed in place");
        has("1 file with fewer replicas");
        has("1 replica without a name, 5 B");
        has("  made as /new: 5 B, not complete, object 000000000000002a on s/r/h2");
        assert!(lines.last().is_some_and(|last| last.contains("weir restored --accept")));
        assert!(wrapped(lines).iter().all(|line| line.chars().count() <= 80));
        let accepted = in_words(&ComparisonView::default());
        assert_eq!(accepted.last().map(String::as_str), Some("accepted: repair and clean-up go on"));
    }
}
