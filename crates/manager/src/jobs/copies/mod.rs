//! Copies missing replicas at a bounded rate.

mod failures;
mod throughput;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster::message::{CopyFailure, Original, ToStore};
use cluster::replication::{Epoch, ObjectDigest};
use cluster::{CopyEffect, CopyId, CopyRate, Copying, MissingReplica, MissingReplicaPage, Time};
use namespace::{AtRest, CopyDone, DropMissingReplicas, Durability, NsError, Sums};
use types::{ErrorCode, GroupId, NodeId, ObjectId, ReplicaId, SessionId, StoreId};

use crate::World;
use crate::coordinator::{ClusterView, Coordinator, PublishedView};
use crate::known_damage::KnownDamage;
use crate::names::Names;
use crate::tracked::Tracked;
pub(crate) use failures::FailedCopy;
use failures::{Failures, Missing};
use throughput::Throughput;

/// Objects with missing replicas that are examined at a time.
const PAGE: usize = 256;
/// The number of such pages to examine if none of them can be copied. Replicas of lost files stay missing.
const PAGES: usize = 4;

/// An unanswered order is repeated after this time. The connection may have lost the answer.
const AGAIN: Duration = Duration::from_secs(10);

/// See the module.
pub(crate) struct Copies {
    names: Names,
    view: PublishedView,
    world: Arc<dyn World>,
    /// Knows the groups.
    coordinator: Arc<Coordinator>,
    /// Learns of damaged replicas that were replaced.
    known_damage: Arc<KnownDamage>,
    state: Tracked<State>,
}

struct State {
    copying: Copying,
    under_way: BTreeMap<CopyId, CopyUnderWay>,
    /// Finished copies that are just being recorded.
    counting: BTreeSet<(ObjectId, StoreId)>,
    failures: Failures,
    throughput: Throughput,
    /// Finished copies since the manager started, and their bytes.
    finished: (u64, u64),
}

/// A copy in progress.
#[derive(Clone, Copy)]
struct CopyUnderWay {
    done: CopyDone,
    /// The source store.
    from: StoreId,
    /// The node that got the order.
    node: NodeId,
    /// That node's session.
    session: SessionId,
    /// The epoch of the object's last writer.
    epoch: Epoch,
    /// The expected content.
    original: Original,
    /// When the copy was ordered.
    since: Time,
    /// When the order was last sent.
    told: Time,
}

impl CopyUnderWay {
    fn order(&self, copy: CopyId) -> ToStore {
        let Self { done, from, session, epoch, original, .. } = *self;
        ToStore::Copy { copy, session, replica: ReplicaId::first(done.object), epoch, original, from }
    }

    fn missing(&self) -> Missing {
        (self.done.group, self.done.object, self.done.store)
    }
}

/// The progress of repair.
#[derive(Clone, Default, Debug)]
pub(crate) struct Progress {
    /// Copies in progress.
    pub(crate) under_way: usize,
    /// Finished copies since the manager started.
    pub(crate) copies: u64,
    /// Bytes of those copies.
    pub(crate) bytes: u64,
    /// The rate at which copies were made in the last seconds. `None` if none has ended in that time.
    pub(crate) bytes_per_second: Option<u64>,
    /// Missing replicas whose last copy has failed.
    pub(crate) failed: usize,
    /// The latest of these failures.
    pub(crate) last_failed: Option<FailedCopy>,
}

impl Copies {
    pub(crate) fn new(
        names: Names,
        world: Arc<dyn World>,
        coordinator: Arc<Coordinator>,
        known_damage: Arc<KnownDamage>,
        rate: CopyRate,
    ) -> Self {
        let state = State {
            copying: Copying::new(world.now(), rate),
            under_way: BTreeMap::new(),
            counting: BTreeSet::new(),
            failures: Failures::default(),
            throughput: Throughput::default(),
            finished: (0, 0),
        };
        Self { names, view: coordinator.published(), world, coordinator, known_damage, state: Tracked::new(state) }
    }

    /// Sets the total rate of repair from now on.
    pub(crate) fn set_bytes_per_second(&self, bytes_per_second: u64) {
        self.state.lock().copying.set_bytes_per_second(bytes_per_second);
    }

    /// Reads the list of missing replicas again soon: there are new ones.
    pub(crate) fn look_soon(&self) {
        self.state.lock().copying.look_soon();
    }

    /// The progress of repair.
    pub(crate) fn progress(&self) -> Progress {
        let mut state = self.state.lock();
        Progress {
            under_way: state.under_way.len(),
            copies: state.finished.0,
            bytes: state.finished.1,
            bytes_per_second: state.throughput.bytes_per_second(self.world.now()),
            failed: state.failures.len(),
            last_failed: state.failures.latest().cloned(),
        }
    }

    /// Whether a copy of this object to this store is in progress.
    pub(crate) fn is_under_way(&self, object: ObjectId, store: StoreId) -> bool {
        self.state.lock().under_way.values().any(|made| (made.done.object, made.done.store) == (object, store))
    }

    /// Orders the copies that are due, and repeats orders.
    pub(crate) fn tick(self: &Arc<Self>, now: Time) {
        self.watch(now);
        let mut out = Vec::new();
        self.state.lock().copying.tick(now, &mut out);
        self.carry_out(now, out);
    }

    fn carry_out(self: &Arc<Self>, now: Time, effects: Vec<CopyEffect>) {
        for effect in effects {
            match effect {
                CopyEffect::Look(after) => {
                    let page = self.missing_copies(after, now).unwrap_or_else(|error| {
                        tracing::error!(%error, "cannot read the missing replicas");
                        MissingReplicaPage::default()
                    });
                    self.state.lock().copying.found(now, page);
                }
                CopyEffect::GiveUp(copy) => {
                    let silent = self.state.lock().under_way.remove(&copy);
                    if let Some(made) = silent {
                        self.failed(&made, "the target store has not reported an end".into());
                    }
                }
                CopyEffect::Make(copy, missing) => {
                    if self.copy(now, copy, &missing).is_none() {
                        self.state.lock().copying.done(now, copy, false);
                    }
                }
            }
        }
    }

    /// Forgets orders from sessions that have ended: the servers have forgotten them too, and their answers would not count. Repeats the other orders
    /// in time.
    fn watch(&self, now: Time) {
        let (mut again, mut lost) = (Vec::new(), Vec::new());
        {
            let (view, mut state) = (self.view.get(), self.state.lock());
            let State { under_way, copying, .. } = &mut *state;
            under_way.retain(|copy, made| {
                let is_there = view.sessions.session(now, made.node) == Some(made.session);
                if !is_there {
                    copying.done(now, *copy, false);
                    lost.push(*made);
                } else if now.since(made.told) >= AGAIN {
                    made.told = now;
                    again.push((made.node, made.done.store, made.order(*copy)));
                }
                is_there
            });
        }
        for made in lost {
            self.failed(&made, "the session of the target store's server has ended".into());
        }
        for (node, store, order) in again {
            self.world.tell_store(node, store, order);
        }
    }

    /// The missing replicas of online stores, from the next page that has some. Also returns where that page ends, unless it is the last.
    fn missing_copies(
        self: &Arc<Self>,
        after: Option<(GroupId, ObjectId)>,
        now: Time,
    ) -> Result<MissingReplicaPage, NsError> {
        let mut found = self.missing_of_page(after, now)?;
        for _ in 1..PAGES {
            if found.end.is_none() || !found.missing.is_empty() {
                break;
            }
            found = self.missing_of_page(found.end, now)?;
        }
        Ok(found)
    }

    fn missing_of_page(
        self: &Arc<Self>,
        after: Option<(GroupId, ObjectId)>,
        now: Time,
    ) -> Result<MissingReplicaPage, NsError> {
        let page = self.names.read(|read| namespace::missing_in_all_groups(read, after, PAGE))?;
        let end = page.last().filter(|_| page.len() == PAGE).map(|(group, object, _)| (*group, *object));
        let mut missing = Vec::new();
        self.compare_failures(after, end, &page);
        self.forgive(&page);
        for (group, object, stores) in page {
            let to: Vec<StoreId> = {
                let (view, groups) = (self.view.get(), self.coordinator.groups());
                // A store that is leaving a group gets nothing more.
                let stays =
                    |store: &StoreId| groups.is_missing(&view.servers, group, *store) && view.is_online(now, *store);
                stores.into_iter().filter(stays).collect()
            };
            if to.is_empty() {
                continue;
            }
            let (at_rest, holders) = self.names.read(|read| {
                Ok::<_, NsError>((namespace::at_rest(read, group, object)?, namespace::holders(read, group, object)?))
            })?;
            // Skip objects that are being written: their replicas count as missing only afterwards. Skip objects that no online store has, so that
            // they take no other copy's turn.
            let Some(AtRest { len, .. }) = at_rest else { continue };
            if !Self::sources(&self.view.get(), now, holders).is_empty() {
                missing.extend(to.into_iter().map(|to| MissingReplica { group, object, to, len }));
            }
        }
        Ok(MissingReplicaPage { missing, end })
    }

    /// Forgets failures to make replicas that are not missing any more.
    fn compare_failures(
        &self,
        after: Option<(GroupId, ObjectId)>,
        end: Option<(GroupId, ObjectId)>,
        page: &[(GroupId, ObjectId, Vec<StoreId>)],
    ) {
        let view = self.view.get();
        let mut state = self.state.lock();
        if state.failures.len() == 0 {
            return;
        }
        let groups = self.coordinator.groups();
        let stores = |(group, object, stores): &(GroupId, ObjectId, Vec<StoreId>)| {
            let (group, object) = (*group, *object);
            let missing = stores.iter().filter(|store| groups.is_missing(&view.servers, group, **store));
            missing.map(|store| (group, object, *store)).collect::<Vec<Missing>>()
        };
        let missing: BTreeSet<Missing> = page.iter().flat_map(stores).collect();
        state.failures.compare(after, end, |one| missing.contains(one));
    }

    /// Removes the missing replicas of stores that have left. The step that removed the store could not do so ([`namespace::LeaveGroup`]).
    fn forgive(self: &Arc<Self>, page: &[(GroupId, ObjectId, Vec<StoreId>)]) {
        let mut left: BTreeMap<GroupId, Vec<ObjectId>> = BTreeMap::new();
        {
            let groups = self.coordinator.groups();
            for (group, object, stores) in page {
                if !stores.iter().all(|store| groups.is_member(*group, *store)) {
                    left.entry(*group).or_default().push(*object);
                }
            }
        }
        for (group, objects) in left {
            let op = DropMissingReplicas { group, objects };
            self.names.change_as_manager(self.world.wall(), Durability::Written, op, move |result| {
                if let Err(error) = result {
                    tracing::error!(%group, %error, "missing replicas of stores that have left cannot be removed from the list");
                }
            });
        }
    }

    /// The holders that an object can be copied from. A store that is online but removed as lost serves only if no other holder exists.
    fn sources(view: &ClusterView, now: Time, mut holders: Vec<StoreId>) -> Vec<StoreId> {
        holders.retain(|store| view.is_online(now, *store));
        let (removed_as_lost, others): (Vec<_>, Vec<_>) =
            holders.into_iter().partition(|store| view.servers.is_removed_as_lost(*store));
        if others.is_empty() { removed_as_lost } else { others }
    }

    fn copy(&self, now: Time, copy: CopyId, missing: &MissingReplica) -> Option<()> {
        let MissingReplica { group, object, to, .. } = *missing;
        // Do not repeat a copy that is finished or about to be recorded. An object without a checksum would be copied again whatever the target has.
        if self.state.lock().counting.contains(&(object, to)) {
            return None;
        }
        let (at_rest, holders, missing) = self
            .names
            .read(|read| {
                let at_rest = namespace::at_rest(read, group, object)?;
                Ok((at_rest, namespace::holders(read, group, object)?, namespace::missing_of(read, group, object)?))
            })
            .ok()?;
        if !missing.contains(&to) {
            return None;
        }
        let AtRest { len, sums, is_whole, epoch, state: of } = at_rest?;
        let view = self.view.get();
        // Take another source each time: one source may be damaged, and that shows only when it is read.
        let sources = Self::sources(&view, now, holders);
        let from = *sources.get(usize::try_from(self.world.random() % sources.len().max(1) as u64).ok()?)?;
        let node = view.node_of(to)?;
        let session = view.sessions.session(now, node)?;
        let original = match sums {
            Some(Sums { crc32c, adler32 }) => Original::Whole(ObjectDigest { len, crc32c, adler32 }),
            None => Original::Kept { len, was_whole: is_whole },
        };
        let done = CopyDone { group, object, state: of, store: to };
        let under_way =
            CopyUnderWay { done, from, node, session, epoch: Epoch(epoch), original, since: now, told: now };
        let order = under_way.order(copy);
        self.state.lock().under_way.insert(copy, under_way);
        self.world.tell_store(node, to, order);
        Some(())
    }

    /// A store reports the end of a copy.
    pub(crate) fn ended(
        self: &Arc<Self>,
        from: (NodeId, StoreId),
        session: SessionId,
        copy: CopyId,
        result: Result<(), CopyFailure>,
    ) {
        let made = {
            let mut state = self.state.lock();
            let is_it = |made: &CopyUnderWay| (made.node, made.done.store) == from && made.session == session;
            if !state.under_way.get(&copy).is_some_and(is_it) {
                return;
            }
            let made = state.under_way.remove(&copy);
            state
                .counting
                .extend(made.iter().filter(|_| result.is_ok()).map(|made| (made.done.object, made.done.store)));
            made
        };
        let Some(made) = made else { return };
        // Its server compares as many replicas with their originals as it may at a time. Nothing has failed.
        if result == Err(CopyFailure::Target(ErrorCode::Overloaded)) {
            return self.state.lock().copying.put_off(self.world.now(), copy);
        }
        if let Err(why) = result {
            self.failed(&made, why.to_string());
            return self.state.lock().copying.done(self.world.now(), copy, false);
        }
        let this = Arc::clone(self);
        self.names.change_as_manager(self.world.wall(), Durability::Synced, made.done, move |result| {
            let (now, mut next) = (this.world.now(), Vec::new());
            {
                let mut state = this.state.lock();
                state.counting.remove(&(made.done.object, made.done.store));
                state.copying.done(now, copy, result.is_ok());
                if result.is_ok() {
                    let bytes = made.original.len();
                    state.failures.remove(made.missing());
                    state.throughput.add(made.since, now, bytes);
                    state.finished = (state.finished.0 + 1, state.finished.1.saturating_add(bytes));
                    state.copying.go_on(now, &mut next);
                }
            }
            match result {
                Ok(()) => this.known_damage.replaced(made.done.store, made.done.object),
                Err(error) => this.failed(&made, format!("the namespace does not record it: {error}")),
            }
            this.carry_out(now, next);
        });
    }

    /// Logs a copy that has ended without a replica, and remembers it until the replica is made.
    fn failed(&self, made: &CopyUnderWay, why: String) {
        let view = self.view.get();
        tracing::warn!(
            object = %made.done.object, from = %view.servers.shown(made.from), to = %view.servers.shown(made.done.store), why,
            "a replica could not be made; repair tries again",
        );
        self.state.lock().failures.add(made.missing(), made.from, why);
    }
}
