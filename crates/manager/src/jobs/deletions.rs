//! Deletes objects that nobody needs from their stores. An entry leaves the queue when all stores of its group have answered. The job does not wait
//! for stores that are away. Their deletions stay in the queue, and the job goes through the queue again. So do those of objects that a restored
//! namespace [holds](Hold): a name that it lost may be the one that refers to such an object now.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster::Time;
use cluster::message::{REPLICAS_MAX, ToStore};
use namespace::{DeletionDone, DueDeletion, Durability};
use types::{GroupId, ObjectId, ReplicaId, StoreId};

use crate::World;
use crate::coordinator::{Coordinator, PublishedView};
use crate::hold::Hold;
use crate::names::Names;
use crate::tracked::Tracked;

/// Deletions in progress at a time.
const UNDER_WAY_MAX: usize = 1024;
/// How often stores are told again. Also the least time between two passes over the queue for stores that are away.
const AGAIN: Duration = Duration::from_secs(10);
/// How often the job reads the queue.
const LOOK: Duration = Duration::from_millis(500);

/// See the module.
pub(crate) struct Deletions {
    names: Names,
    view: PublishedView,
    world: Arc<dyn World>,
    hold: Arc<Hold>,
    state: Tracked<State>,
}

#[derive(Default)]
struct State {
    /// The stores that have not answered yet, for each deletion.
    waiting: BTreeMap<ObjectId, (DueDeletion, BTreeSet<StoreId>)>,
    next_look: Time,
    next_telling: Time,
    /// The last entry that was examined in this pass.
    looked: Option<DueDeletion>,
    /// When the next pass may start.
    next_round: Time,
}

impl Deletions {
    pub(crate) fn new(names: Names, world: Arc<dyn World>, coordinator: &Coordinator, hold: Arc<Hold>) -> Self {
        Self { names, view: coordinator.published(), world, hold, state: Tracked::default() }
    }

    /// Has the due objects deleted.
    pub(crate) fn tick(&self, now: Time) {
        let (after, room, tells_all) = {
            let (view, mut state) = (self.view.get(), self.state.lock());
            if now < state.next_look {
                return;
            }
            let awaited = state.waiting.values().flat_map(|(_, stores)| stores.iter().copied());
            let mut away: BTreeSet<StoreId> = awaited.collect();
            away.retain(|store| !view.is_online(now, *store));
            state.next_look = now + LOOK;
            let before = state.waiting.len();
            state.waiting.retain(|_, (_, stores)| !stores.is_subset(&away));
            if state.waiting.len() < before {
                state.next_round = now + AGAIN;
            }
            let tells_all = now >= state.next_telling;
            if tells_all {
                state.next_telling = now + AGAIN;
            }
            let is_to_wait = state.looked.is_none() && now < state.next_round;
            let room = if is_to_wait { 0 } else { UNDER_WAY_MAX - state.waiting.len() };
            (state.looked, room, tells_all)
        };
        let found = self.names.read(|read| {
            let due = namespace::due_deletions(read, after, room)?;
            let with_stores = |due: DueDeletion| {
                let members = namespace::group(read, due.group)?.map(|group| group.members).unwrap_or_default();
                Ok((due, members.iter().map(|member| member.store).collect::<BTreeSet<_>>()))
            };
            due.into_iter().map(with_stores).collect::<Result<Vec<_>, namespace::NsError>>()
        });
        let found = match found {
            Ok(found) => found,
            Err(error) => return tracing::error!(%error, "cannot read which objects are to be deleted"),
        };
        let mut nowhere = Vec::new();
        let mut tell: BTreeMap<StoreId, Vec<ReplicaId>> = BTreeMap::new();
        {
            let mut state = self.state.lock();
            // Start over when all entries were examined.
            if room > 0 {
                state.looked = if found.len() < room { None } else { found.last().map(|(due, _)| *due) };
            }
            for (due, stores) in found {
                if self.hold.holds(due.object) {
                    state.next_round = now + AGAIN;
                    continue;
                }
                if stores.is_empty() {
                    nowhere.push(due);
                } else if let Entry::Vacant(location) = state.waiting.entry(due.object) {
                    stores.iter().for_each(|store| tell.entry(*store).or_default().push(ReplicaId::first(due.object)));
                    location.insert((due, stores));
                }
            }
            if tells_all {
                tell.clear();
                for (object, (_, stores)) in &state.waiting {
                    stores.iter().for_each(|store| tell.entry(*store).or_default().push(ReplicaId::first(*object)));
                }
            }
        }
        for (store, replicas) in tell {
            let Some(node) = self.view.get().node_of(store) else { continue };
            for some in replicas.chunks(REPLICAS_MAX) {
                self.world.tell_store(node, store, ToStore::Delete { replicas: some.to_vec(), exist_elsewhere: false });
            }
        }
        self.are_deleted(nowhere);
    }

    /// A store has left its group: the job no longer waits for its answer.
    pub(crate) fn forget_member(&self, group: GroupId, store: StoreId) {
        let mut done = Vec::new();
        self.state.lock().waiting.retain(|_, (due, stores)| {
            let is_it = due.group == group && stores.remove(&store);
            if is_it && stores.is_empty() {
                done.push(*due);
                return false;
            }
            true
        });
        self.are_deleted(done);
    }

    /// A store has deleted these replicas.
    pub(crate) fn deleted(&self, store: StoreId, replicas: &[ReplicaId]) {
        let mut done = Vec::new();
        {
            let mut state = self.state.lock();
            for replica in replicas {
                let Some((due, stores)) = state.waiting.get_mut(&replica.object) else { continue };
                stores.remove(&store);
                if stores.is_empty() {
                    done.push(*due);
                    state.waiting.remove(&replica.object);
                }
            }
        }
        self.are_deleted(done);
    }

    fn are_deleted(&self, done: Vec<DueDeletion>) {
        if done.is_empty() {
            return;
        }
        self.names.change_as_manager(self.world.wall(), Durability::Written, DeletionDone { done }, |result| {
            if let Err(error) = result {
                // They are still in the queue, and the stores are told again.
                tracing::warn!(%error, "deletions cannot be taken off the queue");
            }
        });
    }
}
