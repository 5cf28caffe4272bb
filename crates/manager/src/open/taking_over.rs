//! Another store takes over an open write: its client cannot reach the primary, or the primary's store has failed.

use std::sync::Arc;

use cluster::replication::Epoch;
use cluster::{Reopening, reopening};
use namespace::{Durability, SetInSyncReplicas, WriterRecord, WriterToken};
use types::{ErrorCode, InSyncReplica, StoreId};

use super::OpenService;
use super::open_request::OpeningError;
use super::opening::{not_made, unknown_server};
use crate::coordinator::{Ended, Placing, has_older_version};

impl OpenService {
    /// Makes `to` the only in-sync replica of the open write, once the old primary has stopped. Calls `then` once, with
    /// the writer's new epoch.
    pub(super) fn take_over(
        self: &Arc<Self>,
        writer: &WriterRecord,
        to: InSyncReplica,
        then: impl FnOnce(Result<(WriterToken, Ended), OpeningError>) + Send + 'static,
    ) {
        let in_sync = &writer.placement.in_sync;
        // If there is an older version, all of these stores have it, and each could show it.
        let first = match has_older_version(&self.names, writer) {
            Ok(true) => in_sync.len(),
            Ok(false) => 1,
            Err(error) => return then(Err(error.into())),
        };
        let others: Vec<StoreId> = in_sync.iter().take(first).filter(|one| **one != to).map(|one| one.store).collect();
        let (replica, token) = (writer.replica(), writer.token());
        let path = writer.path.escape_ascii().to_string();
        let from = writer.primary().map_or(0, |primary| primary.store.0);
        tracing::info!(path, from = %StoreId(from), to = %to.store, "another store takes over");
        let this = Arc::clone(self);
        self.coordinator.once_fenced(&others, replica, Epoch(writer.epoch + 1), move |ended| {
            let Some(ended) = ended else { return then(Err(unknown_server())) };
            let now = this.world.now();
            // The store may have lost data meanwhile: then decide again.
            let standing = this.view.get().standing(now, to.store);
            if standing.is_none_or(|standing| standing.boot_generation != to.boot_generation) {
                return then(Err(OpeningError::wait("the store that should take over has restarted")));
            }
            let op = SetInSyncReplicas { writer: token, in_sync: vec![to], takes_over: true, is_ending: false };
            let wall = this.world.wall();
            this.names.change_as_manager(wall, Durability::Synced, op, move |result| match result {
                Ok(now) => then(Ok((now, ended))),
                // For example, its close has just been recorded.
                Err(error) => then(Err(not_made(error))),
            });
        });
    }

    /// The store of a primary has failed, and another in-sync replica is to take over. The primary learns from its
    /// fence that one does, and sends its clients here. It asks again if it hears nothing.
    pub(crate) fn hand_over(self: &Arc<Self>, placing: &Placing) {
        let Placing { store, replica, writer: token, .. } = *placing;
        let writer = match self.names.read(|read| namespace::writer_of(read, token.key, token.object)) {
            Ok(writer) => writer.filter(|writer| writer.token() == token && writer.replica() == replica),
            Err(error) => return tracing::error!(%error, "cannot read the open writes"),
        };
        let is_primary = |writer: &WriterRecord| writer.primary().is_some_and(|primary| primary.store == store);
        let Some(writer) = writer.filter(is_primary) else {
            return self.coordinator.tell_placed(placing, Err(ErrorCode::Stale));
        };
        let (decided, others_may_return) = {
            let (view, now) = (self.view.get(), self.world.now());
            if view.fences.guards(replica) {
                return;
            }
            let mut able: Vec<InSyncReplica> = writer.placement.in_sync.clone();
            // The primary knows which of the others have failed as well.
            able.retain(|one| one.store == store || placing.in_sync.contains(one));
            // A store with room is better than one that will soon fail, too.
            let has_room =
                |one: &InSyncReplica| view.servers.map().store(one.store).is_some_and(|info| info.room() > 0);
            able.sort_by_key(|one| (one.store != store, !has_room(one)));
            let others = || able.iter().filter(|one| one.store != store);
            let is_full = |one: &InSyncReplica| {
                view.servers.map().store(one.store).is_some_and(|info| info.capacity > 0 && info.room() == 0)
            };
            // One that is away and has every acknowledged byte.
            let may_return = |one: &InSyncReplica| {
                let standing = view.standing(now, one.store);
                standing.is_none_or(|now| now.boot_generation == one.boot_generation && !now.is_removed_as_lost)
            };
            let others_may_return = others().any(may_return);
            match able.iter().any(|one| one.store == store && is_full(one)) && others().all(is_full) {
                // All are full. The primary has every acknowledged byte, and the others need not lose theirs to it.
                true => (Reopening::Lost, false),
                false => (reopening(&able, &[store], |store| view.standing(now, store)), others_may_return),
            }
        };
        match decided {
            Reopening::TakeOver(to) => self.take_over(&writer, to, |taken| {
                if let Err(error) = taken {
                    tracing::info!(%error, "an open write cannot be handed over now");
                }
            }),
            // They may come back, and the primary asks again.
            Reopening::Wait => {}
            Reopening::Same(_) if others_may_return => {}
            Reopening::Same(_) | Reopening::Lost => {
                self.coordinator.tell_placed(placing, Err(ErrorCode::Unavailable));
            }
        }
    }
}
