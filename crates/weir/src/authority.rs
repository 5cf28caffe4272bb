//! `weir admin authority`: shows the cluster's authority, and replaces its key. The manager's side is here, too.

use std::sync::Arc;

use control::{ControlRequest, Reply};
use link::{Authority, Replacement};
use manager::other_managers;
use monitor::health::AuthorityChange;
use namespace::{MemberEntry, Namespace, NsError};
use node::links::Links;
use node::renewal::RenewNow;
use serde::{Deserialize, Serialize};
use types::NodeId;

use crate::Failure;
use crate::cli::{AuthorityArgs, AuthorityCommand};
use crate::cluster_node::now;
use crate::cluster_views::show;
use crate::exit::Exit;
use crate::manager_addresses;
use crate::other_managers::OtherManagersHealth;
use crate::time_text::show_time;

/// A list of nodes names no more than this.
const NAMED_MAX: usize = 20;

/// The authority of a cluster: what people need who administer with a token, and how far its replacement is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct AuthorityView {
    /// The fingerprint of the cluster's authority.
    pub(crate) authority: String,
    /// Addresses of managers.
    pub(crate) managers: Vec<String>,
    /// Its replacement, if it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) replaces: Option<ReplacementView>,
}

/// A replacement that is under way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ReplacementView {
    /// The fingerprint of the earlier authority.
    pub(crate) authority: String,
    /// Since when both are trusted, in seconds since 1970.
    pub(crate) since: i64,
    /// The nodes that have not shown a certificate of the new authority.
    pub(crate) waiting_for: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(args: &AuthorityArgs) -> Result<Exit, Failure> {
    match &args.command {
        None => show(&args.manager, &ControlRequest::Authority, |view: &AuthorityView| in_words(view)),
        Some(AuthorityCommand::Rotate(args)) => show(args, &ControlRequest::AuthorityRotate, |view: &AuthorityView| {
            let mut lines = vec![
                format!("the authority has a new key: {}", view.authority),
                "make a backup now: earlier ones have the old key alone".into(),
            ];
            lines.extend(in_words(view).into_iter().skip(1));
            lines
        }),
        Some(AuthorityCommand::Retire(args)) => {
            let ask = ControlRequest::AuthorityRetire { force: args.force };
            show(&args.manager, &ask, |view: &AuthorityView| {
                vec![
                    format!("the earlier authority is not trusted any more; the present one is {}", view.authority),
                    "disk servers follow within 10 seconds; make a backup now".into(),
                ]
            })
        }
    }
}

fn in_words(view: &AuthorityView) -> Vec<String> {
    let managers: String = view.managers.iter().map(|manager| format!(" --manager {manager}")).collect();
    let mut lines = vec![format!("weir context add NAME --authority {}{managers}", view.authority)];
    if let Some(ReplacementView { authority, since, waiting_for }) = &view.replaces {
        let since = show_time(u64::try_from(*since).unwrap_or(0));
        lines.push(format!("it replaces {authority}, which is trusted too since {since}"));
        lines.push(match waiting_for.as_slice() {
            [] => "all nodes have certificates of the new authority: `weir admin authority retire` ends the old one"
                .into(),
            nodes => format!("without a certificate of the new authority: {}", listed(nodes)),
        });
    }
    lines
}

fn listed(nodes: &[String]) -> String {
    let named: Vec<&str> = nodes.iter().take(NAMED_MAX).map(String::as_str).collect();
    match nodes.len() - named.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// The nodes that have not shown a certificate of the new authority. The manager `own` takes care of its own.
fn waiting_for(own: NodeId, replacement: &Replacement, members: &[MemberEntry]) -> Vec<String> {
    let is_late = |member: &&MemberEntry| member.node != own && !replacement.renewed.contains(&member.node);
    members.iter().filter(is_late).map(|member| format!("{} (node {})", member.name, member.node)).collect()
}

/// How far a replacement is, for the judgement of the cluster.
pub(crate) fn change(
    own: NodeId,
    authority: &Authority,
    namespace: &Namespace,
) -> Result<Option<AuthorityChange>, NsError> {
    let Some(replacement) = authority.replacement() else { return Ok(None) };
    let waiting_for = waiting_for(own, &replacement, &namespace.read(namespace::members)?);
    Ok(Some(AuthorityChange { since: u64::try_from(replacement.began.secs()).unwrap_or(0), waiting_for }))
}

/// The authority at its manager.
pub(crate) struct AuthorityKeeper {
    /// This manager.
    pub(crate) own: NodeId,
    pub(crate) authority: Arc<Authority>,
    pub(crate) namespace: Arc<Namespace>,
    /// Renews the manager's own certificate.
    pub(crate) renew: RenewNow,
    /// The manager's address for nodes.
    pub(crate) address: String,
    /// The other managers, which must have each change.
    pub(crate) others: OtherManagersHealth,
    /// The connections with them.
    pub(crate) links: Arc<Links>,
}

impl AuthorityKeeper {
    /// Answers the requests about the authority.
    pub(crate) fn answer(&self, ask: &ControlRequest) -> Option<Reply> {
        let done = match ask {
            ControlRequest::Authority => Ok(()),
            ControlRequest::AuthorityRotate => self.rotate(),
            ControlRequest::AuthorityRetire { force } => self.retire(*force),
            _ => return None,
        };
        Some(match done.and_then(|()| self.view().map_err(|error| error.to_string())) {
            Ok(view) => Reply::long(&view),
            Err(why) => Reply::Refused(why),
        })
    }

    fn view(&self) -> Result<AuthorityView, NsError> {
        let set = self.authority.set();
        let replaces = match (self.authority.replacement(), set.previous()) {
            (Some(replacement), Some(previous)) => Some(ReplacementView {
                authority: previous.to_string(),
                since: replacement.began.secs(),
                waiting_for: waiting_for(self.own, &replacement, &self.namespace.read(namespace::members)?),
            }),
            _ => None,
        };
        let authority = set.fingerprint().to_string();
        let managers = manager_addresses::of_members(&self.address, &self.namespace.read(namespace::members)?);
        Ok(AuthorityView { authority, managers, replaces })
    }

    /// Refuses a change as long as another manager has not stored the last one, or is not here to store this one: it could not take over.
    fn all_have_stored(&self, members: &[MemberEntry]) -> Result<(), String> {
        let late = self.others.lacking(other_managers(members, self.own), |node| self.links.is_up(node));
        if late.is_empty() {
            return Ok(());
        }
        Err(format!(
            "nothing was changed: these managers are offline or do not have the present authority yet, so they could not take over afterwards: {}. A standby that is online \
             fetches it within seconds. Start the others, or remove them (`weir node remove`)",
            listed(&late)
        ))
    }

    fn rotate(&self) -> Result<(), String> {
        self.all_have_stored(&self.namespace.read(namespace::members).map_err(|error| error.to_string())?)?;
        self.authority.rotate(now()).map_err(|error| error.to_string())?;
        tracing::warn!(authority = %self.authority.fingerprint(), "the cluster's authority has a new key; the earlier one is trusted too");
        self.renew_own("the authority has a new key")
    }

    fn retire(&self, force: bool) -> Result<(), String> {
        let replacement = self.authority.replacement();
        let replacement = replacement.ok_or_else(|| link::AuthorityError::IsAlone.to_string())?;
        let members = self.namespace.read(namespace::members).map_err(|error| error.to_string())?;
        if !force {
            self.all_have_stored(&members)?;
        }
        let late = waiting_for(self.own, &replacement, &members);
        if !late.is_empty() && !force {
            return Err(format!(
                "these nodes have no certificate of the new authority yet, and would be shut out: {}. A node that is online gets one within seconds. \
                 Start the others, or remove them (`weir node remove`), or use --force and let them join again",
                listed(&late)
            ));
        }
        // This manager's own, if that had failed before.
        self.renew.look().map_err(|why| {
            format!("nothing was retired: this manager has no certificate of the new authority: {why}")
        })?;
        self.authority.retire().map_err(|error| error.to_string())?;
        tracing::warn!(authority = %self.authority.fingerprint(), "the cluster's earlier authority was retired");
        self.renew_own("the earlier authority is retired")
    }

    fn renew_own(&self, done: &str) -> Result<(), String> {
        let renewed = self.renew.look();
        renewed
            .map(drop)
            .map_err(|why| format!("{done}, but this manager cannot use that yet, and tries it again: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use types::Timestamp;

    use super::*;

    fn member(node: u64) -> MemberEntry {
        let (for_nodes, for_clients) = (Vec::new(), Vec::new());
        let name = format!("disk{node}");
        MemberEntry { node: NodeId(node), roles: 2, name, key: [0; 32], joined: Timestamp(0), for_nodes, for_clients }
    }

    #[test]
    fn nodes_without_a_new_certificate_are_named() {
        let replacement = Replacement { began: Timestamp(0), renewed: [NodeId(3), NodeId(9)].into() };
        let late = waiting_for(NodeId(1), &replacement, &[member(1), member(2), member(3), member(4)]);
        assert_eq!(late, ["disk2 (node 2)", "disk4 (node 4)"]);
        let many: Vec<String> = (0..30).map(|number| number.to_string()).collect();
        assert!(listed(&many).ends_with("19 and 10 more"));
    }

    #[test]
    fn the_first_line_is_a_command_to_copy() {
        let (authority, managers) = ("ab".to_owned(), vec!["m:1".to_owned()]);
        let replaces = ReplacementView { authority: "cd".into(), since: 0, waiting_for: vec!["disk2 (node 2)".into()] };
        let mut view = AuthorityView { authority, managers, replaces: Some(replaces) };
        let lines = in_words(&view);
        assert_eq!(lines[0], "weir context add NAME --authority ab --manager m:1");
        assert!(lines[1].contains("replaces cd") && lines[2].contains("disk2 (node 2)"), "{lines:?}");
        view.replaces = None;
        assert_eq!(in_words(&view).len(), 1);
        assert!(!serde_json::to_string(&view).unwrap().contains("replaces"));
    }
}
