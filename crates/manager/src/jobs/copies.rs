//! Copies missing replicas at a bounded rate.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster::message::{Original, ToStore};
use cluster::replication::{Epoch, ObjectDigest};
use cluster::{CopyEffect, CopyId, CopyRate, Copying, MissingReplica, MissingReplicaPage, Time};
use namespace::{AtRest, CopyDone, DropMissingReplicas, Durability, NsError, Sums};
use types::{GroupId, NodeId, ObjectId, ReplicaId, SessionId, StoreId};

use crate::Manager;
use crate::coordinator::ClusterView;

/// Objects with missing replicas that are examined at a time.
const PAGE: usize = 256;
/// The number of such pages to examine if none of them can be copied. Replicas of lost files stay missing.
const PAGES: usize = 4;

/// An unanswered order is repeated after this time. The connection may have lost the answer.
const AGAIN: Duration = Duration::from_secs(10);

/// The state of this job.
pub(crate) struct Copies {
    copying: Copying,
    under_way: BTreeMap<CopyId, CopyUnderWay>,
    /// Finished copies that are just being recorded.
    counting: BTreeSet<(ObjectId, StoreId)>,
    copied: Copied,
}

/// A copy in progress.
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
    /// When the order was last sent.
    told: Time,
}

impl CopyUnderWay {
    fn order(&self, copy: CopyId) -> ToStore {
        let Self { done, from, session, epoch, original, .. } = *self;
        ToStore::Copy { copy, session, replica: ReplicaId::first(done.object), epoch, original, from }
    }
}

/// A copy that failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailedCopy {
    pub(crate) group: GroupId,
    pub(crate) object: ObjectId,
    /// The source store.
    pub(crate) from: StoreId,
    /// The target store.
    pub(crate) to: StoreId,
}

/// Repair work since the manager started.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Copied {
    /// Finished copies.
    pub(crate) copies: u64,
    /// Bytes of those copies.
    pub(crate) bytes: u64,
    /// Copies that failed. They have been tried again, or will be.
    pub(crate) failed: u64,
    /// The latest failed copy.
    pub(crate) last_failed: Option<FailedCopy>,
}

impl Copies {
    pub(crate) fn new(now: Time, rate: CopyRate) -> Self {
        Self {
            copying: Copying::new(now, rate),
            under_way: BTreeMap::new(),
            counting: BTreeSet::new(),
            copied: Copied::default(),
        }
    }

    pub(crate) fn set_bytes_per_second(&mut self, bytes_per_second: u64) {
        self.copying.set_bytes_per_second(bytes_per_second);
    }
}

impl Manager {
    /// Repair work since the manager started.
    pub(crate) fn copied_so_far(&self) -> Copied {
        self.copies.lock().copied
    }

    /// The number of copies in progress.
    pub(crate) fn copies_under_way(&self) -> usize {
        self.copies.lock().under_way.len()
    }

    /// Whether a copy of this object to this store is in progress.
    pub(crate) fn is_being_copied(&self, object: ObjectId, store: StoreId) -> bool {
        self.copies.lock().under_way.values().any(|made| (made.done.object, made.done.store) == (object, store))
    }

    pub(crate) fn copy_missing_replicas(self: &Arc<Self>, now: Time) {
        self.mind_copies(now);
        let mut out = Vec::new();
        self.copies.lock().copying.tick(now, &mut out);
        self.do_copies(now, out);
    }

    fn do_copies(self: &Arc<Self>, now: Time, effects: Vec<CopyEffect>) {
        for effect in effects {
            match effect {
                CopyEffect::Look(after) => {
                    let page = self.missing_copies(after, now).unwrap_or_else(|error| {
                        tracing::error!(%error, "cannot read the missing replicas");
                        MissingReplicaPage::default()
                    });
                    self.copies.lock().copying.found(now, page);
                }
                CopyEffect::GiveUp(copy) => drop(self.copies.lock().under_way.remove(&copy)),
                CopyEffect::Make(copy, missing) => {
                    if self.copy(now, copy, &missing).is_none() {
                        self.copies.lock().copying.done(now, copy, false);
                    }
                }
            }
        }
    }

    /// Forgets orders from sessions that have ended: the servers have forgotten them too, and their answers would not count. Repeats the other orders
    /// in time.
    fn mind_copies(&self, now: Time) {
        let mut again = Vec::new();
        {
            let (view, mut copies) = (self.view(), self.copies.lock());
            let Copies { under_way, copying, .. } = &mut *copies;
            under_way.retain(|copy, made| {
                let is_there = view.sessions.session(now, made.node) == Some(made.session);
                if !is_there {
                    copying.done(now, *copy, false);
                } else if now.since(made.told) >= AGAIN {
                    made.told = now;
                    again.push((made.node, made.done.store, made.order(*copy)));
                }
                is_there
            });
        }
        for (node, store, order) in again {
            self.tell_store(node, store, order);
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
        self.forgive(&page);
        for (group, object, stores) in page {
            let to: Vec<StoreId> = {
                let (view, groups) = (self.view(), self.coordinator.groups());
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
            if !Self::sources(&self.view(), now, holders).is_empty() {
                missing.extend(to.into_iter().map(|to| MissingReplica { group, object, to, len }));
            }
        }
        Ok(MissingReplicaPage { missing, end })
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
            self.change(Durability::Written, DropMissingReplicas { group, objects }, move |result| {
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
        if self.copies.lock().counting.contains(&(object, to)) {
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
        let view = self.view();
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
        let under_way = CopyUnderWay { done, from, node, session, epoch: Epoch(epoch), original, told: now };
        let order = under_way.order(copy);
        self.copies.lock().under_way.insert(copy, under_way);
        self.tell_store(node, to, order);
        Some(())
    }

    /// A store reports whether its copy succeeded.
    pub(crate) fn copied(self: &Arc<Self>, from: (NodeId, StoreId), session: SessionId, copy: CopyId, is_there: bool) {
        let made = {
            let mut copies = self.copies.lock();
            let is_it = |made: &CopyUnderWay| (made.node, made.done.store) == from && made.session == session;
            if !copies.under_way.get(&copy).is_some_and(is_it) {
                return;
            }
            let made = copies.under_way.remove(&copy);
            copies.counting.extend(made.iter().filter(|_| is_there).map(|made| (made.done.object, made.done.store)));
            made
        };
        let Some(CopyUnderWay { done, from: source, original, .. }) = made else { return };
        let this = Arc::clone(self);
        if !is_there {
            let now = self.world.now();
            let view = self.view();
            tracing::warn!(
                object = %done.object, from = %view.servers.shown(source), to = %view.servers.shown(done.store),
                "a replica could not be made; repair tries again",
            );
            let mut copies = self.copies.lock();
            copies.copied.failed = copies.copied.failed.saturating_add(1);
            copies.copied.last_failed =
                Some(FailedCopy { group: done.group, object: done.object, from: source, to: done.store });
            return copies.copying.done(now, copy, false);
        }
        self.change(Durability::Synced, done, move |result| {
            let (now, mut next) = (this.world.now(), Vec::new());
            {
                let mut copies = this.copies.lock();
                copies.counting.remove(&(done.object, done.store));
                copies.copying.done(now, copy, result.is_ok());
                if result.is_ok() {
                    copies.copied.copies += 1;
                    copies.copied.bytes = copies.copied.bytes.saturating_add(original.len());
                    copies.copying.go_on(now, &mut next);
                }
            }
            this.do_copies(now, next);
        });
    }
}
