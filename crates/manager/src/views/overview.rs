//! Views of the cluster as a whole, for people. They are plain data, each of one moment. Nothing is decided here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cluster::Presence;
use cluster::placement::{StoreInfo, StoreState};
use link::Roles;
use namespace::{MemberEntry, NsError, Read};
use serde::{Deserialize, Serialize};
use types::{GroupId, Ino, NodeId, ObjectId, Policy, StoreId};

use super::activity::ActivityView;
use super::{CopyProgress, Views};
use crate::coordinator::ClusterView;
use crate::jobs::{DamageCounts, Progress};

/// Entries that are read at a time.
const PAGE: usize = 1024;
/// The limit of counting, so that a request never takes long.
pub(super) const COUNT_MAX: u64 = 100_000;
/// The limit for requests that come every second.
const COUNT_OFTEN_MAX: u64 = 10_000;
/// The number of missing replicas whose lengths are read. Each takes a read of its own.
pub(super) const LENGTHS_MAX: u64 = 10_000;
/// The same, for requests that come every second.
const LENGTHS_OFTEN_MAX: u64 = 1000;

/// A node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeView {
    /// Its number.
    pub node: NodeId,
    /// How people call it.
    pub name: String,
    /// Its roles.
    pub roles: String,
    /// Its state. The manager itself has none.
    pub presence: Option<Presence>,
    /// The state of a manager. A disk server has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<ManagerState>,
    /// It was cut off, and is removed from the cluster when its lease has ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_being_removed: bool,
    /// Its addresses for clients.
    pub clients: Vec<String>,
    /// Its addresses for other nodes.
    pub nodes: Vec<String>,
    /// The number of its stores.
    pub stores: u64,
    /// The locations of its stores, each once.
    #[serde(default)]
    pub locations: Vec<String>,
    /// Total bytes of its stores, as far as they have reported.
    #[serde(default)]
    pub capacity: u64,
    /// Free bytes of its stores, without the reserve.
    #[serde(default)]
    pub available: u64,
    /// The load of its busiest store, in thousandths.
    #[serde(default)]
    pub load_permille: u16,
    /// Its last activity report. `None` if it has not reported since the manager started.
    #[serde(default)]
    pub activity: Option<ActivityView>,
}

/// The state of a manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ManagerState {
    /// It has the namespace: the manager that answers.
    Active,
    /// It takes over when the active one fails.
    Standby,
    /// It is not connected.
    Offline,
}

/// A count that may be incomplete.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counted {
    /// The number counted.
    pub count: u64,
    /// Whether there are more.
    pub and_more: bool,
}

/// Missing replicas and their bytes.
pub(super) struct MissingCount {
    pub(super) replicas: Counted,
    pub(super) bytes: Counted,
}

/// A cluster as a whole.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StatusView {
    /// Its nodes, by number.
    pub nodes: Vec<NodeView>,
    /// The number of stores in each state. States without stores are left out.
    pub stores: BTreeMap<StoreState, u64>,
    /// Total bytes of the usable stores.
    pub capacity: u64,
    /// Free bytes of the usable stores, without the reserve.
    pub available: u64,
    /// Files being written.
    pub writers: Counted,
    /// Missing replicas.
    pub missing: Counted,
    /// Missing replicas that are being copied now.
    pub copying: u64,
    /// How far the copies are.
    #[serde(flatten)]
    pub repair: CopyProgress,
    /// Files with fewer readable replicas than they should have, whatever the reason. 0 in a view that is asked for every second.
    #[serde(default)]
    pub under_replicated: Counted,
    /// Files of these with exactly one readable replica.
    #[serde(default)]
    pub single_copy: Counted,
    /// Files of these that nobody can read now.
    #[serde(default)]
    pub unreadable: Counted,
    /// Files that were interrupted in the last hour and still are. 0 in a view that is asked for every second.
    #[serde(default)]
    pub interrupted: Counted,
    /// Groups with an offline store.
    #[serde(default)]
    pub groups_under_replicated: u64,
    /// Groups of these without any online store. Objects that only they have cannot be read.
    #[serde(default)]
    pub groups_unavailable: u64,
    /// Objects that nobody needs and that are still on a store.
    pub deletions: Counted,
    /// Since the manager started, a disk server has reported objects that are newer than the namespace: the namespace was restored from an old
    /// backup.
    #[serde(default)]
    pub is_older_than_stores: bool,
    /// Damaged replicas, as disk servers report them now.
    #[serde(default)]
    pub damaged: DamageCounts,
    /// The namespace was restored from a backup, and nobody has accepted its state yet: nothing is repaired or removed on the stores.
    #[serde(default)]
    pub is_held: bool,
    /// The policy of the root: of all files whose directories have no other.
    #[serde(default)]
    pub default_policy: String,
    /// The root got its policy from weir, when stores first stood on several hosts, and nobody has changed it.
    #[serde(default)]
    pub is_default_given: bool,
}

/// The cluster and its present activity. Sums cover the nodes that have reported in the last seconds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TopView {
    /// Bytes that clients read.
    pub read_bytes_per_second: u64,
    /// Bytes that clients write. Each byte counts once, however many replicas it has.
    pub written_bytes_per_second: u64,
    /// Clients that are logged in to disk servers.
    pub sessions: u64,
    /// Files that they have open there.
    pub open_files: u64,
    /// Missing replicas that were copied since the manager started.
    pub repaired_replicas: u64,
    /// Bytes of those copies.
    pub repaired_bytes: u64,
    /// The state of the cluster.
    #[serde(flatten)]
    pub status: StatusView,
}

impl Views {
    /// The cluster as a whole.
    pub(crate) fn status(&self) -> Result<StatusView, NsError> {
        let short = self.count_short_files()?;
        let most = usize::try_from(COUNT_OFTEN_MAX).unwrap_or(usize::MAX);
        let (count, and_more) = self.names.read(|read| namespace::interrupted_lately(read, most))?;
        Ok(StatusView {
            under_replicated: short.all,
            single_copy: short.single_copy,
            unreadable: short.unreadable,
            interrupted: Counted { count, and_more },
            ..self.status_counted(COUNT_MAX, LENGTHS_MAX)?.0
        })
    }

    /// The same with the present activity. Cheap enough to call every second.
    pub(crate) fn top(&self) -> Result<TopView, NsError> {
        let (status, progress) = self.status_counted(COUNT_OFTEN_MAX, LENGTHS_OFTEN_MAX)?;
        let fresh: Vec<&ActivityView> =
            status.nodes.iter().filter_map(|node| node.activity.as_ref()).filter(|said| said.is_fresh()).collect();
        let sum = |of: fn(&ActivityView) -> u64| fresh.iter().map(|said| of(said)).fold(0, u64::saturating_add);
        Ok(TopView {
            read_bytes_per_second: sum(|said| said.read_bytes_per_second.unwrap_or(0)),
            written_bytes_per_second: sum(|said| said.written_bytes_per_second.unwrap_or(0)),
            sessions: sum(|said| said.activity.sessions),
            open_files: sum(|said| said.activity.open_files),
            repaired_replicas: progress.copies,
            repaired_bytes: progress.bytes,
            status,
        })
    }

    fn status_counted(&self, count_max: u64, lengths_max: u64) -> Result<(StatusView, Progress), NsError> {
        let members = self.names.read(namespace::members)?;
        let (default_policy, is_default_given) = self.names.read(default_policy)?;
        let missing = self.count_missing(count_max, lengths_max)?;
        let progress = self.copies.progress();
        let (nodes, map, (groups_under_replicated, groups_unavailable), is_older_than_stores) = {
            let cluster = self.view.get();
            let mut of_nodes: BTreeMap<NodeId, Vec<&StoreInfo>> = BTreeMap::new();
            for info in cluster.servers.map().stores() {
                of_nodes.entry(info.node).or_default().push(info);
            }
            let view = |member: MemberEntry| {
                let stores = of_nodes.get(&member.node).map(Vec::as_slice).unwrap_or_default();
                self.node_view(&cluster, member, stores)
            };
            let nodes: Vec<NodeView> = members.into_iter().map(view).collect();
            let under_replicated = self.under_replicated_groups(&cluster, self.world.now());
            (nodes, Arc::clone(cluster.servers.map()), under_replicated, self.coordinator.is_older())
        };
        let (mut stores, mut capacity, mut available) = (BTreeMap::<StoreState, u64>::new(), 0_u64, 0_u64);
        for info in map.stores() {
            *stores.entry(self.shown_state(info)).or_insert(0) += 1;
            if info.state == StoreState::Online {
                capacity = capacity.saturating_add(info.capacity);
                available = available.saturating_add(info.room());
            }
        }
        let status = StatusView {
            nodes,
            stores,
            capacity,
            available,
            writers: self.count_writers(count_max)?,
            missing: missing.replicas,
            copying: progress.under_way as u64,
            repair: self.copy_progress(&missing, progress.clone()),
            under_replicated: Counted::default(),
            single_copy: Counted::default(),
            unreadable: Counted::default(),
            interrupted: Counted::default(),
            groups_under_replicated,
            groups_unavailable,
            deletions: self.count_deletions(count_max)?,
            is_older_than_stores,
            damaged: self.damages.counts(),
            is_held: self.hold.is_held(),
            default_policy: default_policy.to_string(),
            is_default_given,
        };
        Ok((status, progress))
    }

    fn node_view(&self, view: &ClusterView, member: MemberEntry, stores: &[&StoreInfo]) -> NodeView {
        let now = self.world.now();
        let MemberEntry { node, roles, name, for_nodes, for_clients, .. } = member;
        let roles = Roles::from_bits(roles);
        let is_manager = roles.is_some_and(|roles| roles.contain(link::Role::Manager));
        let presence = match view.sessions.presence(now, node) {
            // Its lease runs, but the manager cannot reach it.
            Presence::Online if !view.servers.is_connected(node) => Presence::Suspect,
            presence => presence,
        };
        let own = view.clients_at.as_ref().map(|(host, port)| format!("{host}:{port}"));
        NodeView {
            node,
            name,
            roles: roles.map_or_else(|| "unknown".into(), |roles| roles.to_string()),
            presence: (!is_manager).then_some(presence),
            manager: is_manager.then(|| match node {
                node if node == self.coordinator.own() => ManagerState::Active,
                node if self.world.is_up(node) => ManagerState::Standby,
                _ => ManagerState::Offline,
            }),
            is_being_removed: self.coordinator.is_cut_off(node),
            clients: if node == self.coordinator.own() && for_clients.is_empty() {
                own.into_iter().collect()
            } else {
                for_clients
            },
            nodes: for_nodes,
            stores: stores.len() as u64,
            locations: stores
                .iter()
                .map(|info| info.location.to_string())
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect(),
            capacity: stores.iter().map(|info| info.capacity).fold(0, u64::saturating_add),
            available: stores.iter().map(|info| info.room()).fold(0, u64::saturating_add),
            load_permille: stores.iter().map(|info| info.load.permille()).max().unwrap_or(0),
            activity: self.activities.view(now, node),
        }
    }

    fn count_writers(&self, most: u64) -> Result<Counted, NsError> {
        count(most, |after| {
            let page = self.names.read(|read| namespace::writers_page(read, after, PAGE))?;
            let found = page.writers.len() as u64;
            Ok((found, found, page.next))
        })
    }

    fn count_deletions(&self, most: u64) -> Result<Counted, NsError> {
        count(most, |after| {
            let page = self.names.read(|read| namespace::due_deletions(read, after, PAGE))?;
            let found = page.len() as u64;
            Ok((found, found, page.last().copied()))
        })
    }

    /// Missing replicas of stores that stay in their groups.
    pub(super) fn count_missing(&self, most: u64, lengths_most: u64) -> Result<MissingCount, NsError> {
        let (mut bytes, mut lengths, mut skipped) = (0_u64, 0, false);
        let replicas = count(most, |after| {
            let page = self.names.read(|read| namespace::missing_in_all_groups(read, after, PAGE))?;
            let objects: Vec<(GroupId, ObjectId, u64)> = {
                let (view, groups) = (self.view.get(), self.coordinator.groups());
                let stores = |group: GroupId, stores: &[StoreId]| {
                    stores.iter().filter(|store| groups.is_missing(&view.servers, group, **store)).count() as u64
                };
                page.iter().map(|(group, object, at)| (*group, *object, stores(*group, at))).collect()
            };
            let mut copies = 0;
            for (group, object, missing) in objects.into_iter().filter(|(_, _, missing)| *missing > 0) {
                copies += missing;
                if lengths >= lengths_most {
                    skipped = true;
                    continue;
                }
                lengths += 1;
                // A file that is being written gets its replicas afterwards.
                let at_rest = self.names.read(|read| namespace::at_rest(read, group, object))?;
                bytes = bytes.saturating_add(at_rest.map_or(0, |at_rest| at_rest.len).saturating_mul(missing));
            }
            Ok((copies, page.len() as u64, page.last().map(|(group, object, _)| (*group, *object))))
        })?;
        Ok(MissingCount { bytes: Counted { count: bytes, and_more: replicas.and_more || skipped }, replicas })
    }
}

/// The policy of the root, and whether it is the one that it got from weir.
fn default_policy(read: &dyn Read) -> Result<(Policy, bool), NsError> {
    let policy = namespace::own_policy(read, Ino::ROOT)?;
    let is_given = namespace::is_policy_given(read)?;
    Ok((policy.unwrap_or_default(), is_given))
}

/// Counts page by page. `page` returns its count, the number of entries examined, and the last entry.
fn count<T>(
    most: u64,
    mut page: impl FnMut(Option<T>) -> Result<(u64, u64, Option<T>), NsError>,
) -> Result<Counted, NsError> {
    let (mut count, mut looked_at, mut after) = (0, 0, None);
    loop {
        let (found, looked, last) = page(after)?;
        count += found;
        looked_at += looked;
        if last.is_none() {
            return Ok(Counted { count, and_more: false });
        }
        if count >= most || looked_at >= most.saturating_mul(2) {
            return Ok(Counted { count, and_more: true });
        }
        after = last;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted_to_the_end_or_to_the_bound() {
        let of = |all: u64, counts: u64| {
            let page = move |after: Option<u64>| {
                let from = after.map_or(0, |after| after + 1);
                let some = (from..all).take(PAGE);
                let found = some.clone().count() as u64;
                Ok((found * counts, found, some.last()))
            };
            count(COUNT_MAX, page).unwrap()
        };
        let pages = |all| of(all, 1);
        assert_eq!(pages(0), Counted { count: 0, and_more: false });
        assert_eq!(pages(3000), Counted { count: 3000, and_more: false });
        let many = pages(1_000_000);
        assert!(many.and_more && (COUNT_MAX..COUNT_MAX + PAGE as u64).contains(&many.count));
        assert_eq!(of(1_000_000, 0), Counted { count: 0, and_more: true }, "what does not count takes time as well");
    }
}
