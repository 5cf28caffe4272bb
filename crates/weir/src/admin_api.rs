//! The manager's answers to the commands that show its cluster and change its policies.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use control::{ControlRequest, Reply};
use manager::{ApplyOptions, CompareOptions, Manager, MemberError, OpeningError, RemoveLost};
use namespace::{Actor, Durability, InheritedPolicy, Mkdir, NsError, RemovePolicy, SetPolicy};
use serde::{Deserialize, Serialize};
use service::TreeActor;
use store::Store;
use types::{ErrorCode, Ino, NsPath, Policy, StoreId};

use crate::serve::now;

/// Policies that one read returns.
const PAGE: usize = 1024;
/// The most names of one kind in an answer.
const LISTED_MAX: usize = 100_000;
/// How often a long search shows that it goes on.
const STILL_AT_WORK: Duration = Duration::from_secs(1);

/// How long a command waits for the lease of a node that it cuts off. A lease ends in a few seconds.
const CUT_OFF_MAX: Duration = Duration::from_secs(55);

/// What it means that a long search stopped.
const NOTHING_CHANGED: &str = "the command did not wait for the answer, so nothing was changed";
const NOT_ACCEPTED: &str = "the command did not wait for the answer, so the state was not accepted";
const PARTLY_APPLIED: &str = "stopped: the command did not wait; what was done stays";

/// A directory's policy, as the commands show it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct PolicyView {
    /// The directory.
    pub(crate) path: String,
    /// The policy of new files and directories in it.
    pub(crate) policy: String,
    /// The directory that the policy was set on; `None`: no directory up to the root has one.
    pub(crate) from: Option<String>,
    /// The root got its policy from weir, when stores first stood on several hosts, and nobody has changed it.
    #[serde(default)]
    pub(crate) is_given: bool,
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
        ControlRequest::PolicySet { .. } | ControlRequest::PolicyGet { .. } | ControlRequest::PolicyRemove { .. } => {
            return answer_owner(manager, &TreeActor::administrator(), ask);
        }
        ControlRequest::PolicyApply { path, dry_run, files_per_second } => {
            let how = ApplyOptions { dry_run: *dry_run, files_per_second: *files_per_second };
            with_path(path, |path| apply(manager, path, how))
        }
        ControlRequest::PolicyList => told(list(manager)),
        ControlRequest::StoreReadOnly { store, read_only } => {
            with_members(manager.set_read_only(StoreId(*store), *read_only), || manager.stores_view())
        }
        ControlRequest::StoreRemove { store } => {
            with_members(manager.remove_store(StoreId(*store)), || manager.stores_view())
        }
        ControlRequest::NodeRemove { name, force } => {
            with_members(remove_node(manager, name, *force), || manager.status_view())
        }
        ControlRequest::Drain { store, stop } => drain(manager, store.map(StoreId), *stop),
        ControlRequest::Repair => told(manager.repair_view()),
        ControlRequest::FsckCluster { list } => compare(manager, usize::try_from(*list).unwrap_or(usize::MAX)),
        ControlRequest::StoreRemoveLost { stores, confirmed, force } => {
            let stores = stores.iter().copied().map(StoreId).collect();
            remove_lost(manager, stores, RemoveLost { is_confirmed: *confirmed, force: *force })
        }
        ControlRequest::Restored { list, accept, force } => {
            let list = usize::try_from(*list).unwrap_or(usize::MAX).min(LISTED_MAX);
            restored(manager, CompareOptions { list, accept: *accept, force: *force, keep: CompareOptions::KEEP })
        }
        _ => return None,
    })
}

/// Answers a request about the policy of a directory, of somebody who may own the tree that it is in; `None`: the request is about something else.
pub(crate) fn answer_owner(manager: &Arc<Manager>, who: &TreeActor, ask: &ControlRequest) -> Option<Reply> {
    Some(match ask {
        ControlRequest::PolicySet { path, words, mkdir } => {
            with_path(path, |path| set(manager, who, path, words, *mkdir))
        }
        ControlRequest::PolicyGet { path } => with_path(path, |path| told(get(manager, who, &path))),
        ControlRequest::PolicyRemove { path } => with_path(path, |path| {
            let removed = change(manager, who, RemovePolicy { path: path.clone() });
            told(removed.and_then(|()| get(manager, who, &path)))
        }),
        _ => return None,
    })
}

/// The answer, or why there is none.
pub(crate) fn told<T: Serialize>(result: Result<T, NsError>) -> Reply {
    match result {
        Ok(answer) => Reply::long(&answer),
        Err(error) if error.code() == ErrorCode::NotFound => Reply::Absent(error.to_string()),
        Err(error) if error.code() == ErrorCode::Denied => Reply::Denied(error.to_string()),
        Err(error) => Reply::Refused(error.to_string()),
    }
}

/// Forgets the recently written data of a node with this store, or with several that share the memory.
pub(crate) fn forget_recent(store: Option<&Arc<Store>>) -> Reply {
    store.inspect(|store| store.forget_recent());
    Reply::Done(serde_json::Value::Null)
}

fn with_path(path: &str, then: impl FnOnce(NsPath) -> Reply) -> Reply {
    match NsPath::parse(path.as_bytes()) {
        Ok(path) => then(path),
        Err(error) => Reply::Refused(format!("`{path}`: {error}")),
    }
}

fn change<O: namespace::Operation<Reply = ()> + Send + 'static>(
    manager: &Manager,
    who: &TreeActor,
    op: O,
) -> Result<(), NsError> {
    let ctx = manager.namespace().context(now(), who.actor(), None);
    manager.namespace().change_wait(Durability::Synced, ctx, op)
}

fn remove_lost(manager: &Arc<Manager>, stores: BTreeSet<StoreId>, how: RemoveLost) -> Reply {
    let manager = Arc::clone(manager);
    long_search(NOTHING_CHANGED, move |still_waits| manager.remove_lost_stores(&stores, how, still_waits))
}

fn apply(manager: &Arc<Manager>, path: NsPath, how: ApplyOptions) -> Reply {
    if !how.dry_run {
        tracing::info!(%path, "the policies of directories are applied to existing files");
    }
    let manager = Arc::clone(manager);
    let stopped = if how.dry_run { NOTHING_CHANGED } else { PARTLY_APPLIED };
    long_search(stopped, move |still_waits| manager.apply_policy(&path, how, still_waits))
}

fn compare(manager: &Arc<Manager>, list_max: usize) -> Reply {
    let manager = Arc::clone(manager);
    long_search(NOTHING_CHANGED, move |still_waits| manager.audit(list_max, still_waits))
}

fn restored(manager: &Arc<Manager>, how: CompareOptions) -> Reply {
    let manager = Arc::clone(manager);
    let stopped = if how.accept { NOT_ACCEPTED } else { NOTHING_CHANGED };
    long_search(stopped, move |still_waits| manager.compare_restored(how, still_waits))
}

/// The answer of a search that may take minutes. Until it ends, a space is sent each second: JSON may begin with spaces, the command sees that the
/// manager works, and the manager sees whether the command still waits. A search that ends with `None` has stopped, because it does not wait: `stopped`
/// says for the log what that means.
fn long_search<T: Serialize, E: std::fmt::Display>(
    stopped: &'static str,
    search: impl FnOnce(&mut dyn FnMut() -> bool) -> Result<Option<T>, E> + Send + 'static,
) -> Reply {
    Reply::Late(
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
            let outcome = match search(&mut still_waits) {
                Ok(Some(found)) => Ok(found),
                Ok(None) => return Ok(Err(stopped.into())),
                Err(error) => Err(error.to_string()),
            };
            // Whether or not anybody takes the answer, this is the outcome. A connection that has ended shows when the rest is sent.
            let _ = serde_json::to_writer(out, &outcome);
            Ok(outcome.map(drop))
        }),
    )
}

fn with_members<T: Serialize>(done: Result<(), MemberError>, view: impl FnOnce() -> Result<T, NsError>) -> Reply {
    match done {
        Ok(()) => told(view()),
        Err(error) => Reply::Refused(error.to_string()),
    }
}

/// Removes a node. One that is cut off first is removed when its lease has ended.
fn remove_node(manager: &Manager, name: &str, force: bool) -> Result<(), MemberError> {
    let until = Instant::now() + CUT_OFF_MAX;
    let mut is_cut_off = false;
    loop {
        let done = manager.remove_node(name, force);
        let was_cut_off = std::mem::replace(&mut is_cut_off, matches!(done, Err(MemberError::IsCutOff { .. })));
        match done {
            // The manager has removed it meanwhile.
            Err(MemberError::NoNode(_)) if was_cut_off => return Ok(()),
            Err(MemberError::IsCutOff { lease, .. }) if Instant::now() < until => {
                std::thread::sleep(lease.clamp(Duration::from_millis(10), Duration::from_millis(200)));
            }
            done => return done,
        }
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

fn set(manager: &Manager, who: &TreeActor, path: NsPath, words: &str, mkdir: bool) -> Reply {
    // Before anything is said about the stores. The change checks it again.
    if let Err(error) = manager.namespace().read(|read| namespace::permit_tree_owner(read, who.actor(), &path))
        && error.code() == ErrorCode::Denied
    {
        return Reply::Denied(error.to_string());
    }
    if mkdir && !who.actor().is_admin() {
        return Reply::Denied(
            "only an administrator makes a directory this way; make it with `weir mkdir` first".into(),
        );
    }
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
    if mkdir && let Err(error) = make_directory(manager, &path) {
        return Reply::Refused(format!("cannot make {path}: {error}"));
    }
    let from = Some(path.to_string());
    let shown = PolicyView { path: path.to_string(), policy: policy.to_string(), from, is_given: false, doubts };
    let set = change(manager, who, SetPolicy { path: path.clone(), policy: policy.clone() });
    if set.is_ok() {
        tracing::info!(%path, %policy, "the policy of a directory was set");
    }
    told(set.map(|()| shown))
}

/// Makes a directory with those above it, unless it is there.
fn make_directory(manager: &Manager, path: &NsPath) -> Result<(), NsError> {
    let is_there = manager.namespace().read(|read| match namespace::stat(read, &Actor::admin(), path) {
        Err(error) if error.code() == ErrorCode::NotFound => Ok(false),
        found => found.map(|_| true),
    })?;
    if is_there {
        return Ok(());
    }
    let ctx = manager.namespace().context(now(), &Actor::admin(), None);
    let mkdir = Mkdir { path: path.clone(), mode: 0o755, parents: true };
    match manager.namespace().change_wait(Durability::Synced, ctx, mkdir) {
        // Somebody else has just made it.
        Err(error) if error.code() == ErrorCode::Exists => Ok(()),
        made => made.map(drop),
    }
}

fn get(manager: &Manager, who: &TreeActor, path: &NsPath) -> Result<PolicyView, NsError> {
    manager.namespace().read(|read| {
        namespace::permit_tree_owner(read, who.actor(), path)?;
        let inode = namespace::stat(read, &Actor::admin(), path)?;
        if !inode.is_dir() {
            return Err(NsError::NotDirectory(path.to_string()));
        }
        let found = namespace::policy_of(read, inode.ino)?;
        let from = found.as_ref().map(|found| shown(read, found.from)).transpose()?;
        let is_given = found.as_ref().is_some_and(|found| found.from == Ino::ROOT) && namespace::is_policy_given(read)?;
        let policy = found.map(|found| found.policy).unwrap_or_default();
        Ok(PolicyView { path: path.to_string(), policy: policy.to_string(), from, is_given, doubts: Vec::new() })
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
                let is_given = path == "/" && namespace::is_policy_given(read)?;
                all.push(PolicyView { path, policy: policy.to_string(), from, is_given, doubts: Vec::new() });
            }
        }
        all.sort_unstable_by(|a: &PolicyView, b| a.path.cmp(&b.path));
        Ok(all)
    })
}

fn shown(read: &dyn namespace::Read, dir: Ino) -> Result<String, NsError> {
    Ok(namespace::path_of(read, dir)?.escape_ascii().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_search_says_in_the_log_what_it_leaves() {
        let Reply::Late(_, search) = long_search(PARTLY_APPLIED, |_| Ok::<Option<()>, String>(None)) else {
            panic!("it answers late")
        };
        let mut out = Vec::new();
        assert_eq!(search(&mut out).unwrap(), Err(PARTLY_APPLIED.to_owned()));
        assert!(out.is_empty());
    }

    #[test]
    fn a_search_that_has_ended_says_so_though_nobody_takes_the_answer() {
        struct Ended;
        impl std::io::Write for Ended {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::BrokenPipe.into())
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Err(std::io::ErrorKind::BrokenPipe.into())
            }
        }
        for (found, outcome) in [(Ok(Some(7)), Ok(())), (Err("no"), Err("no".to_owned()))] {
            let Reply::Late(_, search) = long_search(PARTLY_APPLIED, move |_| found) else { panic!("it answers late") };
            assert_eq!(search(&mut Ended).unwrap(), outcome);
        }
    }
}
