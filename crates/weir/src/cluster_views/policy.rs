//! `weir policy`.

use std::io::Write as _;

use super::show;
use crate::Failure;
use crate::admin_api::PolicyView;
use crate::cli::{PolicyArgs, PolicyCommand};
use crate::control::ControlRequest;
use crate::exit::Exit;
use crate::table::table_lines;

/// Runs the command.
pub(crate) fn run(args: &PolicyArgs) -> Result<Exit, Failure> {
    match &args.command {
        PolicyCommand::Set(args) => {
            // The policy may be several words, or one line in quotes.
            let set = ControlRequest::PolicySet { path: args.path.clone(), words: args.words.join(" ") };
            show(&args.manager, &set, |set: &PolicyView| {
                for doubt in &set.doubts {
                    // The policy is set all the same.
                    let _ = writeln!(std::io::stderr(), "weir: {doubt}");
                }
                in_words(set)
            })
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

fn in_words(view: &PolicyView) -> Vec<String> {
    let from = match &view.from {
        Some(from) if *from == view.path => "set on this directory".to_owned(),
        Some(from) => format!("inherited from {from}"),
        None => "as no directory up to the root has a policy".to_owned(),
    };
    vec![view.policy.clone(), format!("{}: {from}", view.path)]
}
