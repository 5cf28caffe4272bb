//! A disk server with one store: what `cluster::server` decides, on a simulated disk.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use cluster::message::{ClosedBy, FromStore, PIECES_MAX, ToManager, ToServer, ToStore};
use cluster::replication::{Epoch, Whole};
use cluster::server::{
    By, Did, Effect, Grant, GrantRights, Input, Member, Note, PartTerms, Shows, StorePart, View, Work,
};
use cluster::{Life, Time};
use disk::SimDisk;
use namespace::AtRest;
use node::{FromDisk, FromManager, Hello, StoreReport};
use types::capability::{Capability as Permission, CapabilityKey, CapabilityKeys, PathMark, Rights, Wanted};
use types::{BodyId, BootId, ErrorCode, GroupId, NsPath, PieceId, SessionId, StoreId, WriterToken};

use crate::manager::{Env, node_of, server_of, store_of};
use crate::message::{Addr, Bytes, Capability, Message, Number};
use crate::pieces::Pieces;
use crate::settings::{Bug, Settings};

/// What a piece's disk is given to do.
#[derive(Clone, Debug)]
enum Job {
    Work(By, Work<Bytes>),
    /// Reads are not kept waiting by what is to be written.
    Read {
        to: Addr,
        number: Number,
        capability: Capability,
    },
}

/// A client's request, or one of the server itself for one that is gone.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Client(Addr, Number),
    Grace(PieceId),
    /// The manager wants a writing ended.
    End(PieceId, Epoch),
}

/// After so long a writing is ended whose client is gone.
const GRACE: Duration = Duration::from_secs(2);

/// So long those who write are remembered after they came, whatever becomes of them.
const WRITERS_KEPT: Duration = Duration::from_secs(10);

pub(crate) struct Server {
    index: usize,
    pieces: Pieces,
    member: Member,
    part: StorePart<Asked, Bytes>,
    last_session: SessionId,
    /// What clients show is made with these.
    keys: Option<CapabilityKeys>,
    /// Writings whose clients are gone, and when they are ended.
    gone: BTreeMap<PieceId, (Epoch, Time)>,
    /// What the manager gave for those that it wants ended, until that is attached or refused.
    ending: BTreeMap<PieceId, Grant>,
    jobs: BTreeMap<PieceId, VecDeque<Job>>,
    /// Writers that were attached here, and when last.
    writers: BTreeMap<PieceId, (WriterToken, Time)>,
    /// For the checks: pieces that were taken off the disk.
    pub(crate) emptied: Vec<PieceId>,
    planted: Option<Bug>,
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
        // Quick, as everything is small here.
        let terms = PartTerms {
            fetch: 16 << 10,
            fetch_patience: Duration::from_secs(2),
            kept: Duration::from_secs(8),
            planted: settings.planted.and_then(Bug::of_machine),
            ..PartTerms::default()
        };
        let store = store_of(index);
        let member = Member::new(node_of(store), life, pieces.boot(boot), settings.terms);
        Ok(Self {
            index,
            pieces,
            member,
            part: StorePart::new(store, terms),
            last_session: SessionId(0),
            keys: None,
            gone: BTreeMap::new(),
            ending: BTreeMap::new(),
            jobs: BTreeMap::new(),
            writers: BTreeMap::new(),
            emptied: Vec::new(),
            planted: settings.planted,
            due: Vec::new(),
            ticks: 0,
        })
    }

    pub(crate) fn view(&self, now: Time) -> View {
        self.member.view(now)
    }

    /// The session that it has, or had last.
    pub(crate) fn last_session(&self) -> SessionId {
        self.last_session
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
            let Self { writers, part, .. } = self;
            writers.retain(|piece, (_, since)| part.leads(*piece).is_some() || env.now.since(*since) < WRITERS_KEPT);
        }
        if self.ticks.is_multiple_of(10) {
            env.send(Addr::Manager, Message::FromDisk(FromDisk::Report(vec![self.report()])));
        }
        if let Some(message) = self.member.tick(env.now) {
            env.send(Addr::Manager, Message::FromDisk(FromDisk::Cluster(message)));
        }
        self.step(Input::Tick, env);
        let due: Vec<(PieceId, Epoch)> = self
            .gone
            .iter()
            .filter(|(_, (_, until))| env.now >= *until)
            .map(|(piece, (epoch, _))| (*piece, *epoch))
            .collect();
        for (piece, epoch) in due {
            self.gone.insert(piece, (epoch, env.now + GRACE));
            self.step(Input::Interrupt { by: Asked::Grace(piece), piece, epoch }, env);
        }
    }

    pub(crate) fn receive(&mut self, from: Addr, message: Message, env: &mut Env<'_>) {
        // Whose disk could not sync says nothing more, until it begins anew.
        if self.pieces.has_failed() {
            return;
        }
        match message {
            Message::FromManager(message) => self.of_manager(message, env),
            Message::OfStore(message, change) => self.step(Input::OfStore(message, change), env),
            Message::Attach { number, capability } => match self.granted(&capability.sealed, &capability.path, env) {
                Some((piece, grant)) => {
                    self.attach(Asked::Client(from, number), piece, grant, env);
                }
                None => env.send(from, Message::Done { number, result: Err(ErrorCode::Stale) }),
            },
            Message::Write { number, piece, epoch, bytes } => {
                self.step(Input::Change { by: Asked::Client(from, number), piece, epoch, change: bytes }, env);
            }
            Message::Sync { number, piece, epoch } => {
                self.step(Input::Sync { by: Asked::Client(from, number), piece, epoch }, env);
            }
            Message::Close { number, piece, epoch } => {
                let (mtime, closed) = (None, ClosedBy::Client);
                self.step(Input::Close { by: Asked::Client(from, number), piece, epoch, mtime, closed }, env);
            }
            Message::Gone { piece, epoch } => {
                self.gone.insert(piece, (epoch, env.now + GRACE));
            }
            Message::Get { number, capability } => {
                let piece = capability.piece;
                match self.part.may_read(self.view(env.now), piece, &capability.grant) {
                    Ok(_) => {
                        let job = Job::Read { to: from, number, capability };
                        self.jobs.entry(piece).or_default().push_front(job);
                        self.due.push(piece);
                    }
                    Err(why) => env.send(from, Message::Got { number, result: Err(why) }),
                }
            }
            _ => {}
        }
    }

    /// A connection with the manager is up.
    pub(crate) fn connected(&mut self, env: &mut Env<'_>) {
        if self.pieces.has_failed() {
            return;
        }
        let key = self.keys.as_ref().map_or(0, |keys| keys.newest().id);
        let hello = Hello { key, stores: vec![self.report()], newest: types::BodyId(0) };
        env.send(Addr::Manager, Message::FromDisk(FromDisk::Hello(hello)));
    }

    fn report(&self) -> StoreReport {
        StoreReport { store: store_of(self.index), capacity: 1 << 40, reserve: 0, free: 1 << 39, load_permille: 0 }
    }

    /// What a permission allows, if it is good here.
    fn granted(&self, sealed: &str, path: &NsPath, env: &Env<'_>) -> Option<(PieceId, Grant)> {
        let server = node_of(store_of(self.index));
        let now = self.member.manager_time(env.now)?;
        let wanted = Wanted { server, principal: None, path: PathMark::of(path), rights: Rights::READ, now };
        let permission = Permission::check(sealed.as_bytes(), self.keys.as_ref()?, &wanted).ok()?;
        Some((PieceId::first(permission.body), node::grant_of(&permission)?))
    }

    fn of_manager(&mut self, message: FromManager, env: &mut Env<'_>) {
        match message {
            FromManager::Keys(keys) => {
                let key = CapabilityKey::new(keys.id, &keys.secret);
                match &mut self.keys {
                    Some(known) => known.rotate(key),
                    none => *none = Some(CapabilityKeys::new(key)),
                }
            }
            // Everybody knows the way to everybody here.
            FromManager::Ways(_) => {}
            // No client asks for the checksum of a file that has none.
            FromManager::Sum(_) => {}
            FromManager::WhoLeads { writers, .. } => {
                let leads = |writer: &WriterToken| {
                    self.part.leads(PieceId::first(writer.body)).is_some_and(|epoch| epoch.0 == writer.epoch)
                };
                let led = writers.iter().copied().filter(leads).collect();
                env.send(Addr::Manager, Message::FromDisk(FromDisk::Leads { asked: writers, led }));
            }
            FromManager::End(end) => {
                if let Ok(path) = NsPath::parse(&end.path)
                    && let Some((piece, grant)) = self.granted(&end.capability, &path, env)
                    && let GrantRights::Write { writer, .. } = &grant.rights
                {
                    let by = Asked::End(piece, Epoch(writer.epoch));
                    self.ending.insert(piece, grant.clone());
                    self.attach(by, piece, grant, env);
                }
            }
            FromManager::WhatHas { store, after } => self.say_what_is_here(store, after, env),
            FromManager::Cluster(ToServer::Registered { registered, terms, wall }) => {
                if self.member.registered(&registered, terms, wall) {
                    self.last_session = registered.session;
                    self.step(Input::Tick, env);
                }
            }
            FromManager::Cluster(ToServer::Renewed { session, number, wall }) => {
                self.member.renewed(session, number, wall);
            }
            FromManager::Cluster(ToServer::NoSession { session }) => self.member.no_session(session),
            FromManager::Cluster(ToServer::ToStore { store, message }) => {
                if store == store_of(self.index) {
                    self.of_manager_to_store(store, message, env);
                }
            }
        }
    }

    fn of_manager_to_store(&mut self, store: StoreId, mut message: ToStore, env: &mut Env<'_>) {
        match (&mut message, self.planted) {
            (ToStore::Fence(fence), Some(Bug::FenceNotKept)) => {
                let message = FromStore::Fenced(*fence);
                let message = FromDisk::Cluster(ToManager::OfStore { store, message });
                return env.send(Addr::Manager, Message::FromDisk(message));
            }
            (ToStore::Delete { pieces }, Some(Bug::DeletesAnother)) => {
                pieces.extend(pieces.last().map(|piece| PieceId::first(BodyId(piece.body.0 + 1))));
            }
            _ => {}
        }
        self.step(Input::OfManager(message), env);
    }

    fn say_what_is_here(&self, store: StoreId, after: Option<PieceId>, env: &mut Env<'_>) {
        let Ok(mut pieces) = self.pieces.all() else { return };
        pieces.retain(|piece| after.is_none_or(|after| *piece > after));
        pieces.truncate(PIECES_MAX);
        env.send(Addr::Manager, Message::FromDisk(FromDisk::Has { store, after, pieces }));
    }

    fn attach(&mut self, by: Asked, piece: PieceId, grant: Grant, env: &mut Env<'_>) {
        if let GrantRights::Write { writer, .. } = &grant.rights {
            self.writers.insert(piece, (*writer, env.now));
        }
        self.step(Input::Attach { by, piece, grant }, env);
    }

    fn step(&mut self, input: Input<Asked, Bytes>, env: &mut Env<'_>) {
        let mut out = Vec::new();
        self.part.step(env.now, self.view(env.now), input, &mut out);
        for effect in out {
            match effect {
                Effect::ToManager(message) => {
                    let store = store_of(self.index);
                    let message = FromDisk::Cluster(ToManager::OfStore { store, message });
                    env.send(Addr::Manager, Message::FromDisk(message));
                }
                Effect::ToStore { to, message, change } => env.send(server_of(to), Message::OfStore(message, change)),
                Effect::Answer { to: Asked::Client(client, number), result } => {
                    env.send(client, Message::Done { number, result });
                }
                Effect::Answer { to: Asked::Grace(piece), result } => {
                    // What is busy is asked again: a close may be under way, or the same question.
                    if result != Err(ErrorCode::Busy) {
                        self.gone.remove(&piece);
                    }
                    env.counts.interrupted += u64::from(result.is_ok());
                }
                Effect::Answer { to: Asked::End(piece, epoch), result } => {
                    let grant = self.ending.remove(&piece);
                    match (result, grant) {
                        (Ok(()), _) => self.step(Input::Interrupt { by: Asked::Grace(piece), piece, epoch }, env),
                        (Err(ErrorCode::Exists), Some(grant)) => self.step(Input::NothingKept { piece, grant }, env),
                        (Err(_), _) => {}
                    }
                }
                Effect::Work { piece, by, work } => {
                    self.jobs.entry(piece).or_default().push_back(Job::Work(by, work));
                    self.due.push(piece);
                }
                Effect::Note(_, Note::LeftOut(_)) => env.counts.left_out += 1,
                Effect::Note(_, Note::Differs(_)) => env.counts.differing += 1,
            }
        }
    }

    /// The disk does the next of what a piece has to do.
    pub(crate) fn disk(&mut self, piece: PieceId, env: &mut Env<'_>) {
        if self.pieces.has_failed() {
            return;
        }
        match self.jobs.get_mut(&piece).and_then(VecDeque::pop_front) {
            Some(Job::Work(by, work)) => {
                if matches!(work, Work::Delete | Work::Renew) {
                    self.emptied.push(piece);
                }
                let did = match (by, &work) {
                    (By::Copy(_), Work::Look { .. }) if self.planted == Some(Bug::CopyNotMade) => Did::Looked(Ok(true)),
                    _ => self.work(piece, work),
                };
                self.step(Input::Did { piece, by, did }, env);
            }
            Some(Job::Read { to, number, capability }) => {
                let result = self.read(&capability, env);
                env.send(to, Message::Got { number, result });
            }
            None => {}
        }
        if self.jobs.get(&piece).is_some_and(VecDeque::is_empty) {
            self.jobs.remove(&piece);
        }
    }

    fn work(&mut self, piece: PieceId, work: Work<Bytes>) -> Did<Bytes> {
        match work {
            Work::Open { may_make } => Did::Opened(self.pieces.open_piece(piece, may_make)),
            Work::Renew => Did::Opened(self.pieces.renew(piece)),
            Work::Apply { seq, change } => Did::Applied(seq, self.pieces.apply(piece, &change)),
            Work::Sync => Did::Synced(self.pieces.sync(piece)),
            Work::Complete => Did::Completed(self.pieces.complete(piece)),
            Work::Interrupt => Did::Interrupted(self.pieces.interrupt(piece)),
            Work::Look { whole } => Did::Looked(Ok(self.pieces.holds(piece, whole).is_ok())),
            Work::Read { original, offset, len } => Did::Read(self.pieces.part(piece, original, offset, len)),
            Work::Delete => Did::Deleted(self.pieces.delete(piece)),
        }
    }

    fn read(&self, capability: &Capability, env: &Env<'_>) -> Result<Arc<[u8]>, ErrorCode> {
        let Capability { piece, grant, .. } = capability;
        let content = match self.part.may_read(self.view(env.now), *piece, grant)? {
            Shows::OfWriter => self.pieces.content(*piece, true)?,
            Shows::Kept => self.pieces.content(*piece, false)?,
            Shows::Whole(whole) => {
                self.pieces.holds(*piece, whole).map_err(|_| ErrorCode::Stale)?;
                self.pieces.content(*piece, false)?
            }
        };
        // Nothing passes meanwhile here; in earnest the lease may have ended.
        self.part.may_read(self.view(env.now), *piece, grant)?;
        Ok(content)
    }

    /// For the checks: whether its disk could not sync.
    pub(crate) fn has_failed(&self) -> bool {
        self.pieces.has_failed()
    }

    /// For the checks: pieces that it may be the primary of, and the writers that it was told then.
    pub(crate) fn led(&self) -> impl Iterator<Item = (PieceId, WriterToken)> {
        self.writers.iter().map(|(piece, (writer, _))| (*piece, *writer))
    }

    /// For the checks: the writer that it was told with this epoch.
    pub(crate) fn token(&self, piece: PieceId, epoch: Epoch) -> Option<WriterToken> {
        self.writers.get(&piece).map(|(writer, _)| *writer).filter(|writer| writer.epoch == epoch.0)
    }

    /// For the checks: with which epoch it answers as the primary of a piece; `None`: it does not.
    pub(crate) fn answers(&self, piece: PieceId, now: Time) -> Option<Epoch> {
        let epoch = self.part.leads(piece)?;
        let (store, session, group) = (store_of(self.index), self.member.session()?, GroupId(0));
        let grant = Grant { store, session, group, rights: GrantRights::Follow };
        (self.part.may_read(self.view(now), piece, &grant) == Ok(Shows::OfWriter)).then_some(epoch)
    }

    /// For the checks: whether it has all of a piece, and nothing is written to it.
    pub(crate) fn is_whole(&self, piece: PieceId) -> bool {
        matches!(self.pieces.whole(piece), Ok(Some(_)))
    }

    /// For the checks: what it shows to somebody who was given this.
    pub(crate) fn may_read(&self, piece: PieceId, grant: &Grant, now: Time) -> Result<Shows, ErrorCode> {
        self.part.may_read(self.view(now), piece, grant)
    }

    /// For the checks: so much of what was written of a piece.
    pub(crate) fn written(&self, piece: PieceId, offset: u64, len: usize) -> Result<Vec<u8>, ErrorCode> {
        self.pieces.written(piece, offset, len)
    }

    /// For the checks: whether it keeps a content at rest.
    pub(crate) fn keeps(&self, piece: PieceId, at_rest: &AtRest) -> Result<(), String> {
        self.pieces.keeps(piece, at_rest)
    }

    /// For the checks: whether the piece is whole, with this content.
    pub(crate) fn holds(&self, piece: PieceId, whole: Whole) -> Result<(), String> {
        self.pieces.holds(piece, whole).map_err(|what| format!("server {} has {what}", self.index))
    }

    /// For the checks: all pieces that there are.
    pub(crate) fn pieces(&self) -> Result<Vec<PieceId>, String> {
        self.pieces.all()
    }

    pub(crate) fn content(&self, piece: PieceId) -> Result<Arc<[u8]>, ErrorCode> {
        self.pieces.content(piece, false)
    }
}
