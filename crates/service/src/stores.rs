//! The stores of this node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use manager::Manager;
use store::{ReplicaState, Space, Store, StoreError};
use types::ReplicaId;

use crate::error::Error;
use crate::service::Role;
use crate::standby::Standby;

/// The stores of this node, and their free space.
#[derive(Clone)]
pub(crate) struct Stores {
    all: Arc<[Arc<Store>]>,
    /// The store of a single node.
    alone: Option<Arc<Store>>,
    /// On a manager: knows the space of the cluster.
    manager: Option<Arc<Manager>>,
    /// On a standby manager: knows it from the active one.
    standby: Option<Standby>,
    floor_reached: Arc<AtomicBool>,
}

impl Stores {
    /// The stores of a node with this role.
    pub(crate) fn of(role: &Role) -> Self {
        let (mut all, mut alone, mut manager, mut standby) = (Vec::new(), None, None, None);
        match role {
            Role::Alone { store, .. } => (all, alone) = (vec![Arc::clone(store)], Some(Arc::clone(store))),
            Role::Manager(of) => manager = Some(Arc::clone(of)),
            Role::Standby(of) => standby = Some(of.clone()),
            Role::Disk(disk) => all = disk.stores(),
        }
        Self { all: all.into(), alone, manager, standby, floor_reached: Arc::default() }
    }

    /// All stores of this node.
    pub(crate) fn all(&self) -> &[Arc<Store>] {
        &self.all
    }

    /// The store that has `replica`, on a node that also has the namespace.
    pub(crate) fn of_replica(&self, replica: ReplicaId) -> Result<&Arc<Store>, StoreError> {
        self.alone.as_ref().ok_or(StoreError::NotFound { replica })
    }

    /// The length of `replica` that survives a power failure. A complete replica survives whole.
    pub(crate) fn durable_len(&self, replica: ReplicaId) -> Result<Option<u64>, StoreError> {
        let status = self.of_replica(replica)?.status(replica)?;
        Ok(status.map(|status| match status.state {
            ReplicaState::BeingWritten { durable_prefix, .. } => durable_prefix,
            _ => status.len,
        }))
    }

    /// The total space of all stores; on a manager, that of the cluster.
    pub(crate) fn space(&self) -> Result<Space, StoreError> {
        if let Some(manager) = &self.manager {
            return Ok(manager.space());
        }
        if let Some(standby) = &self.standby {
            return Ok(standby.reads().map(|manager| manager.space()).unwrap_or_default());
        }
        // Without any store none is full.
        let mut all = Space { floor_reached: !self.all.is_empty(), ..Space::default() };
        for store in self.all.iter() {
            let Space { total, free, floor, floor_reached } = store.space()?;
            all.total = all.total.saturating_add(total);
            all.free = all.free.saturating_add(free);
            all.floor = all.floor.saturating_add(floor);
            all.floor_reached &= floor_reached;
        }
        Ok(all)
    }

    /// The same as [`Stores::space`], with an error for the caller. `doing` says what the space was needed for.
    pub(crate) fn space_for(&self, doing: &dyn std::fmt::Display) -> Result<Space, Error> {
        self.space().map_err(|error| Error::of_store(doing, &error))
    }

    /// Whether the stores take no new data, as of the keeper's last look.
    pub(crate) fn floor_reached(&self) -> bool {
        self.floor_reached.load(Ordering::Relaxed)
    }

    pub(crate) fn set_floor_reached(&self, reached: bool) {
        self.floor_reached.store(reached, Ordering::Relaxed);
    }
}
