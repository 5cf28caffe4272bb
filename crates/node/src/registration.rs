//! What a node settles with its manager before the roles speak: who it is, where it is, which stores it has, and its next certificate.

use std::time::Duration;

use link::{Outgoing, Room};
use serde::{Deserialize, Serialize};
use types::{NodeId, StoreId};

use crate::links::{Answer, Call, Links, REGISTRATION};

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

/// What a node asks its manager for, before the roles speak.
#[derive(Serialize, Deserialize)]
pub enum Request {
    /// To sign a new certificate: the bytes of [`link::NewKey::renewal`].
    Renew(Vec<u8>),
    /// To take note of its addresses and stores.
    Register(Registration),
}

/// The manager's answer to a [`Request`].
#[derive(Serialize, Deserialize)]
pub enum Reply {
    /// The signed certificate: the bytes for [`link::Identity::renewed`].
    Renewed(Vec<u8>),
    /// The node is registered.
    Registered,
    /// The manager refuses; the reason.
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
