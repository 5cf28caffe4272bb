//! The committer: takes queued operations, runs them together in one transaction of the database, and commits them in one round trip.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use kv::committing::{Answers, Completions, OpResult, Queue, Request, WriteSet, enter_engine, run_one};
use kv::{KvError, Prefetch, Read, ScanOrder, Visit};
use parking_lot::Mutex;
use rand::Rng;

use crate::fetched::{Fetched, Needs, Range, Scanned};
use crate::place::{LastBatch, Place};
use crate::session::{Begin, Commit, Connector, Session};
use crate::{DatabaseError, PostgresConfig, PostgresStats, schema};

/// Entries of one fetch for an operation that scans more than it announced.
const FETCH: u32 = 512;
/// Runs of a batch that all find something unknown. A longest path with links needs some dozens.
const RUNS_MAX: u32 = 200;
/// Collisions after which a batch is split.
const SPLIT_AFTER: u32 = 3;

pub(crate) struct Committer {
    pub(crate) connector: Arc<Connector>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) stats: Arc<Mutex<PostgresStats>>,
    pub(crate) config: PostgresConfig,
    pub(crate) place: Place,
    pub(crate) session: Option<Session>,
    /// Why nothing is committed any more.
    pub(crate) stopped: Option<KvError>,
    /// The same, for the engine.
    pub(crate) end: Arc<Mutex<Option<DatabaseError>>>,
}

/// A batch that was not committed.
enum Failed {
    /// Another transaction got in the way.
    Conflict,
    /// The connection broke before the commit was sent, or the answer said that nothing was committed.
    Away(DatabaseError),
    /// Nobody knows whether it was committed.
    Unknown(DatabaseError),
    /// It cannot be done.
    Refused(DatabaseError),
}

impl Committer {
    /// Commits until the queue is closed.
    pub(crate) fn run(mut self, answers: Option<Answers>) {
        enter_engine();
        let queue = Arc::clone(&self.queue);
        let work = std::panic::AssertUnwindSafe(|| self.run_loop(answers.as_ref()));
        if let Err(panic) = std::panic::catch_unwind(work) {
            std::mem::forget(panic); // dropping its contents may panic again
            queue.break_off("the thread that commits changes, the committer, has died by a panic");
            if let Some(answers) = answers {
                answers.flush();
            }
        }
    }

    fn run_loop(&mut self, answers: Option<&Answers>) {
        let mut expected = 0;
        loop {
            let requests = self.queue.take(self.config.batch_ops_max, expected, self.config.linger);
            if requests.is_empty() {
                return;
            }
            // As in the embedded committer: clients that were answered together return together.
            expected = if requests.len() > 4 { requests.len() - requests.len() / 4 } else { 0 };
            let mut parts = VecDeque::from([Part::new(requests.into())]);
            while let Some(part) = parts.pop_front() {
                let completions = self.commit(part, &mut parts);
                let idle = parts.is_empty() && self.queue.is_empty();
                if let Some(answers) = answers {
                    answers.give(completions, idle);
                }
            }
        }
    }

    /// Commits a part of a batch. Puts what must be tried again before `parts`.
    fn commit(&mut self, mut part: Part, parts: &mut VecDeque<Part>) -> Completions {
        let began = Instant::now();
        loop {
            if let Some(reason) = &self.stopped {
                return part.all(&Err(reason.clone()));
            }
            let failed = match self.attempt(&mut part, parts) {
                Ok(ran) => {
                    self.count(&ran, began);
                    return part.answers(ran);
                }
                Err(failed) => failed,
            };
            match failed {
                Failed::Conflict => {
                    self.stats.lock().conflicts += 1;
                    part.collisions += 1;
                    if part.collisions >= self.config.retries_max {
                        let retries = part.collisions;
                        return part.all(&Err(KvError::Conflict { retries }));
                    }
                    if part.collisions >= SPLIT_AFTER && part.requests.len() > 1 {
                        let second = part.requests.split_off(part.requests.len() / 2);
                        parts.push_front(Part::new(second));
                    }
                    std::thread::sleep(self.pause(part.collisions));
                }
                Failed::Away(error) if began.elapsed() >= self.config.patience => return part.all(&Err(error.into())),
                Failed::Away(error) => {
                    tracing::warn!("{error}; changes wait until it is back");
                    if let Err(answer) = self.reconnect(began, false) {
                        return part.all(&answer);
                    }
                }
                Failed::Unknown(error) => {
                    tracing::warn!("{error}; the answer to a commit was lost");
                    self.stats.lock().answers_lost += 1;
                    match self.reconnect(began, true) {
                        Ok(LastBatch::NotCommitted) => {}
                        Ok(LastBatch::Committed) => {
                            let ran = part.last_run.take().unwrap_or_default();
                            self.count(&ran, began);
                            return part.answers(ran);
                        }
                        Err(answer) => return part.all(&answer),
                    }
                }
                Failed::Refused(error) => return part.all(&Err(error.into())),
            }
        }
    }

    /// A random wait, longer after each collision.
    fn pause(&self, collisions: u32) -> std::time::Duration {
        let most = 1u64 << collisions.min(8);
        std::time::Duration::from_micros(rand::rng().random_range(0..=most * 500))
    }

    /// Connects again, with patience since `began`. `is_open`: whether a batch is out whose end nobody knows. The error is what its operations get.
    fn reconnect(&mut self, began: Instant, is_open: bool) -> Result<LastBatch, Result<(), KvError>> {
        self.session = None;
        loop {
            match self.place.return_to(&self.connector) {
                Ok((session, last)) => {
                    self.session = Some(session);
                    self.stats.lock().reconnected += 1;
                    return Ok(last);
                }
                Err(
                    error @ (DatabaseError::TakenOver(_)
                    | DatabaseError::LostTransactions(_)
                    | DatabaseError::Schema(_)),
                ) => {
                    if let DatabaseError::LostTransactions(reason) = &error {
                        self.close_database(reason);
                    }
                    let reason = self.end(error);
                    return Err(Err(if is_open { KvError::MaybeCommitted } else { reason }));
                }
                Err(error) => {
                    if began.elapsed() >= self.config.patience {
                        return Err(Err(if is_open { KvError::MaybeCommitted } else { error.into() }));
                    }
                    std::thread::sleep(self.config.between_attempts);
                }
            }
        }
    }

    /// Keeps every manager from starting on a database that has lost changes.
    fn close_database(&self, reason: &str) {
        let closed =
            self.connector.connect_bare().and_then(|mut connection| schema::close(&mut connection, Some(reason)));
        if let Err(error) = closed {
            tracing::error!("cannot note in the database that it has lost changes: {error}");
        }
    }

    /// Runs the operations in one transaction.
    fn attempt(&mut self, part: &mut Part, parts: &mut VecDeque<Part>) -> Result<Vec<OpResult>, Failed> {
        let mut session = match self.session.take() {
            Some(session) if !session.connection.is_broken() => session,
            _ => {
                // What an earlier attempt left open is settled before anything else is committed.
                let (session, _) = self.place.return_to(&self.connector).map_err(Failed::Away)?;
                self.stats.lock().reconnected += 1;
                session
            }
        };
        let done = self.attempt_on(&mut session, part, parts);
        self.session = Some(session);
        done
    }

    fn attempt_on(
        &mut self,
        session: &mut Session,
        part: &mut Part,
        parts: &mut VecDeque<Part>,
    ) -> Result<Vec<OpResult>, Failed> {
        let view = Pending::default();
        let mut begin = Begin::Changing;
        let mut writes = WriteSet::default();
        let mut ran = Vec::new();
        for run in 0.. {
            ran.clear();
            let _ = writes.take();
            for request in &mut part.requests {
                ran.push(run_one(request, &view, &mut writes));
                if writes.weight() >= self.config.batch_bytes {
                    break;
                }
            }
            let needs = view.needs.take();
            if needs.is_empty() {
                break;
            }
            if run >= RUNS_MAX {
                let _ = session.roll_back();
                return Err(Failed::Refused(DatabaseError::Failed("an operation never stops asking for more".into())));
            }
            let fetched = session.fetch(begin, &needs, &mut view.known.borrow_mut());
            if let Err(error) = fetched {
                return Err(self.undone(session, error));
            }
            begin = Begin::Not;
        }
        // Operations for which the batch has no room.
        let rest = part.requests.split_off(ran.len());
        if !rest.is_empty() {
            parts.push_front(Part::new(rest));
        }
        let changes = writes.take();
        let is_begun = begin == Begin::Not;
        let committed = if changes.is_empty() {
            let ended = if is_begun { session.end_unchanged() } else { Ok(()) };
            ended.map_or_else(Commit::Undone, |()| Commit::Done)
        } else {
            let committed =
                session.commit((&self.place.name, self.place.fence), self.place.batch + 1, &changes, is_begun);
            if matches!(committed, Commit::Done) {
                self.place.batch += 1;
            }
            committed
        };
        match committed {
            Commit::Done => Ok(ran),
            Commit::Undone(error) => Err(self.undone(session, error)),
            Commit::Unknown(error) => {
                part.last_run = Some(ran);
                Err(Failed::Unknown(error))
            }
        }
    }

    /// Nothing was committed. Leaves the transaction.
    fn undone(&mut self, session: &mut Session, error: DatabaseError) -> Failed {
        if !session.connection.is_broken() {
            let _ = session.roll_back();
        }
        match error {
            DatabaseError::Conflict(_) | DatabaseError::Timeout(_) => Failed::Conflict,
            DatabaseError::TakenOver(_) => {
                self.end(error.clone());
                Failed::Refused(error)
            }
            error if session.connection.is_broken() => Failed::Away(error),
            error => Failed::Refused(error),
        }
    }

    /// Commits nothing any more.
    fn end(&mut self, error: DatabaseError) -> KvError {
        tracing::error!("{error}");
        // First, so that whoever sees the queue broken finds the reason.
        *self.end.lock() = Some(error.clone());
        self.queue.break_off(&error.to_string());
        let reason = KvError::from(error);
        self.stopped = Some(reason.clone());
        reason
    }

    fn count(&self, ran: &[OpResult], began: Instant) {
        let mut stats = self.stats.lock();
        stats.batches += 1;
        stats.largest_batch = stats.largest_batch.max(ran.len() as u64);
        stats.longest_batch = stats.longest_batch.max(began.elapsed());
        for ran in ran {
            match ran {
                OpResult::Committed => stats.committed += 1,
                OpResult::Aborted => stats.aborted += 1,
                OpResult::Refused(_) => stats.refused += 1,
            }
        }
    }
}

/// Operations that are committed together.
struct Part {
    requests: Vec<Request>,
    /// How often it collided with others.
    collisions: u32,
    /// The results of the operations of a commit whose answer was lost.
    last_run: Option<Vec<OpResult>>,
}

impl Part {
    fn new(requests: Vec<Request>) -> Self {
        Self { requests, collisions: 0, last_run: None }
    }

    fn all(self, result: &Result<(), KvError>) -> Completions {
        self.requests.into_iter().map(|request| (request.done, result.clone())).collect()
    }

    fn answers(self, ran: Vec<OpResult>) -> Completions {
        let answer = |(request, ran): (Request, OpResult)| {
            let result = match ran {
                OpResult::Refused(error) => Err(error),
                OpResult::Committed | OpResult::Aborted => Ok(()),
            };
            (request.done, result)
        };
        self.requests.into_iter().zip(ran).map(answer).collect()
    }
}

/// What the operations of a batch read: what is known, and a list of what is not.
#[derive(Default)]
struct Pending {
    known: RefCell<Fetched>,
    needs: RefCell<Needs>,
}

impl Read for Pending {
    fn prefetch(&self, wanted: &dyn Fn() -> Vec<Prefetch>) -> Result<(), KvError> {
        // It may read here itself.
        let wanted = wanted();
        let is_known = self.needs.borrow_mut().add(wanted, &self.known.borrow());
        if is_known { Ok(()) } else { Err(KvError::NotFetched) }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        match self.known.borrow().get(key) {
            Some(known) => Ok(known.map(<[u8]>::to_vec)),
            None => {
                self.needs.borrow_mut().keys.insert(key.to_vec());
                Err(KvError::NotFetched)
            }
        }
    }

    fn scan(&self, start: &[u8], end: &[u8], order: ScanOrder, visit: Visit<'_>) -> Result<(), KvError> {
        match self.known.borrow().scan(start, end, order, visit) {
            Scanned::Done => Ok(()),
            Scanned::Missing { start, end } => {
                self.needs.borrow_mut().add_range(Range { start, end, order, most: FETCH });
                Err(KvError::NotFetched)
            }
        }
    }
}
