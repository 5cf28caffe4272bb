//! Opens on a disk server of a cluster. The capability from the manager says what is permitted.

use std::sync::Arc;
use std::time::Instant;

use disk_server::{DiskServer, DiskServerError, ReadGrant, ReplicatedWriter, StripedGrant, VerifiedCapability};
use identity::DelegatedProxy;
use node::{CopySource, FoundProxy, StripedRights};
use types::absent_replicas::AbsentReplica;
use types::{ErrorCode, Ino, NsPath, ObjectId, RequestNumber, Timestamp, WriterToken};

use super::redirects::{to_manager, to_manager_without};
use super::{Hints, Intent, Open, Opened, WriteMode, mode_or_usual, no_new_target, origin_of, source_to_write};
use crate::answer::Answer;
use crate::attributes::Stat;
use crate::audit::About;
use crate::caller::Caller;
use crate::error::{Error, Redirect};
use crate::lease::{GoesOn, Lease, LeaseFacts, LeaseState, Unreadable, WriteAccess};
use crate::missing::Missing;
use crate::names::wall_clock;
use crate::open_file::{Access, Copying, OpenFile, Shown};
use crate::open_writes::{Entered, Manner, OpenWrites, Wanted};
use crate::service::{Role, Service};
use crate::session::Session;
use crate::sharers::{ExclusiveUse, Newcomer, Sharers};
use crate::striped::{StripedError, StripedOpen, Striper};
use crate::third_party::{Grant, OpenRequest, Part, PullJob, PullSource, addresses_of};
use crate::workers::apart;
use crate::write_target::{WriteTarget, WriteTargetError};
use crate::writers::Begin;

/// An open on a disk server.
struct AtDisk {
    service: Arc<Service>,
    session: Arc<Session>,
    caller: Arc<Caller>,
    path: NsPath,
    mode: u16,
    with_stat: bool,
    expected_len: Option<u64>,
    /// The length that its open write may reach before it must reserve more. `None`: any length.
    may_reach: Option<u64>,
    mtime: Option<Timestamp>,
    /// Stale replicas that the client has met on other servers.
    absent_replicas: Vec<AbsentReplica>,
    /// It may see a file that is being written.
    follows: bool,
    /// How it wants to write the file.
    manner: Manner,
    /// The client comes back to a file that it has open, or repeats its request.
    comes_again: bool,
    /// The role of the file in a third-party copy.
    copying: Copying,
    /// The source, if the file is the target of a third-party copy.
    fetched: Option<PullSource>,
    /// Why the client may not read what it writes, if it may not.
    unreadable: Option<Unreadable>,
}

/// Whether the client of this open wants its delegated proxy to be used.
fn wants_proxy(copy: &Part) -> bool {
    matches!(copy, Part::Target { delegates: Some(_), .. })
}

/// The same part in a copy, from this source: the one that the owner of the proxy has named to the manager. Whoever presents the capability here need not
/// be that client, so that its own words do not count.
fn source_of_proxy(copy: Part, source: &CopySource) -> Part {
    match copy {
        Part::Target { key, .. } => {
            let CopySource { server, tls, path } = source.clone();
            Part::Target { key, delegates: Some(server.clone()), server, tls, path: Some(path) }
        }
        other => other,
    }
}

impl Service {
    /// Opens a file with the capability in `open`.
    pub(super) fn open_granted(
        self: &Arc<Self>,
        disk: &Arc<DiskServer>,
        session: &Arc<Session>,
        caller: &Arc<Caller>,
        open: Open,
        answer: impl Answer<Opened>,
    ) {
        let capability = open.hints.capability.as_deref().filter(|_| wants_proxy(&open.copy));
        let verified = capability.and_then(|capability| disk.verify(capability, &open.path, None).ok());
        let Some(object) = verified.filter(VerifiedCapability::is_to_write).map(|verified| verified.object()) else {
            return self.open_granted_with(disk, session, caller, open, None, answer);
        };
        // The client has delegated its proxy to the manager.
        let (service, asked) = (Arc::clone(self), Arc::clone(disk));
        let (session, caller) = (Arc::clone(session), Arc::clone(caller));
        disk.take_delegated(object, move |found| {
            let workers = Arc::clone(&service);
            workers.workers.on_worker(answer, move |answer| {
                service.open_with_proxy(&asked, &session, &caller, open, found, answer);
            });
        });
    }

    /// The same, when the manager has said what it has: `None` if it has not answered.
    fn open_with_proxy(
        self: &Arc<Self>,
        disk: &Arc<DiskServer>,
        session: &Arc<Session>,
        caller: &Arc<Caller>,
        mut open: Open,
        found: Option<FoundProxy>,
        answer: impl Answer<Opened>,
    ) {
        match found {
            // The client has delegated none.
            Some(FoundProxy::None) => self.open_granted_with(disk, session, caller, open, None, answer),
            Some(FoundProxy::Proxy(sent)) => {
                open.copy = source_of_proxy(open.copy, &sent.source);
                let expires = sent.expires;
                let proxy = DelegatedProxy::new(sent.into_text().into(), expires);
                self.open_granted_with(disk, session, caller, open, Some(&proxy), answer);
            }
            // The client repeats its request, or another one was here with its capability.
            Some(FoundProxy::Given) => answer.give(Err(to_manager(disk))),
            None => {
                let text =
                    format!("Cannot open {} now: the cluster's manager has not given your delegated proxy", open.path);
                answer.give(Err(Error::Wait { seconds: 3, text }));
            }
        }
    }

    /// The same, with the proxy that the client has delegated for it.
    fn open_granted_with(
        self: &Arc<Self>,
        disk: &Arc<DiskServer>,
        session: &Arc<Session>,
        caller: &Arc<Caller>,
        mut open: Open,
        proxy: Option<&DelegatedProxy>,
        answer: impl Answer<Opened>,
    ) {
        if let Part::Fetch { key, origin } = &open.copy {
            let (key, origin) = (key.clone(), origin.clone());
            let answer = self.audited_open(caller, &open, None, answer);
            return self.fetch_of_granted(session, caller, open, (&key, origin), answer);
        }
        let how = match open.intent {
            Intent::Write(how) => Some(how),
            Intent::Read | Intent::Unsaid => None,
        };
        let capability = open.hints.capability.take().unwrap_or_default();
        let verified = match disk.verify(&capability, &open.path, None) {
            Ok(verified) => verified,
            Err(error) => {
                let answer = self.audited_open(caller, &open, how, answer);
                return answer.give(Err(Error::of_disk_server(&format_args!("open {}", open.path), &error)));
            }
        };
        let caller = &Arc::new(caller.with_capability_of(verified.principal()));
        let how = verified.is_to_write().then(|| how.unwrap_or(WriteMode::Update));
        let answer = self.audited_open(caller, &open, how, answer);
        if verified.is_to_write()
            && let Err(error) = caller.may_change(&format_args!("open {} for writing", open.path))
        {
            return answer.give(Err(error));
        }
        let unreadable = (!verified.is_to_read()).then_some(Unreadable::ByCapability);
        let mut opening =
            AtDisk { may_reach: verified.may_reach(), unreadable, ..self.at_disk(session, caller, &open) };
        match open.copy.clone() {
            Part::Source { key, dst } if !verified.is_to_write() => {
                let origin = origin_of(caller);
                let copied = Some(verified.clone());
                return self.workers.on_worker(answer, move |answer| {
                    let grant =
                        addresses_of(&dst).map(|to| Grant { path: opening.path.clone(), to, origin, verified: copied });
                    match grant.and_then(|grant| opening.service.third_party.rendezvous.allow(key, grant)) {
                        Ok(registration) => opening.copying = Copying::Allowed { _registration: registration },
                        Err(error) => return answer.give(Err(error)),
                    }
                    opening.read_or_striped(verified, answer);
                });
            }
            Part::Source { .. } | Part::Fetch { .. } => return answer.give(Err(source_to_write())),
            Part::Target { .. } if verified.is_to_write() => {
                let makes = matches!(open.intent, Intent::Write(WriteMode::NewOnly | WriteMode::Replace));
                let source = if makes { self.source_of(caller, &open, proxy) } else { Err(no_new_target()) };
                match source {
                    Ok(source) => opening.fetched = Some(source),
                    Err(error) => return answer.give(Err(error)),
                }
            }
            Part::Target { .. } | Part::None => {}
        }
        match verified {
            VerifiedCapability::Read(reading) => answer.give(opening.read(reading)),
            VerifiedCapability::Striped(grant) => opening.striped_apart(grant, answer),
            VerifiedCapability::Write(writing) => {
                let may_go_elsewhere = may_go_elsewhere(&open);
                let disk = Arc::clone(disk);
                let mut full_stores = open.hints.full_stores;
                full_stores.push(writing.store());
                self.workers.on_worker(answer, move |answer| {
                    if may_go_elsewhere && !writing.has_room(opening.expected_len) {
                        tracing::info!(path = %opening.path, store = %writing.store(), "its store has too little room: its client is sent to another one");
                        return answer.give(Err(to_manager_without(&disk, full_stores)));
                    }
                    match writing.attach(opening.path.as_bytes(), opening.expected_len) {
                        Ok(replicated) => opening.write(replicated, answer),
                        Err(error) if error.code() == ErrorCode::NoSpace && may_go_elsewhere => {
                            answer.give(Err(to_manager_without(&disk, full_stores)));
                        }
                        Err(error) => {
                            answer.give(Err(Error::of_disk_server(&format_args!("open {}", opening.path), &error)));
                        }
                    }
                });
            }
        }
    }

    fn at_disk(self: &Arc<Self>, session: &Arc<Session>, caller: &Arc<Caller>, open: &Open) -> AtDisk {
        AtDisk {
            service: Arc::clone(self),
            session: Arc::clone(session),
            caller: Arc::clone(caller),
            path: open.path.clone(),
            mode: mode_or_usual(open.mode),
            with_stat: open.with_stat,
            expected_len: open.hints.announced,
            may_reach: None,
            mtime: open.mtime,
            absent_replicas: open.hints.absent_replicas.clone(),
            follows: self.follows(open),
            manner: if open.appends { Manner::Appends } else { Manner::Shares },
            comes_again: open.hints.returns,
            copying: Copying::No,
            fetched: None,
            unreadable: None,
        }
    }

    /// Opens a file for another server, on behalf of a client that has opened it here. The client's capability
    /// permits it while the client has the file open.
    pub(super) fn fetch_of_granted(
        self: &Arc<Self>,
        session: &Arc<Session>,
        caller: &Arc<Caller>,
        open: Open,
        (key, origin): (&[u8], Vec<u8>),
        answer: impl Answer<Opened>,
    ) {
        let opening = AtDisk { copying: Copying::ForAnother, ..self.at_disk(session, caller, &open) };
        let open_request = OpenRequest { path: opening.path.clone(), from: caller.peer.ip(), origin };
        let then = Box::new(move |allowed: Result<Option<VerifiedCapability>, Error>| match allowed {
            Ok(Some(verified)) => opening.read_or_striped(verified, answer),
            Ok(None) => answer.give(Err(Error::unsupported("A third-party copy from here"))),
            Err(error) => answer.give(Err(error)),
        });
        self.third_party.rendezvous.ask(key, open_request, Instant::now(), then);
    }

    /// Truncates by name, with a capability, as an update in place by this server.
    pub(crate) fn truncate_granted(
        self: &Arc<Self>,
        disk: &Arc<DiskServer>,
        session: &Arc<Session>,
        (hints, request): (&Hints, Option<RequestNumber>),
        path: NsPath,
        len: u64,
        answer: impl Answer<()>,
    ) {
        let Some(capability) = &hints.capability else { return answer.give(Err(to_manager(disk))) };
        let writing = match disk.verify(capability, &path, None) {
            Ok(VerifiedCapability::Write(writing)) => writing,
            Ok(verified) if verified.is_to_write() => {
                return answer.give(Err(Error::unsupported("To cut a striped file by its name")));
            }
            Ok(_) => return answer.give(Err(Error::read_only(&path))),
            Err(error) => {
                let answer = self.audited(&session.caller(), || About::truncation(&path, len), answer);
                return answer.give(Err(Error::of_disk_server(&format_args!("truncate {path}"), &error)));
            }
        };
        let may_reach = writing.may_reach();
        let caller = Arc::new(session.caller().with_capability_of(writing.principal()));
        let answer = self.audited(&caller, || About::truncation(&path, len), answer);
        let opening = AtDisk {
            service: Arc::clone(self),
            session: Arc::clone(session),
            caller,
            path,
            mode: 0,
            with_stat: false,
            expected_len: None,
            may_reach,
            mtime: None,
            absent_replicas: Vec::new(),
            follows: false,
            manner: Manner::Truncates,
            comes_again: hints.returns,
            copying: Copying::No,
            fetched: None,
            unreadable: None,
        };
        self.workers.on_worker(answer, move |answer| match writing.attach(opening.path.as_bytes(), None) {
            Ok(replicated) => opening.cut(replicated, len, request, answer),
            Err(error) => answer.give(Err(Error::of_disk_server(&format_args!("truncate {}", opening.path), &error))),
        });
    }
}

/// Whether the manager can choose another store if this one has no space: nothing of a new file exists yet. The stores
/// of a stripe unit are chosen with its file.
fn may_go_elsewhere(open: &Open) -> bool {
    let is_new = matches!(open.intent, Intent::Write(WriteMode::NewOnly | WriteMode::Replace));
    is_new && open.hints.unit.is_none()
}

/// A striped file that is being opened, until this is dropped.
struct UnderWay<'a> {
    writes: &'a OpenWrites,
    object: ObjectId,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.writes.lock().end_opening(self.object);
    }
}

impl AtDisk {
    fn read(self, reading: ReadGrant) -> Result<Opened, Error> {
        let (ino, mode, changed) = reading.attributes();
        let opening = AtDisk { mode, ..self };
        let follows_writer = reading.follows_writer();
        let opened = reading.open();
        let (reader, permit) = opened.map_err(|error| opening.not_shown(&error))?;
        let (object, len) = (reader.replica().object, reader.len());
        if follows_writer && !opening.follows {
            opening.service.must_be_finished(&opening.session, &opening.path, object)?;
        }
        let shown = Shown::new(reader, Some(permit), &opening.service.read_ahead);
        opening.insert((ino, object), changed, len, Access::Read(shown))
    }

    /// Sends the client back to the manager. The redirect lists the absent replica here and those that the client has
    /// met elsewhere, so that the manager avoids them.
    fn not_shown(&self, error: &DiskServerError) -> Error {
        match (Error::of_disk_server(&format_args!("open {}", self.path), error), error) {
            (Error::Redirect(to), DiskServerError::AbsentReplica { absent, .. }) => {
                tracing::warn!(path = %self.path, object = %absent.object, store = %absent.store, "a reader was sent here for an object that is not here");
                let mut absent_replicas = self.absent_replicas.clone();
                absent_replicas.retain(|other| other != absent);
                absent_replicas.push(*absent);
                Error::redirect(Redirect { absent_replicas, ..*to })
            }
            (refused, _) => refused,
        }
    }

    /// Opens for reading. Does not block.
    fn read_or_striped(self, verified: VerifiedCapability, answer: impl Answer<Opened>) {
        match verified {
            VerifiedCapability::Striped(grant) if !matches!(grant.rights, StripedRights::Write { .. }) => {
                self.striped_apart(grant, answer);
            }
            VerifiedCapability::Read(reading) => answer.give(self.read(reading)),
            VerifiedCapability::Striped(_) | VerifiedCapability::Write(_) => answer.give(Err(source_to_write())),
        }
    }

    /// Opens a striped file on its own thread.
    fn striped_apart(mut self, grant: StripedGrant, answer: impl Answer<Opened>) {
        let manager = match &self.service.role {
            Role::Disk(disk) => disk.manager(),
            Role::Alone { .. } | Role::Manager(_) | Role::Standby(_) => None,
        };
        let (Some(striper), Some(manager)) = (self.service.settings.config.striper.clone(), manager) else {
            return answer.give(Err(Error::unsupported("A striped file")));
        };
        let Some(slot) = self.service.striped_opens.take() else { return answer.give(Err(Error::busy())) };
        let expected_len = self.expected_len;
        // What is resumed may have all its bytes, and wrong ones: its writer may have found that at its close. So only a client that
        // closes it completes it.
        if let StripedRights::Write { goes_on: true, .. } = grant.rights {
            self.expected_len = None;
        }
        let open = StripedOpen { manager, path: self.path.clone(), grant, expected_len };
        apart(answer, move |answer| {
            self.striped(&*striper.0, open, answer);
            drop(slot);
        });
    }

    /// Truncates, on a worker. The file is in the state `Closing` from the beginning, so nobody can take it over
    /// before it ends.
    fn cut(self, replicated: Arc<ReplicatedWriter>, len: u64, request: Option<RequestNumber>, answer: impl Answer<()>) {
        let object = replicated.replica().object;
        let entered = match self.lease_of_led(&replicated, "truncate") {
            Ok(entered) => entered,
            Err(error) => return answer.give(Err(error)),
        };
        let service = self.service;
        let is_begun = service.writes.lock().begin_close(object, entered.key);
        // Nobody gets a handle, and a truncation that fails leaves no client behind that could come back.
        service.writes.take_back(&entered, Instant::now());
        let lease = entered.lease;
        if !is_begun {
            let text = format!("{} is being closed at this moment", self.path);
            return answer.give(Err(Error::Wait { seconds: 1, text }));
        }
        let (Some(number), Role::Disk(disk)) = (request, &service.role) else {
            return service.endings.truncate_replicated(&lease, &replicated, len, request, answer);
        };
        let this = Arc::clone(&service);
        disk.announce_close(lease.token(), number, move |agreed| {
            let service = Arc::clone(&this);
            service.workers.must_do(answer, move |answer| match agreed {
                Ok(()) => this.endings.truncate_replicated(&lease, &replicated, len, request, answer),
                Err(not_agreed) => {
                    let refused =
                        Error::of_code(not_agreed.code(), &format_args!("truncate {}", lease.path), &not_agreed);
                    this.endings.leave_replicated(&lease, &replicated, move || answer.give(Err(refused)));
                }
            });
        });
    }

    /// Opens for writing, on a worker.
    fn write(self, replicated: Arc<ReplicatedWriter>, answer: impl Answer<Opened>) {
        match self.lease_of_led(&replicated, "open") {
            Ok(entered) => self.insert_writer(&entered, replicated.len(), answer),
            Err(error) => answer.give(Err(error)),
        }
    }

    /// The lease for an open write that this server leads. Between the client's attachment and its lease the last of the others may have closed the
    /// file. Then the client must begin a new open write.
    fn lease_of_led(&self, replicated: &Arc<ReplicatedWriter>, verb: &str) -> Result<Entered, Error> {
        let known = (replicated.ino(), replicated.replica().object, replicated.writer());
        let entered = self.lease(known, replicated.is_new(), WriteTarget::Replicated(Arc::clone(replicated)))?;
        replicated.check_led().map_err(|error| {
            self.service.writes.withdraw(&entered);
            Error::of_disk_server(&format_args!("{verb} {}", self.path), &error)
        })?;
        Ok(entered)
    }

    fn insert_writer(mut self, entered: &Entered, len: u64, answer: impl Answer<Opened>) {
        let lease = Arc::clone(&entered.lease);
        let key = (entered.key, entered.joined.share);
        if let Some(mtime) = self.mtime {
            lease.set_mtime(mtime);
        }
        let service = Arc::clone(&self.service);
        let (ino, object) = (lease.ino, lease.object);
        if let Some(source) = self.fetched.take() {
            self.copying = Copying::Fetched(PullJob::new(source, Arc::clone(&lease), key));
        }
        let access = Access::Write(WriteAccess::new(key, lease, false).reading(self.unreadable.take()));
        match self.insert((ino, object), wall_clock(), len, access) {
            Ok(opened) => answer.give(Ok(opened)),
            Err(error) => {
                service.writes.take_back(entered, Instant::now());
                answer.give(Err(error));
            }
        }
    }

    /// Opens a striped file. This waits for other servers.
    fn striped(self, striper: &dyn Striper, open: StripedOpen, answer: impl Answer<Opened>) {
        let grant = open.grant;
        let refused = |error: StripedError| WriteTargetError::from(error).told(&format_args!("open {}", self.path));
        let StripedRights::Write { writing, .. } = grant.rights else {
            let file = match striper.open(&open) {
                Ok(file) => file,
                // The file was replaced after the manager had sent the reader here. The manager knows what has the name now. A
                // server that reads for a third-party copy must not go there: only this one knows its key.
                Err(error) if error.code == ErrorCode::Stale && !matches!(self.copying, Copying::ForAnother) => {
                    tracing::info!(path = %self.path, %error, "a reader is sent back to the manager");
                    let (host, port) = open.manager;
                    return answer.give(Err(Error::redirect(Redirect::to_manager(host, port))));
                }
                Err(error) => return answer.give(Err(refused(error))),
            };
            let opening = AtDisk { mode: grant.mode, ..self };
            let (len, access) = (file.len(), Access::Read(Shown::striped(file)));
            return answer.give(opening.insert((grant.ino, grant.object), grant.mtime, len, access));
        };
        let known = (grant.ino, grant.object, writing.writer);
        let begun = self.service.writes.lock().begin_opening(grant.object);
        let Begin::Yes(before) = begun else { return answer.give(Err(self.busy())) };
        let opening = UnderWay { writes: &self.service.writes, object: grant.object };
        let leased = match before.map(|lease| (lease.token(), lease.writer())) {
            // The same open write again: its units are open. Opening them again would fence the writer that uses the
            // other handle.
            Some((token, Some(write_target))) if token == writing.writer => self.lease(known, true, write_target),
            Some((token, _)) if token.epoch > writing.writer.epoch => Err(Error::fenced(&self.path)),
            _ => match striper.open(&open) {
                Ok(file) => self.lease(known, true, WriteTarget::Striped(file)),
                Err(error) => Err(refused(error)),
            },
        };
        drop(opening);
        match leased {
            Ok(entered) => {
                let len = entered.lease.writer().map_or(0, |write_target| write_target.len());
                self.insert_writer(&entered, len, answer);
            }
            Err(error) => answer.give(Err(error)),
        }
    }

    fn busy(&self) -> Error {
        let text = format!("{} is being opened or closed at this moment", self.path);
        Error::Wait { seconds: 1, text }
    }

    /// The lease for this client's open write. It keeps the present lease if that is for the same open write, and joins the
    /// clients that have it if they change the file in place. Otherwise it fences the old owner and makes a new lease.
    fn lease(
        &self,
        (ino, object, writer): (Ino, ObjectId, WriterToken),
        fresh: bool,
        write_target: WriteTarget,
    ) -> Result<Entered, Error> {
        let writes = &self.service.writes;
        let who =
            Newcomer { session: self.session.owner(), client: &self.caller.client, comes_again: self.comes_again };
        let known = writes.lock().lease(object);
        // A lease may make this thread wait, so the lock on the writers must not be held any more.
        let is_over = known.as_ref().is_some_and(|lease| lease.token().key != writer.key);
        let wanted = Wanted { object, path: &self.path, manner: self.manner, of: known.as_ref(), is_over };
        let (mut missing, mut sharers) = (Missing::default(), Sharers::default());
        let before = writes.enter(who, &wanted)?;
        if let Some(entered) = before {
            let lease = &entered.lease;
            if lease.token() == writer {
                lease.learn_reach(self.may_reach);
                let handed =
                    lease.hand_over(entered.key, writer, || writes.is_in(&entered), || Ok(write_target.clone()));
                let refused = match handed {
                    Ok(Some(_)) => return Ok(entered),
                    Ok(None) => Error::fenced(&self.path),
                    Err(error) => error.told(&format_args!("open {}", self.path)),
                };
                writes.take_back(&entered, Instant::now());
                return Err(refused);
            }
            match lease.go_on_with(entered.key, writer, &write_target) {
                GoesOn::Yes => {
                    lease.learn_reach(self.may_reach);
                    return Ok(entered);
                }
                GoesOn::HasLater => {
                    writes.take_back(&entered, Instant::now());
                    return Err(Error::fenced(&self.path));
                }
                GoesOn::NotHere => {
                    if !is_over {
                        sharers = lease.sharers.lock().succeed(&entered.joined);
                    }
                    lease.fence();
                }
            }
            // Ranges that were refused under the old lease are still missing.
            missing.clone_from(&lease.missing.lock());
        }
        let facts = LeaseFacts {
            path: self.path.clone(),
            caller: Arc::clone(&self.caller),
            fresh,
            begun: false,
            expected_len: self.expected_len,
            boot: self.service.settings.config.boot,
            opened: wall_clock(),
            room: Some(self.service.writer_memory.take_regardless(self.caller.peer.ip(), self.expected_len)),
            may_reach: self.service.growth.from(self.may_reach),
        };
        let key = who.session;
        let joined = sharers.join(who);
        if self.manner == Manner::Appends {
            sharers.be_alone(joined.share, ExclusiveUse::Appends);
        }
        let state = LeaseState { owner: Some(key), token: writer, writer: Some(write_target.clone()) };
        let lease = Lease::new((ino, object), facts, state);
        *lease.missing.lock() = missing;
        *lease.sharers.lock() = sharers;
        {
            let mut writers = writes.lock();
            let now = writers.lease(object);
            let is_as_before = now.as_ref().map(Arc::as_ptr) == known.as_ref().map(Arc::as_ptr);
            if is_as_before {
                writers.attach(object, key, Arc::clone(&lease));
                return Ok(Entered { lease, key, joined });
            }
        }
        // Another session has begun at the same moment.
        self.lease((ino, object, writer), fresh, write_target)
    }

    fn insert(
        self,
        (ino, object): (Ino, ObjectId),
        changed: Timestamp,
        len: u64,
        access: Access,
    ) -> Result<Opened, Error> {
        let stat = self.with_stat.then(|| Stat::bare(ino, len, self.mode, changed));
        let Self { session, path, mode, copying, .. } = self;
        let file = move |_| Arc::new(OpenFile { ino, object, path, mode, access, copying });
        Ok(Opened { handle: session.handles.insert(file)?, stat })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_reads_what_its_owner_has_named_whatever_the_presenter_says() {
        let source = CopySource { server: "there:1094".into(), tls: true, path: "/a/file".into() };
        let target = |server: &str, tls, path: Option<&str>, delegates: &str| Part::Target {
            key: "k".into(),
            server: server.into(),
            tls,
            path: path.map(str::to_owned),
            delegates: Some(delegates.into()),
        };
        let expected = target("there:1094", true, Some("/a/file"), "there:1094");
        for stolen in [
            target("anysite", false, Some("/any/private/file"), "anysite"),
            target("there:1094", true, None, "anysite"),
            target("anysite", true, Some("/a/file"), "there:1094"),
        ] {
            assert!(source_of_proxy(stolen, &source) == expected);
        }
        assert!(source_of_proxy(Part::None, &source) == Part::None);
    }
}
