//! Replaces stores in their groups that are removed as lost or draining, step by step ([`cluster::backfill`]). Each step is a transaction, so a
//! restarted manager continues the work.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster::Time;
use cluster::backfill::{MISSING_AT_A_TIME, MemberStates, Next, next};
use cluster::placement::{Map, PlacementError, replacement};
use namespace::{BackfillMember, Durability, JoinGroup, LeaveGroup, NsError, Operation, Read};
use types::{ErrorCode, Group, GroupId, ObjectId, Policy, Spread, StoreId};

use super::{Copies, Deletions};
use crate::World;
use crate::coordinator::{Coordinator, PublishedView};
use crate::names::Names;
use crate::tracked::Tracked;

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

/// See the module.
pub(crate) struct Backfill {
    names: Names,
    view: PublishedView,
    world: Arc<dyn World>,
    /// Knows the groups.
    coordinator: Arc<Coordinator>,
    /// Learns of new missing replicas.
    copies: Arc<Copies>,
    /// Must not wait for a store that has left a group.
    deletions: Arc<Deletions>,
    state: Tracked<State>,
}

#[derive(Default)]
struct State {
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

impl Backfill {
    pub(crate) fn new(
        names: Names,
        world: Arc<dyn World>,
        coordinator: Arc<Coordinator>,
        (copies, deletions): (Arc<Copies>, Arc<Deletions>),
    ) -> Self {
        Self { names, view: coordinator.published(), world, coordinator, copies, deletions, state: Tracked::default() }
    }

    /// Groups with a member that cannot be replaced, and the reason.
    pub(crate) fn stuck(&self) -> BTreeMap<GroupId, (StoreId, PlacementError)> {
        self.state.lock().stuck.clone()
    }

    /// Takes the next step for groups that are not as they should be.
    pub(crate) fn tick(self: &Arc<Self>, now: Time) {
        let groups: Vec<Group> = {
            let (view, mut state) = (self.view.get(), self.state.lock());
            if now < state.next_look {
                return;
            }
            state.next_look = now + LOOK;
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
            let after = state.looked;
            let to_do = groups.all().values().filter(|group| after.is_none_or(|after| group.group > after));
            let found: Vec<Group> = to_do
                .filter(|group| !is_whole(group) && !state.changing.contains(&group.group))
                .take(GROUPS)
                .cloned()
                .collect();
            state.looked = found.last().filter(|_| found.len() == GROUPS).map(|group| group.group);
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
                self.state.lock().looked = Some(group.group);
                break;
            }
        }
    }

    /// Examines at most this many `pages` of missing replicas.
    fn go_on_with(self: &Arc<Self>, group: &Group, policies: &[Policy], pages: &mut usize) -> Result<(), NsError> {
        let (map, lost, removed_as_lost): (Arc<Map>, Vec<StoreId>, Vec<StoreId>) = {
            let view = self.view.get();
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
        let before = self.state.lock().looking.remove(&group.group).filter(|before| before.of == of);
        let before = before.unwrap_or_else(|| Keeping::begin(of, group, goes, is_removed_as_lost));
        let found = self.names.read_once(|read| before.go_on(read, group, goes, is_removed_as_lost, pages))?;
        if !found.is_done {
            self.state.lock().looking.insert(group.group, found);
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
            let before = self.state.lock().stuck.insert(group.group, (store, why.clone()));
            if before.is_none() {
                tracing::warn!(group = %group.group, %store, %why, "no store can replace a store that should leave");
            }
            return Ok(());
        }
        self.state.lock().stuck.remove(&group.group);
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
        self.state.lock().changing.insert(group);
        let this = Arc::clone(self);
        self.names.change_as_manager(self.world.wall(), Durability::Synced, op, move |result| {
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
                Ok(Some(group)) => this.coordinator.groups().take(&group),
                Ok(None) => {}
                Err(error) => tracing::error!(%group, %error, "cannot read the members of a group"),
            }
            this.state.lock().changing.remove(&group);
            if is_done {
                this.copies.look_soon();
            }
            if let Some(store) = leaves.filter(|_| is_done) {
                this.deletions.forget_member(group, store);
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
