//! Some decisions wait until certain stores have surely stopped serving an object:
//! - another store becomes the primary;
//! - a file is changed in place while one of its holders is away;
//! - a store is left out of such a change.

use std::sync::Arc;

use cluster::message::ToStore;
use cluster::replication::Epoch;
use cluster::{Fence, FenceId, Time};
use namespace::{Durability, Inode, NsError, SetInSyncReplicas, WriterKind, WriterRecord, WriterToken};
use types::{ErrorCode, InSyncReplica, NodeId, ReplicaId, StoreId};

use super::{Coordinator, CoordinatorState};
use crate::names::{Names, answer_to};

/// Called when all stores have stopped.
type Then = Box<dyn FnOnce(Option<Ended>) + Send>;

/// A decision that waits, and the fences that it waits for.
pub(super) struct Waiting {
    replica: ReplicaId,
    stores: Vec<StoreId>,
    fences: Vec<(FenceId, bool)>,
    after: After,
}

enum After {
    Opening(Then),
    Place(Placing),
}

/// Fences that a decision has waited for. While this value exists, nobody gets a capability to read the replica, and no
/// other store is confirmed as its primary.
pub(crate) struct Ended {
    coordinator: Arc<Coordinator>,
    /// The replica that they answer for no more.
    pub(crate) replica: ReplicaId,
    /// The fenced stores.
    pub(crate) stores: Vec<StoreId>,
    fences: Vec<FenceId>,
}

impl Drop for Ended {
    fn drop(&mut self) {
        if !self.fences.is_empty() {
            let mut state = self.coordinator.lock();
            let (fences, _) = state.fences_mut(true);
            self.fences.iter().for_each(|fence| fences.end(*fence));
        }
    }
}

/// A primary's request to record its in-sync replicas.
#[derive(Clone, Debug)]
pub(crate) struct Placing {
    pub(crate) node: NodeId,
    pub(crate) store: StoreId,
    pub(crate) replica: ReplicaId,
    pub(crate) writer: WriterToken,
    pub(crate) in_sync: Vec<InSyncReplica>,
    /// The open write ends without its client.
    pub(crate) is_ending: bool,
    pub(crate) request: u64,
}

/// Whether an older version of the object existed before this write. That is so for a change in place and for an interrupted file that is continued.
/// Each store that has the older version could still show it.
pub(crate) fn has_older_version(names: &Names, writer: &WriterRecord) -> Result<bool, NsError> {
    if writer.kind == WriterKind::Update {
        return Ok(true);
    }
    // The generation: a file that is continued has no record of its object meanwhile, but it was ended before.
    let (group, object) = (writer.placement.group, writer.object);
    let found = names.read(|read| {
        let inode = match namespace::stat_ino(read, writer.ino) {
            // It was removed while it was written.
            Err(NsError::NotFound(..)) => None,
            inode => Some(inode?),
        };
        Ok::<_, NsError>((namespace::object_record(read, group, object)?, inode))
    });
    let (record, inode) = found?;
    let content = inode.as_ref().and_then(Inode::content).filter(|content| content.object == object);
    Ok(record.is_some() || content.is_some_and(|content| content.generation > 0))
}

impl Coordinator {
    /// Calls `then` when none of `stores` answers for `replica` with an epoch below `epoch` any more. Without stores it calls `then` at once. It
    /// passes `None` if the server of one of the stores is unknown.
    pub(crate) fn once_fenced(
        self: &Arc<Self>,
        stores: &[StoreId],
        replica: ReplicaId,
        epoch: Epoch,
        then: impl FnOnce(Option<Ended>) + Send + 'static,
    ) {
        if stores.is_empty() {
            return then(Some(Ended {
                coordinator: Arc::clone(self),
                replica,
                stores: Vec::new(),
                fences: Vec::new(),
            }));
        }
        if let Err(After::Opening(then)) = self.wait_for(stores, replica, epoch, After::Opening(Box::new(then))) {
            then(None);
        }
    }

    /// Returns `after` if the server of one of the stores is unknown: then nobody can confirm that the store has stopped.
    fn wait_for(&self, stores: &[StoreId], replica: ReplicaId, epoch: Epoch, after: After) -> Result<(), After> {
        let now = self.world.now();
        let mut tell = Vec::new();
        {
            let mut state = self.lock();
            let nodes: Option<Vec<_>> = stores.iter().map(|store| Some((state.node_of(*store)?, *store))).collect();
            let Some(nodes) = nodes else { return Err(after) };
            let (fences, sessions) = state.fences_mut(true);
            let mut begin = |of| (fences.begin(now, sessions, of, replica, epoch, &mut tell), false);
            let fences = nodes.into_iter().map(&mut begin).collect();
            state.waiting.push(Waiting { replica, stores: stores.to_vec(), fences, after });
        }
        self.tell_fences(tell);
        Ok(())
    }

    fn tell_fences(&self, fences: Vec<Fence>) {
        for fence in fences {
            self.world.tell_store(fence.node, fence.store, ToStore::Fence(fence));
        }
    }

    /// Ends the fences of stores whose session has ended. Tells the other stores again.
    pub(crate) fn look_at_fences(self: &Arc<Self>, now: Time) {
        let mut tell = Vec::new();
        let there = {
            let mut state = self.lock();
            let (fences, sessions) = state.fences_mut(false);
            fences.look(now, sessions, &mut tell)
        };
        self.tell_fences(tell);
        for fence in there {
            self.is_there(fence);
        }
    }

    /// A node confirms a fence.
    pub(crate) fn fenced(self: &Arc<Self>, fence: &Fence) {
        let is_news = self.lock().fences_mut(false).0.answered(fence);
        if is_news {
            self.is_there(fence.fence);
        }
    }

    /// Marks a fence as confirmed. The decision that waits for it goes on once all its fences are confirmed.
    fn is_there(self: &Arc<Self>, fence: FenceId) {
        let Waiting { replica, stores, fences, after } = {
            let state: &mut CoordinatorState = &mut self.lock();
            let waits = |waiting: &Waiting| waiting.fences.iter().any(|(id, _)| *id == fence);
            let Some(at) = state.waiting.iter().position(waits) else { return };
            let waiting = &mut state.waiting[at];
            waiting.fences.iter_mut().filter(|(id, _)| *id == fence).for_each(|(_, is_there)| *is_there = true);
            if !waiting.fences.iter().all(|(_, is_there)| *is_there) {
                return;
            }
            state.waiting.remove(at)
        };
        let ended = Ended {
            coordinator: Arc::clone(self),
            replica,
            stores,
            fences: fences.into_iter().map(|(id, _)| id).collect(),
        };
        match after {
            After::Opening(then) => then(Some(ended)),
            After::Place(placing) => self.record_in_sync(placing, Some(ended)),
        }
    }

    /// A primary names its in-sync replicas. A store that is left out and could show the older version must stop doing so first.
    pub(crate) fn place(self: &Arc<Self>, placing: Placing) {
        {
            let mut state = self.lock();
            if state.fences.guards(placing.replica) {
                // The same request again: only the latest one is answered.
                for waiting in &mut state.waiting {
                    if let After::Place(before) = &mut waiting.after
                        && (before.replica, before.writer, before.store)
                            == (placing.replica, placing.writer, placing.store)
                        && (&before.in_sync, before.is_ending) == (&placing.in_sync, placing.is_ending)
                    {
                        before.request = placing.request;
                    }
                }
                return;
            }
        }
        let writer = self.names.read(|read| namespace::writer_of(read, placing.writer.key, placing.writer.object));
        let writer = match writer {
            Ok(writer) => writer.filter(|writer| writer.token() == placing.writer),
            // The primary asks again.
            Err(error) => return tracing::error!(%error, "cannot read the open writes"),
        };
        // A store that is not the primary cannot have other stores fenced. It cannot have anything recorded in another store's name either.
        let says = placing.in_sync.first().map(|one| one.store);
        let may_say = |writer: &WriterRecord| {
            writer.replica() == placing.replica && writer.primary().is_some_and(|one| one.store == placing.store)
        };
        if says != Some(placing.store) || writer.as_ref().is_some_and(|writer| !may_say(writer)) {
            return self.tell_placed(&placing, Err(ErrorCode::Stale));
        }
        let has_older_version = writer.as_ref().map_or(Ok(false), |writer| has_older_version(&self.names, writer));
        let left_out: Vec<StoreId> = match (&writer, has_older_version) {
            (Some(writer), Ok(true)) => {
                let before = writer.placement.in_sync.iter().map(|one| one.store);
                before.filter(|store| placing.in_sync.iter().all(|one| one.store != *store)).collect()
            }
            (_, Ok(_)) => Vec::new(),
            // The primary asks again.
            (_, Err(error)) => return tracing::error!(%error, "cannot read the open writes"),
        };
        if left_out.is_empty() {
            self.record_in_sync(placing, None);
        } else {
            let (replica, epoch) = (placing.replica, Epoch(placing.writer.epoch));
            // If a server is unknown, the primary asks again.
            let _ = self.wait_for(&left_out, replica, epoch, After::Place(placing));
        }
    }

    fn record_in_sync(self: &Arc<Self>, placing: Placing, ended: Option<Ended>) {
        let Placing { writer, ref in_sync, is_ending, .. } = placing;
        let op = SetInSyncReplicas { writer, in_sync: in_sync.clone(), takes_over: false, is_ending };
        let this = Arc::clone(self);
        self.names.change_as_manager(self.world.wall(), Durability::Synced, op, move |result| {
            if let Some(result) = answer_to(result.map(drop)) {
                this.tell_placed(&placing, result);
            }
            drop(ended);
        });
    }

    /// Answers a primary's request to record its in-sync replicas.
    pub(crate) fn tell_placed(&self, placing: &Placing, result: Result<(), ErrorCode>) {
        let Placing { node, store, replica, writer, request, .. } = *placing;
        self.world.tell_store(node, store, ToStore::Placed { replica, epoch: Epoch(writer.epoch), request, result });
    }
}
