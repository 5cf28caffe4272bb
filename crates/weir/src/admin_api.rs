//! The manager's answers to the commands that show its cluster and change its policies.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use manager::{Manager, MemberError, OpeningError, RemoveLost};
use namespace::{Actor, Durability, InheritedPolicy, NsError, RemovePolicy, SetPolicy};
use serde::{Deserialize, Serialize};
use types::{ErrorCode, Ino, NsPath, Policy, StoreId};

use crate::control::{ControlRequest, Reply};
use crate::serve::now;

/// Policies that one read returns.
const PAGE: usize = 1024;
/// How often a long search shows that it goes on.
const STILL_AT_WORK: Duration = Duration::from_secs(1);

/// A directory's policy, as the commands show it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct PolicyView {
    /// The directory.
    pub(crate) path: String,
    /// The policy of new files and directories in it.
    pub(crate) policy: String,
    /// The directory that the policy was set on; `None`: no directory up to the root has one.
    pub(crate) from: Option<String>,
    /// After setting a policy: why the stores cannot meet it at present.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) doubts: Vec<String>,
}

/// Answers a request about the cluster; `None`: the request is about something else.
pub(crate) fn answer(manager: &Arc<Manager>, ask: &ControlRequest) -> Option<Reply> {
    Some(match ask {
        ControlRequest::Stores => told(manager.stores_view()),
        ControlRequest::ClusterStatus => told(manager.status_view()),
        ControlRequest::Top => told(manager.top_view()),
        ControlRequest::File { path } => with_path(path, |path| told(manager.file_view(&path))),
        ControlRequest::Missing { after, unreadable } => told(manager.missing(*after, *unreadable)),
        ControlRequest::PolicySet { path, words } => with_path(path, |path| set(manager, path, words)),
        ControlRequest::PolicyGet { path } => with_path(path, |path| told(get(manager, &path))),
        ControlRequest::PolicyRemove { path } => with_path(path, |path| {
            let removed = change(manager, RemovePolicy { path: path.clone() });
            told(removed.and_then(|()| get(manager, &path)))
        }),
        ControlRequest::PolicyList => told(list(manager)),
        ControlRequest::StoreReadOnly { store, read_only } => {
            with_members(manager.set_read_only(StoreId(*store), *read_only), || manager.stores_view())
        }
        ControlRequest::StoreRemove { store } => {
            with_members(manager.remove_store(StoreId(*store)), || manager.stores_view())
        }
        ControlRequest::NodeRemove { name } => with_members(manager.remove_node(name), || manager.status_view()),
        ControlRequest::Drain { store, stop } => drain(manager, store.map(StoreId), *stop),
        ControlRequest::Repair => told(manager.repair_view()),
        ControlRequest::StoreRemoveLost { stores, confirmed, force } => {
            let stores = stores.iter().copied().map(StoreId).collect();
            remove_lost(manager, stores, RemoveLost { is_confirmed: *confirmed, force: *force })
        }
        _ => return None,
    })
}

/// The answer, or why there is none.
pub(crate) fn told<T: Serialize>(result: Result<T, NsError>) -> Reply {
    match result {
        Ok(answer) => Reply::long(&answer),
        Err(error) if error.code() == ErrorCode::NotFound => Reply::Absent(error.to_string()),
        Err(error) => Reply::Refused(error.to_string()),
    }
}

fn with_path(path: &str, then: impl FnOnce(NsPath) -> Reply) -> Reply {
    match NsPath::parse(path.as_bytes()) {
        Ok(path) => then(path),
        Err(error) => Reply::Refused(format!("`{path}`: {error}")),
    }
}

fn change<O: namespace::Operation<Reply = ()> + Send + 'static>(manager: &Manager, op: O) -> Result<(), NsError> {
    let ctx = manager.namespace().context(now(), &Actor::admin(), None);
    manager.namespace().change_wait(Durability::Synced, ctx, op)
}

/// The search may take minutes. Until it ends, a space is sent each second: JSON may begin with spaces, the command sees that the manager works,
/// and the manager sees whether the command still waits.
fn remove_lost(manager: &Arc<Manager>, stores: BTreeSet<StoreId>, how: RemoveLost) -> Reply {
    let manager = Arc::clone(manager);
    Reply::Stream(
        serde_json::Value::Null,
        Box::new(move |out| {
            let mut said = Instant::now();
            let mut still_waits = || {
                if said.elapsed() < STILL_AT_WORK {
                    return true;
                }
                said = Instant::now();
                out.write_all(b" ").and_then(|()| out.flush()).is_ok()
            };
            let outcome = match manager.remove_lost_stores(&stores, how, &mut still_waits) {
                Ok(Some(found)) => Ok(found),
                Ok(None) => return Ok(()),
                Err(error) => Err(error.to_string()),
            };
            serde_json::to_writer(out, &outcome).map_err(std::io::Error::from)
        }),
    )
}

fn with_members<T: Serialize>(done: Result<(), MemberError>, view: impl FnOnce() -> Result<T, NsError>) -> Reply {
    match done {
        Ok(()) => told(view()),
        Err(error) => Reply::Refused(error.to_string()),
    }
}

fn drain(manager: &Manager, store: Option<StoreId>, stop: bool) -> Reply {
    let begun = match store {
        Some(store) if stop => manager.stop_draining(store),
        Some(store) => manager.drain_store(store),
        None => Ok(()),
    };
    match begun {
        Ok(()) => told(manager.repair_view()),
        Err(error) => Reply::Refused(error.to_string()),
    }
}

fn set(manager: &Manager, path: NsPath, words: &str) -> Reply {
    let policy: Policy = match words.parse() {
        Ok(policy) => policy,
        Err(error) => return Reply::Refused(format!("`{words}` is no policy: {error}")),
    };
    let doubts = match manager.judge_policy(&policy) {
        Ok(doubts) => doubts,
        Err(OpeningError::Placement(error)) => {
            return Reply::Refused(format!("the cluster's stores can never meet {policy}: {error}"));
        }
        Err(error) => return Reply::Refused(error.to_string()),
    };
    let shown = PolicyView { path: path.to_string(), policy: policy.to_string(), from: Some(path.to_string()), doubts };
    tracing::info!(path = %path, policy = %policy, "the policy of a directory was set");
    told(change(manager, SetPolicy { path, policy }).map(|()| shown))
}

fn get(manager: &Manager, path: &NsPath) -> Result<PolicyView, NsError> {
    manager.namespace().read(|read| {
        let inode = namespace::stat(read, &Actor::admin(), path)?;
        if !inode.is_dir() {
            return Err(NsError::NotDirectory(path.to_string()));
        }
        let found = namespace::policy_of(read, inode.ino)?;
        let from = found.as_ref().map(|found| shown(read, found.from)).transpose()?;
        let policy = found.map(|found| found.policy).unwrap_or_default();
        Ok(PolicyView { path: path.to_string(), policy: policy.to_string(), from, doubts: Vec::new() })
    })
}

fn list(manager: &Manager) -> Result<Vec<PolicyView>, NsError> {
    manager.namespace().read(|read| {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = namespace::policies(read, after, PAGE)?;
            let Some(last) = page.last() else { break };
            after = Some(last.from);
            for InheritedPolicy { policy, from } in page {
                let path = shown(read, from)?;
                let from = Some(path.clone());
                all.push(PolicyView { path, policy: policy.to_string(), from, doubts: Vec::new() });
            }
        }
        all.sort_unstable_by(|a: &PolicyView, b| a.path.cmp(&b.path));
        Ok(all)
    })
}

fn shown(read: &dyn namespace::Read, dir: Ino) -> Result<String, NsError> {
    Ok(namespace::path_of(read, dir)?.escape_ascii().to_string())
}
