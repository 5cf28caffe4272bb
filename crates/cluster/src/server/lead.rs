//! Pieces that this store is the primary of: clients' requests become the machine's, and what it wants becomes work and messages.

use std::collections::BTreeMap;

use types::{ErrorCode, GroupId, Participant, PieceId, SessionId, Timestamp, WriterToken};

use super::part::At;
use super::{By, Did, Grant, GrantRights, Note, StorePart, Work};
use crate::Time;
use crate::message::{BetweenStores, ClosedBy, FromStore};
use crate::replication::{Ask, Epoch, Primary, PrimaryEffect, PrimaryInput, Seq, Takes, ToReplica};

/// The primary of a piece.
#[derive(Clone, Debug)]
pub(super) struct Lead<C, B> {
    writer: WriterToken,
    group: GroupId,
    participants: Vec<Participant>,
    session: SessionId,
    may_make: bool,
    /// Who waits for it to be open.
    pub(super) opener: C,
    /// There is one when the piece is open.
    pub(super) machine: Option<Primary>,
    asked: BTreeMap<Ask, C>,
    asks: u64,
    /// What may have to be told again.
    pub(super) changes: BTreeMap<Seq, B>,
    next: Seq,
    /// What the close said.
    pub(super) closing: (Option<Timestamp>, ClosedBy),
    /// When it was over with it.
    pub(super) ended: Option<Time>,
}

impl<C, B> Lead<C, B> {
    pub(super) fn epoch(&self) -> Epoch {
        Epoch(self.writer.epoch)
    }
}

impl<C: Copy, B: Clone> StorePart<C, B> {
    /// A client comes with what the manager gave it.
    pub(super) fn attach(&mut self, by: C, piece: PieceId, grant: Grant, at: &mut At<'_, C, B>) {
        let GrantRights::Write { writer, participants, may_make } = grant.rights else {
            return at.answer(by, Err(ErrorCode::Denied));
        };
        let epoch = Epoch(writer.epoch);
        let is_here = grant.store == self.store && writer.body == piece.body;
        let refusal = if !is_here || at.view.lease.session != Some(grant.session) || epoch < self.floor(piece).writes {
            Some(ErrorCode::Stale)
        } else {
            match self.leads.get(&piece) {
                Some(lead) if lead.epoch() > epoch => Some(ErrorCode::Stale),
                // The same again: it goes on where it was.
                Some(lead) if lead.epoch() == epoch => match &lead.machine {
                    Some(machine) if machine.is_fenced() => Some(ErrorCode::Stale),
                    Some(_) => return at.answer(by, Ok(())),
                    None => Some(ErrorCode::Overloaded),
                },
                _ => None,
            }
        };
        if let Some(why) = refusal {
            return at.answer(by, Err(why));
        }
        // Whoever was before is fenced by this.
        self.fence(piece, epoch, at);
        let lead = Lead {
            writer,
            group: grant.group,
            participants,
            session: grant.session,
            may_make,
            opener: by,
            machine: None,
            asked: BTreeMap::new(),
            asks: 0,
            changes: BTreeMap::new(),
            next: Seq(0),
            closing: (None, ClosedBy::Client),
            ended: None,
        };
        self.leads.insert(piece, lead);
        at.work(piece, By::Lead(epoch), Work::Open { may_make });
    }

    /// The answer is for nobody: if this is lost, the manager asks again.
    pub(super) fn nothing_kept(&mut self, piece: PieceId, grant: &Grant, at: &mut At<'_, C, B>) {
        let GrantRights::Write { writer, .. } = grant.rights else { return };
        let is_led = self.leads.contains_key(&piece);
        if at.view.lease.session == Some(grant.session) && Epoch(writer.epoch) >= self.floor(piece).writes && !is_led {
            at.tell_manager(FromStore::Interrupt { piece, writer, kept_len: 0, holders: Vec::new(), request: 0 });
        }
    }

    pub(super) fn change(&mut self, by: C, piece: PieceId, epoch: Epoch, change: B, at: &mut At<'_, C, B>) {
        let lead = self.leads.get(&piece).filter(|lead| lead.epoch() == epoch);
        let refusal = lead.and_then(|lead| lead.machine.as_ref()).and_then(Primary::refusal);
        // A change that is refused gets no number.
        if let Some(why) = refusal {
            return at.answer(by, Err(why));
        }
        self.ask(by, piece, epoch, at, |lead, ask| {
            lead.next = lead.next.next();
            lead.changes.insert(lead.next, change);
            PrimaryInput::Change(ask)
        });
    }

    pub(super) fn ask(
        &mut self,
        by: C,
        piece: PieceId,
        epoch: Epoch,
        at: &mut At<'_, C, B>,
        input: impl FnOnce(&mut Lead<C, B>, Ask) -> PrimaryInput,
    ) {
        let lead = self.leads.get_mut(&piece).filter(|lead| lead.epoch() == epoch && lead.machine.is_some());
        let Some(lead) = lead else {
            return at.answer(by, Err(ErrorCode::Stale));
        };
        lead.asks += 1;
        let ask = Ask(lead.asks);
        lead.asked.insert(ask, by);
        let input = input(lead, ask);
        self.lead(piece, input, at);
    }

    pub(super) fn lead_of(&mut self, piece: PieceId, epoch: Epoch, input: PrimaryInput, at: &mut At<'_, C, B>) {
        if self.leads.get(&piece).is_some_and(|lead| lead.epoch() == epoch) {
            self.lead(piece, input, at);
        }
    }

    pub(super) fn lead(&mut self, piece: PieceId, input: PrimaryInput, at: &mut At<'_, C, B>) {
        let Some(machine) = self.leads.get_mut(&piece).and_then(|lead| lead.machine.as_mut()) else { return };
        let mut out = Vec::new();
        machine.step(at.now, at.view.lease, input, &mut out);
        self.do_all(piece, out, at);
    }

    /// Does what the machine wants, and sees whether it is over with it.
    pub(super) fn do_all(&mut self, piece: PieceId, out: Vec<PrimaryEffect>, at: &mut At<'_, C, B>) {
        for effect in out {
            self.do_one(piece, effect, at);
        }
        let Some(lead) = self.leads.get_mut(&piece) else { return };
        let Some(machine) = lead.machine.as_ref().filter(|machine| machine.is_over()) else { return };
        if lead.ended.is_none() {
            lead.ended = Some(at.now);
        }
        if machine.is_fenced() {
            // Whoever comes again with the same finds out from the manager what became of it: the floor says so, and nothing else of it is needed. Where
            // many small files are written, there are more that have ended than can be looked at with each tick.
            let epoch = lead.epoch();
            self.leads.remove(&piece);
            if self.floor(piece).writes <= epoch {
                self.raise(piece, epoch, epoch.next(), at.now);
            }
            self.floors.entry(piece).or_default().has_led = true;
        }
    }

    fn do_one(&mut self, piece: PieceId, effect: PrimaryEffect, at: &mut At<'_, C, B>) {
        let from = self.store;
        let Some(lead) = self.leads.get_mut(&piece) else { return };
        let (by, writer) = (By::Lead(lead.epoch()), lead.writer);
        match effect {
            PrimaryEffect::Apply(seq) => {
                if let Some(change) = lead.changes.get(&seq).cloned() {
                    at.work(piece, by, Work::Apply { seq, change });
                }
            }
            PrimaryEffect::Tell(to, told) => {
                let change = match told {
                    ToReplica::Change { seq, .. } => lead.changes.get(&seq).cloned(),
                    _ => None,
                };
                at.tell_store(to, BetweenStores::ToReplica { from, piece, told }, change);
            }
            PrimaryEffect::Release(upto) => lead.changes = lead.changes.split_off(&upto.next()),
            PrimaryEffect::Answer(ask, result) => {
                if let Some(to) = lead.asked.remove(&ask) {
                    at.answer(to, result);
                }
            }
            PrimaryEffect::Place(request, participants) => {
                let left_out = lead.participants.len().saturating_sub(participants.len());
                if left_out > 0 {
                    lead.participants.clone_from(&participants);
                    at.note(piece, Note::LeftOut(left_out));
                }
                if let Some(session) = at.view.lease.session {
                    at.tell_manager(FromStore::Place { session, piece, writer, participants, request });
                }
            }
            PrimaryEffect::SyncOwn => at.work(piece, by, Work::Sync),
            PrimaryEffect::CompleteOwn => at.work(piece, by, Work::Complete),
            PrimaryEffect::InterruptOwn => at.work(piece, by, Work::Interrupt),
            PrimaryEffect::Commit(request, whole, holders) => {
                let (group, (mtime, by)) = (lead.group, lead.closing);
                at.tell_manager(FromStore::Commit { piece, group, writer, whole, holders, mtime, by, request });
            }
            PrimaryEffect::Interrupt(request, kept_len, holders) => {
                at.tell_manager(FromStore::Interrupt { piece, writer, kept_len, holders, request });
            }
            PrimaryEffect::Differs(store) => at.note(piece, Note::Differs(store)),
        }
    }

    pub(super) fn did_lead(&mut self, piece: PieceId, epoch: Epoch, did: Did<B>, at: &mut At<'_, C, B>) {
        let input = match did {
            Did::Opened(result) => return self.is_open(piece, epoch, result, at),
            Did::Applied(seq, result) => PrimaryInput::Applied(seq, result),
            Did::Synced(result) => PrimaryInput::Synced(result),
            Did::Completed(result) => PrimaryInput::Completed(result),
            Did::Interrupted(result) => PrimaryInput::Interrupted(result),
            Did::Looked(_) | Did::Read(_) | Did::Deleted(_) => return,
        };
        self.lead_of(piece, epoch, input, at);
    }

    fn is_open(&mut self, piece: PieceId, epoch: Epoch, result: Result<(), ErrorCode>, at: &mut At<'_, C, B>) {
        let is_it = |lead: &&Lead<C, B>| lead.epoch() == epoch && lead.machine.is_none();
        let Some(lead) = self.leads.get(&piece).filter(is_it) else { return };
        let opener = lead.opener;
        let takes = Takes {
            me: self.store,
            era: at.view.era.unwrap_or_default(),
            life: at.view.life,
            epoch,
            session: lead.session,
            participants: lead.participants.clone(),
            may_make: lead.may_make,
        };
        match result.and_then(|()| self.new_primary(takes, at)) {
            Ok((machine, out)) => {
                if let Some(lead) = self.leads.get_mut(&piece) {
                    lead.machine = Some(machine);
                }
                at.answer(opener, Ok(()));
                self.do_all(piece, out, at);
            }
            Err(why) => {
                self.leads.remove(&piece);
                at.answer(opener, Err(why));
            }
        }
    }
}
