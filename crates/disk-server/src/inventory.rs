//! Tells the manager which replicas a store has: to compare them with the names, and, after a restore, to find those without a name.

use std::sync::Arc;

use cluster::replication::ObjectDigest;
use node::{
    FromDisk, INVENTORY_MAX, Inventory, InventoryRequest, ORIGIN_BYTES_MAX, ORIGINS_MAX, StoredReplica, StoredState,
};
use store::{ReplicaState, ReplicaStatus, Store, StoreError};
use types::{ReplicaId, StoreId};

use super::DiskServer;
use super::replica::told;

impl DiskServer {
    /// Answers a question about what a store has, in a job: it reads from the disk. A store that this server does not serve has no answer.
    pub(super) fn inventory(self: &Arc<Self>, number: u64, store: StoreId, request: InventoryRequest) {
        let Some(shell) = self.stores.get(&store).cloned() else { return };
        let this = Arc::clone(self);
        self.world.run(Box::new(move || {
            let is_damaged = |replica| shell.damage.is_damaged(replica);
            let found = match request {
                InventoryRequest::After(after) => replicas(&shell.at.store, after, is_damaged),
                InventoryRequest::Origins(replicas) => origins(&shell.at.store, &replicas),
            };
            let found = found.map_err(|error| {
                tracing::warn!(%store, %error, "cannot list the replicas of a store");
                told(&shell.at, &error)
            });
            this.world.to_manager(FromDisk::Inventory { number, found });
        }));
    }
}

fn replicas(
    store: &Store,
    after: Option<ReplicaId>,
    is_damaged: impl Fn(ReplicaId) -> bool,
) -> Result<Inventory, StoreError> {
    let found = store.replicas(after, INVENTORY_MAX)?;
    let is_last = found.len() < INVENTORY_MAX;
    let of = |(replica, status): &(ReplicaId, ReplicaStatus)| StoredReplica {
        replica: *replica,
        state: stored(status),
        is_damaged: is_damaged(*replica),
        incarnation: status.incarnation,
    };
    Ok(Inventory::Replicas { replicas: found.iter().map(of).collect(), is_last })
}

fn stored(status: &ReplicaStatus) -> StoredState {
    match status.state {
        ReplicaState::Complete { adler32, crc32c } => {
            StoredState::Whole(ObjectDigest { len: status.len, crc32c, adler32 })
        }
        ReplicaState::Interrupted => StoredState::Kept(status.len),
        ReplicaState::BeingWritten { .. } | ReplicaState::Dirty => StoredState::Written(status.len),
    }
}

fn origins(store: &Store, replicas: &[ReplicaId]) -> Result<Inventory, StoreError> {
    let path = |replica: &ReplicaId| {
        let mut path = store.provenance(*replica)?.path_hint;
        path.truncate(ORIGIN_BYTES_MAX);
        Ok(path)
    };
    Ok(Inventory::Origins(replicas.iter().take(ORIGINS_MAX).map(path).collect::<Result<_, StoreError>>()?))
}
