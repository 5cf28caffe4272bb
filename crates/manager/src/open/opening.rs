//! Opens for writing. A new object gets its stores. A returning client gets a store that has all acknowledged bytes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cluster::placement::{PlacementError, StoreState, choose_other_stores};
use cluster::replication::Epoch;
use cluster::server::{Grant, GrantRights};
use cluster::{Reopening, Time, reopening};
use namespace::{
    AccessKind, Content, Durability, FileState, IS_ENDING, NsError, OpenKind, OpenWrite, OpenedWrite, Resume, Sharing,
    WriteMode, WriterKind, WriterRecord, WriterToken,
};
use types::capability::{Capability, PathHash, Rights};
use types::{
    BootId, GroupId, InSyncReplica, Ino, Location, ObjectId, Placement, Policy, PrincipalId, ReplicaId, RequestNumber,
    StoreId, Timestamp,
};

use super::OpenService;
use super::open_request::{OpenRequest, OpeningError, Redirect, no_address};
use super::sharing::Terms;
use super::writers_room::no_memory;
use crate::coordinator::{ClusterView, Ended};
use node::{Layout, To};

/// A cluster tells by boot generations, not by boots, which bytes a node may have forgotten.
pub(crate) const ANY_BOOT: BootId = BootId(1);
/// How long a reader that follows a writer may use its server before it asks here again. The open write may have ended meanwhile.
pub(crate) const FOLLOW_LIFE: Duration = Duration::from_secs(20);

/// How long new files wait for stores whose lease has ended. Their writers may have an alternative, and must learn of the problem soon.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many stores that are not online an error names.
const AWAY_NAMED_MAX: usize = 8;
/// How many draws of stores to try for a new file before taking the last one.
const DRAWS: usize = 32;

/// Called with the result of an open.
pub(crate) type Answer = Box<dyn FnOnce(Result<Redirect, OpeningError>) + Send>;

/// An open for writing in progress.
pub(crate) struct Opening {
    pub(crate) open_request: OpenRequest,
    pub(crate) op: OpenWrite,
    pub(crate) answer: Answer,
}

impl Opening {
    pub(crate) fn refuse(self, error: impl Into<OpeningError>) {
        (self.answer)(Err(error.into()));
    }
}

impl OpenService {
    /// Opens for writing. Calls `answer` once, perhaps in another thread; it must not wait.
    pub(crate) fn open_write(
        self: &Arc<Self>,
        open_request: OpenRequest,
        op: OpenWrite,
        answer: impl FnOnce(Result<Redirect, OpeningError>) + Send + 'static,
    ) {
        let received_before = op.restarted.then(|| self.names.namespace().ids().upcoming_object());
        let op = OpenWrite { boot: ANY_BOOT, received_before, ..op };
        let opening = Opening { open_request, op, answer: Box::new(answer) };
        // This comes before an existing open write moves to another store.
        let what = || opening.op.path.to_string();
        if let Err(denied) = namespace::permit_client(&opening.open_request.actor, &opening.op.client, &what) {
            return opening.refuse(denied);
        }
        // Nothing is opened for a client that could be sent nowhere.
        let protocol = opening.open_request.protocol;
        if let Err(addresses) = self.view.get().servers.serve(protocol) {
            return opening.refuse(no_address(protocol, &addresses));
        }
        if opening.op.how != WriteMode::Update {
            return self.open_new(opening);
        }
        let own = self.names.read(|read| namespace::find_writer(read, &opening.op.client, &opening.op.path));
        match own {
            Ok(mut own) => {
                match own.extract_if(.., |one| opening.op.only.is_none_or(|only| one.token() == only)).last() {
                    Some(writer) if writer.placement.group == GroupId::STRIPED => self.reopen_striped(opening),
                    Some(writer) => self.reopen(opening, &writer),
                    None => self.update(opening),
                }
            }
            Err(error) => opening.refuse(error),
        }
    }

    /// The client's location, as far as it is known.
    pub(crate) fn location_of(view: &ClusterView, open_request: &OpenRequest) -> Option<Location> {
        let said = open_request.location.clone();
        // A disk server knows its own host better than a range of addresses does.
        let said = said.or_else(|| view.servers.location_of(open_request.from));
        said.or_else(|| view.client_locations.location_of(open_request.from))
    }

    fn open_new(self: &Arc<Self>, opening: Opening) {
        let Opening { open_request, op, .. } = &opening;
        let policy = self.names.read(|read| namespace::policy_for_new(read, &open_request.actor, op));
        let policy = match policy {
            Ok(policy) => policy.unwrap_or_default(),
            Err(error) => return opening.refuse(error),
        };
        if let Some(stripe) = policy.layout().stripe() {
            if open_request.at_once {
                return opening
                    .refuse(OpeningError::Unsupported("its directory has striped files, which are opened one by one"));
            }
            return self.open_new_striped(opening, &policy, stripe);
        }
        let stores = match self.draw(open_request, &policy).map(|mut groups| groups.pop()) {
            Ok(Some(stores)) => stores,
            Ok(None) => return opening.refuse(OpeningError::wait("no stores were chosen for it")),
            Err(error) => return opening.refuse(error),
        };
        let sync = usize::from(policy.layout().sync());
        let this = Arc::clone(self);
        self.coordinator.with_group(stores.clone(), move |group| match group {
            Ok(group) => this.open_placed(opening, group, &stores, sync),
            Err(error) => opening.refuse(not_made(error)),
        });
    }

    /// Draws the stores of a new file, by group. Where possible it takes online stores that the client has not failed to reach. It skips stores whose
    /// server has no memory for another file.
    pub(crate) fn draw(&self, open_request: &OpenRequest, policy: &Policy) -> Result<Vec<Vec<StoreId>>, OpeningError> {
        let view = self.view.get();
        let at = Self::location_of(&view, open_request);
        let (map, full) = (view.servers.map(), &open_request.full_stores);
        let preferred = policy.clone().with_near_client(false);
        let anywhere = preferred.clone().with_prefer(None);
        let mut second_best = None;
        for draw in 0..DRAWS {
            // If the client cannot reach the preferred stores, drop its preferences one after the other.
            let policy = match second_best {
                Some(_) if draw >= DRAWS / 4 * 3 => &anywhere,
                Some(_) if draw >= DRAWS / 2 => &preferred,
                _ => policy,
            };
            let bytes = open_request.announced.unwrap_or(0);
            let placed = choose_other_stores(map, policy, at.as_ref(), bytes, full, self.world.random());
            let groups = match placed {
                Ok(placed) => placed.groups,
                Err(error) if self.may_come_back(&view) => {
                    let why = format!("{error}; some may be back in seconds");
                    return Err(OpeningError::Wait { seconds: 2, why });
                }
                Err(error) => return Err(not_placed(&view, error)),
            };
            if !self.rooms.have_room(&view, groups.iter().flatten(), open_request.announced) {
                continue;
            }
            let tried = view.servers.stores_at(&open_request.tried);
            let is_good = |store: &StoreId| !tried.contains(store) && view.is_up(&*self.world, *store);
            if groups.iter().filter_map(|stores| stores.first()).all(is_good) {
                return Ok(groups);
            }
            second_best.get_or_insert(groups);
        }
        second_best.ok_or_else(no_memory)
    }

    /// Whether unavailable stores may soon be available again. That includes all stores at once, if this manager was stopped for longer than a lease.
    fn may_come_back(&self, view: &ClusterView) -> bool {
        let now = self.world.now();
        let absent = not_online(view);
        view.sessions.is_new(now) || Self::may_return(view, now, &absent, PATIENCE)
    }

    fn open_placed(self: &Arc<Self>, mut opening: Opening, group: GroupId, stores: &[StoreId], sync: usize) {
        let in_sync = {
            let view = self.view.get();
            let in_sync = view.in_sync(self.world.now(), stores, sync);
            if in_sync.len() < sync.min(stores.len()) {
                return opening.refuse(OpeningError::wait("the stores that were chosen for it have just gone"));
            }
            self.rooms.begin_writing(&view, in_sync.iter().map(|one| &one.store), opening.open_request.announced);
            in_sync
        };
        opening.op.placement = Placement { group, in_sync };
        // A new file that is lost in a power failure simply does not exist, and its client learns that. A replacement must be durable: otherwise the
        // client would find the old file and take it for its own.
        let is_new = opening.op.how == WriteMode::NewOnly && !opening.op.restarted;
        let durability = if is_new { Durability::Written } else { Durability::Synced };
        self.open(opening, durability, None);
    }

    /// A client returns to its open write.
    pub(crate) fn reopen(self: &Arc<Self>, mut opening: Opening, writer: &WriterRecord) {
        let (replica, in_sync) = (writer.replica(), writer.placement.in_sync.clone());
        let group = writer.placement.group;
        let decided = {
            let (view, now) = (self.view.get(), self.world.now());
            let tried = view.servers.stores_at(&opening.open_request.tried);
            (!view.fences.guards(replica)).then(|| reopening(&in_sync, &tried, |store| view.standing(now, store)))
        };
        // No other store takes it over for a client that would be refused then.
        if writer.is_ending && !opening.op.ends && decided != Some(Reopening::Lost) {
            return opening.refuse(OpeningError::wait(IS_ENDING));
        }
        match decided {
            None => opening.refuse(OpeningError::wait("another server is just taking it over")),
            Some(Reopening::Same(_)) => {
                let came_with = opening.open_request.came_with;
                opening.op.sharing = opening.op.sharing.and_then(|_| self.sharing(writer, came_with));
                self.open_for_update(opening, group, in_sync, None);
            }
            Some(Reopening::TakeOver(to)) => {
                let this = Arc::clone(self);
                self.take_over(writer, to, move |taken| match taken {
                    Ok((now, ended)) => {
                        // A client that comes for this open write alone accepts its present epoch.
                        opening.op.only = opening.op.only.map(|_| now);
                        opening.op.sharing = opening.op.sharing.map(|_| Sharing::Raises(now.epoch));
                        this.open_for_update(opening, group, vec![to], Some(ended));
                    }
                    Err(error) => opening.refuse(error),
                });
            }
            Some(Reopening::Wait) => {
                let view = self.view.get();
                let shown: Vec<String> = in_sync.iter().map(|one| view.servers.shown(one.store)).collect();
                let why = format!("the in-sync stores are away: {}", shown.join(", "));
                opening.refuse(OpeningError::Wait { seconds: 3, why });
            }
            Some(Reopening::Lost) => opening.refuse(OpeningError::Lost),
        }
    }

    /// Opens a file for a change in place, or to continue an interrupted one. Holders that are not in-sync replicas must stop showing it first.
    fn update(self: &Arc<Self>, mut opening: Opening) {
        let (actor, path) = (&opening.open_request.actor, &opening.op.path);
        let found = self.names.read(|read| {
            let inode = namespace::stat(read, actor, path)?;
            let Some(content) = inode.content().copied() else {
                return Err(NsError::IsDirectory(path.to_string()));
            };
            // The namespace requires it again. But until then stores are fenced, and a store may take the file over.
            if !matches!(opening.op.resume, Some(Resume::Upload(_))) {
                namespace::permit(actor, &inode.access, AccessKind::Write, &|| path.to_string())?;
            }
            Ok((content, inode.access.mode))
        });
        let (content, mode) = match found {
            Ok(found) => found,
            Err(error) => return opening.refuse(error),
        };
        let is_empty = content.group == GroupId::STRIPED && content.state == FileState::Complete && content.len == 0;
        if is_empty && opening.op.resume.is_none() {
            // The file is empty. Clients make a file, close it, and open it again to write it.
            (opening.op.how, opening.op.mode) = (WriteMode::Replace, mode);
            opening.op.empty = Some(content.object);
            return self.open_new(opening);
        }
        let came_for = opening.open_request.came_with.map(|(object, _)| object);
        if opening.op.sharing.is_some() && came_for.is_some_and(|object| object != content.object) {
            let why = "the open write of this client has ended, and another file has the name now; open the file again";
            let what = opening.op.path.to_string();
            return opening.refuse(NsError::Stale { what, why });
        }
        if let (FileState::Updating(by), Some(_)) = (content.state, opening.op.sharing) {
            let writer = self.names.read(|read| namespace::writer_of(read, by, content.object));
            let is_it = |writer: &WriterRecord| {
                writer.client.principal == opening.op.client.principal
                    && opening.op.only.is_none_or(|only| (only.key, only.object) == (writer.key, writer.object))
            };
            match writer.map(|writer| writer.filter(is_it)) {
                // It joins the clients that write it. They may have lost its primary.
                Ok(Some(writer)) => {
                    // Another client may have raised its epoch since this one has asked.
                    opening.op.only = opening.op.only.map(|_| writer.token());
                    return self.reopen(opening, &writer);
                }
                Ok(None) => {}
                Err(error) => return opening.refuse(error),
            }
        }
        self.update_content(opening, content);
    }

    /// The same, for an object that was found.
    pub(crate) fn update_content(self: &Arc<Self>, opening: Opening, content: Content) {
        let found = self.names.read(|read| {
            let record = namespace::object_record(read, content.group, content.object)?;
            let holders = namespace::holders(read, content.group, content.object)?;
            let missing = namespace::missing_of(read, content.group, content.object)?;
            Ok::<_, NsError>((holders, missing, record.map_or(0, |record| record.epoch)))
        });
        let (holders, missing, epoch) = match found {
            Ok(found) => found,
            Err(error) => return opening.refuse(error),
        };
        let is_open = matches!(content.state, FileState::Open(_) | FileState::Updating(_));
        let is_striped = content.group == GroupId::STRIPED;
        if is_open || is_striped || opening.op.resume.is_none() && content.state != FileState::Complete {
            // Another client writes it, nobody writes it any more, or it cannot be changed. The namespace gives the error.
            return self.open_for_update(opening, content.group, Vec::new(), None);
        }
        let replica = ReplicaId::first(content.object);
        let (in_sync, are_intact, is_guarded, not_in_sync, no_copy) = {
            let (view, now) = (self.view.get(), self.world.now());
            // A change kept only by stores that are removed as lost would vanish with them. The replicas of stores that are away would be
            // stale by then.
            let lasting = view.lasting(&holders);
            // Nor does a damaged replica take part while there is an intact one: the bytes that it lacks would be nowhere.
            let (intact, damaged) = self.known_damage.divide(&lasting, content.object);
            let in_sync = view.in_sync(now, if intact.is_empty() { &damaged } else { &intact }, usize::MAX);
            let no_copy = in_sync.is_empty().then(|| match damaged.iter().any(|store| view.is_online(now, *store)) {
                true => Self::only_damaged(&view, now, &damaged, &intact),
                false => Self::no_copy(&view, now, &lasting),
            });
            (
                in_sync,
                !intact.is_empty(),
                view.fences.guards(replica),
                self.may_still_show(&view, content.group, missing),
                no_copy,
            )
        };
        if is_guarded {
            return opening.refuse(OpeningError::wait("another server is just taking it over"));
        }
        if let Some(error) = no_copy {
            return opening.refuse(error);
        }
        {
            let (view, stores) = (self.view.get(), || in_sync.iter().map(|one| &one.store));
            if !self.rooms.have_room(&view, stores(), None) {
                return opening.refuse(no_memory());
            }
            self.rooms.begin_writing(&view, stores(), None);
        }
        let mut others: BTreeSet<StoreId> = holders.into_iter().chain(not_in_sync).collect();
        others.retain(|store| in_sync.iter().all(|one| one.store != *store));
        let others: Vec<StoreId> = others.into_iter().collect();
        let this = Arc::clone(self);
        self.coordinator.once_fenced(&others, replica, Epoch(epoch + 1), move |ended| {
            let Some(ended) = ended else { return opening.refuse(unknown_server()) };
            // While a store that is away was waited for, one that takes part may have reported its replica as damaged.
            let stores: Vec<StoreId> = in_sync.iter().map(|one| one.store).collect();
            let (_, damaged) = this.known_damage.divide(&stores, content.object);
            if are_intact && !damaged.is_empty() {
                return opening.refuse(OpeningError::wait("one of its replicas has just been found damaged"));
            }
            this.open_for_update(opening, content.group, in_sync, Some(ended));
        });
    }

    fn open_for_update(
        self: &Arc<Self>,
        mut opening: Opening,
        group: GroupId,
        in_sync: Vec<InSyncReplica>,
        ended: Option<Ended>,
    ) {
        opening.op.placement = Placement { group, in_sync };
        // No epoch may be used twice.
        self.open(opening, Durability::Synced, ended);
    }

    /// Opens it in the namespace, and sends its client to the primary, or to a server that combines the units of a striped file.
    pub(super) fn open(self: &Arc<Self>, opening: Opening, durability: Durability, ended: Option<Ended>) {
        let this = Arc::clone(self);
        let Opening { open_request, op, answer } = opening;
        // A client that repeats its request must not learn that the file exists.
        let takes_back = op.how != WriteMode::Update && !op.restarted;
        let (actor, principal, mode) = (open_request.actor.clone(), op.client.principal, op.mode_bits());
        let (sharing, goes_on, unit_of) = (op.sharing, op.resume.is_some(), op.unit_of);
        let number = open_request.number;
        let by = (self.world.wall(), &actor, number);
        let claim = claim_of(&op);
        self.names.change(by, durability, op, move |result| {
            let opened = match result {
                Ok(opened) => opened,
                Err(error) => return this.refused(error, claim, answer),
            };
            let rights = match this.rights_to_write(&opened, &open_request, unit_of) {
                Ok(rights) => rights,
                Err(error) => return answer(Err(error.into())),
            };
            // A striped file has no replicas of its own.
            if opened.group == GroupId::STRIPED {
                return match this.redirect_striped_writer(&opened, goes_on, (principal, mode, rights), &open_request) {
                    Err(error @ OpeningError::NoAddress { .. }) if takes_back => {
                        this.take_back(opened.writer, number, move || answer(Err(error)));
                    }
                    redirected => answer(redirected),
                };
            }
            // The path may name another object by now.
            let of_it = ended.as_ref().filter(|ended| ended.replica == opened.replica);
            let fenced = of_it.map(|ended| ended.stores.clone()).unwrap_or_default();
            drop(ended);
            let not_fenced = match this.holders_left_out(&opened, &fenced) {
                Ok(not_fenced) => not_fenced,
                Err(error) => return answer(Err(error.into())),
            };
            // From here on only the primary can show the file: nobody gets a capability for another store.
            let epoch = Epoch(opened.writer.epoch);
            let that = Arc::clone(&this);
            this.coordinator.once_fenced(&not_fenced, opened.replica, epoch, move |ended| {
                let fenced = ended.map(drop).ok_or_else(unknown_server);
                match fenced
                    .and_then(|()| that.redirect_writer(&opened, (principal, mode, sharing, rights), &open_request))
                {
                    // A client that is refused does not come back to what it has opened. One that is to wait may find its upload again.
                    Err(error)
                        if takes_back
                            && (opened.kind == OpenKind::New
                                || is_upload(opened.kind) && !matches!(error, OpeningError::Wait { .. })) =>
                    {
                        that.take_back(opened.writer, number, move || answer(Err(error)));
                    }
                    redirected => answer(redirected),
                }
            });
        });
    }

    /// The namespace has refused an open.
    pub(super) fn refused(self: &Arc<Self>, error: NsError, claim: Option<(PrincipalId, bool)>, answer: Answer) {
        match (error, claim) {
            (error @ NsError::Busy { .. }, Some(claim)) => self.claim(error, claim, answer),
            (error, _) => answer(Err(not_made(error))),
        }
    }

    /// Undoes a new name whose client is sent nowhere.
    pub(super) fn take_back(
        &self,
        writer: WriterToken,
        number: Option<RequestNumber>,
        then: impl FnOnce() + Send + 'static,
    ) {
        self.names.change_as_manager(
            self.world.wall(),
            Durability::Written,
            namespace::Abandon { writer, request: number },
            move |result| {
                if let Err(error) = result {
                    tracing::warn!(%error, "an unused name may stay for a grace period");
                }
                then();
            },
        );
    }

    /// Stores that can still show a file that is changed in place. They are neither in-sync replicas nor fenced, because they got their replica after
    /// the first check. Stores that have left the group since then count too.
    fn holders_left_out(&self, opened: &OpenedWrite, fenced: &[StoreId]) -> Result<Vec<StoreId>, NsError> {
        if !matches!(opened.kind, OpenKind::Update | OpenKind::Resumed(_)) {
            return Ok(Vec::new());
        }
        let (mut holders, missing) = self.names.read(|read| {
            let holders = namespace::holders(read, opened.group, opened.object)?;
            Ok::<_, NsError>((holders, namespace::missing_of(read, opened.group, opened.object)?))
        })?;
        holders.extend(self.may_still_show(&self.view.get(), opened.group, missing));
        holders.sort_unstable();
        holders.dedup();
        holders.retain(|store| !fenced.contains(store) && opened.in_sync.iter().all(|one| one.store != *store));
        Ok(holders)
    }

    /// What the client of this open write may do. A right to write includes none to read.
    fn rights_to_write(
        &self,
        opened: &OpenedWrite,
        open_request: &OpenRequest,
        unit_of: Option<WriterToken>,
    ) -> Result<Rights, NsError> {
        let OpenRequest { actor, path, .. } = open_request;
        match self.names.read(|read| namespace::permit_reading_back(read, actor, path, opened, unit_of)) {
            Ok(()) => Ok(Rights::READ_WRITE),
            Err(NsError::Denied { .. } | NsError::Stale { .. }) => Ok(Rights::WRITE),
            Err(error) => Err(error),
        }
    }

    fn redirect_writer(
        &self,
        opened: &OpenedWrite,
        (principal, mode, sharing, allowed): (PrincipalId, u16, Option<Sharing>, Rights),
        open_request: &OpenRequest,
    ) -> Result<Redirect, OpeningError> {
        let primary = opened.in_sync.first().ok_or(OpeningError::Lost)?;
        // The stores already have data of this file, and must not start an empty replica.
        let may_make = match opened.kind {
            OpenKind::New | OpenKind::Upload(_) => true,
            OpenKind::Update => false,
            OpenKind::Resumed(_) => {
                let token = &opened.writer;
                let record = self.names.read(|read| namespace::writer_of(read, token.key, token.object))?;
                record.is_some_and(|record| record.kind != WriterKind::Update)
            }
        };
        let rights = GrantRights::Write { writer: opened.writer, in_sync: opened.in_sync.clone(), may_make };
        let (epoch, mtime, path) = (u64::from(opened.writer.epoch), open_request.now, PathHash::of(&open_request.path));
        let (replica, ino, group) = (opened.replica, opened.ino, opened.group);
        let may_reach = opened.may_reach;
        let to = Permitted { principal, path, replica, ino, mode, mtime, group, epoch, rights, allowed, may_reach };
        let (view, now) = (self.view.get(), self.world.now());
        if !view.is_up(&*self.world, primary.store) {
            return Err(OpeningError::wait(format!("{} has just gone away", view.servers.shown(primary.store))));
        }
        if matches!(opened.kind, OpenKind::Update | OpenKind::Resumed(_)) {
            let session = view.node_of(primary.store).and_then(|node| view.sessions.session(now, node));
            let terms = session.map(|session| Terms { epoch: opened.writer.epoch, session });
            let keeps = opened.kind != OpenKind::Update && matches!(sharing, Some(Sharing::Keeps(_)));
            if !self.primaries.begin(opened.object, terms, keeps) {
                return Err(OpeningError::wait("its primary has just started again"));
            }
        }
        self.permit_by(&view, now, primary.store, to)?.followed_by(open_request)
    }

    /// Makes the capability.
    pub(crate) fn permit(&self, now: Time, store: StoreId, to: Permitted) -> Result<Redirect, OpeningError> {
        let view = self.view.get();
        if !view.is_up(&*self.world, store) {
            return Err(OpeningError::wait(format!("{} has just gone away", view.servers.shown(store))));
        }
        self.permit_by(&view, now, store, to)
    }

    /// Stores that do not count as holders of an object and may still show it: those that have left its group, where a reader may go on reading until
    /// the replica is deleted, and those in `missing`, whose replica may be there and damaged.
    fn may_still_show(&self, view: &ClusterView, group: GroupId, missing: Vec<StoreId>) -> Vec<StoreId> {
        let mut stores = self.coordinator.groups().have_left(&view.servers, group);
        stores.extend(missing.into_iter().filter(|store| view.servers.has_store(*store)));
        stores
    }

    /// The same, by a view that the caller took before it read the namespace. The capability names that view's session.
    pub(crate) fn permit_by(
        &self,
        view: &ClusterView,
        now: Time,
        store: StoreId,
        to: Permitted,
    ) -> Result<Redirect, OpeningError> {
        let away = || OpeningError::wait(format!("{} is away", view.servers.shown(store)));
        let session = view.node_of(store).and_then(|node| view.sessions.session(now, node)).ok_or_else(away)?;
        let Permitted { principal, path, replica, ino, mode, mtime, group, epoch, rights, allowed, may_reach } = to;
        let lifetime = match rights {
            GrantRights::Follow => self.capability_lifetime.min(FOLLOW_LIFE),
            _ => self.capability_lifetime,
        };
        let to = To::Replica(Grant { store, session, group, rights });
        let layout = Layout { to, shard: replica.index, ino, mode, mtime, may_reach };
        let until = view.clock.time(now).plus(lifetime);
        seal(
            view,
            now,
            store,
            Sealed { principal, path, object: replica.object, rights: allowed, epoch, layout, until },
        )
    }
}

/// The contents of a capability.
pub(crate) struct Sealed {
    /// The identity that it is given to.
    pub(crate) principal: PrincipalId,
    pub(crate) path: PathHash,
    pub(crate) object: ObjectId,
    pub(crate) rights: Rights,
    pub(crate) epoch: u64,
    pub(crate) layout: Layout,
    pub(crate) until: Timestamp,
}

/// Signs a capability for the server of `store`, and adds the server's address.
pub(crate) fn seal(view: &ClusterView, now: Time, store: StoreId, what: Sealed) -> Result<Redirect, OpeningError> {
    let away = || OpeningError::wait(format!("{} is away", view.servers.shown(store)));
    let node = view.node_of(store).ok_or_else(away)?;
    let session = view.sessions.session(now, node).ok_or_else(away)?;
    let (addresses, key) = view.servers.way_to(node).ok_or_else(away)?;
    let Sealed { principal, path, object, rights, epoch, layout, until } = what;
    let layout = layout.encode();
    let capability =
        Capability { server: node, object, rights, principal, path, epoch, session, expires: until, layout };
    let capability = capability.seal(key).map_err(|error| {
        tracing::error!(%error, "a capability cannot be made");
        OpeningError::Unsupported("its stores do not fit into a redirect")
    })?;
    Ok(Redirect {
        node,
        addresses: addresses.to_vec(),
        capability,
        object,
        striped: None,
        units: Vec::new(),
        unfinished: None,
    })
}

fn is_upload(kind: OpenKind) -> bool {
    matches!(kind, OpenKind::Upload(_))
}

/// The principal of an open, and whether it replaces a file or continues one, for [`OpenService::claim`]. `None` for opens that go back to one open write.
fn claim_of(op: &OpenWrite) -> Option<(PrincipalId, bool)> {
    let takes_over = op.how != WriteMode::Update || op.resume.is_some();
    (op.only.is_none() && op.unit_of.is_none()).then_some((op.client.principal, takes_over))
}

/// The assumptions have changed meanwhile: the next request is decided afresh.
pub(crate) fn not_made(error: NsError) -> OpeningError {
    match error {
        NsError::Stale { why, .. } => OpeningError::wait(why),
        error => error.into(),
    }
}

/// A client's rights, before they are signed.
pub(crate) struct Permitted {
    /// The identity that they are given to.
    pub(crate) principal: PrincipalId,
    /// The path that the client must show with them.
    pub(crate) path: PathHash,
    pub(crate) replica: ReplicaId,
    pub(crate) ino: Ino,
    pub(crate) mode: u16,
    pub(crate) mtime: Timestamp,
    pub(crate) group: GroupId,
    pub(crate) epoch: u64,
    pub(crate) rights: GrantRights,
    /// What the client may do with them.
    pub(crate) allowed: Rights,
    /// For an open write: the length that it may reach before it must reserve more.
    pub(crate) may_reach: Option<u64>,
}

pub(super) fn unknown_server() -> OpeningError {
    OpeningError::Wait { seconds: 3, why: "one of its stores has not been heard of since the manager started".into() }
}

/// Stores that are not online and not removed.
fn not_online(view: &ClusterView) -> Vec<StoreId> {
    let all = view.servers.map().stores().iter();
    all.filter(|info| matches!(info.state, StoreState::Suspect | StoreState::Offline)).map(|info| info.store).collect()
}

/// Why no stores were chosen. Stores that are not online may be the reason.
fn not_placed(view: &ClusterView, why: PlacementError) -> OpeningError {
    let mut away = not_online(view);
    if away.is_empty() {
        return why.into();
    }
    let more = away.len().saturating_sub(AWAY_NAMED_MAX);
    away.truncate(AWAY_NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    OpeningError::PlacementWithout { why, away: format!("{}{more}", view.shown(&away)) }
}
