//! A disk server with one store: what `cluster::server` decides, on a simulated disk.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use cluster::message::{ClosedBy, FromStore, REPLICAS_MAX, ToManager, ToServer, ToStore};
use cluster::replication::{Epoch, ObjectDigest};
use cluster::server::{
    Effect, Grant, GrantRights, Input, Member, Note, PartTerms, ReadView, StorePart, View, Work, WorkPurpose,
    WorkResult,
};
use cluster::{ProcessEpoch, Time};
use disk::SimDisk;
use namespace::AtRest;
use node::{FromDisk, FromManager, Hello, StoreReport};
use types::capability::{Capability as Permission, CapabilityKey, CapabilityKeys, PathMark, Rights, Wanted};
use types::{BootId, ErrorCode, GroupId, NsPath, ObjectId, ReplicaId, SessionId, StoreId, WriterToken};

use crate::manager::{Env, node_of, server_of, store_of};
use crate::message::{Addr, Bytes, Capability, Message, Number};
use crate::replicas::Replicas;
use crate::settings::{Bug, Settings};

/// What a replica's disk is given to do.
#[derive(Clone, Debug)]
enum Job {
    Work(WorkPurpose, Work<Bytes>),
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
    Grace(ReplicaId),
    /// The manager wants a writing ended.
    End(ReplicaId, Epoch),
}

/// After so long a writing is ended whose client is gone.
const GRACE: Duration = Duration::from_secs(2);

/// So long those who write are remembered after they came, whatever becomes of them.
const WRITERS_KEPT: Duration = Duration::from_secs(10);

pub(crate) struct Server {
    index: usize,
    replicas: Replicas,
    member: Member,
    part: StorePart<Asked, Bytes>,
    last_session: SessionId,
    /// What clients show is made with these.
    keys: Option<CapabilityKeys>,
    /// Writings whose clients are gone, and when they are ended.
    gone: BTreeMap<ReplicaId, (Epoch, Time)>,
    /// What the manager gave for those that it wants ended, until that is attached or refused.
    ending: BTreeMap<ReplicaId, Grant>,
    jobs: BTreeMap<ReplicaId, VecDeque<Job>>,
    /// Writers that were attached here, and when last.
    writers: BTreeMap<ReplicaId, (WriterToken, Time)>,
    /// For the checks: replicas that were taken off the disk.
    pub(crate) emptied: Vec<ReplicaId>,
    planted: Option<Bug>,
    /// Pieces whose disk has got something to do: the world plans when.
    pub(crate) due: Vec<ReplicaId>,
    ticks: u64,
}

impl Server {
    /// Begins, on a disk that it may have been on before.
    pub(crate) fn start(
        index: usize,
        disk: &SimDisk,
        life: ProcessEpoch,
        boot: BootId,
        settings: &Settings,
    ) -> Result<Self, String> {
        let replicas = Replicas::open(disk).map_err(|error| format!("server {index} does not start: {error}"))?;
        // Quick, as everything is small here.
        let terms = PartTerms {
            fetch: 16 << 10,
            fetch_patience: Duration::from_secs(2),
            kept: Duration::from_secs(8),
            planted: settings.planted.and_then(Bug::of_machine),
            ..PartTerms::default()
        };
        let store = store_of(index);
        let member = Member::new(node_of(store), life, replicas.boot(boot), settings.terms);
        Ok(Self {
            index,
            replicas,
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
        if self.replicas.has_failed() {
            return;
        }
        self.ticks += 1;
        if self.ticks.is_multiple_of(10) {
            self.replicas.tick();
        }
        if self.ticks.is_multiple_of(60) {
            self.replicas.sweep();
            let Self { writers, part, .. } = self;
            writers
                .retain(|replica, (_, since)| part.leads(*replica).is_some() || env.now.since(*since) < WRITERS_KEPT);
        }
        if self.ticks.is_multiple_of(10) {
            env.send(Addr::Manager, Message::FromDisk(FromDisk::Report(vec![self.report()])));
        }
        if let Some(message) = self.member.tick(env.now) {
            env.send(Addr::Manager, Message::FromDisk(FromDisk::Cluster(message)));
        }
        self.step(Input::Tick, env);
        let due: Vec<(ReplicaId, Epoch)> = self
            .gone
            .iter()
            .filter(|(_, (_, until))| env.now >= *until)
            .map(|(replica, (epoch, _))| (*replica, *epoch))
            .collect();
        for (replica, epoch) in due {
            self.gone.insert(replica, (epoch, env.now + GRACE));
            self.step(Input::Interrupt { by: Asked::Grace(replica), replica, epoch }, env);
        }
    }

    pub(crate) fn receive(&mut self, from: Addr, message: Message, env: &mut Env<'_>) {
        // Whose disk could not sync says nothing more, until it begins anew.
        if self.replicas.has_failed() {
            return;
        }
        match message {
            Message::FromManager(message) => self.of_manager(message, env),
            Message::OfStore(message, change) => self.step(Input::OfStore(message, change), env),
            Message::Attach { number, capability } => match self.verified(&capability.sealed, &capability.path, env) {
                Some((replica, grant)) => {
                    self.attach(Asked::Client(from, number), replica, grant, env);
                }
                None => env.send(from, Message::Done { number, result: Err(ErrorCode::Stale) }),
            },
            Message::Write { number, replica, epoch, bytes } => {
                self.step(Input::Change { by: Asked::Client(from, number), replica, epoch, change: bytes }, env);
            }
            Message::Sync { number, replica, epoch } => {
                self.step(Input::Sync { by: Asked::Client(from, number), replica, epoch }, env);
            }
            Message::Close { number, replica, epoch } => {
                let (mtime, closed) = (None, ClosedBy::Client);
                self.step(Input::Close { by: Asked::Client(from, number), replica, epoch, mtime, closed }, env);
            }
            Message::Gone { replica, epoch } => {
                self.gone.insert(replica, (epoch, env.now + GRACE));
            }
            Message::Get { number, capability } => {
                let replica = capability.replica;
                match self.part.may_read(self.view(env.now), replica, &capability.grant) {
                    Ok(_) => {
                        let job = Job::Read { to: from, number, capability };
                        self.jobs.entry(replica).or_default().push_front(job);
                        self.due.push(replica);
                    }
                    Err(why) => env.send(from, Message::Got { number, result: Err(why) }),
                }
            }
            _ => {}
        }
    }

    /// A connection with the manager is up.
    pub(crate) fn connected(&mut self, env: &mut Env<'_>) {
        if self.replicas.has_failed() {
            return;
        }
        let key = self.keys.as_ref().map_or(0, |keys| keys.newest().id);
        let hello = Hello { key, stores: vec![self.report()], newest: types::ObjectId(0) };
        env.send(Addr::Manager, Message::FromDisk(FromDisk::Hello(hello)));
    }

    fn report(&self) -> StoreReport {
        StoreReport { store: store_of(self.index), capacity: 1 << 40, reserve: 0, free: 1 << 39, load_permille: 0 }
    }

    /// What a permission allows, if it is good here.
    fn verified(&self, sealed: &str, path: &NsPath, env: &Env<'_>) -> Option<(ReplicaId, Grant)> {
        let server = node_of(store_of(self.index));
        let now = self.member.manager_time(env.now)?;
        let wanted = Wanted { server, principal: None, path: PathMark::of(path), rights: Rights::READ, now };
        let permission = Permission::check(sealed.as_bytes(), self.keys.as_ref()?, &wanted).ok()?;
        Some((ReplicaId::first(permission.object), node::grant_of(&permission)?))
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
            FromManager::StoreAddresses(_) => {}
            // No client asks for the checksum of a file that has none.
            FromManager::Sum(_) => {}
            FromManager::WhoLeads { writers, .. } => {
                let leads = |writer: &WriterToken| {
                    self.part.leads(ReplicaId::first(writer.object)).is_some_and(|epoch| epoch.0 == writer.epoch)
                };
                let led = writers.iter().copied().filter(leads).collect();
                env.send(Addr::Manager, Message::FromDisk(FromDisk::Leads { asked: writers, led }));
            }
            FromManager::End(end) => {
                if let Ok(path) = NsPath::parse(&end.path)
                    && let Some((replica, grant)) = self.verified(&end.capability, &path, env)
                    && let GrantRights::Write { writer, .. } = &grant.rights
                {
                    let by = Asked::End(replica, Epoch(writer.epoch));
                    self.ending.insert(replica, grant.clone());
                    self.attach(by, replica, grant, env);
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
            (ToStore::Delete { replicas }, Some(Bug::DeletesAnother)) => {
                replicas.extend(replicas.last().map(|replica| ReplicaId::first(ObjectId(replica.object.0 + 1))));
            }
            _ => {}
        }
        self.step(Input::OfManager(message), env);
    }

    fn say_what_is_here(&self, store: StoreId, after: Option<ReplicaId>, env: &mut Env<'_>) {
        let Ok(mut replicas) = self.replicas.all() else { return };
        replicas.retain(|replica| after.is_none_or(|after| *replica > after));
        replicas.truncate(REPLICAS_MAX);
        env.send(Addr::Manager, Message::FromDisk(FromDisk::Has { store, after, replicas }));
    }

    fn attach(&mut self, by: Asked, replica: ReplicaId, grant: Grant, env: &mut Env<'_>) {
        if let GrantRights::Write { writer, .. } = &grant.rights {
            self.writers.insert(replica, (*writer, env.now));
        }
        self.step(Input::Attach { by, replica, grant }, env);
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
                Effect::Answer { to: Asked::Grace(replica), result } => {
                    // What is busy is asked again: a close may be under way, or the same question.
                    if result != Err(ErrorCode::Busy) {
                        self.gone.remove(&replica);
                    }
                    env.counts.interrupted += u64::from(result.is_ok());
                }
                Effect::Answer { to: Asked::End(replica, epoch), result } => {
                    let grant = self.ending.remove(&replica);
                    match (result, grant) {
                        (Ok(()), _) => self.step(Input::Interrupt { by: Asked::Grace(replica), replica, epoch }, env),
                        (Err(ErrorCode::Exists), Some(grant)) => self.step(Input::NothingKept { replica, grant }, env),
                        (Err(_), _) => {}
                    }
                }
                Effect::Work { replica, by, work } => {
                    self.jobs.entry(replica).or_default().push_back(Job::Work(by, work));
                    self.due.push(replica);
                }
                Effect::Note(_, Note::LeftOut(_)) => env.counts.left_out += 1,
                Effect::Note(_, Note::Differs(_)) => env.counts.differing += 1,
            }
        }
    }

    /// The disk does the next of what a replica has to do.
    pub(crate) fn disk(&mut self, replica: ReplicaId, env: &mut Env<'_>) {
        if self.replicas.has_failed() {
            return;
        }
        match self.jobs.get_mut(&replica).and_then(VecDeque::pop_front) {
            Some(Job::Work(by, work)) => {
                if matches!(work, Work::Delete | Work::Renew) {
                    self.emptied.push(replica);
                }
                let did = match (by, &work) {
                    (WorkPurpose::Copy(_), Work::Look { .. }) if self.planted == Some(Bug::CopyNotMade) => {
                        WorkResult::Looked(Ok(true))
                    }
                    _ => self.work(replica, work),
                };
                self.step(Input::WorkResult { replica, by, did }, env);
            }
            Some(Job::Read { to, number, capability }) => {
                let result = self.read(&capability, env);
                env.send(to, Message::Got { number, result });
            }
            None => {}
        }
        if self.jobs.get(&replica).is_some_and(VecDeque::is_empty) {
            self.jobs.remove(&replica);
        }
    }

    fn work(&mut self, replica: ReplicaId, work: Work<Bytes>) -> WorkResult<Bytes> {
        match work {
            Work::Open { may_make } => WorkResult::Opened(self.replicas.open_replica(replica, may_make)),
            Work::Renew => WorkResult::Opened(self.replicas.renew(replica)),
            Work::Apply { seq, change } => WorkResult::Applied(seq, self.replicas.apply(replica, &change)),
            Work::Sync => WorkResult::Synced(self.replicas.sync(replica)),
            Work::Complete => WorkResult::Completed(self.replicas.complete(replica)),
            Work::Interrupt => WorkResult::Interrupted(self.replicas.interrupt(replica)),
            Work::Look { whole } => WorkResult::Looked(Ok(self.replicas.holds(replica, whole).is_ok())),
            Work::Read { original, offset, len } => {
                WorkResult::Read(self.replicas.part(replica, original, offset, len))
            }
            Work::Delete => WorkResult::Deleted(self.replicas.delete(replica)),
        }
    }

    fn read(&self, capability: &Capability, env: &Env<'_>) -> Result<Arc<[u8]>, ErrorCode> {
        let Capability { replica, grant, .. } = capability;
        let content = match self.part.may_read(self.view(env.now), *replica, grant)? {
            ReadView::OfWriter => self.replicas.content(*replica, true)?,
            ReadView::Kept => self.replicas.content(*replica, false)?,
            ReadView::ObjectDigest(whole) => {
                self.replicas.holds(*replica, whole).map_err(|_| ErrorCode::Stale)?;
                self.replicas.content(*replica, false)?
            }
        };
        // Nothing passes meanwhile here; in earnest the lease may have ended.
        self.part.may_read(self.view(env.now), *replica, grant)?;
        Ok(content)
    }

    /// For the checks: whether its disk could not sync.
    pub(crate) fn has_failed(&self) -> bool {
        self.replicas.has_failed()
    }

    /// For the checks: replicas that it may be the primary of, and the writers that it was told then.
    pub(crate) fn led(&self) -> impl Iterator<Item = (ReplicaId, WriterToken)> {
        self.writers.iter().map(|(replica, (writer, _))| (*replica, *writer))
    }

    /// For the checks: the writer that it was told with this epoch.
    pub(crate) fn token(&self, replica: ReplicaId, epoch: Epoch) -> Option<WriterToken> {
        self.writers.get(&replica).map(|(writer, _)| *writer).filter(|writer| writer.epoch == epoch.0)
    }

    /// For the checks: with which epoch it answers as the primary of a replica; `None`: it does not.
    pub(crate) fn answers(&self, replica: ReplicaId, now: Time) -> Option<Epoch> {
        let epoch = self.part.leads(replica)?;
        let (store, session, group) = (store_of(self.index), self.member.session()?, GroupId(0));
        let grant = Grant { store, session, group, rights: GrantRights::Follow };
        (self.part.may_read(self.view(now), replica, &grant) == Ok(ReadView::OfWriter)).then_some(epoch)
    }

    /// For the checks: whether it has all of a replica, and nothing is written to it.
    pub(crate) fn is_whole(&self, replica: ReplicaId) -> bool {
        matches!(self.replicas.whole(replica), Ok(Some(_)))
    }

    /// For the checks: what it shows to somebody who was given this.
    pub(crate) fn may_read(&self, replica: ReplicaId, grant: &Grant, now: Time) -> Result<ReadView, ErrorCode> {
        self.part.may_read(self.view(now), replica, grant)
    }

    /// For the checks: so much of what was written of a replica.
    pub(crate) fn written(&self, replica: ReplicaId, offset: u64, len: usize) -> Result<Vec<u8>, ErrorCode> {
        self.replicas.written(replica, offset, len)
    }

    /// For the checks: whether it keeps a content at rest.
    pub(crate) fn keeps(&self, replica: ReplicaId, at_rest: &AtRest) -> Result<(), String> {
        self.replicas.keeps(replica, at_rest)
    }

    /// For the checks: whether the replica is whole, with this content.
    pub(crate) fn holds(&self, replica: ReplicaId, whole: ObjectDigest) -> Result<(), String> {
        self.replicas.holds(replica, whole).map_err(|what| format!("server {} has {what}", self.index))
    }

    /// For the checks: all replicas that there are.
    pub(crate) fn replicas(&self) -> Result<Vec<ReplicaId>, String> {
        self.replicas.all()
    }

    pub(crate) fn content(&self, replica: ReplicaId) -> Result<Arc<[u8]>, ErrorCode> {
        self.replicas.content(replica, false)
    }
}
