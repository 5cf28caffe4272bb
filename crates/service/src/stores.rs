//! The stores of this node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use manager::Manager;
use store::{ReplicaState, Space, Store, StoreError};
use types::ReplicaId;

use crate::error::Error;
use crate::service::Role;

/// Where bytes are, as far as this node has them.
#[derive(Clone)]
pub(crate) struct Stores {
    all: Arc<[Arc<Store>]>,
    /// The one store of a node that has the names, too.
    alone: Option<Arc<Store>>,
    /// Whom to ask for the space of the cluster.
    manager: Option<Arc<Manager>>,
    floor_reached: Arc<AtomicBool>,
}

impl Stores {
    /// Those of a node that is for `role`.
    pub(crate) fn of(role: &Role) -> Self {
        let (all, alone, manager) = match role {
            Role::Alone { store, .. } => (vec![Arc::clone(store)], Some(Arc::clone(store)), None),
            Role::Manager(manager) => (Vec::new(), None, Some(Arc::clone(manager))),
            Role::Disk(disk) => (disk.stores(), None, None),
        };
        Self { all: all.into(), alone, manager, floor_reached: Arc::default() }
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[Arc<Store>] {
        &self.all
    }

    /// The store that has `replica`, where it is asked for by the namespace of the same node.
    pub(crate) fn of_replica(&self, replica: ReplicaId) -> Result<&Arc<Store>, StoreError> {
        self.alone.as_ref().ok_or(StoreError::NotFound { replica })
    }

    /// How much of `replica` a power failure cannot undo; of a whole one, all of it.
    pub(crate) fn durable_len(&self, replica: ReplicaId) -> Result<Option<u64>, StoreError> {
        let status = self.of_replica(replica)?.status(replica)?;
        Ok(status.map(|status| match status.state {
            ReplicaState::InMaking { durable_prefix, .. } => durable_prefix,
            _ => status.len,
        }))
    }

    /// Sizes of the file systems of all stores, on a manager of those of the cluster.
    pub(crate) fn space(&self) -> Result<Space, StoreError> {
        if let Some(manager) = &self.manager {
            return Ok(manager.space());
        }
        let mut all = Space { floor_reached: true, ..Space::default() };
        for store in self.all.iter() {
            let Space { total, free, floor, floor_reached } = store.space()?;
            all.total = all.total.saturating_add(total);
            all.free = all.free.saturating_add(free);
            all.floor = all.floor.saturating_add(floor);
            all.floor_reached &= floor_reached;
        }
        Ok(all)
    }

    /// The same, for an answer.
    pub(crate) fn space_for(&self, doing: &dyn std::fmt::Display) -> Result<Space, Error> {
        self.space().map_err(|error| Error::of_store(doing, &error))
    }

    /// Whether they take no new data at the moment, as far as is known.
    pub(crate) fn floor_reached(&self) -> bool {
        self.floor_reached.load(Ordering::Relaxed)
    }

    pub(crate) fn set_floor_reached(&self, reached: bool) {
        self.floor_reached.store(reached, Ordering::Relaxed);
    }
}
