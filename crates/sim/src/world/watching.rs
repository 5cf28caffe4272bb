//! Rules that hold at every moment. The simulation checks a rule after each event that can break it, so it finds a violation near its
//! cause.
//!
//! - At most one store answers as the primary of an open write, and never one that the manager has replaced.
//! - An acknowledged write is on all in-sync replicas whose servers are up and have lost nothing.
//! - After the acknowledgement no store shows the older bytes.
//! - A file whose client was told that it is closed is closed in the namespace, and all its holders have it. A file whose client was told
//!   that it is removed does not exist.
//! - When the manager records a copy as made, the store has it. When a store deletes a replica, the namespace no longer names the
//!   store as a holder.
//! - When a node has restarted, all closed files are unchanged, with the owners and permissions that were acknowledged; no tree uses more than it
//!   may; and the namespace passes its own check, which counts the usage again.

use std::collections::BTreeMap;

use cluster::CopyId;
use cluster::message::{FromStore, ToManager, ToServer, ToStore};
use cluster::replication::Epoch;
use cluster::server::{Grant, GrantRights, ReadView, View};
use namespace::{Actor, NsError, WriterRecord};
use node::{FromDisk, FromManager};
use types::{InSyncReplica, NsPath, ObjectId, ReplicaId, SessionId, StoreId, WriterToken};

use super::World;
use super::access::is_access_kept;
use crate::client::Promise;
use crate::manager::{server_of, store_of};
use crate::message::{Addr, Capability, Message};
use crate::model::FileStage;
use crate::server::Server;

/// A capability to read an object that was changed after the capability was given.
#[derive(Debug)]
struct Stale {
    file: usize,
    replica: ReplicaId,
    grant: Grant,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// How far the changes of a manager had come at the last check.
    written: Option<(usize, u64)>,
    /// The rights of each server at the last check.
    views: Vec<Option<View>>,
    /// Capabilities to read that are valid in servers' present sessions.
    given: BTreeMap<ReplicaId, Vec<Grant>>,
    stale: Vec<Vec<Stale>>,
    /// Copies that stores were ordered to make.
    ordered: BTreeMap<(StoreId, SessionId, CopyId), ReplicaId>,
    /// The files for which objects were handed out.
    pub(super) numbers: BTreeMap<ObjectId, NsPath>,
}

impl Watched {
    pub(super) fn new(servers: usize) -> Self {
        Self { views: vec![None; servers], stale: (0..servers).map(|_| Vec::new()).collect(), ..Self::default() }
    }

    /// The copy that a message to the manager confirms.
    pub(super) fn copy_of(&self, message: &Message) -> Option<(StoreId, ReplicaId)> {
        let Message::FromDisk(FromDisk::Cluster(ToManager::OfStore { store, message })) = message else { return None };
        let FromStore::Copied { session, copy, result: Ok(()) } = message else { return None };
        let replica = self.ordered.get(&(*store, *session, *copy))?;
        Some((*store, *replica))
    }
}

impl World {
    pub(super) fn wrong(&mut self, found: Result<(), String>) {
        // After a database has lost changes, only one rule is left: somebody says so.
        if let Err(what) = found
            && !self.turns.has_lost()
        {
            self.trouble.get_or_insert(what);
        }
    }

    /// Checks a message before anybody receives it.
    pub(super) fn look_at_said(&mut self, from: Addr, to: Addr, message: &Message) {
        match (from, to, message) {
            (Addr::Server(_), Addr::Client(client), Message::Done { number, result: Ok(()) })
            | (Addr::Manager(_), Addr::Client(client), Message::Removed { number, result: Ok(()) }) => {
                let promised = self.clients[client].process.as_ref().and_then(|client| client.promised(*number));
                if let Some(promised) = promised {
                    let found = self.look_at_promise(promised);
                    self.wrong(found);
                }
            }
            (Addr::Manager(_), _, Message::Opened { result: Ok(Capability { path, replica, grant, .. }), .. }) => {
                self.look_at_number(path, *replica);
                match &grant.rights {
                    GrantRights::Read { .. } => self.remember(*replica, grant),
                    GrantRights::Write { in_sync, .. } => self.look_for_damage(path, *replica, in_sync),
                    _ => {}
                }
            }
            (
                Addr::Server(server),
                Addr::Manager(_),
                Message::FromDisk(FromDisk::Cluster(ToManager::OfStore {
                    message: FromStore::Interrupt { replica, writer, holders, .. },
                    ..
                })),
            ) => {
                let found = self.look_at_end(server, *replica, *writer, holders);
                self.wrong(found);
                self.look_for_damage_at_end(*writer, holders);
            }
            (
                Addr::Server(_),
                Addr::Manager(_),
                Message::FromDisk(FromDisk::Cluster(ToManager::OfStore {
                    message: FromStore::Commit { writer, holders, .. },
                    ..
                })),
            ) => self.look_for_damage_at_end(*writer, holders),
            (
                Addr::Manager(_),
                _,
                Message::FromManager(FromManager::Cluster(ToServer::ToStore {
                    store,
                    message: ToStore::Copy { copy, session, replica, .. },
                })),
            ) => {
                self.watched.ordered.insert((*store, *session, *copy), *replica);
            }
            _ => {}
        }
    }

    /// Checks that all in-sync replicas keep a file whose client vanished, unless the primary's disk has failed.
    fn look_at_end(
        &self,
        server: usize,
        replica: ReplicaId,
        writer: WriterToken,
        holders: &[StoreId],
    ) -> Result<(), String> {
        let Some(process) = self.sound(server) else { return Ok(()) };
        let record = self.writer(writer);
        let Some(record) = record.filter(|record| record.epoch == writer.epoch) else { return Ok(()) };
        // A store that has restarted after a power failure may have lost what was acknowledged.
        let has_all = |one: &&InSyncReplica| {
            let Addr::Server(at) = server_of(one.store) else { return false };
            let view = self.sound(at).map(|process| process.view(self.servers[at].clock(self.now)));
            view.and_then(|view| view.boot_generation) == Some(one.boot_generation)
        };
        let in_sync: Vec<StoreId> = record.placement.in_sync.iter().filter(has_all).map(|one| one.store).collect();
        // A replica that differs is left out at the end.
        let differs = |store: &StoreId| process.differing.contains(&(replica, *store));
        if in_sync.iter().any(|store| !holders.contains(store) && !differs(store)) {
            return Err(format!(
                "what was written of replica {replica} is kept by {holders:?}, and {in_sync:?} were in sync"
            ));
        }
        Ok(())
    }

    fn remember(&mut self, replica: ReplicaId, grant: &Grant) {
        let Self { watched, servers, .. } = self;
        let given = watched.given.entry(replica).or_default();
        let is_over = |given: &Grant| match server_of(given.store) {
            Addr::Server(server) => {
                servers[server].process.as_ref().is_none_or(|process| process.last_session() > given.session)
            }
            _ => true,
        };
        given.retain(|given| !is_over(given) && given != grant);
        given.push(grant.clone());
    }

    /// Checks the rules after an event at a node.
    pub(super) fn look(&mut self, at: Addr, is_tick: bool) {
        match at {
            Addr::Server(server) => self.look_at_server(server, is_tick),
            Addr::Manager(at) => {
                let written = self.managers[at].process.as_ref().map(|manager| (at, manager.written()));
                if written != self.watched.written {
                    self.watched.written = written;
                    (0..self.servers.len()).for_each(|server| self.look_at_primaries(server));
                }
            }
            Addr::Client(_) => {}
        }
    }

    fn look_at_server(&mut self, server: usize, is_tick: bool) {
        let now = self.servers[server].clock(self.now);
        let Some(process) = &mut self.servers[server].process else { return };
        let view = Some(process.view(now));
        let drained = std::mem::take(&mut process.drained);
        // Time alone can only end a lease.
        if !is_tick || view != self.watched.views[server] {
            self.watched.views[server] = view;
            self.look_at_primaries(server);
        }
        let found = self.look_at_stale(server);
        self.wrong(found);
        for replica in drained {
            let found = self.look_at_drained(server, replica);
            self.wrong(found);
        }
    }

    fn answers(&self, server: usize, replica: ReplicaId) -> Option<Epoch> {
        let machine = &self.servers[server];
        machine.process.as_ref()?.answers(replica, machine.clock(self.now))
    }

    /// Checks that no other store is primary of the same replicas, and that the manager knows of no other.
    fn look_at_primaries(&mut self, server: usize) {
        let Some(process) = &self.servers[server].process else { return };
        let mut found = Ok(());
        for (replica, token) in process.led() {
            let Some(epoch) = self.answers(server, replica) else { continue };
            for other in (0..self.servers.len()).filter(|other| *other != server) {
                let Some(its) = self.answers(other, replica) else { continue };
                if !self.has_ended(server, replica, epoch, its) && !self.has_ended(other, replica, its, epoch) {
                    found = Err(format!(
                        "two answer for replica {replica}: server {server} with epoch {}, server {other} with epoch {}",
                        epoch.0, its.0
                    ));
                }
            }
            let record = self.writer(token);
            let is_later = |record: &WriterRecord| record.epoch > epoch.0;
            let Some(record) = record.filter(|record| is_later(record) && !process.is_whole(replica)) else { continue };
            let primary = record.placement.in_sync.first().map(|primary| primary.store);
            if primary != Some(store_of(server)) {
                found = Err(format!(
                    "server {server} answers for replica {replica} with epoch {}, and the manager has {primary:?} with epoch {}",
                    epoch.0, record.epoch
                ));
            }
        }
        self.wrong(found);
    }

    /// Whether an earlier primary has a complete replica, and only does not know yet that the manager has recorded its close. Its bytes are
    /// the present ones until a client is told of a change.
    fn has_ended(&self, server: usize, replica: ReplicaId, epoch: Epoch, than: Epoch) -> bool {
        epoch < than && self.servers[server].process.as_ref().is_some_and(|process| process.is_whole(replica))
    }

    /// A server whose disk can be checked: the disk has had no error, and no error is planned.
    pub(super) fn sound(&self, server: usize) -> Option<&Server> {
        let process = self.servers[server].process.as_ref()?;
        (!self.is_failing[server] && !process.has_failed()).then_some(process)
    }

    fn look_at_promise(&mut self, promised: Promise) -> Result<(), String> {
        match promised {
            Promise::Written { file, number, replica, epoch } => {
                self.look_at_written(file, number, replica, epoch)?;
                self.make_stale(file, replica, epoch);
                (0..self.servers.len()).try_for_each(|server| self.look_at_stale(server))
            }
            Promise::Closed { file } => self.is_closed(file),
            Promise::Removed { file } => {
                let path = &self.model.files[file].path;
                let name = NsPath::parse(path.as_bytes()).map_err(|error| error.to_string())?;
                match self.names(|read| namespace::stat(read, &Actor::admin(), &name)) {
                    Some(Ok(_)) => Err(format!("{path} is said to be removed, and is there")),
                    _ => Ok(()),
                }
            }
        }
    }

    /// Checks that all in-sync replicas have a write that was acknowledged to its client.
    fn look_at_written(&self, file: usize, number: usize, replica: ReplicaId, epoch: Epoch) -> Result<(), String> {
        let token = self.servers.iter().find_map(|machine| machine.process.as_ref()?.token(replica, epoch));
        let Some(token) = token else { return Ok(()) };
        let record = self.writer(token);
        let Some(record) = record.filter(|record| record.epoch == epoch.0) else { return Ok(()) };
        for server in 0..self.servers.len() {
            if let Some(before) = self.answers(server, replica).filter(|before| *before < epoch) {
                return Err(format!(
                    "server {server} answers for replica {replica} with epoch {}, after a write of {}",
                    before.0, epoch.0
                ));
            }
        }
        let (offset, len) = self.model.location(file, number);
        for in_sync_replica in &record.placement.in_sync {
            let Addr::Server(server) = server_of(in_sync_replica.store) else { continue };
            let Some(process) = self.sound(server) else { continue };
            let now = self.servers[server].clock(self.now);
            if process
                .view(now)
                .boot_generation
                .is_none_or(|boot_generation| boot_generation != in_sync_replica.boot_generation)
            {
                continue;
            }
            let path = &self.model.files[file].path;
            let at = format!("{path}: server {server} is in sync in epoch {}", epoch.0);
            let there = process.written(replica, offset, len);
            let there =
                there.map_err(|code| format!("{at}, and what is said to be written cannot be read: {code:?}"))?;
            if !self.model.is_written(file, number, &there) {
                return Err(format!("{at}, and does not have what is said to be written, {len} bytes at {offset}"));
            }
        }
        Ok(())
    }

    /// Marks read capabilities of lower epochs as stale.
    fn make_stale(&mut self, file: usize, replica: ReplicaId, epoch: Epoch) {
        let Some(given) = self.watched.given.get_mut(&replica) else { return };
        let is_before = |grant: &mut Grant| matches!(grant.rights, GrantRights::Read { epoch: of, .. } if of < epoch);
        let stale: Vec<Grant> = given.extract_if(.., is_before).collect();
        for grant in stale {
            if let Addr::Server(server) = server_of(grant.store) {
                self.watched.stale[server].push(Stale { file, replica, grant });
            }
        }
    }

    fn look_at_stale(&mut self, server: usize) -> Result<(), String> {
        if self.watched.stale[server].is_empty() {
            return Ok(());
        }
        let now = self.servers[server].clock(self.now);
        let Some(process) = &self.servers[server].process else {
            self.watched.stale[server].clear();
            return Ok(());
        };
        let (session, model) = (process.last_session(), &self.model);
        // If bytes were lost, only the older version may be left.
        let is_good = |stale: &Stale| {
            let file = &model.files[stale.file];
            stale.grant.session >= session && file.losses_before == model.losses && file.stage != FileStage::Abandoned
        };
        self.watched.stale[server].retain(is_good);
        for Stale { file, replica, grant } in &self.watched.stale[server] {
            let Ok(ReadView::Whole(whole)) = process.may_read(*replica, grant, now) else { continue };
            // A change may write the bytes that were there before.
            if process.holds(*replica, whole).is_ok() && model.whole(*file) != whole {
                let path = &self.model.files[*file].path;
                return Err(format!("{path}: server {server} shows what was there before it was changed: {whole:?}"));
            }
        }
        Ok(())
    }

    /// Checks that the namespace does not name a store as a holder of a replica that the store has deleted.
    fn look_at_drained(&self, server: usize, replica: ReplicaId) -> Result<(), String> {
        match self.counted(server, replica) {
            Ok(Some(_)) => Err(format!("server {server} has taken away replica {replica}, which is counted on")),
            _ => Ok(()),
        }
    }

    /// The object at rest, if the namespace names the store as one of its holders.
    fn counted(&self, server: usize, replica: ReplicaId) -> Result<Option<namespace::AtRest>, NsError> {
        let found = self.names(|read| {
            for group in namespace::groups(read, None, usize::MAX)? {
                let is_counted_on = namespace::object_record(read, group.group, replica.object)?.is_some()
                    && namespace::holders(read, group.group, replica.object)?.contains(&store_of(server));
                if is_counted_on {
                    return namespace::at_rest(read, group.group, replica.object);
                }
            }
            Ok(None)
        });
        found.unwrap_or(Ok(None))
    }

    /// Checks that a store has the replica that the manager has just recorded.
    pub(super) fn look_at_copy(&mut self, store: StoreId, replica: ReplicaId) {
        let Addr::Server(server) = server_of(store) else { return };
        let counted = self.counted(server, replica);
        let (Some(process), Ok(Some(at_rest))) = (self.sound(server), counted) else { return };
        let found = process.keeps(replica, &at_rest);
        self.wrong(found.map_err(|what| format!("the copy of server {server} counts: {what}")));
    }

    /// Checks after a restart that all closed files are unchanged.
    pub(super) fn look_at_all(&mut self) {
        for file in 0..self.model.files.len() {
            if self.model.files[file].stage == FileStage::Closed {
                let found = self.is_closed(file);
                self.wrong(found);
            }
        }
        let found = self.are_shares_kept();
        self.wrong(found);
        let mut first = None;
        let checked = self.check_names(&mut |finding| {
            first.get_or_insert(finding);
        });
        let found = match (checked, first) {
            (Some(Ok(())), Some(first)) => Err(first),
            _ => Ok(()),
        };
        self.wrong(found);
    }

    /// Checks that the namespace has a file as its client was told, and that all its online holders have it.
    fn is_closed(&self, file: usize) -> Result<(), String> {
        let (path, whole) = (&self.model.files[file].path, self.model.whole(file));
        let at = |error: &dyn std::fmt::Display| format!("{path} is closed: {error}");
        let name = NsPath::parse(path.as_bytes()).map_err(|error| at(&error))?;
        let found = self.names(|read| {
            let inode = namespace::stat(read, &Actor::admin(), &name)?;
            let Some(content) = inode.content().copied() else { return Ok(None) };
            Ok(Some((content, inode.access, namespace::holders(read, content.group, content.object)?)))
        });
        let Some(found) = found else { return Ok(()) };
        let (content, access, holders) = match found {
            Ok(found) => found.ok_or_else(|| at(&"it is no file"))?,
            Err(NsError::Kv(_)) => return Ok(()),
            Err(error) => return Err(at(&error)),
        };
        let sums = content.sums.map(|sums| sums.crc32c);
        if content.state != namespace::FileState::Complete || (content.len, sums) != (whole.len, Some(whole.crc32c)) {
            return Err(at(&format!("{content:?} is there, and not {whole:?}")));
        }
        is_access_kept(path, self.model.files[file].access.as_ref(), &access)?;
        if holders.is_empty() {
            return Err(at(&"nobody holds it"));
        }
        for store in holders {
            let Addr::Server(server) = server_of(store) else { continue };
            if let Some(process) = self.sound(server) {
                process.holds(ReplicaId::first(content.object), whole).map_err(|why| at(&why))?;
            }
        }
        Ok(())
    }
}
