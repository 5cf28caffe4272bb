//! The groups of stores, and the groups that are just being recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cluster::message::ToStore;
use namespace::{Durability, NsError, PutGroup, Read};
use types::{Group, GroupId, Member, NodeId, ObjectId, ReplicaId, StoreId};

use super::Coordinator;
use super::servers::Servers;

/// Groups that are read at a time.
const PAGE: usize = 1024;
/// The first group that placement makes. Lower numbers belong to single nodes.
const FIRST_GROUP: u64 = 2;

/// Called when a group has been made.
type GroupMade = Box<dyn FnOnce(Result<GroupId, NsError>) + Send>;

/// All groups of the namespace.
pub(crate) struct Groups {
    groups: BTreeMap<GroupId, Group>,
    /// Groups that no store is leaving, by their stores in order. If several groups have the same stores, one of them.
    by_stores: BTreeMap<Vec<StoreId>, GroupId>,
    next_group: u64,
    /// The number of groups that each store is in.
    counts: BTreeMap<StoreId, usize>,
    /// Groups in which a store is replacing another one.
    unsettled: BTreeSet<GroupId>,
    /// Stores that have left each group since this manager started.
    left: BTreeMap<GroupId, BTreeSet<StoreId>>,
    /// Stores that were draining or removed as lost when this manager started. They may have left any group before.
    may_have_left: BTreeSet<StoreId>,
    /// Groups that are just being recorded, and the callers that wait for them.
    being_recorded: BTreeMap<Vec<StoreId>, Vec<GroupMade>>,
}

impl Groups {
    /// Reads all groups from the namespace. `servers` is the present state of the servers.
    pub(crate) fn read(read: &dyn Read, servers: &Servers) -> Result<Self, NsError> {
        let (mut groups, mut last) = (Vec::new(), None);
        loop {
            let page = namespace::groups(read, last, PAGE)?;
            last = page.last().map(|group| group.group);
            let is_last = page.len() < PAGE;
            groups.extend(page);
            if is_last {
                break;
            }
        }
        let mut this = Self {
            groups: BTreeMap::new(),
            by_stores: BTreeMap::new(),
            next_group: groups.last().map_or(0, |group| group.group.0.saturating_add(1)).max(FIRST_GROUP),
            counts: BTreeMap::new(),
            unsettled: BTreeSet::new(),
            left: BTreeMap::new(),
            may_have_left: servers.to_leave(),
            being_recorded: BTreeMap::new(),
        };
        groups.iter().for_each(|group| this.take(group));
        Ok(this)
    }

    /// The group with these stores in this order.
    fn of(&self, stores: &[StoreId]) -> Option<GroupId> {
        self.by_stores.get(stores).copied()
    }

    /// Assigns a number to a new group.
    fn new_group(&mut self, stores: &[StoreId]) -> Group {
        let group = GroupId(self.next_group);
        self.next_group += 1;
        let member = |store: &StoreId| Member { store: *store, since: ObjectId(1), through: ObjectId(0) };
        Group { group, epoch: 1, members: stores.iter().map(member).collect() }
    }

    /// Takes over a group as the namespace has it.
    pub(crate) fn take(&mut self, group: &Group) {
        let stores = stores_of(group);
        for store in &stores {
            *self.counts.entry(*store).or_default() += 1;
        }
        if group.members.iter().all(|member| member.is_current() && !member.is_leaving()) {
            self.unsettled.remove(&group.group);
        } else {
            self.unsettled.insert(group.group);
        }
        if let Some(before) = self.groups.insert(group.group, group.clone()) {
            let before = stores_of(&before);
            for store in &before {
                if let Some(count) = self.counts.get_mut(store) {
                    *count = count.saturating_sub(1);
                }
            }
            let left = self.left.entry(group.group).or_default();
            left.extend(before.iter().copied());
            left.retain(|store| !stores.contains(store));
            if left.is_empty() {
                self.left.remove(&group.group);
            }
            if before != stores && self.by_stores.get(&before) == Some(&group.group) {
                self.by_stores.remove(&before);
            }
        }
        if group.members.iter().any(Member::is_leaving) {
            // A new object in this group would lose a replica when the store has left.
            if self.by_stores.get(&stores) == Some(&group.group) {
                self.by_stores.remove(&stores);
            }
        } else {
            self.by_stores.entry(stores).or_insert(group.group);
        }
    }

    /// Stores that have left a group, as far as this manager can know. A client that opened a file there before may still read it there.
    pub(crate) fn have_left(&self, servers: &Servers, group: GroupId) -> Vec<StoreId> {
        let left = self.left.get(&group).into_iter().flatten().chain(&self.may_have_left);
        left.copied().filter(|store| servers.has_store(*store)).collect()
    }

    /// An object moves from one group to another: stores that have left the first may still show it.
    pub(crate) fn inherit_left(&mut self, from: GroupId, to: GroupId) {
        let Some(left) = self.left.get(&from).cloned() else { return };
        let stays = |store: &StoreId| !self.is_member(to, *store);
        let left: Vec<StoreId> = left.into_iter().filter(stays).collect();
        if !left.is_empty() {
            self.left.entry(to).or_default().extend(left);
        }
    }

    /// All groups, by number.
    pub(crate) fn all(&self) -> &BTreeMap<GroupId, Group> {
        &self.groups
    }

    fn member(&self, group: GroupId, store: StoreId) -> Option<&Member> {
        self.groups.get(&group)?.members.iter().find(|member| member.store == store)
    }

    /// Whether the store is a member of the group.
    pub(crate) fn is_member(&self, group: GroupId, store: StoreId) -> bool {
        self.member(group, store).is_some()
    }

    /// Whether the store must still get the group's missing replicas. That is so if it stays in the group.
    pub(crate) fn is_missing(&self, servers: &Servers, group: GroupId, store: StoreId) -> bool {
        self.member(group, store).is_some_and(|member| !member.is_leaving()) && !servers.is_removed_as_lost(store)
    }

    /// The number of groups that a store is in.
    pub(crate) fn count_of(&self, store: StoreId) -> usize {
        self.counts.get(&store).copied().unwrap_or(0)
    }

    /// Whether some group is changing or must change.
    pub(crate) fn are_unsettled(&self, servers: &Servers) -> bool {
        !self.unsettled.is_empty() || servers.to_leave().into_iter().any(|store| self.count_of(store) > 0)
    }

    /// Whether the store is draining and no group depends on it any more.
    pub(crate) fn leave_unused(&self, servers: &Servers, store: StoreId) -> bool {
        servers.is_draining(store) && self.count_of(store) == 0
    }
}

impl Coordinator {
    /// Calls `then` with the group of `stores`. Makes the group first if it does not exist.
    pub(crate) fn with_group(
        self: &Arc<Self>,
        stores: Vec<StoreId>,
        then: impl FnOnce(Result<GroupId, NsError>) + Send + 'static,
    ) {
        let group = {
            let mut groups = self.groups();
            if let Some(group) = groups.of(&stores) {
                drop(groups);
                return then(Ok(group));
            }
            // A batch of new files asks for the same group hundreds of times.
            if let Some(waiting) = groups.being_recorded.get_mut(&stores) {
                return waiting.push(Box::new(then));
            }
            groups.being_recorded.insert(stores.clone(), vec![Box::new(then)]);
            groups.new_group(&stores)
        };
        let this = Arc::clone(self);
        self.names.change_as_manager(
            self.world.wall(),
            Durability::Synced,
            PutGroup { group: group.clone() },
            move |result| {
                let waiting = {
                    let mut groups = this.groups();
                    if result.is_ok() {
                        groups.take(&group);
                    }
                    groups.being_recorded.remove(&stores)
                };
                for then in waiting.unwrap_or_default() {
                    then(result.clone().map(|()| group.group));
                }
            },
        );
    }
}

impl Coordinator {
    /// Has replicas deleted from a draining store that no group depends on. The coordinator's lock covers the check and the order. A store that is used
    /// again is published under the same lock, so later orders to copy to that store come after this one.
    pub(crate) fn delete_from_unused(&self, node: NodeId, store: StoreId, replicas: Vec<ReplicaId>) {
        let state = self.lock();
        if state.node_of(store) == Some(node) && self.groups().leave_unused(&state.servers, store) {
            self.world.tell_store(node, store, ToStore::Delete { replicas, exist_elsewhere: true });
        }
    }
}

fn stores_of(group: &Group) -> Vec<StoreId> {
    group.members.iter().map(|member| member.store).collect()
}
