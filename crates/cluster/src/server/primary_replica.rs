//! The replicas of which this store is the primary. Clients' requests become inputs of the machine, and its effects
//! become work and messages.

use std::collections::BTreeMap;
use std::time::Duration;

use types::{ErrorCode, GroupId, InSyncReplica, ReplicaId, SessionId, Timestamp, WriterToken};

use super::part::StepContext;
use super::{Grant, GrantRights, Note, StorePart, Work, WorkPurpose, WorkResult};
use crate::Time;
use crate::message::{BetweenStores, ClosedBy, FromStore};
use crate::replication::{
    Ask, Epoch, Primary, PrimaryEffect, PrimaryInput, Promotion, Seq, ToReplica, may_work_elsewhere,
};

/// A replica of which this store is the primary.
#[derive(Clone, Debug)]
pub(super) struct PrimaryReplica<C, B> {
    writer: WriterToken,
    group: GroupId,
    in_sync: Vec<InSyncReplica>,
    session: SessionId,
    may_make: bool,
    /// The manager has the open write ended.
    is_ending: bool,
    /// The request that waits until it is open.
    pub(super) opener: C,
    /// Requests to write it that wait as well: until it is open, or until the manager has answered that it has ended.
    latecomers: Vec<Latecomer<C>>,
    /// Present when the replica is open.
    pub(super) machine: Option<Primary>,
    asked: BTreeMap<Ask, C>,
    asks: u64,
    /// The changes that may have to be sent again.
    pub(super) changes: BTreeMap<Seq, B>,
    next: Seq,
    /// The modification time and the origin of the close.
    pub(super) closing: (Option<Timestamp>, ClosedBy),
    /// When it ended.
    pub(super) ended: Option<Time>,
}

/// See [`PrimaryReplica::latecomers`].
#[derive(Clone, Debug)]
struct Latecomer<C> {
    by: C,
    grant: Grant,
    is_ending: bool,
    since: Time,
}

/// The most requests that wait for one replica. The clients of others try again later.
const LATECOMERS_MAX: usize = 64;

impl<C: Copy, B> PrimaryReplica<C, B> {
    pub(super) fn epoch(&self) -> Epoch {
        Epoch(self.writer.epoch)
    }

    /// Refuses everybody who waits for it to open.
    pub(super) fn refuse(self, why: ErrorCode, at: &mut StepContext<'_, C, B>) {
        let waiting = self.latecomers.into_iter().map(|late| late.by);
        [self.opener].into_iter().chain(waiting).for_each(|to| at.answer(to, Err(why)));
    }

    fn keep_waiting(&mut self, by: C, (grant, is_ending): (Grant, bool), at: &mut StepContext<'_, C, B>) {
        if self.latecomers.len() < LATECOMERS_MAX {
            self.latecomers.push(Latecomer { by, grant, is_ending, since: at.now });
        } else {
            at.answer(by, Err(ErrorCode::Overloaded));
        }
    }

    /// Answers those who have waited for too long. One that waits for a commit, and then for its own replica to open, does so for each.
    pub(super) fn tick(&mut self, patience: Duration, at: &mut StepContext<'_, C, B>) {
        let now = at.now;
        for late in self.latecomers.extract_if(.., |late| now.since(late.since) >= patience) {
            at.answer(late.by, Err(ErrorCode::Overloaded));
        }
    }
}

impl<C: Copy, B: Clone> StorePart<C, B> {
    /// A client presents its grant to write.
    pub(super) fn attach(
        &mut self,
        by: C,
        replica: ReplicaId,
        (grant, is_ending): (Grant, bool),
        at: &mut StepContext<'_, C, B>,
    ) {
        let GrantRights::Write { writer, ref in_sync, may_make } = grant.rights else {
            return at.answer(by, Err(ErrorCode::Denied));
        };
        let epoch = Epoch(writer.epoch);
        let is_here = grant.store == self.store && writer.object == replica.object;
        let refusal = if !is_here || at.view.lease.session != Some(grant.session) || epoch < self.floor(replica).writes
        {
            Some(ErrorCode::Stale)
        } else {
            match self.leads.get_mut(&replica) {
                Some(primary_replica) if primary_replica.epoch() > epoch => Some(ErrorCode::Stale),
                // The same grant again: the client continues its write, or writes together with others.
                Some(primary_replica) if primary_replica.epoch() == epoch => match &primary_replica.machine {
                    Some(machine) if machine.is_fenced() => Some(ErrorCode::Stale),
                    Some(_) => return at.answer(by, Ok(())),
                    None => return primary_replica.keep_waiting(by, (grant, is_ending), at),
                },
                // The manager has ended that open write, or is about to. If it were fenced now, its client would not learn how it ended.
                Some(primary_replica) if primary_replica.machine.as_ref().is_some_and(Primary::is_committing) => {
                    return primary_replica.keep_waiting(by, (grant, is_ending), at);
                }
                _ => None,
            }
        };
        if let Some(why) = refusal {
            return at.answer(by, Err(why));
        }
        // This fences all earlier writers and readers.
        self.fence(replica, epoch, at);
        let primary_replica = PrimaryReplica {
            writer,
            group: grant.group,
            in_sync: in_sync.clone(),
            session: grant.session,
            may_make,
            is_ending,
            opener: by,
            latecomers: Vec::new(),
            machine: None,
            asked: BTreeMap::new(),
            asks: 0,
            changes: BTreeMap::new(),
            next: Seq(0),
            closing: (None, ClosedBy::Client { request: None }),
            ended: None,
        };
        self.leads.insert(replica, primary_replica);
        at.work(replica, WorkPurpose::Lead(epoch), Work::Open { may_make });
    }

    /// Tells the manager that nothing was kept. No request waits for the answer. If the message is lost, the
    /// manager asks again.
    pub(super) fn nothing_kept(&mut self, replica: ReplicaId, grant: &Grant, at: &mut StepContext<'_, C, B>) {
        let GrantRights::Write { writer, .. } = grant.rights else { return };
        let is_led = self.leads.contains_key(&replica);
        if at.view.lease.session == Some(grant.session) && Epoch(writer.epoch) >= self.floor(replica).writes && !is_led
        {
            at.tell_manager(FromStore::Interrupt { replica, writer, kept_len: 0, holders: Vec::new(), request: 0 });
        }
    }

    pub(super) fn change(
        &mut self,
        by: C,
        replica: ReplicaId,
        epoch: Epoch,
        change: B,
        at: &mut StepContext<'_, C, B>,
    ) {
        let primary_replica = self.leads.get(&replica).filter(|primary_replica| primary_replica.epoch() == epoch);
        let refusal =
            primary_replica.and_then(|primary_replica| primary_replica.machine.as_ref()).and_then(Primary::refusal);
        // A refused change gets no number.
        if let Some(why) = refusal {
            return at.answer(by, Err(why));
        }
        self.ask(by, replica, epoch, at, |primary_replica, ask| {
            primary_replica.next = primary_replica.next.next();
            primary_replica.changes.insert(primary_replica.next, change);
            PrimaryInput::Change(ask)
        });
    }

    pub(super) fn ask(
        &mut self,
        by: C,
        replica: ReplicaId,
        epoch: Epoch,
        at: &mut StepContext<'_, C, B>,
        input: impl FnOnce(&mut PrimaryReplica<C, B>, Ask) -> PrimaryInput,
    ) {
        let primary_replica = self
            .leads
            .get_mut(&replica)
            .filter(|primary_replica| primary_replica.epoch() == epoch && primary_replica.machine.is_some());
        let Some(primary_replica) = primary_replica else {
            return at.answer(by, Err(ErrorCode::Stale));
        };
        primary_replica.asks += 1;
        let ask = Ask(primary_replica.asks);
        primary_replica.asked.insert(ask, by);
        let input = input(primary_replica, ask);
        self.primary_replica(replica, input, at);
    }

    pub(super) fn lead_of(
        &mut self,
        replica: ReplicaId,
        epoch: Epoch,
        input: PrimaryInput,
        at: &mut StepContext<'_, C, B>,
    ) {
        if self.leads.get(&replica).is_some_and(|primary_replica| primary_replica.epoch() == epoch) {
            self.primary_replica(replica, input, at);
        }
    }

    pub(super) fn primary_replica(&mut self, replica: ReplicaId, input: PrimaryInput, at: &mut StepContext<'_, C, B>) {
        let Some(machine) = self.leads.get_mut(&replica).and_then(|primary_replica| primary_replica.machine.as_mut())
        else {
            return;
        };
        let mut out = Vec::new();
        machine.step(at.now, at.view.lease, input, &mut out);
        self.do_all(replica, out, at);
    }

    /// Carries out the machine's effects, and checks whether the machine has ended.
    pub(super) fn do_all(&mut self, replica: ReplicaId, out: Vec<PrimaryEffect>, at: &mut StepContext<'_, C, B>) {
        for effect in out {
            self.do_one(replica, effect, at);
        }
        let Some(primary_replica) = self.leads.get_mut(&replica) else { return };
        let Some(machine) = primary_replica.machine.as_ref().filter(|machine| machine.is_over()) else { return };
        if primary_replica.ended.is_none() {
            primary_replica.ended = Some(at.now);
        }
        let latecomers = std::mem::take(&mut primary_replica.latecomers);
        if machine.is_fenced() {
            // A client that repeats its request learns the result from the manager. The floor sends it there, so this
            // store keeps nothing else. When clients write many small files, more writes end between two ticks than
            // one tick could examine.
            let epoch = primary_replica.epoch();
            self.leads.remove(&replica);
            if self.floor(replica).writes <= epoch {
                self.raise(replica, epoch, epoch.next(), at.now);
            }
            self.floors.entry(replica).or_default().has_led = true;
        }
        self.attach_again(replica, latecomers, at);
    }

    fn attach_again(&mut self, replica: ReplicaId, latecomers: Vec<Latecomer<C>>, at: &mut StepContext<'_, C, B>) {
        for Latecomer { by, grant, is_ending, .. } in latecomers {
            self.attach(by, replica, (grant, is_ending), at);
        }
    }

    fn do_one(&mut self, replica: ReplicaId, effect: PrimaryEffect, at: &mut StepContext<'_, C, B>) {
        let from = self.store;
        let Some(primary_replica) = self.leads.get_mut(&replica) else { return };
        let (by, writer) = (WorkPurpose::Lead(primary_replica.epoch()), primary_replica.writer);
        match effect {
            PrimaryEffect::Apply(seq) => {
                if let Some(change) = primary_replica.changes.get(&seq).cloned() {
                    at.work(replica, by, Work::Apply { seq, change });
                }
            }
            PrimaryEffect::Tell(to, told) => {
                let change = match told {
                    ToReplica::Change { seq, .. } => primary_replica.changes.get(&seq).cloned(),
                    _ => None,
                };
                at.tell_store(to, BetweenStores::ToReplica { from, replica, told }, change);
            }
            PrimaryEffect::Release(upto) => primary_replica.changes = primary_replica.changes.split_off(&upto.next()),
            PrimaryEffect::Answer(ask, result) => {
                if let Some(to) = primary_replica.asked.remove(&ask) {
                    at.answer(to, result);
                }
            }
            PrimaryEffect::Place(request, in_sync, is_ending) => {
                let left_out = primary_replica.in_sync.len().saturating_sub(in_sync.len());
                if left_out > 0 {
                    primary_replica.in_sync.clone_from(&in_sync);
                    at.note(replica, Note::LeftOut(left_out));
                }
                if let Some(session) = at.view.lease.session {
                    at.tell_manager(FromStore::Place { session, replica, writer, in_sync, is_ending, request });
                }
            }
            PrimaryEffect::HandOver(request, in_sync) => {
                if let Some(session) = at.view.lease.session {
                    at.note(replica, Note::HandingOver);
                    let is_ending = false;
                    at.tell_manager(FromStore::Place { session, replica, writer, in_sync, is_ending, request });
                }
            }
            PrimaryEffect::SyncOwn => at.work(replica, by, Work::Sync),
            PrimaryEffect::CompleteOwn => at.work(replica, by, Work::Complete),
            PrimaryEffect::InterruptOwn { is_alone } => at.work(replica, by, Work::Interrupt { is_alone }),
            PrimaryEffect::Commit(request, whole, holders) => {
                let (group, (mtime, by)) = (primary_replica.group, primary_replica.closing);
                at.tell_manager(FromStore::Commit { replica, group, writer, whole, holders, mtime, by, request });
            }
            PrimaryEffect::Interrupt(request, kept_len, holders) => {
                at.tell_manager(FromStore::Interrupt { replica, writer, kept_len, holders, request });
            }
            PrimaryEffect::Differs { store, is_expected } => at.note(replica, Note::Differs { store, is_expected }),
        }
    }

    pub(super) fn did_lead(
        &mut self,
        replica: ReplicaId,
        epoch: Epoch,
        did: WorkResult<B>,
        at: &mut StepContext<'_, C, B>,
    ) {
        let input = match did {
            WorkResult::Opened(result) => return self.is_open(replica, epoch, result, at),
            WorkResult::Applied(seq, result) => PrimaryInput::Applied(seq, result),
            WorkResult::Synced(result) => PrimaryInput::Synced(result),
            WorkResult::Completed(result) => PrimaryInput::Completed(result),
            WorkResult::Interrupted(result) => PrimaryInput::Interrupted(result),
            WorkResult::Looked(_) | WorkResult::Read(_) | WorkResult::Deleted(_) => return,
        };
        self.lead_of(replica, epoch, input, at);
    }

    fn is_open(
        &mut self,
        replica: ReplicaId,
        epoch: Epoch,
        result: Result<(), ErrorCode>,
        at: &mut StepContext<'_, C, B>,
    ) {
        let is_it = |primary_replica: &&PrimaryReplica<C, B>| {
            primary_replica.epoch() == epoch && primary_replica.machine.is_none()
        };
        let Some(primary_replica) = self.leads.get(&replica).filter(is_it) else { return };
        let opener = primary_replica.opener;
        let takes = Promotion {
            me: self.store,
            boot_generation: at.view.boot_generation.unwrap_or_default(),
            process_epoch: at.view.process_epoch,
            epoch,
            session: primary_replica.session,
            in_sync: primary_replica.in_sync.clone(),
            may_make: primary_replica.may_make,
            is_ending: primary_replica.is_ending,
        };
        match result.and_then(|()| self.new_primary(takes, at)) {
            Ok((machine, out)) => {
                let mut latecomers = Vec::new();
                if let Some(primary_replica) = self.leads.get_mut(&replica) {
                    primary_replica.machine = Some(machine);
                    latecomers = std::mem::take(&mut primary_replica.latecomers);
                }
                at.answer(opener, Ok(()));
                self.do_all(replica, out, at);
                self.attach_again(replica, latecomers, at);
            }
            Err(why) => {
                let Some(failed) = self.leads.remove(&replica) else { return };
                let refusal = self.elsewhere(replica, &failed, why, at);
                failed.refuse(refusal.unwrap_or(why), at);
            }
        }
    }

    /// The replica cannot be opened here. Asks the manager to let another in-sync replica take over, if there is one.
    /// Then the client must ask the manager again.
    fn elsewhere(
        &self,
        replica: ReplicaId,
        failed: &PrimaryReplica<C, B>,
        why: ErrorCode,
        at: &mut StepContext<'_, C, B>,
    ) -> Option<ErrorCode> {
        let (session, writer) = (at.view.lease.session?, failed.writer);
        let others = || failed.in_sync.iter().filter(|one| one.store != self.store).copied();
        let is_missing = why == ErrorCode::NotFound;
        if !(is_missing || may_work_elsewhere(why)) || others().next().is_none() {
            return None;
        }
        at.note(replica, Note::HandingOver);
        let (in_sync, is_ending, request) = (others().collect(), false, 0);
        at.tell_manager(FromStore::Place { session, replica, writer, in_sync, is_ending, request });
        Some(ErrorCode::Stale)
    }
}
