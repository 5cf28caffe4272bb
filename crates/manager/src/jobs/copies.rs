//! Copies that are owed are made, at a bounded rate.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster::message::{Original, ToStore};
use cluster::replication::{Epoch, ObjectDigest};
use cluster::{CopyEffect, CopyId, CopyRate, Copying, MissingReplica, MissingReplicaPage, Time};
use namespace::{AtRest, CopyDone, Durability, ForgiveMissingReplica, NsError, Sums};
use types::{GroupId, NodeId, ObjectId, ReplicaId, SessionId, StoreId};

use crate::Manager;
use crate::coordinator::ClusterView;

/// Contents to which copies are owed that are looked through at a time.
const PAGE: usize = 256;
/// So many times that, where none of them can be copied: what was lost stays owed.
const PAGES: usize = 4;

/// Orders of which nothing was heard are given again after this: that a copy is there may have been said over a connection that was lost.
const AGAIN: Duration = Duration::from_secs(10);

/// The state of this job.
pub(crate) struct Copies {
    copying: Copying,
    under_way: BTreeMap<CopyId, CopyUnderWay>,
    /// Copies that are there, and are just being written down.
    counting: BTreeSet<(ObjectId, StoreId)>,
    copied: Copied,
}

/// A copy that is being made.
struct CopyUnderWay {
    done: CopyDone,
    /// Whose copy it is a copy of.
    from: StoreId,
    /// Who was told.
    node: NodeId,
    /// In which session of it.
    session: SessionId,
    /// Of the content's last writer.
    epoch: Epoch,
    /// What it is a copy of.
    original: Original,
    /// When its order was given last.
    told: Time,
}

impl CopyUnderWay {
    fn order(&self, copy: CopyId) -> ToStore {
        let Self { done, from, session, epoch, original, .. } = *self;
        ToStore::Copy { copy, session, replica: ReplicaId::first(done.object), epoch, original, from }
    }
}

/// A copy that came to nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailedCopy {
    /// The group.
    pub(crate) group: GroupId,
    /// The content.
    pub(crate) object: ObjectId,
    /// Who was to be read.
    pub(crate) from: StoreId,
    /// Who was to get it.
    pub(crate) to: StoreId,
}

/// What was made since the manager began.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Copied {
    /// Copies that are there.
    pub(crate) copies: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Copies that could not be made, and were or are tried again.
    pub(crate) failed: u64,
    /// The latest of them.
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
    /// What was made since the manager began.
    pub(crate) fn copied_so_far(&self) -> Copied {
        self.copies.lock().copied
    }

    /// How many copies are just being made.
    pub(crate) fn copies_under_way(&self) -> usize {
        self.copies.lock().under_way.len()
    }

    /// Whether a store is just being given its copy.
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

    /// What was ordered in a session that is over is forgotten there, and what is said of it would not count; the others are asked again by and by.
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

    /// What is owed to stores that are there, of the next page where there is something, and where that ends unless there is no more.
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
                // Who leaves a group gets nothing any more.
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
            // What is written just now is owed later, and what nobody has who is there takes no other copy's turn.
            let Some(AtRest { len, .. }) = at_rest else { continue };
            if !Self::sources(&self.view(), now, holders).is_empty() {
                missing.extend(to.into_iter().map(|to| MissingReplica { group, object, to, len }));
            }
        }
        Ok(MissingReplicaPage { missing, end })
    }

    /// Some was owed to stores that have left, and could not be forgiven with that ([`namespace::LeaveGroup`]).
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
            self.change(Durability::Written, ForgiveMissingReplica { group, objects }, move |result| {
                if let Err(error) = result {
                    tracing::error!(%group, %error, "missing replicas of stores that have left cannot be removed from the list");
                }
            });
        }
    }

    /// Of those that hold a content whoever it can be copied from: one that was given up, and is there all the same, where nobody else has it.
    fn sources(view: &ClusterView, now: Time, mut holders: Vec<StoreId>) -> Vec<StoreId> {
        holders.retain(|store| view.is_online(now, *store));
        let (removed_as_lost, others): (Vec<_>, Vec<_>) =
            holders.into_iter().partition(|store| view.servers.is_removed_as_lost(*store));
        if others.is_empty() { removed_as_lost } else { others }
    }

    fn copy(&self, now: Time, copy: CopyId, missing: &MissingReplica) -> Option<()> {
        let MissingReplica { group, object, to, .. } = *missing;
        // A copy that counts, or is just about to, is not begun anew: what has no checksum would be made again whatever is there.
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
        // Any of them, another one each time: what one has may be damaged, which is found when it is read.
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

    /// A store has its copy, or not.
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
