//! The committer: takes queued operations, runs them together in one transaction of the database, and commits them in one round trip.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kv::KvError;
use kv::committing::{Answers, Completions, OpResult, Queue, Request, WriteSet, commit_until_closed, run_one};
use parking_lot::Mutex;

use crate::attempts::{Attempts, Broke, Collided, Returned, after_return};
use crate::away::Away;
use crate::cache::Cache;
use crate::fetched::Fetched;
use crate::own_place::LastBatch;
use crate::pause::pause;
use crate::pending::Pending;
use crate::place::Place;
use crate::session::{Begin, Commit, Connector, Session};
use crate::signs_of_life::SignsOfLife;
use crate::{DatabaseError, PostgresConfig, PostgresStats};

/// Runs of a batch that all find something unknown. A longest path with links needs some dozens.
const RUNS_MAX: u32 = 200;
/// The unit of the wait after a collision.
const COLLIDED: Duration = Duration::from_micros(500);
/// How often an idle committer looks whether the row must change.
const IDLE: Duration = Duration::from_millis(250);

pub(crate) struct Committer {
    pub(crate) connector: Arc<Connector>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) stats: Arc<Mutex<PostgresStats>>,
    pub(crate) config: PostgresConfig,
    pub(crate) place: Place,
    pub(crate) session: Option<Session>,
    /// Why nothing is committed any more.
    pub(crate) end: Arc<Mutex<Option<DatabaseError>>>,
    /// Whether the database takes no changes now.
    pub(crate) away: Arc<Away>,
    /// What is known without the database.
    pub(crate) cache: Arc<Cache>,
    /// What the row says about this process.
    pub(crate) holder: Arc<Mutex<Option<String>>>,
    /// Changes the row while a batch reads. `None` if committers of other names change the same database: then the transaction in which a batch reads is
    /// the one that commits.
    pub(crate) signs: Option<SignsOfLife>,
}

/// A batch that was not committed.
enum Failed {
    /// Another transaction got in the way.
    Conflict(DatabaseError),
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
        let queue = Arc::clone(&self.queue);
        let limits = (self.config.batch_ops_max, self.config.linger, Some(IDLE));
        commit_until_closed(&queue, answers, limits, |requests, give| {
            let mut parts = VecDeque::from([Part::new(requests.into())]);
            while let Some(part) = parts.pop_front() {
                let completions = self.commit(part, &mut parts);
                give(completions, parts.is_empty());
                self.beat_if_due();
            }
        });
        self.stop_if_lost();
        self.release();
    }

    /// Changes the row if no batch has changed it lately, so that others see that this process lives.
    fn beat_if_due(&mut self) {
        if !self.place.own.is_beat_due(Instant::now()) || self.end.lock().is_some() {
            return;
        }
        let beat = match self.take_session() {
            Ok(mut session) => {
                let holder = self.holder.lock().clone();
                let beat = self.place.beat(&self.connector, &mut session, holder.as_deref());
                self.session = Some(session);
                beat
            }
            Err(error) => Err(error),
        };
        match beat {
            Ok(()) => self.away.end("the database takes changes again"),
            Err(error) if self.stop_if_final(&error) => {}
            // It is tried again soon.
            Err(error) => self.away.note(&error, "changes wait until it is back"),
        }
    }

    /// Gives the place up at the end, so that another process need not wait until it may take it. If the database is away, it has to: nobody wants to
    /// wait here until a connection is back.
    fn release(&mut self) {
        self.place.end_lease();
        let Some(mut session) = self.session.take().filter(|session| !session.connection.is_broken()) else { return };
        if self.end.lock().is_some() {
            return;
        }
        if let Err(error) = self.place.release(&mut session) {
            tracing::warn!("{error}; another process takes the place of {} after some seconds", self.place.name);
        }
    }

    /// The connection, or a new one.
    fn take_session(&mut self) -> Result<Session, DatabaseError> {
        match self.session.take() {
            Some(session) if !session.connection.is_broken() => Ok(session),
            // What an earlier attempt left open is settled before anything else is committed.
            _ => self.return_to().map(|(session, _)| session),
        }
    }

    /// Stops if a reader has found out that the database has lost changes.
    fn stop_if_lost(&mut self) {
        if self.end.lock().is_none()
            && let Some(lost) = self.connector.acknowledged.lost()
        {
            self.stop_if_final(&lost);
        }
    }

    /// Commits a part of a batch. Puts what must be tried again before `parts`.
    fn commit(&mut self, mut part: Part, parts: &mut VecDeque<Part>) -> Completions {
        loop {
            self.stop_if_lost();
            if let Some(reason) = self.end.lock().clone() {
                return part.all(&Err(reason.into()));
            }
            let failed = match self.attempt(&mut part, parts) {
                Ok(ran) => {
                    self.away.end("the database takes changes again");
                    self.count(&ran, part.attempts.began);
                    return part.answers(ran);
                }
                Err(failed) => failed,
            };
            match failed {
                Failed::Conflict(error) => {
                    self.stats.lock().conflicts += 1;
                    let is_lock = matches!(error, DatabaseError::Timeout(_));
                    match part.attempts.collided(Instant::now(), is_lock, &self.config) {
                        Collided::GiveUp => {
                            let retries = part.attempts.collisions;
                            tracing::warn!("{error}; gave up after {retries} attempts");
                            return part.all(&Err(KvError::Conflict { retries }));
                        }
                        Collided::Split => part.split(parts),
                        Collided::Again => {}
                    }
                    pause(COLLIDED, part.attempts.collisions);
                    self.beat_if_due();
                }
                Failed::Away(error) => {
                    if let Some(answers) = self.go_on(&mut part, Broke::BeforeCommit, error) {
                        return answers.of(part);
                    }
                }
                Failed::Unknown(error) => {
                    self.stats.lock().answers_lost += 1;
                    if let Some(answers) = self.go_on(&mut part, Broke::AtCommit, error) {
                        return answers.of(part);
                    }
                }
                // One operation must not spoil the others.
                Failed::Refused(DatabaseError::Failed(error)) if part.requests.len() > 1 => {
                    tracing::warn!("the database failed at a batch of {}: {error}", part.requests.len());
                    part.split(parts);
                }
                Failed::Refused(error) => return part.all(&Err(error.into())),
            }
        }
    }

    /// Connects again after the connection broke at a batch. Returns how its operations are answered; `None`: it must be tried again.
    fn go_on(&mut self, part: &mut Part, broke: Broke, error: DatabaseError) -> Option<Ended> {
        self.away.note(&error, "changes wait until it is back");
        let returned = self.reconnect();
        match after_return(broke, returned.as_ref().ok().copied()) {
            Returned::TryAgain if self.may_try_again(part) => None,
            Returned::TryAgain => Some(Ended::All(error.into())),
            Returned::Committed => {
                self.away.end("the database takes changes again");
                let ran = part.last_run.take().unwrap_or_default();
                self.count(&ran, part.attempts.began);
                Some(Ended::Ran(ran))
            }
            Returned::Fails => Some(Ended::All(returned.err().unwrap_or(error).into())),
            Returned::MaybeCommitted => Some(Ended::All(KvError::MaybeCommitted)),
        }
    }

    /// Whether a batch may be tried on a new connection.
    fn may_try_again(&self, part: &mut Part) -> bool {
        if part.attempts.returned() {
            return true;
        }
        std::thread::sleep(self.config.between_attempts);
        part.attempts.may_try_again(Instant::now(), &self.config)
    }

    /// Connects again. Tries until the database has been away for as long as changes wait, but at least once.
    fn reconnect(&mut self) -> Result<LastBatch, DatabaseError> {
        self.session = None;
        loop {
            let error = match self.return_to() {
                Ok((session, last)) => {
                    self.session = Some(session);
                    return Ok(last);
                }
                Err(error) => error,
            };
            let is_over = self.away.outage().is_none_or(|outage| outage.lasted >= self.config.patience);
            if self.stop_if_final(&error) || is_over || self.queue.is_closed() {
                return Err(error);
            }
            std::thread::sleep(self.config.between_attempts);
        }
    }

    fn return_to(&mut self) -> Result<(Session, LastBatch), DatabaseError> {
        let returned = self.place.return_to(&self.connector)?;
        // The last batch may have been committed, and its changes are not known here any more.
        self.cache.reset(self.place.own.at());
        self.stats.lock().reconnected += 1;
        Ok(returned)
    }

    /// Stops the committer if the error says that it must not go on. Returns whether it did.
    fn stop_if_final(&mut self, error: &DatabaseError) -> bool {
        match error {
            DatabaseError::LostTransactions(reason) => {
                self.connector.acknowledged.set_lost(error);
                self.close_database(reason);
            }
            DatabaseError::TakenOver(_) | DatabaseError::Schema(_) => {}
            _ => return false,
        }
        self.end(error.clone());
        true
    }

    /// Keeps every manager from starting on a database that has lost changes.
    fn close_database(&self, reason: &str) {
        let until = Instant::now() + self.config.patience;
        loop {
            match self.connector.close(reason) {
                Ok(()) => return,
                Err(error) if Instant::now() >= until || self.queue.is_closed() => {
                    tracing::error!("cannot note in the database that it has lost changes: {error}");
                    return;
                }
                Err(_) => std::thread::sleep(self.config.between_attempts),
            }
        }
    }

    /// Runs the operations in one transaction.
    fn attempt(&mut self, part: &mut Part, parts: &mut VecDeque<Part>) -> Result<Vec<OpResult>, Failed> {
        let mut session = match self.take_session() {
            Ok(session) => session,
            Err(error) if self.stop_if_final(&error) => return Err(Failed::Refused(error)),
            Err(error) => return Err(Failed::Away(error)),
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
        if let Some(signs) = &self.signs {
            signs.begin(self.place.own.fence(), self.place.own.batch(), self.place.own.last_sent());
        }
        let run = self.run_all(session, part);
        let signs = self.signs.as_ref().map(SignsOfLife::end).unwrap_or_default();
        if let Some(sent) = signs.confirmed {
            self.place.own.confirmed(sent);
        }
        let Run { ran, mut writes, mut is_begun, trusts_cache } = run?;
        // Operations for which the batch has no room.
        let rest = part.requests.split_off(ran.len());
        if !rest.is_empty() {
            parts.push_front(Part::new(rest));
        }
        let changes = writes.take();
        // What was decided by what is known counts only if nobody else has committed since. A batch proves it, also an empty one.
        let is_proven = !trusts_cache || self.place.own.has_lease(Instant::now());
        let needs_no_batch = changes.is_empty() && is_proven;
        if is_begun && signs.is_sent && !needs_no_batch {
            // The row has changed since the transaction began, which the database would take for a collision. What was read stays right for as long as
            // nobody else commits, and the next transaction proves that.
            session.end_unchanged().map_err(|error| self.undone(session, error))?;
            is_begun = false;
        }
        let committed = if needs_no_batch {
            let ended = if is_begun { session.end_unchanged() } else { Ok(()) };
            ended.map_or_else(Commit::Undone, |()| Commit::Done)
        } else {
            let sent = Instant::now();
            let own = &mut self.place.own;
            let committed = session.commit((&self.place.name, own.fence()), own.batch() + 1, &changes, is_begun);
            if matches!(committed, Commit::Done) {
                let batch = own.committed(sent);
                self.cache.apply(batch, &changes);
                self.connector.acknowledged.note(own.at());
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

    /// Runs the operations until they have read only what is known, in a transaction if something must be fetched.
    fn run_all(&mut self, session: &mut Session, part: &mut Part) -> Result<Run, Failed> {
        let cache = Arc::clone(&self.cache);
        let view = Pending::new(&cache);
        let mut begin = Begin::Changing;
        let mut writes = WriteSet::default();
        let mut ran = Vec::new();
        for run in 0.. {
            ran.clear();
            let _ = writes.take();
            for request in &mut part.requests {
                view.begin_operation();
                ran.push(run_one(request, &view, &mut writes));
                if writes.weight() >= self.config.batch_bytes {
                    break;
                }
            }
            let needs = view.take_needs();
            if needs.is_empty() {
                break;
            }
            if run >= RUNS_MAX {
                let _ = session.roll_back();
                return Err(Failed::Refused(DatabaseError::Failed("an operation never stops asking for more".into())));
            }
            let mut found = Fetched::default();
            if let Err(error) = session.fetch(begin, &needs, &mut found) {
                return Err(self.undone(session, error));
            }
            self.cache.learn(self.place.own.at(), &found);
            view.absorb(found);
            begin = Begin::Not;
        }
        Ok(Run { ran, writes, is_begun: begin == Begin::Not, trusts_cache: view.trusts_cache() })
    }

    /// Nothing was committed. Leaves the transaction.
    fn undone(&mut self, session: &mut Session, error: DatabaseError) -> Failed {
        if !session.connection.is_broken() {
            let _ = session.roll_back();
        }
        let error = match error {
            // The row is not as this process left it. That may have another reason.
            DatabaseError::TakenOver(_) if !session.connection.is_broken() => {
                self.place.who_has_it(session, &self.connector)
            }
            error => error,
        };
        match error {
            DatabaseError::Conflict(_) | DatabaseError::Timeout(_) => Failed::Conflict(error),
            DatabaseError::Unavailable { .. } | DatabaseError::Full { .. } => Failed::Away(error),
            error => {
                self.stop_if_final(&error);
                Failed::Refused(error)
            }
        }
    }

    /// Commits nothing any more.
    fn end(&mut self, error: DatabaseError) {
        tracing::error!("{error}");
        self.place.end_lease();
        // First, so that whoever sees the queue broken finds the reason.
        *self.end.lock() = Some(error.clone());
        self.queue.break_off(&error.to_string());
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

/// Operations that have run to their end, and are not committed.
struct Run {
    ran: Vec<OpResult>,
    writes: WriteSet,
    /// Whether a transaction has begun.
    is_begun: bool,
    /// Whether they have read something that was known before it.
    trusts_cache: bool,
}

/// Operations that are committed together.
struct Part {
    requests: Vec<Request>,
    attempts: Attempts,
    /// The results of the operations of a commit whose answer was lost.
    last_run: Option<Vec<OpResult>>,
}

impl Part {
    fn new(requests: Vec<Request>) -> Self {
        Self { requests, attempts: Attempts::begin(Instant::now()), last_run: None }
    }

    /// Puts the second half before `parts`, if there is one.
    fn split(&mut self, parts: &mut VecDeque<Part>) {
        if self.requests.len() > 1 {
            let requests = self.requests.split_off(self.requests.len() / 2);
            parts.push_front(Part { requests, attempts: self.attempts, last_run: None });
        }
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

/// How the operations of a batch that was not confirmed are answered.
enum Ended {
    /// It was committed, with these results.
    Ran(Vec<OpResult>),
    /// All fail.
    All(KvError),
}

impl Ended {
    fn of(self, part: Part) -> Completions {
        match self {
            Self::Ran(ran) => part.answers(ran),
            Self::All(error) => part.all(&Err(error)),
        }
    }
}
