//! The new files of one batch. All of them are opened in the namespace, side by side; when the last of these has been decided, one worker
//! writes and closes those that were opened, again side by side. So each of both steps shares the committer's batches, and the second the
//! log's sync. What becomes of one of them is what becomes of any file that a client opens, writes and closes: a stop in the middle leaves
//! nothing that an ended grace period would not tidy up.
//!
//! At a disk server of a cluster they have been opened at the manager ([`placed`]).

mod placed;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use namespace::{Durability, NsError, OpenWrite, OpenedWrite};
use parking_lot::Mutex;
use store::NewReplica;
use types::Timestamp;

use crate::answer::Answer;
use crate::caller::Caller;
use crate::error::Error;
use crate::lease::{Lease, LeaseFacts, LeaseState};
use crate::making::{Making, MakingError};
use crate::service::Service;
use crate::session::Session;
use crate::writers::Owner;

/// Longer contents go past the log to files of their own, each of which is synced: several workers do that at a time.
const SIDE_BY_SIDE: usize = 64 << 10;

/// A new file, before it is opened.
pub(crate) struct Create<A> {
    pub(crate) op: OpenWrite,
    /// What its last change is to be, if the client says so.
    pub(crate) mtime: Option<Timestamp>,
    /// Where its content is in what stands behind the batch's header.
    pub(crate) data: Range<usize>,
    /// Told what came of it.
    pub(crate) answer: A,
}

pub(crate) use placed::PlacedCreate;

/// Those of one batch.
pub(crate) struct Creates<A> {
    node: Arc<Service>,
    owner: Owner,
    caller: Arc<Caller>,
    behind: Vec<u8>,
    /// Opens that are not decided yet.
    undecided: AtomicUsize,
    opened: Mutex<Vec<(Create<A>, OpenedWrite)>>,
}

impl<A: Answer<()>> Creates<A> {
    /// `behind`: what stands behind the batch's header.
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

    /// What stands behind the batch's header.
    pub(crate) fn behind(&self) -> &[u8] {
        &self.behind
    }

    /// Who makes them.
    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Opens all of them. Not to be called from a completion.
    pub(crate) fn begin(self: &Arc<Self>, wanted: Vec<Create<A>>) {
        self.undecided.store(wanted.len(), Ordering::Release);
        for create in wanted {
            let (this, op) = (Arc::clone(self), create.op.clone());
            self.node.names.change(&self.caller, Durability::Written, op, move |result| this.decided(create, result));
        }
    }

    /// The committer's completion: must not block.
    fn decided(self: &Arc<Self>, create: Create<A>, result: Result<OpenedWrite, NsError>) {
        match result {
            Ok(opened) => self.opened.lock().push((create, opened)),
            Err(error) => create.answer.give(Err(Error::of_namespace(&"make", &error))),
        }
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

    /// Has `fill` done with them by workers: with the small ones together, with each large one by itself.
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

    /// On a worker: writes and closes a file that was opened.
    fn fill(&self, create: Create<A>, opened: &OpenedWrite) {
        let Create { op, mtime, data, answer } = create;
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
            .map_err(MakingError::Here);
        let writer = match made {
            Ok(writer) => writer,
            Err(error) => {
                node.endings.abandon(opened.writer);
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
            // The batch's own stands for all of them.
            room: None,
        };
        let state = LeaseState {
            owner: Some(self.owner),
            token: opened.writer,
            writer: Some(Making::Here(Arc::clone(&writer))),
        };
        let lease = Lease::new((opened.ino, opened.object), facts, state);
        if let Some(mtime) = mtime {
            lease.set_mtime(mtime);
        }
        {
            // In closing standing from the beginning: nobody can take it up, and whatever its end is, it has one.
            let mut writers = node.writes.lock();
            writers.attach(opened.object, self.owner, Arc::clone(&lease));
            writers.begin_close(opened.object, self.owner);
        }
        // Nobody is told of it before it is complete.
        let written = writer.write_ahead(0, &self.behind[data]);
        drop(writer);
        match written {
            Ok(()) => node.endings.close(&lease, None, answer),
            Err(error) => {
                let error = Error::of_store(&format_args!("make {}", lease.path), &error);
                node.endings.take_back(&lease, error, answer);
            }
        }
    }
}
