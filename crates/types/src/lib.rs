//! The types that all of weir's crates share: ids, sizes, times, names, locations, layouts, policies, checksums,
//! identities, error codes.
//!
//! This crate has only plain data and pure functions: no I/O, no clock, no protocol. Every id is a newtype, so that
//! nobody can pass an inode number where an object number is expected.

pub mod absent_replicas;
pub mod capability;
pub mod checksum;
mod client;
mod client_address;
mod digest;
pub mod direct;
mod error_code;
pub mod full_stores;
mod group;
mod histogram;
mod id;
mod ip_network;
mod layout;
mod location;
mod location_ranges;
mod name;
mod path_operation;
mod policy;
mod principal;
mod request_number;
pub mod striping;
mod time;
pub mod units;
mod writer;

pub use checksum::{Adler32, Crc32c, PAGE_SIZE};
pub use client::{BootId, ClientIdentity};
pub use client_address::{ClientAddress, ROOT_PROTOCOL};
pub use digest::DigestKind;
pub use error_code::ErrorCode;
pub use group::{BootGeneration, Group, InSyncReplica, Member, NodeRecord, Placement};
pub use histogram::Histogram;
pub use id::{
    ClusterId, GroupId, Incarnation, Ino, NodeId, ObjectId, PrincipalId, ReplicaId, ReplicaIndex, SessionId,
    SnapshotEpoch, StoreId, TreeId, UploadId,
};
pub use ip_network::{IpNetwork, IpNetworkError};
pub use layout::{
    Layout, LayoutError, REPLICAS_MAX, STRIPE_CHUNK_MAX, STRIPE_CHUNK_MIN, STRIPE_WIDTH_MAX, STRIPE_WIDTH_MIN, Stripe,
};
pub use location::{LOCATION_NAME_MAX, Location, LocationError, LocationPrefix, Shared};
pub use location_ranges::{LocationRangeError, LocationRanges};
pub use name::{FileName, NAME_MAX, NameError, NsPath, PATH_MAX};
pub use path_operation::PathOperation;
pub use policy::{CLASS_NAME_MAX, POLICY_TEXT_MAX, Policy, PolicyError, Spread, StoreClass};
pub use principal::{PRINCIPAL_NAME_MAX, PrincipalKind, PrincipalName, PrincipalNameError};
pub use request_number::{REQUEST_KEY, RequestNumber};
pub use striping::Run;
pub use time::Timestamp;
pub use writer::{WriterKey, WriterToken};
