//! State for the simulator's checks.

use cluster::replication::Epoch;
use cluster::server::{Grant, ReadView, View};
use types::{ErrorCode, ReplicaId, SessionId, StoreId};

use super::{DiskServer, PlantedBug};

impl DiskServer {
    pub(super) fn has(&self, planted: PlantedBug) -> bool {
        self.planted == Some(planted)
    }

    /// The server's rights at this moment.
    #[must_use]
    pub fn view_now(&self) -> View {
        self.view(self.world.now())
    }

    /// Its session, if it has one.
    #[must_use]
    pub fn session_now(&self) -> Option<SessionId> {
        self.session()
    }

    /// The epoch in which this store is a replica's primary, as far as it knows.
    #[must_use]
    pub fn leads(&self, store: StoreId, replica: ReplicaId) -> Option<Epoch> {
        self.stores.get(&store)?.machine.lock().leads(replica)
    }

    /// What a reader with this grant may see of a replica now.
    ///
    /// # Errors
    /// If the reader may see nothing, as in [`cluster::server::StorePart::may_read`].
    pub fn may_read(&self, store: StoreId, replica: ReplicaId, grant: &Grant) -> Result<ReadView, ErrorCode> {
        let view = self.view_now();
        let shell = self.stores.get(&store).ok_or(ErrorCode::Stale)?;
        shell.machine.lock().may_read(view, replica, grant)
    }

    /// The epoch with which this store answers as a replica's primary, if it does.
    #[must_use]
    pub fn answers(&self, store: StoreId, replica: ReplicaId) -> Option<Epoch> {
        let view = self.view_now();
        self.stores.get(&store)?.machine.lock().leads_surely(view, replica)
    }
}
