//! `weir identity`: the users and groups that a node knows, and who the bearer of a token or a certificate would be.

use std::io::{Read as _, Write as _};
use std::path::Path;

use control::{ControlRequest, Reply};
use serde::{Deserialize, Serialize};
use service::Service;
use types::{ErrorCode, PrincipalKind};

use crate::Failure;
use crate::cli::{IdentityArgs, IdentityCommand, IdentityListArgs, IdentityTestArgs};
use crate::client_security::authenticator_of;
use crate::cluster_views::{asked, print, show};
use crate::exit::Exit;
use crate::table::table_lines;

/// Names in one answer.
const PAGE: usize = 1000;
/// A longer file is neither a token nor a proxy.
const TOKEN_FILE_MAX: u64 = 64 << 10;

/// A user or a group, as the commands show it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct PrincipalView {
    /// Its name.
    pub(crate) name: String,
    /// Its number.
    pub(crate) number: u32,
}

/// Answers a request about users and groups; `None`: the request is about something else.
pub(crate) fn answer(service: &Service, ask: &ControlRequest) -> Option<Reply> {
    let kind = |group: bool| if group { PrincipalKind::Group } else { PrincipalKind::User };
    Some(match ask {
        ControlRequest::Principals { group, after } => {
            told(service.principals(kind(*group), after.as_deref(), PAGE).map(|listed| {
                let view = |(name, id): (types::PrincipalName, types::PrincipalId)| view(&name, id);
                listed.into_iter().map(view).collect::<Vec<_>>()
            }))
        }
        ControlRequest::Principal { group, called } => {
            told(service.principal_called(kind(*group), called).map(|id| view(&service.shown_principal(id), id)))
        }
        ControlRequest::PrincipalAdd { group, name } => {
            told(service.add_principal(kind(*group), name).map(|id| view(name, id)))
        }
        ControlRequest::PrincipalRename { group, from, to } => {
            let kind = kind(*group);
            let renamed = service.rename_principal(kind, from, to).and_then(|()| service.principal_called(kind, to));
            told(renamed.map(|id| view(to, id)))
        }
        _ => return None,
    })
}

fn view(name: &dyn std::fmt::Display, id: types::PrincipalId) -> PrincipalView {
    PrincipalView { name: name.to_string(), number: id.0 }
}

fn told<T: Serialize>(result: Result<T, service::Error>) -> Reply {
    match result {
        Ok(answer) => Reply::long(&answer),
        Err(error) if error.code() == ErrorCode::NotFound => Reply::Absent(error.to_string()),
        Err(error) => Reply::Refused(error.to_string()),
    }
}

/// Runs the command.
pub(crate) fn run(args: &IdentityArgs) -> Result<Exit, Failure> {
    let one = |found: &PrincipalView| vec![format!("{} has the number {}", found.name, found.number)];
    match &args.command {
        IdentityCommand::List(args) => list(args),
        IdentityCommand::Show(args) => {
            let ask = ControlRequest::Principal { group: args.group, called: args.name.clone() };
            show(&args.node, &ask, one)
        }
        IdentityCommand::Add(args) => {
            show(&args.node, &ControlRequest::PrincipalAdd { group: args.group, name: args.name.clone() }, one)
        }
        IdentityCommand::Rename(args) => {
            let (from, to) = (args.from.clone(), args.to.clone());
            show(&args.node, &ControlRequest::PrincipalRename { group: args.group, from, to }, one)
        }
        IdentityCommand::Test(args) => test(args),
    }
}

fn list(args: &IdentityListArgs) -> Result<Exit, Failure> {
    let mut all: Vec<PrincipalView> = Vec::new();
    loop {
        let after = all.last().map(|last| last.name.clone());
        let page: Vec<PrincipalView> =
            asked(&args.node.data, &ControlRequest::Principals { group: args.group, after })?;
        let is_last = page.len() < PAGE;
        all.extend(page);
        if is_last {
            break;
        }
    }
    print(&args.node, &all, |all| {
        if all.is_empty() {
            let kind = if args.group { "group" } else { "user" };
            return vec![format!("no {kind} has a name here yet; they get one when they first log in")];
        }
        let row = |one: &PrincipalView| vec![one.name.clone(), one.number.to_string()];
        table_lines(&["name", "number"], &all.iter().map(row).collect::<Vec<_>>())
    })
}

fn test(args: &IdentityTestArgs) -> Result<Exit, Failure> {
    let config = config::Config::load(Some(&args.config)).map_err(|error| Failure::new(Exit::Usage, error))?;
    let Some(authenticator) = authenticator_of(&config)? else {
        let why = "the configuration has no `authentication.mechanisms`: clients need not show who they are";
        return Err(Failure::message(Exit::Usage, why));
    };
    let token = token_in(&args.token)?;
    // The file of a proxy begins with its certificate, and no token with a hyphen.
    let report = if token.trim_ascii_start().starts_with(b"-----BEGIN ") {
        authenticator.explain_certificates(&token, args.from)
    } else {
        authenticator.explain_token(token.trim_ascii(), args.from)
    };
    writeln!(std::io::stdout(), "{report}").map_err(|error| Failure::new(Exit::Failed, error))?;
    Ok(if report.result.is_ok() { Exit::Done } else { Exit::Denied })
}

fn token_in(path: &Path) -> Result<Vec<u8>, Failure> {
    let unreadable = |error| {
        Failure::new(Exit::Failed, error).while_doing(format!("cannot read the credential in {}", path.display()))
    };
    let mut token = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(TOKEN_FILE_MAX).read_to_end(&mut token)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(TOKEN_FILE_MAX).read_to_end(&mut token))
    };
    read.map_err(unreadable)?;
    Ok(token)
}
