//! Opens for reading: to the nearest store that is well and has it; of what is being written to its primary.

use std::time::Duration;

use cluster::placement::rank_readers;
use cluster::replication::{Epoch, ObjectDigest};
use cluster::server::GrantRights;
use cluster::{Presence, Time};
use namespace::{Content, FileState, Inode, NsError, WriterRecord};
use types::capability::PathMark;
use types::stale_replicas::StaleReplica;
use types::{GroupId, InSyncReplica, Location, NsPath, ObjectId, ReplicaId, StoreId};

use super::opening::Permitted;
use super::striping::{all_of, stores_of_units};
use super::{Manager, State};
use crate::opening::{OpenRequest, OpeningError, Redirect};

/// For how long at most those are waited for whose lease has run out: people sit before some of these reads, and want to know.
pub(super) const PATIENCE_MAX: Duration = Duration::from_secs(60);

/// What the namespace says of a file that is to be read.
pub(super) struct Found {
    pub(super) inode: Inode,
    pub(super) content: Content,
    epoch: u32,
    holders: Vec<StoreId>,
    /// Of what is being written.
    writer: Option<WriterRecord>,
}

/// Where a client is sent.
pub(super) struct Nearest {
    pub(super) store: StoreId,
    /// It says that it was there, and so it was everywhere else.
    pub(super) was_tried: bool,
}

impl Found {
    /// Of what is being written, the one who orders the changes.
    fn primary(&self) -> Option<InSyncReplica> {
        self.writer.as_ref()?.placement.in_sync.first().copied()
    }
}

impl Manager {
    /// Opens for reading; `unit`: not the file, but a unit of it, if it still has this content.
    ///
    /// # Errors
    /// Why the client is sent nowhere.
    pub fn open_read(
        &self,
        open_request: &OpenRequest,
        path: &NsPath,
        partial: bool,
        unit: Option<(u8, ObjectId)>,
    ) -> Result<Redirect, OpeningError> {
        let at = self.location_of(open_request);
        let now = self.world.now();
        // Under the lock, so that no fence begins and ends between what is read and the permission.
        let state = self.state();
        let found = self.namespace.read(|read| find(read, open_request, path, partial, unit))?;
        if found.content.group == GroupId::STRIPED {
            drop(state);
            return self.redirect_striped_reader(&found, open_request);
        }
        let replica = ReplicaId::first(found.content.object);
        if state.fences.guards(replica) {
            return Err(OpeningError::wait("another server is just taking it over"));
        }
        let (group, ino, epoch) = (found.content.group, found.inode.ino, u64::from(found.epoch));
        let (mode, mtime) = (found.inode.access.mode, found.inode.mtime);
        let path = PathMark::of(&open_request.path);
        let permitted = |rights| Permitted { path, replica, ino, mode, mtime, group, epoch, rights };
        if let FileState::Open(_) | FileState::Updating(_) = found.content.state {
            let primary = found.primary().ok_or(OpeningError::Lost)?;
            if found.writer.is_some_and(|writer| state.graces.is_alone(&writer.token())) {
                return Err(OpeningError::wait("its writer must come back first, or its grace period must end"));
            }
            if !self.is_up(&state, primary.store) {
                return Err(OpeningError::wait("the server that it is written to has just gone away"));
            }
            return self.permit_by(&state, now, primary.store, permitted(GrantRights::Follow));
        }
        let lacks = |store: &StoreId| {
            open_request.stale_replicas.contains(&StaleReplica { object: replica.object, epoch, store: *store })
        };
        let (lost, holders): (Vec<_>, Vec<_>) = found.holders.iter().copied().partition(lacks);
        let store = match self.nearest(&state, now, &holders, (at.as_ref(), &open_request.tried)) {
            Some(Nearest { was_tried: true, .. }) if open_request.all_refused => {
                return Err(OpeningError::AllRefused(Self::shown(&state, &found.holders)));
            }
            Some(Nearest { store, .. }) => store,
            None if holders.is_empty() && !lost.is_empty() => {
                return Err(OpeningError::StaleReplica(Self::shown(&state, &lost)));
            }
            None => return Err(Self::no_copy(&state, now, &holders)),
        };
        let epoch = Epoch(found.epoch);
        let rights = match (found.content.state, found.content.sums) {
            (FileState::Complete, Some(sums)) => {
                let whole = ObjectDigest { len: found.content.len, crc32c: sums.crc32c, adler32: sums.adler32 };
                GrantRights::Read { epoch, whole }
            }
            // Also a file that was being changed in place: it has no sums until it is read through.
            _ => GrantRights::Kept { epoch },
        };
        self.permit_by(&state, now, store, permitted(rights))
    }
}

impl Manager {
    /// Where clients reach the disk servers that can show a file, `(host, port)`, the nearest first; of what is being written the one that orders the
    /// changes. Nothing for a directory.
    ///
    /// # Errors
    /// It is not there, or none of its stores is.
    pub fn locate(&self, open_request: &OpenRequest, path: &NsPath) -> Result<Vec<(String, u16)>, OpeningError> {
        let at = self.location_of(open_request);
        let now = self.world.now();
        let found = match self.namespace.read(|read| find(read, open_request, path, true, None)) {
            Err(NsError::IsDirectory(_)) => return Ok(Vec::new()),
            found => found?,
        };
        let striped = match found.content.group {
            GroupId::STRIPED => Some(self.namespace.read(|read| {
                let (_, units) = namespace::units_of(read, found.content.object)?;
                Ok::<_, NsError>(all_of(&stores_of_units(read, &units)?))
            })?),
            _ => None,
        };
        let state = self.state();
        let holders = match (found.content.state, found.primary()) {
            (FileState::Open(_) | FileState::Updating(_), Some(primary)) if striped.is_none() => vec![primary.store],
            _ => striped.unwrap_or(found.holders),
        };
        let ranked = rank_readers(state.servers.map(), &holders, at.as_ref(), self.world.random());
        let mut addresses: Vec<(String, u16)> = Vec::new();
        for store in ranked.into_iter().filter(|store| self.can_show(&state, now, *store)) {
            let way = state.node_of(store).and_then(|node| state.servers.way_to(node));
            let way = way.map(|(host, port, _)| (host.to_owned(), port));
            addresses.extend(way.filter(|way| !addresses.contains(way)));
        }
        if addresses.is_empty() { Err(Self::no_copy(&state, now, &holders)) } else { Ok(addresses) }
    }

    /// The nearest of `stores` that a client can be sent to, one that it has not tried if there is one: it may be wrong, or its way may be mended by now.
    pub(super) fn nearest(
        &self,
        state: &State,
        now: Time,
        stores: &[StoreId],
        (at, tried): (Option<&Location>, &[String]),
    ) -> Option<Nearest> {
        let tried = state.servers.stores_at(tried);
        let ranked = rank_readers(state.servers.map(), stores, at, self.world.random());
        let can = |store: &&StoreId| self.can_show(state, now, **store);
        let best = ranked.iter().filter(can).find(|store| !tried.contains(store));
        let store = *best.or_else(|| ranked.iter().find(can))?;
        Some(Nearest { store, was_tried: best.is_none() })
    }

    /// Whether a client can be sent to the server of a store: it may answer, and would notice at once if that were over.
    pub(super) fn can_show(&self, state: &State, now: Time, store: StoreId) -> bool {
        let presence = state.standing(now, store).map(|standing| standing.presence);
        matches!(presence, Some(Presence::Online | Presence::Suspect)) && self.is_up(state, store)
    }

    /// Why nobody is sent to one of `holders`, none of which can show what it has: if one of them may be back soon its client waits for it.
    pub(super) fn no_copy(state: &State, now: Time, holders: &[StoreId]) -> OpeningError {
        let shown = Self::shown(state, holders);
        if Self::may_return(state, now, holders, PATIENCE_MAX) {
            OpeningError::wait(format!("it is on {shown}; those that are not lost may be back soon"))
        } else {
            OpeningError::NoCopy(shown)
        }
    }

    /// Whether one of these stores may be back soon: as long as somebody who went away is waited for, at most `patience`.
    pub(super) fn may_return(state: &State, now: Time, stores: &[StoreId], patience: Duration) -> bool {
        let patience = state.graces.grace.min(patience);
        stores.iter().filter(|store| !state.servers.is_removed_as_lost(**store)).any(|store| {
            // A node that is there without this store may be so for good.
            let may = |node| {
                let is_there = state.sessions.session(now, node).is_some();
                (state.servers.is_served(node, *store) || !is_there) && state.sessions.may_return(now, node, patience)
            };
            state.node_of(*store).is_some_and(may)
        })
    }

    /// Stores as people call them.
    pub(super) fn shown(state: &State, stores: &[StoreId]) -> String {
        let shown: Vec<String> = stores.iter().map(|store| state.servers.shown(*store)).collect();
        if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
    }
}

fn find(
    read: &dyn namespace::Read,
    open_request: &OpenRequest,
    path: &NsPath,
    partial: bool,
    unit: Option<(u8, ObjectId)>,
) -> Result<Found, NsError> {
    let file = namespace::open_read(read, &open_request.actor, path, partial)?;
    let inode = match unit {
        None => file,
        Some((number, of)) => {
            let is_it = |content: &Content| content.object == of && content.group == GroupId::STRIPED;
            if !file.content().is_some_and(is_it) {
                return Err(NsError::Stale { what: path.to_string(), why: "it has been replaced meanwhile" });
            }
            let (_, mut units) = namespace::units_of(read, of)?;
            if usize::from(number) >= units.len() {
                return Err(NsError::NotFound(format!("stripe unit {number} of {path}"), "unit"));
            }
            units.swap_remove(usize::from(number))
        }
    };
    let content = *inode.content().ok_or_else(|| NsError::IsDirectory(path.to_string()))?;
    let record = namespace::object_record(read, content.group, content.object)?;
    let epoch = record.map_or(0, |record| record.epoch);
    let (holders, writer) = match content.state {
        FileState::Open(by) | FileState::Updating(by) => (Vec::new(), namespace::writer_of(read, by, content.object)?),
        FileState::Complete | FileState::Interrupted(_) => {
            (namespace::holders(read, content.group, content.object)?, None)
        }
    };
    Ok(Found { inode, content, epoch, holders, writer })
}
