//! Bytes at rest that a disk damages.

use namespace::Actor;
use rand::Rng;
use types::{ErrorCode, InSyncReplica, NsPath, ReplicaId};

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
        let is_damaged = |one: &InSyncReplica| {
            let Addr::Server(server) = server_of(one.store) else { return false };
            let len = self.model.content(file).len();
            let written = self.sound(server).map(|process| process.written(replica, 0, len));
            matches!(written, Some(Err(ErrorCode::Checksum)))
        };
        if self.settings.faults.damage_every.is_some() && in_sync.iter().all(is_damaged) {
            self.counts.hopeless += u64::from(!self.model.files[file].is_hopeless);
            self.model.files[file].is_hopeless = true;
        }
    }

    /// The file's replica on this server, if the disk may damage it.
    fn damageable(&self, server: usize, file: usize) -> Option<ReplicaId> {
        let name = NsPath::parse(self.model.files[file].path.as_bytes()).ok()?;
        let manager = self.manager.process.as_ref()?;
        let (object, holders) = manager
            .ns
            .read(|read| {
                let inode = namespace::stat(read, &Actor::admin(), &name)?;
                let Some(content) = inode.content().copied() else { return Ok(None) };
                let is_complete = content.state == namespace::FileState::Complete;
                Ok(is_complete.then_some((content.object, namespace::holders(read, content.group, content.object)?)))
            })
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
