//! The messages between the nodes of a cluster, and their connections. Managers and disk servers are built on it.
//!
//! It knows the encoding of each message and the part of a capability that disk servers read. It keeps one connection for each pair of nodes. It
//! decides nothing: `manager` and `disk-server` handle the messages. It knows no namespace and no client protocol.

mod audit;
mod bulk;
mod changed_entries;
mod client_presence;
mod cluster_state;
mod grant;
pub mod links;
mod message;
mod proxy;
mod redial;
pub mod registration;
pub mod renewal;
pub mod sending;
#[cfg(test)]
mod tests;
pub mod ticker;

pub use cluster::replication::ObjectDigest;

pub use audit::{
    DamageReport, INVENTORY_MAX, Inventory, InventoryRequest, ORIGIN_BYTES_MAX, ORIGINS_MAX, StoredReplica, StoredState,
};
pub use bulk::{BulkBytes, BulkPool};
pub use changed_entries::{ChangedEntries, ChangedEntry, Changes};
pub use client_presence::{ClientPresence, GO_ON_HINT};
pub use cluster_state::{ClusterState, Committed, NodeState, STATE_LENGTHS_MAX, SigningKey, SpaceState};
pub use grant::{Layout, Striped, StripedRights, To, grant_of};
pub use message::{
    Activity, AttributeAction, AttributeAnswer, AttributeRequest, AttributeResult, CLIENT_ATTRIBUTE, ChangeHead,
    ChecksumFailure, Claim, ClaimResult, EndWriter, FromDisk, FromManager, Hello, Keys, LENGTHS_MAX, MANAGERS_MAX,
    ManagerAddress, Message, OpenWriteAction, OpenWriteAnswer, OpenWriteLength, OpenWriteRequest, OpenedFile,
    PeerMessage, ReplicaOrigin, RequestError, STORE_ADDRESSES_MAX, StoreAddress, StoreAddressPage, StoreReport,
    SumRequest, Summed,
};
pub use proxy::{CopySource, FoundProxy, PROXY_BYTES_MAX, ProxyAnswer, ProxyRequest, SentProxy};
