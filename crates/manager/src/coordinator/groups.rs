//! The groups of stores, and those that are just being made.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use namespace::{Durability, NsError, PutGroup, Read};
use types::{Group, GroupId, Member, ObjectId, StoreId};

use super::servers::Servers;
use crate::Manager;

/// Groups that are read at a time.
const PAGE: usize = 1024;
/// The first group that placement makes; lower ones are those of a single node.
const FIRST_GROUP: u64 = 2;

/// Told of a group when it is made.
type GroupMade = Box<dyn FnOnce(Result<GroupId, NsError>) + Send>;

/// All groups, as the namespace has them.
pub(crate) struct Groups {
    groups: BTreeMap<GroupId, Group>,
    /// Those that nobody leaves, by their stores, in order. Of several with the same stores, one.
    by_stores: BTreeMap<Vec<StoreId>, GroupId>,
    next_group: u64,
    /// In how many of them a store is.
    counts: BTreeMap<StoreId, usize>,
    /// Those in which somebody takes another one's place.
    unsettled: BTreeSet<GroupId>,
    /// Who has left them since this manager began.
    left: BTreeMap<GroupId, BTreeSet<StoreId>>,
    /// Stores that were being emptied, or had been given up, when this manager began: any group may have been left by them before.
    may_have_left: BTreeSet<StoreId>,
    /// Groups that are just being written down, and who waits for them.
    making: BTreeMap<Vec<StoreId>, Vec<GroupMade>>,
}

impl Groups {
    /// What the namespace knows. `servers`: as they are now.
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
            making: BTreeMap::new(),
        };
        groups.iter().for_each(|group| this.is_made(group));
        Ok(this)
    }

    /// The group of these stores, in this order.
    fn of(&self, stores: &[StoreId]) -> Option<GroupId> {
        self.by_stores.get(stores).copied()
    }

    /// Takes a number for a group that is to be made.
    fn new_group(&mut self, stores: &[StoreId]) -> Group {
        let group = GroupId(self.next_group);
        self.next_group += 1;
        let member = |store: &StoreId| Member { store: *store, since: ObjectId(1), through: ObjectId(0) };
        Group { group, epoch: 1, members: stores.iter().map(member).collect() }
    }

    /// A group is as it stands in the namespace.
    pub(crate) fn is_made(&mut self, group: &Group) {
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
            // What is written anew there would have a copy less when that one has left.
            if self.by_stores.get(&stores) == Some(&group.group) {
                self.by_stores.remove(&stores);
            }
        } else {
            self.by_stores.entry(stores).or_insert(group.group);
        }
    }

    /// Stores that have left a group, as far as this manager can know: who has opened a file there before may read it there still.
    pub(crate) fn have_left(&self, servers: &Servers, group: GroupId) -> Vec<StoreId> {
        let left = self.left.get(&group).into_iter().flatten().chain(&self.may_have_left);
        left.copied().filter(|store| servers.has_store(*store)).collect()
    }

    /// All groups, by number.
    pub(crate) fn all(&self) -> &BTreeMap<GroupId, Group> {
        &self.groups
    }

    fn member(&self, group: GroupId, store: StoreId) -> Option<&Member> {
        self.groups.get(&group)?.members.iter().find(|member| member.store == store)
    }

    /// Whether a group counts on it.
    pub(crate) fn is_member(&self, group: GroupId, store: StoreId) -> bool {
        self.member(group, store).is_some()
    }

    /// Whether it is to get what it is said to be owed in a group: it stays there.
    pub(crate) fn is_missing(&self, servers: &Servers, group: GroupId, store: StoreId) -> bool {
        self.member(group, store).is_some_and(|member| !member.is_leaving()) && !servers.is_removed_as_lost(store)
    }

    /// In how many groups a store is.
    pub(crate) fn count_of(&self, store: StoreId) -> usize {
        self.counts.get(&store).copied().unwrap_or(0)
    }

    /// Whether some group is as it is not to stay.
    pub(crate) fn are_unsettled(&self, servers: &Servers) -> bool {
        !self.unsettled.is_empty() || servers.to_leave().into_iter().any(|store| self.count_of(store) > 0)
    }

    /// Whether nothing on a store counts any more, and nothing new comes.
    pub(crate) fn leave_unused(&self, servers: &Servers, store: StoreId) -> bool {
        servers.is_draining(store) && self.count_of(store) == 0
    }
}

impl Manager {
    /// Has the group of `stores` made, if there is none.
    pub(crate) fn with_group(
        self: &Arc<Self>,
        stores: Vec<StoreId>,
        then: impl FnOnce(Result<GroupId, NsError>) + Send + 'static,
    ) {
        let group = {
            let mut groups = self.coordinator.groups();
            if let Some(group) = groups.of(&stores) {
                drop(groups);
                return then(Ok(group));
            }
            // A batch of new files asks for the same one hundreds of times.
            if let Some(waiting) = groups.making.get_mut(&stores) {
                return waiting.push(Box::new(then));
            }
            groups.making.insert(stores.clone(), vec![Box::new(then)]);
            groups.new_group(&stores)
        };
        let this = Arc::clone(self);
        self.change(Durability::Synced, PutGroup { group: group.clone() }, move |result| {
            let waiting = {
                let mut groups = this.coordinator.groups();
                if result.is_ok() {
                    groups.is_made(&group);
                }
                groups.making.remove(&stores)
            };
            for then in waiting.unwrap_or_default() {
                then(result.clone().map(|()| group.group));
            }
        });
    }
}

fn stores_of(group: &Group) -> Vec<StoreId> {
    group.members.iter().map(|member| member.store).collect()
}
