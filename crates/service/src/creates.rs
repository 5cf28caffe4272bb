//! The new files of one batch. The namespace opens all of them concurrently. After the last open, workers write and
//! close the opened files, again concurrently. So both steps share the committer's batches, and the second one shares
//! a sync of the journal. Each file goes through the same states as a file that a client opens, writes and closes.
//! After a crash in the middle, the end of the grace period cleans up.
//!
//! On a disk server of a cluster the manager has already opened the files ([`replicated`]).

mod replicated;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use namespace::{Durability, NsError, OpenWrite, OpenedWrite};
use parking_lot::Mutex;
use store::NewReplica;
use types::{ObjectId, Timestamp};

use crate::answer::Answer;
use crate::caller::Caller;
use crate::conflicts::{Claim, Conflict};
use crate::error::Error;
use crate::lease::{Lease, LeaseFacts, LeaseState};
use crate::names::{By, wall_clock};
use crate::service::Service;
use crate::session::Session;
use crate::write_target::{WriteTarget, WriteTargetError};
use crate::writers::Owner;

/// Larger objects get their own file, and a sync each, instead of going to the journal. Several workers write them at
/// a time.
const SIDE_BY_SIDE: usize = 64 << 10;

/// A new file, before it is opened.
pub(crate) struct Create<A> {
    pub(crate) op: OpenWrite,
    /// The modification time that the client wants.
    pub(crate) mtime: Option<Timestamp>,
    /// The position of the data in the buffer of the batch.
    pub(crate) data: Range<usize>,
    /// Receives the result.
    pub(crate) answer: A,
    /// An open write of another client was ended for this file.
    pub(crate) has_settled: bool,
}

pub(crate) use replicated::ReplicatedCreate;

/// The new files of one batch.
pub(crate) struct Creates<A> {
    node: Arc<Service>,
    owner: Owner,
    caller: Arc<Caller>,
    behind: Vec<u8>,
    /// Opens that the namespace has not yet answered.
    undecided: AtomicUsize,
    opened: Mutex<Vec<(Create<A>, OpenedWrite)>>,
}

impl<A: Answer<()>> Creates<A> {
    /// `behind` is the buffer of the batch: everything after its header.
    pub(crate) fn new(node: &Arc<Service>, session: &Session, behind: Vec<u8>) -> Arc<Self> {
        Arc::new(Self {
            node: Arc::clone(node),
            owner: session.owner(),
            caller: session.caller(),
            behind,
            undecided: AtomicUsize::new(0),
            opened: Mutex::default(),
        })
    }

    /// The buffer of the batch.
    pub(crate) fn behind(&self) -> &[u8] {
        &self.behind
    }

    /// The caller that creates the files.
    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Opens all files. Do not call it from a completion.
    pub(crate) fn begin(self: &Arc<Self>, wanted: Vec<Create<A>>) {
        self.undecided.store(wanted.len(), Ordering::Release);
        wanted.into_iter().for_each(|create| self.open(create));
    }

    fn open(self: &Arc<Self>, create: Create<A>) {
        let (this, op) = (Arc::clone(self), create.op.clone());
        let by = By::caller(&self.caller);
        self.node.names.change(by, Durability::Written, op, move |result| this.decided(create, result));
    }

    /// Called by the committer, so it must not block.
    fn decided(self: &Arc<Self>, create: Create<A>, result: Result<OpenedWrite, NsError>) {
        match result {
            Ok(opened) => self.opened.lock().push((create, opened)),
            Err(NsError::Busy { writer, .. }) => {
                let (this, workers) = (Arc::clone(self), &self.node.workers);
                return workers.submit_duty(Box::new(move || this.settle(create, writer.object)));
            }
            Err(error) => create.answer.give(Err(Error::of_namespace(&"make", &error))),
        }
        self.one_decided();
    }

    /// Another client has the file open. Opens it again if that open write could be ended. May wait for the disk.
    fn settle(self: &Arc<Self>, mut create: Create<A>, object: ObjectId) {
        let conflict = self.node.endings.settle(object, self.caller.principal, Claim::TakesOver);
        match conflict {
            // Once: another open write may have begun meanwhile.
            Conflict::Ended if !std::mem::replace(&mut create.has_settled, true) => self.open(create),
            conflict => {
                create.answer.give(Err(conflict.error("make", &create.op.path)));
                self.one_decided();
            }
        }
    }

    /// Begins to write the opened files after the last open. Must not block.
    fn one_decided(self: &Arc<Self>) {
        if self.undecided.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let opened = std::mem::take(&mut *self.opened.lock());
        self.on_workers(
            opened,
            |(one, _)| one.data.len(),
            |this, job| {
                job.into_iter().for_each(|(create, opened)| this.fill(create, &opened));
            },
        );
    }

    /// Runs `fill` on workers: once for all small files together, and once for each large file.
    fn on_workers<T: Send + 'static>(
        self: &Arc<Self>,
        all: Vec<T>,
        len: impl Fn(&T) -> usize,
        fill: impl Fn(&Self, Vec<T>) + Clone + Send + 'static,
    ) {
        let (large, small): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| len(one) > SIDE_BY_SIDE);
        let mut jobs: Vec<Vec<_>> = large.into_iter().map(|one| vec![one]).collect();
        jobs.push(small);
        for job in jobs.into_iter().filter(|job| !job.is_empty()) {
            let (this, fill) = (Arc::clone(self), fill.clone());
            self.node.workers.submit_duty(Box::new(move || fill(&this, job)));
        }
    }

    /// Writes and closes an opened file, on a worker.
    fn fill(&self, create: Create<A>, opened: &OpenedWrite) {
        let Create { op, mtime, data, answer, .. } = create;
        let node = &self.node;
        opened.dropped.iter().for_each(|object| node.endings.dropped(*object));
        let new = NewReplica {
            path_hint: op.path.as_bytes(),
            expected_len: op.expected_len,
            incarnation: node.names.incarnation(),
        };
        let made = node
            .stores
            .of_replica(opened.replica)
            .and_then(|store| store.create(opened.replica, new))
            .map_err(WriteTargetError::Local);
        let writer = match made {
            Ok(writer) => {
                writer.set_user(self.caller.principal);
                writer
            }
            Err(error) => {
                node.endings.abandon(opened.writer, None, || ());
                return answer.give(Err(error.told(&format_args!("make {}", op.path))));
            }
        };
        let facts = LeaseFacts {
            path: op.path,
            caller: Arc::clone(&self.caller),
            fresh: true,
            begun: false,
            expected_len: op.expected_len,
            boot: node.settings.config.boot,
            opened: wall_clock(),
            // The batch has reserved the memory for all of its files.
            room: None,
            may_reach: node.growth.from(opened.may_reach),
        };
        let state = LeaseState {
            owner: Some(self.owner),
            token: opened.writer,
            writer: Some(WriteTarget::Local(Arc::clone(&writer))),
        };
        let lease = Lease::new((opened.ino, opened.object), facts, state);
        if let Some(mtime) = mtime {
            lease.set_mtime(mtime);
        }
        {
            // The file is in the state `Closing` from the beginning, so nobody can take it over before it ends.
            let mut writers = node.writes.lock();
            writers.attach(opened.object, self.owner, Arc::clone(&lease));
            writers.begin_close(opened.object, self.owner);
        }
        // Nobody sees the file before it is complete.
        let reserved = lease.reserve(data.len() as u64);
        let written = reserved.is_ok().then(|| writer.write_ahead(0, &self.behind[data]));
        drop(writer);
        if let Err(error) = reserved {
            return node.endings.take_back(&lease, error, answer);
        }
        match written.unwrap_or(Ok(())) {
            Ok(()) => node.endings.close(&lease, None, None, answer),
            Err(error) => {
                let error = Error::of_store(&format_args!("make {}", lease.path), &error);
                node.endings.take_back(&lease, error, answer);
            }
        }
    }
}
