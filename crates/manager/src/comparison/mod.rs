//! Compares the names of a restored namespace with what the disk servers have: files whose replicas are gone or were changed since the backup, and
//! replicas that have no name. It changes nothing, unless an administrator accepts the state.
//!
//! The caller's thread asks the stores one after the other, page by page, and waits for each answer without a lock.

mod page;

use std::collections::BTreeMap;
use std::sync::Arc;

use namespace::{
    AcceptRestored, Actor, Durability, NsError, Read, RecordAbsent, RestoredRecord, WantedState, WriterKind,
};
use node::{StoredReplica, StoredState};
use serde::{Deserialize, Serialize};
use types::{Group, GroupId, ObjectId, ReplicaId, StoreId};

use crate::World;
use crate::coordinator::{ClusterView, Coordinator, PublishedView};
use crate::hold::Hold;
use crate::inventories::{Inventories, InventoryPage};
use crate::names::Names;
use page::{Disagreements, Named, Page, compare_page, look_elsewhere};

/// Records read at a time.
const PAGE: usize = 512;
/// The most deletions that are kept in memory. Further ones show as replicas without a name.
const DELETIONS_MAX: usize = 1 << 20;

/// See the module.
pub(crate) struct Comparison {
    names: Names,
    view: PublishedView,
    world: Arc<dyn World>,
    coordinator: Arc<Coordinator>,
    hold: Arc<Hold>,
    inventories: Arc<Inventories>,
}

/// A file that disagrees with the stores.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DisagreeingFile {
    /// Its path; the first one if it has several. A stripe unit is named by its object.
    pub path: String,
    /// Its length in bytes, by the namespace.
    pub len: u64,
    /// The locations of the stores that should have it.
    pub locations: Vec<String>,
}

/// A file that a store has and of which the names do not know that.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileElsewhere {
    /// Its path; the first one if it has several. A stripe unit is named by its object.
    pub path: String,
    /// Its length in bytes.
    pub len: u64,
    /// The object, in hexadecimal: the name of its file on the store, if it is larger than 64 KiB.
    pub object: String,
    /// The location of the store that has it.
    pub location: String,
}

/// A replica without a name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ExtraReplica {
    /// The path of its file when it was made; empty if unknown. Bytes that are not text are escaped.
    pub made_as: String,
    /// The object, in hexadecimal: the name of its file on the store, if it is larger than 64 KiB.
    pub object: String,
    /// Its length in bytes.
    pub len: u64,
    /// Whether it is complete.
    pub is_complete: bool,
    /// The location of its store.
    pub location: String,
}

/// How a restored namespace and the stores disagree. Lists are bounded, counts are not.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ComparisonView {
    /// When the backup was taken, in seconds since 1970.
    pub taken: u64,
    /// When it was restored, in seconds since 1970.
    pub restored: u64,
    /// Nobody has accepted the state yet: nothing is removed or replaced on the stores.
    pub is_held: bool,
    /// The number of stores that were compared.
    pub stores: u64,
    /// Stores that were not, because they are offline or did not answer.
    pub not_compared: Vec<String>,
    /// Stores that are draining: all that they have would be removed in the end. The acceptance sets them to read-only.
    pub draining: Vec<String>,
    /// Files that no store has, although those that should were all compared.
    pub lost: Vec<DisagreeingFile>,
    /// Their number.
    pub lost_count: u64,
    /// Files that no store has which should, but another one: it got them after the backup.
    pub elsewhere: Vec<FileElsewhere>,
    /// Their number.
    pub elsewhere_count: u64,
    /// Files whose write had not ended when the backup was taken and which are complete on a store. The names do not know that they are complete.
    pub finished: Vec<FileElsewhere>,
    /// Their number.
    pub finished_count: u64,
    /// Files of which stores have another version than that of the backup.
    pub changed: Vec<DisagreeingFile>,
    /// Their number.
    pub changed_count: u64,
    /// Files that some stores lack and others have.
    pub under_replicated_count: u64,
    /// Replicas without a name.
    pub extra: Vec<ExtraReplica>,
    /// Their number.
    pub extra_count: u64,
    /// Their bytes.
    pub extra_bytes: u64,
    /// There are more disagreements than the manager keeps in memory.
    pub and_more: bool,
}

/// Why a restored state could not be shown or accepted.
#[derive(Debug, thiserror::Error)]
pub enum ComparisonError {
    /// The namespace was never restored.
    #[error("this manager's namespace was never restored from a backup, so there is nothing to compare")]
    NotRestored,
    /// Stores could not be compared.
    #[error(
        "the state was not accepted, because these could not be compared: {}. Bring them back, or accept the state without them with --force", .0.join(", ")
    )]
    NotCompared(Vec<String>),
    /// Files are only on stores of which the names do not know that.
    #[error(
        "the state was not accepted, because {0} files are only on stores that the names do not know to have them. Copy them out first (`weir restored` \
         lists them), and accept the state with --force"
    )]
    Elsewhere(u64),
    /// Files are complete on stores, and the names do not know that their writes have ended.
    #[error(
        "the state was not accepted, because {0} files were being written when the backup was taken and are complete on their stores. The names have \
         what was there before, and these replicas are removed some time after the acceptance. Copy them out first (`weir restored` lists them), and \
         accept the state with --force"
    )]
    Finished(u64),
    /// The namespace cannot be read or changed.
    #[error(transparent)]
    Names(#[from] NsError),
}

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompareOptions {
    /// List at most this many of each kind.
    pub list: usize,
    /// Accept the state: record what stores do not have, and let repair and clean-up go on.
    pub accept: bool,
    /// Accept it although some stores could not be compared, or have files of which the names do not know that.
    pub force: bool,
    /// Keep at most this many disagreements of each kind in memory: usually [`CompareOptions::KEEP`].
    pub keep: usize,
}

impl CompareOptions {
    /// Some tens of megabytes.
    pub const KEEP: usize = 200_000;
}

impl Comparison {
    pub(crate) fn new(
        names: Names,
        world: Arc<dyn World>,
        coordinator: Arc<Coordinator>,
        (hold, inventories): (Arc<Hold>, Arc<Inventories>),
    ) -> Self {
        Self { names, view: coordinator.published(), world, coordinator, hold, inventories }
    }

    /// Compares, and accepts the state if that is asked. `go_on` is asked after each page: if it returns `false`, nothing is accepted, and the result is
    /// `None`.
    pub(crate) fn compare(
        &self,
        how: CompareOptions,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<Option<ComparisonView>, ComparisonError> {
        let record = self.hold.record().ok_or(ComparisonError::NotRestored)?;
        let mut shown = ComparisonView::of(&record);
        loop {
            let view = self.view.get();
            let groups: Vec<Group> = self.coordinator.groups().all().values().cloned().collect();
            let named = self.without_record()?;
            let mut found = Disagreements::new(self.names.incarnation(), record.objects, named, how.keep);
            shown.begin_again();
            let mut compare = |read: &dyn Read, page: &Page<'_>| compare_page(read, &groups, page, &mut found);
            if !self.look_at_stores(&view, &mut shown, &mut compare, &mut go_on)? {
                return Ok(None);
            }
            if self.seek_elsewhere(&mut found)? {
                let stores = shown.stores;
                let mut look = |read: &dyn Read, page: &Page<'_>| look_elsewhere(read, page, &mut found);
                if !self.look_at_stores(&view, &mut shown, &mut look, &mut go_on)? {
                    return Ok(None);
                }
                shown.stores -= stores;
            }
            self.show(&view, &found, how.list, &mut shown)?;
            if !how.accept {
                return Ok(Some(shown));
            }
            if !shown.not_compared.is_empty() && !how.force {
                return Err(ComparisonError::NotCompared(shown.not_compared));
            }
            if shown.elsewhere_count > 0 && !how.force {
                return Err(ComparisonError::Elsewhere(shown.elsewhere_count));
            }
            if shown.finished_count > 0 && !how.force {
                return Err(ComparisonError::Finished(shown.finished_count));
            }
            // Afterwards repair and draining move replicas while the stores are being compared.
            if !shown.is_held {
                break;
            }
            self.record_absent(&found)?;
            // What is recorded is not found again, so that there is room for the rest.
            if !found.has_more_absent() {
                break;
            }
        }
        self.accept()?;
        shown.is_held = false;
        Ok(Some(shown))
    }

    /// Looks at the pages of all stores that are online, and records in `shown` which stores were compared. `false`: the caller does not wait any more.
    fn look_at_stores(
        &self,
        view: &ClusterView,
        shown: &mut ComparisonView,
        look: &mut impl FnMut(&dyn Read, &Page<'_>) -> Result<(), NsError>,
        go_on: &mut impl FnMut() -> bool,
    ) -> Result<bool, NsError> {
        let now = self.world.now();
        for info in view.servers.map().stores() {
            let store = info.store;
            let compared = match view.is_online(now, store) {
                true => self.look_at_store(store, look, go_on)?,
                false => Compared::NotAtAll,
            };
            match compared {
                Compared::Whole => shown.stores += 1,
                Compared::NotAtAll => {
                    let name = format!("{} (store {store})", info.location);
                    if !shown.not_compared.contains(&name) {
                        shown.not_compared.push(name);
                    }
                }
                Compared::Stopped => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Whether there are objects that no store has which should: others may have them.
    fn seek_elsewhere(&self, found: &mut Disagreements) -> Result<bool, NsError> {
        let mut nowhere = Vec::new();
        for ((group, object), stores) in found.replicas() {
            let holders = self.names.read(|read| namespace::holders(read, *group, *object))?;
            if page::is_nowhere(&holders, stores) {
                nowhere.push((*group, *object));
            }
        }
        let is_to_seek = !nowhere.is_empty();
        found.seek(nowhere.into_iter());
        Ok(is_to_seek)
    }

    /// Objects that other records than those of the groups name: open writes, kept uploads, deletions.
    fn without_record(&self) -> Result<Named, NsError> {
        let mut named = Named::default();
        let mut after = None;
        loop {
            let page = self.names.read(|read| namespace::writers_page(read, after, PAGE))?;
            for writer in page.writers {
                // The present bytes of a file that is changed in place are at its name after the acceptance.
                match writer.kind {
                    WriterKind::Update => drop(named.others.insert(writer.object)),
                    WriterKind::New | WriterKind::Upload(_) => drop(named.written.insert(writer.object, writer.path)),
                }
            }
            named.others.extend(page.damaged.iter().map(|((_, object), _)| *object));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let mut after = None;
        loop {
            let page = self.names.read(|read| namespace::uploads(read, after, PAGE))?;
            after = page.last().map(|upload| upload.upload);
            let is_last = page.len() < PAGE;
            named.written.extend(page.into_iter().map(|upload| (upload.object, upload.path)));
            if is_last {
                break;
            }
        }
        let (mut after, mut count) = (None, 0);
        loop {
            let page = self.names.read(|read| namespace::due_deletions(read, after, PAGE))?;
            named.others.extend(page.iter().map(|due| due.object));
            (after, count) = (page.last().copied(), count + page.len());
            if page.len() < PAGE || count >= DELETIONS_MAX {
                return Ok(named);
            }
        }
    }

    fn look_at_store(
        &self,
        store: StoreId,
        look: &mut impl FnMut(&dyn Read, &Page<'_>) -> Result<(), NsError>,
        go_on: &mut impl FnMut() -> bool,
    ) -> Result<Compared, NsError> {
        let mut after: Option<ReplicaId> = None;
        loop {
            let InventoryPage { replicas, is_last } = match self.inventories.page(store, after) {
                Ok(page) => page,
                Err(why) => {
                    tracing::warn!(%store, %why, "a store cannot be compared with the names");
                    return Ok(Compared::NotAtAll);
                }
            };
            let last = replicas.last().map(|last| last.replica);
            let upto = if is_last { None } else { last.map(|last| last.object) };
            let page = Page { store, after: after.map(|after| after.object), upto, replicas: &replicas };
            self.names.read_once(|read| look(read, &page))?;
            if !go_on() {
                return Ok(Compared::Stopped);
            }
            if is_last {
                return Ok(Compared::Whole);
            }
            after = last;
        }
    }

    /// Puts what was found into words and numbers.
    fn show(
        &self,
        view: &ClusterView,
        found: &Disagreements,
        list: usize,
        shown: &mut ComparisonView,
    ) -> Result<(), NsError> {
        shown.and_more = found.and_more();
        let draining = if shown.is_held { view.servers.draining() } else { Vec::new() };
        shown.draining = draining.into_iter().map(|store| location_of(view, store)).collect();
        for ((group, object), stores) in found.replicas() {
            let elsewhere = found.elsewhere(*object);
            let judged = self.names.read(|read| page::judge(read, *group, *object, stores, elsewhere))?;
            let Some(judged) = judged else { continue };
            let (count, files) = match judged.fate {
                page::Fate::Lost => (&mut shown.lost_count, &mut shown.lost),
                page::Fate::Changed => (&mut shown.changed_count, &mut shown.changed),
                page::Fate::Elsewhere(store) => {
                    shown.elsewhere_count += 1;
                    if shown.elsewhere.len() < list {
                        let (object, location) = (format!("{:016x}", object.0), location_of(view, store));
                        shown.elsewhere.push(FileElsewhere { path: judged.path, len: judged.len, object, location });
                    }
                    continue;
                }
                page::Fate::UnderReplicated => {
                    shown.under_replicated_count += 1;
                    continue;
                }
            };
            *count += 1;
            if files.len() < list {
                let locations = stores.keys().map(|store| location_of(view, *store)).collect();
                files.push(DisagreeingFile { path: judged.path, len: judged.len, locations });
            }
        }
        shown.finished_count = found.finished().len() as u64;
        shown.finished = found
            .finished()
            .take(list)
            .map(|((store, replica), path)| FileElsewhere {
                path: path.escape_ascii().to_string(),
                len: replica.state.bytes(),
                object: format!("{:016x}", replica.replica.object.0),
                location: location_of(view, *store),
            })
            .collect();
        let mut listed: BTreeMap<StoreId, Vec<StoredReplica>> = BTreeMap::new();
        for (store, replica) in found.extra().iter().take(list) {
            listed.entry(*store).or_default().push(*replica);
        }
        (shown.extra_count, shown.extra_bytes) = found.extra_sum();
        for (store, replicas) in listed {
            let asked: Vec<ReplicaId> = replicas.iter().map(|one| one.replica).collect();
            let origins = self.inventories.origins(store, &asked).unwrap_or_else(|_| vec![Vec::new(); asked.len()]);
            shown.extra.extend(replicas.iter().zip(origins).map(|(one, made_as)| ExtraReplica {
                made_as: made_as.escape_ascii().to_string(),
                object: format!("{:016x}", one.replica.object.0),
                len: one.state.bytes(),
                is_complete: matches!(one.state, StoredState::Whole(_)),
                location: location_of(view, store),
            }));
        }
        shown.extra.sort_by(|a, b| (&a.made_as, &a.location).cmp(&(&b.made_as, &b.location)));
        Ok(())
    }

    /// Records what stores do not have.
    fn record_absent(&self, found: &Disagreements) -> Result<(), NsError> {
        let mut absent: BTreeMap<GroupId, Vec<(ObjectId, StoreId)>> = BTreeMap::new();
        for ((group, object), stores) in found.replicas() {
            // What was changed since is not replaced: nobody else may have it.
            let gone = stores.iter().filter(|(_, is_changed)| !**is_changed).map(|(store, _)| (*object, *store));
            absent.entry(*group).or_default().extend(gone);
        }
        for (group, absent) in absent {
            for some in absent.chunks(RecordAbsent::REPLICAS_MAX) {
                self.change(RecordAbsent { group, absent: some.to_vec() })?;
            }
        }
        Ok(())
    }

    /// Ends the hold. A store that was draining may have got files since the backup, so it is not emptied now.
    fn accept(&self) -> Result<(), NsError> {
        // Accepted once, a drain is what an administrator wants now.
        let draining = if self.hold.is_held() { self.view.get().servers.draining() } else { Vec::new() };
        for store in draining {
            self.coordinator.set_wanted_state(store, WantedState::ReadOnly)?;
        }
        self.change(AcceptRestored)?;
        self.hold.end();
        Ok(())
    }

    fn change<O: namespace::Operation<Reply = ()> + Send + 'static>(&self, op: O) -> Result<(), NsError> {
        self.names.change_wait((self.world.wall(), &Actor::admin()), Durability::Synced, op)
    }
}

/// How far a store was compared.
enum Compared {
    Whole,
    NotAtAll,
    /// The caller does not wait any more.
    Stopped,
}

fn location_of(view: &ClusterView, store: StoreId) -> String {
    view.servers.map().store(store).map_or_else(|| format!("store {store}"), |info| info.location.to_string())
}

impl ComparisonView {
    fn of(record: &RestoredRecord) -> Self {
        let seconds = |time: types::Timestamp| u64::try_from(time.secs()).unwrap_or(0);
        let (taken, restored) = (seconds(record.taken), seconds(record.restored));
        Self { taken, restored, is_held: record.is_held, ..Self::default() }
    }

    /// Forgets what another comparison finds again. What was recorded meanwhile it does not find.
    fn begin_again(&mut self) {
        (self.stores, self.changed_count, self.not_compared) = (0, 0, Vec::new());
        (self.changed, self.extra) = (Vec::new(), Vec::new());
    }
}
