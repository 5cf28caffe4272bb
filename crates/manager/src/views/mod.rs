//! Views of a cluster for people: plain data. Nothing is decided here.

mod activity;
mod files;
mod losses;
mod missing;
mod overview;
mod repair;

use std::sync::Arc;

use crate::World;
use crate::coordinator::{Coordinator, PublishedView};
use crate::jobs::{Backfill, Copies, Draining};
use crate::names::Names;

pub(crate) use activity::Activities;
pub use activity::ActivityView;
pub use files::{FileView, ObjectState, ObjectView, ReplicaState, ReplicaView, StoreView, WriterView};
pub use losses::{FileSum, LossView};
pub use missing::{MissingAfter, MissingPage, ReplicationState, UnderReplicatedFile};
pub use overview::{Counted, NodeView, StatusView, TopView};
pub use repair::{CopyProgress, FailedCopyView, LeaverView, RepairView, StuckView};

/// Puts the views together. It reads the other parts, and none of them knows it.
pub(crate) struct Views {
    names: Names,
    view: PublishedView,
    world: Arc<dyn World>,
    coordinator: Arc<Coordinator>,
    activities: Arc<Activities>,
    backfill: Arc<Backfill>,
    copies: Arc<Copies>,
    draining: Arc<Draining>,
}

impl Views {
    pub(crate) fn new(
        names: Names,
        world: Arc<dyn World>,
        coordinator: Arc<Coordinator>,
        activities: Arc<Activities>,
        (backfill, copies, draining): (Arc<Backfill>, Arc<Copies>, Arc<Draining>),
    ) -> Self {
        let view = coordinator.published();
        Self { names, view, world, coordinator, activities, backfill, copies, draining }
    }
}
