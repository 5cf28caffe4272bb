//! open: for reading at once, from a view of the namespace and the store; for writing through the committer, whose
//! completion makes the piece and answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Instant;

use namespace::{Durability, How, NsError, OpenKind, OpenWrite, OpenedWrite, Resume, Vouched};
use store::{NewPiece, PieceState, Reader, StoreError, Writer};
use types::{ClientIdentity, ErrorCode, NsPath, PieceId, Timestamp, UploadId};
use wire::request::{Open, OpenOptions, OpenOptions2};
use wire::response::{OpenReply, StatReply};
use wire::{ErrorNumber, StreamId};

use crate::answer::Reply;
use crate::config::Planted;
use crate::connection::{Connection, Stop};
use crate::endings;
use crate::handles::NoHandle;
use crate::node::{Node, wall_clock};
use crate::open_file::{Access, Copying, Lease, LeaseFacts, LeaseState, OpenFile, WriteAccess};
use crate::refusal::Refusal;
use crate::requests::attributes::shown_bare;
use crate::requests::{own, parse_new_path, parse_path};
use crate::session::Session;
use crate::third_party::{Asking, Grant, Part, PullJob, PullSource, addresses_of};
use crate::writer_memory::Room;
use crate::writers::{Owner, TakeUp};

/// How often a reader looks again when the content that it found was replaced and deleted under its eyes.
const LOOKS_MAX: usize = 4;
/// From this version on a client may mean what stands in the reserved bytes of an open.
const OPTIONS2_VERSION: u32 = 0x520;
/// Files made without permission bits get these.
const FILE_MODE: u16 = 0o644;

impl Connection {
    /// kXR_open.
    pub(crate) fn open(&mut self, stream: StreamId, r: &Open) -> Result<Result<(), Refusal>, Stop> {
        let has = |option| r.options.has(option);
        let makes = has(OpenOptions::NEW) || has(OpenOptions::DELETE);
        let parsed = if makes { parse_new_path(&r.target.path) } else { parse_path(&r.target.path) };
        let path = match parsed {
            Ok(path) => path,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let part = match Part::of(&r.target) {
            Ok(part) => part,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let template = match self.template_of(r) {
            Ok(template) => template,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let writing =
            [OpenOptions::NEW, OpenOptions::DELETE, OpenOptions::UPDATE, OpenOptions::APPEND, OpenOptions::WRITE_ONLY];
        if writing.into_iter().any(has) || (!has(OpenOptions::READ) && self.writes(&path)) {
            return match part {
                Part::None => self.open_to_write(stream, r, path, None, template),
                _ if template.is_some() => {
                    let text = "A third-party copy gets its content from elsewhere, and not from a template";
                    Ok(Err(Refusal::new(ErrorNumber::ARG_INVALID, text)))
                }
                Part::Target { .. } if !makes => {
                    let text = "The target of a third-party copy is a new file, or replaces one";
                    Ok(Err(Refusal::new(ErrorNumber::ARG_INVALID, text)))
                }
                Part::Target { key, server, path: source } => {
                    let source = self.source_of(r, &path, key, server, source);
                    source.map_or_else(
                        |refusal| Ok(Err(refusal)),
                        |source| self.open_to_write(stream, r, path, Some(source), None),
                    )
                }
                Part::Source { .. } | Part::Fetch { .. } => {
                    let text = "The source of a third-party copy is opened for reading";
                    Ok(Err(Refusal::new(ErrorNumber::ARG_INVALID, text)))
                }
            };
        }
        let opening = Reading {
            node: self.node.clone(),
            session: self.session.clone(),
            path,
            partial: r.target.get(b"weir.partial") == Some(b"1"),
            with_stat: self.wants_stat(r),
        };
        match part {
            Part::None | Part::Target { .. } => {
                let opened = opening.open(Copying::No);
                Ok(opened.and_then(|opened| self.ok(stream, |out| opened.encode(out))))
            }
            Part::Source { key, dst } => {
                let reply = self.hand_on(stream)?;
                let client = self.identity();
                let origin = format!("{}.{}", client.user, client.pid).into_bytes();
                self.node.on_worker(reply, move |reply| {
                    let grant = addresses_of(&dst).map(|to| Grant { path: opening.path.clone(), to, origin });
                    let allowed = grant.and_then(|grant| opening.node.rendezvous.allow(key, grant));
                    let copying = allowed.map(|registration| Copying::Allowed { _registration: registration });
                    opening.answer(copying, reply);
                });
                Ok(Ok(()))
            }
            Part::Fetch { key, origin } => {
                let reply = self.hand_on(stream)?;
                let asking = Asking { path: opening.path.clone(), from: self.session.peer.ip(), origin };
                let rendezvous = Arc::clone(&self.node.rendezvous);
                let then = Box::new(move |allowed: Result<(), Refusal>| {
                    opening.answer(allowed.map(|()| Copying::ForAnother), reply);
                });
                rendezvous.ask(&key, asking, Instant::now(), then);
                Ok(Ok(()))
            }
        }
    }

    /// Where a third-party copy is to be fetched from.
    fn source_of(
        &self,
        r: &Open,
        target: &NsPath,
        key: String,
        server: String,
        path: Option<String>,
    ) -> Result<PullSource, Refusal> {
        let path = path.unwrap_or_else(|| target.to_string());
        if !self.node.pulls.is_offered() {
            // XrdCl looks for these words to fall back to a copy through itself.
            return Err(Refusal::new(ErrorNumber::FS_ERROR, format!("Unable to open {target}; tpc not supported")));
        }
        self.node.pulls.allow(&server)?;
        let client = self.identity();
        let origin = format!("{}.{}", client.user, client.pid);
        let expected_len = std::str::from_utf8(r.target.get(b"oss.asize").unwrap_or_default()).ok();
        let expected_len = expected_len.and_then(|len| len.parse().ok());
        let client = self.session.peer.ip().to_canonical();
        Ok(PullSource { server, path, key, origin, client, expected_len })
    }

    /// Whether this client has this file in the making. XrdCl opens again what it had opened with `new` alone by
    /// asking for nothing: neither to read nor to update.
    fn writes(&self, path: &NsPath) -> bool {
        let client = self.identity();
        let found = self.node.namespace.read(|read| namespace::find_writer(read, &client, path));
        found.is_ok_and(|found| !found.is_empty())
    }

    fn open_to_write(
        &mut self,
        stream: StreamId,
        r: &Open,
        path: NsPath,
        fetched: Option<PullSource>,
        template: Option<Arc<OpenFile>>,
    ) -> Result<Result<(), Refusal>, Stop> {
        let how = if r.options.has(OpenOptions::DELETE) {
            How::Replace
        } else if r.options.has(OpenOptions::NEW) {
            How::NewOnly
        } else {
            How::Update
        };
        if how != How::Update && self.node.floor_reached.load(Ordering::Relaxed) {
            let text = format!("Cannot open {path}: no space left for new data; remove files or add space");
            return Ok(Err(Refusal::new(ErrorNumber::NO_SPACE, text)));
        }
        let client = Arc::new(self.identity());
        let number = |key: &[u8]| std::str::from_utf8(r.target.get(key)?).ok()?.parse::<u64>().ok();
        let expected_len = number(b"oss.asize");
        // Who comes back to what it writes has room already; told to wait, it would lose it.
        let room = if how == How::Update && self.writes(&path) {
            None
        } else {
            let room = self.node.writer_memory.take(self.session.peer.ip(), expected_len);
            if room.is_none() {
                let text = format!("Cannot open {path} now: as many files are open for writing as there is memory for");
                return Ok(Err(Refusal::Wait { seconds: 3, text }));
            }
            room
        };
        let resume = match number(b"weir.upload") {
            Some(upload) => Some(Resume::Upload(UploadId(upload))),
            None => (r.target.get(b"weir.resume") == Some(b"1")).then_some(Resume::Visible),
        };
        let op = OpenWrite {
            path,
            how,
            // The stock server takes `async`, which all its clients send, for `mkpath`: whoever makes a file over root:// counts on it.
            mkpath: r.options.has(OpenOptions::MKPATH) || r.options.has(OpenOptions::ASYNC),
            mode: if r.mode.0 & 0o777 == 0 { FILE_MODE } else { r.mode.0 & 0o777 },
            // What is fetched shows when it is whole.
            posc: r.options.has(OpenOptions::POSC) || fetched.is_some(),
            client: (*client).clone(),
            boot: self.node.config.boot,
            // After a restart nobody remembers that it was being filled: no length that it can have must make it whole.
            expected_len: if fetched.is_some() || template.is_some() { Some(u64::MAX) } else { expected_len },
            restarted: r.target.get(b"tried").is_some_and(|hosts| !hosts.is_empty()),
            vouched: None,
            resume: if how == How::Update { resume } else { None },
        };
        let mut reply = self.hand_on(stream)?;
        let (granted, filling) = match template {
            Some(template) => {
                Self::put_off_template(&mut reply, &template);
                let (granted, filling) = sync_channel(1);
                (Some(granted), Some((template, filling)))
            }
            None => (None, None),
        };
        let opening = Opening {
            node: self.node.clone(),
            session: self.session.clone(),
            client,
            op,
            with_stat: self.wants_stat(r),
            room,
            fetched,
            mtime: own::mtime_of(&r.target),
            granted,
        };
        if how == How::Update && self.node.old_boots.load(Ordering::Relaxed) {
            self.node.on_worker(reply, move |reply| opening.after_a_boot(reply));
        } else if how != How::Update && opening.has_own_detached_uploads() {
            self.node.on_worker(reply, move |reply| {
                endings::end_own_uploads(&opening.node, &opening.client, &opening.op.path);
                opening.submit(reply);
            });
        } else {
            opening.submit(reply);
        }
        if let Some((template, filling)) = filling {
            self.out.leave()?;
            let opened = filling.recv();
            self.out.back();
            // Otherwise it was refused.
            if let Ok((opened, reply)) = opened {
                self.fill_from(template, opened, reply)?;
            }
        }
        Ok(Ok(()))
    }

    fn options2(&self, r: &Open) -> OpenOptions2 {
        if self.client_version < OPTIONS2_VERSION { OpenOptions2::NONE } else { r.options2 }
    }

    fn wants_stat(&self, r: &Open) -> bool {
        r.options.has(OpenOptions::RETSTAT) || self.options2(r).has(OpenOptions2::RETSTATX)
    }

    /// The file whose content a new one is to have, checked as the stock server does. Where a new one is to lie on the same file system as
    /// an open one, it does: there is one.
    fn template_of(&self, r: &Open) -> Result<Option<Arc<OpenFile>>, Refusal> {
        let options = self.options2(r);
        let (dup, samefs) = (options.has(OpenOptions2::DUP), options.has(OpenOptions2::SAMEFS));
        if !dup && !samefs {
            return Ok(None);
        }
        let invalid = |text| Err(Refusal::new(ErrorNumber::ARG_INVALID, text));
        if dup && !r.options.has(OpenOptions::UPDATE) && !r.options.has(OpenOptions::WRITE_ONLY) {
            return invalid("A file that gets the content of another one is opened for writing");
        }
        if !r.options.has(OpenOptions::NEW) {
            return invalid("Only a new file gets the content, or the place, of another one");
        }
        let template = self.file(r.template)?;
        Ok(dup.then_some(template))
    }

    /// Who the client said it is; login comes before everything that needs it.
    pub(crate) fn identity(&self) -> ClientIdentity {
        self.session.client().map(|client| (*client).clone()).unwrap_or_default()
    }
}

/// An open for reading.
struct Reading {
    node: Arc<Node>,
    session: Arc<Session>,
    path: NsPath,
    partial: bool,
    with_stat: bool,
}

impl Reading {
    fn open(self, copying: Copying) -> Result<OpenReply, Refusal> {
        let Self { node, session, path, partial, with_stat } = self;
        let actor = &node.config.actor;
        let mut looks = 0;
        let (inode, body, reader) = loop {
            let inode = node
                .namespace
                .read(|read| namespace::open_read(read, actor, &path, partial))
                .map_err(|error| Refusal::of_namespace(&"open", &error))?;
            let Some(body) = inode.content().map(|content| content.body) else {
                return Err(Refusal::new(ErrorNumber::NOT_FILE, format!("Cannot open {path}: not a file")));
            };
            // What it has written itself, a client sees at once.
            let reader = match node.own_writer(&session, body) {
                Some(_) => node.store.open_read_of_writer(PieceId::first(body)),
                None => node.store.open_read(PieceId::first(body)),
            };
            match reader {
                Ok(reader) => break (inode, body, reader),
                Err(StoreError::NotFound { .. }) if looks < LOOKS_MAX => looks += 1,
                Err(error) => return Err(Refusal::of_store(&format_args!("open {path}"), &error)),
            }
        };
        let stat = with_stat.then(|| reader_stat(&node, &inode, &reader));
        let (ino, mode) = (inode.ino, inode.access.mode);
        let file = OpenFile { ino, body, path, mode, access: Access::Read(reader), copying };
        let handle = session.handles.insert(move |_| Arc::new(file)).map_err(no_handle)?;
        Ok(OpenReply { handle, compression: None, stat })
    }

    /// The same where the answer is somebody's duty.
    fn answer(self, copying: Result<Copying, Refusal>, reply: Reply) {
        match copying.and_then(|copying| self.open(copying)) {
            Ok(opened) => reply.ok(|out| opened.encode(out)),
            Err(refusal) => reply.refuse(&refusal),
        }
    }
}

fn reader_stat(node: &Node, inode: &namespace::Inode, reader: &Reader) -> StatReply {
    StatReply { size: reader.len(), ..node.show(inode) }
}

fn no_handle(reason: NoHandle) -> Refusal {
    let text = match reason {
        NoHandle::SessionFull(limit) => format!("This session has {limit} open files, which is the limit; close some"),
        NoHandle::ServerFull(limit) => {
            return Refusal::Wait {
                seconds: 5,
                text: format!(
                    "This machine has its share of the {limit} files that all clients together may have open"
                ),
            };
        }
        NoHandle::Ended => "The session has ended".into(),
    };
    Refusal::new(ErrorNumber::NO_MEMORY, text)
}

/// An open for writing on its way through the committer.
struct Opening {
    node: Arc<Node>,
    session: Arc<Session>,
    client: Arc<ClientIdentity>,
    op: OpenWrite,
    with_stat: bool,
    room: Option<Room>,
    /// It is the target of a third-party copy.
    fetched: Option<PullSource>,
    /// What the file's last change is to be, if the client says so.
    mtime: Option<Timestamp>,
    /// Who fills it before the client gets the handle.
    granted: Option<SyncSender<(OpenReply, Reply)>>,
}

impl Opening {
    /// Hands the operation to the committer. Not to be called from a completion.
    fn submit(self, reply: Reply) {
        let node = self.node.clone();
        let op = self.op.clone();
        node.namespace.change(Durability::Written, node.context(), op, move |result| self.decided(result, reply));
    }

    /// Whether this client wrote hidden content for the same path before and went away without a close.
    fn has_own_detached_uploads(&self) -> bool {
        !self.op.restarted && !endings::own_detached_uploads(&self.node, &self.client, &self.op.path).is_empty()
    }

    /// Bytes of an earlier boot that were not synced may be lost without a trace, so the store cannot say that all is
    /// there; but it says how much is.
    fn after_a_boot(mut self, reply: Reply) {
        let found = self.node.namespace.read(|read| namespace::find_writer(read, &self.client, &self.op.path));
        let found = match found {
            Ok(found) => found,
            Err(error) => return reply.refuse(&Refusal::of_namespace(&"open", &error)),
        };
        if let Some(record) = found.iter().find(|record| record.boot != self.node.config.boot) {
            let kept_len = match self.node.store.status(record.piece()) {
                Ok(Some(status)) => match status.state {
                    PieceState::InMaking { durable_prefix, .. } => durable_prefix,
                    _ => status.len,
                },
                Ok(None) => 0,
                // Of what is there nobody may say that nothing is.
                Err(error) => return reply.refuse(&Refusal::of_store(&format_args!("open {}", self.op.path), &error)),
            };
            self.op.vouched = Some(Vouched { body: record.body, all_there: false, kept_len });
        }
        self.submit(reply);
    }

    /// The committer's completion: must not block.
    fn decided(self, result: Result<OpenedWrite, NsError>, reply: Reply) {
        let node = self.node.clone();
        let opened = match result {
            Ok(opened) => opened,
            Err(error @ NsError::LostBytes { .. }) => {
                let refusal = Refusal::of_namespace(&"open", &error);
                // It was marked by this open; otherwise its grace period goes on.
                let NsError::LostBytes { body, marked: true, .. } = error else { return reply.refuse(&refusal) };
                return node.must_do(reply, move |reply| {
                    endings::lost(&self.node, body);
                    reply.refuse(&refusal);
                });
            }
            Err(error) => return self.refused(error, reply),
        };
        if opened.dropped.is_empty() {
            self.proceed(opened, reply);
        } else {
            node.must_do(reply, move |reply| {
                opened.dropped.iter().for_each(|body| endings::dropped(&self.node, *body));
                self.proceed(opened, reply);
            });
        }
    }

    /// A client that repeats an open whose answer it did not get finds its own file in the way.
    fn refused(mut self, error: NsError, reply: Reply) {
        let in_the_way = matches!(error.code(), ErrorCode::Exists | ErrorCode::Busy);
        if !in_the_way || self.op.restarted || self.op.how == How::Update {
            return reply.refuse(&Refusal::of_namespace(&"open", &error));
        }
        let node = self.node.clone();
        node.must_do(reply, move |reply| {
            let found = self.node.namespace.read(|read| namespace::find_writer(read, &self.client, &self.op.path));
            let writers = self.node.writers.lock();
            let own = found.is_ok_and(|found| found.iter().any(|record| writers.is_detached(record.body)));
            drop(writers);
            if own {
                self.op.restarted = true;
                self.submit(reply);
            } else {
                reply.refuse(&Refusal::of_namespace(&"open", &error));
            }
        });
    }

    fn owner(&self) -> Owner {
        Owner(self.session.number)
    }

    /// The namespace has opened it: now the store. Does not block.
    fn proceed(mut self, opened: OpenedWrite, reply: Reply) {
        let fresh = matches!(opened.kind, OpenKind::New | OpenKind::Upload(_));
        if fresh {
            return match self.create(opened.piece) {
                Ok(writer) => {
                    let lease = self.lease(&opened, true, Some(writer));
                    self.node.writers.lock().attach(opened.body, self.owner(), Arc::clone(&lease));
                    self.grant(lease, 0, reply);
                }
                Err(error) => {
                    let refusal = Refusal::of_store(&format_args!("open {}", self.op.path), &error);
                    let (node, token) = (self.node.clone(), opened.writer);
                    node.must_do(reply, move |reply| {
                        endings::abandon(&self.node, token);
                        reply.refuse(&refusal);
                    });
                }
            };
        }
        let taken = {
            let node = Arc::clone(&self.node);
            let mut writers = node.writers.lock();
            match writers.take_up(opened.body, self.owner()) {
                TakeUp::Yours(lease) => Some(lease),
                TakeUp::Wait => None,
                TakeUp::Unknown => {
                    let fresh = matches!(opened.kind, OpenKind::Resumed(_));
                    let lease = self.lease(&opened, fresh, None);
                    writers.attach(opened.body, self.owner(), Arc::clone(&lease));
                    Some(lease)
                }
            }
        };
        let Some(lease) = taken else {
            let text = format!("{} is being closed at this moment", self.op.path);
            return reply.refuse(&Refusal::Wait { seconds: 1, text });
        };
        let node = self.node.clone();
        node.must_do(reply, move |reply| self.take_over(&opened, lease, reply));
    }

    /// The length that the client has announced.
    fn announced(&self) -> Option<u64> {
        match &self.fetched {
            Some(source) => source.expected_len,
            None if self.granted.is_some() => None,
            None => self.op.expected_len,
        }
    }

    fn create(&self, piece: PieceId) -> Result<Arc<Writer>, StoreError> {
        let path_hint = self.op.path.as_bytes();
        let incarnation = self.node.namespace.incarnation();
        self.node.store.create(piece, NewPiece { path_hint, expected_len: self.announced(), incarnation })
    }

    fn lease(&mut self, opened: &OpenedWrite, fresh: bool, writer: Option<Arc<Writer>>) -> Arc<Lease> {
        // It came back to something that has ended meanwhile, or that nobody knew of: the room that it was to find there is missing.
        let room = self
            .room
            .take()
            .unwrap_or_else(|| self.node.writer_memory.take_regardless(self.session.peer.ip(), self.announced()));
        let facts = LeaseFacts {
            path: self.op.path.clone(),
            client: Arc::clone(&self.client),
            fresh,
            begun: opened.kind == OpenKind::Update,
            expected_len: self.announced(),
            boot: self.node.config.boot,
            room: Some(room),
        };
        let owner = writer.is_some().then(|| self.owner());
        Lease::new((opened.ino, opened.body), facts, LeaseState { owner, token: opened.writer, writer })
    }

    /// On a worker: waits for what the old handle has begun, and opens the store's side.
    fn take_over(self, opened: &OpenedWrite, lease: Arc<Lease>, reply: Reply) {
        let owner = self.owner();
        let still = || self.node.writers.lock().is_attached(opened.body, owner);
        let open = || match self.node.store.reopen(opened.piece) {
            // Stopped between the namespace's record and the store's.
            Err(StoreError::NotFound { .. }) if lease.fresh => self.create(opened.piece),
            result => result,
        };
        match lease.hand_over(owner, opened.writer, still, open) {
            Ok(Some(writer)) => {
                let len = writer.len();
                self.grant(lease, len, reply);
            }
            Ok(None) => reply.refuse(&Refusal::fenced(&self.op.path)),
            Err(error) => {
                self.node.writers.lock().failed(opened.body, false, Instant::now());
                reply.refuse(&Refusal::of_store(&format_args!("open {}", self.op.path), &error));
            }
        }
    }

    /// Gives the handle out. Does not block.
    fn grant(self, lease: Arc<Lease>, len: u64, reply: Reply) {
        let owner = self.owner();
        let (ino, body, path) = (lease.ino, lease.body, self.op.path.clone());
        if let Some(mtime) = self.mtime {
            lease.set_mtime(mtime);
        }
        let found = self.node.namespace.read(|read| namespace::stat_ino(read, ino));
        // A file that is overwritten keeps its permission bits.
        let mode = found.as_ref().map_or_else(|_| *lease.mode.get_or_init(|| self.op.mode), |inode| inode.access.mode);
        let stat = self.with_stat.then(|| match &found {
            Ok(inode) if !lease.fresh => StatReply { size: len, ..self.node.show(inode) },
            _ => shown_bare(ino.0, len, mode, wall_clock()),
        });
        if self.granted.is_some() {
            // Until it is filled. Whatever comes between, nobody closes it as whole.
            lease.missing.lock().refused(0, u64::MAX, ErrorNumber::IN_PROGRESS);
        }
        let unfenced = self.node.config.has(Planted::ForgetFence);
        let copying = match self.fetched {
            Some(source) => Copying::Fetched(PullJob::new(source, Arc::clone(&lease), owner)),
            None => Copying::No,
        };
        let inserted = self.session.handles.insert(move |_| {
            let access = Access::Write(WriteAccess::new(owner, lease, unfenced));
            Arc::new(OpenFile { ino, body, path, mode, access, copying })
        });
        match inserted {
            Ok(handle) => {
                let opened = OpenReply { handle, compression: None, stat };
                match self.granted {
                    // There is room for the one.
                    Some(granted) => drop(granted.send((opened, reply))),
                    None => reply.ok(|out| opened.encode(out)),
                }
            }
            Err(reason) => {
                self.node.writers.lock().detach(body, owner, false, Instant::now());
                reply.refuse(&no_handle(reason));
            }
        }
    }
}
