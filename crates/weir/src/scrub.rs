//! `weir scrub`: shows and controls the scrub of a running node.

use std::io::Write as _;

use maintenance::scrub::Status;
use maintenance::scrub::position::Tally;

use crate::Failure;
use crate::cli::ScrubArgs;
use crate::config::units::{parse_size, show_size};
use crate::control::ControlRequest;
use crate::control::client::{AskError, ask};
use crate::exit::Exit;
use crate::serve::now;
use crate::time_text::show_time;

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
        let status: Status = serde_json::from_value(status)
            .map_err(|error| Failure::new(Exit::Failed, error).while_doing("the node's answer does not read"))?;
        in_words(&status).iter().try_for_each(|line| writeln!(stdout, "{line}"))
    };
    printed.and_then(|()| stdout.flush()).map_err(|error| Failure::new(Exit::Failed, error))?;
    Ok(Exit::Done)
}

fn answer(args: &ScrubArgs, what: &ControlRequest) -> Result<serde_json::Value, Failure> {
    match ask(&args.data, what) {
        Ok((answer, _)) => Ok(answer),
        Err(error @ AskError::NotRunning { .. }) => Err(Failure::new(Exit::Failed, error)
            .while_doing("a running node does the scrub; `weir fsck` checks a stopped one")),
        Err(error) => Err(Failure::new(Exit::Failed, error)),
    }
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
