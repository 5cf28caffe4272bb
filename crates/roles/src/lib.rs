//! What a node of a cluster does: as a manager, which knows the names and decides, and as a disk server, which has stores. Threads and connections
//! around the machines of `cluster`; users' protocols are not known here.

mod bulk;
mod disk;
mod disk_node;
mod grant;
pub mod links;
mod manager;
mod manager_node;
mod message;
mod opening;
pub mod registration;
pub mod renewal;
mod sending;
#[cfg(test)]
mod tests;
mod ticker;
pub mod tokens;

pub use bulk::{BulkBytes, BulkPool};
pub use cluster::replication::ObjectDigest;
pub use disk::{
    DiskFigures, DiskServer, DiskSettings, DiskWorld, FrontEndFigures, FrontEndProbe, PendingWrite, Permit, Placed,
    PlacedError, ReadGrant, StoreAt, StoreFigures, StripedGrant, Summer, VerifiedCapability, WriteGrant,
};
pub use disk_node::DiskNode;
pub use grant::{StripedRights, grant_of};
pub use manager::{
    ActivityView, ContentState, ContentView, CopyState, CopyView, Counted, DrainError, FailedCopyView, FileView,
    LeaverView, Manager, ManagerSettings, MemberError, MissingAfter, MissingFile, MissingPage, NodeView, RepairError,
    RepairView, Shortage, StatusView, StoreView, StuckView, SumError, TopView, Unsummed, World, WriterView,
};
pub use manager_node::{ManagerError, ManagerNode};
pub use message::{
    Activity, ChangeHead, EndWriter, FromDisk, FromManager, Hello, Keys, Message, NotSummed, PeerMessage,
    ReplicaOrigin, StoreAddress, StoreAddressPage, StoreReport, SumRequest,
};
pub use opening::{OpenRequest, OpeningError, Redirect};
