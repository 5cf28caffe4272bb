//! Repair of this store's missing replicas. It fetches an object part by part from a store that holds it, so that
//! no part of a long copy keeps a writer waiting.
//!
//! A replica that this store already has counts only if its bytes match their checksums. Damaged bytes are replaced only
//! after the source has sent the whole object once: if the source is damaged as well, no byte of either replica is lost.

use std::time::Duration;

use types::{ErrorCode, ReplicaId, SessionId, StoreId};

use super::part::{Deletion, StepContext};
use super::{Found, PartTerms, StorePart, Work, WorkPurpose, WorkResult};
use crate::message::{BetweenStores, CopyFailure, FromStore, Original};
use crate::replication::{Epoch, Seq};
use crate::{CopyId, Time};

/// A copy in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    /// The number that marks its disk work.
    by: CopyId,
    /// The manager's latest order for it.
    order: CopyId,
    session: SessionId,
    /// The epoch of the object's last writer.
    pub(super) epoch: Epoch,
    original: Original,
    from: StoreId,
    /// The number of bytes that the own store has.
    have: u64,
    /// The parts only prove that the source can be read. They are fetched again afterwards.
    rehearses: bool,
    parts: Seq,
    step: Step,
    /// When it last made progress.
    heard: Time,
    /// When the source was last asked for the present part.
    asked: Time,
    /// The pause after which it is asked again.
    pause: Duration,
}

/// A copy that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedCopy {
    order: CopyId,
    result: Result<(), CopyFailure>,
    pub(super) since: Time,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// The disk checks whether the replica already exists.
    Looking,
    /// A part was requested and has not arrived.
    Fetching,
    /// The own disk is writing a part of this many bytes.
    Putting(u64),
}

impl Copy {
    pub(super) fn new(
        order: CopyId,
        session: SessionId,
        epoch: Epoch,
        original: Original,
        from: StoreId,
        now: Time,
    ) -> Self {
        let (have, parts, step, pause) = (0, Seq(0), Step::Looking, Duration::ZERO);
        let (rehearses, heard, asked) = (false, now, now);
        Self { by: order, order, session, epoch, original, from, have, rehearses, parts, step, heard, asked, pause }
    }

    /// The request for the next part.
    fn fetch(&self, to: StoreId, replica: ReplicaId, len: u32) -> BetweenStores {
        let Self { by, original, have, .. } = *self;
        BetweenStores::Fetch { to, copy: by, replica, original, offset: have, len }
    }
}

impl<C: std::marker::Copy, B: Clone> StorePart<C, B> {
    pub(super) fn copy(&mut self, copy: Copy, replica: ReplicaId, at: &mut StepContext<'_, C, B>) {
        // The order is repeated or late. The manager may have recorded its copy already, so it must not start again.
        if let Some(ended) = self.ended_copies.get(&replica).filter(|ended| ended.order >= copy.order) {
            if ended.order == copy.order {
                Self::copied(&copy, ended.result, at);
            }
            return;
        }
        if let Some(before) = self.copies.get_mut(&replica)
            && (before.epoch, before.original) == (copy.epoch, copy.original)
        {
            before.order = copy.order;
            return;
        }
        let leads = self.leads(replica).is_some_and(|epoch| epoch >= copy.epoch);
        // The manager has ordered this after the deletion: messages of one session arrive in their order.
        if let Some(floor) = self.floors.get_mut(&replica)
            && floor.deletion == Some(Deletion::ExistsElsewhere)
        {
            floor.deletion = None;
        }
        if copy.epoch < self.floor(replica).reads || leads {
            return Self::copied(&copy, Err(CopyFailure::Superseded), at);
        }
        if self.copies.contains_key(&replica) {
            self.end_copy(replica, Err(CopyFailure::Replaced), at);
        }
        // All writes up to this epoch are over. Messages of them that are still in transit come too late.
        self.fence(replica, copy.epoch, at);
        self.raise(replica, copy.epoch, copy.epoch.next(), at.now);
        self.follows.remove(&replica);
        self.copies.insert(replica, copy);
        at.work(replica, WorkPurpose::Copy(copy.by), Work::Look { original: copy.original });
    }

    fn copied(copy: &Copy, result: Result<(), CopyFailure>, at: &mut StepContext<'_, C, B>) {
        at.tell_manager(FromStore::Copied { session: copy.session, copy: copy.order, result });
    }

    pub(super) fn end_copy(
        &mut self,
        replica: ReplicaId,
        result: Result<(), CopyFailure>,
        at: &mut StepContext<'_, C, B>,
    ) {
        if let Some(copy) = self.copies.remove(&replica) {
            self.ended_copies.insert(replica, EndedCopy { order: copy.order, result, since: at.now });
            Self::copied(&copy, result, at);
        }
    }

    /// Does the next step: fetches another part, or ends the copy.
    fn go_on_copying(&mut self, replica: ReplicaId, at: &mut StepContext<'_, C, B>) {
        let (me, len) = (self.store, self.terms.fetch);
        let Some(copy) = self.copies.get_mut(&replica) else { return };
        copy.heard = at.now;
        if copy.rehearses && copy.have >= copy.original.len() {
            (copy.rehearses, copy.have) = (false, 0);
        }
        if copy.have < copy.original.len() {
            copy.step = Step::Fetching;
            (copy.asked, copy.pause) = (at.now, self.terms.fetch_again);
            at.tell_store(copy.from, copy.fetch(me, replica, len), None);
            return;
        }
        copy.step = Step::Putting(0);
        if copy.original.is_empty() {
            at.work(replica, WorkPurpose::Copy(copy.by), Work::Renew);
        }
        let end = match copy.original {
            Original::Whole(_) | Original::Kept { was_whole: true, .. } => Work::Complete,
            Original::Kept { was_whole: false, .. } => Work::Interrupt { is_alone: false },
        };
        at.work(replica, WorkPurpose::Copy(copy.by), end);
    }

    pub(super) fn fetched(
        &mut self,
        replica: ReplicaId,
        by: CopyId,
        offset: u64,
        part: Result<Option<B>, ErrorCode>,
        at: &mut StepContext<'_, C, B>,
    ) {
        let fetch = u64::from(self.terms.fetch);
        let Some(copy) = self.copies.get_mut(&replica) else { return };
        if (copy.by, copy.have, copy.step) != (by, offset, Step::Fetching) {
            return;
        }
        let change = match part {
            Ok(Some(change)) => change,
            // Its bytes did not arrive whole. It is asked for again.
            Ok(None) => return,
            Err(why) => return self.end_copy(replica, Err(CopyFailure::Source(why)), at),
        };
        copy.heard = at.now;
        if copy.rehearses {
            copy.have += fetch.min(copy.original.len() - copy.have);
            return self.go_on_copying(replica, at);
        }
        copy.parts = copy.parts.next();
        copy.step = Step::Putting(fetch.min(copy.original.len() - copy.have));
        if offset == 0 {
            at.work(replica, WorkPurpose::Copy(by), Work::Renew);
        }
        at.work(replica, WorkPurpose::Copy(by), Work::Apply { seq: copy.parts, change });
    }

    pub(super) fn did_copy(
        &mut self,
        replica: ReplicaId,
        by: CopyId,
        did: WorkResult<B>,
        at: &mut StepContext<'_, C, B>,
    ) {
        let Some(copy) = self.copies.get_mut(&replica).filter(|copy| copy.by == by) else { return };
        match (did, copy.step) {
            (WorkResult::Looked(Ok(Found::Same)), Step::Looking) => self.end_copy(replica, Ok(()), at),
            (WorkResult::Looked(Ok(found)), Step::Looking) => {
                // What is there may be all that is left of some bytes.
                copy.rehearses = matches!(found, Found::Damaged | Found::Unproved);
                self.go_on_copying(replica, at);
            }
            (WorkResult::Opened(Ok(())), _) => {}
            (WorkResult::Applied(seq, Ok(())), Step::Putting(len)) if seq == copy.parts => {
                copy.have += len;
                self.go_on_copying(replica, at);
            }
            (WorkResult::Completed(Ok(whole)), Step::Putting(_)) => {
                let is_it = match copy.original {
                    Original::Whole(original) => whole == original,
                    Original::Kept { len, .. } => whole.len == len,
                };
                self.end_copy(replica, if is_it { Ok(()) } else { Err(CopyFailure::Differs) }, at);
            }
            (WorkResult::Interrupted(Ok(kept)), Step::Putting(_)) => {
                let is_it = copy.original == Original::Kept { len: kept.len, was_whole: false };
                self.end_copy(replica, if is_it { Ok(()) } else { Err(CopyFailure::Differs) }, at);
            }
            (
                WorkResult::Looked(Err(why))
                | WorkResult::Opened(Err(why))
                | WorkResult::Applied(_, Err(why))
                | WorkResult::Completed(Err(why))
                | WorkResult::Interrupted(Err(why)),
                _,
            ) => self.end_copy(replica, Err(CopyFailure::Target(why)), at),
            // The disk has done something that this copy did not ask for.
            _ => self.end_copy(replica, Err(CopyFailure::Target(ErrorCode::Stale)), at),
        }
    }

    pub(super) fn tick_copies(&mut self, at: &mut StepContext<'_, C, B>) {
        let (me, PartTerms { fetch: len, fetch_patience: patience, .. }) = (self.store, self.terms);
        let mut silent = Vec::new();
        for (replica, copy) in self.copies.iter_mut().filter(|(_, copy)| copy.step == Step::Fetching) {
            if at.now.since(copy.heard) >= patience {
                silent.push(*replica);
            } else if at.now.since(copy.asked) >= copy.pause {
                // The request or the answer was lost: a connection ended, or its queue was full.
                (copy.asked, copy.pause) = (at.now, copy.pause * 2);
                at.tell_store(copy.from, copy.fetch(me, *replica, len), None);
            }
        }
        silent.into_iter().for_each(|replica| self.end_copy(replica, Err(CopyFailure::SourceSilent), at));
    }
}
