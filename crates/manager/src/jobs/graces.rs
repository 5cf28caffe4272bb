//! Writers that nobody leads any more: their disk server has begun anew, or is gone, and their client has not come back; or it has never come where it
//! was sent. After a grace period the manager has each ended, by a store that surely knows all that was acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster::server::GrantRights;
use cluster::{Presence, Time};
use namespace::{
    Durability, How, Interrupt, InterruptPlaced, NsError, OpenWrite, UnitsWritten, WriterKey, WriterKind, WriterRecord,
    WriterToken, WritersPage,
};
use types::capability::PathMark;
use types::{GroupId, NodeId, NsPath, ObjectId, StoreId};

use crate::open::Permitted;
use crate::{Manager, OpenRequest, OpeningError};
use node::{EndWriter, FromManager};

/// Writers that are looked at in one step.
const PAGE: usize = 512;
/// How often.
const LOOK: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(crate) struct Graces {
    next_look: Time,
    /// Up to where it was looked in this round.
    looked: Option<(WriterKey, ObjectId)>,
    /// Those of which nobody has said that it leads them, and since when.
    alone: BTreeMap<(WriterKey, ObjectId), (u32, Time)>,
    /// Of striped files those of which somebody has been seen to write a unit, in this epoch.
    begun: BTreeMap<(WriterKey, ObjectId), u32>,
    /// Of these it was said that they cannot be read.
    damaged: BTreeSet<(WriterKey, ObjectId)>,
}

impl Manager {
    /// Looks at some of those who write.
    pub(crate) fn look_at_writers(self: &Arc<Self>, now: Time) {
        let after = {
            let mut graces = self.graces.lock();
            if now < graces.next_look {
                return;
            }
            graces.next_look = now + LOOK;
            graces.looked
        };
        let page = match self.names.read(|read| namespace::writers_page(read, after, PAGE)) {
            Ok(page) => page,
            Err(error) => return tracing::error!(%error, "cannot read the open writes"),
        };
        let WritersPage { writers: found, damaged, next } = page;
        let mut ask: BTreeMap<(NodeId, StoreId), Vec<WriterToken>> = BTreeMap::new();
        let mut due = Vec::new();
        // A striped file is written as long as one of its units is. When its client is gone, each unit's server has waited a grace period for it
        // already. Somebody is waited for here only where all units are complete, as he may be about to say that the file is, and where no unit was
        // seen to be written, as of one that is gone on with they have to be opened first.
        let is_striped = |writer: &&WriterRecord| writer.placement.group == GroupId::STRIPED;
        let units = |object| self.names.read(|read| namespace::units_written(read, object));
        let striped: BTreeMap<ObjectId, UnitsWritten> = found
            .iter()
            .filter(is_striped)
            .map(|writer| (writer.object, units(writer.object).unwrap_or(UnitsWritten::Still)))
            .collect();
        {
            let (view, mut graces) = (self.view(), self.graces.lock());
            // Those that have ended otherwise are forgotten: whoever should be on this page and is not.
            let there: BTreeSet<_> = found.iter().map(|writer| (writer.key, writer.object)).collect();
            let is_here = |writer: &(WriterKey, ObjectId)| {
                after.is_none_or(|after| *writer > after) && next.is_none_or(|next| *writer <= next)
            };
            graces.alone.retain(|writer, _| !is_here(writer) || there.contains(writer));
            graces.begun.retain(|writer, _| !is_here(writer) || there.contains(writer));
            graces.looked = next;
            graces.step_over(&damaged);
            for writer in found {
                match striped.get(&writer.object) {
                    Some(UnitsWritten::Still) => {
                        graces.alone.remove(&(writer.key, writer.object));
                        graces.begun.insert((writer.key, writer.object), writer.epoch);
                        continue;
                    }
                    Some(UnitsWritten::NotAll)
                        if graces.begun.get(&(writer.key, writer.object)) == Some(&writer.epoch) =>
                    {
                        due.push(writer);
                        continue;
                    }
                    Some(UnitsWritten::NotAll | UnitsWritten::All) | None => {}
                }
                let primary = writer.primary().map(|one| one.store);
                let is_there = primary.is_some_and(|store| {
                    view.standing(now, store).is_some_and(|standing| standing.presence != Presence::Away)
                });
                if !is_there {
                    graces.nobody_leads(now, &writer.token());
                }
                if let Some(store) = primary.filter(|_| is_there)
                    && let Some(node) = view.node_of(store)
                {
                    // Its client may just have come back: who is there is asked, however long nobody has said that it leads this one.
                    ask.entry((node, store)).or_default().push(writer.token());
                } else if graces.is_over(now, view.grace, &writer.token()) {
                    due.push(writer);
                }
            }
        }
        for ((node, store), writers) in ask {
            self.world.send(node, FromManager::WhoLeads { store, writers });
        }
        for writer in due {
            match writer.placement.group {
                GroupId::STRIPED => self.end_striped(&writer),
                _ => self.end_writer(&writer),
            }
        }
    }

    /// A disk server says which of the writers that it was asked about it leads. Of those whose primary it has: it was asked about no others, and is
    /// not believed what it says of them.
    pub(crate) fn led(self: &Arc<Self>, node: NodeId, asked: &[WriterToken], led: &[WriterToken]) {
        let now = self.world.now();
        let records = self.names.read(|read| {
            let of = |writer: &WriterToken| namespace::writer_of(read, writer.key, writer.object);
            asked.iter().take(PAGE).map(of).collect::<Result<Vec<_>, _>>()
        });
        let records = match records {
            Ok(records) => records,
            // It is asked again.
            Err(error) => return tracing::error!(%error, "cannot read the open writes"),
        };
        let mut over = Vec::new();
        {
            let (view, mut graces) = (self.view(), self.graces.lock());
            for (writer, record) in asked.iter().zip(records) {
                let Some(record) = record else { continue };
                if record.primary().and_then(|one| view.node_of(one.store)) != Some(node) {
                    continue;
                }
                if led.contains(writer) {
                    graces.alone.remove(&(writer.key, writer.object));
                } else if graces.is_over(now, view.grace, writer) && record.token() == *writer {
                    over.push(record);
                } else {
                    graces.nobody_leads(now, writer);
                }
            }
        }
        over.iter().for_each(|writer| self.end_writer(writer));
    }

    /// As if its client came back: another epoch, so that nobody else goes on with it, and whoever knows all that was acknowledged. That one ends it.
    fn end_writer(self: &Arc<Self>, writer: &WriterRecord) {
        self.graces.lock().forget(&writer.token());
        let Ok(path) = NsPath::parse(&writer.path) else {
            return tracing::error!(object = %writer.object, "a writer's path is not valid");
        };
        // Nobody can open it any more, and nothing of it is to be kept.
        if self.names.read(|read| namespace::is_unlinked(read, writer)).unwrap_or(false) {
            return self.end_with_nothing(
                &path,
                writer.token(),
                "the file was removed while it was written, and its writer has not come back",
            );
        }
        tracing::info!(%path, client = %writer.client.host, "its writer has not come back: the open write is ended");
        let nobody = std::net::Ipv4Addr::UNSPECIFIED.into();
        let open_request = OpenRequest::new(self.world.wall(), path.clone(), nobody, namespace::Actor::admin());
        let op = OpenWrite {
            mode: 0,
            expected_len: writer.expected_len,
            only: Some(writer.token()),
            ..OpenWrite::new(path.clone(), How::Update, writer.client.clone(), writer.boot)
        };
        let (this, expected_len, writer) = (Arc::clone(self), writer.expected_len, writer.clone());
        self.open_write(open_request, op, move |result| match result {
            Ok(to) => {
                let end = EndWriter { capability: to.capability, path: path.as_bytes().to_vec(), expected_len };
                this.world.send(to.node, FromManager::End(end));
            }
            Err(OpeningError::Lost) => this.end_what_is_left(&path, &writer),
            // It is tried again, a grace period later.
            Err(error) => tracing::info!(%path, %error, "it cannot be ended now"),
        });
    }

    /// All who took part have begun anew. What was synced each of them has, and of what was changed in place all that was there before; one of them
    /// ends it with that. Its client can go on with it no more than before: who takes part stands in the namespace as it did.
    fn end_what_is_left(self: &Arc<Self>, path: &NsPath, writer: &WriterRecord) {
        let now = self.world.now();
        let stores: Vec<StoreId> = writer.placement.in_sync.iter().map(|one| one.store).collect();
        let (there, may_come_back) = {
            let view = self.view();
            let may_come_back = stores.iter().any(|store| !view.servers.is_removed_as_lost(*store));
            (view.in_sync(now, &view.lasting(&stores), 1), may_come_back)
        };
        let Some(one) = there.first().copied() else {
            if !may_come_back {
                let why = "all stores that it was written to are removed as lost: nothing of it is kept";
                self.end_with_nothing(path, writer.token(), why);
            }
            return;
        };
        let may_make = writer.kind != WriterKind::Update;
        let rights = GrantRights::Write { writer: writer.token(), in_sync: there, may_make };
        let (mtime, group, epoch) = (self.world.wall(), writer.placement.group, u64::from(writer.epoch));
        let (replica, ino, shown_with) = (writer.replica(), writer.ino, PathMark::of(path));
        let principal = writer.client.principal;
        let to = Permitted { principal, path: shown_with, replica, ino, mode: 0, mtime, group, epoch, rights };
        match self.permit(now, one.store, to) {
            Ok(to) => {
                tracing::warn!(%path, store = %one.store, "all stores that it was written to have restarted: what was synced is kept");
                // Something of it may be missing, however long it is.
                let end = EndWriter { capability: to.capability, path: path.as_bytes().to_vec(), expected_len: None };
                self.world.send(to.node, FromManager::End(end));
            }
            // It is tried again, a grace period later.
            Err(error) => tracing::info!(%path, %error, "it cannot be ended now"),
        }
    }

    fn end_with_nothing(&self, path: &NsPath, writer: WriterToken, why: &'static str) {
        let op = InterruptPlaced { interrupt: Interrupt { writer, kept_len: 0 }, by: None, holders: Vec::new() };
        let path = path.clone();
        self.change(Durability::Synced, op, move |result: Result<_, NsError>| match result {
            Ok(_) => tracing::warn!(%path, "{why}"),
            Err(error) => tracing::error!(%path, %error, "an open write cannot be ended"),
        });
    }
}

impl Graces {
    /// Some cannot be read. Nobody can end them, and all others are to be ended all the same; it is said once of each.
    fn step_over(&mut self, damaged: &[((WriterKey, ObjectId), NsError)]) {
        for ((key, object), error) in damaged {
            if self.damaged.insert((*key, *object)) {
                tracing::error!(%object, %error, "a writer's record cannot be read; it is skipped, and its file stays as it is");
            }
        }
    }

    /// What is known of a writer that is being ended: where that comes to nothing, it is waited for anew.
    pub(crate) fn forget(&mut self, writer: &WriterToken) {
        self.alone.remove(&(writer.key, writer.object));
        self.begun.remove(&(writer.key, writer.object));
    }

    fn nobody_leads(&mut self, now: Time, writer: &WriterToken) {
        let since = self.alone.entry((writer.key, writer.object)).or_insert((writer.epoch, now));
        // Somebody has come back meanwhile.
        if since.0 != writer.epoch {
            *since = (writer.epoch, now);
        }
    }

    /// Nobody has said yet that it leads this one, or nobody does any more: what it has written can be seen nowhere.
    pub(crate) fn is_alone(&self, writer: &WriterToken) -> bool {
        self.alone.get(&(writer.key, writer.object)).is_some_and(|(epoch, _)| *epoch == writer.epoch)
    }

    /// Whether a writer was waited for as long as `grace`.
    fn is_over(&self, now: Time, grace: Duration, writer: &WriterToken) -> bool {
        let since = self.alone.get(&(writer.key, writer.object)).filter(|(epoch, _)| *epoch == writer.epoch);
        since.is_some_and(|(_, since)| now.since(*since) >= grace)
    }
}
