//! Which role each request needs, whether the owner of a tree may make it without, and whether it changes something: one table. A new request does not compile without
//! a line here.

use link::admin::AdminRole::{self, Admin, Operator, Viewer};

use super::ControlRequest;
use crate::validity::in_words;
use config::ClusterRole;

/// What holds for a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Rule {
    /// The least role that may make it.
    pub(crate) least: AdminRole,
    /// Also the owner of the tree that its path lies in may make it. The namespace decides whether the path does.
    pub(crate) or_owner: bool,
    /// What it changes, in words for the audit log. `None`: it only reads, and has a line only if it is denied.
    pub(crate) change: Option<String>,
}

fn read(least: AdminRole) -> Rule {
    Rule { least, or_owner: false, change: None }
}

fn change(least: AdminRole, what: impl Into<String>) -> Rule {
    Rule { least, or_owner: false, change: Some(what.into()) }
}

impl Rule {
    fn or_owner(self) -> Self {
        Self { or_owner: true, ..self }
    }
}

fn kind(is_group: bool) -> &'static str {
    if is_group { "group" } else { "user" }
}

/// The rule of a request.
pub(crate) fn rule(ask: &ControlRequest) -> Rule {
    match ask {
        ControlRequest::ScrubStatus
        | ControlRequest::Status
        | ControlRequest::Stores
        | ControlRequest::ClusterStatus
        | ControlRequest::Top
        | ControlRequest::File { .. }
        | ControlRequest::Missing { .. }
        | ControlRequest::PolicyList
        | ControlRequest::Repair
        | ControlRequest::Drain { store: None, .. }
        | ControlRequest::Tokens
        | ControlRequest::Admins
        | ControlRequest::Authority
        | ControlRequest::Principals { .. }
        | ControlRequest::Principal { .. }
        | ControlRequest::Trees { .. }
        | ControlRequest::Quotas { path: None, .. }
        // It changes nothing but the certificate of the administrator who asks.
        | ControlRequest::AdminRenew { .. } => read(Viewer),
        ControlRequest::PolicyGet { .. } | ControlRequest::Quotas { path: Some(_), .. } => read(Viewer).or_owner(),
        // These search the whole namespace.
        ControlRequest::StoreRemoveLost { confirmed: false, .. }
        | ControlRequest::FsckCluster { .. }
        | ControlRequest::PolicyApply { dry_run: true, .. }
        | ControlRequest::Restored { accept: false, .. } => read(Operator),
        // They change nothing, but hand out what the namespace holds, also what permissions hide.
        ControlRequest::Backup { since: None } => change(Admin, "make a backup of the namespace"),
        ControlRequest::Backup { since: Some(_) } => change(Admin, "make an incremental backup of the namespace"),
        ControlRequest::Explain { path, to, operation, who, .. } => {
            let to = to.as_ref().map(|to| format!(" to {to}")).unwrap_or_default();
            change(Admin, format!("explain whether {who} may {operation} {path}{to}"))
        }

        ControlRequest::ScrubNow { rate: None } => change(Operator, "begin a scrub pass"),
        ControlRequest::ScrubNow { rate: Some(rate) } => {
            change(Operator, format!("begin a scrub pass at {rate} bytes per second"))
        }
        ControlRequest::ScrubStop => change(Operator, "end the scrub pass"),
        ControlRequest::ForgetRecent => change(Operator, "forget the recently written data in memory"),
        ControlRequest::StoreReadOnly { store, read_only: true } => {
            change(Operator, format!("make store {store} read-only"))
        }
        ControlRequest::StoreReadOnly { store, read_only: false } => {
            change(Operator, format!("put store {store} online"))
        }
        ControlRequest::Drain { store: Some(store), stop: false } => change(Operator, format!("drain store {store}")),
        ControlRequest::Drain { store: Some(store), stop: true } => {
            change(Operator, format!("stop draining store {store}"))
        }

        ControlRequest::PolicySet { path, words, mkdir } => {
            let made = if *mkdir { ", and make the directory" } else { "" };
            change(Admin, format!("set the policy of {path} to {words}{made}")).or_owner()
        }
        ControlRequest::PolicyApply { path, dry_run: false, .. } => {
            change(Admin, format!("apply policies to the files below {path}"))
        }
        ControlRequest::Restored { accept: true, force, .. } => {
            let forced = if *force { ", forced" } else { "" };
            change(Admin, format!("accept the restored state{forced}"))
        }
        ControlRequest::PolicyRemove { path } => {
            change(Admin, format!("remove the policy of {path}")).or_owner()
        }
        ControlRequest::StoreRemove { store } => change(Admin, format!("remove store {store}")),
        ControlRequest::StoreRemoveLost { stores, confirmed: true, force } => {
            let stores: Vec<String> = stores.iter().map(u64::to_string).collect();
            let forced = if *force { ", forced" } else { "" };
            change(Admin, format!("remove as lost: store {}{forced}", stores.join(", ")))
        }
        ControlRequest::NodeRemove { name, force } => {
            let forced = if *force { ", also if it is online" } else { "" };
            change(Admin, format!("remove node {name}{forced}"))
        }
        ControlRequest::MakeToken { role, valid_millis, uses } => {
            let role = match role {
                ClusterRole::Disk => "disk server",
                ClusterRole::Manager => "manager",
            };
            let valid = in_words(*valid_millis);
            change(Admin, format!("create a token for a {role}, valid for {valid}, uses: {uses}"))
        }
        ControlRequest::PrincipalAdd { group, name } => change(Admin, format!("add the {} {name}", kind(*group))),
        ControlRequest::PrincipalRename { group, from, to } => {
            change(Admin, format!("rename the {} {from} to {to}", kind(*group)))
        }
        ControlRequest::TreeCreate { path, mkdir } => {
            let made = if *mkdir { ", and make the directory" } else { "" };
            change(Admin, format!("make {path} the root of a tree{made}"))
        }
        ControlRequest::TreeOwner { path, user, group } => {
            let whom = match (user, group) {
                (Some(user), _) => format!("the user {user}"),
                (None, Some(group)) => format!("the group {group}"),
                (None, None) => "nobody".to_owned(),
            };
            change(Admin, format!("give the tree {path} to {whom}"))
        }
        ControlRequest::QuotaSet { path, user, group, hard_bytes, soft_bytes, hard_files, soft_files, grace_secs } => {
            let whose = match (user, group) {
                (Some(user), _) => format!("user {user} in tree {path}"),
                (None, Some(group)) => format!("group {group} in tree {path}"),
                (None, None) => format!("tree {path}"),
            };
            let edits = [("bytes", hard_bytes), ("soft bytes", soft_bytes), ("files", hard_files), ("soft files", soft_files)];
            let edits = edits.iter().filter_map(|(name, edit)| match edit {
                None => None,
                Some(crate::LimitEdit::None) => Some(format!("{name} none")),
                Some(crate::LimitEdit::At(limit)) => Some(format!("{name} {limit}")),
            });
            let edits: Vec<String> = edits.chain(grace_secs.map(|secs| format!("grace {secs} s"))).collect();
            change(Admin, format!("set the quota of {whose}: {}", edits.join(", "))).or_owner()
        }
        ControlRequest::RevokeToken { id } => change(Admin, format!("revoke token {id}")),
        ControlRequest::AdminInvite { name, role, valid_millis, access_millis } => {
            let access = access_millis.map_or_else(|| "no end".to_owned(), in_words);
            let valid = in_words(*valid_millis);
            change(Admin, format!("invite administrator {name} as {role}, valid for {valid}, access: {access}"))
        }
        ControlRequest::AuthorityRotate => change(Admin, "replace the key of the cluster's authority"),
        ControlRequest::AuthorityRetire { force } => {
            let forced = if *force { ", forced" } else { "" };
            change(Admin, format!("retire the earlier authority of the cluster{forced}"))
        }
        ControlRequest::AdminRevoke { name } => change(Admin, format!("revoke administrator {name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_changes_something_needs_more_than_a_viewer() {
        let drain = |store, stop| rule(&ControlRequest::Drain { store, stop });
        assert_eq!(drain(None, false), read(Viewer));
        assert_eq!(drain(Some(7), false), change(Operator, "drain store 7"));
        assert_eq!(drain(Some(7), true), change(Operator, "stop draining store 7"));
        let lost = |confirmed| rule(&ControlRequest::StoreRemoveLost { stores: vec![7, 8], confirmed, force: true });
        assert_eq!(lost(false), read(Operator));
        assert_eq!(lost(true), change(Admin, "remove as lost: store 7, 8, forced"));
        let backup = rule(&ControlRequest::Backup { since: None });
        assert_eq!(backup, change(Admin, "make a backup of the namespace"), "it hands out everything");
        let invite = |access_millis| {
            let (name, valid_millis) = ("alice".into(), 7_200_000);
            rule(&ControlRequest::AdminInvite { name, role: Viewer, valid_millis, access_millis })
        };
        let said = "invite administrator alice as viewer, valid for 120 min 0 s, access: no end";
        assert_eq!(invite(None), change(Admin, said));
        let said = "invite administrator alice as viewer, valid for 120 min 0 s, access: 14 d";
        assert_eq!(invite(Some(14 * 86_400_000)), change(Admin, said));
        let retire = |force| rule(&ControlRequest::AuthorityRetire { force });
        assert_eq!(retire(true), change(Admin, "retire the earlier authority of the cluster, forced"));
        assert_eq!(rule(&ControlRequest::Authority), read(Viewer));
        let token = ControlRequest::MakeToken { role: ClusterRole::Disk, valid_millis: 86_400_000, uses: 3 };
        assert_eq!(rule(&token), change(Admin, "create a token for a disk server, valid for 1 d, uses: 3"));
    }
}
