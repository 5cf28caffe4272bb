//! How an open write ends, and how its changes become durable before that.

use types::{ErrorCode, StoreId};

use super::{Ask, Effect, Primary, State};
use crate::Time;
use crate::replication::{ObjectDigest, PlantedBug, Seq, ToReplica};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flushed {
    Told,
    Synced,
    Whole(ObjectDigest),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Sync,
    Close,
    /// The end of a change in place without its client.
    End,
}

impl Kind {
    /// Whether the replicas are complete afterwards.
    pub(super) fn completes(self) -> bool {
        self != Self::Sync
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Changes before the barrier are in progress.
    Waiting,
    /// All replicas are being made durable.
    Flushing { own: Option<Flushed> },
    /// The primary has asked the manager to record this writer durably. Without that record the bytes belong to no
    /// file.
    Keeping { request: u64, since: Time },
    /// The primary has asked the manager to make the object the file's content, or to mark the file after a change without an end.
    Committing { request: u64, since: Time, whole: ObjectDigest, holders: Vec<StoreId> },
}

/// A sync, a close, or the end of a change in place without its client. All earlier changes must be done first.
#[derive(Clone, Debug)]
pub(super) struct Barrier {
    pub(super) ask: Ask,
    pub(super) kind: Kind,
    pub(super) upto: Seq,
    pub(super) step: Step,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InterruptStep {
    /// The own store is ending its replica.
    Own,
    /// The primary has asked the manager to mark the file.
    Marking { request: u64, since: Time, kept_len: u64 },
}

/// The end of an open write without its client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interruption {
    pub(super) ask: Ask,
    step: InterruptStep,
}

impl Primary {
    pub(super) fn barrier(&mut self, ask: Ask, kind: Kind, out: &mut Vec<Effect>) {
        if let Some(why) = self.refusal() {
            out.push(Effect::Answer(ask, Err(why)));
            return;
        }
        self.is_closing |= kind.completes();
        self.barriers.push_back(Barrier { ask, kind, upto: self.last(), step: Step::Waiting });
    }

    pub(super) fn interrupt(&mut self, ask: Ask, out: &mut Vec<Effect>) {
        // If a close is in progress, its result counts. If this store has failed, another one may have more bytes. A full
        // store has everything that was answered: only the last change failed.
        let is_full = self.broken == Some(ErrorCode::NoSpace) && !self.is_fenced();
        let refusal = match self.refusal() {
            _ if is_full => None,
            _ if self.is_closing => Some(ErrorCode::Busy),
            // The store that takes over ends it.
            None if self.handing_over.is_some() => Some(ErrorCode::Overloaded),
            refusal => refusal,
        };
        if let Some(why) = refusal {
            out.push(Effect::Answer(ask, Err(why)));
            return;
        }
        // A complete object that was changed in place has no gaps: all in-sync replicas keep it. Of a new object only the own replica counts, as others may
        // have other parts of what was not answered; so too if the own store is full and lacks a change that was not answered.
        let ends_alone = self.planted == Some(PlantedBug::EndedOnPrimaryAlone);
        if !self.may_make && !is_full && !ends_alone {
            return self.barrier(ask, Kind::End, out);
        }
        self.interrupt_own(ask, out);
    }

    fn interrupt_own(&mut self, ask: Ask, out: &mut Vec<Effect>) {
        self.refuse_all(ErrorCode::Interrupted, out);
        self.broken = None;
        self.is_closing = true;
        self.interruption = Some(Interruption { ask, step: InterruptStep::Own });
        out.push(Effect::InterruptOwn);
    }

    /// Whether the end of a change without its client is under way. Nothing is accepted behind it.
    pub(super) fn is_ending(&self) -> bool {
        self.barriers.back().is_some_and(|barrier| barrier.kind == Kind::End)
    }

    /// The own store cannot complete its replica, and the manager knows no other store that can take over. If the end of a
    /// change without its client is under way, the own store keeps what is durable there: otherwise the file would be
    /// changed for ever.
    pub(super) fn end_alone(&mut self, out: &mut Vec<Effect>) -> bool {
        let is_marking = |barrier: &Barrier| matches!(barrier.step, Step::Committing { .. });
        match self.barriers.back() {
            Some(barrier) if barrier.kind == Kind::End && !is_marking(barrier) => {
                let ask = barrier.ask;
                self.barriers.pop_back();
                self.interrupt_own(ask, out);
                true
            }
            _ => false,
        }
    }

    pub(super) fn interrupted(&mut self, result: Result<u64, ErrorCode>, out: &mut Vec<Effect>) {
        let Some(Interruption { ask, step: InterruptStep::Own }) = self.interruption else { return };
        match result {
            Ok(kept_len) => {
                self.requests += 1;
                let request = self.requests;
                let step = InterruptStep::Marking { request, since: self.now, kept_len };
                self.interruption = Some(Interruption { ask, step });
                out.push(Effect::Interrupt(request, kept_len, vec![self.me.store]));
            }
            Err(why) => self.fail(why, out),
        }
    }

    /// Repeats the request to the manager. If the manager has already done it, it finds that the writer has ended.
    pub(super) fn go_on_interrupting(&mut self, out: &mut Vec<Effect>) {
        if let Some(Interruption { step: InterruptStep::Marking { request, since, kept_len }, .. }) =
            &mut self.interruption
            && self.now.since(*since) >= self.patience.again
        {
            *since = self.now;
            out.push(Effect::Interrupt(*request, *kept_len, vec![self.me.store]));
        }
    }

    pub(super) fn flushed(&mut self, result: Result<Flushed, ErrorCode>, out: &mut Vec<Effect>) {
        match result {
            Ok(flushed) => {
                if let Some(Barrier { step: Step::Flushing { own }, .. }) = self.barriers.front_mut() {
                    *own = Some(flushed);
                }
            }
            // Of work before the interruption.
            Err(_) if self.interruption.is_some() => {}
            Err(why) => self.fail(why, out),
        }
    }

    pub(super) fn ended(&mut self, request: u64, result: Result<(), ErrorCode>, out: &mut Vec<Effect>) {
        if let Some(Interruption { ask, step: InterruptStep::Marking { request: of, .. } }) = self.interruption
            && of == request
        {
            self.interruption = None;
            out.push(Effect::Answer(ask, result));
            return self.end(ErrorCode::Stale, out);
        }
        let is_it = |barrier: &Barrier| matches!(barrier.step, Step::Committing { request: of, .. } if of == request);
        if !self.barriers.front().is_some_and(is_it) {
            return;
        }
        if let Some(barrier) = self.barriers.pop_front() {
            out.push(Effect::Answer(barrier.ask, result));
        }
        // Later requests come too late: the file is complete, or the client has got the refusal.
        self.end(ErrorCode::Stale, out);
    }

    pub(super) fn pass_barriers(&mut self, may_answer: bool, out: &mut Vec<Effect>) {
        let Some(mut barrier) = self.barriers.pop_front() else { return };
        if let Step::Waiting = barrier.step
            && self.answered >= barrier.upto
        {
            barrier.step = Step::Flushing { own: None };
            out.push(if barrier.kind.completes() { Effect::CompleteOwn } else { Effect::SyncOwn });
            self.followers.values_mut().for_each(|follower| follower.flushed = None);
        }
        if let Step::Flushing { own } = barrier.step {
            if may_answer {
                self.tell_to_flush(&barrier, out);
            }
            if let Some(own) = own
                && may_answer
                && self.all_are_flushed(barrier.kind)
            {
                match own {
                    Flushed::Whole(whole) => barrier.step = self.commit(barrier.kind, whole, out),
                    _ if self.is_kept => {
                        out.push(Effect::Answer(barrier.ask, Ok(())));
                        return;
                    }
                    _ => barrier.step = Step::Keeping { request: self.name_in_sync(out), since: self.now },
                }
            }
        }
        match &mut barrier.step {
            Step::Keeping { request, since } if self.now.since(*since) >= self.patience.again => {
                (*request, *since) = (self.name_in_sync(out), self.now);
            }
            // Repeats the request, because it may not have been done. If it was, the manager notices.
            Step::Committing { request, since, whole, holders } if self.now.since(*since) >= self.patience.again => {
                *since = self.now;
                out.push(commit(barrier.kind, *request, *whole, holders.clone()));
            }
            _ => {}
        }
        self.barriers.push_front(barrier);
    }

    /// Sends a flush to each secondary that has all changes before the barrier and has not got it yet.
    fn tell_to_flush(&mut self, barrier: &Barrier, out: &mut Vec<Effect>) {
        let upto = barrier.upto;
        for (store, follower) in &mut self.followers {
            if follower.state == State::Following && follower.acked >= upto && follower.flushed.is_none() {
                (follower.flushed, follower.heard) = (Some(Flushed::Told), self.now);
                let stream = follower.stream;
                let tell = match barrier.kind {
                    Kind::Sync => ToReplica::Sync { stream, upto },
                    Kind::Close | Kind::End => ToReplica::Complete { stream, upto },
                };
                out.push(Effect::Tell(*store, tell));
            }
        }
    }

    fn all_are_flushed(&self, kind: Kind) -> bool {
        self.planted == Some(PlantedBug::AnswerBeforeSync)
            || self.followers.values().all(|follower| match kind {
                Kind::Sync => follower.flushed == Some(Flushed::Synced),
                Kind::Close | Kind::End => matches!(follower.flushed, Some(Flushed::Whole(_))),
            })
    }

    fn commit(&mut self, kind: Kind, whole: ObjectDigest, out: &mut Vec<Effect>) -> Step {
        let mut holders = vec![self.me.store];
        for (store, follower) in &self.followers {
            match follower.flushed {
                Some(Flushed::Whole(other)) if other != whole => out.push(Effect::Differs(*store)),
                _ => holders.push(*store),
            }
        }
        self.requests += 1;
        out.push(commit(kind, self.requests, whole, holders.clone()));
        Step::Committing { request: self.requests, since: self.now, whole, holders }
    }
}

/// The request to the manager when the replicas of these stores are complete.
fn commit(kind: Kind, request: u64, whole: ObjectDigest, holders: Vec<StoreId>) -> Effect {
    match kind {
        Kind::End => Effect::Interrupt(request, whole.len, holders),
        Kind::Close | Kind::Sync => Effect::Commit(request, whole, holders),
    }
}
