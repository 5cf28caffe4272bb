//! What a store has, page by page, for the manager to compare with the namespace.

use std::sync::Arc;

use cluster::message::REPLICAS_MAX;
use cluster::replication::ObjectDigest;
use node::{FromDisk, InventoryPage, InventoryRequest, StoredReplica, StoredState};
use store::{ReplicaState, ReplicaStatus};

use super::DiskServer;

impl DiskServer {
    /// Answers a request for a page. A store that this server does not serve has no answer.
    pub(super) fn inventory(self: &Arc<Self>, request: InventoryRequest) {
        let InventoryRequest { number, store, after } = request;
        let Some(shell) = self.stores.get(&store).cloned() else { return };
        let this = Arc::clone(self);
        self.world.run(Box::new(move || {
            let found = shell.at.store.replicas(after, REPLICAS_MAX).inspect_err(|error| {
                tracing::warn!(%store, %error, "cannot list the replicas of a store");
            });
            let of = |(replica, status): (_, ReplicaStatus)| StoredReplica {
                replica,
                state: stored(&status),
                is_damaged: shell.damage.is_damaged(replica),
            };
            let replicas = found.ok().map(|found| found.into_iter().map(of).collect());
            this.world.to_manager(FromDisk::Inventory(InventoryPage { number, replicas }));
        }));
    }
}

fn stored(status: &ReplicaStatus) -> StoredState {
    match status.state {
        ReplicaState::Complete { adler32, crc32c } => {
            StoredState::Whole(ObjectDigest { len: status.len, crc32c, adler32 })
        }
        ReplicaState::Interrupted => StoredState::Kept(status.len),
        ReplicaState::BeingWritten { .. } | ReplicaState::Dirty => StoredState::Written,
    }
}
