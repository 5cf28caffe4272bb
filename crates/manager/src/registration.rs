//! The manager's side of [`node::registration`]. It looks a node up, records its registration in the namespace, and has its next certificate signed.

use std::collections::{HashMap, VecDeque};
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use link::{Authority, ManagerFiles, PeerIdentity, Role};
use namespace::{
    Actor, Durability, FIRST_NODE, Namespace, NsError, Operation, PutStore, STORES_OF_NODE_MAX, SetAddresses,
};
use node::links::RegistrationHandler;
use node::registration::{Registration, Reply, Request, StoreClaim};
use node::{Changes, ClusterState, Committed};
use types::{ClientAddress, Location, NodeId, StoreClass, Timestamp};

use crate::HasLease;
use crate::administrators::Administrators;
use crate::names::Names;
use crate::stored_files::StoredFiles;
use crate::tracked::Tracked;

/// How many runs of a node to remember.
const RUNS_KEPT: usize = 16;

/// Why a manager without a lease refuses.
const NO_LEASE: &str = "this manager has lost touch with its database, and another one may have taken over";

/// The manager's side of registration.
pub struct ManagerRegistration {
    /// This manager.
    own: NodeId,
    /// What other managers get; `None`: there can be none.
    shares: Option<Shares>,
    names: Names,
    authority: Arc<Authority>,
    validity: Duration,
    clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
    may_grant: HasLease,
    /// The runs of each node, the present one last.
    runs: Tracked<HashMap<NodeId, VecDeque<u64>>>,
}

/// What other managers get.
pub struct Shares {
    /// The administrators of the cluster.
    pub administrators: Arc<Administrators>,
    /// Which of the managers have stored the files.
    pub stored: Arc<StoredFiles>,
    /// The state of the cluster.
    pub state: Box<dyn Fn() -> ClusterState + Send + Sync>,
    /// What has changed in the namespace since the first one, for readers who have seen the second one; `None` while another manager may know more.
    pub changes: Box<dyn Fn(Committed, Committed) -> Option<Changes> + Send + Sync>,
}

/// Why a registration was not accepted.
enum NotTaken {
    /// The registration is wrong; repeating it does not help.
    Refused(String),
    /// The manager cannot record it now.
    Failed(NsError),
}

impl From<NsError> for NotTaken {
    fn from(error: NsError) -> Self {
        // A refused disk server stops. It must not stop because the manager's disk is full, for example.
        match error {
            NsError::StoreElsewhere { .. }
            | NsError::NotFound(..)
            | NsError::TooMany { .. }
            | NsError::TooLarge { .. } => Self::Refused(error.to_string()),
            other => Self::Failed(other),
        }
    }
}

impl std::fmt::Debug for ManagerRegistration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ManagersDesk")
    }
}

impl ManagerRegistration {
    /// Makes a registration service for a cluster's namespace and authority. Certificates are valid for `validity`; `clock` gives the time of day.
    /// While the manager may not grant ([`crate::Manager::may_grant`]), no node is admitted.
    #[must_use]
    pub fn new(
        namespace: Arc<Namespace>,
        authority: Arc<Authority>,
        validity: Duration,
        clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
        may_grant: HasLease,
    ) -> Self {
        let (names, runs) = (Names::new(namespace), Tracked::default());
        Self { own: FIRST_NODE, shares: None, names, authority, validity, clock, may_grant, runs }
    }

    /// That of the manager `own`, which is not the cluster's first one.
    #[must_use]
    pub fn of(self, own: NodeId) -> Self {
        Self { own, ..self }
    }

    /// Shares the authority and all of this with other managers.
    #[must_use]
    pub fn sharing(self, shares: Shares) -> Self {
        Self { shares: Some(shares), ..self }
    }

    fn change<O: Operation + Send + 'static>(&self, op: O) -> Result<O::Reply, NsError> {
        self.names.change_wait(((self.clock)(), &Actor::admin()), Durability::Synced, op)
    }

    /// Whether `run` is the present run of a node, or follows it. A replaced run does not come back, unless two processes use the same identity.
    fn is_alone(&self, node: NodeId, run: u64) -> bool {
        let mut runs = self.runs.lock();
        let runs = runs.entry(node).or_default();
        if runs.back() == Some(&run) {
            return true;
        }
        if runs.contains(&run) {
            return false;
        }
        runs.push_back(run);
        if runs.len() > RUNS_KEPT {
            runs.pop_front();
        }
        true
    }

    fn admit_if_not_cut_off(&self, node: NodeId) -> Result<(), String> {
        match self.names.read(namespace::cut_off) {
            Ok(nodes) if nodes.contains(&node) => {
                Err(format!("node {node} is being removed from this cluster (`weir node remove --force`)"))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(format!("the manager cannot look it up: {error}")),
        }
    }

    /// Whether a node belongs to the cluster, as its certificate says.
    fn admit_member(&self, peer: &PeerIdentity) -> Result<(), String> {
        let node = peer.name.node;
        // The handshake may have begun before the authority was retired.
        if !peer.is_trusted_by(&self.authority.set()) {
            return Err(link::AuthorityError::Retired.to_string());
        }
        match self.names.read(|read| namespace::member(read, node)) {
            // The cluster's authority may be known to a thief, who can make a certificate for any node and any roles.
            Ok(Some(member)) if member.roles != peer.name.roles.bits() => Err(format!(
                "node {node} did not join as {}; if its certificate was not forged, let it join again with a new token (`weir token create` on a manager)",
                peer.name.roles
            )),
            Ok(Some(_)) => self.admit_if_not_cut_off(node),
            Ok(None) => Err(format!(
                "node {node} is not in this cluster any more; let it join again with a new token (`weir token create` on a manager)"
            )),
            Err(error) => Err(format!("the manager cannot look it up: {error}")),
        }
    }

    /// Signs a certificate for the next time.
    fn renew(&self, from: &PeerIdentity, request: &[u8]) -> Result<Vec<u8>, String> {
        self.admit_member(from)?;
        if from.name.node == self.own {
            return Err("the manager signs its own certificate".into());
        }
        self.authority.renew_peer(from, request, (self.clock)(), self.validity).map_err(|error| error.to_string())
    }

    /// Tells the node which authorities to trust, and records that it has shown a certificate of the new one.
    fn authorities(&self, from: &PeerIdentity) -> Result<Vec<u8>, String> {
        self.admit_member(from)?;
        let set = self.authority.set();
        if from.authority == Some(set.fingerprint())
            && let Err(error) = self.authority.note_renewed(from.name.node)
        {
            // It asks again.
            tracing::error!(node = %from.name.node, %error, "cannot record that the node has a certificate of the new authority");
        }
        Ok(set.to_bytes())
    }

    /// The files that all managers have, for another manager that has not stored them; `None`: it has.
    fn manager_files(&self, from: &PeerIdentity, known: [u8; 32]) -> Result<Option<ManagerFiles>, String> {
        let Shares { administrators, stored, .. } = self.shares_with(from)?;
        stored.note(from.name.node, known);
        Ok(Some(administrators.files(&self.authority)).filter(|files| files.digest() != Some(known)))
    }

    /// What another manager gets.
    fn shares_with(&self, from: &PeerIdentity) -> Result<&Shares, String> {
        // The list of members has the same roles: otherwise it is not admitted.
        self.admit(from)?;
        self.shares_with_manager(from)
    }

    /// The same for a node that was a member when it connected.
    fn shares_with_manager(&self, from: &PeerIdentity) -> Result<&Shares, String> {
        if !from.name.roles.contain(Role::Manager) {
            return Err("only managers get the cluster's authority and the keys of its disk servers".into());
        }
        self.shares.as_ref().ok_or_else(|| {
            "the namespace of this cluster is in its manager's data directory, so this cluster can have only one manager".into()
        })
    }

    fn register(&self, node: NodeId, registration: Registration) -> Result<(), NotTaken> {
        let refused = NotTaken::Refused;
        let Registration { run, for_nodes, for_clients, stores } = registration;
        if stores.len() > STORES_OF_NODE_MAX {
            return Err(refused(format!("it has {} stores; a node has at most {STORES_OF_NODE_MAX}", stores.len())));
        }
        if !self.is_alone(node, run) {
            return Err(refused(format!(
                "another process runs as node {node}, with the same identity: if its data directory was copied, take one of the copies away"
            )));
        }
        let is_for_clients = |text: &str| {
            ClientAddress::parse(text).is_some()
                && is_address(text.split_once("://").map_or(text, |(_, address)| address))
        };
        let wrong = for_nodes.iter().find(|address| !is_address(address));
        if let Some(wrong) = wrong.or_else(|| for_clients.iter().find(|address| !is_for_clients(address))) {
            let wrong = link::printable(wrong.as_bytes());
            return Err(refused(format!(
                "`{wrong}` is not an address of a node; write `host:port`, or `protocol://host:port` for clients of another protocol than root"
            )));
        }
        let mut puts = Vec::with_capacity(stores.len());
        for StoreClaim { store, location, class } in stores {
            let wrong = |error: &dyn std::error::Error| refused(format!("store {store}: {error}"));
            let location: Location = location.parse().map_err(|error| wrong(&error))?;
            let class: Option<StoreClass> =
                class.map(|class| class.parse()).transpose().map_err(|error| wrong(&error))?;
            puts.push(PutStore { store, node, location, class });
        }
        self.change(SetAddresses { node, for_nodes, for_clients })?;
        puts.into_iter().try_for_each(|put| self.change(put)).map_err(NotTaken::from)
    }
}

/// Whether this is `host:port`, with a name, an address, or an address in brackets. It is shown to people and sent to clients.
fn is_address(address: &str) -> bool {
    let Some((host, port)) = address.rsplit_once(':') else { return false };
    let is_port = port.parse::<u16>().is_ok_and(|port| port != 0) && port.bytes().all(|byte| byte.is_ascii_digit());
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(host) => host.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte)),
    };
    is_port && is_host
}

impl RegistrationHandler for ManagerRegistration {
    fn admit(&self, peer: &PeerIdentity) -> Result<(), String> {
        if !(self.may_grant)() {
            return Err(NO_LEASE.into());
        }
        self.admit_member(peer)
    }

    fn answer(&self, from: &PeerIdentity, request: &[u8]) -> Option<Vec<u8>> {
        let reply = match link::decode(request) {
            // The node was a member when it connected.
            Ok(Request::Renew(request)) => match self.renew(from, &request) {
                Ok(answer) => {
                    tracing::info!(node = %from.name.node, "its certificate was renewed");
                    Reply::Renewed(answer)
                }
                Err(reason) => Reply::Refused(reason),
            },
            Ok(Request::Authorities) => match self.authorities(from) {
                Ok(set) => Reply::Authorities(set),
                Err(reason) => Reply::Refused(reason),
            },
            Ok(Request::ManagerFiles { known }) => match self.manager_files(from, known) {
                Ok(files) => Reply::ManagerFiles(files),
                Err(reason) => Reply::Refused(reason),
            },
            Ok(Request::ClusterState) => match self.shares_with(from) {
                Ok(shares) => Reply::ClusterState((shares.state)()),
                Err(reason) => Reply::Refused(reason),
            },
            // It comes before each answer to a reader, so nothing is looked up for it. Without the lease, other requests say so in the log.
            Ok(Request::Changes { since, seen }) => {
                let reply = match self.shares_with_manager(from).map(|shares| (shares.changes)(since, seen)) {
                    Ok(Some(changes)) => Reply::Changes(changes),
                    Ok(None) => Reply::Refused(NO_LEASE.into()),
                    Err(reason) => Reply::Refused(reason),
                };
                return link::encode(&reply).ok();
            }
            Ok(Request::Register(registration)) => {
                let what = if from.name.roles.contain(Role::Manager) { "a standby manager" } else { "a disk server" };
                let stores = registration.stores.len();
                match self.register(from.name.node, registration) {
                    Ok(()) => {
                        tracing::info!(node = %from.name.node, stores, from = %from.address, "{what} is here");
                        Reply::Registered
                    }
                    Err(NotTaken::Refused(reason)) => Reply::Refused(reason),
                    Err(NotTaken::Failed(error)) => {
                        tracing::error!(node = %from.name.node, %error, "{what} could not be registered; it asks again");
                        return None;
                    }
                }
            }
            Err(error) => Reply::Refused(error.to_string()),
        };
        if let Reply::Refused(reason) = &reply {
            tracing::warn!(node = %from.name.node, from = %from.address, reason, "refused");
        }
        let too_long = |_| link::encode(&Reply::Refused("the answer is too long for one message".into()));
        link::encode(&reply).or_else(too_long).ok()
    }
}
