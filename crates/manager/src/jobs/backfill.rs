//! Stores that are gone for good, or are to be emptied, are replaced in their groups, step by step ([`cluster::backfill`]). Each step is a transaction, so that a manager that
//! begins anew goes on where the one before was.

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

/// How often it is looked what can be done.
const LOOK: Duration = Duration::from_millis(200);
/// Groups that are looked at in one go.
const GROUPS: usize = 64;
/// Entries that are read at a time.
const PAGE: usize = 256;
/// Pages of what is owed that are looked through in one go: what was lost stays owed, and may be very much.
const PAGES: usize = 64;
/// Of what had to be looked through such a part more may be owed to a member before it is looked again.
const PART_FILLED: usize = 8;
/// Groups that a view names which cannot be repaired.
const SHOWN_MAX: usize = 100;

#[derive(Default)]
pub(crate) struct Backfill {
    next_look: Time,
    /// Up to which group was looked.
    looked: Option<GroupId>,
    /// A change of these is on its way.
    changing: BTreeSet<GroupId>,
    /// Groups of which not all that is owed was looked through yet.
    looking: BTreeMap<GroupId, Keeping>,
    /// Which member cannot be replaced, and why.
    stuck: BTreeMap<GroupId, (StoreId, PlacementError)>,
}

/// Why a store is not given up.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// Its node is there.
    #[error(
        "{store} is not lost: its node is {presence:?}. Stop the node if its disk is gone for good, or use --force"
    )]
    IsThere {
        /// The store, in words.
        store: String,
        /// How its node stands.
        presence: Presence,
    },
    /// The names have refused.
    #[error(transparent)]
    Names(#[from] NsError),
}

/// How far it is with stores that are being replaced.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RepairView {
    /// Stores that were given up.
    pub lost: Vec<LeaverView>,
    /// Stores that are being emptied.
    pub draining: Vec<LeaverView>,
    /// Groups in which a store is given what was there before it joined.
    pub backfill: u64,
    /// Copies that are owed.
    pub missing: Counted,
    /// Of these being made just now.
    pub copying: u64,
    /// Groups in which nobody can take a lost store's place; the first of them.
    pub stuck: Vec<StuckView>,
    /// Copies that could not be made since the manager began. They are tried again, from whoever else has the content.
    pub failed: u64,
    /// The latest of these.
    pub last_failed: Option<FailedCopyView>,
}

/// A copy that could not be made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FailedCopyView {
    /// Of which file, if that has a name.
    pub path: Option<String>,
    /// Whoever was read, in words.
    pub from: String,
    /// Whoever was to get it, in words.
    pub to: String,
}

/// A store that was given up, or is being emptied.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LeaverView {
    /// Which: its number, as text.
    pub store: String,
    /// Where it stands, or stood.
    pub location: String,
    /// Groups that still count on it. With none, nothing is on it alone that anybody knows of.
    pub groups: u64,
    /// It has said that nothing is on it any more.
    pub is_empty: bool,
}

/// A group that stays as it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StuckView {
    /// The group.
    pub group: u64,
    /// Who is lost, or is to be emptied: its number, as text.
    pub store: String,
    /// Why nobody takes its place.
    pub why: String,
}

impl Manager {
    /// Gives a store up for good: others take its place in its groups from now on. Waits until that is written down.
    ///
    /// # Errors
    /// When its node is there, unless `force`; when there is no such store, or it cannot be written down.
    pub fn give_up_store(&self, store: StoreId, force: bool) -> Result<(), RepairError> {
        self.wanted_state(store)?;
        let now = self.world.now();
        let (presence, shown) = {
            let view = self.view();
            (view.standing(now, store).map(|standing| standing.presence), view.servers.shown(store))
        };
        if let Some(presence @ (Presence::Online | Presence::Suspect)) = presence
            && !force
        {
            return Err(RepairError::IsThere { store: shown, presence });
        }
        self.set_wanted_state(store, WantedState::Lost)?;
        tracing::warn!(store = %shown, "a store is removed as lost: repair copies what it had from other stores");
        Ok(())
    }

    /// How far it is with stores that are being replaced.
    ///
    /// # Errors
    /// When the namespace cannot be read.
    pub fn repair_view(&self) -> Result<RepairView, NsError> {
        let missing = self.count_missing(COUNT_MAX)?;
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
        Ok(RepairView {
            lost: servers.removed_as_lost().into_iter().map(view).collect(),
            draining: servers.draining().into_iter().map(view).collect(),
            backfill: groups.all().values().filter(is_backfilling).count() as u64,
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
            // It may have been removed since.
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
                // The others have their turn first.
                self.backfill.lock().looked = Some(group.group);
                break;
            }
        }
    }

    /// Looks through no more than so many `pages` of what is owed.
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
                // Something has changed meanwhile: it is decided anew.
                Err(error) if matches!(error.code(), ErrorCode::Stale | ErrorCode::Busy) => {}
                Err(error) => tracing::error!(%group, %error, "cannot change the members of a group"),
            }
            // What it is now, whatever became of the change.
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

/// What keeps members of a group that go, as far as was looked.
struct Keeping {
    /// The group's epoch, and which of its members are to leave, and were given up.
    of: (u32, Vec<StoreId>, Vec<StoreId>),
    /// How many contents somebody who stays is owed and somebody who goes has, up to [`MISSING_AT_A_TIME`]. What was lost is not counted: nothing else waits
    /// for it.
    missing: usize,
    /// Those from whom something is to be copied first, or without whom something would be gone. All, where so much is owed that not all was looked at.
    kept: BTreeSet<StoreId>,
    /// Up to where it was looked.
    looked: Option<ObjectId>,
    /// Contents that were looked at.
    looked_through: usize,
    /// Whether it need not be looked at more.
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

    /// Looks through some more of what is owed. It may have changed meanwhile what was looked at before: whoever leaves is looked at once more with that.
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

/// The policies that are in use, the default among them.
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

/// Who takes the place of `lost`. A group does not know which policies its contents were written under: all count that it could have come from. As
/// far apart as it was is tried first, as far as those demand has to be.
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
        // One too many of them is left out: no single policy demanded that.
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
