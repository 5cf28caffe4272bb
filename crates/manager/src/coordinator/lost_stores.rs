//! Stores that are lost for good, and their removal.

use cluster::Presence;
use namespace::{NsError, WantedState};
use types::StoreId;

use super::Coordinator;

/// How stores are removed as lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RemoveLost {
    /// The administrator has confirmed it. Otherwise nothing changes.
    pub is_confirmed: bool,
    /// Nodes of the stores may be online.
    pub force: bool,
}

/// Why a store was not removed as lost.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// The store's node is online.
    #[error("{store} is not lost: its node is {presence}. Stop the node if its disk is gone for good, or use --force")]
    IsThere {
        /// The store, for people.
        store: String,
        /// The state of its node.
        presence: Presence,
    },
    /// The namespace refused the change.
    #[error(transparent)]
    Names(#[from] NsError),
}

impl Coordinator {
    /// Refuses a store that cannot be removed as lost. With `force`, its node may be online.
    pub(crate) fn check_lost(&self, store: StoreId, force: bool) -> Result<(), RepairError> {
        self.wanted_state(store)?;
        let view = self.view();
        match view.standing(self.world.now(), store).map(|standing| standing.presence) {
            Some(presence @ (Presence::Online | Presence::Suspect)) if !force => {
                Err(RepairError::IsThere { store: view.servers.shown(store), presence })
            }
            _ => Ok(()),
        }
    }

    /// Removes a store as lost: other stores replace it in its groups. Returns when that is recorded. With `force`, its node may be online.
    pub(crate) fn remove_as_lost(&self, store: StoreId, force: bool) -> Result<(), RepairError> {
        self.check_lost(store, force)?;
        self.set_wanted_state(store, WantedState::Lost)?;
        let shown = self.view().servers.shown(store);
        tracing::warn!(store = %shown, "a store is removed as lost: repair copies what it had from other stores");
        Ok(())
    }
}
