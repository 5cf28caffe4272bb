//! The replicas of this store that follow another store's primary.

use types::{ReplicaId, StoreId};

use super::part::StepContext;
use super::{StorePart, Work, WorkPurpose, WorkResult};
use crate::message::BetweenStores;
use crate::replication::{PlantedBug, Replica, ReplicaEffect, ReplicaInput, Stream, ToReplica};

/// A replica that follows a primary on another store.
#[derive(Clone, Debug)]
pub(super) struct SecondaryReplica {
    pub(super) machine: Replica,
    /// The primary's store.
    primary: StoreId,
}

impl<C: Copy, B: Clone> StorePart<C, B> {
    pub(super) fn told(
        &mut self,
        from: StoreId,
        replica: ReplicaId,
        told: ToReplica,
        change: Option<B>,
        at: &mut StepContext<'_, C, B>,
    ) {
        let Some(boot_generation) = at.view.boot_generation.filter(|_| at.view.lease.session.is_some()) else { return };
        let is_lame = matches!(told, ToReplica::Change { .. }) && change.is_none();
        if is_lame || from == self.store {
            return;
        }
        let stream = told.stream();
        let planted = self.terms.planted;
        // A message with a higher epoch fences writers and readers with a lower one.
        if stream.epoch >= self.floor(replica).writes && !self.has(PlantedBug::EpochNotChecked) {
            self.fence(replica, stream.epoch, at);
        }
        let writes = self.floor(replica).writes;
        let follow = self.follows.entry(replica).or_insert_with(|| SecondaryReplica {
            machine: Replica::new(at.now, boot_generation, planted),
            primary: from,
        });
        follow.machine.fence(writes);
        let mut out = Vec::new();
        follow.machine.step(at.now, ReplicaInput::Told(told), &mut out);
        if follow.machine.stream() == Some(stream) {
            follow.primary = from;
        }
        self.do_follow(replica, from, out, change, at);
    }

    pub(super) fn did_follow(
        &mut self,
        replica: ReplicaId,
        stream: Stream,
        did: WorkResult<B>,
        at: &mut StepContext<'_, C, B>,
    ) {
        let input = match did {
            WorkResult::Opened(result) => ReplicaInput::Opened(stream, result),
            WorkResult::Applied(seq, result) => ReplicaInput::Applied(stream, seq, result),
            WorkResult::Synced(result) => ReplicaInput::Synced(stream, result),
            WorkResult::Completed(result) | WorkResult::Interrupted(result) => ReplicaInput::Completed(stream, result),
            WorkResult::Looked(_) | WorkResult::Read(_) | WorkResult::Deleted(_) => return,
        };
        let Some(follow) = self.follows.get_mut(&replica) else { return };
        let mut out = Vec::new();
        follow.machine.step(at.now, input, &mut out);
        let primary = follow.primary;
        self.do_follow(replica, primary, out, None, at);
    }

    fn do_follow(
        &mut self,
        replica: ReplicaId,
        to: StoreId,
        out: Vec<ReplicaEffect>,
        mut change: Option<B>,
        at: &mut StepContext<'_, C, B>,
    ) {
        let from = self.store;
        for effect in out {
            match effect {
                ReplicaEffect::Open { stream, may_make } => {
                    at.work(replica, WorkPurpose::Follow(stream), Work::Open { may_make })
                }
                ReplicaEffect::Apply(stream, seq) => {
                    if let Some(change) = change.take() {
                        at.work(replica, WorkPurpose::Follow(stream), Work::Apply { seq, change });
                    }
                }
                ReplicaEffect::Sync(stream) => at.work(replica, WorkPurpose::Follow(stream), Work::Sync),
                ReplicaEffect::Complete(stream) => at.work(replica, WorkPurpose::Follow(stream), Work::Complete),
                ReplicaEffect::Interrupt(stream) => {
                    at.work(replica, WorkPurpose::Follow(stream), Work::Interrupt { is_alone: false })
                }
                ReplicaEffect::Say(said) => {
                    at.tell_store(to, BetweenStores::FromReplica { from, replica, said }, None);
                }
            }
        }
    }
}
