//! What a node and its manager settle before other messages: the node's identity, addresses, stores and next certificate.

use std::time::Duration;

use link::{AuthoritySet, ManagerFiles, Outgoing, Room};
use serde::{Deserialize, Serialize};
use types::{NodeId, StoreId};

use crate::links::{Answer, Call, Links, REGISTRATION};
use crate::{Changes, ClusterState, Committed};

/// How long a manager may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A disk server's registration, sent on each connection with a manager.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Registration {
    /// A random number of this run of the process. It separates two processes with one identity from one process that restarted.
    pub run: u64,
    /// Its addresses for other nodes, as `host:port`.
    pub for_nodes: Vec<String>,
    /// Its addresses for clients.
    pub for_clients: Vec<String>,
    /// Its stores.
    pub stores: Vec<StoreClaim>,
}

/// A node's claim that it has a store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoreClaim {
    /// The store's number.
    pub store: StoreId,
    /// `site/rack/host`.
    pub location: String,
    /// Its class, as its administrator named it.
    pub class: Option<String>,
}

/// A request of a node to its manager, before other messages.
#[derive(Serialize, Deserialize)]
pub enum Request {
    /// Sign a new certificate: the bytes of [`link::NewKey::renewal`].
    Renew(Vec<u8>),
    /// Record the node's addresses and stores.
    Register(Registration),
    /// Say which authorities to trust.
    Authorities,
    /// Send the files that all managers have, to another manager, if they differ from those that it has stored durably.
    ManagerFiles {
        /// [`ManagerFiles::digest`] of those; zeros for none.
        known: [u8; 32],
    },
    /// Send the state of the cluster, to another manager.
    ClusterState,
    /// Send what has changed in the namespace, to another manager.
    Changes {
        /// What it knows of.
        since: Committed,
        /// What its readers have seen in the database.
        seen: Committed,
    },
}

/// The manager's answer to a [`Request`].
#[derive(Serialize, Deserialize)]
pub enum Reply {
    /// The signed certificate: the bytes for [`link::Identity::renewed`].
    Renewed(Vec<u8>),
    /// The node is registered.
    Registered,
    /// The manager refuses, for this reason.
    Refused(String),
    /// The authorities to trust: the bytes for [`AuthoritySet::from_bytes`].
    Authorities(Vec<u8>),
    /// The managers' files; `None`: the asking manager has them.
    ManagerFiles(Option<ManagerFiles>),
    /// The state of the cluster.
    ClusterState(ClusterState),
    /// What has changed in the namespace.
    Changes(Changes),
}

/// Why a request to a manager failed.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// The manager did not answer. It may answer later.
    #[error("the manager, node {manager}, did not answer: {why}")]
    NotAnswered {
        /// The manager.
        manager: NodeId,
        /// The reason.
        why: String,
    },
    /// The manager refused.
    #[error("the manager, node {manager}, refuses: {reason}")]
    Refused {
        /// The manager.
        manager: NodeId,
        /// The reason.
        reason: String,
    },
}

/// Registers this node with `manager` and waits for the answer. Do not call it on a reading thread.
///
/// # Errors
/// [`RegistrationError`]; [`RegistrationError::Refused`] says what is wrong with this node or its stores.
pub fn register(links: &Links, manager: NodeId, registration: &Registration) -> Result<(), RegistrationError> {
    match ask(links, manager, &Request::Register(registration.clone()))? {
        Reply::Registered => Ok(()),
        other => Err(unexpected(manager, other)),
    }
}

/// Has `manager` sign a new certificate, and waits for it. `request` comes from [`link::NewKey::renewal`]; the answer goes to
/// [`link::Identity::renewed`]. Do not call it on a reading thread.
///
/// # Errors
/// [`RegistrationError`].
pub fn renew(links: &Links, manager: NodeId, request: &[u8]) -> Result<Vec<u8>, RegistrationError> {
    match ask(links, manager, &Request::Renew(request.to_vec()))? {
        Reply::Renewed(answer) => Ok(answer),
        other => Err(unexpected(manager, other)),
    }
}

/// Asks `manager` which authorities to trust. Do not call it on a reading thread.
///
/// # Errors
/// [`RegistrationError`].
pub fn authorities(links: &Links, manager: NodeId) -> Result<AuthoritySet, RegistrationError> {
    match ask(links, manager, &Request::Authorities)? {
        Reply::Authorities(set) => AuthoritySet::from_bytes(&set)
            .ok_or_else(|| RegistrationError::NotAnswered { manager, why: "it names no authorities".into() }),
        other => Err(unexpected(manager, other)),
    }
}

/// Asks the active manager for the files that all managers have; `None`: they are those with the digest `known`. Do not call it on a reading thread.
///
/// # Errors
/// [`RegistrationError`].
pub fn manager_files(
    links: &Links,
    manager: NodeId,
    known: [u8; 32],
) -> Result<Option<ManagerFiles>, RegistrationError> {
    match ask(links, manager, &Request::ManagerFiles { known })? {
        Reply::ManagerFiles(files) => Ok(files),
        other => Err(unexpected(manager, other)),
    }
}

/// Asks the active manager for the state of the cluster. Do not call it on a reading thread.
///
/// # Errors
/// [`RegistrationError`].
pub fn cluster_state(links: &Links, manager: NodeId) -> Result<ClusterState, RegistrationError> {
    match ask(links, manager, &Request::ClusterState)? {
        Reply::ClusterState(state) => Ok(state),
        other => Err(unexpected(manager, other)),
    }
}

/// Asks the active manager what has changed in the namespace since `since`, tells it what readers have seen, and waits at most for `patience`. Do not call
/// it on a reading thread.
///
/// # Errors
/// [`RegistrationError`].
pub fn changes(
    links: &Links,
    manager: NodeId,
    (since, seen): (Committed, Committed),
    patience: Duration,
) -> Result<Changes, RegistrationError> {
    match ask_for(links, manager, &Request::Changes { since, seen }, patience)? {
        Reply::Changes(changes) => Ok(changes),
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
    ask_for(links, manager, request, PATIENCE)
}

fn ask_for(links: &Links, manager: NodeId, request: &Request, patience: Duration) -> Result<Reply, RegistrationError> {
    let failed = |why: String| RegistrationError::NotAnswered { manager, why };
    let request = link::encode(request).map_err(|error| failed(error.to_string()))?;
    let call = Call::new(Outgoing::new([&REGISTRATION[..], &request].concat()));
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    let then = move |answer: Result<Answer, link::CallError>| {
        // If the caller has stopped waiting, the answer is of no use.
        let _ = sender.send(answer);
    };
    links.request_then(manager, call, Room::Wait, then).map_err(|error| failed(error.to_string()))?;
    let answer = receiver.recv_timeout(patience).map_err(|_| failed(format!("nothing came within {patience:?}")))?;
    let answer = answer.map_err(|error| failed(error.to_string()))?;
    link::decode(&answer.message).map_err(|error| failed(error.to_string()))
}
