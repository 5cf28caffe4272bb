//! Striped files. Their units are placed, opened and ended like all objects. The file itself is opened at a disk server that combines the units. That
//! server asks here for each unit, as any client asks for a file.

use std::sync::Arc;

use namespace::{
    Content, DISTRUSTED, Durability, FileState, Inode, NewStripe, NsError, OpenWrite, OpenedWrite, Read, Resume,
    WriteMode, WriterRecord,
};
use types::capability::{PathHash, Rights};
use types::direct::{DirectRights, StripedFile, UnitAddress};
use types::striping::{StripedOpenWrite, WriteSecret};
use types::{GroupId, NsPath, ObjectId, Placement, Policy, PrincipalId, ReplicaIndex, StoreId, Stripe, WriterToken};

use super::OpenService;
use super::open_request::{OpenRequest, OpeningError, Redirect, Unfinished, no_address};
use super::opening::{ANY_BOOT, FOLLOW_LIFE, Opening, Sealed, not_made, seal};
use super::reading::{Found, Nearest, OF_A_BACKUP, PATIENCE_MAX};
use node::{Layout, Striped, StripedRights, To};

/// Called with the groups of several lists of stores.
type Then = Box<dyn FnOnce(Result<Vec<(GroupId, Vec<StoreId>)>, NsError>) + Send>;

/// The units of a striped file, as one view of the namespace shows them.
pub(super) struct FoundUnits {
    stripe: Stripe,
    /// The stores of each unit. For a unit being written, its primary.
    pub(super) stores: Vec<Vec<StoreId>>,
    /// The file has an open write, and had it when the backup was taken from which the namespace was restored.
    is_distrusted: bool,
}

impl FoundUnits {
    /// The units of a file that has this content in the same view.
    pub(super) fn of(read: &dyn Read, content: &Content) -> Result<Self, NsError> {
        let (stripe, units) = namespace::units_of(read, content.object)?;
        let is_written = matches!(content.state, FileState::Open(_) | FileState::Updating(_));
        let is_distrusted = is_written && is_distrusted(read, content.object, &units)?;
        Ok(Self { stripe, stores: stores_of_units(read, &units)?, is_distrusted })
    }

    /// Where the units of an object are, and the secret that its writer must present. `None`: the object has been deleted since the caller found it.
    fn to_write(read: &dyn Read, object: ObjectId) -> Result<Option<(Self, WriteSecret)>, NsError> {
        let Some(record) = namespace::stripe_of(read, object)? else { return Ok(None) };
        let (stripe, units) = namespace::units_of(read, object)?;
        let units = Self { stripe, stores: stores_of_units(read, &units)?, is_distrusted: false };
        Ok(Some((units, record.secret)))
    }
}

impl OpenService {
    /// Creates a striped file. Each unit gets stores of its own.
    pub(crate) fn open_new_striped(self: &Arc<Self>, opening: Opening, policy: &Policy, stripe: Stripe) {
        let Opening { open_request, .. } = &opening;
        let groups = match self.draw(open_request, policy) {
            Ok(groups) => groups,
            Err(error) => return opening.refuse(error),
        };
        let sync = usize::from(policy.layout().sync());
        let this = Arc::clone(self);
        let then = move |made: Result<Vec<_>, NsError>| match made {
            Ok(made) => this.open_on_groups(opening, stripe, made, sync),
            Err(error) => opening.refuse(not_made(error)),
        };
        self.with_groups(groups, Vec::new(), Box::new(then));
    }

    fn with_groups(self: &Arc<Self>, mut left: Vec<Vec<StoreId>>, mut made: Vec<(GroupId, Vec<StoreId>)>, then: Then) {
        let Some(stores) = left.pop() else {
            made.reverse();
            return then(Ok(made));
        };
        let this = Arc::clone(self);
        self.coordinator.with_group(stores.clone(), move |group| match group {
            Ok(group) => {
                made.push((group, stores));
                this.with_groups(left, made, then);
            }
            Err(error) => then(Err(error)),
        });
    }

    fn open_on_groups(
        self: &Arc<Self>,
        mut opening: Opening,
        stripe: Stripe,
        groups: Vec<(GroupId, Vec<StoreId>)>,
        sync: usize,
    ) {
        let wanted: Vec<usize> = groups.iter().map(|(_, stores)| sync.min(stores.len())).collect();
        let units: Vec<Placement> = {
            let (view, now) = (self.view.get(), self.world.now());
            let unit = |(group, stores): (GroupId, Vec<StoreId>)| Placement {
                group,
                in_sync: view.in_sync(now, &stores, sync),
            };
            groups.into_iter().map(unit).collect()
        };
        if units.iter().zip(wanted).any(|(unit, wanted)| unit.in_sync.len() < wanted) {
            return opening.refuse(OpeningError::wait("some of the stores that were chosen for it have just gone"));
        }
        let written = units.iter().flat_map(|unit| &unit.in_sync).map(|one| &one.store);
        self.rooms.begin_writing(&self.view.get(), written, opening.open_request.announced);
        let Some(secret) = self.world.secret() else {
            return opening.refuse(OpeningError::wait("the system has no random bytes for what its writer is told"));
        };
        let secret = WriteSecret(secret.iter().take(16).fold(0, |number, byte| number << 8 | u128::from(*byte)));
        opening.op.placement = Placement { group: GroupId::STRIPED, in_sync: Vec::new() };
        opening.op.stripe = Some(NewStripe { stripe, units, secret });
        let is_new = opening.op.how == WriteMode::NewOnly && !opening.op.restarted;
        self.open(opening, if is_new { Durability::Written } else { Durability::Synced }, None);
    }

    /// A client returns to a striped file that it was writing. The units have the acknowledged bytes, so any server can take them over.
    pub(crate) fn reopen_striped(self: &Arc<Self>, mut opening: Opening) {
        opening.op.resume = None;
        self.open(opening, Durability::Synced, None);
    }

    /// Sends a client that writes a striped file to a server that combines its units. `goes_on`: it may also open units that have ended.
    pub(super) fn redirect_striped_writer(
        &self,
        opened: &OpenedWrite,
        goes_on: bool,
        (principal, mode, rights): (PrincipalId, u16, Rights),
        open_request: &OpenRequest,
    ) -> Result<Redirect, OpeningError> {
        let Some((units, secret)) = self.names.read(|read| FoundUnits::to_write(read, opened.object))? else {
            let why = "this open write has been discarded meanwhile; open the file again";
            return Err(NsError::WriteEnded { what: open_request.path.to_string(), why }.into());
        };
        let writing = StripedOpenWrite { writer: opened.writer, secret };
        let (mtime, may_reach) = (open_request.now, opened.may_reach);
        let layout = |to| Layout { to, shard: ReplicaIndex(0), ino: opened.ino, mode, mtime, may_reach };
        let what = (rights, StripedRights::Write { writing, goes_on });
        self.redirect_striped((principal, opened.object), &units, open_request, what, layout)
    }

    /// Sends a reader to a server that combines the units of a striped file.
    pub(super) fn redirect_striped_reader(
        &self,
        found: &Found,
        units: &FoundUnits,
        open_request: &OpenRequest,
    ) -> Result<Redirect, OpeningError> {
        let (inode, content) = (&found.inode, &found.content);
        if units.is_distrusted {
            return Err(OpeningError::BeingWritten(OF_A_BACKUP.into()));
        }
        let rights = match content.state {
            FileState::Open(_) | FileState::Updating(_) => StripedRights::Follow,
            FileState::Complete => StripedRights::Read { len: content.len, is_partial: false },
            FileState::Interrupted(_) => StripedRights::Read { len: content.len, is_partial: true },
        };
        let (ino, mode, mtime) = (inode.ino, inode.access.mode, inode.mtime);
        let layout = |to| Layout { to, shard: ReplicaIndex(0), ino, mode, mtime, may_reach: None };
        self.all_units_are_there(&units.stores)?;
        let to = self.redirect_striped(
            (open_request.actor.principal, content.object),
            units,
            open_request,
            (Rights::READ, rights),
            layout,
        )?;
        let unfinished = match content.state {
            FileState::Open(key) => {
                let epoch = found.writer.as_ref().map_or(0, |writer| writer.epoch);
                Some(Unfinished::Striped(WriterToken { key, object: content.object, epoch }))
            }
            FileState::Updating(_) | FileState::Complete | FileState::Interrupted(_) => None,
        };
        Ok(Redirect { units: self.units_to_read(&to, open_request), unfinished, ..to })
    }

    /// Where to read the units that have data. Empty if one of them cannot be read: a client that asks for that unit learns why.
    fn units_to_read(&self, to: &Redirect, open_request: &OpenRequest) -> Vec<UnitAddress> {
        let Some(StripedFile { stripe, rights: DirectRights::Read { object, len, is_partial }, .. }) = to.striped
        else {
            return Vec::new();
        };
        let unit = |unit| {
            let to = self.open_read(open_request, &open_request.path, is_partial, Some((unit, object)))?;
            let at =
                to.address(open_request.protocol).ok_or_else(|| no_address(open_request.protocol, &to.addresses))?;
            Ok(UnitAddress { host: at.host.clone(), port: at.port, capability: to.capability, object: to.object })
        };
        let units: Result<Vec<UnitAddress>, OpeningError> = (0..stripe.units_in(len)).map(unit).collect();
        units.unwrap_or_default()
    }

    /// Checks that each unit of a striped file can be read. The combining server would find out too, but a stock client would then come back here for
    /// another server, again and again.
    fn all_units_are_there(&self, units: &[Vec<StoreId>]) -> Result<(), OpeningError> {
        let (view, now) = (self.view.get(), self.world.now());
        let can_any_show = |stores: &[StoreId]| stores.iter().any(|store| view.can_show(&*self.world, now, *store));
        let mut unavailable = units.iter().enumerate().filter(|(_, stores)| !can_any_show(stores)).peekable();
        if unavailable.peek().is_none() {
            return Ok(());
        }
        let (mut may_return, mut shown) = (true, Vec::new());
        for (number, stores) in unavailable {
            may_return &= Self::may_return(&view, now, stores, PATIENCE_MAX);
            shown.push(format!("stripe unit {number} is on {}", view.shown(stores)));
        }
        let shown = shown.join("; ");
        Err(match may_return {
            true => OpeningError::wait(format!("some of its stripe units may be back soon: {shown}")),
            false => OpeningError::NoUnits(shown),
        })
    }

    fn redirect_striped(
        &self,
        (principal, object): (PrincipalId, ObjectId),
        units: &FoundUnits,
        open_request: &OpenRequest,
        (rights, striped): (Rights, StripedRights),
        layout: impl FnOnce(To) -> Layout,
    ) -> Result<Redirect, OpeningError> {
        let (stripe, stores) = (units.stripe, all_of(&units.stores));
        let (view, now) = (self.view.get(), self.world.now());
        let store = match self.nearest(&view, now, &stores, open_request) {
            Some(Nearest { was_tried: true, .. }) if open_request.all_refused => {
                return Err(OpeningError::AllRefused(view.shown(&stores)));
            }
            nearest => nearest,
        };
        // None of its stores is online. Another server may still know how to wait for them.
        let store = store.or_else(|| {
            let all: Vec<StoreId> = view.servers.map().stores().iter().map(|info| info.store).collect();
            self.nearest(&view, now, &all, open_request)
        });
        let Some(Nearest { store, .. }) = store else { return Err(OpeningError::wait("no disk server is there")) };
        let (epoch, lifetime) = match striped {
            StripedRights::Write { writing, .. } => (writing.writer.epoch, self.capability_lifetime),
            StripedRights::Read { .. } => (0, self.capability_lifetime),
            StripedRights::Follow => (0, self.capability_lifetime.min(FOLLOW_LIFE)),
        };
        let layout = layout(To::Striped(Striped { width: stripe.width(), chunk: stripe.chunk(), rights: striped }));
        let rights_of_units = match striped {
            StripedRights::Write { writing, goes_on } => Some(DirectRights::Write { writing, goes_on }),
            StripedRights::Read { len, is_partial } => Some(DirectRights::Read { object, len, is_partial }),
            // Only a server that polls all units knows how much of the file is complete.
            StripedRights::Follow => None,
        };
        let Layout { ino, mode, mtime, may_reach, .. } = layout;
        // Only a server that combines the units keeps the file within what it has reserved. A client that writes them itself may write more than it has
        // announced.
        let rights_of_units = rights_of_units.filter(|_| may_reach.is_none());
        let direct = rights_of_units.map(|rights| StripedFile { stripe, ino, mode, mtime, rights });
        let until = view.clock.time(now).plus(lifetime);
        let (path, epoch) = (PathHash::of(&open_request.path), u64::from(epoch));
        let to = seal(&view, now, store, Sealed { principal, path, object, rights, epoch, layout, until })?;
        Redirect { striped: direct.filter(|_| open_request.is_direct), ..to }.followed_by(open_request)
    }

    /// Opens a unit of a striped file for its writer. With `goes_on` it also opens a unit that has ended. Calls `answer` once, perhaps in another
    /// thread; it must not wait.
    pub(crate) fn open_unit_write(
        self: &Arc<Self>,
        open_request: OpenRequest,
        (writing, unit, goes_on): (StripedOpenWrite, u8, bool),
        answer: impl FnOnce(Result<Redirect, OpeningError>) + Send + 'static,
    ) {
        let of = writing.writer;
        let found = self.names.read(|read| {
            namespace::permit_writing(read, &writing)?;
            let found = find_unit(read, of, unit)?;
            let what = || namespace::named_open_write(of.object);
            namespace::permit_client(&open_request.actor, &found.0.client, &what)?;
            if found.2.is_none() && goes_on {
                // The transaction requires it again.
                namespace::permit_going_on(read, of, &found.1)?;
            }
            Ok::<_, NsError>(found)
        });
        let (file, unit_content, writer) = match found {
            Ok(found) => found,
            Err(error) => return answer(Err(error.into())),
        };
        let path = match NsPath::parse(&file.path) {
            Ok(path) => path,
            Err(error) => return answer(Err(NsError::from(error).into())),
        };
        let op = OpenWrite {
            mode: 0,
            unit_of: Some(of),
            ..OpenWrite::new(
                path,
                WriteMode::Update,
                namespace::unit_writer(file.client.principal, of.object, unit),
                ANY_BOOT,
            )
        };
        let answer = Box::new(answer);
        match writer {
            Some(writer) => {
                let op = OpenWrite { expected_len: writer.expected_len, ..op };
                self.reopen(Opening { open_request, op, answer }, &writer);
            }
            None if goes_on => {
                let op = OpenWrite { expected_len: open_request.announced, resume: Some(Resume::Visible), ..op };
                self.update_content(Opening { open_request, op, answer }, unit_content);
            }
            None => answer(Err(stale(of, unit, "it is not being written any more").into())),
        }
    }
}

fn stale(of: WriterToken, unit: u8, why: &'static str) -> NsError {
    NsError::Stale { what: format!("stripe unit {unit} of object {:016x}", of.object.0), why }
}

/// The record of a file's writer, if that is still `of`. Also the object of one unit and its writer, if it has one.
fn find_unit(
    read: &dyn Read,
    of: WriterToken,
    unit: u8,
) -> Result<(WriterRecord, Content, Option<WriterRecord>), NsError> {
    let file = namespace::writer_of(read, of.key, of.object)?.filter(|file| file.epoch == of.epoch);
    let file = file.ok_or_else(|| stale(of, unit, "its writer has ended, or its client has opened it again since"))?;
    let (_, units) = namespace::units_of(read, of.object)?;
    let content = units.get(usize::from(unit)).and_then(Inode::content).copied();
    let content = content
        .ok_or_else(|| NsError::NotFound(format!("stripe unit {unit} of object {:016x}", of.object.0), "unit"))?;
    let writer = match content.state {
        FileState::Open(by) | FileState::Updating(by) => namespace::writer_of(read, by, content.object)?,
        FileState::Complete | FileState::Interrupted(_) => None,
    };
    Ok((file, content, writer))
}

/// Whether the file, which has an open write, had it when the backup was taken from which the namespace was restored.
fn is_distrusted(read: &dyn Read, object: ObjectId, units: &[Inode]) -> Result<bool, NsError> {
    if namespace::restored(read)?.is_some_and(|restored| restored.holds(object)) {
        return Ok(true);
    }
    for content in units.iter().filter_map(Inode::content) {
        if let FileState::Open(by) | FileState::Updating(by) = content.state
            && let Some(writer) = namespace::writer_of(read, by, content.object)?
            && writer.primary().is_some_and(|primary| primary.boot_generation == DISTRUSTED)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The stores of each unit. For a unit being written, its primary.
fn stores_of_units(read: &dyn Read, units: &[Inode]) -> Result<Vec<Vec<StoreId>>, NsError> {
    let stores_of = |content: &Content| match content.state {
        FileState::Open(by) | FileState::Updating(by) => {
            let writer = namespace::writer_of(read, by, content.object)?;
            Ok(writer.and_then(|writer| Some(writer.placement.in_sync.first()?.store)).into_iter().collect())
        }
        FileState::Complete | FileState::Interrupted(_) => namespace::holders(read, content.group, content.object),
    };
    units.iter().filter_map(Inode::content).map(stores_of).collect()
}

/// Each store once.
pub(super) fn all_of(units: &[Vec<StoreId>]) -> Vec<StoreId> {
    let mut stores = units.concat();
    stores.sort_unstable();
    stores.dedup();
    stores
}
