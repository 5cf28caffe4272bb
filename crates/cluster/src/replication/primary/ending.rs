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
    /// The end of an open write without its client.
    End,
}

impl Kind {
    /// Whether the replicas have ended afterwards.
    pub(super) fn ends(self) -> bool {
        self != Self::Sync
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Changes before the barrier are in progress.
    Waiting,
    /// The primary has asked the manager to record that the open write is ending.
    Announcing { request: u64, since: Time },
    /// All replicas are being made durable.
    Flushing { own: Option<Flushed> },
    /// The primary has asked the manager to record this writer durably. Without that record the bytes belong to no
    /// file.
    Keeping { request: u64, since: Time },
    /// The primary has asked the manager to make the object the file's content, or to mark the file after a change without an end.
    Committing { request: u64, since: Time, whole: ObjectDigest, holders: Vec<StoreId> },
}

/// A sync, a close, or the end without the client. All earlier changes must be done first.
#[derive(Clone, Debug)]
pub(super) struct Barrier {
    pub(super) ask: Ask,
    pub(super) kind: Kind,
    pub(super) upto: Seq,
    pub(super) step: Step,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InterruptStep {
    /// The primary has asked the manager to record that the open write is ending.
    Announcing { request: u64, since: Time },
    /// The own store is ending its replica.
    Own,
    /// The primary has asked the manager to mark the file.
    Marking { request: u64, since: Time, kept_len: u64 },
}

/// The end of an open write without its client, and without the other stores.
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
        self.is_closing |= kind.ends();
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
        // A full store lacks a change that was not answered, and others may have it.
        if is_full || self.planted == Some(PlantedBug::EndedOnPrimaryAlone) {
            return self.interrupt_own(ask, out);
        }
        self.barrier(ask, Kind::End, out);
    }

    fn interrupt_own(&mut self, ask: Ask, out: &mut Vec<Effect>) {
        self.refuse_all(ErrorCode::Interrupted, out);
        self.broken = None;
        self.is_closing = true;
        let step = if self.must_announce() {
            InterruptStep::Announcing { request: self.announce(out), since: self.now }
        } else {
            out.push(Effect::InterruptOwn { is_alone: true });
            InterruptStep::Own
        };
        self.interruption = Some(Interruption { ask, step });
    }

    /// A new object loses what is behind its first gap. A client that returned afterwards would not send that again, so
    /// the manager must refuse it first. A change in place keeps everything.
    fn must_announce(&self) -> bool {
        self.may_make && !self.is_announced && self.planted != Some(PlantedBug::EndNotAnnounced)
    }

    /// Tells the manager that the open write is ending. Returns the number of the request.
    fn announce(&mut self, out: &mut Vec<Effect>) -> u64 {
        self.requests += 1;
        out.push(Effect::Place(self.requests, self.staying(), true));
        self.requests
    }

    /// The manager has answered. Returns `false` if the request did not announce the end.
    pub(super) fn announced(&mut self, request: u64, result: Result<(), ErrorCode>, out: &mut Vec<Effect>) -> bool {
        let alone = match self.interruption {
            Some(Interruption { ask, step: InterruptStep::Announcing { request: of, .. } }) if of == request => {
                Some(ask)
            }
            _ => None,
        };
        let is_in_barrier = self
            .barriers
            .front()
            .is_some_and(|barrier| matches!(barrier.step, Step::Announcing { request: of, .. } if of == request));
        if alone.is_none() && !is_in_barrier {
            return false;
        }
        if let Err(why) = result {
            self.end(why, out);
            return true;
        }
        self.is_announced = true;
        if let Some(ask) = alone {
            self.interruption = Some(Interruption { ask, step: InterruptStep::Own });
            out.push(Effect::InterruptOwn { is_alone: true });
        } else if let Some(mut barrier) = self.barriers.pop_front() {
            self.flush(&mut barrier, out);
            self.barriers.push_front(barrier);
        }
        true
    }

    /// Whether the end of an open write without its client is under way. Nothing is accepted behind it.
    pub(super) fn is_ending(&self) -> bool {
        self.barriers.back().is_some_and(|barrier| barrier.kind == Kind::End)
    }

    /// The own store cannot end its replica as the others do, and the manager knows no other store that can take over. If
    /// the end of an open write without its client is under way, the own store keeps what is durable there: otherwise the
    /// file would be written for ever.
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

    pub(super) fn interrupted(&mut self, result: Result<ObjectDigest, ErrorCode>, out: &mut Vec<Effect>) {
        let Some(Interruption { ask, step }) = self.interruption else {
            return self.flushed(result.map(Flushed::Whole), out);
        };
        if step != InterruptStep::Own {
            return;
        }
        match result {
            Ok(ObjectDigest { len: kept_len, .. }) => {
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
        let Some(Interruption { ask, step }) = self.interruption else { return };
        let is_due = |since: Time| self.now.since(since) >= self.patience.again;
        let step = match step {
            InterruptStep::Announcing { request, since } if is_due(since) => {
                out.push(Effect::Place(request, self.staying(), true));
                InterruptStep::Announcing { request, since: self.now }
            }
            InterruptStep::Marking { request, since, kept_len } if is_due(since) => {
                out.push(Effect::Interrupt(request, kept_len, vec![self.me.store]));
                InterruptStep::Marking { request, since: self.now, kept_len }
            }
            step => step,
        };
        self.interruption = Some(Interruption { ask, step });
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
        while self.pass_barrier(may_answer, out) {}
    }

    /// Goes on with the first barrier. Returns whether it is answered: then the next one begins at once.
    fn pass_barrier(&mut self, may_answer: bool, out: &mut Vec<Effect>) -> bool {
        let Some(mut barrier) = self.barriers.pop_front() else { return false };
        if let Step::Waiting = barrier.step
            && self.answered >= barrier.upto
        {
            if barrier.kind == Kind::End && self.must_announce() {
                barrier.step = Step::Announcing { request: self.announce(out), since: self.now };
            } else {
                self.flush(&mut barrier, out);
            }
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
                        return true;
                    }
                    _ => barrier.step = Step::Keeping { request: self.name_in_sync(out), since: self.now },
                }
            }
        }
        match &mut barrier.step {
            Step::Keeping { request, since } if self.now.since(*since) >= self.patience.again => {
                (*request, *since) = (self.name_in_sync(out), self.now);
            }
            Step::Announcing { request, since } if self.now.since(*since) >= self.patience.again => {
                // With the same number: whichever answer comes, the manager has recorded it.
                *since = self.now;
                out.push(Effect::Place(*request, self.staying(), true));
            }
            // Repeats the request, because it may not have been done. If it was, the manager notices.
            Step::Committing { request, since, whole, holders } if self.now.since(*since) >= self.patience.again => {
                *since = self.now;
                out.push(commit(barrier.kind, *request, *whole, holders.clone()));
            }
            _ => {}
        }
        self.barriers.push_front(barrier);
        false
    }

    /// Begins to make the replicas durable.
    fn flush(&mut self, barrier: &mut Barrier, out: &mut Vec<Effect>) {
        barrier.step = Step::Flushing { own: None };
        out.push(match barrier.kind {
            Kind::Sync => Effect::SyncOwn,
            Kind::End if self.may_make => Effect::InterruptOwn { is_alone: false },
            Kind::Close | Kind::End => Effect::CompleteOwn,
        });
        self.followers.values_mut().for_each(|follower| follower.flushed = None);
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
                    Kind::End if self.may_make => ToReplica::Interrupt { stream, upto },
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
        // Nothing was written since this store took over.
        let is_expected = kind == Kind::End && self.may_make && self.last() == Seq(0);
        let mut holders = vec![self.me.store];
        for (store, follower) in &self.followers {
            match follower.flushed {
                Some(Flushed::Whole(other)) if other != whole => {
                    out.push(Effect::Differs { store: *store, is_expected })
                }
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
