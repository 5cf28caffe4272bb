//! The cluster before anything happens: its nodes, stores, policy and trees.

use namespace::Durability;
use namespace::{
    Actor, FIRST_NODE, FoundCluster, JoinNode, MakeToken, MakeTree, Mkdir, Namespace, NsError, Operation, PutStore,
    QuotaOf, SetAddresses, SetPolicy, SetQuota, TokenEntry,
};
use types::{Layout, Location, NodeId, NsPath, Policy, Spread, StoreId, Timestamp};

use crate::manager::store_of;
use crate::settings::{Scenario, Settings};

/// The trees with quotas.
pub(crate) const TREES: [&str; 2] = ["/t0", "/t1"];
/// The first limit of a tree, in bytes.
const TREE_BYTES: u64 = 400_000;

/// The node of a manager in the namespace. The first one founds the cluster, and the others join after the disk servers.
pub(crate) fn own_node(manager: usize, servers: usize) -> NodeId {
    if manager == 0 { FIRST_NODE } else { NodeId((servers + 1 + manager) as u64) }
}

/// The address of a store's server for clients.
pub(crate) fn host_of(store: StoreId) -> String {
    format!("10.0.0.{}", store.0)
}

/// Creates the cluster, and keeps everything that exists already.
pub(crate) fn found(ns: &Namespace, settings: &Settings) -> Result<(), NsError> {
    change(ns, FoundCluster { roles: 1, name: "manager".into(), key: [0; 32] })?;
    for store in (0..settings.servers).map(store_of) {
        let key = [u8::try_from(store.0).unwrap_or(0); 32];
        let token = token_of(key, 2);
        let id = token.id;
        match ns.read(|read| namespace::token(read, &id))? {
            Some(_) => {}
            None => change(ns, MakeToken { token })?,
        }
        let Some(token) = ns.read(|read| namespace::token(read, &id))? else { continue };
        let node = change(ns, JoinNode { token, roles: 2, name: format!("server{store}"), key })?;
        let (for_nodes, for_clients) = (vec![format!("{}:2", host_of(store))], vec![format!("{}:1", host_of(store))]);
        change(ns, SetAddresses { node, for_nodes, for_clients })?;
        let location = Location::new("site", "rack", &format!("host{store}"));
        let location = location.map_err(|_| NsError::Invalid { what: "a place".into(), why: "it is none" })?;
        change(ns, PutStore { store, node, location, class: None })?;
    }
    for manager in 1..settings.managers {
        let key = [u8::try_from(200 + manager).unwrap_or(0); 32];
        let token = token_of(key, 1);
        if ns.read(|read| namespace::token(read, &token.id))?.is_none() {
            change(ns, MakeToken { token: token.clone() })?;
        }
        let Some(token) = ns.read(|read| namespace::token(read, &token.id))? else { continue };
        let node = change(ns, JoinNode { token, roles: 1, name: format!("manager{manager}"), key })?;
        if node != own_node(manager, settings.servers) {
            return Err(NsError::Invalid { what: format!("node {node}"), why: "a manager has another number" });
        }
    }
    let count = |count: usize| u8::try_from(count).unwrap_or(u8::MAX);
    let layout = Layout::new(count(settings.replicas), count(settings.sync), None)
        .map_err(|_| NsError::Invalid { what: "a layout".into(), why: "it is none" })?;
    let policy = Policy::new(layout).with_spread(Spread::Host);
    change(ns, SetPolicy { path: NsPath::root(), policy })?;
    if settings.scenario == Scenario::Sharing { found_trees(ns) } else { Ok(()) }
}

/// A token with which one node joins.
fn token_of(key: [u8; 32], roles: u8) -> TokenEntry {
    TokenEntry {
        id: [key[0]; 16],
        hash: key,
        roles,
        made: Timestamp(0),
        expires: Timestamp(i64::MAX),
        uses_max: 1,
        used: Vec::new(),
    }
}

fn found_trees(ns: &Namespace) -> Result<(), NsError> {
    for tree in TREES {
        let path =
            NsPath::parse(tree.as_bytes()).map_err(|_| NsError::Invalid { what: tree.into(), why: "it is no path" })?;
        if ns.read(|read| namespace::stat(read, &Actor::admin(), &path)).is_ok() {
            continue;
        }
        change(ns, Mkdir { path: path.clone(), mode: 0o755, parents: false })?;
        change(ns, MakeTree { path: path.clone() })?;
        change(ns, limit(path, QuotaOf::Tree, TREE_BYTES))?;
    }
    Ok(())
}

/// Sets the hard limit of bytes.
pub(crate) fn limit(path: NsPath, of: QuotaOf, bytes: u64) -> SetQuota {
    let hard_bytes = Some(Some(bytes));
    SetQuota { path, of, hard_bytes, soft_bytes: None, hard_files: None, soft_files: None, grace: None }
}

fn change<O: Operation + Send + 'static>(ns: &Namespace, op: O) -> Result<O::Reply, NsError> {
    let ctx = ns.context(Timestamp(1), &Actor::admin(), None);
    ns.change_wait(Durability::Synced, ctx, op)
}
