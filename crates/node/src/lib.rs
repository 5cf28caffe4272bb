//! What nodes of a cluster say to each other, and how their connections are kept. Managers and disk servers are built on it.
//!
//! It knows the form of each message and of what a capability holds for a disk server, and keeps one connection for each pair of nodes. It decides nothing:
//! what a message leads to is the business of `manager` and `disk-server`. It knows no namespace and no users' protocol.

mod bulk;
mod grant;
pub mod links;
mod message;
pub mod registration;
pub mod renewal;
pub mod sending;
#[cfg(test)]
mod tests;
pub mod ticker;

pub use cluster::replication::ObjectDigest;

pub use bulk::{BulkBytes, BulkPool};
pub use grant::{Layout, Striped, StripedRights, To, grant_of};
pub use message::{
    Activity, ChangeHead, EndWriter, FromDisk, FromManager, Hello, Keys, Message, NotSummed, PeerMessage,
    ReplicaOrigin, STORE_ADDRESSES_MAX, StoreAddress, StoreAddressPage, StoreReport, SumRequest,
};
