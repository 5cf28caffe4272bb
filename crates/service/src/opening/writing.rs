//! The steps of an open for writing from the committer's answer to the handle, including takeovers and what a client
//! has left behind.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Instant;

use namespace::{Durability, NsError, OpenKind, OpenWrite, OpenedWrite, RecoveredWrite, WriteMode};
use store::{NewReplica, ReplicaState, StoreError};
use types::{ErrorCode, ReplicaId, RequestNumber, Timestamp};

use super::Opened;
use crate::answer::Answer;
use crate::attributes::Stat;
use crate::caller::Caller;
use crate::config::PlantedBug;
use crate::conflicts::{Claim, Conflict};
use crate::error::Error;
use crate::lease::{Lease, LeaseFacts, LeaseState, Unreadable, WriteAccess};
use crate::names::{By, wall_clock};
use crate::open_file::{Access, Copying, OpenFile};
use crate::open_writes::{Entered, Manner, Wanted};
use crate::service::Service;
use crate::session::Session;
use crate::sharers::{ExclusiveUse, Newcomer};
use crate::third_party::{PullJob, PullSource};
use crate::write_target::{WriteTarget, WriteTargetError};
use crate::writer_memory::Room;
use crate::writers::Owner;

/// An open for writing that is with the committer.
pub(super) struct Opening<A> {
    pub(super) service: Arc<Service>,
    pub(super) session: Arc<Session>,
    pub(super) caller: Arc<Caller>,
    pub(super) op: OpenWrite,
    /// The number of the request.
    pub(super) request: Option<RequestNumber>,
    pub(super) with_stat: bool,
    pub(super) room: Option<Room>,
    pub(super) manner: Manner,
    /// The client repeats its request, or says that it comes back.
    pub(super) comes_again: bool,
    /// The source, if the file is the target of a third-party copy.
    pub(super) fetched: Option<PullSource>,
    /// The modification time that the client wants.
    pub(super) mtime: Option<Timestamp>,
    /// With a template: the thread that fills the file before the client gets the handle.
    pub(super) filler: Option<SyncSender<(Opened, A)>>,
    /// An open write of another client was ended for this one.
    pub(super) has_settled: bool,
    /// Why the client may not read what it opens, if it may not.
    pub(super) unreadable: Option<Unreadable>,
}

impl<A: Answer<Opened>> Opening<A> {
    /// Submits the operation to the committer. Do not call it from a completion.
    pub(super) fn submit(self, answer: A) {
        let service = Arc::clone(&self.service);
        let (op, caller) = (self.op.clone(), Arc::clone(&self.caller));
        let by = By::caller(&caller).numbered(self.request);
        // A new file that a power failure loses is not there afterwards, and its client learns that. A replacement must be durable:
        // otherwise the client would find the old file and write the rest of its data into that. The store makes the open of a change in
        // place durable.
        let durability = match op.how {
            WriteMode::NewOnly if !op.restarted => Durability::Written,
            WriteMode::NewOnly | WriteMode::Replace => Durability::Synced,
            WriteMode::Update => Durability::Written,
        };
        service.names.change(by, durability, op, move |result| self.decided(result, answer));
    }

    /// Whether this client has left an earlier upload to the same path without a close.
    pub(super) fn has_own_detached_uploads(&self) -> bool {
        !self.op.restarted
            && !self.service.writes.own_detached_uploads(&self.service.names, &self.caller, &self.op.path).is_empty()
    }

    /// Continues an open write of an earlier boot. Unsynced bytes may be lost without a trace, so the store cannot
    /// vouch for all of them. It can say how many are durable.
    pub(super) fn after_a_boot(mut self, answer: A) {
        let found = self.service.writes.of_caller(&self.service.names, &self.caller, &self.op.path);
        let found = match found {
            Ok(found) => found,
            Err(error) => return answer.give(Err(Error::of_namespace(&"open", &error))),
        };
        if let Some(record) = found.iter().find(|record| record.boot != self.service.settings.config.boot) {
            let kept_len = match self.service.stores.durable_len(record.replica()) {
                Ok(Some(kept_len)) => kept_len,
                Ok(None) => self.service.endings.len_without_object(record.token(), &self.op.path),
                // On an error, do not claim that nothing is there.
                Err(error) => return answer.give(Err(Error::of_store(&format_args!("open {}", self.op.path), &error))),
            };
            self.op.recovered = Some(RecoveredWrite { object: record.object, all_there: false, kept_len });
        }
        self.submit(answer);
    }

    /// Called by the committer, so it must not block.
    fn decided(self, result: Result<OpenedWrite, NsError>, answer: A) {
        let service = Arc::clone(&self.service);
        let opened = match result {
            Ok(opened) => opened,
            Err(error @ NsError::LostBytes { .. }) => {
                let refused = Error::of_namespace(&"open", &error);
                // Only the open that has marked the file ends it. Otherwise the grace period continues.
                let NsError::LostBytes { object, marked: true, .. } = error else { return answer.give(Err(refused)) };
                return service.workers.must_do(answer, move |answer| {
                    self.service.endings.lost(object);
                    answer.give(Err(refused));
                });
            }
            Err(error) => return self.refused(error, answer),
        };
        if opened.dropped.is_empty() {
            self.proceed(opened, answer);
        } else {
            service.workers.must_do(answer, move |answer| {
                opened.dropped.iter().for_each(|object| self.service.endings.dropped(*object));
                self.proceed(opened, answer);
            });
        }
    }

    /// A client may repeat an open because it did not get the answer. Its own file is then in the way, and it is
    /// restarted. Another client's open write is in the way, too; it may be one that this client may end.
    fn refused(mut self, error: NsError, answer: A) {
        let in_the_way = matches!(error.code(), ErrorCode::Exists | ErrorCode::Busy);
        let may_restart = in_the_way && !self.op.restarted && self.op.how != WriteMode::Update;
        let writer = match &error {
            NsError::Busy { writer, .. } => Some(*writer),
            _ => None,
        };
        if !may_restart && writer.is_none() {
            return answer.give(Err(Error::of_namespace(&"open", &error)));
        }
        let service = Arc::clone(&self.service);
        service.workers.must_do(answer, move |answer| {
            if may_restart && self.is_own_and_detached() {
                self.op.restarted = true;
                return self.submit(answer);
            }
            let Some(writer) = writer else { return answer.give(Err(Error::of_namespace(&"open", &error))) };
            let claim = if self.op.how == WriteMode::Update && self.op.resume.is_none() {
                Claim::NeedsComplete
            } else {
                Claim::TakesOver
            };
            match self.service.endings.settle(writer.object, self.caller.principal, claim) {
                // Once: another open write may have begun meanwhile.
                Conflict::Ended if !std::mem::replace(&mut self.has_settled, true) => self.submit(answer),
                conflict => answer.give(Err(conflict.error("open", &self.op.path))),
            }
        });
    }

    /// Whether an open write of this client for the path waits for its writer.
    fn is_own_and_detached(&self) -> bool {
        let found = self.service.writes.of_caller(&self.service.names, &self.caller, &self.op.path);
        let writers = self.service.writes.lock();
        found.is_ok_and(|found| found.iter().any(|record| writers.is_detached(record.object)))
    }

    fn owner(&self) -> Owner {
        self.session.owner()
    }

    /// Continues with the store after the namespace has opened the file. Does not block.
    fn proceed(mut self, opened: OpenedWrite, answer: A) {
        self.unreadable = self.why_unreadable(&opened);
        let fresh = matches!(opened.kind, OpenKind::New | OpenKind::Upload(_));
        // The same request may be in progress twice. The later one then continues the open write of the earlier one.
        let is_begun = self.request.is_some() && self.service.writes.lock().lease(opened.object).is_some();
        if fresh && !is_begun {
            return match self.create(opened.replica) {
                Ok(writer) => {
                    let entered = self.lease(&opened, true, Some(writer));
                    self.service.writes.lock().attach(opened.object, entered.key, Arc::clone(&entered.lease));
                    self.grant(entered, 0, answer);
                }
                Err(error) => {
                    let error = error.told(&format_args!("open {}", self.op.path));
                    let (service, token) = (Arc::clone(&self.service), opened.writer);
                    service.workers.must_do(answer, move |answer| {
                        self.service.endings.abandon(token, self.request, || answer.give(Err(error)));
                    });
                }
            };
        }
        let entered = match self.enter(&opened) {
            Ok(entered) => entered,
            Err(refused) => return answer.give(Err(refused)),
        };
        let service = Arc::clone(&self.service);
        service.workers.must_do(answer, move |answer| self.take_over(&opened, entered, answer));
    }

    /// Finds the lease of an open write that goes on, or makes one.
    fn enter(&mut self, opened: &OpenedWrite) -> Result<Entered, Error> {
        let service = Arc::clone(&self.service);
        let open = service.writes.lock().lease(opened.object);
        if open.as_ref().is_some_and(|lease| lease.caller.principal != self.caller.principal) {
            let text = format!("Cannot open {}: another principal is writing it", self.op.path);
            return Err(Error::new(ErrorCode::Busy, text));
        }
        let resumed = matches!(opened.kind, OpenKind::Resumed(_));
        let (object, path, manner) = (opened.object, &self.op.path, self.manner);
        let wanted = Wanted { object, path, manner, of: None, is_over: false };
        let shared = open.filter(|lease| resumed && lease.can_be_shared());
        if let Some(lease) = &shared {
            // It has noted this client and the one that began. Also if this one is refused, the other's close must tell it.
            lease.set_noted_sharers();
        }
        let entered = service.writes.enter(self.newcomer(), &wanted).inspect_err(|_| {
            if let Some(lease) = &shared {
                self.does_not_share(lease);
            }
        })?;
        if let Some(entered) = entered {
            return Ok(entered);
        }
        if resumed && self.op.sharing.is_some() {
            let text = format!("{} is being closed at this moment", self.op.path);
            return Err(Error::Wait { seconds: 1, text });
        }
        let entered = self.lease(opened, resumed, None);
        service.writes.lock().attach(opened.object, entered.key, Arc::clone(&entered.lease));
        Ok(entered)
    }

    /// This client does not write the file with the others. Unless it has it open, or has lost it, it need not learn how the open write ends.
    fn does_not_share(&self, lease: &Lease) {
        if !lease.sharers.lock().knows(&self.caller.client) {
            self.service.note_sharer(lease, self.caller.client.clone(), self.op.path.clone(), false);
        }
    }

    /// Whether the object may not exist yet. If bytes of it were kept, it does: when the store has lost it, an empty one must not take its place.
    fn may_make(&self, opened: &OpenedWrite) -> bool {
        self.service
            .names
            .read(|read| namespace::has_kept_bytes(read, &opened.writer))
            .is_ok_and(|has_bytes| !has_bytes)
    }

    fn why_unreadable(&self, opened: &OpenedWrite) -> Option<Unreadable> {
        let (actor, path) = (self.caller.actor(), &self.op.path);
        let permitted =
            self.service.names.read(|read| namespace::permit_reading_back(read, &actor, path, opened, None));
        permitted.err().map(|error| Unreadable::Denied(Error::of_namespace(&"read", &error)))
    }

    fn newcomer(&self) -> Newcomer<'_> {
        Newcomer { session: self.owner(), client: &self.caller.client, comes_again: self.comes_again }
    }

    /// The length that the client has announced.
    fn announced(&self) -> Option<u64> {
        match &self.fetched {
            Some(source) => source.expected_len,
            None if self.filler.is_some() => None,
            None => self.op.expected_len,
        }
    }

    fn create(&self, replica: ReplicaId) -> Result<WriteTarget, WriteTargetError> {
        let path_hint = self.op.path.as_bytes();
        let incarnation = self.service.names.incarnation();
        let new = NewReplica { path_hint, expected_len: self.announced(), incarnation };
        let writer = self.service.stores.of_replica(replica)?.create(replica, new)?;
        writer.set_user(self.caller.principal);
        Ok(WriteTarget::Local(writer))
    }

    fn lease(&mut self, opened: &OpenedWrite, fresh: bool, writer: Option<WriteTarget>) -> Entered {
        // The caller expected to continue an open write, which has ended or is unknown here. So no memory is reserved
        // for it yet.
        let room = self
            .room
            .take()
            .unwrap_or_else(|| self.service.writer_memory.take_regardless(self.caller.peer.ip(), self.announced()));
        let facts = LeaseFacts {
            path: self.op.path.clone(),
            caller: Arc::clone(&self.caller),
            fresh,
            begun: opened.kind == OpenKind::Update,
            expected_len: self.announced(),
            boot: self.service.settings.config.boot,
            opened: wall_clock(),
            room: Some(room),
            may_reach: self.service.growth.from(opened.may_reach),
        };
        let owner = writer.is_some().then(|| self.owner());
        let lease = Lease::new((opened.ino, opened.object), facts, LeaseState { owner, token: opened.writer, writer });
        let joined = {
            let mut sharers = lease.sharers.lock();
            let joined = sharers.join(self.newcomer());
            if self.manner == Manner::Appends {
                sharers.be_alone(joined.share, ExclusiveUse::Appends);
            }
            joined
        };
        Entered { lease, key: self.owner(), joined }
    }

    /// Takes the file over or joins it, on a worker: waits for the writes of handles that were taken away, and opens the store's writer.
    fn take_over(self, opened: &OpenedWrite, entered: Entered, answer: A) {
        let lease = &entered.lease;
        lease.learn_reach(opened.may_reach);
        let still = || self.service.writes.is_in(&entered);
        let open = || {
            let store = self.service.stores.of_replica(opened.replica)?;
            // The server stopped after the store had ended the open write, or could not mark the file. The client would send only what
            // was not acknowledged, and the store would go on after the first gap.
            if lease.fresh && opened.returns {
                let status = store.status(opened.replica)?;
                if status.is_some_and(|status| status.state == ReplicaState::Interrupted) {
                    return Err(WriteTargetError::EndedInStore);
                }
            }
            match store.reopen(opened.replica) {
                // The server stopped between the records of the namespace and of the store.
                Err(StoreError::NotFound { .. }) if lease.fresh && self.may_make(opened) => self.create(opened.replica),
                result => {
                    let writer = result?;
                    writer.set_user(self.caller.principal);
                    Ok(WriteTarget::Local(writer))
                }
            }
        };
        match lease.hand_over(entered.key, opened.writer, still, open) {
            Ok(Some(writer)) => {
                let len = writer.len();
                self.grant(entered, len, answer);
            }
            Ok(None) => {
                self.service.writes.take_back(&entered, Instant::now());
                self.does_not_share(&entered.lease);
                answer.give(Err(Error::fenced(&self.op.path)));
            }
            Err(error) => {
                self.service.writes.take_back(&entered, Instant::now());
                self.does_not_share(&entered.lease);
                answer.give(Err(error.told(&format_args!("open {}", self.op.path))));
            }
        }
    }

    /// Creates the handle and answers. Does not block.
    fn grant(mut self, entered: Entered, len: u64, answer: A) {
        let lease = Arc::clone(&entered.lease);
        let key = (entered.key, entered.joined.share);
        let (ino, object, path) = (lease.ino, lease.object, self.op.path.clone());
        if let Some(mtime) = self.mtime {
            lease.set_mtime(mtime);
        }
        let found = self.service.names.read(|read| namespace::stat_ino(read, ino));
        // A file that is overwritten keeps its permission bits.
        let mode =
            found.as_ref().map_or_else(|_| *lease.mode.get_or_init(|| self.op.mode_bits()), |inode| inode.access.mode);
        let stat = self.with_stat.then(|| match &found {
            Ok(inode) if !lease.fresh => Stat { len, is_unfinished: false, ..self.service.show(&self.caller, inode) },
            _ => Stat::bare(ino, len, mode, wall_clock()),
        });
        if self.filler.is_some() {
            // Until the copy is done, nobody can close the file as complete.
            lease.missing.lock().refused(0, u64::MAX, ErrorCode::InProgress);
        }
        let unfenced = self.service.settings.has(PlantedBug::ForgetFence);
        let copying = match self.fetched.take() {
            Some(source) => Copying::Fetched(PullJob::new(source, Arc::clone(&lease), key)),
            None => Copying::No,
        };
        let unreadable = self.unreadable.take();
        let inserted = self.session.handles.insert(move |_| {
            let access = Access::Write(WriteAccess::new(key, lease, unfenced).reading(unreadable));
            Arc::new(OpenFile { ino, object, path, mode, access, copying })
        });
        match inserted {
            Ok(handle) => {
                let opened = Opened { handle, stat };
                match self.filler {
                    // The channel has room for this one message.
                    Some(filler) => drop(filler.send((opened, answer))),
                    None => answer.give(Ok(opened)),
                }
            }
            Err(reason) => {
                self.service.writes.take_back(&entered, Instant::now());
                self.does_not_share(&entered.lease);
                answer.give(Err(reason.into()));
            }
        }
    }
}
