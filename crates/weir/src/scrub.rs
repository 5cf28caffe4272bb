//! `weir scrub`: shows and controls the scrub of a running node, and lists the damage in a cluster.

use std::io::Write as _;

use config::units::{parse_size, show_size};
use control::ControlRequest;
use maintenance::scrub::Status;
use maintenance::scrub::position::Tally;
use manager::{DamageState, DamageView, DamagedReplicaView};
use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::cli::ScrubArgs;
use crate::context::Target;
use crate::exit::Exit;
use crate::serve::now;
use crate::store_scrubs::StoreScrubView;
use crate::time_text::show_time;

/// The answer of a node.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum ScrubAnswer {
    /// A disk server has a scrub for each store.
    Stores { stores: Vec<StoreScrubView> },
    /// A manager knows what its disk servers have found.
    Cluster(DamageView),
    /// A single node.
    Node(Box<Status>),
}

/// Runs the command.
pub fn run(args: &ScrubArgs) -> Result<Exit, Failure> {
    let rate = args
        .rate
        .as_deref()
        .map(|text| match parse_size(text) {
            Ok(0) => Err("a pass at 0 bytes per second would never end; --stop ends one".to_owned()),
            rate => rate,
        })
        .transpose()
        .map_err(|why| Failure::message(Exit::Usage, format!("--rate: {why}")))?;
    if args.now || rate.is_some() {
        answer(args, &ControlRequest::ScrubNow { rate })?;
    } else if args.stop {
        answer(args, &ControlRequest::ScrubStop)?;
    }
    let status = answer(args, &ControlRequest::ScrubStatus)?;
    let mut stdout = std::io::stdout().lock();
    let printed = if args.json {
        writeln!(stdout, "{status}")
    } else {
        let answer: ScrubAnswer = serde_json::from_value(status).map_err(not_read)?;
        answer.in_words().iter().try_for_each(|line| writeln!(stdout, "{line}"))
    };
    printed.and_then(|()| stdout.flush()).map_err(|error| Failure::new(Exit::Failed, error))?;
    Ok(Exit::Done)
}

fn not_read(error: serde_json::Error) -> Failure {
    Failure::new(Exit::Failed, error).while_doing("the node's answer does not read")
}

fn answer(args: &ScrubArgs, what: &ControlRequest) -> Result<serde_json::Value, Failure> {
    let target = Target::of(&args.data)?;
    let asked = target.ask(what);
    let answered = asked
        .map_err(|error| target.failure(error, "a running node does the scrub; `weir fsck` checks a stopped one"))?;
    match answered {
        // The answer of a cluster's node may be longer than a line.
        (serde_json::Value::Null, following) => serde_json::from_reader(following).map_err(not_read),
        (answer, _) => Ok(answer),
    }
}

impl ScrubAnswer {
    fn in_words(&self) -> Vec<String> {
        match self {
            Self::Node(status) => in_words(status),
            Self::Stores { stores } => stores.iter().flat_map(of_store).collect(),
            Self::Cluster(view) => of_cluster(view),
        }
    }
}

fn of_store(view: &StoreScrubView) -> Vec<String> {
    let mut lines = vec![format!("store {} in {}:", view.store, view.dir)];
    if view.damaged_now > 0 {
        let replicas = if view.damaged_now == 1 { "replica is" } else { "replicas are" };
        lines.push(format!(
            "  {} {replicas} damaged now; the manager has them replaced if other stores have the files",
            view.damaged_now
        ));
    }
    lines.extend(in_words(&view.status).into_iter().map(|line| format!("  {line}")));
    lines
}

fn of_cluster(view: &DamageView) -> Vec<String> {
    let DamageView { counts, replicas } = view;
    let all = counts.repairing + counts.waiting + counts.no_other;
    let mut lines = match all {
        0 => vec!["no store reports damaged replicas".to_owned()],
        _ => replicas.iter().map(of_damaged).collect(),
    };
    let shown = replicas.len() as u64;
    if all > shown {
        lines.push(format!("and {} more", all - shown));
    }
    lines.push(format!("damaged replicas replaced since the manager started: {}", counts.repaired));
    lines
}

fn of_damaged(replica: &DamagedReplicaView) -> String {
    let DamagedReplicaView { path, object, store, state } = replica;
    let file = path.clone().unwrap_or_else(|| format!("object {object} (a stripe unit, or a removed file)"));
    let state = match state {
        DamageState::Repairing => "repair replaces it",
        DamageState::InUse => "the file is being written",
        DamageState::Waiting => "the other stores that have it are offline",
        DamageState::NoOther => "no other store has it intact; write the file again from its source",
    };
    format!("{file}: damaged on {store}; {state}")
}

fn in_words(status: &Status) -> Vec<String> {
    let mut lines = Vec::new();
    let tally =
        |value: &Option<serde_json::Value>| value.clone().and_then(|value| serde_json::from_value::<Tally>(value).ok());
    let (current, last) = (tally(&status.current), tally(&status.last));
    let seconds = now().0 / 1_000_000_000;
    let rate = match status.rate {
        0 => "the scrub is off (scrub.rate)".to_owned(),
        rate => format!("at most {} a second", show_size(rate)),
    };
    match (&current, status.due) {
        (Some(current), _) => {
            lines.push(format!("pass {} is under way since {}, {rate}", status.pass, show_time(current.began)));
            lines.push(looked_at(current));
            if let Some(last) = last.filter(|last| last.bytes > current.bytes) {
                lines.push(format!("of about {}, as the last pass found", show_size(last.bytes)));
            }
        }
        (None, Some(due)) if i64::try_from(due).is_ok_and(|due| due <= seconds) => {
            lines.push(format!("a pass is due now, {rate}"))
        }
        (None, Some(due)) => lines.push(format!("the next pass begins {}, {rate}", show_time(due))),
        (None, None) => lines.push(rate),
    }
    match last {
        Some(last) => {
            lines.push(format!("the last pass went from {} to {}", show_time(last.began), show_time(last.ended)));
            lines.push(looked_at(&last));
        }
        None => lines.push("no pass has ended yet".into()),
    }
    if let Some(trouble) = &status.trouble {
        lines.push(format!("it cannot continue for now: {trouble}"));
    }
    lines
}

fn looked_at(tally: &Tally) -> String {
    let Tally { whole, busy, damaged, bytes, .. } = *tally;
    format!(
        "  {} read; {whole} objects whole, {damaged} damaged, {busy} skipped because they were being written",
        show_size(bytes)
    )
}
