//! An open at a disk server of a cluster: what may be done stands in the permission that the manager gave with its redirect.

use std::sync::Arc;
use std::time::Instant;

use disk_server::{Placed, PlacedError, ReadGrant, StripedGrant, VerifiedCapability};
use node::StripedRights;
use types::stale_replicas::{STALE_REPLICAS_KEY, StaleReplica};
use types::{Ino, NsPath, ObjectId, Timestamp, WriterToken};
use wire::request::{Open, OpenOptions};
use wire::response::OpenReply;
use wire::{PathArg, StreamId};

use super::{announced_len, mode_of, no_handle, no_new_target, source_to_write};
use crate::answer::Reply;
use crate::connection::{Connection, Stop};
use crate::endings;
use crate::making::{Making, MakingError};
use crate::missing::Missing;
use crate::node::{Node, Role, wall_clock};
use crate::open_file::{Access, Copying, GoesOn, Lease, LeaseFacts, LeaseState, OpenFile, Shown, WriteAccess};
use crate::refusal::{Redirect, Refusal};
use crate::requests::attributes::shown_bare;
use crate::requests::elsewhere::stale_replicas;
use crate::requests::own;
use crate::session::Session;
use crate::striped::{StripedOpen, Striper};
use crate::third_party::{Grant, OpenRequest, Part, PullJob, PullSource, addresses_of};
use crate::writers::{Begin, Owner, TakeUp};

/// What a client wants at a disk server.
pub(super) struct AtDisk {
    node: Arc<Node>,
    session: Arc<Session>,
    path: NsPath,
    mode: u16,
    with_stat: bool,
    expected_len: Option<u64>,
    mtime: Option<Timestamp>,
    /// What the client has been told elsewhere.
    stale_replicas: Vec<StaleReplica>,
    /// What else is done with it.
    copying: Copying,
    /// It is the target of a third-party copy.
    fetched: Option<PullSource>,
}

impl Connection {
    /// An open with the permission `capability`.
    pub(super) fn open_granted(
        &mut self,
        stream: StreamId,
        r: &Open,
        path: NsPath,
        capability: &[u8],
    ) -> Result<Result<(), Refusal>, Stop> {
        let crate::node::Role::Disk(disk) = &self.node.role else {
            return Ok(Err(Refusal::unsupported("A capability of a cluster's manager")));
        };
        let part = match Part::of(&r.target) {
            Ok(part) => part,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if let Part::Fetch { key, origin } = &part {
            return self.fetch_of_granted(stream, r, path, (key, origin));
        }
        let verified = match disk.verified(capability, &path, Some(self.node.config.actor.principal)) {
            Ok(verified) => verified,
            Err(error) => return Ok(Err(Refusal::of_placed(&format_args!("open {path}"), &error))),
        };
        let mut opening = self.at_disk(r, path);
        match part {
            Part::Source { key, dst } if !verified.is_to_write() => {
                let reply = self.hand_on(stream)?;
                let client = self.identity();
                let origin = format!("{}.{}", client.user, client.pid).into_bytes();
                let permission = Some(verified.clone());
                self.node.on_worker(reply, move |reply| {
                    let grant =
                        addresses_of(&dst).map(|to| Grant { path: opening.path.clone(), to, origin, permission });
                    match grant.and_then(|grant| opening.node.rendezvous.allow(key, grant)) {
                        Ok(registration) => opening.copying = Copying::Allowed { _registration: registration },
                        Err(refusal) => return reply.refuse(&refusal),
                    }
                    opening.read_or_striped(verified, reply);
                });
                return Ok(Ok(()));
            }
            Part::Source { .. } | Part::Fetch { .. } => return Ok(Err(source_to_write())),
            Part::Target { key, server, path: source } if verified.is_to_write() => {
                if !r.options.has(OpenOptions::NEW) && !r.options.has(OpenOptions::DELETE) {
                    return Ok(Err(no_new_target()));
                }
                match self.source_of(r, &opening.path, key, server, source) {
                    Ok(source) => opening.fetched = Some(source),
                    Err(refusal) => return Ok(Err(refusal)),
                }
            }
            Part::Target { .. } | Part::None => {}
        }
        match verified {
            VerifiedCapability::Read(reading) => {
                let opened = opening.read(reading);
                Ok(opened.and_then(|opened| self.ok(stream, |out| opened.encode(out))))
            }
            VerifiedCapability::Striped(grant) => {
                let reply = self.hand_on(stream)?;
                opening.striped_apart(grant, reply);
                Ok(Ok(()))
            }
            VerifiedCapability::Write(writing) => {
                let reply = self.hand_on(stream)?;
                self.node.on_worker(reply, move |reply| {
                    match writing.attach(opening.path.as_bytes(), opening.expected_len) {
                        Ok(placed) => opening.write(placed, reply),
                        Err(error) => {
                            reply.refuse(&Refusal::of_placed(&format_args!("open {}", opening.path), &error));
                        }
                    }
                });
                Ok(Ok(()))
            }
        }
    }
}

impl Connection {
    fn at_disk(&self, r: &Open, path: NsPath) -> AtDisk {
        AtDisk {
            node: self.node.clone(),
            session: self.session.clone(),
            path,
            mode: mode_of(r),
            with_stat: self.wants_stat(r),
            expected_len: announced_len(r),
            mtime: own::mtime_of(&r.target),
            stale_replicas: stale_replicas(&r.target),
            copying: Copying::No,
            fetched: None,
        }
    }

    /// Another server asks for a file on behalf of a client that has opened it here: the client's permission is good for it, as long as the client has
    /// the file open.
    pub(super) fn fetch_of_granted(
        &mut self,
        stream: StreamId,
        r: &Open,
        path: NsPath,
        (key, origin): (&[u8], &[u8]),
    ) -> Result<Result<(), Refusal>, Stop> {
        let opening = AtDisk { copying: Copying::ForAnother, ..self.at_disk(r, path) };
        let reply = self.hand_on(stream)?;
        let open_request =
            OpenRequest { path: opening.path.clone(), from: self.session.peer.ip(), origin: origin.to_vec() };
        let rendezvous = Arc::clone(&self.node.rendezvous);
        let then = Box::new(move |allowed: Result<Option<VerifiedCapability>, Refusal>| match allowed {
            Ok(Some(verified)) => opening.read_or_striped(verified, reply),
            Ok(None) => reply.refuse(&Refusal::unsupported("A third-party copy from here")),
            Err(refusal) => reply.refuse(&refusal),
        });
        rendezvous.ask(key, open_request, Instant::now(), then);
        Ok(Ok(()))
    }

    /// A cut by name, with the permission that the manager gave with its redirect: an update in place that this server makes itself.
    pub(crate) fn truncate_granted(
        &mut self,
        stream: StreamId,
        target: &PathArg,
        path: NsPath,
        len: u64,
    ) -> Result<Result<(), Refusal>, Stop> {
        let Role::Disk(disk) = &self.node.role else {
            return Ok(Err(Refusal::unsupported("A capability of a cluster's manager")));
        };
        let capability = target.get(types::capability::OPAQUE_KEY.as_bytes()).unwrap_or_default();
        let writing = match disk.verified(capability, &path, Some(self.node.config.actor.principal)) {
            Ok(VerifiedCapability::Write(writing)) => writing,
            Ok(verified) if verified.is_to_write() => {
                return Ok(Err(Refusal::unsupported("To cut a striped file by its name")));
            }
            Ok(_) => return Ok(Err(Refusal::read_only(&path))),
            Err(error) => return Ok(Err(Refusal::of_placed(&format_args!("truncate {path}"), &error))),
        };
        let opening = AtDisk {
            node: self.node.clone(),
            session: self.session.clone(),
            path,
            mode: 0,
            with_stat: false,
            expected_len: None,
            mtime: None,
            stale_replicas: Vec::new(),
            copying: Copying::No,
            fetched: None,
        };
        let reply = self.hand_on(stream)?;
        self.node.on_worker(reply, move |reply| match writing.attach(opening.path.as_bytes(), None) {
            Ok(placed) => opening.cut(&placed, len, reply),
            Err(error) => reply.refuse(&Refusal::of_placed(&format_args!("truncate {}", opening.path), &error)),
        });
        Ok(Ok(()))
    }
}

/// A striped file is being opened, as long as this lives.
struct UnderWay<'a> {
    node: &'a Node,
    object: ObjectId,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.node.writers.lock().end_opening(self.object);
    }
}

impl AtDisk {
    fn read(self, reading: ReadGrant) -> Result<OpenReply, Refusal> {
        let (ino, mode, changed) = reading.attributes();
        let opening = AtDisk { mode, ..self };
        let opened = reading.open();
        let (reader, permit) = opened.map_err(|error| opening.not_shown(&error))?;
        let (object, len) = (reader.replica().object, reader.len());
        opening.insert((ino, object), changed, len, Access::Read(Shown::new(reader, Some(permit))))
    }

    /// The client tells the manager what is lacking here, beside what others lack: it is sent to none of them again.
    fn not_shown(&self, error: &PlacedError) -> Refusal {
        let refusal = Refusal::of_placed(&format_args!("open {}", self.path), error);
        match (refusal, error) {
            (Refusal::Redirect(to), PlacedError::StaleReplica { stale_replicas, .. }) => {
                tracing::warn!(path = %self.path, object = %stale_replicas.object, store = %stale_replicas.store, "a reader was sent here for an object that is not here");
                let opaque = format!("{STALE_REPLICAS_KEY}={}", stale_replicas.show(&self.stale_replicas));
                Refusal::Redirect(Redirect { opaque, ..to })
            }
            (refusal, _) => refusal,
        }
    }

    /// Where the answer is somebody's duty. Does not block.
    fn read_or_striped(self, verified: VerifiedCapability, reply: Reply) {
        match verified {
            VerifiedCapability::Striped(grant) if !matches!(grant.rights, StripedRights::Write { .. }) => {
                self.striped_apart(grant, reply);
            }
            VerifiedCapability::Read(reading) => match self.read(reading) {
                Ok(opened) => reply.ok(|out| opened.encode(out)),
                Err(refusal) => reply.refuse(&refusal),
            },
            VerifiedCapability::Striped(_) | VerifiedCapability::Write(_) => reply.refuse(&source_to_write()),
        }
    }

    /// A striped file, on a thread of its own.
    fn striped_apart(self, grant: StripedGrant, reply: Reply) {
        let manager = match &self.node.role {
            Role::Disk(disk) => disk.manager(),
            Role::Alone { .. } | Role::Manager(_) => None,
        };
        let (Some(striper), Some(manager)) = (self.node.config.striper.clone(), manager) else {
            return reply.refuse(&Refusal::unsupported("A striped file"));
        };
        let Some(slot) = self.node.striped_opens.take() else { return reply.refuse(&Refusal::busy()) };
        let open = StripedOpen { manager, path: self.path.clone(), grant, expected_len: self.expected_len };
        let node = self.node.clone();
        node.apart(reply, move |reply| {
            self.striped(&*striper.0, open, reply);
            drop(slot);
        });
    }

    /// On a worker. In closing standing from the beginning: nobody can take it up, and whatever its end is, it has one.
    fn cut(self, placed: &Arc<Placed>, len: u64, reply: Reply) {
        let owner = Owner(self.session.number);
        let object = placed.replica().object;
        let known = (placed.ino(), object, placed.writer());
        let lease = match self.lease(owner, known, placed.is_new(), Making::Placed(Arc::clone(placed))) {
            Ok(lease) => lease,
            Err(refusal) => return reply.refuse(&refusal),
        };
        if !self.node.writers.lock().begin_close(object, owner) {
            let text = format!("{} is being closed at this moment", self.path);
            return reply.refuse(&Refusal::Wait { seconds: 1, text });
        }
        endings::truncate_placed(&self.node, &lease, placed, len, reply);
    }

    /// On a worker.
    fn write(self, placed: Arc<Placed>, reply: Reply) {
        let owner = Owner(self.session.number);
        let object = placed.replica().object;
        match self.lease(
            owner,
            (placed.ino(), object, placed.writer()),
            placed.is_new(),
            Making::Placed(Arc::clone(&placed)),
        ) {
            Ok(lease) => self.insert_writer(owner, lease, placed.len(), reply),
            Err(refusal) => reply.refuse(&refusal),
        }
    }

    fn insert_writer(mut self, owner: Owner, lease: Arc<Lease>, len: u64, reply: Reply) {
        if let Some(mtime) = self.mtime {
            lease.set_mtime(mtime);
        }
        let node = self.node.clone();
        let (ino, object) = (lease.ino, lease.object);
        if let Some(source) = self.fetched.take() {
            self.copying = Copying::Fetched(PullJob::new(source, Arc::clone(&lease), owner));
        }
        let access = Access::Write(WriteAccess::new(owner, lease, false));
        match self.insert((ino, object), wall_clock(), len, access) {
            Ok(opened) => reply.ok(|out| opened.encode(out)),
            Err(refusal) => {
                node.writers.lock().detach(object, owner, false, Instant::now());
                reply.refuse(&refusal);
            }
        }
    }

    /// A striped file. It waits for other servers.
    fn striped(self, striper: &dyn Striper, open: StripedOpen, reply: Reply) {
        let grant = open.grant;
        let opened = || {
            let refused = |error| MakingError::from(error).refusal(&format_args!("open {}", self.path));
            striper.open(&open).map_err(refused)
        };
        let StripedRights::Write { writing, .. } = grant.rights else {
            let file = match opened() {
                Ok(file) => file,
                Err(refusal) => return reply.refuse(&refusal),
            };
            let opening = AtDisk { mode: grant.mode, ..self };
            let (len, access) = (file.len(), Access::Read(Shown::striped(file)));
            return match opening.insert((grant.ino, grant.object), grant.mtime, len, access) {
                Ok(opened) => reply.ok(|out| opened.encode(out)),
                Err(refusal) => reply.refuse(&refusal),
            };
        };
        let (owner, known) = (Owner(self.session.number), (grant.ino, grant.object, writing.writer));
        let begun = self.node.writers.lock().begin_opening(grant.object);
        let Begin::Yes(before) = begun else { return reply.refuse(&self.busy()) };
        let opening = UnderWay { node: &self.node, object: grant.object };
        let leased = match before.map(|lease| (lease.token(), lease.writer())) {
            // The same again: its units are open, and opening them anew would take them from whoever writes through the other handle.
            Some((token, Some(making))) if token == writing.writer => self.lease(owner, known, true, making),
            Some((token, _)) if token.epoch > writing.writer.epoch => Err(Refusal::fenced(&self.path)),
            _ => opened().and_then(|file| self.lease(owner, known, true, Making::Striped(file))),
        };
        drop(opening);
        match leased {
            Ok(lease) => {
                let len = lease.writer().map_or(0, |making| making.len());
                self.insert_writer(owner, lease, len, reply);
            }
            Err(refusal) => reply.refuse(&refusal),
        }
    }

    fn busy(&self) -> Refusal {
        let text = format!("{} is being opened or closed at this moment", self.path);
        Refusal::Wait { seconds: 1, text }
    }

    /// The lease on what this client writes: the one that is there, if it is the same writing or this session's own, or a new one. Whoever held it
    /// before is fenced.
    fn lease(
        &self,
        owner: Owner,
        (ino, object, writer): (Ino, ObjectId, WriterToken),
        fresh: bool,
        making: Making,
    ) -> Result<Arc<Lease>, Refusal> {
        let before = match self.node.writers.lock().take_up(object, owner) {
            TakeUp::Yours(lease) => Some(lease),
            TakeUp::Wait => return Err(self.busy()),
            TakeUp::Unknown => None,
        };
        let mut missing = Missing::default();
        if let Some(lease) = before {
            if lease.token() == writer {
                let still = || self.node.writers.lock().is_attached(object, owner);
                let open = || Ok(making.clone());
                return match lease.hand_over(owner, writer, still, open) {
                    Ok(Some(_)) => Ok(lease),
                    Ok(None) => Err(Refusal::fenced(&self.path)),
                    Err(error) => Err(error.refusal(&format_args!("open {}", self.path))),
                };
            }
            match lease.go_on_with(owner, writer, &making) {
                GoesOn::Yes => return Ok(lease),
                GoesOn::HasLater => return Err(Refusal::fenced(&self.path)),
                GoesOn::NotHere => lease.fence(),
            }
            // What was refused then nobody has written since.
            missing.clone_from(&lease.missing.lock());
        }
        let facts = LeaseFacts {
            path: self.path.clone(),
            client: self.session.client().unwrap_or_default(),
            fresh,
            begun: false,
            expected_len: self.expected_len,
            boot: self.node.config.boot,
            room: Some(self.node.writer_memory.take_regardless(self.session.peer.ip(), self.expected_len)),
        };
        let state = LeaseState { owner: Some(owner), token: writer, writer: Some(making) };
        let lease = Lease::new((ino, object), facts, state);
        *lease.missing.lock() = missing;
        self.node.writers.lock().attach(object, owner, Arc::clone(&lease));
        Ok(lease)
    }

    fn insert(
        self,
        (ino, object): (Ino, ObjectId),
        changed: Timestamp,
        len: u64,
        access: Access,
    ) -> Result<OpenReply, Refusal> {
        let stat = self.with_stat.then(|| shown_bare(ino.0, len, self.mode, changed));
        let Self { session, path, mode, copying, .. } = self;
        let file = move |_| Arc::new(OpenFile { ino, object, path, mode, access, copying });
        match session.handles.insert(file) {
            Ok(handle) => Ok(OpenReply { handle, compression: None, stat }),
            Err(reason) => Err(no_handle(reason)),
        }
    }
}
