//! Stores that are lost for good: what is lost with them, and their removal.

use std::collections::BTreeSet;

use cluster::Presence;
use types::StoreId;

use crate::{LossView, Manager, RepairError};

/// How stores are removed as lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RemoveLost {
    /// The administrator has confirmed it. Otherwise nothing changes.
    pub is_confirmed: bool,
    /// Nodes of the stores may be online.
    pub force: bool,
}

impl Manager {
    /// Shows what is lost with `stores`, and removes them as lost if that is confirmed. Other stores then replace them in their groups. `go_on` is
    /// asked from time to time: if it returns `false`, nothing is removed, and the result is `None`.
    ///
    /// # Errors
    /// If the removal is confirmed and the node of a store is online, unless `force` is set; if a store is unknown, or the change cannot be recorded.
    pub fn remove_lost_stores(
        &self,
        stores: &BTreeSet<StoreId>,
        how: RemoveLost,
        go_on: impl FnMut() -> bool,
    ) -> Result<Option<LossView>, RepairError> {
        for store in stores {
            self.wanted_state(*store)?;
            if how.is_confirmed && !how.force {
                self.must_be_gone(*store)?;
            }
        }
        let Some(found) = self.losses(stores, go_on)? else { return Ok(None) };
        if how.is_confirmed {
            for store in stores {
                self.give_up_store(*store, how.force)?;
            }
        }
        Ok(Some(LossView { is_removed: how.is_confirmed, ..found }))
    }

    /// Refuses a store whose node is there.
    pub(crate) fn must_be_gone(&self, store: StoreId) -> Result<(), RepairError> {
        let view = self.view();
        match view.standing(self.world.now(), store).map(|standing| standing.presence) {
            Some(presence @ (Presence::Online | Presence::Suspect)) => {
                Err(RepairError::IsThere { store: view.servers.shown(store), presence })
            }
            Some(Presence::Away) | None => Ok(()),
        }
    }
}
