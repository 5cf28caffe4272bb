//! Views of a cluster for people: plain data. Nothing is decided here.

mod activity;
mod files;
mod missing;
mod overview;

pub(crate) use activity::Activities;
pub use activity::ActivityView;
pub use files::{FileView, ObjectState, ObjectView, ReplicaState, ReplicaView, StoreView, WriterView};
pub use missing::{MissingAfter, MissingPage, ReplicationState, UnderReplicatedFile};
pub(crate) use overview::COUNT_MAX;
pub use overview::{Counted, NodeView, StatusView, TopView};
