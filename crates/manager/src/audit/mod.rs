//! `weir fsck --cluster`: compares the namespace with what each store really has, while the cluster serves.
//!
//! It goes through the inventory of one store after the other, page by page, and reads the same range of object numbers in the namespace. Clients write,
//! rename and remove meanwhile. So whatever does not fit is looked at a second time, a moment later: the namespace is read, the store is asked, and the
//! namespace is read again. A problem counts only if it is the same in both looks, and if the namespace says the same before and after the question.
//! That suffices, because the namespace changes after the stores when an object is made, and before them when it is deleted.
//!
//! No inventory shows a store that is removed as lost and offline. What only such stores should have is looked for in the namespace alone.
//!
//! Memory is bounded: a page of an inventory, and as many objects of each group of the store.

mod compare;
mod gone;
mod names_range;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use namespace::NsError;
use node::{StoredReplica, StoredState};
use serde::{Deserialize, Serialize};
use types::{GroupId, ObjectId, ReplicaId, ReplicaIndex, StoreId};

use crate::World;
use crate::coordinator::{Coordinator, PublishedView};
use crate::inventories::{Inventories, NoInventory};
use crate::names::Names;
pub use compare::ProblemKind;
use compare::{absent, compare};
use gone::GonePage;
use names_range::{NamesRange, in_the_making, path_of_object};

/// The pause before the second look.
const PAUSE: Duration = Duration::from_millis(500);
/// The most findings of each kind that are listed, whatever is asked for.
const LISTED_MAX: usize = 10_000;

/// A problem of a replica or a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuditFinding {
    /// What is wrong.
    pub kind: ProblemKind,
    /// The path of its file; `None` if no name refers to the object, as for a stripe unit. Bytes that are not text are escaped.
    pub path: Option<String>,
    /// The object.
    pub object: String,
    /// The store, for people. Empty: there is no store that should have the object.
    pub store: String,
}

/// A store that was not checked, or not to its end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UncheckedStore {
    /// The store, for people.
    pub store: String,
    /// The reason.
    pub why: String,
}

/// The result of a comparison.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AuditView {
    /// Stores that were compared to their end.
    pub checked_stores: u64,
    /// Stores that were not.
    pub unchecked_stores: Vec<UncheckedStore>,
    /// Replicas that the namespace counts on and that were compared.
    pub compared: u64,
    /// Problems of each kind.
    pub counts: BTreeMap<ProblemKind, u64>,
    /// The first ones of each kind.
    pub findings: Vec<AuditFinding>,
}

impl AuditView {
    /// The number of problems.
    #[must_use]
    pub fn problems(&self) -> u64 {
        self.counts.values().sum()
    }

    fn add(&mut self, finding: AuditFinding, list_max: usize) {
        let count = self.counts.entry(finding.kind).or_default();
        *count += 1;
        if *count <= list_max.min(LISTED_MAX) as u64 {
            self.findings.push(finding);
        }
    }
}

/// See the module.
pub(crate) struct Audit {
    names: Names,
    view: PublishedView,
    world: Arc<dyn World>,
    coordinator: Arc<Coordinator>,
    inventories: Arc<Inventories>,
}

/// What stops a comparison.
enum Stopped {
    /// The store cannot be asked.
    Store(NoInventory),
    /// The namespace cannot be read.
    Names(NsError),
    /// Nobody waits for the result any more.
    NotWanted,
}

impl From<NsError> for Stopped {
    fn from(error: NsError) -> Self {
        Self::Names(error)
    }
}

impl From<NoInventory> for Stopped {
    fn from(why: NoInventory) -> Self {
        Self::Store(why)
    }
}

/// A range of a store's replicas, with all that the store has in it.
struct StoredRange {
    stored: BTreeMap<ObjectId, StoredReplica>,
    /// The last object of the range; `None`: there is no more.
    end: Option<ObjectId>,
}

impl Audit {
    pub(crate) fn new(
        names: Names,
        world: Arc<dyn World>,
        coordinator: Arc<Coordinator>,
        inventories: Arc<Inventories>,
    ) -> Self {
        let view = coordinator.published();
        Self { names, view, world, coordinator, inventories }
    }

    /// Compares all stores. Lists at most `list_max` problems of each kind. Waits for disk servers. `go_on` is asked after each page: if it returns
    /// `false`, the result is `None`.
    pub(crate) fn run(&self, list_max: usize, go_on: &mut dyn FnMut() -> bool) -> Result<Option<AuditView>, NsError> {
        let stores: Vec<StoreId> = self.names.read(namespace::stores)?.iter().map(|entry| entry.store).collect();
        let (mut found, mut silent) = (AuditView::default(), BTreeSet::new());
        for store in stores {
            if self.is_gone(store) {
                continue;
            }
            match self.store(store, list_max, go_on, (&mut found, &mut silent)) {
                Ok(()) => found.checked_stores += 1,
                Err(Stopped::NotWanted) => return Ok(None),
                Err(Stopped::Names(error)) => return Err(error),
                Err(Stopped::Store(why)) => {
                    let store = self.view.get().servers.shown(store);
                    found.unchecked_stores.push(UncheckedStore { store, why: why.to_string() });
                }
            }
        }
        Ok(self.lost(list_max, go_on, &mut found)?.then_some(found))
    }

    /// Whether a store is removed as lost and offline, so that it counts as having nothing.
    fn is_gone(&self, store: StoreId) -> bool {
        let view = self.view.get();
        view.servers.is_removed_as_lost(store) && !view.is_online(self.world.now(), store)
    }

    /// Finds what no store that could be asked should have. Returns whether somebody still waits for the result.
    fn lost(&self, list_max: usize, go_on: &mut dyn FnMut() -> bool, found: &mut AuditView) -> Result<bool, NsError> {
        // The striped files have a group of their own without stores; their units are in others.
        let groups: Vec<GroupId> = self.coordinator.groups().all().keys().copied().collect();
        for group in groups.into_iter().filter(|group| *group != GroupId::STRIPED) {
            let mut after = None;
            loop {
                let page = self.names.read(|read| GonePage::read(read, group, after, |store| self.is_gone(store)))?;
                for gone in page.lost {
                    let view = self.view.get();
                    let shown = |store| format!("{}, which is removed as lost", view.servers.shown(store));
                    let finding = AuditFinding {
                        kind: ProblemKind::Lost,
                        path: gone.path.map(|path| path.escape_ascii().to_string()),
                        object: format!("{:016x}", gone.object.0),
                        store: gone.store.map(shown).unwrap_or_default(),
                    };
                    found.add(finding, list_max);
                }
                if !go_on() {
                    return Ok(false);
                }
                after = page.end;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(true)
    }

    /// The groups that a store is a member of.
    fn groups_of(&self, store: StoreId) -> Vec<GroupId> {
        let groups = self.coordinator.groups();
        let of_store = groups.all().values().filter(|group| group.members.iter().any(|one| one.store == store));
        of_store.map(|group| group.group).collect()
    }

    fn store(
        &self,
        store: StoreId,
        list_max: usize,
        go_on: &mut dyn FnMut() -> bool,
        (found, silent): (&mut AuditView, &mut BTreeSet<StoreId>),
    ) -> Result<(), Stopped> {
        let mut after: Option<ObjectId> = None;
        loop {
            let mut range = self.stored_after(store, after)?;
            let groups = self.groups_of(store);
            let names = self.names.read(|read| NamesRange::read(read, store, &groups, after, range.end))?;
            // The range ends where the namespace's pages end, if that is earlier.
            range.end = names.end;
            range.stored.retain(|object, _| names.end.is_none_or(|end| *object <= end));
            found.compared += names.expected.len() as u64;
            let suspects = suspects(&names, &range.stored);
            if !suspects.is_empty() {
                self.look_again(store, after, &suspects, list_max, (found, silent))?;
            }
            if !go_on() {
                return Err(Stopped::NotWanted);
            }
            match range.end {
                Some(end) => after = Some(end),
                None => return Ok(()),
            }
        }
    }

    /// Asks the store for its next page.
    fn stored_after(&self, store: StoreId, after: Option<ObjectId>) -> Result<StoredRange, NoInventory> {
        let page = self.inventories.page(store, after.map(last_replica))?;
        let end = page.replicas.last().filter(|_| !page.is_last).map(|last| last.replica.object);
        let is_object = |one: &StoredReplica| one.replica == ReplicaId::first(one.replica.object);
        let stored = page.replicas.into_iter().filter(is_object).map(|one| (one.replica.object, one)).collect();
        Ok(StoredRange { stored, end })
    }

    /// Asks the store for all it has after `after`, at least up to `last`.
    fn stored_up_to(
        &self,
        store: StoreId,
        mut after: Option<ObjectId>,
        last: ObjectId,
    ) -> Result<BTreeMap<ObjectId, StoredReplica>, NoInventory> {
        let mut all = BTreeMap::new();
        loop {
            let StoredRange { stored, end } = self.stored_after(store, after)?;
            all.extend(stored);
            if end.is_none_or(|end| end >= last) {
                return Ok(all);
            }
            after = end;
        }
    }

    fn look_again(
        &self,
        store: StoreId,
        range_after: Option<ObjectId>,
        suspects: &BTreeMap<ObjectId, ProblemKind>,
        list_max: usize,
        (found, silent): (&mut AuditView, &mut BTreeSet<StoreId>),
    ) -> Result<(), Stopped> {
        let Some(last) = suspects.keys().last().copied() else { return Ok(()) };
        std::thread::sleep(PAUSE);
        let wanted: BTreeSet<ObjectId> = suspects.keys().copied().collect();
        let look_up = || -> Result<(NamesRange, BTreeSet<ObjectId>), NsError> {
            let groups = self.groups_of(store);
            self.names.read(|read| Ok((NamesRange::of(read, store, &groups, &wanted)?, in_the_making(read, &wanted)?)))
        };
        let (before, made_before) = look_up()?;
        let stored = self.stored_up_to(store, range_after, last)?;
        let (after, made_after) = look_up()?;
        for (object, first) in suspects {
            let is_made = made_before.contains(object) || made_after.contains(object);
            if is_made || !before.agrees(&after, *object) {
                continue;
            }
            let second = problem(&after, *object, stored.get(object));
            let Some(mut kind) = second.filter(|second| second == first) else { continue };
            let expected = after.expected.get(object);
            // Draining deletes it soon.
            if kind == ProblemKind::Extra && self.view.get().servers.is_draining(store) {
                continue;
            }
            if let (ProblemKind::Absent, Some(expected)) = (kind, expected) {
                match self.absent(store, *object, &expected.holders, silent) {
                    Some(found) => kind = found,
                    // It is told with another store.
                    None => continue,
                }
            }
            let groups = match expected {
                Some(expected) => vec![expected.group],
                // The store may have left the object's group.
                None => self.coordinator.groups().all().keys().copied().collect(),
            };
            let path = self.names.read(|read| {
                let paths = groups.iter().map(|group| path_of_object(read, *group, *object).transpose());
                paths.flatten().next().transpose()
            })?;
            let store = self.view.get().servers.shown(store);
            let path = path.map(|path| path.escape_ascii().to_string());
            found.add(AuditFinding { kind, path, object: format!("{:016x}", object.0), store }, list_max);
        }
        Ok(())
    }

    /// What it means that an object is absent on a store. Stores that are removed as lost and offline have nothing. A lost object is told with the first of
    /// its stores that could be asked: `None` with the others. Stores in `silent` did not answer before, and are not waited for again.
    fn absent(
        &self,
        store: StoreId,
        object: ObjectId,
        holders: &[StoreId],
        silent: &mut BTreeSet<StoreId>,
    ) -> Option<ProblemKind> {
        let others = holders.iter().copied().filter(|other| *other != store && !self.is_gone(*other));
        let others: Vec<(StoreId, Option<bool>)> =
            others.map(|other| (other, self.has(other, object, silent))).collect();
        let answers: Vec<Option<bool>> = others.iter().map(|(_, has)| *has).collect();
        let kind = absent(&answers);
        let is_told_before = others.iter().any(|(other, has)| has.is_some() && *other < store);
        (kind == ProblemKind::Absent || !is_told_before).then_some(kind)
    }

    /// Whether a store has any version of an object; `None` if it cannot be asked.
    fn has(&self, store: StoreId, object: ObjectId, silent: &mut BTreeSet<StoreId>) -> Option<bool> {
        if silent.contains(&store) {
            return None;
        }
        let before = object.0.checked_sub(1).map(|before| last_replica(ObjectId(before)));
        let page = self.inventories.page(store, before);
        if matches!(page, Err(NoInventory::Silent)) {
            silent.insert(store);
        }
        let page = page.ok()?;
        Some(page.replicas.first().is_some_and(|first| first.replica.object == object))
    }
}

/// No replica of a later object comes before this one.
fn last_replica(object: ObjectId) -> ReplicaId {
    ReplicaId { object, index: ReplicaIndex(u16::MAX) }
}

/// What does not fit at the first look.
fn suspects(names: &NamesRange, stored: &BTreeMap<ObjectId, StoredReplica>) -> BTreeMap<ObjectId, ProblemKind> {
    let objects: BTreeSet<ObjectId> = names.expected.keys().chain(stored.keys()).copied().collect();
    let one = |object: ObjectId| Some((object, problem(names, object, stored.get(&object))?));
    objects.into_iter().filter_map(one).collect()
}

/// Compares one object.
fn problem(names: &NamesRange, object: ObjectId, stored: Option<&StoredReplica>) -> Option<ProblemKind> {
    match (names.expected.get(&object), stored) {
        (Some(expected), stored) => compare(&expected.original, stored),
        // A replica with an open write is in the making.
        (None, Some(one)) if !matches!(one.state, StoredState::Written(_)) && !names.others.contains(&object) => {
            Some(ProblemKind::Extra)
        }
        (None, _) => None,
    }
}
