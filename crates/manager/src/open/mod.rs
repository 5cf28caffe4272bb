//! The open service decides where a client that opens a file is sent. Its only state is an estimate of the disk servers' memory, the numbers of
//! closes that are in progress, the opens that wait for the answer of a primary, and the runs of primaries whose epochs clients may join.

mod claims;
mod client_polls;
mod ending;
mod open_request;
mod opening;
mod reading;
mod requests;
mod sharing;
mod striped_writers;
mod striping;
mod taking_over;
mod writers_room;

use std::sync::Arc;
use std::time::Duration;

use node::Activity;
use types::NodeId;

use crate::World;
use crate::coordinator::{Coordinator, PublishedView};
use crate::known_damage::KnownDamage;
use crate::names::Names;
use crate::without_primary::WritesWithoutPrimary;

use claims::Claims;
use client_polls::ClientPolls;
pub(crate) use ending::{Complete, End};
pub use open_request::{OpenRequest, OpeningError, Redirect, Unfinished};
pub(crate) use opening::Permitted;
use requests::CloseNumbers;
use sharing::Primaries;
use writers_room::WritersRooms;

/// See the module.
pub(crate) struct OpenService {
    names: Names,
    view: PublishedView,
    world: Arc<dyn World>,
    /// Makes groups for new files, and fences stores.
    coordinator: Arc<Coordinator>,
    capability_lifetime: Duration,
    without_primary: WritesWithoutPrimary,
    /// Damaged replicas, for readers that have tried all others.
    known_damage: Arc<KnownDamage>,
    /// An estimate, used to tell clients in time that they must wait. Nothing depends on its accuracy.
    rooms: WritersRooms,
    /// The numbers of closes that are under way.
    closes: CloseNumbers,
    claims: Claims,
    polls: ClientPolls,
    /// The runs of the primaries of files that are changed in place.
    primaries: Primaries,
}

impl OpenService {
    /// Makes the service. Capabilities are valid for `capability_lifetime`.
    pub(crate) fn new(
        names: Names,
        world: Arc<dyn World>,
        coordinator: Arc<Coordinator>,
        capability_lifetime: Duration,
        without_primary: WritesWithoutPrimary,
        known_damage: Arc<KnownDamage>,
    ) -> Self {
        let view = coordinator.published();
        let (rooms, closes) = (WritersRooms::default(), CloseNumbers::default());
        let (claims, polls) = (Claims::new(world.random()), ClientPolls::new(world.random()));
        let primaries = Primaries::default();
        Self {
            names,
            view,
            world,
            coordinator,
            capability_lifetime,
            without_primary,
            known_damage,
            rooms,
            closes,
            claims,
            polls,
            primaries,
        }
    }

    /// A disk server reports its memory for files that are being written.
    pub(crate) fn take_activity(&self, node: NodeId, said: &Activity) {
        self.rooms.hear(node, said);
    }

    /// Forgets nodes that are not in the cluster any more.
    pub(crate) fn forget_removed_nodes(&self) {
        let view = self.view.get();
        self.rooms.retain(|node| view.servers.has_node(node));
    }
}
