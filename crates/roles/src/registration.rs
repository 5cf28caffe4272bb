//! What a node settles with its manager before the roles speak: who it is, where it is, which stores it has, and its next certificate.

use std::collections::{HashMap, VecDeque};
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use link::{Authority, Outgoing, PeerIdentity, Room};
use namespace::{Actor, Durability, Namespace, NsError, Operation, PutStore, STORES_OF_NODE_MAX, SetAddresses};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use types::{Location, NodeId, StoreClass, StoreId, Timestamp};

use crate::links::{Answer, Call, Links, REGISTRATION, RegistrationHandler};

/// Runs of a node that are remembered.
const RUNS_KEPT: usize = 16;
/// How long a manager may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a disk server says of itself, on each connection with a manager.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Registration {
    /// A random number of this run of the process: by it two processes with one identity are told from one that was started again.
    pub run: u64,
    /// Where nodes reach it, as `host:port`.
    pub for_nodes: Vec<String>,
    /// Where clients reach it.
    pub for_clients: Vec<String>,
    /// What it has.
    pub stores: Vec<StoreClaim>,
}

/// A node says that it has a store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoreClaim {
    /// Which.
    pub store: StoreId,
    /// `site/rack/host`.
    pub location: String,
    /// What its administrator calls its kind.
    pub class: Option<String>,
}

#[derive(Serialize, Deserialize)]
enum Request {
    Renew(Vec<u8>),
    Register(Registration),
}

#[derive(Serialize, Deserialize)]
enum Reply {
    Renewed(Vec<u8>),
    Registered,
    Refused(String),
}

/// A manager was not asked, or did not do it.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// It was not to be had. It may be at another time.
    #[error("the manager, node {manager}, did not answer: {why}")]
    NotAnswered {
        /// Which.
        manager: NodeId,
        /// Why.
        why: String,
    },
    /// It says no.
    #[error("the manager, node {manager}, refuses: {reason}")]
    Refused {
        /// Which.
        manager: NodeId,
        /// Why.
        reason: String,
    },
}

/// Tells the manager `manager` what this node has. Waits for the answer: not for a reading thread.
///
/// # Errors
/// [`RegistrationError`]; [`RegistrationError::Refused`] says what is wrong with this node or its stores.
pub fn register(links: &Links, manager: NodeId, registration: &Registration) -> Result<(), RegistrationError> {
    match ask(links, manager, &Request::Register(registration.clone()))? {
        Reply::Registered => Ok(()),
        other => Err(unexpected(manager, other)),
    }
}

/// Has the manager `manager` sign a new certificate: `request` is that of [`link::NewKey::renewal`], the answer is for [`link::Identity::renewed`].
/// Waits for it: not for a reading thread.
///
/// # Errors
/// [`RegistrationError`].
pub fn renew(links: &Links, manager: NodeId, request: &[u8]) -> Result<Vec<u8>, RegistrationError> {
    match ask(links, manager, &Request::Renew(request.to_vec()))? {
        Reply::Renewed(answer) => Ok(answer),
        other => Err(unexpected(manager, other)),
    }
}

fn unexpected(manager: NodeId, reply: Reply) -> RegistrationError {
    match reply {
        Reply::Refused(reason) => RegistrationError::Refused { manager, reason },
        _ => RegistrationError::NotAnswered { manager, why: "it answered something else".into() },
    }
}

fn ask(links: &Links, manager: NodeId, request: &Request) -> Result<Reply, RegistrationError> {
    let failed = |why: String| RegistrationError::NotAnswered { manager, why };
    let request = link::encode(request).map_err(|error| failed(error.to_string()))?;
    let call = Call::new(Outgoing::new([&REGISTRATION[..], &request].concat()));
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    let then = move |answer: Result<Answer, link::CallError>| {
        // Nobody waits any more: the answer is of no use.
        let _ = sender.send(answer);
    };
    links.request_then(manager, call, Room::Wait, then).map_err(|error| failed(error.to_string()))?;
    let answer = receiver.recv_timeout(PATIENCE).map_err(|_| failed(format!("nothing came within {PATIENCE:?}")))?;
    let answer = answer.map_err(|error| failed(error.to_string()))?;
    link::decode(&answer.message).map_err(|error| failed(error.to_string()))
}

/// A manager's side.
pub struct ManagerRegistration {
    namespace: Arc<Namespace>,
    authority: Arc<Authority>,
    validity: Duration,
    clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
    /// The runs of each node, the present one last.
    runs: Mutex<HashMap<NodeId, VecDeque<u64>>>,
}

/// A registration was not taken.
enum NotTaken {
    /// And will not be as it is.
    Refused(String),
    /// The manager cannot do it now.
    Failed(NsError),
}

impl From<NsError> for NotTaken {
    fn from(error: NsError) -> Self {
        // A disk server that is refused stops: not for a manager whose disk is full, for example.
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
    /// On the names and the authority of a cluster. Certificates are good for `validity`; `clock` is the time of day.
    #[must_use]
    pub fn new(
        namespace: Arc<Namespace>,
        authority: Arc<Authority>,
        validity: Duration,
        clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
    ) -> Self {
        Self { namespace, authority, validity, clock, runs: Mutex::default() }
    }

    fn change<O: Operation + Send + 'static>(&self, op: O) -> Result<O::Reply, NsError> {
        let ctx = self.namespace.context((self.clock)(), &Actor::admin(), None);
        self.namespace.change_wait(Durability::Synced, ctx, op)
    }

    /// Whether `run` is the present run of a node, or one that follows it. A run that another has followed does not come back, unless both are there.
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
        if let Some(wrong) = for_nodes.iter().chain(&for_clients).find(|address| !is_address(address)) {
            let wrong = link::printable(wrong.as_bytes());
            return Err(refused(format!("`{wrong}` is not an address of a node; write `host:port`")));
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

/// `host:port`: a name, an address, or an address in brackets. It is shown to people, and sent to clients.
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
        let node = peer.name.node;
        match self.namespace.read(|read| namespace::member(read, node)) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(format!(
                "node {node} is not in this cluster any more; let it join again with a new token (`weir token create` on a manager)"
            )),
            Err(error) => Err(format!("the manager cannot look it up: {error}")),
        }
    }

    fn answer(&self, from: &PeerIdentity, request: &[u8]) -> Option<Vec<u8>> {
        let reply = match link::decode(request) {
            // It was a member when it connected.
            Ok(Request::Renew(request)) => match self.admit(from) {
                Err(reason) => Reply::Refused(reason),
                Ok(()) => match self.authority.renew(&from.name, &request, (self.clock)(), self.validity) {
                    Ok(answer) => {
                        tracing::info!(node = %from.name.node, "its certificate was renewed");
                        Reply::Renewed(answer)
                    }
                    Err(error) => Reply::Refused(error.to_string()),
                },
            },
            Ok(Request::Register(registration)) => {
                let stores = registration.stores.len();
                match self.register(from.name.node, registration) {
                    Ok(()) => {
                        tracing::info!(node = %from.name.node, stores, from = %from.address, "a disk server is here");
                        Reply::Registered
                    }
                    Err(NotTaken::Refused(reason)) => Reply::Refused(reason),
                    Err(NotTaken::Failed(error)) => {
                        tracing::error!(node = %from.name.node, %error, "a disk server could not be registered; it asks again");
                        return None;
                    }
                }
            }
            Err(error) => Reply::Refused(error.to_string()),
        };
        if let Reply::Refused(reason) = &reply {
            tracing::warn!(node = %from.name.node, from = %from.address, reason, "refused");
        }
        link::encode(&reply).ok()
    }
}
