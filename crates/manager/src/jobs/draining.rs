//! Stores that are emptied. Others take their place in their groups as if they were lost ([`super::backfill`]), and copy from them. When no group
//! counts on one any more, what is still on it is deleted, page by page, each time after another look whether that still holds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::Time;
use cluster::message::{REPLICAS_MAX, ToStore};
use namespace::{NsError, WantedState};
use types::{NodeId, ReplicaId, StoreId};

use crate::Manager;
use node::FromManager;

/// How often stores are asked what they have still.
const LOOK: Duration = Duration::from_millis(200);
/// How often one that is empty is.
const LOOK_AT_EMPTY: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(crate) struct Draining {
    next_look: Time,
    /// Of stores that no group counts on.
    rounds: BTreeMap<StoreId, Round>,
}

/// One way through all that a store has.
#[derive(Default)]
struct Round {
    /// Up to where it was looked.
    after: Option<ReplicaId>,
    has_found: bool,
    /// The way before has found nothing.
    is_empty: bool,
    /// Not to be asked before.
    next: Time,
}

/// Why a store is not emptied, or goes on being.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// It is not being emptied.
    #[error("store {0} is not draining")]
    IsNot(StoreId),
    /// The names have refused.
    #[error(transparent)]
    Names(#[from] NsError),
}

impl Draining {
    /// It is used again: what was found may not be so any more.
    pub(crate) fn forget(&mut self, store: StoreId) {
        self.rounds.remove(&store);
    }

    pub(crate) fn is_empty(&self, store: StoreId) -> bool {
        self.rounds.get(&store).is_some_and(|round| round.is_empty)
    }
}

impl Manager {
    /// Begins to empty a store; waits until that is written down.
    ///
    /// # Errors
    /// When there is no such store, or it was given up; when it cannot be written down.
    pub fn drain_store(&self, store: StoreId) -> Result<(), DrainError> {
        self.set_wanted_state(store, WantedState::Draining)?;
        tracing::info!(%store, "a store is draining: others replace it");
        Ok(())
    }

    /// Lets a store be used again that was being emptied. Groups that it has left, or is just leaving, it does not come back to.
    ///
    /// # Errors
    /// When it is not being emptied; when it cannot be written down.
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

    /// A store says what it has.
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
        // Under the coordinator's lock, and looked at once more: a store that is used again is published under it. So all orders for copies to that store
        // come after this one.
        let state = self.coordinator.lock();
        if state.node_of(store) == Some(node) && self.coordinator.groups().leave_unused(&state.servers, store) {
            self.tell_store(node, store, ToStore::Delete { replicas });
        }
    }
}
