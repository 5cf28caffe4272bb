//! One store of a disk server: its machine, its replicas in use, and the callers that wait for answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cluster::message::BetweenStores;
use cluster::server::{Effect, Input, Note, PartTerms, StorePart, Work};
#[cfg(any(test, feature = "planted"))]
use cluster::server::{Found, WorkPurpose, WorkResult};
use parking_lot::Mutex;
use store::Store;
use types::{ErrorCode, ReplicaId, StoreId};

use super::completing::Completing;
use super::damage::Damage;
use super::fullness::Fullness;
use super::replica::{Change, ChangeData, Done, Replica, ReplicaTurn};
use super::{DiskServer, Notice};
use node::{PeerMessage, StoreReport};

/// A store and its number.
#[derive(Clone)]
pub struct StoreAt {
    /// Its number.
    pub store_id: StoreId,
    /// The store.
    pub store: Arc<Store>,
}

/// Called with an answer.
pub(super) type Waiter = Box<dyn FnOnce(Result<(), ErrorCode>) + Send>;

#[derive(Default)]
struct Waiters {
    by_number: BTreeMap<u64, Waiter>,
    /// Waiting has ended for good.
    are_let_go: bool,
}

pub(super) struct StoreShell {
    pub(super) at: StoreAt,
    pub(super) machine: Mutex<StorePart<u64, Change>>,
    replicas: Mutex<BTreeMap<ReplicaId, Arc<Replica>>>,
    waiters: Mutex<Waiters>,
    numbers: AtomicU64,
    pub(super) completing: Completing,
    fullness: Fullness,
    pub(super) damage: Damage,
}

impl StoreShell {
    pub(super) fn new(at: StoreAt, terms: PartTerms) -> Self {
        Self {
            machine: Mutex::new(StorePart::new(at.store_id, terms)),
            at,
            replicas: Mutex::default(),
            waiters: Mutex::default(),
            numbers: AtomicU64::new(1),
            completing: Completing::default(),
            fullness: Fullness::default(),
            damage: Damage::default(),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn replica(&self, replica: ReplicaId) -> Arc<Replica> {
        Arc::clone(self.replicas.lock().entry(replica).or_insert_with(|| Arc::new(Replica::new(replica))))
    }

    /// Calls `waiter` with the answer to the request `number`.
    pub(super) fn wait_for(&self, number: u64, waiter: Waiter) {
        let mut waiters = self.waiters.lock();
        if waiters.are_let_go {
            drop(waiters);
            return waiter(Err(ErrorCode::Unavailable));
        }
        waiters.by_number.insert(number, waiter);
    }

    fn let_go(&self) {
        let waiting = {
            let mut waiters = self.waiters.lock();
            waiters.are_let_go = true;
            std::mem::take(&mut waiters.by_number)
        };
        for waiter in waiting.into_values() {
            waiter(Err(ErrorCode::Unavailable));
        }
    }

    /// Forgets replicas that are not in use.
    pub(super) fn forget_idle(&self) {
        self.replicas.lock().retain(|_, replica| Arc::strong_count(replica) > 1 || !replica.is_idle());
    }

    /// Replicas that are open for writing.
    pub(super) fn open_replicas(&self) -> usize {
        self.replicas.lock().values().filter(|replica| replica.is_open()).count()
    }

    /// Those of them whose primary is on another server.
    pub(super) fn replicas_written_elsewhere(&self) -> usize {
        let open: Vec<ReplicaId> =
            self.replicas.lock().iter().filter(|(_, replica)| replica.is_open()).map(|(replica, _)| *replica).collect();
        let machine = self.machine.lock();
        open.iter().filter(|replica| machine.leads(**replica).is_none()).count()
    }

    /// The store has refused data for lack of space. Returns whether that is news.
    fn says_full(&self) -> bool {
        let room = self.at.store.space().map_or(0, |space| space.free.saturating_sub(space.floor));
        self.fullness.says_full(room)
    }

    /// Reports on the store. A store that has refused data for lack of space reports no room until it has more than it
    /// had then. `load_permille` is the load of its server. If its space is unknown, the store reports no space but stays online.
    pub(super) fn report(&self, load_permille: u16) -> StoreReport {
        let space = self.at.store.space().inspect_err(|error| {
            tracing::error!(store = %self.at.store_id, %error, "cannot look at the space of a store");
        });
        let (capacity, reserve, free) = space.map_or((0, 0, 0), |space| (space.total, space.floor, space.free));
        let free = if self.fullness.is_full(capacity, free.saturating_sub(reserve)) { free.min(reserve) } else { free };
        StoreReport { store: self.at.store_id, capacity, reserve, free, load_permille }
    }
}

impl DiskServer {
    /// Fails all callers that wait, now and later: the outcome of their requests stays unknown. The connections with other nodes have ended, and only
    /// those nodes could answer.
    pub fn let_go(&self) {
        self.stores.values().for_each(|shell| shell.let_go());
        self.let_go_of_open_write_requests();
        self.let_go_of_proxy_questions();
    }

    /// Steps the machine of a store and carries out its effects. `turn`: the replica whose work the caller does itself.
    pub(super) fn step(self: &Arc<Self>, shell: &Arc<StoreShell>, input: Input<u64, Change>, turn: Option<&Replica>) {
        let mut answers = Vec::new();
        let mut kick = Vec::new();
        {
            let mut machine = shell.machine.lock();
            let now = self.world.now();
            let mut out = Vec::new();
            machine.step(now, self.view(now), input, &mut out);
            for effect in out {
                match effect {
                    Effect::ToManager(message) => self.to_manager(shell.at.store_id, message),
                    Effect::ToStore { to, message, change } => self.tell_store(shell, to, message, change),
                    Effect::Answer { to, result } => answers.push((to, result)),
                    Effect::Work { replica, by, work } => {
                        let replica = shell.replica(replica);
                        replica.push(by, work);
                        let is_own = turn.is_some_and(|own| own.replica == replica.replica);
                        if !is_own && !kick.iter().any(|known: &Arc<Replica>| known.replica == replica.replica) {
                            kick.push(replica);
                        }
                    }
                    Effect::Note(replica, Note::LeftOut(count)) => {
                        tracing::warn!(%replica, count, "stores that do not answer are removed from the in-sync replicas of an open write");
                        self.world.notice(shell.at.store_id, replica, Notice::LeftOut(count));
                    }
                    Effect::Note(replica, Note::HandingOver) => {
                        tracing::warn!(%replica, store = %shell.at.store_id, "the store cannot go on with an open write: another in-sync replica is asked to take over");
                    }
                    Effect::Note(replica, Note::Differs { store, is_expected }) => {
                        if is_expected {
                            tracing::info!(%replica, %store, "a replica differs in changes that were not acknowledged, and does not count");
                        } else {
                            tracing::error!(%replica, %store, "a replica differs from its primary's and does not count");
                        }
                        self.world.notice(shell.at.store_id, replica, Notice::Differs(store));
                    }
                }
            }
        }
        for (to, result) in answers {
            let waiter = shell.waiters.lock().by_number.remove(&to);
            if let Some(waiter) = waiter {
                waiter(result);
            }
        }
        kick.into_iter().for_each(|replica| self.work_off_soon(shell, replica));
    }

    fn work_off_soon(self: &Arc<Self>, shell: &Arc<StoreShell>, replica: Arc<Replica>) {
        let (this, shell) = (Arc::clone(self), Arc::clone(shell));
        self.world.run(Box::new(move || this.work_off(&shell, &replica)));
    }

    fn tell_store(&self, shell: &StoreShell, to: StoreId, message: BetweenStores, change: Option<Change>) {
        let about = match &message {
            // The receiving store may have to make the replica.
            BetweenStores::ToReplica { replica, told: cluster::replication::ToReplica::Begin { .. }, .. } => {
                Some(shell.replica(*replica).about())
            }
            _ => None,
        };
        let (change, bytes) = match change {
            Some(Change { head, bytes, .. }) => (Some(head), bytes),
            None => (None, None),
        };
        self.to_store(to, PeerMessage { to, message, change, about }, bytes);
    }

    /// Does the work of a replica until none is left, unless another thread is doing so.
    pub(super) fn work_off(self: &Arc<Self>, shell: &Arc<StoreShell>, replica: &Arc<Replica>) {
        while replica.has_work() {
            let Some(turn) = replica.try_turn() else { return };
            let pauses = self.work_in_turn(shell, replica, &turn, None);
            drop(turn);
            if pauses && replica.has_work() {
                return self.work_off_soon(shell, Arc::clone(replica));
            }
        }
    }

    /// The same, for a caller that holds the turn. Work that is added later is done by the thread that adds it, or when the turn ends. Returns `true`
    /// if it pauses and may leave work ([`DiskWorld::pauses`](super::DiskWorld::pauses)). It never pauses if `at_hand` is given.
    pub(super) fn work_in_turn(
        self: &Arc<Self>,
        shell: &Arc<StoreShell>,
        replica: &Arc<Replica>,
        _turn: &ReplicaTurn<'_>,
        at_hand: Option<ChangeData<'_>>,
    ) -> bool {
        #[cfg(any(test, feature = "planted"))]
        if self.has(super::PlantedBug::TurnSkipped) {
            replica.skip_turn();
        }
        while let Some((by, work)) = replica.pop() {
            if matches!(work, Work::Delete | Work::Renew) {
                self.world.notice(shell.at.store_id, replica.replica, Notice::Erased);
            }
            #[cfg(any(test, feature = "planted"))]
            if self.has(super::PlantedBug::CopyNotMade)
                && matches!((by, &work), (WorkPurpose::Copy(_), Work::Look { .. }))
            {
                self.step(
                    shell,
                    Input::WorkResult { replica: replica.replica, by, did: WorkResult::Looked(Ok(Found::Same)) },
                    Some(replica),
                );
                continue;
            }
            Self::before_work(shell, replica.replica, &work);
            match replica.work(&self.looks, &shell.at, self.incarnation(), work, at_hand) {
                Done::Now(did) => {
                    self.after_work(shell, replica.replica, &did);
                    // The manager must know before it places the next file, or moves this one.
                    if did.failure() == Some(ErrorCode::NoSpace) && shell.says_full() {
                        tracing::warn!(store = %shell.at.store_id, "the store has no space: it gets no new files until it has more room");
                        self.report();
                    }
                    self.step(shell, Input::WorkResult { replica: replica.replica, by, did }, Some(replica))
                }
                Done::WhenSynced(completed) => self.complete_when_synced(shell, replica, by, completed),
            }
            if at_hand.is_none() && self.world.pauses() {
                return true;
            }
        }
        false
    }
}
