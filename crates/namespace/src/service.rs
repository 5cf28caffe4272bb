//! The thin convenience on top: a namespace on an engine, with its numbers, its session and its counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kv::{Durability, Kv, OpOutcome, Read, transact};
use parking_lot::Mutex;
use types::{ClientIdentity, Incarnation, ObjectId, SessionId, SnapshotEpoch, Timestamp};

use crate::format::format_or_open;
use crate::ids::{OperationNumbers, take_range};
use crate::restored::restored;
use crate::writers::session::perform;
use crate::writers::session_record::room_for_session;
use crate::{Actor, Context, Formatted, IdSource, Limits, NsError, OpTag, Operation, Progress, RequestNumber};

/// Settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamespaceConfig {
    /// Bounds and defaults of operations.
    pub limits: Limits,
    /// Numbers taken at a time: 2^20, except in tests.
    pub id_range: u64,
    /// How many object numbers this run skips before its first one ([`crate::count_to_pass_over`]). It matters where objects made since a copy of the
    /// namespace may be reported late. 0 where all stored objects are known before the first number is handed out.
    pub objects_passed_over: u64,
}

impl Default for NamespaceConfig {
    fn default() -> Self {
        Self { limits: Limits::default(), id_range: 1 << 20, objects_passed_over: 0 }
    }
}

/// Counts since the start, by operation (index: [`OpTag`] as a number).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CountersSnapshot {
    /// Committed changes.
    pub done: Vec<u64>,
    /// Refused changes.
    pub refused: Vec<u64>,
    /// Changes that failed in the engine.
    pub failed: Vec<u64>,
}

#[derive(Debug)]
struct Counters([[AtomicU64; 3]; OpTag::COUNT]);

impl Default for Counters {
    fn default() -> Self {
        Self(std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))))
    }
}

impl Counters {
    fn count<T>(&self, tag: OpTag, result: &Result<T, NsError>) {
        let column = match result {
            Ok(_) => 0,
            Err(NsError::Kv(_)) => 2,
            Err(_) => 1,
        };
        self.0[tag as usize][column].fetch_add(1, Ordering::Relaxed);
    }

    fn column(&self, column: usize) -> Vec<u64> {
        self.0.iter().map(|row| row[column].load(Ordering::Relaxed)).collect()
    }
}

/// A namespace. Shared by all threads of a server.
pub struct Namespace {
    kv: Arc<dyn Kv>,
    config: NamespaceConfig,
    formatted: Formatted,
    epochs_used: u32,
    ids: Arc<IdSource>,
    counters: Arc<Counters>,
}

impl Namespace {
    /// Opens the namespace on `kv`, making the root directory if it is empty, and takes the first numbers. Waits for
    /// the disk.
    pub fn open(kv: Arc<dyn Kv>, now: Timestamp, config: NamespaceConfig) -> Result<Arc<Namespace>, NsError> {
        let range = config.id_range.max(2);
        let config = NamespaceConfig { id_range: range, ..config };
        let opened = transact(&*kv, Durability::Synced, move |txn| {
            let result = format_or_open(txn, now).and_then(|formatted| {
                let epochs_used = restored(txn)?.map_or(0, |restored| restored.epochs);
                Ok((formatted, epochs_used, take_range(txn, range, ObjectId(0), config.objects_passed_over)?))
            });
            (if result.is_ok() { OpOutcome::Commit } else { OpOutcome::Abort }, result)
        })?;
        let (formatted, epochs_used, first) = opened?;
        let ids = Arc::new(IdSource::new());
        ids.add(first);
        Ok(Arc::new(Namespace { kv, config, formatted, epochs_used, ids, counters: Arc::default() }))
    }

    /// A namespace that another process changes, for reading alone. It has no numbers, no session and no incarnation of its own, and `kv` refuses
    /// changes. Look from time to time whether this version still knows how it is changed ([`crate::progress`]).
    #[must_use]
    pub fn for_reading(kv: Arc<dyn Kv>) -> Arc<Namespace> {
        let formatted = Formatted {
            incarnation: Incarnation(0),
            session: SessionId(0),
            epoch: SnapshotEpoch(0),
            new: false,
            is_usage_counted: false,
        };
        let config = NamespaceConfig::default();
        Arc::new(Namespace { kv, config, formatted, epochs_used: 0, ids: Arc::default(), counters: Arc::default() })
    }

    /// The incarnation of this namespace.
    pub fn incarnation(&self) -> Incarnation {
        self.formatted.incarnation
    }

    /// Whether the usage of trees is counted. If not, an earlier version has made the namespace, and some of its records cannot be read. Then nobody can
    /// set a quota.
    pub fn is_usage_counted(&self) -> bool {
        self.formatted.is_usage_counted
    }

    /// This run of the server.
    pub fn session(&self) -> SessionId {
        self.formatted.session
    }

    /// The source of numbers.
    pub fn ids(&self) -> &Arc<IdSource> {
        &self.ids
    }

    /// How far this namespace had come when it was opened.
    pub fn progress(&self) -> Progress {
        Progress { incarnation: self.formatted.incarnation, session: self.formatted.session }
    }

    /// The context for operations.
    pub fn context(&self, now: Timestamp, actor: &Actor, request: Option<RequestNumber>) -> Context {
        Context {
            now,
            actor: actor.clone(),
            session: self.formatted.session,
            epoch: self.formatted.epoch,
            epochs_used: self.epochs_used,
            request,
            limits: self.config.limits,
            ids: OperationNumbers::new(Arc::clone(&self.ids)),
        }
    }

    /// Whether `client` may begin a session of numbered requests now. This reads a view, so that a refused client does not occupy the committer. The
    /// operation itself checks it again.
    ///
    /// # Errors
    /// [`NsError::TooMany`]: too many sessions are in use.
    pub fn has_room_for_session(&self, now: Timestamp, client: &ClientIdentity) -> Result<(), NsError> {
        self.read_cached(|read| room_for_session(read, (&self.config.limits, now), client).map(drop))
    }

    /// Reads on a consistent view of committed state.
    pub fn read<T>(&self, reading: impl FnOnce(&dyn Read) -> Result<T, NsError>) -> Result<T, NsError> {
        let snapshot = self.kv.snapshot();
        reading(&*snapshot).map_err(|error| error.with_names(&*snapshot))
    }

    /// Like [`Namespace::read`], for what clients wait for: much of it may be known without asking a database. `reading` may run twice.
    ///
    /// # Errors
    /// Those of `reading`.
    pub fn read_cached<T>(&self, reading: impl Fn(&dyn Read) -> Result<T, NsError>) -> Result<T, NsError> {
        let snapshot = self.kv.cached_snapshot();
        let done = reading(&*snapshot);
        // Also if `reading` has made something else of the error.
        if snapshot.is_mixed() {
            drop(snapshot);
            return self.read(reading);
        }
        done.map_err(|error| error.with_names(&*snapshot))
    }

    /// A store reports an object with this number. Returns whether the report shows that this namespace is older than the stored objects, as after a
    /// restore from a copy. It returns true once for a number, and never for one below an earlier such report.
    ///
    /// If the number was still available, it, all lower numbers and the next `passed_over` numbers are no longer handed out: others may have them.
    pub fn is_older_than(&self, object: ObjectId, passed_over: impl FnOnce() -> u64) -> bool {
        let is_older = self.ids.is_of_another_incarnation(object, passed_over);
        if is_older {
            self.take_numbers();
        }
        is_older
    }

    /// Takes the next range of numbers early enough, without waiting.
    fn take_numbers(&self) {
        let range = self.config.id_range;
        if !self.ids.should_take(range) {
            return;
        }
        let taken = Arc::new(Mutex::new(None));
        let (inner, numbers, ids) = (Arc::clone(&taken), Arc::clone(&self.ids), Arc::clone(&self.ids));
        self.kv.submit(
            Durability::Synced,
            Box::new(move |txn| {
                let result = take_range(txn, range, numbers.least_object(), 0);
                let outcome = if result.is_ok() { OpOutcome::Commit } else { OpOutcome::Abort };
                *inner.lock() = result.ok();
                outcome
            }),
            Box::new(move |result| match (result, taken.lock().take()) {
                (Ok(()), Some(range)) => ids.add(range),
                _ => ids.taking_failed(),
            }),
        );
    }

    /// Queues a change. `done` is called once, on an engine thread, when the change is as durable as requested or has failed. It must not block.
    pub fn change<O: Operation + Send + 'static>(
        &self,
        durability: Durability,
        ctx: Context,
        op: O,
        done: impl FnOnce(Result<O::Reply, NsError>) + Send + 'static,
    ) {
        self.queue(false, durability, ctx, op, done);
    }

    /// Like [`Namespace::change`], for changes that free space or end a writer ([`crate::Remove`], [`crate::Rmdir`], [`crate::DeletionDone`],
    /// [`crate::ForgetUpload`], [`crate::Interrupt`]). On a full disk they may use the journal's reserve ([`Kv::submit_urgent`]).
    pub fn change_urgent<O: Operation + Send + 'static>(
        &self,
        durability: Durability,
        ctx: Context,
        op: O,
        done: impl FnOnce(Result<O::Reply, NsError>) + Send + 'static,
    ) {
        self.queue(true, durability, ctx, op, done);
    }

    fn queue<O: Operation + Send + 'static>(
        &self,
        urgent: bool,
        durability: Durability,
        ctx: Context,
        op: O,
        done: impl FnOnce(Result<O::Reply, NsError>) + Send + 'static,
    ) {
        self.take_numbers();
        let slot = Arc::new(Mutex::new(None));
        let inner = Arc::clone(&slot);
        let counters = Arc::clone(&self.counters);
        let op: kv::Op = Box::new(move |txn| {
            let (outcome, result) = perform(txn, &ctx, &op);
            *inner.lock() = Some(result.map_err(|error| error.with_names(txn)));
            outcome
        });
        let done: kv::OpDone = Box::new(move |committed| {
            let result = match (committed, slot.lock().take()) {
                (Err(error), _) => Err(NsError::Kv(error)),
                (Ok(()), Some(result)) => result,
                (Ok(()), None) => {
                    Err(NsError::Kv(kv::KvError::Stopped { reason: "the engine did not run the operation".into() }))
                }
            };
            counters.count(O::TAG, &result);
            done(result);
        });
        if urgent {
            self.kv.submit_urgent(durability, op, done);
        } else {
            self.kv.submit(durability, op, done);
        }
    }

    /// Makes a change and waits for it.
    pub fn change_wait<O: Operation + Send + 'static>(
        &self,
        durability: Durability,
        ctx: Context,
        op: O,
    ) -> Result<O::Reply, NsError> {
        wait_for(|done| self.change(durability, ctx, op, done))
    }

    /// Like [`Namespace::change_urgent`], and waits for the result.
    pub fn change_urgent_wait<O: Operation + Send + 'static>(
        &self,
        durability: Durability,
        ctx: Context,
        op: O,
    ) -> Result<O::Reply, NsError> {
        wait_for(|done| self.change_urgent(durability, ctx, op, done))
    }

    /// Runs a change on the present state and takes it back: what it would answer. To explain decisions, give the actor of
    /// `ctx` a witness.
    ///
    /// # Errors
    /// Those of the change.
    pub fn rehearse<O: Operation + Send + 'static>(&self, ctx: Context, op: O) -> Result<(), NsError> {
        // The operation may take numbers.
        self.take_numbers();
        transact(&*self.kv, Durability::Written, move |txn| {
            ctx.ids.begin_run();
            let ahead = txn.prefetch(&|| op.ahead(&ctx)).map_err(NsError::from);
            let result = ahead.and_then(|()| op.run(txn, &ctx)).map(drop).map_err(|error| error.with_names(txn));
            (OpOutcome::Abort, result)
        })?
    }

    /// The counters since the start.
    pub fn counters(&self) -> CountersSnapshot {
        CountersSnapshot {
            done: self.counters.column(0),
            refused: self.counters.column(1),
            failed: self.counters.column(2),
        }
    }
}

type OnDone<T> = Box<dyn FnOnce(Result<T, NsError>) + Send>;

fn wait_for<T: Send + 'static>(queue: impl FnOnce(OnDone<T>)) -> Result<T, NsError> {
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    queue(Box::new(move |result| {
        // The receiver waits below; it is gone only if its thread panicked.
        let _ = sender.send(result);
    }));
    let stopped = || NsError::Kv(kv::KvError::Stopped { reason: "the committer is gone".into() });
    receiver.recv().map_err(|_| stopped())?
}
