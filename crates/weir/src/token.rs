//! `weir token`: has the running manager make, list and revoke join tokens.

use std::io::Write as _;
use std::time::Duration;

use manager::tokens::TokenView;

use crate::Failure;
use crate::cli::{JoinTokenArgs, TokenCommand, TokenCreateArgs};
use crate::cluster_views::show;
use crate::config::units::parse_duration;
use crate::control::ControlRequest;
use crate::control::client::{AskError, ask};
use crate::exit::Exit;
use crate::table::table_lines;
use crate::time_text::show_time;

/// Longest validity of a token.
const VALID_MAX: Duration = Duration::from_secs(30 * 86_400);
const VALID_MIN: Duration = Duration::from_secs(1);

/// Runs the command.
pub fn run(args: &JoinTokenArgs) -> Result<Exit, Failure> {
    match &args.command {
        TokenCommand::Create(args) => create(args),
        TokenCommand::List(args) => show(args, &ControlRequest::Tokens, |tokens: &Vec<TokenView>| in_words(tokens)),
        TokenCommand::Revoke(args) => {
            show(&args.manager, &ControlRequest::RevokeToken { id: args.id.clone() }, |left: &Vec<TokenView>| {
                in_words(left)
            })
        }
    }
}

fn create(args: &TokenCreateArgs) -> Result<Exit, Failure> {
    let valid = parse_duration(&args.valid).map_err(|why| Failure::message(Exit::Usage, format!("--valid: {why}")))?;
    if !(VALID_MIN..=VALID_MAX).contains(&valid) {
        return Err(Failure::message(Exit::Usage, "--valid: a token is valid for 1 s to 30 d"));
    }
    let wanted = ControlRequest::MakeToken {
        role: args.role,
        valid_millis: u64::try_from(valid.as_millis()).unwrap_or(u64::MAX),
    };
    let (answer, _) = ask(&args.data, &wanted).map_err(|error| {
        let not_running = matches!(error, AskError::NotRunning { .. });
        let failure = Failure::new(Exit::Failed, error);
        if not_running { failure.while_doing("tokens are created by a running manager") } else { failure }
    })?;
    let token = answer.get("token").and_then(|token| token.as_str());
    let token = token.ok_or_else(|| Failure::message(Exit::Failed, "the node's answer does not read"))?;
    writeln!(std::io::stdout(), "{token}").map_err(|error| Failure::new(Exit::Failed, error))?;
    Ok(Exit::Done)
}

fn in_words(tokens: &[TokenView]) -> Vec<String> {
    if tokens.is_empty() {
        return vec!["there are no tokens".into()];
    }
    let time = |secs: i64| show_time(u64::try_from(secs).unwrap_or(0));
    let row = |token: &TokenView| {
        let state = match (token.used_by, token.has_expired) {
            (Some(node), _) => format!("used by node {node}"),
            (None, true) => "has expired".into(),
            (None, false) => "can be used".into(),
        };
        vec![token.id.clone(), time(token.expires), state]
    };
    table_lines(&["token", "valid until", "state"], &tokens.iter().map(row).collect::<Vec<_>>())
}
