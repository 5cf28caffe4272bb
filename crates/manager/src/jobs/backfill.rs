//! Replaces stores in their groups that are removed as lost or draining, step by step ([`cluster::backfill`]). Each step is a transaction, so a
//! restarted manager continues the work.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster::backfill::{MISSING_AT_A_TIME, MemberStates, Next, next};
use cluster::placement::{Map, PlacementError, replacement};
use cluster::{Presence, Time};
use namespace::{BackfillMember, Durability, JoinGroup, LeaveGroup, NsError, Operation, Read, WantedState};
use serde::{Deserialize, Serialize};
use types::{ErrorCode, Group, GroupId, ObjectId, Policy, Spread, StoreId};

use super::copies::FailedCopy;
use crate::views::COUNT_MAX;
use crate::{Counted, Manager};

/// How often this job looks for work.
const LOOK: Duration = Duration::from_millis(200);
/// Groups that are examined in one step.
const GROUPS: usize = 64;
/// Entries that are read at a time.
const PAGE: usize = 256;
/// Pages of missing replicas that are examined in one step. Replicas of lost files stay missing, and there may be very many.
const PAGES: usize = 64;
/// A backfill step adds one page of missing replicas for this many examined pages. Then the group is examined again.
const PART_FILLED: usize = 8;
/// The most groups beyond repair that a view lists.
const SHOWN_MAX: usize = 100;

#[derive(Default)]
pub(crate) struct Backfill {
    next_look: Time,
    /// The last group that was examined.
    looked: Option<GroupId>,
    /// Groups whose change is under way.
    changing: BTreeSet<GroupId>,
    /// Groups whose missing replicas are not all examined yet.
    looking: BTreeMap<GroupId, Keeping>,
    /// Groups with a member that cannot be replaced, and the reason.
    stuck: BTreeMap<GroupId, (StoreId, PlacementError)>,
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

/// The progress of replacing stores.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RepairView {
    /// Stores that are removed as lost.
    pub lost: Vec<LeaverView>,
    /// Stores that are draining.
    pub draining: Vec<LeaverView>,
    /// Groups with a store that is being backfilled.
    pub backfill: u64,
    /// Missing replicas.
    pub missing: Counted,
    /// Missing replicas that are being copied now.
    pub copying: u64,
    /// Groups in which no store can replace a lost one. Only the first of them.
    pub stuck: Vec<StuckView>,
    /// Copies that have failed since the manager started. They are tried again from another holder of the object.
    pub failed: u64,
    /// The latest failed copy.
    pub last_failed: Option<FailedCopyView>,
    /// A group is being backfilled, a replica is being copied, or one that is missing can be copied now. Otherwise repair waits for a store, or has
    /// nothing left to do.
    #[serde(default)]
    pub is_at_work: bool,
}

/// A copy that failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FailedCopyView {
    /// The file's path, if it has one.
    pub path: Option<String>,
    /// The source store, for people.
    pub from: String,
    /// The target store, for people.
    pub to: String,
}

/// A store that is removed as lost or draining.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LeaverView {
    /// The store's number, as text.
    pub store: String,
    /// The store's location, even if it is gone.
    pub location: String,
    /// Groups that still count on it. If there are none, no known object is on this store alone.
    pub groups: u64,
    /// The store has reported that it is empty.
    pub is_empty: bool,
}

/// A group that cannot change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StuckView {
    /// The group.
    pub group: u64,
    /// The lost or draining store: its number, as text.
    pub store: String,
    /// Why no store can replace it.
    pub why: String,
}

impl Manager {
    /// Removes a store as lost: other stores replace it in its groups. Returns when that is recorded.
    ///
    /// # Errors
    /// If its node is online, unless `force` is set; if the store is unknown, or the change cannot be recorded.
    pub fn give_up_store(&self, store: StoreId, force: bool) -> Result<(), RepairError> {
        self.wanted_state(store)?;
        if !force {
            self.must_be_gone(store)?;
        }
        self.set_wanted_state(store, WantedState::Lost)?;
        tracing::warn!(store = %self.view().servers.shown(store), "a store is removed as lost: repair copies what it had from other stores");
        Ok(())
    }

    /// The progress of replacing stores.
    ///
    /// # Errors
    /// When the namespace cannot be read.
    pub fn repair_view(&self) -> Result<RepairView, NsError> {
        let missing = self.count_missing(COUNT_MAX)?;
        let can_copy = self.can_copy()?;
        let last_failed = self.last_failed()?;
        let (cluster, copied, copying) = (self.view(), self.copied_so_far(), self.copies_under_way());
        let servers = &cluster.servers;
        let empty: Vec<StoreId> = {
            let draining = self.draining.lock();
            servers.draining().into_iter().filter(|store| draining.is_empty(*store)).collect()
        };
        let stuck: Vec<StuckView> = {
            let backfill = self.backfill.lock();
            let is_to_leave = |(_, (store, _)): &(&GroupId, &(StoreId, PlacementError))| servers.is_to_leave(*store);
            let view = |(group, (store, why)): (&GroupId, &(StoreId, PlacementError))| StuckView {
                group: group.0,
                store: store.to_string(),
                why: why.to_string(),
            };
            backfill.stuck.iter().filter(is_to_leave).take(SHOWN_MAX).map(view).collect()
        };
        let groups = self.coordinator.groups();
        let view = |store: StoreId| LeaverView {
            store: store.to_string(),
            location: servers.map().store(store).map(|info| info.location.to_string()).unwrap_or_default(),
            groups: groups.count_of(store) as u64,
            is_empty: empty.contains(&store) && groups.count_of(store) == 0,
        };
        let is_backfilling = |group: &&Group| group.members.iter().any(|member| !member.is_current());
        let backfill = groups.all().values().filter(is_backfilling).count() as u64;
        Ok(RepairView {
            lost: servers.removed_as_lost().into_iter().map(view).collect(),
            draining: servers.draining().into_iter().map(view).collect(),
            backfill,
            is_at_work: backfill > 0 || copying > 0 || can_copy,
            missing,
            copying: copying as u64,
            stuck,
            failed: copied.failed,
            last_failed,
        })
    }

    fn last_failed(&self) -> Result<Option<FailedCopyView>, NsError> {
        let Some(FailedCopy { group, object, from, to }) = self.copied_so_far().last_failed else { return Ok(None) };
        let path = self.names.read(|read| {
            let record = namespace::object_record(read, group, object)?;
            record.map(|record| namespace::path_of(read, record.ino)).transpose()
        });
        let view = self.view();
        Ok(Some(FailedCopyView {
            // The file may have been removed since.
            path: path.ok().flatten().map(|path| String::from_utf8_lossy(&path).into_owned()),
            from: view.servers.shown(from),
            to: view.servers.shown(to),
        }))
    }

    pub(crate) fn backfill_groups(self: &Arc<Self>, now: Time) {
        let groups: Vec<Group> = {
            let (view, mut backfill) = (self.view(), self.backfill.lock());
            if now < backfill.next_look {
                return;
            }
            backfill.next_look = now + LOOK;
            let (servers, groups) = (&view.servers, self.coordinator.groups());
            if !groups.are_unsettled(servers) {
                return;
            }
            let is_whole = |group: &Group| {
                let is_in_order = |member: &types::Member| {
                    member.is_current() && !member.is_leaving() && !servers.is_to_leave(member.store)
                };
                group.members.iter().all(is_in_order)
            };
            let after = backfill.looked;
            let to_do = groups.all().values().filter(|group| after.is_none_or(|after| group.group > after));
            let found: Vec<Group> = to_do
                .filter(|group| !is_whole(group) && !backfill.changing.contains(&group.group))
                .take(GROUPS)
                .cloned()
                .collect();
            backfill.looked = found.last().filter(|_| found.len() == GROUPS).map(|group| group.group);
            found
        };
        if groups.is_empty() {
            return;
        }
        let policies = match self.names.read(all_policies) {
            Ok(policies) => policies,
            Err(error) => return tracing::error!(%error, "cannot read which policies there are"),
        };
        let mut pages = PAGES;
        for group in groups {
            if let Err(error) = self.go_on_with(&group, &policies, &mut pages) {
                tracing::error!(group = %group.group, %error, "cannot read the missing replicas");
            }
            if pages == 0 {
                // The other groups come first.
                self.backfill.lock().looked = Some(group.group);
                break;
            }
        }
    }

    /// Examines at most this many `pages` of missing replicas.
    fn go_on_with(self: &Arc<Self>, group: &Group, policies: &[Policy], pages: &mut usize) -> Result<(), NsError> {
        let (map, lost, removed_as_lost): (Arc<Map>, Vec<StoreId>, Vec<StoreId>) = {
            let view = self.view();
            let stores = || group.members.iter().map(|member| member.store);
            let lost = stores().filter(|store| view.servers.is_to_leave(*store));
            let removed_as_lost = stores().filter(|store| view.servers.is_removed_as_lost(*store));
            (Arc::clone(view.servers.map()), lost.collect(), removed_as_lost.collect())
        };
        let goes = |store: StoreId| {
            lost.contains(&store) || group.members.iter().any(|member| member.store == store && member.is_leaving())
        };
        let is_removed_as_lost = |store: StoreId| removed_as_lost.contains(&store);
        let of = (group.epoch, lost.clone(), removed_as_lost.clone());
        let before = self.backfill.lock().looking.remove(&group.group).filter(|before| before.of == of);
        let before = before.unwrap_or_else(|| Keeping::begin(of, group, goes, is_removed_as_lost));
        let found = self.names.read(|read| before.go_on(read, group, goes, is_removed_as_lost, pages))?;
        if !found.is_done {
            self.backfill.lock().looking.insert(group.group, found);
            return Ok(());
        }
        let Keeping { missing, kept, looked_through, .. } = found;
        let choose = |stay: &[StoreId], lost: StoreId| choose(&map, policies, group, stay, lost);
        let member_states = MemberStates {
            is_to_leave: &|store| lost.contains(&store),
            is_removed_as_lost: &is_removed_as_lost,
            is_kept: &|store| kept.contains(&store),
        };
        let next = next(group, &member_states, missing, choose);
        if let Next::NoLocation(store, why) = next {
            let before = self.backfill.lock().stuck.insert(group.group, (store, why.clone()));
            if before.is_none() {
                tracing::warn!(group = %group.group, %store, %why, "no store can replace a store that should leave");
            }
            return Ok(());
        }
        self.backfill.lock().stuck.remove(&group.group);
        let (number, epoch) = (group.group, group.epoch);
        match next {
            Next::Nothing | Next::Copies | Next::NoLocation(..) => {}
            Next::Join { store, in_place_of } => {
                tracing::info!(group = %number, %store, %in_place_of, "a store replaces another one");
                self.change_group(number, JoinGroup { group: number, epoch, store, in_place_of }, None);
            }
            Next::Fill(store) => {
                let pages = looked_through / PAGE / PART_FILLED;
                self.change_group(number, BackfillMember { group: number, store, pages }, None);
            }
            Next::Leave(store) => self.change_group(number, LeaveGroup { group: number, store }, Some(store)),
        }
        Ok(())
    }

    fn change_group<O>(self: &Arc<Self>, group: GroupId, op: O, leaves: Option<StoreId>)
    where
        O: Operation<Reply = ()> + Send + 'static,
    {
        self.backfill.lock().changing.insert(group);
        let this = Arc::clone(self);
        self.change(Durability::Synced, op, move |result| {
            let is_done = result.is_ok();
            match result {
                Ok(()) => {}
                // The group has changed meanwhile: the next step decides again.
                Err(error) if matches!(error.code(), ErrorCode::Stale | ErrorCode::Busy) => {}
                Err(error) => tracing::error!(%group, %error, "cannot change the members of a group"),
            }
            // Take over the present group, whatever became of the change.
            let found = this.names.read(|read| namespace::group(read, group));
            match found {
                Ok(Some(group)) => this.coordinator.groups().is_made(&group),
                Ok(None) => {}
                Err(error) => tracing::error!(%group, %error, "cannot read the members of a group"),
            }
            this.backfill.lock().changing.remove(&group);
            if let Some(store) = leaves.filter(|_| is_done) {
                this.forget_member(group, store);
            }
        });
    }
}

/// What keeps leaving members in a group, as far as it was examined.
struct Keeping {
    /// The group's epoch, its leaving members, and those of its members that are removed as lost.
    of: (u32, Vec<StoreId>, Vec<StoreId>),
    /// Objects that a staying member lacks and a leaving member has, up to [`MISSING_AT_A_TIME`]. Lost objects do not count, because nothing else
    /// waits for them.
    missing: usize,
    /// Leaving members that must first be copied from, or that hold the only replica of an object. All of them, if there were too many missing
    /// replicas to examine.
    kept: BTreeSet<StoreId>,
    /// The last object that was examined.
    looked: Option<ObjectId>,
    /// The number of objects examined.
    looked_through: usize,
    /// Whether everything has been examined.
    is_done: bool,
}

fn to_go(group: &Group, goes: impl Fn(StoreId) -> bool) -> Vec<StoreId> {
    group.members.iter().map(|member| member.store).filter(|store| goes(*store)).collect()
}

impl Keeping {
    fn begin(
        of: (u32, Vec<StoreId>, Vec<StoreId>),
        group: &Group,
        goes: impl Fn(StoreId) -> bool,
        is_removed_as_lost: impl Fn(StoreId) -> bool,
    ) -> Self {
        let mut kept: BTreeSet<StoreId> = to_go(group, goes).into_iter().collect();
        kept.retain(|store| !namespace::has_successors(&group.members, *store, &is_removed_as_lost));
        Self { of, missing: 0, kept, looked: None, looked_through: 0, is_done: false }
    }

    /// Examines more missing replicas. The objects examined earlier may have changed meanwhile. The change that removes a member therefore checks
    /// that member once more.
    fn go_on(
        mut self,
        read: &dyn Read,
        group: &Group,
        goes: impl Fn(StoreId) -> bool,
        is_removed_as_lost: impl Fn(StoreId) -> bool,
        pages: &mut usize,
    ) -> Result<Self, NsError> {
        let (members, to_go) = (&group.members, to_go(group, &goes));
        while *pages > 0 {
            *pages -= 1;
            let page = namespace::missing(read, group.group, self.looked, PAGE)?;
            for (object, missing) in &page {
                let is_needed = |store: &StoreId| {
                    namespace::is_needed(members, *object, missing, *store, &goes, &is_removed_as_lost)
                };
                let is_alone =
                    |store: &StoreId| namespace::is_alone_with(members, *object, missing, *store, &is_removed_as_lost);
                let is_copied = to_go.iter().any(is_needed)
                    && namespace::is_on_others(members, *object, missing, &is_removed_as_lost);
                self.missing += usize::from(is_copied);
                self.kept.extend(to_go.iter().filter(|store| is_needed(store) || is_alone(store)));
            }
            self.looked_through += page.len();
            self.looked = page.last().map(|(object, _)| *object);
            if page.len() < PAGE {
                return Ok(Self { is_done: true, ..self });
            }
            if self.missing >= MISSING_AT_A_TIME {
                let kept = to_go.into_iter().collect();
                return Ok(Self { missing: MISSING_AT_A_TIME, kept, is_done: true, ..self });
            }
        }
        Ok(self)
    }
}

/// The policies in use, including the default.
fn all_policies(read: &dyn Read) -> Result<Vec<Policy>, NsError> {
    let (mut all, mut after) = (vec![Policy::default()], None);
    loop {
        let page = namespace::policies(read, after, PAGE)?;
        after = page.last().map(|policy| policy.from);
        let is_last = page.len() < PAGE;
        for found in page {
            if !all.contains(&found.policy) {
                all.push(found.policy);
            }
        }
        if is_last {
            return Ok(all);
        }
    }
}

/// Chooses the store that replaces `lost`. A group does not know the policies of its objects, so all policies that fit the group count. The search
/// first keeps the group's present spread, then falls back to the spread that those policies demand.
fn choose(
    map: &Map,
    policies: &[Policy],
    group: &Group,
    stay: &[StoreId],
    lost: StoreId,
) -> Result<StoreId, PlacementError> {
    let stores = |leaving: bool| {
        let members = group.members.iter().filter(move |member| member.is_leaving() == leaving);
        members.map(|member| member.store).collect::<Vec<StoreId>>()
    };
    let (before, leaving) = (stores(false), stores(true));
    let meets = |policy: &&Policy| {
        usize::from(policy.layout().replicas()) == before.len()
            && is_apart(map, &before, policy.spread())
            && policy.classes().iter().all(|(class, copies)| {
                let of_class =
                    |store: &&StoreId| map.store(**store).is_some_and(|info| info.class.as_ref() == Some(class));
                before.iter().filter(of_class).count() >= usize::from(*copies)
            })
    };
    let possible: Vec<&Policy> = policies.iter().filter(meets).collect();
    let layout = possible.first().map_or_else(|| *Policy::default().layout(), |policy| *policy.layout());
    let spread = possible.iter().map(|policy| policy.spread()).max().unwrap_or_default();
    let mut demanded = Policy::new(layout).with_spread(spread);
    for (class, copies) in possible.iter().flat_map(|policy| policy.classes()) {
        // Too many classes: leave this one out. No single policy demands all of them.
        if let Ok(with) = demanded.clone().with_class(class.clone(), *copies) {
            demanded = with;
        }
    }
    let wider = [Spread::Site, Spread::Rack].into_iter().filter(|spread| *spread > demanded.spread());
    for spread in wider.filter(|spread| is_apart(map, &before, *spread)) {
        if let Ok(store) = replacement(map, &demanded.clone().with_spread(spread), stay, lost, &leaving) {
            return Ok(store);
        }
    }
    replacement(map, &demanded, stay, lost, &leaving)
}

fn is_apart(map: &Map, stores: &[StoreId], spread: Spread) -> bool {
    let mut seen = BTreeSet::new();
    stores.iter().all(|store| {
        let Some(info) = map.store(*store) else { return false };
        let parts = match spread {
            Spread::Host => 3,
            Spread::Rack => 2,
            Spread::Site => 1,
        };
        seen.insert(info.location.prefix(parts).as_str().to_owned())
    })
}
