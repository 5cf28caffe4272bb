//! The manager: sessions, fences and the namespace, on a disk of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::replication::{Epoch, Whole};
use cluster::{
    CopyEffect, CopyId, CopyRate, Copying, Fence, FenceId, Fences, Owed, Presence, Register, Reopening, Sessions,
    Standing, Time, reopening,
};
use disk::{Disk, SimDisk};
use journal::{Journal, JournalConfig, StreamId};
use kv::{Durability, IndexConfig, Inline, Kv, LoggedIndex, MemoryEngine};
use namespace::{
    Actor, Commit, CommitPlaced, Committed, Completion, Content, CopyDone, FileState, How, Inode, Namespace,
    NamespaceConfig, NsError, OpenWrite, OpenedWrite, Operation, PlaceWriter, PutGroup, PutNode, Sums, WriterKind,
    WriterRecord, WriterToken,
};
use rand::Rng;
use rand::rngs::SmallRng;
use types::{
    BodyId, BootId, ClientIdentity, Era, ErrorCode, Group, GroupId, Member, NodeId, NsPath, Participant, PieceId,
    Placement, StoreId, Timestamp,
};

use crate::message::{Addr, Capability, Message, Number, Rights, Want};
use crate::settings::{Counts, Settings};

/// What a node is handed, and what it gives.
pub(crate) struct Env<'a> {
    /// By its own clock.
    pub(crate) now: Time,
    pub(crate) out: &'a mut Vec<(Addr, Message)>,
    pub(crate) counts: &'a mut Counts,
    pub(crate) rng: &'a mut SmallRng,
}

impl Env<'_> {
    pub(crate) fn send(&mut self, to: Addr, message: Message) {
        self.out.push((to, message));
    }
}

/// A store and the node of it have the same number, and are the server's index and one.
pub(crate) fn store_of(server: usize) -> StoreId {
    StoreId(server as u64 + 1)
}

pub(crate) fn node_of(store: StoreId) -> NodeId {
    NodeId(store.0)
}

pub(crate) fn server_of(store: StoreId) -> Addr {
    Addr::Server(usize::try_from(store.0 - 1).unwrap_or(0))
}

/// Quick, as everything is small here.
const COPIES: CopyRate = CopyRate {
    bytes_per_second: 4 << 20,
    at_once: 4,
    patience: Duration::from_secs(4),
    rest: Duration::from_secs(2),
    look_every: Duration::from_secs(2),
};
/// Owed copies that are looked for at a time.
const PAGE: usize = 20;

/// What waits for a fence.
enum After {
    TakeOver { client: usize, number: Number, path: String, writer: WriterToken, to: Participant },
    Update { client: usize, number: Number, path: String, participants: Vec<Participant>, group: GroupId },
    Place(Placing),
}

#[derive(Clone)]
struct Placing {
    node: NodeId,
    piece: PieceId,
    writer: WriterToken,
    participants: Vec<Participant>,
    request: u64,
}

/// What waits, and for which fences.
struct Waiting {
    fences: Vec<(FenceId, bool)>,
    after: After,
}

pub(crate) struct Manager {
    pub(crate) kv: Arc<dyn Kv>,
    pub(crate) ns: Arc<Namespace>,
    index: Arc<LoggedIndex>,
    sessions: Sessions,
    fences: Fences,
    waiting: Vec<Waiting>,
    settings: Settings,
    groups: Vec<GroupId>,
    copying: Copying,
    copies: BTreeMap<CopyId, CopyDone>,
    ticks: u64,
}

impl Manager {
    /// Begins, on a disk that a manager may have been on before.
    pub(crate) fn start(disk: &SimDisk, now: Time, settings: &Settings) -> Result<Self, String> {
        let text = |error: &dyn std::error::Error| format!("the manager does not start: {error}");
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let config =
            JournalConfig { streams: vec![StreamId::NAMESPACE], incarnation: Some(1), ..JournalConfig::small() };
        let (journal, _) = Journal::open(Arc::clone(&shared), "journal", config).map_err(|error| text(&error))?;
        let engine = Box::new(MemoryEngine::new());
        let (index, _) = LoggedIndex::open(
            Arc::new(journal),
            StreamId::NAMESPACE,
            engine,
            shared,
            "checkpoint",
            IndexConfig::small(),
        )
        .map_err(|error| text(&error))?;
        let kv: Arc<dyn Kv> = Arc::new(Inline::new(Arc::clone(&index)));
        let limits = NamespaceConfig { id_range: 256, ..NamespaceConfig::default() };
        let ns = Namespace::open(Arc::clone(&kv), Timestamp(1), limits).map_err(|error| text(&error))?;
        let nodes = ns.read(namespace::nodes).map_err(|error| text(&error))?;
        let sessions = Sessions::new(settings.terms, ns.session(), now, nodes);
        let mut manager = Self {
            kv,
            ns,
            index,
            sessions,
            fences: Fences::default(),
            waiting: Vec::new(),
            settings: *settings,
            groups: Vec::new(),
            copying: Copying::new(now, COPIES),
            copies: BTreeMap::new(),
            ticks: 0,
        };
        manager.make_groups().map_err(|error| text(&error))?;
        Ok(manager)
    }

    /// Each store is the first of a group.
    fn make_groups(&mut self) -> Result<(), NsError> {
        for first in 0..self.settings.servers {
            let group = GroupId(first as u64 + 2);
            self.groups.push(group);
            if self.ns.read(|read| namespace::group(read, group))?.is_some() {
                continue;
            }
            let member = |at| {
                let store = store_of((first + at) % self.settings.servers);
                Member { store, since: BodyId(1), through: BodyId(0) }
            };
            let members = (0..self.settings.replicas).map(member).collect();
            self.change(Durability::Synced, PutGroup { group: Group { group, epoch: 1, members } })?;
        }
        Ok(())
    }

    fn change<O: Operation + Send + 'static>(&self, durability: Durability, op: O) -> Result<O::Reply, NsError> {
        let ctx = self.ns.context(Timestamp(1), &Actor::admin(), None);
        self.ns.change_wait(durability, ctx, op)
    }

    pub(crate) fn tick(&mut self, env: &mut Env<'_>) {
        self.ticks += 1;
        if self.ticks.is_multiple_of(50) {
            // What has piled up is swept; a disk error is told by the next change.
            let _ = self.index.sweep_now().and_then(|_| self.index.checkpoint_now());
        }
        let mut tell = Vec::new();
        let there = self.fences.look(env.now, &self.sessions, &mut tell);
        Self::tell(tell, env);
        for fence in there {
            self.is_there(fence, env);
        }
        let mut out = Vec::new();
        self.copying.tick(env.now, &mut out);
        for effect in out {
            match effect {
                CopyEffect::Look(after) => {
                    // A disk error is told by the next change.
                    let (found, is_last) = self.owed(after, env.now).unwrap_or_default();
                    self.copying.found(env.now, found, is_last);
                }
                CopyEffect::Make(copy, owed) => {
                    if self.copy(copy, &owed, env).is_none() {
                        self.copying.done(env.now, copy, false);
                    }
                }
            }
        }
    }

    /// A page of what is owed to stores that are there, and whether there is no more.
    fn owed(&self, after: Option<(GroupId, BodyId)>, now: Time) -> Result<(Vec<Owed>, bool), NsError> {
        let mut found = Vec::new();
        for group in self.groups.iter().filter(|group| after.is_none_or(|(after, _)| **group >= after)) {
            let behind = after.filter(|(after, _)| after == group).map(|(_, body)| body);
            for (body, stores) in self.ns.read(|read| namespace::owed(read, *group, behind, PAGE - found.len()))? {
                let len = self.content_of(*group, body)?.map_or(0, |content| content.len);
                let online = stores.into_iter().filter(|store| self.is_online(now, *store));
                found.extend(online.map(|to| Owed { group: *group, body, to, len }));
            }
            if found.len() >= PAGE {
                return Ok((found, false));
            }
        }
        Ok((found, true))
    }

    /// A content that is whole, and that nobody writes.
    fn content_of(&self, group: GroupId, body: BodyId) -> Result<Option<Content>, NsError> {
        self.ns.read(|read| {
            let Some(record) = namespace::body_record(read, group, body)? else { return Ok(None) };
            let content = namespace::stat_ino(read, record.ino)?.content().copied();
            Ok(content.filter(|content| content.body == body && content.state == FileState::Complete))
        })
    }

    fn copy(&mut self, copy: CopyId, owed: &Owed, env: &mut Env<'_>) -> Option<()> {
        let Owed { group, body, to, .. } = *owed;
        let content = self.content_of(group, body).ok()??;
        let sums = content.sums?;
        let record = self.ns.read(|read| namespace::body_record(read, group, body)).ok()??;
        let holders = self.ns.read(|read| namespace::holders(read, group, body)).ok()?;
        let from = holders.into_iter().find(|store| self.is_online(env.now, *store))?;
        let session = self.sessions.session(env.now, node_of(to))?;
        let whole = Whole { len: content.len, crc32c: sums.crc32c, adler32: sums.adler32 };
        self.copies.insert(copy, CopyDone { group, body, generation: content.generation, store: to });
        let (piece, epoch) = (PieceId::first(body), Epoch(record.epoch));
        env.send(server_of(to), Message::Copy { copy, session, piece, epoch, whole, from });
        Some(())
    }

    fn copied(&mut self, node: NodeId, copy: CopyId, is_there: bool, env: &mut Env<'_>) {
        if self.copies.get(&copy).is_none_or(|done| node_of(done.store) != node) {
            return;
        }
        let Some(done) = self.copies.remove(&copy) else { return };
        let is_there = is_there && self.change(Durability::Synced, done).is_ok();
        env.counts.copied += u64::from(is_there);
        self.copying.done(env.now, copy, is_there);
    }

    fn tell(fences: Vec<Fence>, env: &mut Env<'_>) {
        for Fence { fence, node, piece, epoch } in fences {
            env.send(server_of(StoreId(node.0)), Message::Fence { fence, piece, epoch });
        }
    }

    pub(crate) fn receive(&mut self, from: Addr, message: Message, env: &mut Env<'_>) {
        match message {
            Message::Register { node, life, boot, has_lost, number } => {
                self.register(&Register { node, life, boot, has_lost, number }, env);
            }
            Message::Renew { node, session, number } => {
                let answer = if self.sessions.renew(env.now, node, session) {
                    Message::Renewed { session, number }
                } else {
                    Message::NoSession { session }
                };
                env.send(from, answer);
            }
            Message::Place { node, session, piece, writer, participants, request }
                if self.sessions.session(env.now, node) == Some(session) =>
            {
                self.place(Placing { node, piece, writer, participants, request }, env);
            }
            Message::Commit { piece, group, writer, whole, holders, request, .. } => {
                let content = Committed { len: whole.len, sums: Some(sums_of(whole)), mtime: None };
                let commit = Commit { writer, content, completion: Completion::ByClient };
                let result = self.change(Durability::Synced, CommitPlaced { commit, group, holders });
                if let Some(result) = told(result.map(|_| ())) {
                    env.send(from, Message::Committed { piece, epoch: Epoch(writer.epoch), request, result });
                }
            }
            Message::Fenced { node, fence } if self.fences.answered(node, fence) => self.is_there(fence, env),
            Message::Copied { node, copy, is_there } => self.copied(node, copy, is_there, env),
            Message::Open { number, path, want, tried } => {
                if let Addr::Client(client) = from {
                    self.open(client, number, &path, &want, &tried, env);
                }
            }
            _ => {}
        }
    }

    fn register(&mut self, request: &Register, env: &mut Env<'_>) {
        let keep = self.sessions.to_keep(request);
        if let Some(record) = keep
            && self.change(Durability::Synced, PutNode { record }).is_err()
        {
            return;
        }
        env.counts.booted += u64::from(keep.is_some_and(|record| record.era > Era(1)));
        if let Some(registered) = self.sessions.register(env.now, request, keep) {
            env.send(server_of(StoreId(request.node.0)), Message::Registered(registered));
        }
    }

    fn standing(&self, now: Time, store: StoreId) -> Option<Standing> {
        let node = node_of(store);
        Some(Standing { presence: self.sessions.presence(now, node), era: self.sessions.era(node)? })
    }

    fn is_online(&self, now: Time, store: StoreId) -> bool {
        self.sessions.presence(now, node_of(store)) == Presence::Online
    }

    /// A fence is there: what waits for it goes on when it has all of them.
    fn is_there(&mut self, fence: FenceId, env: &mut Env<'_>) {
        let Some(at) = self.waiting.iter().position(|waiting| waiting.fences.iter().any(|(id, _)| *id == fence)) else {
            return;
        };
        let waiting = &mut self.waiting[at];
        waiting.fences.iter_mut().filter(|(id, _)| *id == fence).for_each(|(_, is_there)| *is_there = true);
        if !waiting.fences.iter().all(|(_, is_there)| *is_there) {
            return;
        }
        let Waiting { fences, after } = self.waiting.remove(at);
        match after {
            After::TakeOver { client, number, path, writer, to } => {
                // It may have lost what it had meanwhile: then it is decided anew.
                let is_able = self.standing(env.now, to.store).is_some_and(|standing| standing.era == to.era);
                let op = PlaceWriter { writer, participants: vec![to], takes_over: true };
                if is_able && self.change(Durability::Synced, op).is_ok() {
                    env.counts.taken_over += 1;
                    let result = self.open_for_update(client, &path, &[to], GroupId::DEFAULT);
                    self.opened(client, number, result, env);
                } else {
                    self.refuse(client, number, ErrorCode::Overloaded, env);
                }
            }
            After::Update { client, number, path, participants, group } => {
                let result = self.open_for_update(client, &path, &participants, group);
                self.opened(client, number, result, env);
            }
            After::Place(placing) => self.placed(&placing, env),
        }
        fences.into_iter().for_each(|(fence, _)| self.fences.end(fence));
    }

    fn wait_for(&mut self, stores: &[StoreId], piece: PieceId, epoch: Epoch, after: After, env: &mut Env<'_>) {
        let mut tell = Vec::new();
        let mut begin = |store: &StoreId| {
            let fence = self.fences.begin(env.now, &self.sessions, node_of(*store), piece, epoch, &mut tell);
            (fence, false)
        };
        let fences = stores.iter().map(&mut begin).collect();
        self.waiting.push(Waiting { fences, after });
        Self::tell(tell, env);
    }

    fn place(&mut self, placing: Placing, env: &mut Env<'_>) {
        if self.fences.guards(placing.piece) {
            // The same, asked again: the latest question is answered.
            for waiting in &mut self.waiting {
                if let After::Place(before) = &mut waiting.after
                    && (before.piece, before.writer) == (placing.piece, placing.writer)
                    && before.participants == placing.participants
                {
                    before.request = placing.request;
                }
            }
            return;
        }
        let writer = self.writer_of(placing.writer);
        let left_out: Vec<StoreId> = match &writer {
            Some(writer) if writer.kind == WriterKind::Update => {
                let before = writer.placement.participants.iter().map(|one| one.store);
                before.filter(|store| placing.participants.iter().all(|one| one.store != *store)).collect()
            }
            _ => Vec::new(),
        };
        if left_out.is_empty() {
            self.placed(&placing, env);
        } else {
            let epoch = Epoch(placing.writer.epoch);
            self.wait_for(&left_out, placing.piece, epoch, After::Place(placing), env);
        }
    }

    fn writer_of(&self, token: WriterToken) -> Option<WriterRecord> {
        let all = self.ns.read(|read| namespace::writers(read, None, usize::MAX)).ok()?;
        all.into_iter().find(|writer| writer.token() == token)
    }

    fn placed(&mut self, placing: &Placing, env: &mut Env<'_>) {
        let Placing { node, piece, writer, participants, request } = placing.clone();
        let op = PlaceWriter { writer, participants, takes_over: false };
        let result = self.change(Durability::Synced, op);
        if let Some(result) = told(result.map(|_| ())) {
            let epoch = Epoch(writer.epoch);
            env.send(server_of(StoreId(node.0)), Message::Placed { piece, epoch, request, result });
        }
    }

    fn identity(client: usize) -> ClientIdentity {
        ClientIdentity { user: "sim".into(), pid: u32::try_from(client).unwrap_or(0) + 1, host: "here".into() }
    }

    fn open(&mut self, client: usize, number: Number, path: &str, want: &Want, tried: &[StoreId], env: &mut Env<'_>) {
        let Ok(name) = NsPath::parse(path.as_bytes()) else { return };
        match want {
            Want::New { restarted } => {
                let result = self.open_new(client, &name, *restarted, env);
                self.opened(client, number, result, env);
            }
            Want::Update => {
                let own = self.ns.read(|read| namespace::find_writer(read, &Self::identity(client), &name));
                match own.ok().and_then(|mut own| own.pop()) {
                    Some(writer) => self.reopen(client, number, path, &writer, tried, env),
                    None => self.update(client, number, path, &name, env),
                }
            }
            Want::Read => {
                let result = self.open_read(&name, tried, env);
                env.send(Addr::Client(client), Message::Opened { number, result });
            }
        }
    }

    fn open_write(client: usize, path: NsPath, how: How, restarted: bool, placement: Placement) -> OpenWrite {
        OpenWrite {
            path,
            how,
            mkpath: false,
            mode: 0o644,
            posc: false,
            client: Self::identity(client),
            boot: BootId(1),
            expected_len: None,
            restarted,
            vouched: None,
            resume: None,
            placement,
        }
    }

    fn participants(&self, env: &Env<'_>, stores: &[StoreId], most: usize) -> Vec<Participant> {
        let online = stores.iter().filter(|store| self.is_online(env.now, **store));
        let participant =
            |store: &StoreId| Some(Participant { store: *store, era: self.sessions.era(node_of(*store))? });
        online.filter_map(participant).take(most).collect()
    }

    fn open_new(
        &mut self,
        client: usize,
        path: &NsPath,
        restarted: bool,
        env: &mut Env<'_>,
    ) -> Result<OpenedWrite, Option<ErrorCode>> {
        let group = self.groups[env.rng.random_range(0..self.groups.len())];
        let members = self.ns.read(|read| namespace::group(read, group)).ok().flatten().ok_or(None)?.members;
        let stores: Vec<StoreId> = members.iter().map(|member| member.store).collect();
        let participants = self.participants(env, &stores, self.settings.sync);
        if participants.is_empty() {
            return Err(Some(ErrorCode::Overloaded));
        }
        let placement = Placement { group, participants };
        let op = Self::open_write(client, path.clone(), How::NewOnly, restarted, placement);
        // A new name that a power failure takes away again is not there, and its client is told so. Whatever takes the place of something must not be
        // forgotten: the client would find what was there before, and take it for its own.
        let durability = if restarted { Durability::Synced } else { Durability::Written };
        self.change(durability, op).map_err(|error| refusal(&error))
    }

    fn reopen(
        &mut self,
        client: usize,
        number: Number,
        path: &str,
        writer: &WriterRecord,
        tried: &[StoreId],
        env: &mut Env<'_>,
    ) {
        env.counts.reopened += 1;
        let participants = &writer.placement.participants;
        let piece = writer.piece();
        if self.fences.guards(piece) {
            return self.refuse(client, number, ErrorCode::Overloaded, env);
        }
        match reopening(participants, tried, |store| self.standing(env.now, store)) {
            Reopening::Same(_) => {
                let result = self.open_for_update(client, path, participants, writer.placement.group);
                self.opened(client, number, result, env);
            }
            Reopening::TakeOver(to) => {
                let after = After::TakeOver { client, number, path: path.to_owned(), writer: writer.token(), to };
                // What is changed in place is on all of them, and each could show what it was.
                let first = if writer.kind == WriterKind::Update { participants.len() } else { 1 };
                let others = participants[..first].iter().filter(|one| **one != to).map(|one| one.store);
                let others: Vec<StoreId> = others.collect();
                self.wait_for(&others, piece, Epoch(writer.epoch + 1), after, env);
            }
            Reopening::Wait => self.refuse(client, number, ErrorCode::Overloaded, env),
            Reopening::Lost => self.refuse(client, number, ErrorCode::Interrupted, env),
        }
    }

    /// A complete file is to be changed in place: whoever holds it and does not take part has to stop showing it first.
    fn update(&mut self, client: usize, number: Number, path: &str, name: &NsPath, env: &mut Env<'_>) {
        let found = self.ns.read(|read| namespace::stat(read, &Actor::admin(), name));
        let content = match found.map(|inode| inode.content().copied()) {
            Ok(Some(content)) => content,
            Ok(None) => return self.refuse(client, number, ErrorCode::IsDirectory, env),
            Err(error) => return self.refuse(client, number, error.code(), env),
        };
        if content.state != FileState::Complete {
            // Somebody else writes it, or nobody any more.
            let result = self.open_for_update(client, path, &[], content.group);
            return self.opened(client, number, result, env);
        }
        let (group, body) = (content.group, content.body);
        let piece = PieceId::first(body);
        let Ok(holders) = self.ns.read(|read| namespace::holders(read, group, body)) else { return };
        let participants = self.participants(env, &holders, usize::MAX);
        if participants.is_empty() || self.fences.guards(piece) {
            return self.refuse(client, number, ErrorCode::Overloaded, env);
        }
        let others: Vec<StoreId> =
            holders.into_iter().filter(|store| participants.iter().all(|one| one.store != *store)).collect();
        if others.is_empty() {
            let result = self.open_for_update(client, path, &participants, group);
            return self.opened(client, number, result, env);
        }
        let record = self.ns.read(|read| namespace::body_record(read, group, body)).ok().flatten();
        let epoch = Epoch(record.map_or(0, |record| record.epoch) + 1);
        let after = After::Update { client, number, path: path.to_owned(), participants, group };
        self.wait_for(&others, piece, epoch, after, env);
    }

    fn open_for_update(
        &mut self,
        client: usize,
        path: &str,
        participants: &[Participant],
        group: GroupId,
    ) -> Result<OpenedWrite, Option<ErrorCode>> {
        let name = NsPath::parse(path.as_bytes()).map_err(|_| None)?;
        let placement = Placement { group, participants: participants.to_vec() };
        let op = Self::open_write(client, name, How::Update, false, placement);
        // An epoch that was given must not be given again.
        self.change(Durability::Synced, op).map_err(|error| refusal(&error))
    }

    fn refuse(&mut self, client: usize, number: Number, code: ErrorCode, env: &mut Env<'_>) {
        env.send(Addr::Client(client), Message::Opened { number, result: Err(code) });
    }

    fn opened(
        &mut self,
        client: usize,
        number: Number,
        result: Result<OpenedWrite, Option<ErrorCode>>,
        env: &mut Env<'_>,
    ) {
        let opened = match result {
            Ok(opened) => opened,
            Err(Some(code)) => return self.refuse(client, number, code, env),
            Err(None) => return,
        };
        let Some(primary) = opened.participants.first().copied() else {
            return self.refuse(client, number, ErrorCode::Interrupted, env);
        };
        let Some(session) = self.sessions.session(env.now, node_of(primary.store)) else {
            return self.refuse(client, number, ErrorCode::Overloaded, env);
        };
        let Some(record) = self.writer_of(opened.writer) else { return };
        let may_make = record.kind != WriterKind::Update;
        let rights = Rights::Write { writer: opened.writer, participants: opened.participants, may_make };
        let capability = Capability { piece: opened.piece, group: opened.group, store: primary.store, session, rights };
        env.send(Addr::Client(client), Message::Opened { number, result: Ok(capability) });
    }

    fn open_read(&self, path: &NsPath, tried: &[StoreId], env: &mut Env<'_>) -> Result<Capability, ErrorCode> {
        let inode: Inode =
            self.ns.read(|read| namespace::stat(read, &Actor::admin(), path)).map_err(|error| error.code())?;
        let content = *inode.content().ok_or(ErrorCode::IsDirectory)?;
        let piece = PieceId::first(content.body);
        if self.fences.guards(piece) {
            return Err(ErrorCode::Overloaded);
        }
        let give = |store: StoreId, rights| {
            let session = self.sessions.session(env.now, node_of(store)).ok_or(ErrorCode::Overloaded)?;
            Ok(Capability { piece, group: content.group, store, session, rights })
        };
        if let FileState::Open(_) | FileState::Updating(_) = content.state {
            let all = self.ns.read(|read| namespace::writers(read, None, usize::MAX)).map_err(|error| error.code())?;
            let writer = all.into_iter().find(|writer| writer.body == content.body).ok_or(ErrorCode::Damaged)?;
            let primary = writer.placement.participants.first().ok_or(ErrorCode::Interrupted)?;
            return give(primary.store, Rights::Follow);
        }
        let read = |read: &dyn kv::Read| {
            let holders = namespace::holders(read, content.group, content.body)?;
            Ok((holders, namespace::body_record(read, content.group, content.body)?))
        };
        let (holders, record) = self.ns.read(read).map_err(|error: NsError| error.code())?;
        let online: Vec<StoreId> = holders.into_iter().filter(|store| self.is_online(env.now, *store)).collect();
        let untried: Vec<StoreId> = online.iter().copied().filter(|store| !tried.contains(store)).collect();
        let among = if untried.is_empty() { online } else { untried };
        if among.is_empty() {
            return Err(ErrorCode::Overloaded);
        }
        let store = among[env.rng.random_range(0..among.len())];
        let sums = content.sums.ok_or(ErrorCode::Checksum)?;
        let whole = Whole { len: content.len, crc32c: sums.crc32c, adler32: sums.adler32 };
        give(store, Rights::Read { epoch: Epoch(record.map_or(0, |record| record.epoch)), whole })
    }
}

fn sums_of(whole: Whole) -> Sums {
    Sums { adler32: whole.adler32, crc32c: whole.crc32c }
}

/// What a client is told; `None`: nobody knows what became of it.
fn refusal(error: &NsError) -> Option<ErrorCode> {
    match error {
        NsError::Kv(_) => None,
        other => Some(other.code()),
    }
}

/// The same of a change for a server.
fn told(result: Result<(), NsError>) -> Option<Result<(), ErrorCode>> {
    match result {
        Ok(()) => Some(Ok(())),
        Err(error) => refusal(&error).map(Err),
    }
}
