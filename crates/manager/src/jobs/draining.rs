//! Empties draining stores. Other stores replace them in their groups as if they were lost ([`super::backfill`]), and copy from them. When no group
//! counts on a store any more, the job deletes what is left there. It does so page by page, and checks before each page that this still holds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::Time;
use cluster::message::{REPLICAS_MAX, ToStore};
use namespace::{NsError, WantedState};
use types::{NodeId, ReplicaId, StoreId};

use crate::Manager;
use node::FromManager;

/// How often the job asks a store what it still has.
const LOOK: Duration = Duration::from_millis(200);
/// How often it asks a store that is empty.
const LOOK_AT_EMPTY: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(crate) struct Draining {
    next_look: Time,
    /// The passes over stores that no group counts on.
    rounds: BTreeMap<StoreId, Round>,
}

/// One pass over all replicas of a store.
#[derive(Default)]
struct Round {
    /// The last replica that was examined.
    after: Option<ReplicaId>,
    has_found: bool,
    /// The previous pass found nothing.
    is_empty: bool,
    /// Do not ask before this time.
    next: Time,
}

/// Why a drain did not start or stop.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// The store is not draining.
    #[error("store {0} is not draining")]
    IsNot(StoreId),
    /// The namespace refused the change.
    #[error(transparent)]
    Names(#[from] NsError),
}

impl Draining {
    /// Drops what is known of a store that is in use again.
    pub(crate) fn forget(&mut self, store: StoreId) {
        self.rounds.remove(&store);
    }

    pub(crate) fn is_empty(&self, store: StoreId) -> bool {
        self.rounds.get(&store).is_some_and(|round| round.is_empty)
    }
}

impl Manager {
    /// Starts to drain a store. Returns when that is recorded.
    ///
    /// # Errors
    /// If the store is unknown or removed as lost, or the change cannot be recorded.
    pub fn drain_store(&self, store: StoreId) -> Result<(), DrainError> {
        self.set_wanted_state(store, WantedState::Draining)?;
        tracing::info!(%store, "a store is draining: others replace it");
        Ok(())
    }

    /// Stops draining a store, so that it is used again. It does not return to groups that it has left or is just leaving.
    ///
    /// # Errors
    /// If the store is not draining, or the change cannot be recorded.
    pub fn stop_draining(&self, store: StoreId) -> Result<(), DrainError> {
        if self.wanted_state(store)? != WantedState::Draining {
            return Err(DrainError::IsNot(store));
        }
        self.set_wanted_state(store, WantedState::Online)?;
        tracing::info!(%store, "a store is not draining any more");
        Ok(())
    }

    pub(crate) fn empty_stores(self: &Arc<Self>, now: Time) {
        let mut ask = Vec::new();
        {
            let view = self.view();
            let unused: Vec<StoreId> = {
                let groups = self.coordinator.groups();
                view.servers.draining().into_iter().filter(|store| groups.leave_unused(&view.servers, *store)).collect()
            };
            let mut draining = self.draining.lock();
            if now < draining.next_look {
                return;
            }
            draining.next_look = now + LOOK;
            draining.rounds.retain(|store, _| unused.contains(store));
            for store in unused {
                if !view.is_online(now, store) {
                    continue;
                }
                let round = draining.rounds.entry(store).or_default();
                if now >= round.next {
                    let after = round.after;
                    ask.extend(view.node_of(store).map(|node| (node, store, after)));
                }
            }
        }
        for (node, store, after) in ask {
            self.world.send(node, FromManager::WhatHas { store, after });
        }
    }

    /// A store reports which replicas it has.
    pub(crate) fn has(
        self: &Arc<Self>,
        node: NodeId,
        store: StoreId,
        after: Option<ReplicaId>,
        mut replicas: Vec<ReplicaId>,
    ) {
        replicas.truncate(REPLICAS_MAX);
        let (view, now) = (self.view(), self.world.now());
        if view.node_of(store) != Some(node) || !self.coordinator.groups().leave_unused(&view.servers, store) {
            return;
        }
        {
            let mut draining = self.draining.lock();
            let Some(round) = draining.rounds.get_mut(&store).filter(|round| round.after == after) else { return };
            round.has_found |= !replicas.is_empty();
            round.after = replicas.last().copied().filter(|_| replicas.len() == REPLICAS_MAX);
            if round.after.is_none() {
                round.is_empty = !std::mem::take(&mut round.has_found);
                if round.is_empty {
                    round.next = now + LOOK_AT_EMPTY;
                }
            }
        }
        if replicas.is_empty() {
            return;
        }
        // Check once more, under the coordinator's lock. A store that is used again is published under the same lock. So later orders to copy
        // to that store come after this one.
        let state = self.coordinator.lock();
        if state.node_of(store) == Some(node) && self.coordinator.groups().leave_unused(&state.servers, store) {
            self.tell_store(node, store, ToStore::Delete { replicas });
        }
    }
}
