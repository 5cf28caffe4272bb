//! How the nodes of a cluster recognise each other and communicate: the cluster's certificate authority, join tokens,
//! mutual TLS, and frames with many concurrent requests.
//!
//! # Promises
//!
//! - A peer without a certificate of this cluster's authority, which states cluster, node and roles, cannot act as a
//!   node.
//! - An administrator's certificate opens no node's connection, and a node's none of an administrator ([`admin`]).
//! - No peer can use more memory than it was granted, or more time than [`Settings`] allow.
//! - A peer that is refused gets the reason as text.
//! - Secrets are never shown, neither in logs nor by `Debug`.
//!
//! This crate does not know what messages mean, who is a member of the cluster, who has which number, or when to
//! connect and renew.
//!
//! It uses blocking threads: two for each connection, one that reads and one that sends. An idle connection has a
//! buffer of 136 KiB. A busy one has up to 300 KiB more for TLS, plus the granted memory of requests, answers and
//! one-way messages.
//!
//! All traffic between nodes is encrypted, including bulk. `cargo test -p weir-link --release --test rate -- --ignored
//! --nocapture` measures the cost; `docs/reference/node-protocol.md` has the figures and the format.

pub mod admin;
mod admission;
mod authority;
mod authority_set;
mod call;
mod channel;
mod connection;
mod credentials;
mod error;
mod frame;
mod hello;
mod identity;
mod issued;
mod join;
mod keys;
mod listener;
mod manager_files;
mod message;
mod name;
mod peer;
mod random;
mod refusal;
mod role;
mod secret_file;
mod settings;
mod standby;
#[cfg(test)]
mod tests;
pub mod token;
mod verify;

pub use admission::{Admission, OnAdmission};
pub use authority::{Authority, AuthorityError, Fingerprint, Replacement, VALIDITY};
pub use authority_set::AuthoritySet;
pub use call::{Answer, Buffer, Bulk, Call, CallError, Outgoing, SendError, SharedBytes};
pub use connection::{Handler, IncomingHeader, LocalNode, Ready, Received, connect};
pub use credentials::Credentials;
pub use error::{CloseCause, LinkError};
pub use frame::{BULK_BYTES_MAX, FrameError, FrameHeader, GOODBYE_BYTES_MAX, HEADER_BYTES, Kind, MESSAGE_BYTES_MAX};
pub use hello::{Expect, HELLO_BYTES, Hello, HelloProblem, Version, Versions, printable};
pub use identity::{Identity, IdentityError};
pub use join::{JoinError, JoinService, Joined, NAME_MAX, TakeError, TokenStore, join, join_cluster};
pub use keys::NewKey;
pub use listener::{Listener, OtherServices, UnidentifiedConnection};
pub use manager_files::ManagerFiles;
pub use message::{MessageError, decode, encode};
pub use name::NodeName;
pub use peer::{Peer, PeerIdentity, Pending, Responder, Room};
pub use random::RandomError;
pub use role::{Role, Roles};
pub use secret_file::FileError;
pub use settings::Settings;
pub use standby::{active_manager, is_of_standby, standby_reason};
pub use token::{JoinToken, NodeList, PresentedToken, TokenError, TokenId, TokenRecord, TokenRequest, TokenUse};
pub use verify::{CertificateProblem, ShownChain};
