//! Tells the manager which replicas a store has. A manager that was restored from a backup compares them with its names.

use std::sync::Arc;

use node::{FromDisk, INVENTORY_MAX, Inventory, InventoryRequest, ORIGIN_BYTES_MAX, ORIGINS_MAX, StoredReplica};
use store::{ReplicaState, ReplicaStatus, Store, StoreError};
use types::{ReplicaId, StoreId};

use super::DiskServer;
use super::replica::told;

impl DiskServer {
    /// Answers a question about what a store has, in a job: it reads from the disk.
    pub(super) fn inventory(self: &Arc<Self>, number: u64, store: StoreId, request: InventoryRequest) {
        let Some(shell) = self.stores.get(&store).cloned() else { return };
        let this = Arc::clone(self);
        self.world.run(Box::new(move || {
            let found = match request {
                InventoryRequest::After(after) => replicas(&shell.at.store, after),
                InventoryRequest::Origins(replicas) => origins(&shell.at.store, &replicas),
            };
            let found = found.map_err(|error| told(&shell.at, &error));
            this.world.to_manager(FromDisk::Inventory { number, found });
        }));
    }
}

fn replicas(store: &Store, after: Option<ReplicaId>) -> Result<Inventory, StoreError> {
    let found = store.replicas(after, INVENTORY_MAX)?;
    let is_last = found.len() < INVENTORY_MAX;
    Ok(Inventory::Replicas { replicas: found.iter().map(stored).collect(), is_last })
}

fn stored((replica, status): &(ReplicaId, ReplicaStatus)) -> StoredReplica {
    let crc32c = match status.state {
        ReplicaState::Complete { crc32c, .. } => Some(crc32c),
        _ => None,
    };
    StoredReplica { replica: *replica, len: status.len, crc32c, incarnation: status.incarnation }
}

fn origins(store: &Store, replicas: &[ReplicaId]) -> Result<Inventory, StoreError> {
    let path = |replica: &ReplicaId| {
        let mut path = store.provenance(*replica)?.path_hint;
        path.truncate(ORIGIN_BYTES_MAX);
        Ok(path)
    };
    Ok(Inventory::Origins(replicas.iter().take(ORIGINS_MAX).map(path).collect::<Result<_, StoreError>>()?))
}
