//! Pieces that this store repeats another one's changes of.

use types::{PieceId, StoreId};

use super::part::At;
use super::{By, Did, StorePart, Work};
use crate::message::BetweenStores;
use crate::replication::{Planted, Replica, ReplicaEffect, ReplicaInput, Stream, ToReplica};

/// One who follows another.
#[derive(Clone, Debug)]
pub(super) struct Follow {
    pub(super) machine: Replica,
    /// Whom.
    primary: StoreId,
}

impl<C: Copy, B: Clone> StorePart<C, B> {
    pub(super) fn told(
        &mut self,
        from: StoreId,
        piece: PieceId,
        told: ToReplica,
        change: Option<B>,
        at: &mut At<'_, C, B>,
    ) {
        let Some(era) = at.view.era.filter(|_| at.view.lease.session.is_some()) else { return };
        let is_lame = matches!(told, ToReplica::Change { .. }) && change.is_none();
        if is_lame || from == self.store {
            return;
        }
        let stream = told.stream();
        let planted = self.terms.planted;
        // Whoever leads or reads with a lower epoch is fenced by one who leads with a higher one.
        if stream.epoch >= self.floor(piece).writes && !self.has(Planted::EpochNotChecked) {
            self.fence(piece, stream.epoch, at);
        }
        let writes = self.floor(piece).writes;
        let follow = self
            .follows
            .entry(piece)
            .or_insert_with(|| Follow { machine: Replica::new(at.now, era, planted), primary: from });
        follow.machine.fence(writes);
        let mut out = Vec::new();
        follow.machine.step(at.now, ReplicaInput::Told(told), &mut out);
        if follow.machine.stream() == Some(stream) {
            follow.primary = from;
        }
        self.do_follow(piece, from, out, change, at);
    }

    pub(super) fn did_follow(&mut self, piece: PieceId, stream: Stream, did: Did<B>, at: &mut At<'_, C, B>) {
        let input = match did {
            Did::Opened(result) => ReplicaInput::Opened(stream, result),
            Did::Applied(seq, result) => ReplicaInput::Applied(stream, seq, result),
            Did::Synced(result) => ReplicaInput::Synced(stream, result),
            Did::Completed(result) => ReplicaInput::Completed(stream, result),
            Did::Interrupted(_) | Did::Looked(_) | Did::Read(_) | Did::Deleted(_) => return,
        };
        let Some(follow) = self.follows.get_mut(&piece) else { return };
        let mut out = Vec::new();
        follow.machine.step(at.now, input, &mut out);
        let primary = follow.primary;
        self.do_follow(piece, primary, out, None, at);
    }

    fn do_follow(
        &mut self,
        piece: PieceId,
        to: StoreId,
        out: Vec<ReplicaEffect>,
        mut change: Option<B>,
        at: &mut At<'_, C, B>,
    ) {
        let from = self.store;
        for effect in out {
            match effect {
                ReplicaEffect::Open { stream, may_make } => at.work(piece, By::Follow(stream), Work::Open { may_make }),
                ReplicaEffect::Apply(stream, seq) => {
                    if let Some(change) = change.take() {
                        at.work(piece, By::Follow(stream), Work::Apply { seq, change });
                    }
                }
                ReplicaEffect::Sync(stream) => at.work(piece, By::Follow(stream), Work::Sync),
                ReplicaEffect::Complete(stream) => at.work(piece, By::Follow(stream), Work::Complete),
                ReplicaEffect::Say(said) => {
                    at.tell_store(to, BetweenStores::FromReplica { from, piece, said }, None);
                }
            }
        }
    }
}
