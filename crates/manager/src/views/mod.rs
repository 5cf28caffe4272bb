//! Views of a cluster for people: plain data. Nothing is decided here.

mod activity;
mod damage;
mod files;
mod losses;
mod missing;
mod overview;
mod repair;

use std::sync::Arc;

use crate::World;
use crate::coordinator::{Coordinator, PublishedView};
use crate::hold::Hold;
use crate::jobs::{Backfill, Copies, Damages, Draining};
use crate::names::Names;

pub(crate) use activity::Activities;
pub use activity::ActivityView;
pub use damage::{DamageView, DamagedReplicaView};
pub use files::{FileView, ObjectState, ObjectView, ReplicaState, ReplicaView, StoreView, WriterView};
pub use losses::{FileSum, LossView};
pub(crate) use missing::name_of;
pub use missing::{MissingAfter, MissingPage, ReplicationState, UnderReplicatedFile};
pub use overview::{Counted, ManagerState, NodeView, StatusView, TopView};
pub use repair::{CopyProgress, FailedCopyView, LeaverView, RepairView, StuckView};

/// Puts the views together. It reads the other parts, and none of them knows it.
pub(crate) struct Views {
    names: Names,
    view: PublishedView,
    world: Arc<dyn World>,
    coordinator: Arc<Coordinator>,
    activities: Arc<Activities>,
    hold: Arc<Hold>,
    backfill: Arc<Backfill>,
    copies: Arc<Copies>,
    damages: Arc<Damages>,
    draining: Arc<Draining>,
}

impl Views {
    pub(crate) fn new(
        names: Names,
        world: Arc<dyn World>,
        coordinator: Arc<Coordinator>,
        (activities, hold): (Arc<Activities>, Arc<Hold>),
        (backfill, copies, damages, draining): (Arc<Backfill>, Arc<Copies>, Arc<Damages>, Arc<Draining>),
    ) -> Self {
        let view = coordinator.published();
        Self { names, view, world, coordinator, activities, hold, backfill, copies, damages, draining }
    }
}
