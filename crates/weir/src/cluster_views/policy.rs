//! `weir policy`.

use std::io::Write as _;

use config::units::show_size;
use control::ControlRequest;
use manager::ApplyView;

use super::{asked, counted, print, show};
use crate::Failure;
use crate::admin_api::PolicyView;
use crate::cli::{PolicyApplyArgs, PolicyArgs, PolicyCommand};
use crate::exit::Exit;
use crate::table::table_lines;
use crate::wrap::wrapped;

/// Runs the command.
pub(crate) fn run(args: &PolicyArgs) -> Result<Exit, Failure> {
    match &args.command {
        PolicyCommand::Set(args) => {
            // The policy may be several words, or one line in quotes.
            let (path, words) = (args.path.clone(), args.words.join(" "));
            let set = ControlRequest::PolicySet { path, words, mkdir: args.mkdir };
            show(&args.manager, &set, |set: &PolicyView| {
                for doubt in &set.doubts {
                    // The policy is set all the same.
                    let _ = writeln!(std::io::stderr(), "weir: {doubt}");
                }
                in_words(set)
            })
        }
        PolicyCommand::Apply(args) => {
            let PolicyApplyArgs { path, dry_run, files_per_second, manager } = args;
            let (path, dry_run, files_per_second) = (path.clone(), *dry_run, *files_per_second);
            let ask = ControlRequest::PolicyApply { path, dry_run, files_per_second };
            let done: Result<ApplyView, String> = asked(&manager.data, &ask)?;
            let done = done.map_err(|why| Failure::message(Exit::Failed, format!("the node refused: {why}")))?;
            print(manager, &done, |done| wrapped(applied(done)))?;
            Ok(if done.failed == 0 { Exit::Done } else { Exit::Wrong })
        }
        PolicyCommand::Get(args) => {
            show(&args.manager, &ControlRequest::PolicyGet { path: args.path.clone() }, in_words)
        }
        PolicyCommand::Remove(args) => {
            show(&args.manager, &ControlRequest::PolicyRemove { path: args.path.clone() }, in_words)
        }
        PolicyCommand::List(args) => show(args, &ControlRequest::PolicyList, |all: &Vec<PolicyView>| {
            if all.is_empty() {
                return vec!["no directory has a policy: every file has one replica, on any store".into()];
            }
            let rows: Vec<Vec<String>> = all.iter().map(|one| vec![one.path.clone(), one.policy.clone()]).collect();
            table_lines(&["directory", "policy"], &rows)
        }),
    }
}

fn applied(view: &ApplyView) -> Vec<String> {
    let ApplyView { path, is_dry_run, files, fit, widened, copied_bytes, surplus, later, failed, first_failed } = view;
    let mut lines = vec![format!("{path}: {}", counted(*files, "file"))];
    lines.push(format!("{fit} have as many replicas as their policies ask for"));
    let (get, see) = if *is_dry_run { ("would get", "") } else { ("get", "; `weir repair` shows how far that is") };
    lines.push(format!("{widened} {get} more replicas, {} to copy{see}", show_size(*copied_bytes)));
    if *surplus > 0 {
        lines.push(format!("{surplus} have more replicas than their policies ask for, and keep them"));
    }
    if *later > 0 {
        lines.push(format!("{later} are being written, or their stores are being replaced: run this again later"));
    }
    if *failed > 0 {
        lines.push(format!("{failed} cannot get more replicas, as no further store fits their policies:"));
        lines.extend(first_failed.iter().map(|path| format!("  {path}")));
    }
    lines
}

fn in_words(view: &PolicyView) -> Vec<String> {
    let from = match &view.from {
        Some(_) if view.is_given => "the default of the cluster, as its stores stand on several hosts".to_owned(),
        Some(from) if *from == view.path => "set on this directory".to_owned(),
        Some(from) => format!("inherited from {from}"),
        None => "as no directory up to the root has a policy".to_owned(),
    };
    vec![view.policy.clone(), format!("{}: {from}", view.path)]
}
