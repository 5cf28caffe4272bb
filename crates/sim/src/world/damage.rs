//! Bytes at rest that a disk damages.

use namespace::{Actor, WriterKind};
use rand::Rng;
use types::{ErrorCode, InSyncReplica, NsPath, ReplicaId, StoreId, WriterToken};

use super::World;
use crate::manager::{server_of, store_of};
use crate::message::Addr;
use crate::model::FileStage;

/// So many bytes of a file occur only once on a disk.
const PART: usize = 16;

impl World {
    /// Damages a byte of a closed file on a server's disk. The namespace names another store as a holder, and that store has the file intact: so no acknowledged
    /// byte may be lost.
    pub(super) fn damage(&mut self, server: usize) {
        let closed: Vec<usize> = (0..self.model.files.len())
            .filter(|file| self.model.files[*file].stage == FileStage::Closed)
            .filter(|file| self.model.content(*file).len() >= PART)
            .collect();
        if closed.is_empty() {
            return;
        }
        let file = closed[self.rng.random_range(0..closed.len())];
        let content = self.model.content(file);
        let at = self.rng.random_range(0..=content.len() - PART);
        let (Some(process), Some(replica)) = (self.sound(server), self.damageable(server, file)) else { return };
        let part = content[at..at + PART].to_vec();
        let disk = &self.servers[server].disk;
        let Some((path, offset)) = process.location(disk, replica, &part) else { return };
        let offset = offset + self.rng.random_range(0..PART as u64);
        if disk.rot(&path, offset) {
            self.counts.damaged += 1;
            self.tell(|| {
                let file = &self.model.files[file].path;
                format!(
                    "the disk of server {server} damages byte {at} of {file} (replica {replica}), {path} at {offset}"
                )
            });
        }
    }

    /// A change begins or goes on with these replicas.
    pub(super) fn look_for_damage(&mut self, path: &NsPath, replica: ReplicaId, in_sync: &[InSyncReplica]) {
        let Some(file) = self.model.by_path.get(&path.to_string()).copied() else { return };
        if self.settings.faults.damage_every.is_none() {
            return;
        }
        let begins = std::mem::take(&mut self.model.files[file].is_asked_for);
        if begins && let Some(manager) = self.active().and_then(|at| self.managers[at].process.as_ref()) {
            let is_known = |store: &StoreId| manager.knows_damage(*store, replica.object);
            let others: Vec<StoreId> =
                manager.holders(replica.object).into_iter().filter(|store| !is_known(store)).collect();
            if in_sync.iter().all(|one| is_known(&one.store)) && !others.is_empty() {
                let path = path.to_string();
                return self.wrong(Err(format!(
                    "{path} is to be changed on {in_sync:?}, which are known to be damaged, without {others:?}"
                )));
            }
        }
        let stores: Vec<StoreId> = in_sync.iter().map(|one| one.store).collect();
        self.look_whether_hopeless(file, replica, &stores);
    }

    /// A change ends, and these stores have the file.
    pub(super) fn look_for_damage_at_end(&mut self, writer: WriterToken, holders: &[StoreId]) {
        if self.settings.faults.damage_every.is_none() {
            return;
        }
        let record = self.writer(writer);
        let Some(record) = record.filter(|record| record.kind == WriterKind::Update) else { return };
        let path = String::from_utf8_lossy(&record.path).into_owned();
        if let Some(file) = self.model.by_path.get(&path).copied() {
            self.look_whether_hopeless(file, record.replica(), holders);
        }
    }

    /// Whether the replicas of a change that count are all damaged. The damage was not known when it began, and other replicas have become useless.
    fn look_whether_hopeless(&mut self, file: usize, replica: ReplicaId, stores: &[StoreId]) {
        let is_damaged = |store: &StoreId| {
            let Addr::Server(server) = server_of(*store) else { return false };
            let len = self.model.content(file).len();
            let written = self.sound(server).map(|process| process.written(replica, 0, len));
            matches!(written, Some(Err(ErrorCode::Checksum)))
        };
        if !stores.is_empty() && stores.iter().all(is_damaged) {
            self.counts.hopeless += u64::from(!self.model.files[file].is_hopeless);
            self.model.files[file].is_hopeless = true;
        }
    }

    /// The file's replica on this server, if the disk may damage it.
    fn damageable(&self, server: usize, file: usize) -> Option<ReplicaId> {
        let name = NsPath::parse(self.model.files[file].path.as_bytes()).ok()?;
        let (object, holders) = self
            .names(|read| {
                let inode = namespace::stat(read, &Actor::admin(), &name)?;
                let Some(content) = inode.content().copied() else { return Ok(None) };
                let is_complete = content.state == namespace::FileState::Complete;
                Ok(is_complete.then_some((content.object, namespace::holders(read, content.group, content.object)?)))
            })?
            .ok()??;
        let replica = ReplicaId::first(object);
        let is_intact = |other: usize| {
            let process = self.sound(other);
            let whole = self.model.whole(file);
            process.is_some_and(|process| process.holds(replica, whole).is_ok() && process.is_intact(replica))
        };
        let mut others =
            (0..self.servers.len()).filter(|other| *other != server && holders.contains(&store_of(*other)));
        (holders.contains(&store_of(server)) && others.any(is_intact)).then_some(replica)
    }
}
