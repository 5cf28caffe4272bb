//! Empties draining stores. Other stores replace them in their groups as if they were lost ([`super::backfill`]), and copy from them. When no group
//! depends on a store any more, the job deletes what is left there. It does so page by page, and checks before each page that this still holds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::Time;
use cluster::message::REPLICAS_MAX;
use namespace::{NsError, WantedState};
use types::{NodeId, ReplicaId, StoreId};

use crate::World;
use crate::coordinator::{Coordinator, PublishedView};
use crate::tracked::Tracked;
use node::FromManager;

/// How often the job asks a store what it still has.
const LOOK: Duration = Duration::from_millis(200);
/// How often it asks a store that is empty.
const LOOK_AT_EMPTY: Duration = Duration::from_secs(10);

/// See the module.
pub(crate) struct Draining {
    view: PublishedView,
    world: Arc<dyn World>,
    /// Records the states of stores, and knows the groups.
    coordinator: Arc<Coordinator>,
    state: Tracked<State>,
}

#[derive(Default)]
struct State {
    next_look: Time,
    /// The passes over stores that no group depends on.
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
    pub(crate) fn new(world: Arc<dyn World>, coordinator: Arc<Coordinator>) -> Self {
        Self { view: coordinator.published(), world, coordinator, state: Tracked::default() }
    }

    /// Drops what is known of a store that is in use again.
    pub(crate) fn forget(&self, store: StoreId) {
        self.state.lock().rounds.remove(&store);
    }

    /// Whether a store that no group depends on has reported that nothing is left on it.
    pub(crate) fn is_empty(&self, store: StoreId) -> bool {
        self.state.lock().rounds.get(&store).is_some_and(|round| round.is_empty)
    }

    /// Starts to drain a store. Returns when that is recorded.
    pub(crate) fn start(&self, store: StoreId) -> Result<(), DrainError> {
        self.coordinator.set_wanted_state(store, WantedState::Draining)?;
        tracing::info!(%store, "a store is draining: others replace it");
        Ok(())
    }

    /// Stops draining a store, so that it is used again. It does not return to groups that it has left or is just leaving.
    pub(crate) fn stop(&self, store: StoreId) -> Result<(), DrainError> {
        if self.coordinator.wanted_state(store)? != WantedState::Draining {
            return Err(DrainError::IsNot(store));
        }
        self.coordinator.set_wanted_state(store, WantedState::Online)?;
        self.forget(store);
        tracing::info!(%store, "a store is not draining any more");
        Ok(())
    }

    /// Asks the drained stores what they still have.
    pub(crate) fn tick(&self, now: Time) {
        let mut ask = Vec::new();
        {
            let view = self.view.get();
            let unused: Vec<StoreId> = {
                let groups = self.coordinator.groups();
                view.servers.draining().into_iter().filter(|store| groups.leave_unused(&view.servers, *store)).collect()
            };
            let mut state = self.state.lock();
            if now < state.next_look {
                return;
            }
            state.next_look = now + LOOK;
            state.rounds.retain(|store, _| unused.contains(store));
            for store in unused {
                if !view.is_online(now, store) {
                    continue;
                }
                let round = state.rounds.entry(store).or_default();
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
    pub(crate) fn has(&self, node: NodeId, store: StoreId, after: Option<ReplicaId>, mut replicas: Vec<ReplicaId>) {
        replicas.truncate(REPLICAS_MAX);
        let (view, now) = (self.view.get(), self.world.now());
        if view.node_of(store) != Some(node) || !self.coordinator.groups().leave_unused(&view.servers, store) {
            return;
        }
        {
            let mut state = self.state.lock();
            let Some(round) = state.rounds.get_mut(&store).filter(|round| round.after == after) else { return };
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
        self.coordinator.delete_from_unused(node, store, replicas);
    }
}
