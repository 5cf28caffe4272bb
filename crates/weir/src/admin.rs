//! `weir admin`: has the running manager invite, list and revoke administrators.

use std::io::Write as _;
use std::time::Duration;

use manager::administrators::{AdminState, AdminView};

use crate::Failure;
use crate::cli::{AdminArgs, AdminCommand, InviteArgs};
use crate::cluster_views::show;
use crate::config::units::parse_duration;
use crate::context::Target;
use crate::control::ControlRequest;
use crate::exit::Exit;
use crate::table::table_lines;
use crate::time_text::show_time;

/// Longest validity of an invitation.
const VALID_MAX: Duration = Duration::from_secs(30 * 86_400);
/// Longest access with an end.
const ACCESS_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);
const SHORTEST: Duration = Duration::from_secs(1);

/// Runs the command.
pub(crate) fn run(args: &AdminArgs) -> Result<Exit, Failure> {
    match &args.command {
        AdminCommand::Invite(args) => invite(args),
        AdminCommand::List(args) => show(args, &ControlRequest::Admins, |all: &Vec<AdminView>| in_words(all)),
        AdminCommand::Revoke(args) => {
            show(&args.manager, &ControlRequest::AdminRevoke { name: args.name.clone() }, |all: &Vec<AdminView>| {
                in_words(all)
            })
        }
    }
}

fn millis(flag: &str, text: &str, longest: Duration, limits: &str) -> Result<u64, Failure> {
    let usage = |why: String| Failure::message(Exit::Usage, format!("{flag}: {why}"));
    let duration = parse_duration(text).map_err(usage)?;
    if !(SHORTEST..=longest).contains(&duration) {
        return Err(usage(limits.to_owned()));
    }
    Ok(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

fn invite(args: &InviteArgs) -> Result<Exit, Failure> {
    let valid_millis = millis("--valid", &args.valid, VALID_MAX, "an invitation is valid for 1 s to 30 d")?;
    let access = args.access.as_deref();
    let access_millis = access
        .map(|access| millis("--access", access, ACCESS_MAX, "an access with an end lasts 1 s to 3650 d"))
        .transpose()?;
    let wanted = ControlRequest::AdminInvite { name: args.name.clone(), role: args.role, valid_millis, access_millis };
    let target = Target::of(&args.data)?;
    let asked = target.ask(&wanted);
    let (answer, _) = asked.map_err(|error| target.failure(error, "a running manager invites administrators"))?;
    let text = answer.get("invitation").and_then(|text| text.as_str());
    let text = text.ok_or_else(|| Failure::message(Exit::Failed, "the node's answer does not read"))?;
    writeln!(std::io::stdout(), "{text}").map_err(|error| Failure::new(Exit::Failed, error))?;
    Ok(Exit::Done)
}

fn in_words(all: &[AdminView]) -> Vec<String> {
    if all.is_empty() {
        return vec!["there are no administrators; `weir admin invite NAME --role ROLE` invites one".into()];
    }
    let row = |one: &AdminView| {
        let time = show_time(u64::try_from(one.until).unwrap_or(0));
        let state = match one.state {
            AdminState::Invited => format!("invited until {time}"),
            AdminState::Active => format!("active, certificate until {time}"),
            AdminState::Revoked => format!("revoked {time}"),
            AdminState::Expired => format!("expired {time}"),
        };
        vec![one.name.clone(), one.role.to_string(), one.invited_by.clone(), state]
    };
    table_lines(&["name", "role", "invited by", "state"], &all.iter().map(row).collect::<Vec<_>>())
}
