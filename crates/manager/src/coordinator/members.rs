//! An administrator's decisions about nodes and stores: the states of stores, removed stores and removed nodes.

use std::sync::Arc;
use std::time::Duration;

use cluster::{Presence, Time};
use namespace::{
    Actor, CutOffMember, Durability, MemberEntry, NsError, Operation, RemoveMember, RemoveStore, SetStoreState,
    WantedState,
};
use types::{NodeId, StoreId};

use super::servers::is_manager;
use super::{Coordinator, CoordinatorState};

/// The reason for closing the connection of a removed node.
const REMOVED: &str = "it is not in this cluster any more";

/// Why a store or node was not changed.
#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    /// The store is draining and not empty yet.
    #[error("store {0} is not drained yet: `weir drain --wait` ends when it is")]
    IsNotEmpty(StoreId),
    /// A group depends on the store.
    #[error("{0}. Drain it first, or if it is gone for good, remove it with --lost")]
    IsNeeded(NsError),
    /// The cluster has no such node.
    #[error("there is no node `{0}`: `weir status` has the names and numbers")]
    NoNode(String),
    /// The node is this manager itself.
    #[error("`{0}` is the manager")]
    IsManager(String),
    /// The node is another manager, and online.
    #[error("`{0}` is a standby manager, and online: stop it first, or use --force")]
    IsStandby(String),
    /// Several nodes have this name.
    #[error("there are several nodes `{name}`: {}. Say which by its number", shown(.nodes))]
    IsAmbiguous {
        /// The name.
        name: String,
        /// The nodes.
        nodes: Vec<NodeId>,
    },
    /// The node is online.
    #[error(
        "node `{name}` is {presence}: stop it first, or use --force to cut it off. Its lease ends {}",
        ends_in(*.lease)
    )]
    IsThere {
        /// The node's name.
        name: String,
        /// The node's state.
        presence: Presence,
        /// How long its lease runs after the node has stopped, or that of a run of this manager before.
        lease: Duration,
    },
    /// The node is gone, and its lease still runs.
    #[error("node `{name}` has stopped, and its lease ends {}", ends_in(*.lease))]
    HasLease {
        /// The node's name.
        name: String,
        /// How long its lease runs.
        lease: Duration,
    },
    /// The node was cut off to be removed, and its lease still runs.
    #[error("node `{name}` is cut off, and its lease ends {}", ends_in(*.lease))]
    IsCutOff {
        /// The node's name.
        name: String,
        /// How long its lease runs.
        lease: Duration,
    },
    /// The namespace refused the change.
    #[error(transparent)]
    Names(#[from] NsError),
}

fn shown(nodes: &[NodeId]) -> String {
    nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// `within 4 s: try again then`, rounded up.
fn ends_in(lease: Duration) -> String {
    format!("within {} s: try again then", lease.as_secs() + u64::from(lease.subsec_nanos() > 0))
}

impl Coordinator {
    /// Makes a store read-only, or writable again. Returns when that is recorded. A draining store stops draining.
    pub(crate) fn set_read_only(&self, store: StoreId, read_only: bool) -> Result<(), MemberError> {
        let state = if read_only { WantedState::ReadOnly } else { WantedState::Online };
        self.set_wanted_state(store, state)?;
        tracing::info!(%store, read_only, "a store was made read-only or online");
        Ok(())
    }

    /// Removes a store from the cluster. `is_empty`: the store has reported that nothing is left on it.
    pub(crate) fn remove_store(&self, store: StoreId, is_empty: bool) -> Result<(), MemberError> {
        let is_left_over = {
            let view = self.view();
            self.groups().leave_unused(&view.servers, store) && view.is_online(self.world.now(), store) && !is_empty
        };
        if is_left_over {
            return Err(MemberError::IsNotEmpty(store));
        }
        self.change_members(RemoveStore { store }).map_err(|error| match error {
            error @ NsError::StillNeeded { .. } => MemberError::IsNeeded(error),
            error => MemberError::Names(error),
        })?;
        tracing::info!(%store, "a store was removed from the cluster");
        Ok(())
    }

    /// Removes a node, given by name or number. The node can no longer connect. Its stores stay in the cluster, and another node may bring them.
    ///
    /// With `force`, a node that is there is cut off first. That is recorded, then its connection ends, and it gets neither a new session nor a longer lease. The call then
    /// fails with [`MemberError::IsCutOff`] until the lease has ended, because until then the node may answer clients (C4). The node is removed then,
    /// by [`Coordinator::remove_cut_off`] if nobody repeats the call.
    pub(crate) fn remove_node(&self, name: &str, force: bool) -> Result<(), MemberError> {
        let members = self.names.read(namespace::members)?;
        // A number is unique, whatever the names are.
        let has_number = |member: &MemberEntry| member.node.to_string() == name;
        let is_number = members.iter().any(has_number);
        let is_it = |member: &MemberEntry| if is_number { has_number(member) } else { member.name == name };
        let found: Vec<MemberEntry> = members.into_iter().filter(is_it).collect();
        if found.len() > 1 {
            let nodes = found.iter().map(|member| member.node).collect();
            return Err(MemberError::IsAmbiguous { name: name.to_owned(), nodes });
        }
        let member = found.into_iter().next().ok_or_else(|| MemberError::NoNode(name.to_owned()))?;
        if member.node == self.own {
            return Err(MemberError::IsManager(member.name));
        }
        // A standby manager has neither stores nor a lease. After its removal, it can still take the place in the database. It looks at this list then,
        // before it grants anything, and ends.
        if !force && is_manager(&member) && self.world.is_up(member.node) {
            return Err(MemberError::IsStandby(member.name));
        }
        {
            let now = self.world.now();
            let mut state = self.lock();
            let presence = state.sessions.presence(now, member.node);
            if presence != Presence::Away {
                let (name, lease) = (member.name, state.sessions.lease_left(now, member.node));
                if force {
                    let is_known = state.cut_off.contains(&member.node);
                    drop(state);
                    if !is_known {
                        // Durable first: a manager that starts again does not let the node in either.
                        self.record(CutOffMember { node: member.node })?;
                        self.lock().cut_off.insert(member.node);
                        tracing::warn!(node = %member.node, name, "a node is cut off, to be removed from the cluster");
                    }
                    self.world.cut(member.node, REMOVED);
                    if !is_known {
                        self.look_again_or_say();
                    }
                    return Err(MemberError::IsCutOff { name, lease });
                }
                return Err(match state.servers.is_connected(member.node) {
                    true => MemberError::IsThere { name, presence, lease },
                    false => MemberError::HasLease { name, lease },
                });
            }
            // From here on the node gets no session. So a node that has come back is not removed, and a node being removed does not come back
            // meanwhile.
            state.being_removed.insert(member.node);
        }
        let removed = match self.record(RemoveMember { node: member.node }) {
            // It was cut off, and the manager has removed it meanwhile.
            Err(NsError::NotFound(..)) if force => Ok(()),
            removed => removed,
        };
        if let Err(error) = removed {
            self.lock().being_removed.remove(&member.node);
            return Err(error.into());
        }
        let is_seen = self.look_again_or_say();
        {
            let mut state = self.lock();
            state.being_removed.remove(&member.node);
            state.sessions_mut().removed(member.node);
            match is_seen {
                true => state.cut_off.remove(&member.node),
                // Kept out until the lists show that it is gone.
                false => state.cut_off.insert(member.node),
            };
        }
        self.world.cut(member.node, REMOVED);
        tracing::info!(node = %member.node, name = %member.name, "a node was removed from the cluster");
        Ok(())
    }

    /// Removes the nodes that were cut off and whose leases have ended. A removal that cannot be recorded is tried again.
    pub(super) fn remove_cut_off(self: &Arc<Self>, now: Time) {
        let due: Vec<NodeId> = {
            let mut guard = self.lock();
            let state: &mut CoordinatorState = &mut guard;
            // The lists show that these are gone, so they need not be kept out any more.
            let is_gone = |node: &&NodeId| !state.servers.has_node(**node);
            for node in state.cut_off.iter().filter(is_gone).copied().collect::<Vec<_>>() {
                state.cut_off.remove(&node);
                state.being_removed.remove(&node);
            }
            // This manager may have been cut off while it was a standby. Nobody removes the manager that is active.
            let is_away = |node: &&NodeId| **node != self.own && state.sessions.presence(now, **node) == Presence::Away;
            let due = state.cut_off.iter().filter(is_away).copied().collect::<Vec<_>>();
            due.into_iter().filter(|node| state.being_removed.insert(*node)).collect()
        };
        for node in due {
            let this = Arc::clone(self);
            let op = RemoveMember { node };
            self.names.change_as_manager(self.world.wall(), Durability::Synced, op, move |removed| {
                let mut state = this.lock();
                match removed {
                    // It may have been removed by another call. It is kept out until the lists are read again, or it would still count as a member.
                    Ok(()) | Err(NsError::NotFound(..)) => {
                        state.sessions_mut().removed(node);
                        state.next_look = Time::default();
                        tracing::info!(%node, "a node that was cut off was removed from the cluster");
                    }
                    Err(error) => {
                        state.being_removed.remove(&node);
                        tracing::error!(%node, %error, "a node that was cut off cannot be removed yet");
                    }
                }
            });
        }
    }

    /// Whether the node was cut off, and is removed when its lease has ended.
    pub(crate) fn is_cut_off(&self, node: NodeId) -> bool {
        self.lock().cut_off.contains(&node)
    }

    /// Whether a node still belongs to the cluster. It did when it connected. A node that was removed since then is disconnected.
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

    /// The state that an administrator has set for a store.
    pub(crate) fn wanted_state(&self, store: StoreId) -> Result<WantedState, NsError> {
        let known = self.names.read(|read| namespace::store(read, store))?;
        known.map(|entry| entry.state).ok_or_else(|| NsError::NotFound(store.to_string(), "store of this cluster"))
    }

    /// Sets that state. Returns when it is recorded.
    pub(crate) fn set_wanted_state(&self, store: StoreId, state: WantedState) -> Result<(), NsError> {
        self.change_members(SetStoreState { store, state })
    }

    fn change_members<O: Operation<Reply = ()> + Send + 'static>(&self, op: O) -> Result<(), NsError> {
        self.record(op)?;
        // Later requests see the change, and nothing new is placed on the store.
        self.look_again()
    }

    fn record<O: Operation<Reply = ()> + Send + 'static>(&self, op: O) -> Result<(), NsError> {
        self.names.change_wait((self.world.wall(), &Actor::admin()), Durability::Synced, op)
    }

    /// Applies a change that is recorded. If it cannot be read now, it counts with the next look at the lists. Returns whether it counts now.
    fn look_again_or_say(&self) -> bool {
        let looked = self.look_again();
        if let Err(error) = &looked {
            tracing::error!(%error, "a change of the nodes is recorded, and cannot be read yet");
            self.lock().next_look = Time::default();
        }
        looked.is_ok()
    }
}
