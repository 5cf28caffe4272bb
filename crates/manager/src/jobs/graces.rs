//! Ends open writes that have no primary. Either the disk server has restarted or is gone, and the client has not returned. Or the client never
//! reached the server. After a grace period the manager has each of them ended by a store that surely has all acknowledged bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster::server::GrantRights;
use cluster::{Presence, Time};
use namespace::{
    Durability, EndStriped, Interrupt, InterruptPlaced, NsError, OpenWrite, UnitsWritten, WriteMode, WriterKey,
    WriterKind, WriterRecord, WriterToken, WritersPage,
};
use types::capability::{PathHash, Rights};
use types::{GroupId, NodeId, NsPath, ObjectId, StoreId};

use crate::coordinator::PublishedView;
use crate::hold::Hold;
use crate::names::Names;
use crate::open::{OpenService, Permitted};
use crate::tracked::Tracked;
use crate::without_primary::WritesWithoutPrimary;
use crate::{OpenRequest, OpeningError, World};
use node::{EndWriter, FromManager};

/// Open writes that are examined in one step.
const PAGE: usize = 512;
/// How often a step runs.
const LOOK: Duration = Duration::from_secs(2);

/// See the module.
pub(crate) struct Graces {
    names: Names,
    view: PublishedView,
    world: Arc<dyn World>,
    /// Opens a file in place of its writer, to end the write.
    open: Arc<OpenService>,
    without_primary: WritesWithoutPrimary,
    hold: Arc<Hold>,
    state: Tracked<State>,
}

#[derive(Default)]
struct State {
    next_look: Time,
    /// The last open write that was examined in this pass.
    looked: Option<(WriterKey, ObjectId)>,
    /// Striped files whose client was seen to write a unit, with the epoch of that write.
    begun: BTreeMap<(WriterKey, ObjectId), u32>,
    /// Unreadable records that were already logged.
    damaged: BTreeSet<(WriterKey, ObjectId)>,
}

impl Graces {
    pub(crate) fn new(
        names: Names,
        (view, world): (PublishedView, Arc<dyn World>),
        open: Arc<OpenService>,
        (without_primary, hold): (WritesWithoutPrimary, Arc<Hold>),
    ) -> Self {
        Self { names, view, world, open, without_primary, hold, state: Tracked::default() }
    }

    /// Examines some of the open writes.
    pub(crate) fn tick(self: &Arc<Self>, now: Time) {
        let after = {
            let mut state = self.state.lock();
            if now < state.next_look {
                return;
            }
            state.next_look = now + LOOK;
            state.looked
        };
        // A striped file counts as written while one of its units is. When its client is gone, the server of each unit has already waited a grace
        // period. The manager waits for the client itself only in two cases. Either all units are complete, and the client may be about to close the
        // file. Or no unit was seen being written, as when an interrupted file is continued and its units must be opened first.
        let found = self.names.read(|read| {
            let page = namespace::writers_page(read, after, PAGE)?;
            let is_striped = |writer: &&WriterRecord| writer.placement.group == GroupId::STRIPED;
            let units = |object| namespace::units_written(read, object).unwrap_or(UnitsWritten::Still);
            let striped = page.writers.iter().filter(is_striped);
            let striped = striped.map(|writer| (writer.object, units(writer.object))).collect();
            Ok::<(_, BTreeMap<ObjectId, UnitsWritten>), NsError>((page, striped))
        });
        let (page, striped) = match found {
            Ok(found) => found,
            Err(error) => return tracing::error!(%error, "cannot read the open writes"),
        };
        let WritersPage { writers: found, damaged, next } = page;
        let mut ask: BTreeMap<(NodeId, StoreId), Vec<WriterToken>> = BTreeMap::new();
        let mut due = Vec::new();
        {
            let (view, mut state) = (self.view.get(), self.state.lock());
            // Forget open writes that ended in another way: they would be on this page and are not.
            let there: BTreeSet<_> = found.iter().map(|writer| (writer.key, writer.object)).collect();
            let is_here = |writer: &(WriterKey, ObjectId)| {
                after.is_none_or(|after| *writer > after) && next.is_none_or(|next| *writer <= next)
            };
            self.without_primary.retain(|writer| !is_here(writer) || there.contains(writer));
            state.begun.retain(|writer, _| !is_here(writer) || there.contains(writer));
            state.looked = next;
            state.step_over(&damaged);
            // After a restore, a file may have been completed since the backup, and the first of its stores may have less. It ends early only if its
            // owner replaces it.
            let is_to_end = |writer: &WriterRecord| {
                !self.hold.holds(writer.object) || self.without_primary.is_over(now, view.grace, &writer.token())
            };
            for writer in found.into_iter().filter(is_to_end) {
                match striped.get(&writer.object) {
                    Some(UnitsWritten::Still) => {
                        self.without_primary.remove((writer.key, writer.object));
                        state.begun.insert((writer.key, writer.object), writer.epoch);
                        continue;
                    }
                    Some(UnitsWritten::NotAll)
                        if state.begun.get(&(writer.key, writer.object)) == Some(&writer.epoch) =>
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
                    self.note_without_primary(now, &writer);
                }
                if let Some(store) = primary.filter(|_| is_there)
                    && let Some(node) = view.node_of(store)
                {
                    // The client may have just come back. So an online primary is asked, however long nobody has claimed this open write.
                    ask.entry((node, store)).or_default().push(writer.token());
                } else if self.without_primary.is_over(now, view.grace, &writer.token()) {
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

    /// A disk server says which of these open writes it leads. Its answer counts only for open writes whose primary it serves: it was not asked about
    /// others.
    pub(crate) fn led(self: &Arc<Self>, node: NodeId, asked: &[WriterToken], led: &[WriterToken]) {
        let now = self.world.now();
        let records = self.names.read(|read| {
            let of = |writer: &WriterToken| namespace::writer_of(read, writer.key, writer.object);
            asked.iter().take(PAGE).map(of).collect::<Result<Vec<_>, _>>()
        });
        let records = match records {
            Ok(records) => records,
            // The server is asked again.
            Err(error) => return tracing::error!(%error, "cannot read the open writes"),
        };
        let mut over = Vec::new();
        {
            let (view, without_primary) = (self.view.get(), &self.without_primary);
            for (writer, record) in asked.iter().zip(records) {
                let Some(record) = record else { continue };
                if record.primary().and_then(|one| view.node_of(one.store)) != Some(node) {
                    continue;
                }
                if led.contains(writer) {
                    without_primary.remove((writer.key, writer.object));
                    continue;
                }
                if record.is_ending && record.token() == *writer {
                    self.note_without_primary(now, &record);
                }
                if without_primary.is_over(now, view.grace, writer) && record.token() == *writer {
                    over.push(record);
                } else {
                    without_primary.add(now, writer);
                }
            }
        }
        over.iter().for_each(|writer| self.end_writer(writer));
    }

    /// Records that no store leads this open write now. If its end has begun, its client cannot return, so nobody waits for it.
    fn note_without_primary(&self, now: Time, writer: &WriterRecord) {
        match writer.is_ending {
            true => self.without_primary.end_soon(now, &writer.token()),
            false => self.without_primary.add(now, &writer.token()),
        }
    }

    /// Forgets an open write that is being ended. If ending it fails, a new grace period starts.
    fn forget(&self, writer: &WriterToken) {
        self.without_primary.remove((writer.key, writer.object));
        self.state.lock().begun.remove(&(writer.key, writer.object));
    }

    /// Ends a striped file whose client has not returned and whose units are no longer being written.
    fn end_striped(&self, writer: &WriterRecord) {
        self.forget(&writer.token());
        let path = writer.path.escape_ascii().to_string();
        let op = EndStriped { writer: writer.token() };
        self.names.change_as_manager(self.world.wall(), Durability::Synced, op, move |result| match result {
            Ok(true) => {
                tracing::info!(path, "completed, as its stripe units hold all announced bytes: its writer went away")
            }
            Ok(false) => tracing::info!(path, "interrupted: its writer went away"),
            // The manager tries again after a grace period.
            Err(error) => tracing::info!(path, %error, "it cannot be ended now"),
        });
    }

    /// Acts as if the client came back. A higher epoch stops everyone else. A store that has all acknowledged bytes becomes the primary, and ends the
    /// write.
    fn end_writer(self: &Arc<Self>, writer: &WriterRecord) {
        self.forget(&writer.token());
        let Ok(path) = NsPath::parse(&writer.path) else {
            return tracing::error!(object = %writer.object, "a writer's path is not valid");
        };
        // Nobody can open the file any more, so nothing of it is kept.
        if self.names.read(|read| namespace::is_unlinked(read, writer)).unwrap_or(false) {
            return self.end_with_nothing(
                &path,
                writer.token(),
                "the file was removed while it was written, and its writer has not come back",
            );
        }
        tracing::info!(%path, client = %writer.client, "its writer has not come back: the open write is ended");
        let nobody = std::net::Ipv4Addr::UNSPECIFIED.into();
        let open_request = OpenRequest::new(self.world.wall(), path.clone(), nobody, namespace::Actor::admin());
        let op = OpenWrite {
            mode: 0,
            expected_len: writer.expected_len,
            only: Some(writer.token()),
            ends: true,
            ..OpenWrite::new(path.clone(), WriteMode::Update, writer.client.clone(), writer.boot)
        };
        let (this, expected_len, writer) = (Arc::clone(self), writer.expected_len, writer.clone());
        self.open.open_write(open_request, op, move |result| match result {
            Ok(to) => {
                let end = EndWriter { capability: to.capability, path: path.as_bytes().to_vec(), expected_len };
                this.world.send(to.node, FromManager::End(end));
            }
            Err(OpeningError::Lost) => this.end_what_is_left(&path, &writer),
            // The manager tries again after a grace period.
            Err(error) => tracing::info!(%path, %error, "it cannot be ended now"),
        });
    }

    /// Ends an open write whose in-sync replicas were all on servers that have restarted. Each of them has all synced bytes and, for a change in
    /// place, the older version. One of them ends the write with that. The client still cannot continue it: the namespace has the same in-sync
    /// replicas as before.
    fn end_what_is_left(self: &Arc<Self>, path: &NsPath, writer: &WriterRecord) {
        let now = self.world.now();
        let stores: Vec<StoreId> = writer.placement.in_sync.iter().map(|one| one.store).collect();
        let (there, may_come_back) = {
            let view = self.view.get();
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
        let (replica, ino, shown_with) = (writer.replica(), writer.ino, PathHash::of(path));
        let principal = writer.client.principal;
        let to = Permitted {
            principal,
            path: shown_with,
            replica,
            ino,
            mode: 0,
            mtime,
            group,
            epoch,
            rights,
            allowed: Rights::READ_WRITE,
            may_reach: None,
        };
        match self.open.permit(now, one.store, to) {
            Ok(to) => {
                tracing::warn!(%path, store = %one.store, "all stores that it was written to have restarted: what was synced is kept");
                // Bytes may be missing, whatever its length.
                let end = EndWriter { capability: to.capability, path: path.as_bytes().to_vec(), expected_len: None };
                self.world.send(to.node, FromManager::End(end));
            }
            // The manager tries again after a grace period.
            Err(error) => tracing::info!(%path, %error, "it cannot be ended now"),
        }
    }

    fn end_with_nothing(&self, path: &NsPath, writer: WriterToken, why: &'static str) {
        let op = InterruptPlaced { interrupt: Interrupt { writer, kept_len: 0 }, by: None, holders: Vec::new() };
        let path = path.clone();
        self.names.change_as_manager(self.world.wall(), Durability::Synced, op, move |result: Result<_, NsError>| {
            match result {
                Ok(_) => tracing::warn!(%path, "{why}"),
                Err(error) => tracing::error!(%path, %error, "an open write cannot be ended"),
            }
        });
    }
}

impl State {
    /// Logs each unreadable record once. Nobody can end these open writes, and they must not stop the others.
    fn step_over(&mut self, damaged: &[((WriterKey, ObjectId), NsError)]) {
        for ((key, object), error) in damaged {
            if self.damaged.insert((*key, *object)) {
                tracing::error!(%object, %error, "a writer's record cannot be read; it is skipped, and its file stays as it is");
            }
        }
    }
}
