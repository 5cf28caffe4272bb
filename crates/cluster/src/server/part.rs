//! One store of a disk server: who may write a replica here, who may read it, and when its state is forgotten.

use std::collections::{BTreeMap, BTreeSet};

use types::{ErrorCode, ReplicaId, SessionId, StoreId};

use super::copy::{Copy, EndedCopy};
use super::follow::SecondaryReplica;
use super::primary_replica::PrimaryReplica;
use super::{Effect, Grant, GrantRights, Input, Note, PartTerms, ReadView, View, Work, WorkPurpose, WorkResult};
use crate::message::{BetweenStores, CopyFailure, FromStore, REPLICAS_MAX, ToStore};
use crate::replication::{Epoch, PlantedBug, Primary, PrimaryInput};
use crate::{Fence, Time};

/// One store of a disk server. See the module.
///
/// Its memory is bounded by the present and the recent activity:
/// - A primary or secondary is forgotten [`PartTerms::kept`] after its end, or after its last message. If the
///   primary continues later, it starts the secondary again.
/// - A floor is forgotten after the same time. It refuses two things: capabilities given earlier, which are valid for
///   a minute, and late messages from other stores, which the shell does not deliver after that time. A reader that
///   has kept its file open for longer is refused because the replica has changed since. If the change left this
///   store out, the replica has not changed, but then the manager has sent a fence. Each floor of a fence records a
///   failure, and is kept as long as the session.
/// - A new session forgets all floors and secondaries. The store refuses all capabilities of the earlier session, and
///   the manager gives correct new ones. The shell has ended the connections that could bring late messages. An old
///   primary sends nothing any more: it needs a valid lease to send, and the manager has waited for its lease to end.
#[derive(Clone, Debug)]
pub struct StorePart<C, B> {
    pub(super) store: StoreId,
    pub(super) terms: PartTerms,
    session: Option<SessionId>,
    pub(super) leads: BTreeMap<ReplicaId, PrimaryReplica<C, B>>,
    pub(super) follows: BTreeMap<ReplicaId, SecondaryReplica>,
    pub(super) copies: BTreeMap<ReplicaId, Copy>,
    /// Kept for a while, and in this session only.
    pub(super) ended_copies: BTreeMap<ReplicaId, EndedCopy>,
    pub(super) floors: BTreeMap<ReplicaId, Floor>,
    /// Replicas that the disk must delete.
    deleting: BTreeSet<ReplicaId>,
    /// Deleted replicas that must be reported to the manager.
    deleted: Vec<ReplicaId>,
    swept: Time,
}

/// The floor of a deleted replica: everything is refused.
const DELETED: Epoch = Epoch(u32::MAX);

/// What is known of the object of a deleted replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Deletion {
    /// It does not exist any more.
    ForGood,
    /// It exists on other stores. A later order makes the replica again. Then the floor's own epochs count.
    ExistsElsewhere,
}

/// Which requests for a replica are refused.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Floor {
    /// Readers with a lower epoch are refused.
    pub(super) reads: Epoch,
    /// Writers with a lower epoch are refused. When an epoch is over, this is the next one.
    pub(super) writes: Epoch,
    /// The manager has sent a fence.
    is_told: bool,
    /// The manager has had the replica deleted. Everything is refused, whatever the epochs above.
    pub(super) deletion: Option<Deletion>,
    /// An open write of which this store was the primary has ended.
    pub(super) has_led: bool,
    since: Time,
}

/// The context of one step: its time, its view and the effects so far.
pub(super) struct StepContext<'a, C, B> {
    pub(super) now: Time,
    pub(super) view: View,
    out: &'a mut Vec<Effect<C, B>>,
}

impl<C, B> StepContext<'_, C, B> {
    pub(super) fn answer(&mut self, to: C, result: Result<(), ErrorCode>) {
        self.out.push(Effect::Answer { to, result });
    }

    pub(super) fn work(&mut self, replica: ReplicaId, by: WorkPurpose, work: Work<B>) {
        self.out.push(Effect::Work { replica, by, work });
    }

    pub(super) fn tell_manager(&mut self, message: FromStore) {
        self.out.push(Effect::ToManager(message));
    }

    pub(super) fn tell_store(&mut self, to: StoreId, message: BetweenStores, change: Option<B>) {
        self.out.push(Effect::ToStore { to, message, change });
    }

    pub(super) fn note(&mut self, replica: ReplicaId, note: Note) {
        self.out.push(Effect::Note(replica, note));
    }
}

impl<C: std::marker::Copy, B: Clone> StorePart<C, B> {
    /// Starts with no memory.
    #[must_use]
    pub fn new(store: StoreId, terms: PartTerms) -> Self {
        Self {
            store,
            terms,
            session: None,
            leads: BTreeMap::new(),
            follows: BTreeMap::new(),
            copies: BTreeMap::new(),
            ended_copies: BTreeMap::new(),
            floors: BTreeMap::new(),
            deleting: BTreeSet::new(),
            deleted: Vec::new(),
            swept: Time::default(),
        }
    }

    /// Takes one event, and appends the resulting effects to `out`.
    pub fn step(&mut self, now: Time, view: View, input: Input<C, B>, out: &mut Vec<Effect<C, B>>) {
        let mut at = StepContext { now, view, out };
        if view.lease.session.is_some() && view.lease.session != self.session {
            self.session = view.lease.session;
            self.follows.clear();
            self.copies.clear();
            self.ended_copies.clear();
            self.floors.clear();
        }
        let at = &mut at;
        match input {
            Input::OfManager(message) => self.of_manager(message, at),
            Input::OfStore(message, change) => self.of_store(message, change, at),
            Input::Attach { by, replica, grant, is_ending } => self.attach(by, replica, (grant, is_ending), at),
            Input::Change { by, replica, epoch, change } => self.change(by, replica, epoch, change, at),
            Input::Sync { by, replica, epoch } => self.ask(by, replica, epoch, at, |_, ask| PrimaryInput::Sync(ask)),
            Input::Close { by, replica, epoch, mtime, closed } => {
                self.ask(by, replica, epoch, at, |primary_replica, ask| {
                    primary_replica.closing = (mtime, closed);
                    PrimaryInput::Close(ask)
                });
            }
            Input::Interrupt { by, replica, epoch } => {
                self.ask(by, replica, epoch, at, |_, ask| PrimaryInput::Interrupt(ask));
            }
            Input::NothingKept { replica, grant } => self.nothing_kept(replica, &grant, at),
            Input::WorkResult { replica, by, did } => self.did(replica, by, did, at),
            Input::Tick => self.tick(at),
        }
    }

    /// Returns what a reader with this grant may see of a replica now. The shell asks before and after the I/O.
    ///
    /// # Errors
    /// [`ErrorCode::Stale`]: the client must ask the manager again. [`ErrorCode::Overloaded`]: the store
    /// does not know now whether it may serve the replica; the client must try again later.
    pub fn may_read(&self, view: View, replica: ReplicaId, grant: &Grant) -> Result<ReadView, ErrorCode> {
        if view.lease.session != Some(grant.session) || grant.store != self.store {
            return Err(ErrorCode::Stale);
        }
        let primary_replica = self.leads.get(&replica);
        let machine = primary_replica.and_then(|primary_replica| primary_replica.machine.as_ref());
        if let Some(machine) = machine.filter(|machine| !machine.is_fenced()) {
            return if machine.may_show(view.lease) { Ok(ReadView::OfWriter) } else { Err(ErrorCode::Overloaded) };
        }
        let has_ended = primary_replica.is_none() && self.floor(replica).has_led;
        let (epoch, shows) = match grant.rights {
            GrantRights::Read { epoch, whole } => (epoch, ReadView::Whole(whole)),
            GrantRights::Kept { epoch } => (epoch, ReadView::Kept),
            // If the write has ended, the manager knows how. If the writer has not attached here yet, or has not
            // returned, the manager would only send the reader here again.
            GrantRights::Follow if !has_ended => return Err(ErrorCode::Overloaded),
            GrantRights::Write { .. } | GrantRights::Follow => return Err(ErrorCode::Stale),
        };
        let may_show = view.lease.is_valid || self.terms.planted == Some(PlantedBug::LeaseNotChecked);
        // Floors of an earlier session may still exist. The grant's floor is that of the present session.
        let is_fenced = self.session == view.lease.session && epoch < self.floor(replica).reads;
        if may_show && !is_fenced { Ok(shows) } else { Err(ErrorCode::Stale) }
    }

    /// Returns the number of unanswered changes of a replica. The shell holds their bytes.
    #[must_use]
    pub fn pending(&self, replica: ReplicaId) -> usize {
        self.leads.get(&replica).map_or(0, |primary_replica| primary_replica.changes.len())
    }

    /// Returns the epoch in which this store is a replica's primary, as far as it knows.
    #[must_use]
    pub fn leads(&self, replica: ReplicaId) -> Option<Epoch> {
        let machine = self.leads.get(&replica)?.machine.as_ref()?;
        (!machine.is_fenced()).then(|| machine.epoch())
    }

    /// Returns the epoch in which this store surely is the primary of a replica now.
    #[must_use]
    pub fn leads_surely(&self, view: View, replica: ReplicaId) -> Option<Epoch> {
        let machine = self.leads.get(&replica)?.machine.as_ref()?;
        (!machine.is_fenced() && machine.may_act(view.lease)).then(|| machine.epoch())
    }

    /// Returns the numbers of remembered primaries, secondaries, copies and floors.
    #[must_use]
    pub fn remembered(&self) -> [usize; 4] {
        [self.leads.len(), self.follows.len(), self.copies.len(), self.floors.len()]
    }

    pub(super) fn floor(&self, replica: ReplicaId) -> Floor {
        let floor = self.floors.get(&replica).copied().unwrap_or_default();
        if floor.deletion.is_some() { Floor { reads: DELETED, writes: DELETED, ..floor } } else { floor }
    }

    pub(super) fn raise(&mut self, replica: ReplicaId, reads: Epoch, writes: Epoch, now: Time) {
        let floor = self.floors.entry(replica).or_default();
        (floor.reads, floor.writes) = (floor.reads.max(reads), floor.writes.max(writes));
        floor.since = now;
    }

    /// Refuses readers and writers with a lower epoch from now on.
    pub(super) fn fence(&mut self, replica: ReplicaId, epoch: Epoch, at: &mut StepContext<'_, C, B>) {
        self.raise(replica, epoch, epoch, at.now);
        self.end_below(replica, epoch, at);
    }

    /// Ends what happens to a replica in a lower epoch.
    fn end_below(&mut self, replica: ReplicaId, epoch: Epoch, at: &mut StepContext<'_, C, B>) {
        if let Some(follow) = self.follows.get_mut(&replica) {
            follow.machine.fence(epoch);
        }
        if self.copies.get(&replica).is_some_and(|copy| copy.epoch < epoch) {
            self.end_copy(replica, Err(CopyFailure::Superseded), at);
        }
        let Some(primary_replica) =
            self.leads.get_mut(&replica).filter(|primary_replica| primary_replica.epoch() < epoch)
        else {
            return;
        };
        if let Some(machine) = &mut primary_replica.machine {
            let mut out = Vec::new();
            machine.fence(&mut out);
            self.do_all(replica, out, at);
        } else if let Some(primary_replica) = self.leads.remove(&replica) {
            primary_replica.refuse(ErrorCode::Stale, at);
        }
    }

    fn of_manager(&mut self, message: ToStore, at: &mut StepContext<'_, C, B>) {
        match message {
            ToStore::Placed { replica, epoch, request, result } => {
                self.lead_of(replica, epoch, PrimaryInput::Placed(request, result), at);
            }
            ToStore::Ended { replica, epoch, request, result } => {
                self.lead_of(replica, epoch, PrimaryInput::Ended(request, result), at);
            }
            ToStore::Fence(fence) => {
                let Fence { replica, epoch, store, session, .. } = fence;
                if store == self.store {
                    self.fence(replica, epoch, at);
                    // No reader may see a deleted replica. It may exist again when the store is used again.
                    let floor = self.floors.entry(replica).or_default();
                    floor.is_told = floor.deletion != Some(Deletion::ForGood);
                    // A new session forgets the floor, and a reader may already have a grant for that session.
                    if session.is_none_or(|session| at.view.lease.session == Some(session)) {
                        at.tell_manager(FromStore::Fenced(fence));
                    }
                }
            }
            ToStore::Copy { copy, session, replica, epoch, original, from } => {
                if at.view.lease.session == Some(session) {
                    self.copy(Copy::new(copy, session, epoch, original, from, at.now), replica, at);
                }
            }
            ToStore::Delete { replicas, exist_elsewhere } => {
                replicas.into_iter().take(REPLICAS_MAX).for_each(|replica| self.delete(replica, exist_elsewhere, at));
            }
        }
    }

    fn of_store(&mut self, message: BetweenStores, change: Option<B>, at: &mut StepContext<'_, C, B>) {
        match message {
            BetweenStores::ToReplica { from, replica, told } => self.told(from, replica, told, change, at),
            BetweenStores::FromReplica { from, replica, said } => {
                self.primary_replica(replica, PrimaryInput::Replica(from, said), at);
            }
            BetweenStores::Fetch { to, copy, replica, original, offset, len } => {
                let len = len.min(self.terms.fetch);
                at.work(replica, WorkPurpose::Fetch { to, copy, offset }, Work::Read { original, offset, len });
            }
            BetweenStores::Fetched { copy, replica, offset, result } => {
                self.fetched(replica, copy, offset, result.map(|()| change), at);
            }
        }
    }

    fn did(&mut self, replica: ReplicaId, by: WorkPurpose, did: WorkResult<B>, at: &mut StepContext<'_, C, B>) {
        match by {
            WorkPurpose::Lead(epoch) => self.did_lead(replica, epoch, did, at),
            WorkPurpose::Follow(stream) => self.did_follow(replica, stream, did, at),
            WorkPurpose::Copy(copy) => self.did_copy(replica, copy, did, at),
            WorkPurpose::Fetch { to, copy, offset } => {
                if let WorkResult::Read(read) = did {
                    let (result, part) = match read {
                        Ok(part) => (Ok(()), Some(part)),
                        Err(why) => (Err(why), None),
                    };
                    at.tell_store(to, BetweenStores::Fetched { copy, replica, offset, result }, part);
                }
            }
            WorkPurpose::Delete => self.did_delete(replica, matches!(did, WorkResult::Deleted(Ok(()))), at),
        }
    }

    /// Deletes a replica even if it is in use. The manager no longer needs it. It never uses its number again, except for
    /// a copy of an object that exists elsewhere.
    fn delete(&mut self, replica: ReplicaId, exist_elsewhere: bool, at: &mut StepContext<'_, C, B>) {
        let floor = self.floors.entry(replica).or_default();
        // What was deleted for good does not come back.
        if floor.deletion != Some(Deletion::ForGood) {
            let how = if exist_elsewhere { Deletion::ExistsElsewhere } else { Deletion::ForGood };
            (floor.deletion, floor.since) = (Some(how), at.now);
            floor.is_told &= exist_elsewhere;
        }
        self.end_below(replica, DELETED, at);
        self.leads.remove(&replica);
        self.follows.remove(&replica);
        if self.deleting.insert(replica) {
            at.work(replica, WorkPurpose::Delete, Work::Delete);
        }
    }

    fn did_delete(&mut self, replica: ReplicaId, is_gone: bool, at: &mut StepContext<'_, C, B>) {
        self.deleting.remove(&replica);
        // The manager asks again for a replica that could not be deleted.
        self.deleted.extend(is_gone.then_some(replica));
        if !self.deleted.is_empty() && (self.deleting.is_empty() || self.deleted.len() >= REPLICAS_MAX) {
            at.tell_manager(FromStore::Deleted { replicas: std::mem::take(&mut self.deleted) });
        }
    }

    fn tick(&mut self, at: &mut StepContext<'_, C, B>) {
        let replicas: Vec<ReplicaId> = self.leads.keys().copied().collect();
        for replica in replicas {
            self.primary_replica(replica, PrimaryInput::Tick, at);
            if let Some(primary_replica) = self.leads.get_mut(&replica) {
                primary_replica.tick(self.terms.patience.again, at);
            }
        }
        self.tick_copies(at);
        if at.now.since(self.swept) >= self.terms.kept / 4 {
            self.swept = at.now;
            self.forget(at.now);
        }
    }

    fn forget(&mut self, now: Time) {
        let is_past = |since: Time| now.since(since) >= self.terms.kept;
        let gone = |primary_replica: &PrimaryReplica<C, B>| primary_replica.ended.is_some_and(is_past);
        let over: Vec<(ReplicaId, Epoch)> = self
            .leads
            .iter()
            .filter(|(_, primary_replica)| gone(primary_replica))
            .map(|(replica, primary_replica)| (*replica, primary_replica.epoch()))
            .collect();
        for (replica, epoch) in over {
            self.leads.remove(&replica);
            // If the primary has failed, no other message has ended its epoch.
            if self.floor(replica).writes <= epoch {
                self.raise(replica, epoch, epoch.next(), now);
            }
        }
        let kept = self.terms.kept;
        self.ended_copies.retain(|_, ended| now.since(ended.since) < kept);
        self.follows.retain(|_, follow| now.since(follow.machine.heard()) < kept);
        let Self { leads, follows, copies, .. } = &*self;
        let is_used = |replica: &ReplicaId| {
            leads.contains_key(replica) || follows.contains_key(replica) || copies.contains_key(replica)
        };
        let over: Vec<ReplicaId> = self
            .floors
            .iter()
            .filter(|(replica, floor)| !floor.is_told && now.since(floor.since) >= kept && !is_used(replica))
            .map(|(replica, _)| *replica)
            .collect();
        for replica in over {
            self.floors.remove(&replica);
        }
    }

    /// Whether the deliberate bug is this one.
    pub(super) fn has(&self, planted: PlantedBug) -> bool {
        self.terms.planted == Some(planted)
    }

    pub(super) fn new_primary(
        &self,
        takes: crate::replication::Promotion,
        at: &StepContext<'_, C, B>,
    ) -> Result<(Primary, Vec<crate::replication::PrimaryEffect>), ErrorCode> {
        let mut out = Vec::new();
        let (patience, planted) = (self.terms.patience, self.terms.planted);
        Primary::new(at.now, at.view.lease, takes, patience, planted, &mut out).map(|machine| (machine, out))
    }
}
