//! The damaged replicas that disk servers have reported. The job that has them replaced keeps this up to date ([`crate::jobs::Damages`]). The open service
//! sends a reader to one of them when it has tried everything else: most of its pages are good.

use std::collections::BTreeMap;

use cluster::Time;
use types::{GroupId, ObjectId, StoreId};

use crate::jobs::DamageState;
use crate::tracked::{Tracked, TrackedGuard};

/// See the module.
#[derive(Default)]
pub(crate) struct KnownDamage(Tracked<KnownReplicas>);

/// What is known of all damaged replicas.
#[derive(Default)]
pub(crate) struct KnownReplicas {
    pub(crate) known: BTreeMap<(StoreId, ObjectId), Known>,
    pub(crate) next_look: Time,
    /// The last replica that was looked at.
    pub(crate) looked: Option<(StoreId, ObjectId)>,
    pub(crate) repaired: u64,
}

/// A damaged replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Known {
    pub(crate) group: GroupId,
    pub(crate) state: DamageState,
    pub(crate) heard: Time,
}

impl KnownDamage {
    /// Waits for the lock.
    pub(crate) fn lock(&self) -> TrackedGuard<'_, KnownReplicas> {
        self.0.lock()
    }

    /// The stores whose replica of an object is not known to be damaged, and those whose replica is.
    pub(crate) fn divide(&self, stores: &[StoreId], object: ObjectId) -> (Vec<StoreId>, Vec<StoreId>) {
        let state = self.lock();
        stores.iter().partition(|store| !state.known.contains_key(&(**store, object)))
    }

    /// A store has got a new copy of an object. The job looks after those that repair replaces for their damage.
    pub(crate) fn replaced(&self, store: StoreId, object: ObjectId) {
        let mut state = self.lock();
        if state.known.get(&(store, object)).is_some_and(|known| known.state != DamageState::Repairing) {
            state.known.remove(&(store, object));
        }
    }

    /// Whether a store's replica is known to be damaged.
    pub(crate) fn has(&self, store: StoreId, object: ObjectId) -> bool {
        self.lock().known.contains_key(&(store, object))
    }
}
