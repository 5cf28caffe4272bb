//! `weir token`: has the running manager make, list and revoke join tokens.

use std::io::Write as _;

use control::ControlRequest;
use control::validity::Limited;
use link::NodeList;
use manager::tokens::TokenView;

use crate::Failure;
use crate::admin::millis;
use crate::cli::{JoinTokenArgs, TokenCommand, TokenCreateArgs};
use crate::cluster_views::show;
use crate::context::Target;
use crate::exit::Exit;
use crate::table::table_lines;
use crate::time_text::show_time;

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
    let valid_millis = millis("--valid", &args.valid, Limited::Token)?;
    let wanted = ControlRequest::MakeToken { role: args.role, valid_millis, uses: args.uses };
    let target = Target::of(&args.data)?;
    let asked = target.ask(&wanted);
    let (answer, _) = asked.map_err(|error| target.failure(error, "tokens are created by a running manager"))?;
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
    let row = |token: &TokenView| vec![token.id.clone(), time(token.expires), state(token)];
    table_lines(&["token", "valid until", "state"], &tokens.iter().map(row).collect::<Vec<_>>())
}

/// What the token is still good for, and who has used it.
fn state(token: &TokenView) -> String {
    let used = (!token.used_by.is_empty()).then(|| format!("used by {}", NodeList(token.used_by.clone())));
    let left = usize::from(token.uses).saturating_sub(token.used_by.len());
    let rest = match (left, token.has_expired) {
        (0, _) => None,
        (_, true) => Some("has expired".to_owned()),
        (1, false) if used.is_none() => Some("can be used".to_owned()),
        (1, false) => Some("can be used once more".to_owned()),
        (left, false) if used.is_none() => Some(format!("can be used by {left} nodes")),
        (left, false) => Some(format!("can be used by {left} more nodes")),
    };
    used.into_iter().chain(rest).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_token_says_who_used_it_and_what_is_left() {
        let said = |uses, used_by: &[u64], has_expired| {
            let used_by = used_by.iter().copied().map(types::NodeId).collect();
            let (id, roles) = ("ab".to_owned(), "disk".to_owned());
            state(&TokenView { id, roles, made: 0, expires: 1, has_expired, uses, used_by })
        };
        assert_eq!([said(1, &[], false), said(1, &[], true)], ["can be used", "has expired"]);
        assert_eq!([said(1, &[2], false), said(1, &[2], true)], ["used by node 2", "used by node 2"]);
        assert_eq!(said(3, &[], false), "can be used by 3 nodes");
        assert_eq!(said(3, &[2], false), "used by node 2; can be used by 2 more nodes");
        assert_eq!(said(3, &[2, 3], false), "used by nodes 2 and 3; can be used once more");
        assert_eq!(said(3, &[2, 3], true), "used by nodes 2 and 3; has expired");
        assert_eq!(said(3, &[2, 3, 4], true), "used by nodes 2, 3 and 4");
    }
}
