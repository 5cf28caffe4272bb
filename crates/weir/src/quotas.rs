//! `weir tree` and `weir quota`: what trees, users and groups use, and what they may use.

use std::time::Duration;

use control::{ControlRequest, LimitEdit, QuotaAfter, Reply};
use namespace::{QuotaOf, QuotaRecord, SetQuota, TreeOwner};
use serde::{Deserialize, Serialize};
use service::{ListedTree, QuotaOwner, Service, TreeActor};
use types::{ErrorCode, NsPath, PrincipalId, PrincipalKind, Timestamp, TreeId};

use crate::Failure;
use crate::cli::{QuotaArgs, QuotaCommand, QuotaListArgs, QuotaSetArgs, TreeArgs, TreeCommand};
use crate::cluster_views::{asked, print, show};
use crate::exit::Exit;
use crate::table::table_lines;

/// Records in one answer.
const PAGE: usize = 1000;

/// A limit of bytes or of files, as the commands show it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct LimitView {
    /// What is there.
    pub(crate) used: u64,
    /// What open writes have reserved beside that.
    pub(crate) reserved: u64,
    /// The hard limit.
    pub(crate) hard: Option<u64>,
    /// The soft limit.
    pub(crate) soft: Option<u64>,
    /// When the grace ends, if the usage is above the soft limit. Since 1970, in seconds.
    pub(crate) grace_ends: Option<i64>,
}

/// Usage and limits, as the commands show them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct QuotaView {
    /// The root of the tree.
    pub(crate) tree: String,
    /// `tree`, `user` or `group`.
    pub(crate) kind: String,
    /// The name of the user or group.
    pub(crate) name: Option<String>,
    /// Bytes.
    pub(crate) bytes: LimitView,
    /// Files, links and directories.
    pub(crate) files: LimitView,
    /// How long the usage may stay above a soft limit, in seconds.
    pub(crate) grace_secs: u64,
    /// Where the next page begins.
    pub(crate) after: QuotaAfter,
}

/// A tree, as the commands show it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct TreeView {
    /// The number of the tree.
    pub(crate) number: u64,
    /// When it was made.
    pub(crate) made: String,
    /// Who decides about its policies and quotas beside administrators: `user NAME` or `group NAME`.
    #[serde(default)]
    pub(crate) owner: Option<String>,
    /// Its usage and its own limits.
    pub(crate) quota: QuotaView,
}

/// Answers a request about trees and quotas of an administrator; `None`: the request is about something else.
pub(crate) fn answer(service: &Service, ask: &ControlRequest) -> Option<Reply> {
    answer_to(service, &TreeActor::administrator(), ask)
}

/// Answers a request of somebody who may own the tree that it is about; `None`: the request is about something else, or is not for owners.
pub(crate) fn answer_owner(service: &Service, who: &TreeActor, ask: &ControlRequest) -> Option<Reply> {
    match ask {
        ControlRequest::QuotaSet { .. } | ControlRequest::Quotas { path: Some(_), .. } => answer_to(service, who, ask),
        _ => None,
    }
}

fn answer_to(service: &Service, who: &TreeActor, ask: &ControlRequest) -> Option<Reply> {
    Some(match ask {
        ControlRequest::TreeCreate { path, mkdir } => {
            with_path(path, |path| told(service.make_tree(&path, *mkdir).map(|()| path.to_string())))
        }
        ControlRequest::TreeOwner { path, user, group } => {
            let to = match (user, group) {
                (None, None) => None,
                (Some(user), None) => Some((PrincipalKind::User, user.as_str())),
                (None, Some(group)) => Some((PrincipalKind::Group, group.as_str())),
                (Some(_), Some(_)) => return Some(Reply::Refused("name a user or a group, not both".into())),
            };
            with_path(path, |path| told(service.give_tree(&path, to)))
        }
        ControlRequest::Trees { after } => told(service.trees(after.map(TreeId), PAGE).map(|trees| {
            let view = |tree: ListedTree| {
                let quota = view(service, (tree.path, tree.quota));
                let owner = tree.owner.map(|owner| match owner {
                    TreeOwner::User(id) => format!("user {}", service.shown_principal(id)),
                    TreeOwner::Group(id) => format!("group {}", service.shown_principal(id)),
                });
                TreeView { number: tree.tree.0, made: tree.made.to_string(), owner, quota }
            };
            trees.into_iter().map(view).collect::<Vec<_>>()
        })),
        ControlRequest::QuotaSet { path, user, group, hard_bytes, soft_bytes, hard_files, soft_files, grace_secs } => {
            let whose = match (user, group) {
                (None, None) => QuotaOwner::Tree,
                (Some(user), None) => QuotaOwner::User(user.clone()),
                (None, Some(group)) => QuotaOwner::Group(group.clone()),
                (Some(_), Some(_)) => return Some(Reply::Refused("name a user or a group, not both".into())),
            };
            let edit = |edit: &Option<LimitEdit>| {
                edit.map(|edit| match edit {
                    LimitEdit::None => None,
                    LimitEdit::At(limit) => Some(limit),
                })
            };
            with_path(path, |path| {
                let request = SetQuota {
                    path,
                    of: QuotaOf::Tree,
                    hard_bytes: edit(hard_bytes),
                    soft_bytes: edit(soft_bytes),
                    hard_files: edit(hard_files),
                    soft_files: edit(soft_files),
                    grace: grace_secs.map(Duration::from_secs),
                };
                told(service.set_quota(who, request, &whose))
            })
        }
        ControlRequest::Quotas { path: Some(path), after } => {
            with_path(path, |path| listed(service, who, Some(&path), after.as_ref()))
        }
        ControlRequest::Quotas { path: None, after } => listed(service, who, None, after.as_ref()),
        _ => return None,
    })
}

fn listed(service: &Service, who: &TreeActor, path: Option<&NsPath>, after: Option<&QuotaAfter>) -> Reply {
    let after = after.map(|QuotaAfter { tree, kind, id }| {
        let of = match kind {
            0 => QuotaOf::Tree,
            1 => QuotaOf::User(PrincipalId(*id)),
            _ => QuotaOf::Group(PrincipalId(*id)),
        };
        (TreeId(*tree), of)
    });
    let listed = service.quotas(who, path, after, PAGE);
    told(listed.map(|all| all.into_iter().map(|one| view(service, one)).collect::<Vec<_>>()))
}

fn view(service: &Service, (tree, record): (String, QuotaRecord)) -> QuotaView {
    let named = |id| Some(service.shown_principal(id).to_string());
    let (kind, number, name, id) = match record.of {
        QuotaOf::Tree => ("tree", 0, None, 0),
        QuotaOf::User(id) => ("user", 1, named(id), id.0),
        QuotaOf::Group(id) => ("group", 2, named(id), id.0),
    };
    let limit = |limit: namespace::Limit, used, reserved| LimitView {
        used,
        reserved,
        hard: limit.hard,
        soft: limit.soft,
        grace_ends: limit.over_since.map(|since| since.plus(record.grace).secs()),
    };
    QuotaView {
        tree,
        kind: kind.to_owned(),
        name,
        bytes: limit(record.bytes, record.used.bytes, record.reserved.bytes),
        files: limit(record.files, record.used.files, record.reserved.files),
        grace_secs: record.grace.as_secs(),
        after: QuotaAfter { tree: record.tree.0, kind: number, id },
    }
}

fn with_path(path: &str, then: impl FnOnce(NsPath) -> Reply) -> Reply {
    match NsPath::parse(path.as_bytes()) {
        Ok(path) => then(path),
        Err(error) => Reply::Refused(format!("`{path}`: {error}")),
    }
}

fn told<T: Serialize>(result: Result<T, service::Error>) -> Reply {
    match result {
        Ok(answer) => Reply::long(&answer),
        Err(error) if error.code() == ErrorCode::NotFound => Reply::Absent(error.to_string()),
        Err(error) if error.code() == ErrorCode::Denied => Reply::Denied(error.to_string()),
        Err(error) => Reply::Refused(error.to_string()),
    }
}

/// Runs `weir tree`.
pub(crate) fn run_tree(args: &TreeArgs) -> Result<Exit, Failure> {
    match &args.command {
        TreeCommand::Create(args) => {
            let ask = ControlRequest::TreeCreate { path: args.path.clone(), mkdir: args.mkdir };
            show(&args.node, &ask, |path: &String| vec![format!("{path} is the root of a tree")])
        }
        TreeCommand::Owner(args) => {
            let (path, user, group) = (args.path.clone(), args.user.clone(), args.group.clone());
            let said = match (&user, &group) {
                (Some(user), _) => format!("the user {user} owns the tree {path}"),
                (None, Some(group)) => format!("the group {group} owns the tree {path}"),
                (None, None) => format!("nobody owns the tree {path}"),
            };
            show(&args.node, &ControlRequest::TreeOwner { path, user, group }, |(): &()| vec![said])
        }
        TreeCommand::List(node) => {
            let mut all: Vec<TreeView> = Vec::new();
            loop {
                let after = all.last().map(|last| last.number);
                let page: Vec<TreeView> = asked(&node.data, &ControlRequest::Trees { after })?;
                let is_last = page.len() < PAGE;
                all.extend(page);
                if is_last {
                    break;
                }
            }
            let row = |tree: &TreeView| {
                let QuotaView { tree: path, bytes, files, .. } = &tree.quota;
                let (bytes, files) = (cells(bytes, &size), cells(files, &u64::to_string));
                let owner = tree.owner.clone().unwrap_or_else(|| "-".to_owned());
                [vec![path.clone()], bytes, files, vec![owner, tree.made.clone()]].concat()
            };
            let head = ["tree", "bytes", "soft", "hard", "files", "soft", "hard", "owner", "made"];
            print(node, &all, |all| table_lines(&head, &all.iter().map(row).collect::<Vec<_>>()))
        }
    }
}

/// Runs `weir quota`.
pub(crate) fn run_quota(args: &QuotaArgs) -> Result<Exit, Failure> {
    match &args.command {
        QuotaCommand::Set(args) => set(args),
        QuotaCommand::List(args) => list(args),
    }
}

fn set(args: &QuotaSetArgs) -> Result<Exit, Failure> {
    let ask = ControlRequest::QuotaSet {
        path: args.path.clone(),
        user: args.user.clone(),
        group: args.group.clone(),
        hard_bytes: args.bytes,
        soft_bytes: args.soft_bytes,
        hard_files: args.files,
        soft_files: args.soft_files,
        grace_secs: args.grace.map(|grace| grace.as_secs()),
    };
    show(&args.node, &ask, |(): &()| vec![format!("the quota in {} is set", args.path)])
}

fn list(args: &QuotaListArgs) -> Result<Exit, Failure> {
    let mut all: Vec<QuotaView> = Vec::new();
    loop {
        let after = all.last().map(|last| last.after.clone());
        let page: Vec<QuotaView> = asked(&args.node.data, &ControlRequest::Quotas { path: args.path.clone(), after })?;
        let is_last = page.len() < PAGE;
        all.extend(page);
        if is_last {
            break;
        }
    }
    let row = |one: &QuotaView| {
        let whose = one.name.as_ref().map_or_else(|| one.kind.clone(), |name| format!("{} {name}", one.kind));
        let grace = [one.bytes.grace_ends, one.files.grace_ends].into_iter().flatten().min();
        let grace = grace.map_or_else(String::new, |secs| Timestamp(secs.saturating_mul(1_000_000_000)).to_string());
        let (bytes, files) = (cells(&one.bytes, &size), cells(&one.files, &u64::to_string));
        [vec![one.tree.clone(), whose], bytes, files, vec![grace]].concat()
    };
    let head = ["tree", "of", "bytes", "soft", "hard", "files", "soft", "hard", "grace ends"];
    print(&args.node, &all, |all| table_lines(&head, &all.iter().map(row).collect::<Vec<_>>()))
}

fn size(bytes: &u64) -> String {
    types::units::show_size(*bytes)
}

/// Used with what is reserved, soft and hard limit.
fn cells(limit: &LimitView, shown: &dyn Fn(&u64) -> String) -> Vec<String> {
    let or_none = |limit: &Option<u64>| limit.as_ref().map_or_else(|| "-".to_owned(), shown);
    vec![shown(&limit.used.saturating_add(limit.reserved)), or_none(&limit.soft), or_none(&limit.hard)]
}
