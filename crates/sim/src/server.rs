//! A disk server with one store.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use cluster::replication::{
    Ask, Epoch, LeaseView, Patience, Planted, Primary, PrimaryEffect, PrimaryInput, Replica, ReplicaEffect,
    ReplicaInput, Seq, Stream, Takes, ToReplica, Whole,
};
use cluster::{CopyId, Lease, Life, Time};
use disk::SimDisk;
use namespace::WriterToken;
use types::{BootId, Era, ErrorCode, GroupId, NodeId, Participant, PieceId, SessionId, StoreId};

use crate::manager::{Env, node_of, server_of, store_of};
use crate::message::{Addr, Bytes, Capability, Message, Number, Rights};
use crate::pieces::Pieces;
use crate::settings::Settings;

/// What a piece's disk is given to do, in order.
#[derive(Clone, Debug)]
enum Work {
    OpenOwn { epoch: Epoch, may_make: bool },
    ApplyOwn { epoch: Epoch, seq: Seq, bytes: Bytes },
    SyncOwn { epoch: Epoch },
    CompleteOwn { epoch: Epoch },
    Open { stream: Stream, may_make: bool },
    Apply { stream: Stream, seq: Seq, bytes: Bytes },
    Sync { stream: Stream },
    Complete { stream: Stream },
    Read { to: Addr, number: Number, capability: Capability },
    Fetch { to: StoreId, copy: CopyId, epoch: Epoch, whole: Whole },
    Copy { copy: CopyId, epoch: Epoch, whole: Whole, bytes: Arc<[u8]> },
}

/// A client's request.
#[derive(Clone, Copy, Debug)]
struct Asked {
    client: Addr,
    number: Number,
}

/// The primary of a piece.
struct Leads {
    writer: WriterToken,
    group: GroupId,
    participants: Vec<Participant>,
    session: SessionId,
    may_make: bool,
    /// Who waits for it to be open.
    opener: Option<Asked>,
    machine: Option<Primary>,
    asked: BTreeMap<Ask, Asked>,
    asks: u64,
    /// Bytes of changes that may have to be sent again; those that have no number yet come last.
    changes: BTreeMap<Seq, Bytes>,
    next: Seq,
}

/// One who follows another.
struct Follows {
    machine: Replica,
    from: StoreId,
    /// Bytes of the change that is being told.
    told: Option<Bytes>,
}

pub(crate) struct Server {
    index: usize,
    settings: Settings,
    life: Life,
    boot: BootId,
    pieces: Pieces,
    era: Option<Era>,
    session: Option<SessionId>,
    lease: Lease,
    asked_to_register: Time,
    asked_to_renew: Time,
    leads: BTreeMap<PieceId, Leads>,
    follows: BTreeMap<PieceId, Follows>,
    floors: BTreeMap<PieceId, Epoch>,
    work: BTreeMap<PieceId, VecDeque<Work>>,
    /// Pieces that the store does not begin again.
    refused: BTreeSet<PieceId>,
    /// Pieces whose disk has got something to do: the world plans when.
    pub(crate) due: Vec<PieceId>,
    ticks: u64,
}

impl Server {
    /// Begins, on a disk that it may have been on before.
    pub(crate) fn start(
        index: usize,
        disk: &SimDisk,
        life: Life,
        boot: BootId,
        settings: &Settings,
    ) -> Result<Self, String> {
        let pieces = Pieces::open(disk).map_err(|error| format!("server {index} does not start: {error}"))?;
        Ok(Self {
            index,
            settings: *settings,
            life,
            boot,
            pieces,
            era: None,
            session: None,
            lease: Lease::new(settings.terms),
            asked_to_register: Time::default(),
            asked_to_renew: Time::default(),
            leads: BTreeMap::new(),
            follows: BTreeMap::new(),
            floors: BTreeMap::new(),
            work: BTreeMap::new(),
            refused: BTreeSet::new(),
            due: Vec::new(),
            ticks: 0,
        })
    }

    fn me(&self) -> StoreId {
        store_of(self.index)
    }

    fn node(&self) -> NodeId {
        node_of(self.me())
    }

    fn view(&self, now: Time) -> LeaseView {
        LeaseView { session: self.session, is_valid: self.lease.is_valid(now) }
    }

    pub(crate) fn tick(&mut self, env: &mut Env<'_>) {
        // Whose disk could not sync says nothing more, until it begins anew.
        if self.pieces.has_failed() {
            return;
        }
        self.ticks += 1;
        if self.ticks.is_multiple_of(10) {
            self.pieces.tick();
        }
        if self.ticks.is_multiple_of(60) {
            self.pieces.sweep();
        }
        let every = self.settings.terms.renew_every;
        match self.session {
            Some(session) if env.now.since(self.asked_to_renew) >= every => {
                self.asked_to_renew = env.now;
                let number = self.lease.ask(env.now);
                env.send(Addr::Manager, Message::Renew { node: self.node(), session, number });
            }
            None if env.now.since(self.asked_to_register) >= every / 2 || self.ticks == 1 => {
                self.asked_to_register = env.now;
                let number = self.lease.ask(env.now);
                let (node, life, boot, has_lost) = (self.node(), self.life, self.boot, self.pieces.has_lost());
                env.send(Addr::Manager, Message::Register { node, life, boot, has_lost, number });
            }
            _ => {}
        }
        let pieces: Vec<PieceId> = self.leads.keys().copied().collect();
        for piece in pieces {
            self.lead(piece, PrimaryInput::Tick, env);
        }
    }

    pub(crate) fn receive(&mut self, from: Addr, message: Message, env: &mut Env<'_>) {
        // Whose disk could not sync says nothing more, until it begins anew.
        if self.pieces.has_failed() {
            return;
        }
        match message {
            Message::Registered(registered) => {
                if self.session != Some(registered.session) {
                    self.session = Some(registered.session);
                    self.era = Some(registered.era);
                    self.pieces.loss_is_told();
                }
                self.lease.granted(registered.number);
            }
            Message::Renewed { session, number } if self.session == Some(session) => self.lease.granted(number),
            Message::NoSession { session } if self.session == Some(session) => {
                self.session = None;
                self.lease.end();
            }
            Message::Placed { piece, epoch, request, result } => {
                self.lead_of(piece, epoch, PrimaryInput::Placed(request, result), env);
            }
            Message::Committed { piece, epoch, request, result } => {
                self.lead_of(piece, epoch, PrimaryInput::Committed(request, result), env);
            }
            Message::Fence { fence, piece, epoch } => {
                self.fence(piece, epoch, env);
                env.send(Addr::Manager, Message::Fenced { node: self.node(), fence });
            }
            Message::ToReplica { from, piece, told, bytes } => self.told(from, piece, told, bytes, env),
            Message::FromReplica { from, piece, said } => {
                self.lead(piece, PrimaryInput::Replica(from, said), env);
            }
            Message::Attach { number, capability } => self.attach(Asked { client: from, number }, capability, env),
            Message::Write { number, piece, epoch, bytes } => {
                let asked = Asked { client: from, number };
                self.ask(asked, piece, epoch, env, |ask, leads| {
                    leads.next = leads.next.next();
                    leads.changes.insert(leads.next, bytes);
                    PrimaryInput::Change(ask)
                });
            }
            Message::Sync { number, piece, epoch } => {
                self.ask(Asked { client: from, number }, piece, epoch, env, |ask, _| PrimaryInput::Sync(ask));
            }
            Message::Close { number, piece, epoch } => {
                self.ask(Asked { client: from, number }, piece, epoch, env, |ask, _| PrimaryInput::Close(ask));
            }
            Message::Copy { copy, session, piece, epoch, whole, from } if self.session == Some(session) => {
                self.copy(copy, piece, epoch, whole, from, env);
            }
            Message::Fetch { to, copy, piece, epoch, whole } => {
                self.give(piece, Work::Fetch { to, copy, epoch, whole })
            }
            Message::Fetched { copy, piece, epoch, whole, bytes } => match bytes {
                Some(bytes) => self.give(piece, Work::Copy { copy, epoch, whole, bytes }),
                None => self.copied(copy, false, env),
            },
            Message::Get { number, capability } => {
                self.give(capability.piece, Work::Read { to: from, number, capability });
            }
            _ => {}
        }
    }

    fn fence(&mut self, piece: PieceId, epoch: Epoch, env: &mut Env<'_>) {
        let floor = self.floors.entry(piece).or_default();
        *floor = (*floor).max(epoch);
        if let Some(follows) = self.follows.get_mut(&piece) {
            follows.machine.fence(epoch);
        }
        let mut out = Vec::new();
        if let Some(leads) = self.leads.get_mut(&piece)
            && Epoch(leads.writer.epoch) < epoch
        {
            if let Some(machine) = &mut leads.machine {
                machine.fence(&mut out);
            } else if let Some(Asked { client, number }) = leads.opener.take() {
                env.send(client, Message::Done { number, result: Err(ErrorCode::Stale) });
            }
        }
        self.do_all(piece, out, env);
    }

    /// A client comes with what the manager gave it.
    fn attach(&mut self, asked: Asked, capability: Capability, env: &mut Env<'_>) {
        let Asked { client, number } = asked;
        let piece = capability.piece;
        let Rights::Write { writer, participants, may_make } = capability.rights else { return };
        let epoch = Epoch(writer.epoch);
        let floor = self.floors.get(&piece).copied().unwrap_or_default();
        let refused = if self.session != Some(capability.session) || epoch < floor {
            Some(ErrorCode::Stale)
        } else {
            match self.leads.get(&piece) {
                Some(leads) if leads.writer.epoch > writer.epoch => Some(ErrorCode::Stale),
                // The same again: it goes on where it was.
                Some(leads) if leads.writer.epoch == writer.epoch => match &leads.machine {
                    Some(machine) if machine.is_fenced() => Some(ErrorCode::Stale),
                    Some(_) => {
                        env.send(client, Message::Done { number, result: Ok(()) });
                        return;
                    }
                    None => Some(ErrorCode::Overloaded),
                },
                _ => None,
            }
        };
        if let Some(why) = refused {
            env.send(client, Message::Done { number, result: Err(why) });
            return;
        }
        // Whoever was before is fenced by this.
        self.fence(piece, epoch, env);
        let leads = Leads {
            writer,
            group: capability.group,
            participants,
            session: capability.session,
            may_make,
            opener: Some(asked),
            machine: None,
            asked: BTreeMap::new(),
            asks: 0,
            changes: BTreeMap::new(),
            next: Seq(0),
        };
        self.leads.insert(piece, leads);
        self.give(piece, Work::OpenOwn { epoch, may_make });
    }

    fn ask(
        &mut self,
        asked: Asked,
        piece: PieceId,
        epoch: Epoch,
        env: &mut Env<'_>,
        input: impl FnOnce(Ask, &mut Leads) -> PrimaryInput,
    ) {
        let leads = self.leads.get_mut(&piece).filter(|leads| leads.writer.epoch == epoch.0 && leads.machine.is_some());
        let Some(leads) = leads else {
            env.send(asked.client, Message::Done { number: asked.number, result: Err(ErrorCode::Stale) });
            return;
        };
        leads.asks += 1;
        let ask = Ask(leads.asks);
        leads.asked.insert(ask, asked);
        let before = leads.next;
        let input = input(ask, leads);
        let is_change = leads.next > before;
        let refused = self.lead(piece, input, env);
        // A change that was refused got no number.
        if is_change
            && refused
            && let Some(leads) = self.leads.get_mut(&piece)
        {
            leads.changes.remove(&leads.next);
            leads.next = before;
        }
    }

    fn lead_of(&mut self, piece: PieceId, epoch: Epoch, input: PrimaryInput, env: &mut Env<'_>) {
        if self.leads.get(&piece).is_some_and(|leads| leads.writer.epoch == epoch.0) {
            self.lead(piece, input, env);
        }
    }

    /// Whether a change was refused at once.
    fn lead(&mut self, piece: PieceId, input: PrimaryInput, env: &mut Env<'_>) -> bool {
        let view = self.view(env.now);
        let Some(leads) = self.leads.get_mut(&piece) else { return true };
        let Some(machine) = &mut leads.machine else { return true };
        let mut out = Vec::new();
        let is_change = matches!(input, PrimaryInput::Change(_));
        machine.step(env.now, view, input, &mut out);
        let is_applied = out.iter().any(|effect| matches!(effect, PrimaryEffect::Apply(_)));
        self.do_all(piece, out, env);
        is_change && !is_applied
    }

    fn do_all(&mut self, piece: PieceId, out: Vec<PrimaryEffect>, env: &mut Env<'_>) {
        for effect in out {
            let Some(leads) = self.leads.get_mut(&piece) else { return };
            let epoch = Epoch(leads.writer.epoch);
            let from = store_of(self.index);
            match effect {
                PrimaryEffect::Apply(seq) => {
                    let bytes = leads.changes.get(&seq).cloned();
                    if let Some(bytes) = bytes {
                        self.give(piece, Work::ApplyOwn { epoch, seq, bytes });
                    }
                }
                PrimaryEffect::Tell(store, told) => {
                    let bytes = match told {
                        ToReplica::Change { seq, .. } => leads.changes.get(&seq).cloned(),
                        _ => None,
                    };
                    env.send(server_of(store), Message::ToReplica { from, piece, told, bytes });
                }
                PrimaryEffect::Release(upto) => leads.changes = leads.changes.split_off(&upto.next()),
                PrimaryEffect::Answer(ask, result) => {
                    if let Some(Asked { client, number }) = leads.asked.remove(&ask) {
                        env.send(client, Message::Done { number, result });
                    }
                }
                PrimaryEffect::Place(request, participants) => {
                    if participants.len() < leads.participants.len() {
                        leads.participants.clone_from(&participants);
                        env.counts.left_out += 1;
                    }
                    if let Some(session) = self.session {
                        let (node, writer) = (node_of(from), leads.writer);
                        let place = Message::Place { node, session, piece, writer, participants, request };
                        env.send(Addr::Manager, place);
                    }
                }
                PrimaryEffect::SyncOwn => self.give(piece, Work::SyncOwn { epoch }),
                PrimaryEffect::CompleteOwn => self.give(piece, Work::CompleteOwn { epoch }),
                PrimaryEffect::Commit(request, whole, holders) => {
                    let (writer, group) = (leads.writer, leads.group);
                    let commit = Message::Commit { piece, group, writer, whole, holders, request };
                    env.send(Addr::Manager, commit);
                }
                PrimaryEffect::Differs(_) => env.counts.differing += 1,
            }
        }
    }

    fn told(&mut self, from: StoreId, piece: PieceId, told: ToReplica, bytes: Option<Bytes>, env: &mut Env<'_>) {
        let Some(era) = self.era.filter(|_| self.session.is_some()) else { return };
        let floor = self.floors.get(&piece).copied().unwrap_or_default();
        let planted = self.settings.planted;
        let follows = self.follows.entry(piece).or_insert_with(|| {
            let mut machine = Replica::new(env.now, era, planted);
            machine.fence(floor);
            Follows { machine, from, told: None }
        });
        (follows.from, follows.told) = (from, bytes);
        self.follow(piece, ReplicaInput::Told(told), env);
        // Whoever leads with a lower epoch is fenced by one who follows a higher one.
        let floor = self.follows.get(&piece).map_or(floor, |follows| follows.machine.floor());
        if self.settings.planted != Some(Planted::EpochNotChecked) {
            self.fence(piece, floor, env);
        }
    }

    fn follow(&mut self, piece: PieceId, input: ReplicaInput, env: &mut Env<'_>) {
        let Some(follows) = self.follows.get_mut(&piece) else { return };
        let mut out = Vec::new();
        follows.machine.step(env.now, input, &mut out);
        let (to, told) = (follows.from, follows.told.take());
        for effect in out {
            match effect {
                ReplicaEffect::Open { stream, may_make } => self.give(piece, Work::Open { stream, may_make }),
                ReplicaEffect::Apply(stream, seq) => {
                    if let Some(bytes) = told.clone() {
                        self.give(piece, Work::Apply { stream, seq, bytes });
                    }
                }
                ReplicaEffect::Sync(stream) => self.give(piece, Work::Sync { stream }),
                ReplicaEffect::Complete(stream) => self.give(piece, Work::Complete { stream }),
                ReplicaEffect::Say(said) => {
                    env.send(server_of(to), Message::FromReplica { from: store_of(self.index), piece, said });
                }
            }
        }
    }

    /// A content that is whole elsewhere is to be here, too.
    fn copy(&mut self, copy: CopyId, piece: PieceId, epoch: Epoch, whole: Whole, from: StoreId, env: &mut Env<'_>) {
        if self.floors.get(&piece).is_some_and(|floor| epoch < *floor) {
            return self.copied(copy, false, env);
        }
        self.fence(piece, epoch, env);
        // All writing up to this epoch is over: whatever is still on its way from there comes too late.
        let over = Epoch(epoch.0.saturating_add(1));
        let (now, era, planted) = (env.now, self.era.unwrap_or_default(), self.settings.planted);
        let follows = self.follows.entry(piece).or_insert_with(|| Follows {
            machine: Replica::new(now, era, planted),
            from,
            told: None,
        });
        follows.machine.fence(over);
        if self.holds(piece, whole).is_ok() {
            return self.copied(copy, true, env);
        }
        env.send(server_of(from), Message::Fetch { to: self.me(), copy, piece, epoch, whole });
    }

    fn copied(&mut self, copy: CopyId, is_there: bool, env: &mut Env<'_>) {
        env.send(Addr::Manager, Message::Copied { node: self.node(), copy, is_there });
    }

    fn put(&mut self, piece: PieceId, epoch: Epoch, whole: Whole, bytes: &Arc<[u8]>) -> Result<Whole, ErrorCode> {
        // Somebody may have begun to write it meanwhile, or the same came twice.
        if self.floors.get(&piece).is_some_and(|floor| epoch < *floor) {
            return Err(ErrorCode::Stale);
        }
        if self.holds(piece, whole).is_ok() {
            return Ok(whole);
        }
        self.pieces.put(piece, &Bytes { offset: 0, bytes: Arc::clone(bytes) })
    }

    fn give(&mut self, piece: PieceId, work: Work) {
        self.work.entry(piece).or_default().push_back(work);
        self.due.push(piece);
    }

    /// The disk does the next of what a piece has to do.
    pub(crate) fn disk(&mut self, piece: PieceId, env: &mut Env<'_>) {
        if self.pieces.has_failed() {
            return;
        }
        if let Some(work) = self.work.get_mut(&piece).and_then(VecDeque::pop_front) {
            self.work_on(piece, work, env);
        }
    }

    fn work_on(&mut self, piece: PieceId, work: Work, env: &mut Env<'_>) {
        match work {
            Work::OpenOwn { epoch, may_make } => {
                let result = self.pieces.open_piece(piece, may_make);
                self.is_open(piece, epoch, result, env);
            }
            Work::ApplyOwn { epoch, seq, bytes } => {
                let result = self.pieces.apply(piece, &bytes);
                self.lead_of(piece, epoch, PrimaryInput::Applied(seq, result), env);
            }
            Work::SyncOwn { epoch } => {
                let result = self.pieces.sync(piece);
                self.lead_of(piece, epoch, PrimaryInput::Synced(result), env);
            }
            Work::CompleteOwn { epoch } => {
                let result = self.pieces.complete(piece);
                self.lead_of(piece, epoch, PrimaryInput::Completed(result), env);
            }
            Work::Open { stream, may_make } => {
                let result = self.pieces.open_piece(piece, may_make);
                self.follow(piece, ReplicaInput::Opened(stream, result), env);
            }
            Work::Apply { stream, seq, bytes } => {
                let result = self.pieces.apply(piece, &bytes);
                self.follow(piece, ReplicaInput::Applied(stream, seq, result), env);
            }
            Work::Sync { stream } => {
                let result = self.pieces.sync(piece);
                self.follow(piece, ReplicaInput::Synced(stream, result), env);
            }
            Work::Complete { stream } => {
                let result = self.pieces.complete(piece);
                self.follow(piece, ReplicaInput::Completed(stream, result), env);
            }
            Work::Fetch { to, copy, epoch, whole } => {
                let bytes = self.holds(piece, whole).ok().and_then(|()| self.pieces.content(piece, false).ok());
                env.send(server_of(to), Message::Fetched { copy, piece, epoch, whole, bytes });
            }
            Work::Copy { copy, epoch, whole, bytes } => {
                let put = self.put(piece, epoch, whole, &bytes);
                if put == Err(ErrorCode::Exists) {
                    self.refused.insert(piece);
                }
                let is_there = put == Ok(whole);
                self.copied(copy, is_there, env);
            }
            Work::Read { to, number, capability } => {
                let result = self.read(&capability, env);
                env.send(to, Message::Got { number, result });
            }
        }
    }

    fn is_open(&mut self, piece: PieceId, epoch: Epoch, result: Result<(), ErrorCode>, env: &mut Env<'_>) {
        let (me, life) = (self.me(), self.life);
        let Some(leads) = self.leads.get_mut(&piece).filter(|leads| leads.writer.epoch == epoch.0) else { return };
        let Some(Asked { client, number }) = leads.opener.take() else { return };
        let takes = Takes {
            me,
            era: self.era.unwrap_or_default(),
            life,
            epoch,
            session: leads.session,
            participants: leads.participants.clone(),
            may_make: leads.may_make,
        };
        let mut out = Vec::new();
        let planted = self.settings.planted;
        let machine = result.and_then(|()| Primary::new(env.now, takes, Patience::default(), planted, &mut out));
        env.send(client, Message::Done { number, result: machine.as_ref().map(drop).map_err(|why| *why) });
        match machine {
            Ok(machine) => {
                leads.machine = Some(machine);
                self.do_all(piece, out, env);
            }
            Err(_) => drop(self.leads.remove(&piece)),
        }
    }

    fn read(&self, capability: &Capability, env: &Env<'_>) -> Result<Arc<[u8]>, ErrorCode> {
        let piece = capability.piece;
        let view = self.view(env.now);
        if view.session != Some(capability.session) {
            return Err(ErrorCode::Stale);
        }
        let leads = self.leads.get(&piece).and_then(|leads| leads.machine.as_ref());
        let is_lead = leads.is_some_and(|machine| !machine.is_fenced());
        if let Some(machine) = leads.filter(|_| is_lead) {
            if !machine.may_show(view) {
                return Err(ErrorCode::Overloaded);
            }
            return self.pieces.content(piece, true);
        }
        let Rights::Read { epoch, whole } = capability.rights else { return Err(ErrorCode::Stale) };
        let may_show = view.is_valid || self.settings.planted == Some(Planted::LeaseNotChecked);
        if !may_show || self.floors.get(&piece).is_some_and(|floor| epoch < *floor) {
            return Err(ErrorCode::Stale);
        }
        self.pieces.holds(piece, whole).map_err(|_| ErrorCode::Stale)?;
        self.pieces.content(piece, false)
    }

    /// For the checks: whether the piece is whole, with this content.
    pub(crate) fn holds(&self, piece: PieceId, whole: Whole) -> Result<(), String> {
        self.pieces.holds(piece, whole).map_err(|what| format!("server {} has {what}", self.index))
    }

    /// For the checks: whether a copy could come here.
    pub(crate) fn can_take(&self, piece: PieceId) -> bool {
        !self.refused.contains(&piece)
    }

    pub(crate) fn content(&self, piece: PieceId) -> Result<Arc<[u8]>, ErrorCode> {
        self.pieces.content(piece, false)
    }
}
