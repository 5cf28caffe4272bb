//! An open for writing, from the committer's answer to the handle: the store's side, who had the file before, what a client left behind.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Instant;

use namespace::{Durability, How, NsError, OpenKind, OpenWrite, OpenedWrite, Vouched};
use store::{NewReplica, ReplicaState, StoreError};
use types::{ClientIdentity, ErrorCode, ReplicaId, Timestamp};
use wire::ErrorNumber;
use wire::response::{OpenReply, StatReply};

use super::no_handle;
use crate::answer::Reply;
use crate::config::Planted;
use crate::endings;
use crate::making::{Making, MakingError};
use crate::node::{Node, wall_clock};
use crate::open_file::{Access, Copying, Lease, LeaseFacts, LeaseState, OpenFile, WriteAccess};
use crate::refusal::Refusal;
use crate::requests::attributes::shown_bare;
use crate::session::Session;
use crate::third_party::{PullJob, PullSource};
use crate::writer_memory::Room;
use crate::writers::{Owner, TakeUp};

/// An open for writing on its way through the committer.
pub(super) struct Opening {
    pub(super) node: Arc<Node>,
    pub(super) session: Arc<Session>,
    pub(super) client: Arc<ClientIdentity>,
    pub(super) op: OpenWrite,
    pub(super) with_stat: bool,
    pub(super) room: Option<Room>,
    /// It is the target of a third-party copy.
    pub(super) fetched: Option<PullSource>,
    /// What the file's last change is to be, if the client says so.
    pub(super) mtime: Option<Timestamp>,
    /// Who fills it before the client gets the handle.
    pub(super) verified: Option<SyncSender<(OpenReply, Reply)>>,
}

impl Opening {
    /// Hands the operation to the committer. Not to be called from a completion.
    pub(super) fn submit(self, reply: Reply) {
        let node = self.node.clone();
        let op = self.op.clone();
        node.change(Durability::Written, op, move |result| self.decided(result, reply));
    }

    /// Whether this client wrote hidden content for the same path before and went away without a close.
    pub(super) fn has_own_detached_uploads(&self) -> bool {
        !self.op.restarted && !endings::own_detached_uploads(&self.node, &self.client, &self.op.path).is_empty()
    }

    /// Bytes of an earlier boot that were not synced may be lost without a trace, so the store cannot say that all is
    /// there; but it says how much is.
    pub(super) fn after_a_boot(mut self, reply: Reply) {
        let found = self.node.read_names(|read| namespace::find_writer(read, &self.client, &self.op.path));
        let found = match found {
            Ok(found) => found,
            Err(error) => return reply.refuse(&Refusal::of_namespace(&"open", &error)),
        };
        if let Some(record) = found.iter().find(|record| record.boot != self.node.config.boot) {
            let kept_len = match self.node.store_of(record.replica()).and_then(|store| store.status(record.replica())) {
                Ok(Some(status)) => match status.state {
                    ReplicaState::InMaking { durable_prefix, .. } => durable_prefix,
                    _ => status.len,
                },
                Ok(None) => 0,
                // Of what is there nobody may say that nothing is.
                Err(error) => return reply.refuse(&Refusal::of_store(&format_args!("open {}", self.op.path), &error)),
            };
            self.op.vouched = Some(Vouched { object: record.object, all_there: false, kept_len });
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
                let NsError::LostBytes { object, marked: true, .. } = error else { return reply.refuse(&refusal) };
                return node.must_do(reply, move |reply| {
                    endings::lost(&self.node, object);
                    reply.refuse(&refusal);
                });
            }
            Err(error) => return self.refused(error, reply),
        };
        if opened.dropped.is_empty() {
            self.proceed(opened, reply);
        } else {
            node.must_do(reply, move |reply| {
                opened.dropped.iter().for_each(|object| endings::dropped(&self.node, *object));
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
            let found = self.node.read_names(|read| namespace::find_writer(read, &self.client, &self.op.path));
            let writers = self.node.writers.lock();
            let own = found.is_ok_and(|found| found.iter().any(|record| writers.is_detached(record.object)));
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
            return match self.create(opened.replica) {
                Ok(writer) => {
                    let lease = self.lease(&opened, true, Some(writer));
                    self.node.writers.lock().attach(opened.object, self.owner(), Arc::clone(&lease));
                    self.grant(lease, 0, reply);
                }
                Err(error) => {
                    let refusal = error.refusal(&format_args!("open {}", self.op.path));
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
            match writers.take_up(opened.object, self.owner()) {
                TakeUp::Yours(lease) => Some(lease),
                TakeUp::Wait => None,
                TakeUp::Unknown => {
                    let fresh = matches!(opened.kind, OpenKind::Resumed(_));
                    let lease = self.lease(&opened, fresh, None);
                    writers.attach(opened.object, self.owner(), Arc::clone(&lease));
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
            None if self.verified.is_some() => None,
            None => self.op.expected_len,
        }
    }

    fn create(&self, replica: ReplicaId) -> Result<Making, MakingError> {
        let path_hint = self.op.path.as_bytes();
        let incarnation = self.node.incarnation();
        let new = NewReplica { path_hint, expected_len: self.announced(), incarnation };
        Ok(Making::Here(self.node.store_of(replica)?.create(replica, new)?))
    }

    fn lease(&mut self, opened: &OpenedWrite, fresh: bool, writer: Option<Making>) -> Arc<Lease> {
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
        Lease::new((opened.ino, opened.object), facts, LeaseState { owner, token: opened.writer, writer })
    }

    /// On a worker: waits for what the old handle has begun, and opens the store's side.
    fn take_over(self, opened: &OpenedWrite, lease: Arc<Lease>, reply: Reply) {
        let owner = self.owner();
        let still = || self.node.writers.lock().is_attached(opened.object, owner);
        let open = || match self.node.store_of(opened.replica).and_then(|store| store.reopen(opened.replica)) {
            // Stopped between the namespace's record and the store's.
            Err(StoreError::NotFound { .. }) if lease.fresh => self.create(opened.replica),
            result => Ok(Making::Here(result?)),
        };
        match lease.hand_over(owner, opened.writer, still, open) {
            Ok(Some(writer)) => {
                let len = writer.len();
                self.grant(lease, len, reply);
            }
            Ok(None) => reply.refuse(&Refusal::fenced(&self.op.path)),
            Err(error) => {
                self.node.writers.lock().failed(opened.object, false, Instant::now());
                reply.refuse(&error.refusal(&format_args!("open {}", self.op.path)));
            }
        }
    }

    /// Gives the handle out. Does not block.
    fn grant(self, lease: Arc<Lease>, len: u64, reply: Reply) {
        let owner = self.owner();
        let (ino, object, path) = (lease.ino, lease.object, self.op.path.clone());
        if let Some(mtime) = self.mtime {
            lease.set_mtime(mtime);
        }
        let found = self.node.read_names(|read| namespace::stat_ino(read, ino));
        // A file that is overwritten keeps its permission bits.
        let mode = found.as_ref().map_or_else(|_| *lease.mode.get_or_init(|| self.op.mode), |inode| inode.access.mode);
        let stat = self.with_stat.then(|| match &found {
            Ok(inode) if !lease.fresh => StatReply { size: len, ..self.node.show(inode) },
            _ => shown_bare(ino.0, len, mode, wall_clock()),
        });
        if self.verified.is_some() {
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
            Arc::new(OpenFile { ino, object, path, mode, access, copying })
        });
        match inserted {
            Ok(handle) => {
                let opened = OpenReply { handle, compression: None, stat };
                match self.verified {
                    // There is room for the one.
                    Some(verified) => drop(verified.send((opened, reply))),
                    None => reply.ok(|out| opened.encode(out)),
                }
            }
            Err(reason) => {
                self.node.writers.lock().detach(object, owner, false, Instant::now());
                reply.refuse(&no_handle(reason));
            }
        }
    }
}
