//! Opens for reading. A reader goes to the nearest healthy store with a replica. If the file is being written, the reader goes to the primary.

use std::time::Duration;

use cluster::Time;
use cluster::placement::rank_readers;
use cluster::replication::{Epoch, ObjectDigest};
use cluster::server::GrantRights;
use namespace::{Content, DISTRUSTED, FileState, Inode, NsError, WriterRecord};
use types::absent_replicas::AbsentReplica;
use types::capability::{PathHash, Rights};
use types::{ClientAddress, GroupId, InSyncReplica, NsPath, ObjectId, ReplicaId, StoreId};

use super::OpenService;
use super::open_request::{OpenRequest, OpeningError, Redirect, Unfinished, no_address};
use super::opening::Permitted;
use super::striping::{FoundUnits, all_of};
use crate::coordinator::ClusterView;

/// The longest time to wait for stores whose lease has ended. People wait for some of these reads and want an answer.
pub(crate) const PATIENCE_MAX: Duration = Duration::from_secs(60);

/// How often a reader's open is decided again if its capability became useless before the client has it. The store would refuse it in any case.
const LOOKS_MAX: usize = 3;

/// What the reader of a file gets that was being written at the time of a backup, after the manager was restored from it.
pub(super) const OF_A_BACKUP: &str = "it was being written when the backup was taken from which the cluster's manager was restored; write it again, or ask \
                           the administrator what the stores have of it (`weir restored`)";

/// The decision for a reader.
struct Decided {
    to: Redirect,
    /// The replica and store of the capability. `None` if it does not depend on a fence.
    at: Option<(ReplicaId, StoreId)>,
}

/// Whether a capability decided by one view is as good in a later one. If not, no harm is done: the store refuses it.
fn is_as_before(
    now: Time,
    (view, later): (&ClusterView, &ClusterView),
    decided: &Result<Decided, OpeningError>,
) -> bool {
    let Ok(Decided { at: Some((replica, store)), .. }) = decided else { return true };
    let session = |view: &ClusterView| view.sessions.session(now, view.node_of(*store)?);
    later.version == view.version || !later.fences.guards(*replica) && session(later) == session(view)
}

/// The namespace's record of a file to read.
pub(crate) struct Found {
    pub(crate) inode: Inode,
    pub(crate) content: Content,
    epoch: u32,
    holders: Vec<StoreId>,
    /// Stores whose replica is missing or damaged.
    missing: Vec<StoreId>,
    /// The writer, if the file is being written.
    pub(super) writer: Option<WriterRecord>,
    /// The units, if the file is striped. They are read together with the file: a moment later the file may be replaced, and its units gone.
    units: Option<FoundUnits>,
}

/// The store to which a client is sent.
pub(crate) struct Nearest {
    pub(crate) store: StoreId,
    /// The client has already tried it, and all other usable stores too, or those as good as it.
    pub(crate) was_tried: bool,
}

impl Found {
    /// The primary, if the file is being written.
    fn primary(&self) -> Option<InSyncReplica> {
        self.writer.as_ref()?.placement.in_sync.first().copied()
    }
}

impl OpenService {
    /// Opens for reading. `unit`: open this unit of the file, if it still has this object.
    ///
    /// # Errors
    /// Why the client is sent nowhere.
    pub(crate) fn open_read(
        &self,
        open_request: &OpenRequest,
        path: &NsPath,
        partial: bool,
        unit: Option<(u8, ObjectId)>,
    ) -> Result<Redirect, OpeningError> {
        self.decide_read(open_request, path, partial, unit)?.followed_by(open_request)
    }

    /// The same, for a reader that needs no address.
    pub(crate) fn decide_read(
        &self,
        open_request: &OpenRequest,
        path: &NsPath,
        partial: bool,
        unit: Option<(u8, ObjectId)>,
    ) -> Result<Redirect, OpeningError> {
        let mut view = self.view.get();
        for _ in 0..LOOKS_MAX {
            let decided = self.open_read_by(&view, open_request, path, partial, unit);
            let later = self.view.get();
            if is_as_before(self.world.now(), (&view, &later), &decided) {
                return decided.map(|decided| decided.to);
            }
            view = later;
        }
        self.open_read_by(&view, open_request, path, partial, unit).map(|decided| decided.to)
    }

    /// Decides by this view and the present namespace.
    ///
    /// The caller took the view **before** this function reads the namespace. So no fence can begin and end in between unnoticed. A fence stops a
    /// store that would show an old version. It ends when the change that needed it is recorded. Three cases of such a fence exist:
    /// - It had ended when the view was published. Then the namespace, read now, has the change.
    /// - The view has it. Then nobody gets a capability.
    /// - It began after the view. It waits until the store refuses older capabilities in its session of that time, or until that session has ended.
    ///   The capability names the session of the view. If that session was fenced, the store refuses the capability by its epoch. If it is an earlier
    ///   session, the store refuses the capability by its session.
    ///
    /// If the view were taken after the namespace, it could name a newer session of a store. No fence would have reached that
    /// session, and the store could show an old version.
    fn open_read_by(
        &self,
        view: &ClusterView,
        open_request: &OpenRequest,
        path: &NsPath,
        partial: bool,
        unit: Option<(u8, ObjectId)>,
    ) -> Result<Decided, OpeningError> {
        let now = self.world.now();
        let found = self.names.read(|read| find(read, open_request, path, partial, unit))?;
        if let Some(units) = &found.units {
            return Ok(Decided { to: self.redirect_striped_reader(&found, units, open_request)?, at: None });
        }
        let replica = ReplicaId::first(found.content.object);
        if view.fences.guards(replica) {
            return Err(OpeningError::wait("another server is just taking it over"));
        }
        let (group, ino, epoch) = (found.content.group, found.inode.ino, u64::from(found.epoch));
        let (mode, mtime) = (found.inode.access.mode, found.inode.mtime);
        let (principal, path) = (open_request.actor.principal, PathHash::of(&open_request.path));
        let permitted = |rights| Permitted {
            principal,
            path,
            replica,
            ino,
            mode,
            mtime,
            group,
            epoch,
            rights,
            allowed: Rights::READ,
            may_reach: None,
        };
        if let FileState::Open(_) | FileState::Updating(_) = found.content.state {
            let primary = found.primary().ok_or(OpeningError::Lost)?;
            if primary.boot_generation == DISTRUSTED {
                return Err(OpeningError::BeingWritten(OF_A_BACKUP.into()));
            }
            if found.writer.is_some_and(|writer| self.without_primary.has(&writer.token())) {
                return Err(OpeningError::wait("its writer must come back first, or its grace period must end"));
            }
            if !view.is_up(&*self.world, primary.store) {
                return Err(OpeningError::wait("the server that it is written to has just gone away"));
            }
            let to = self.permit_by(view, now, primary.store, permitted(GrantRights::Follow))?;
            let is_new = matches!(found.content.state, FileState::Open(_));
            let to = Redirect { unfinished: is_new.then_some(Unfinished::AtPrimary), ..to };
            return Ok(Decided { to, at: Some((replica, primary.store)) });
        }
        let is_absent = |store: &StoreId| {
            open_request.absent_replicas.contains(&AbsentReplica { object: replica.object, epoch, store: *store })
        };
        let (lost, holders): (Vec<_>, Vec<_>) = found.holders.iter().copied().partition(is_absent);
        let mut nearest = self.nearest(view, now, &holders, open_request);
        if nearest.as_ref().is_none_or(|nearest| nearest.was_tried && !open_request.wants_another) {
            let damaged = self.damaged_replicas(&found, |store| !is_absent(store));
            let untried = self.nearest(view, now, &damaged, open_request).filter(|nearest| !nearest.was_tried);
            nearest = untried.or(nearest);
        }
        let store = match nearest {
            Some(Nearest { was_tried: true, .. }) if open_request.all_refused => {
                return Err(OpeningError::AllRefused(view.shown(&found.holders)));
            }
            Some(Nearest { store, .. }) => store,
            None if holders.is_empty() && !lost.is_empty() => {
                return Err(OpeningError::AbsentReplica(view.shown(&lost)));
            }
            None => return Err(Self::no_copy(view, now, &holders)),
        };
        let epoch = Epoch(found.epoch);
        let rights = match (found.content.state, found.content.sums) {
            (FileState::Complete, Some(sums)) => {
                let whole = ObjectDigest { len: found.content.len, crc32c: sums.crc32c, adler32: sums.adler32 };
                GrantRights::Read { epoch, whole }
            }
            // This includes a file that was being changed in place: it has no checksums until it is read through.
            _ => GrantRights::Kept { epoch },
        };
        let to = self.permit_by(view, now, store, permitted(rights))?;
        Ok(Decided { to, at: Some((replica, store)) })
    }
}

impl OpenService {
    /// The addresses of disk servers that can show a file, for clients of the request's protocol, the nearest first. For a file being written, the
    /// primary's address. Empty for a directory.
    ///
    /// # Errors
    /// If the file does not exist, or none of its stores is online.
    pub(crate) fn locate(&self, open_request: &OpenRequest, path: &NsPath) -> Result<Vec<ClientAddress>, OpeningError> {
        let found = match self.names.read(|read| find(read, open_request, path, true, None)) {
            Err(NsError::IsDirectory(_)) => return Ok(Vec::new()),
            found => found?,
        };
        let striped = found.units.as_ref().map(|units| all_of(&units.stores));
        let (view, now) = (self.view.get(), self.world.now());
        let at = Self::location_of(&view, open_request);
        let holders = match (found.content.state, found.primary()) {
            (FileState::Open(_) | FileState::Updating(_), Some(primary)) if striped.is_none() => vec![primary.store],
            _ => striped.unwrap_or(found.holders),
        };
        let ranked = rank_readers(view.servers.map(), &holders, at.as_ref(), self.world.random());
        let (mut found, mut others) = (Vec::new(), Vec::new());
        for store in ranked.into_iter().flatten().filter(|store| view.can_show(&*self.world, now, *store)) {
            let way = view.node_of(store).and_then(|node| view.servers.way_to(node));
            for address in way.into_iter().flat_map(|(addresses, _)| addresses) {
                let list = if address.protocol == open_request.protocol { &mut found } else { &mut others };
                if !list.contains(address) {
                    list.push(address.clone());
                }
            }
        }
        match (found.is_empty(), others.is_empty()) {
            (false, _) => Ok(found),
            (true, false) => Err(no_address(open_request.protocol, &others)),
            (true, true) => Err(Self::no_copy(&view, now, &holders)),
        }
    }

    /// The nearest of `stores` to which a client can be sent. Prefers stores that the client has not tried. The client may be wrong, or its network
    /// may work again by now, so tried stores come last. But a client that reads well where it is gets no store that is worse or farther away.
    pub(crate) fn nearest(
        &self,
        view: &ClusterView,
        now: Time,
        stores: &[StoreId],
        open_request: &OpenRequest,
    ) -> Option<Nearest> {
        let tried = view.servers.stores_at(&open_request.tried);
        let at = Self::location_of(view, open_request);
        let mut ranked = rank_readers(view.servers.map(), stores, at.as_ref(), self.world.random());
        ranked.iter_mut().for_each(|equals| equals.retain(|store| view.can_show(&*self.world, now, *store)));
        ranked.retain(|equals| !equals.is_empty());
        if open_request.wants_another {
            ranked.truncate(1);
        }
        let usable = ranked.concat();
        let untried = usable.iter().find(|store| !tried.contains(store));
        let store = *untried.or(usable.first())?;
        Some(Nearest { store, was_tried: untried.is_none() })
    }

    /// Stores with a damaged replica that does not count any more. A store shows it only if it has the checksum of the whole file on record, so the
    /// pages that are intact are right.
    fn damaged_replicas(&self, found: &Found, fits: impl Fn(&StoreId) -> bool) -> Vec<StoreId> {
        if found.content.state != FileState::Complete || found.content.sums.is_none() {
            return Vec::new();
        }
        let is_damaged = |store: &&StoreId| self.known_damage.has(**store, found.content.object) && fits(store);
        found.missing.iter().filter(is_damaged).copied().collect()
    }

    /// Why none of `holders` can show its replica. If one of them may return soon, the client waits for it.
    pub(crate) fn no_copy(view: &ClusterView, now: Time, holders: &[StoreId]) -> OpeningError {
        let shown = view.shown(holders);
        if Self::may_return(view, now, holders, PATIENCE_MAX) {
            OpeningError::wait(format!("it is on {shown}; those that are not lost may be back soon"))
        } else {
            OpeningError::NoCopy(shown)
        }
    }

    /// Why a file cannot be changed whose only replicas online are damaged.
    pub(crate) fn only_damaged(view: &ClusterView, now: Time, damaged: &[StoreId], away: &[StoreId]) -> OpeningError {
        let may_return = Self::may_return(view, now, away, PATIENCE_MAX);
        let error = OpeningError::OnlyDamaged { damaged: view.shown(damaged), away: view.shown(away) };
        if may_return { OpeningError::wait(error.to_string()) } else { error }
    }

    /// Whether one of these stores may return soon. Stores that went away count for at most `patience`.
    pub(crate) fn may_return(view: &ClusterView, now: Time, stores: &[StoreId], patience: Duration) -> bool {
        let patience = view.grace.min(patience);
        stores.iter().filter(|store| !view.servers.is_removed_as_lost(**store)).any(|store| {
            // A node that is online without this store may stay without it.
            let may = |node| {
                let is_there = view.sessions.session(now, node).is_some();
                (view.servers.is_served(node, *store) || !is_there) && view.sessions.may_return(now, node, patience)
            };
            view.node_of(*store).is_some_and(may)
        })
    }
}

fn replaced(path: &NsPath) -> NsError {
    NsError::Stale { what: path.to_string(), why: "it has been replaced meanwhile" }
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
                return Err(replaced(path));
            }
            let (_, mut units) = namespace::units_of(read, of)?;
            if usize::from(number) >= units.len() {
                return Err(NsError::NotFound(format!("stripe unit {number} of {path}"), "unit"));
            }
            units.swap_remove(usize::from(number))
        }
    };
    let content = *inode.content().ok_or_else(|| NsError::IsDirectory(path.to_string()))?;
    if open_request.same_object.is_some_and(|object| object != content.object) {
        return Err(replaced(path));
    }
    let record = namespace::object_record(read, content.group, content.object)?;
    let epoch = record.map_or(0, |record| record.epoch);
    let units = match content.group {
        GroupId::STRIPED => Some(FoundUnits::of(read, &content)?),
        _ => None,
    };
    let mut found = Found { inode, content, epoch, holders: Vec::new(), missing: Vec::new(), writer: None, units };
    match content.state {
        FileState::Open(by) | FileState::Updating(by) => {
            found.writer = namespace::writer_of(read, by, content.object)?;
        }
        FileState::Complete | FileState::Interrupted(_) => {
            found.holders = namespace::holders(read, content.group, content.object)?;
            found.missing = namespace::missing_of(read, content.group, content.object)?;
        }
    }
    Ok(found)
}
