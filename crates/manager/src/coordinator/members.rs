//! What an administrator says of nodes and stores: which are only read from, and which are gone.

use cluster::Presence;
use namespace::{
    Actor, Durability, FIRST_NODE, NsError, Operation, RemoveMember, RemoveStore, SetStoreState, WantedState,
};
use types::{NodeId, StoreId};

use crate::Manager;

/// Why a connection ends.
const REMOVED: &str = "it is not in this cluster any more";

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    /// It is being emptied.
    #[error("store {0} is not drained yet: `weir drain --wait` ends when it is")]
    IsNotEmpty(StoreId),
    /// There is no such node.
    #[error("there is no node `{0}`: `weir status` has the names and numbers")]
    NoNode(String),
    /// It is the one that is asked.
    #[error("`{0}` is the manager")]
    IsManager(String),
    /// It is there.
    #[error("node `{name}` is {presence:?}: stop it first, and wait until its lease has ended")]
    IsThere {
        /// Its name.
        name: String,
        /// How it stands.
        presence: Presence,
    },
    /// The names have refused.
    #[error(transparent)]
    Names(#[from] NsError),
}

impl Manager {
    /// From now on nothing new is put on a store; or again. Waits until that is written down. One that was being emptied is not any more.
    ///
    /// # Errors
    /// When there is no such store, or it was given up; when it cannot be written down.
    pub fn set_read_only(&self, store: StoreId, read_only: bool) -> Result<(), MemberError> {
        let state = if read_only { WantedState::ReadOnly } else { WantedState::Online };
        self.set_wanted_state(store, state)?;
        tracing::info!(%store, read_only, "a store was made read-only or online");
        Ok(())
    }

    /// Takes a store off the list.
    ///
    /// # Errors
    /// When a group counts on it, it is being emptied and is not empty yet, there is none, or it cannot be written down.
    pub fn remove_store(&self, store: StoreId) -> Result<(), MemberError> {
        let is_left_over = {
            let view = self.view();
            self.coordinator.groups().leave_unused(&view.servers, store)
                && view.is_online(self.world.now(), store)
                && !self.draining.lock().is_empty(store)
        };
        if is_left_over {
            return Err(MemberError::IsNotEmpty(store));
        }
        self.change_members(RemoveStore { store })?;
        tracing::info!(%store, "a store was removed from the cluster");
        Ok(())
    }

    /// Takes a node off the list, by its name or number: it is let in no more. Its stores stay, and another node may bring them.
    ///
    /// # Errors
    /// When there is none, it is the manager, or it is there; when it cannot be written down.
    pub fn remove_node(&self, name: &str) -> Result<(), MemberError> {
        let members = self.names.read(namespace::members)?;
        let is_it = |node: NodeId, of: &str| of == name || node.to_string() == name;
        let found = members.into_iter().find(|member| is_it(member.node, &member.name));
        let member = found.ok_or_else(|| MemberError::NoNode(name.to_owned()))?;
        if member.node == FIRST_NODE {
            return Err(MemberError::IsManager(member.name));
        }
        {
            let now = self.world.now();
            let mut state = self.coordinator.lock();
            let presence = state.sessions.presence(now, member.node);
            if presence != Presence::Away {
                return Err(MemberError::IsThere { name: member.name, presence });
            }
            // It gets no session from here on: who has come back is not removed, and who is removed does not come back meanwhile.
            state.member_states.insert(member.node);
        }
        let removed = self.change_members(RemoveMember { node: member.node });
        {
            let mut state = self.coordinator.lock();
            state.member_states.remove(&member.node);
            if removed.is_ok() {
                state.sessions_mut().removed(member.node);
            }
        }
        removed?;
        self.world.cut(member.node, REMOVED);
        tracing::info!(node = %member.node, name = %member.name, "a node was removed from the cluster");
        Ok(())
    }

    /// Whether a node belongs to the cluster. It did when it connected: one that was removed since is cut off.
    pub(crate) fn has_member(&self, node: NodeId) -> bool {
        match self.is_member(node) {
            Ok(true) => return true,
            Ok(false) => {}
            Err(error) => {
                tracing::error!(%node, %error, "cannot read whether a node is in the cluster");
                return false;
            }
        }
        tracing::warn!(%node, "a node that is not in the cluster is disconnected");
        self.world.cut(node, REMOVED);
        false
    }

    pub(crate) fn wanted_state(&self, store: StoreId) -> Result<WantedState, NsError> {
        let known = self.names.read(|read| namespace::store(read, store))?;
        known.map(|entry| entry.state).ok_or_else(|| NsError::NotFound(store.to_string(), "store of this cluster"))
    }

    pub(crate) fn set_wanted_state(&self, store: StoreId, state: WantedState) -> Result<(), NsError> {
        self.change_members(SetStoreState { store, state })?;
        if state != WantedState::Draining {
            self.draining.lock().forget(store);
        }
        Ok(())
    }

    pub(crate) fn change_members<O: Operation<Reply = ()> + Send + 'static>(&self, op: O) -> Result<(), NsError> {
        self.names.change_wait((self.world.wall(), &Actor::admin()), Durability::Synced, op)?;
        // Whoever asks next sees it, and nothing new is put where it must not be.
        self.look_again()
    }
}
