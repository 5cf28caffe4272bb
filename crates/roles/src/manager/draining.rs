//! Stores that are emptied. Others take their place in their groups as if they were lost ([`super::backfill`]), and copy from them. When no group
//! counts on one any more, what is still on it is deleted, page by page, each time after another look whether that still holds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::Time;
use cluster::message::{REPLICAS_MAX, ToStore};
use namespace::{NsError, WantedState};
use types::{NodeId, ReplicaId, StoreId};

use super::{Manager, State};
use crate::message::FromManager;

/// How often stores are asked what they have still.
const LOOK: Duration = Duration::from_millis(200);
/// How often one that is empty is.
const LOOK_AT_EMPTY: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Draining {
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
    pub(super) fn forget(&mut self, store: StoreId) {
        self.rounds.remove(&store);
    }

    pub(super) fn is_empty(&self, store: StoreId) -> bool {
        self.rounds.get(&store).is_some_and(|round| round.is_empty)
    }
}

impl State {
    /// Nothing on it counts any more, and nothing new comes.
    pub(super) fn is_unused(&self, store: StoreId) -> bool {
        self.servers.is_draining(store) && self.servers.groups_of(store) == 0
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

    pub(super) fn empty_stores(self: &Arc<Self>, now: Time) {
        let mut ask = Vec::new();
        {
            let mut state = self.state();
            if now < state.draining.next_look {
                return;
            }
            state.draining.next_look = now + LOOK;
            let unused: Vec<StoreId> =
                state.servers.draining().into_iter().filter(|store| state.is_unused(*store)).collect();
            state.draining.rounds.retain(|store, _| unused.contains(store));
            for store in unused {
                if !state.is_online(now, store) {
                    continue;
                }
                let round = state.draining.rounds.entry(store).or_default();
                if now >= round.next {
                    let after = round.after;
                    ask.extend(state.node_of(store).map(|node| (node, store, after)));
                }
            }
        }
        for (node, store, after) in ask {
            self.world.send(node, FromManager::WhatHas { store, after });
        }
    }

    /// A store says what it has.
    pub(super) fn has(
        self: &Arc<Self>,
        node: NodeId,
        store: StoreId,
        after: Option<ReplicaId>,
        mut replicas: Vec<ReplicaId>,
    ) {
        replicas.truncate(REPLICAS_MAX);
        // Under the lock, so that no order for a copy comes before this one that was given after it.
        let mut state = self.state();
        if state.node_of(store) != Some(node) || !state.is_unused(store) {
            return;
        }
        let now = self.world.now();
        let Some(round) = state.draining.rounds.get_mut(&store).filter(|round| round.after == after) else { return };
        round.has_found |= !replicas.is_empty();
        round.after = replicas.last().copied().filter(|_| replicas.len() == REPLICAS_MAX);
        if round.after.is_none() {
            round.is_empty = !std::mem::take(&mut round.has_found);
            if round.is_empty {
                round.next = now + LOOK_AT_EMPTY;
            }
        }
        if !replicas.is_empty() {
            self.tell_store(node, store, ToStore::Delete { replicas });
        }
    }
}
