//! `weir admin`: has the running manager invite, list and revoke administrators.

use std::io::Write as _;

use config::units::parse_duration;
use control::ControlRequest;
use control::validity::Limited;
use link::admin::AdminRole;
use manager::administrators::{AdminState, AdminView};
use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::cli::{AdminArgs, AdminCommand, InviteArgs};
use crate::cluster_views::show;
use crate::context::Target;
use crate::exit::Exit;
use crate::table::table_lines;
use crate::time_text::show_time;

/// An administrator, as `weir admin list` shows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum Administrator {
    /// With a certificate of the cluster, or an invitation.
    Certificate(AdminView),
    /// A principal, by an `[[administrator]]` of the settings.
    User(OfSettings),
    /// Each member of a group, in the same way.
    Group(OfSettings),
}

/// A name to which the settings give a role.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct OfSettings {
    /// The name of the principal or group.
    pub(crate) name: String,
    /// The role.
    pub(crate) role: AdminRole,
}

/// Runs the command.
pub(crate) fn run(args: &AdminArgs) -> Result<Exit, Failure> {
    match &args.command {
        AdminCommand::Invite(args) => invite(args),
        AdminCommand::List(args) => show(args, &ControlRequest::Admins, |all: &Vec<Administrator>| in_words(all)),
        AdminCommand::Authority(args) => crate::authority::run(args),
        AdminCommand::Revoke(args) => {
            let ask = ControlRequest::AdminRevoke { name: args.name.clone() };
            show(&args.manager, &ask, |all: &Vec<Administrator>| in_words(all))
        }
    }
}

/// The time in the flag `flag`, in milliseconds.
pub(crate) fn millis(flag: &str, text: &str, what: Limited) -> Result<u64, Failure> {
    let usage = |why: String| Failure::message(Exit::Usage, format!("{flag}: {why}"));
    let duration = parse_duration(text).map_err(usage)?;
    let duration = what.check(duration).map_err(|error| usage(error.to_string()))?;
    Ok(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

fn invite(args: &InviteArgs) -> Result<Exit, Failure> {
    let valid_millis = millis("--valid", &args.valid, Limited::Invitation)?;
    let access_millis = args.access.as_deref().map(|access| millis("--access", access, Limited::Access)).transpose()?;
    let wanted = ControlRequest::AdminInvite { name: args.name.clone(), role: args.role, valid_millis, access_millis };
    let target = Target::of(&args.data)?;
    let asked = target.ask(&wanted);
    let (answer, _) = asked.map_err(|error| target.failure(error, "a running manager invites administrators"))?;
    let text = answer.get("invitation").and_then(|text| text.as_str());
    let text = text.ok_or_else(|| Failure::message(Exit::Failed, "the node's answer does not read"))?;
    writeln!(std::io::stdout(), "{text}").map_err(|error| Failure::new(Exit::Failed, error))?;
    Ok(Exit::Done)
}

fn in_words(all: &[Administrator]) -> Vec<String> {
    if all.is_empty() {
        return vec!["there are no administrators; `weir admin invite NAME --role ROLE` invites one".into()];
    }
    let row = |one: &Administrator| {
        let of_settings = |kind: &str, OfSettings { name, role }: &OfSettings| {
            vec![format!("{kind} {name}"), role.to_string(), "the settings".into(), "active".into()]
        };
        let one = match one {
            Administrator::Certificate(one) => one,
            Administrator::User(of) => return of_settings("user", of),
            Administrator::Group(of) => return of_settings("group", of),
        };
        let time = show_time(u64::try_from(one.until).unwrap_or(0));
        let state = match one.state {
            AdminState::Invited => format!("invited until {time}"),
            AdminState::Active => format!("active, certificate until {time}"),
            AdminState::Revoked => format!("revoked {time}"),
            AdminState::Expired => format!("expired {time}"),
        };
        vec![one.name.clone(), one.role.to_string(), one.invited_by.clone(), state]
    };
    table_lines(&["name", "role", "by", "state"], &all.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_of_the_list_says_its_kind_name_and_role() {
        let view = AdminView {
            name: "alice".into(),
            id: "00".into(),
            role: AdminRole::Operator,
            state: AdminState::Active,
            invited_by: "ana, by a token of https://a.example for `ana`".into(),
            invited: 1,
            until: 2,
        };
        let of = |name: &str| OfSettings { name: name.into(), role: AdminRole::Operator };
        let all = [Administrator::Certificate(view), Administrator::User(of("ana")), Administrator::Group(of("ops"))];
        let json = serde_json::to_value(&all).unwrap();
        for (one, kind) in json.as_array().unwrap().iter().zip(["certificate", "user", "group"]) {
            assert_eq!((&one["kind"], &one["role"]), (&kind.into(), &"operator".into()), "{one}");
            assert!(one["name"].is_string());
        }
        assert_eq!(json[0]["invited_by"], "ana, by a token of https://a.example for `ana`");
        assert_eq!(serde_json::from_value::<Vec<Administrator>>(json).unwrap(), all);
        assert!(in_words(&all).iter().any(|line| line.starts_with("group ops") && line.contains("the settings")));
    }
}
