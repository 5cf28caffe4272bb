//! Asks disk servers for pages of their stores' inventories, and waits for the answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use node::{FromManager, INVENTORY_MAX, Inventory, InventoryRequest, ORIGINS_MAX, StoredReplica};
use types::{ErrorCode, NodeId, ReplicaId, StoreId};

use crate::World;
use crate::coordinator::PublishedView;
use crate::tracked::Tracked;

/// How long to wait for an answer before the question is repeated.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a question is asked.
const TRIES: usize = 3;
/// The most questions that wait at a time.
const WAITING_MAX: usize = 64;

/// The questions that wait for an answer.
pub(crate) struct Inventories {
    view: PublishedView,
    world: Arc<dyn World>,
    state: Tracked<State>,
}

struct State {
    last: u64,
    waiting: BTreeMap<u64, (NodeId, SyncSender<Result<Inventory, ErrorCode>>)>,
}

/// Replicas of a store, in order.
pub(crate) struct InventoryPage {
    pub(crate) replicas: Vec<StoredReplica>,
    /// The store has no more.
    pub(crate) is_last: bool,
}

/// Why a store's inventory is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NoInventory {
    /// Its server is away, or runs without the store.
    #[error("it is offline")]
    Offline,
    /// Its server did not answer.
    #[error("its server does not answer")]
    Silent,
    /// The server cannot read the store's index.
    #[error("its server cannot list its replicas; its log says why")]
    Unreadable,
    /// Other commands wait for inventories.
    #[error("too many checks run at the same time")]
    TooMany,
}

impl Inventories {
    pub(crate) fn new(view: PublishedView, world: Arc<dyn World>) -> Self {
        // A random number separates this manager's questions from those of an earlier run.
        let state = State { last: world.random(), waiting: BTreeMap::new() };
        Self { view, world, state: Tracked::new(state) }
    }

    /// The replicas of a store after `after`, in order. Waits for the store's server, so only a thread of an administrator's command may call this.
    pub(crate) fn page(&self, store: StoreId, after: Option<ReplicaId>) -> Result<InventoryPage, NoInventory> {
        let Inventory::Replicas { mut replicas, is_last } = self.ask(store, &InventoryRequest::After(after))? else {
            return Err(NoInventory::Unreadable);
        };
        replicas.truncate(INVENTORY_MAX);
        // What is not in order would hide replicas, and a page without replicas would come again for ever.
        let is_after = |one: &StoredReplica| after.is_none_or(|after| after < one.replica);
        let in_order = replicas.is_sorted_by(|one, next| one.replica < next.replica);
        if in_order && replicas.iter().all(is_after) && (is_last || !replicas.is_empty()) {
            Ok(InventoryPage { replicas, is_last })
        } else {
            Err(NoInventory::Unreadable)
        }
    }

    /// Under which paths these replicas of a store were made, in their order. Empty: unknown. Waits as [`Self::page`] does.
    pub(crate) fn origins(&self, store: StoreId, replicas: &[ReplicaId]) -> Result<Vec<Vec<u8>>, NoInventory> {
        let mut all = Vec::with_capacity(replicas.len());
        for some in replicas.chunks(ORIGINS_MAX) {
            match self.ask(store, &InventoryRequest::Origins(some.to_vec()))? {
                Inventory::Origins(origins) if origins.len() == some.len() => all.extend(origins),
                _ => return Err(NoInventory::Unreadable),
            }
        }
        Ok(all)
    }

    fn ask(&self, store: StoreId, request: &InventoryRequest) -> Result<Inventory, NoInventory> {
        for _ in 0..TRIES {
            let view = self.view.get();
            let is_online = view.is_online(self.world.now(), store) && view.is_up(&*self.world, store);
            let node = view.node_of(store).filter(|_| is_online).ok_or(NoInventory::Offline)?;
            let (sender, receiver) = sync_channel(1);
            let number = {
                let mut state = self.state.lock();
                if state.waiting.len() >= WAITING_MAX {
                    return Err(NoInventory::TooMany);
                }
                state.last = state.last.wrapping_add(1);
                let number = state.last;
                state.waiting.insert(number, (node, sender));
                number
            };
            self.world.send(node, FromManager::Inventory { number, store, request: request.clone() });
            let answer = receiver.recv_timeout(PATIENCE);
            self.state.lock().waiting.remove(&number);
            match answer {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err(_)) => return Err(NoInventory::Unreadable),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
        Err(NoInventory::Silent)
    }

    /// A disk server answers.
    pub(crate) fn answered(&self, node: NodeId, number: u64, found: Result<Inventory, ErrorCode>) {
        let mut state = self.state.lock();
        // Ignore answers of nodes that were not asked.
        if state.waiting.get(&number).is_none_or(|(asked, _)| *asked != node) {
            return;
        }
        if let Some((_, sender)) = state.waiting.remove(&number) {
            // Nobody waits for a late answer.
            let _ = sender.try_send(found);
        }
    }
}
