//! The engine of the process that has the place, as [`crate::Postgres`]. It sends one request at a time, and goes on when the answer comes. All
//! operations that wait meanwhile are the next batch.
//!
//! Instead of a cache it has all entries as they were after its last batch. It uses them as the real engine uses its cache: the committer behind its
//! fence, readers under the lease.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kv::committing::{Completions, OpResult, Request as Queued, WriteSet, run_one};
use kv::{Durability, Kv, KvError, Op, OpDone, Read};
use parking_lot::Mutex;

use super::PlantedBug;
use super::server::{Answer, Ask, Entries, Request, Said, Sent, SimDatabase, Unreadable, View};
use crate::attempts::{Attempts, Broke, Collided, Returned, after_return};
use crate::own_place::{LastBatch, NotOurs, OwnPlace, Process};
use crate::place_lease::PlaceLease;
use crate::{DatabaseError, PostgresConfig};

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(3);

/// Counters of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SimStats {
    /// Batches that were committed.
    pub batches: u64,
    /// Commits whose answer was lost.
    pub answers_lost: u64,
    /// Of them, those that had been committed.
    pub were_committed: u64,
    /// Batches that collided.
    pub collisions: u64,
    /// Operations whose outcome nobody was told.
    pub unknown: u64,
}

/// What a request was for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    Return,
    Commit,
    Beat,
    /// Whose the row is.
    Who,
    Close,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    number: u64,
    sent: Instant,
    purpose: Purpose,
}

/// Operations that are committed together.
struct Part {
    /// Its number in this process.
    number: u64,
    requests: Vec<Queued>,
    attempts: Attempts,
    /// The results of the last run.
    ran: Vec<OpResult>,
}

struct Inner {
    now: Instant,
    own: OwnPlace,
    config: PostgresConfig,
    /// The server of the connection. `None`: there is none.
    server: Option<u64>,
    asked: Option<Asked>,
    numbers: u64,
    /// The number of the last part.
    batches: u64,
    queue: VecDeque<Queued>,
    parts: VecDeque<Part>,
    /// How the connection broke at the first part.
    broke: Option<Broke>,
    /// Since when there is no connection.
    away_since: Option<Instant>,
    next_attempt: Instant,
    /// Whether the database can be reached now.
    is_reachable: bool,
    /// Whether callers wait for their changes: then requests are answered at once, and nobody waits for a database that is away.
    is_at_once: bool,
    known: Option<Entries>,
    end: Option<DatabaseError>,
    must_close: Option<String>,
    /// The row is not as this process left it, and it must look why.
    must_look: bool,
    out: Vec<Sent>,
    answers: Completions,
    stats: SimStats,
    planted: Option<PlantedBug>,
}

/// See the module.
pub struct SimEngine {
    database: Arc<Mutex<SimDatabase>>,
    inner: Mutex<Inner>,
}

impl SimEngine {
    /// The answer to the request for the place has come, at `now`. `None`: the place was not as it was seen, or the database did not answer well.
    #[must_use]
    pub fn taken(
        database: &Arc<Mutex<SimDatabase>>,
        process: Process,
        (sent, now): (Instant, Instant),
        answer: &Answer,
        planted: Option<PlantedBug>,
    ) -> Option<Arc<Self>> {
        let Said::Changed(Some(row)) = answer.said else { return None };
        let from = if planted == Some(PlantedBug::LeaseFromTheConfirmation) { now } else { sent };
        let inner = Inner {
            now,
            own: OwnPlace::taken(process, row, from),
            config: PostgresConfig::default(),
            server: Some(answer.server),
            asked: None,
            numbers: 0,
            batches: 0,
            queue: VecDeque::new(),
            parts: VecDeque::new(),
            broke: None,
            away_since: None,
            next_attempt: now,
            is_reachable: true,
            is_at_once: false,
            known: None,
            end: None,
            must_close: None,
            must_look: false,
            out: Vec::new(),
            answers: Completions::default(),
            stats: SimStats::default(),
            planted,
        };
        Some(Arc::new(Self { database: Arc::clone(database), inner: Mutex::new(inner) }))
    }

    /// Works at the time `now` of the process, and calls the answers to operations. `is_reachable`: whether the database can be reached.
    pub fn tick(&self, now: Instant, is_reachable: bool) {
        self.work(|inner| {
            (inner.now, inner.is_reachable) = (now, is_reachable);
            let is_late = |asked: &Asked| now.saturating_duration_since(asked.sent) >= ANSWER;
            if inner.asked.is_some_and(|asked| is_late(&asked)) {
                inner.broken();
            }
        });
    }

    /// Whether callers wait for their changes: then requests are answered at once.
    pub fn set_at_once(&self, is_at_once: bool) {
        self.work(|inner| {
            inner.is_at_once = is_at_once;
            // What is on its way may arrive late. The engine waits for it no longer.
            if is_at_once && inner.asked.is_some() {
                inner.broken();
            }
        });
    }

    /// An answer arrives.
    pub fn answered(&self, number: u64, answer: Answer) {
        self.work(|inner| inner.answered(number, answer));
    }

    /// The requests that must be sent.
    #[must_use]
    pub fn take_out(&self) -> Vec<Sent> {
        std::mem::take(&mut self.inner.lock().out)
    }

    /// Whether this process may act as the one that has the place, at its time `now`.
    #[must_use]
    pub fn lease(&self, now: Instant) -> PlaceLease {
        self.inner.lock().own.lease().lock().at(now)
    }

    /// Why nothing is committed any more.
    #[must_use]
    pub fn end(&self) -> Option<DatabaseError> {
        self.inner.lock().end.clone()
    }

    /// Whether the database must still be told that it is closed.
    #[must_use]
    pub fn must_close(&self) -> bool {
        self.inner.lock().must_close.is_some()
    }

    /// The last acknowledged batch.
    #[must_use]
    pub fn batch(&self) -> i64 {
        self.inner.lock().own.batch()
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> SimStats {
        self.inner.lock().stats
    }

    /// Stops: nothing is committed any more. Returns the request that gives the place up, if there is a connection for it.
    pub fn stop(&self, now: Instant) -> Option<Sent> {
        let release = {
            let mut inner = self.inner.lock();
            inner.own.lease().lock().end(now);
            let release = inner.release();
            inner.out.clear();
            release
        };
        self.work(|inner| {
            inner.end.get_or_insert_with(|| DatabaseError::TakenOver("this process stops".into()));
        });
        release
    }

    /// Does `change`, goes on as far as possible, and calls the answers without the lock.
    fn work(&self, change: impl FnOnce(&mut Inner)) {
        let mut inner = self.inner.lock();
        change(&mut inner);
        inner.go_on(&self.database);
        loop {
            let answers = std::mem::take(&mut inner.answers);
            if answers.is_empty() {
                return;
            }
            drop(inner);
            for (done, result) in answers {
                done(result);
            }
            inner = self.inner.lock();
        }
    }
}

impl Inner {
    fn go_on(&mut self, database: &Mutex<SimDatabase>) {
        while self.step(database) {}
    }

    /// Does the next thing. `false`: there is nothing to do before something happens.
    fn step(&mut self, database: &Mutex<SimDatabase>) -> bool {
        if self.end.is_some() {
            self.fail_all();
        }
        if self.asked.is_some() {
            return false;
        }
        let is_idle = self.parts.is_empty() && self.queue.is_empty();
        if let Some(reason) = self.must_close.clone() {
            return self.may_attempt()
                && !self.is_at_once
                && self.ask(None, Purpose::Close, Ask::Close { reason }, database);
        }
        if self.end.is_some() || (is_idle && self.is_at_once) {
            return false;
        }
        let (process, fence, batch) = (self.own.process, self.own.fence(), self.own.batch());
        if self.parts.is_empty() && !self.queue.is_empty() {
            let requests = self.queue.drain(..).collect();
            self.batches += 1;
            let (number, attempts) = (self.batches, Attempts::begin(self.now));
            self.parts.push_back(Part { number, requests, attempts, ran: Vec::new() });
        }
        let Some(server) = self.server else {
            return self.may_attempt() && self.ask(None, Purpose::Return, Ask::Return { process, fence }, database);
        };
        if std::mem::take(&mut self.must_look) {
            return self.ask(Some(server), Purpose::Who, Ask::Look, database);
        }
        if self.parts.is_empty() {
            let is_due = self.own.is_beat_due(self.now);
            return is_due && self.ask(Some(server), Purpose::Beat, Ask::Beat { process, fence, batch }, database);
        }
        let (trusts_known, base) = match &self.known {
            Some(known) => (true, Arc::clone(known)),
            None => {
                let database = database.lock();
                if !self.is_reachable || database.server() != server {
                    drop(database);
                    self.lose_connection(Broke::BeforeCommit);
                    return true;
                }
                (false, database.entries())
            }
        };
        let Some(part) = self.parts.front_mut() else { return false };
        let (view, mut writes) = (View(base), WriteSet::default());
        part.ran = part.requests.iter_mut().map(|request| run_one(request, &view, &mut writes)).collect();
        let (changes, operations) = (writes.take(), part.number);
        // What was decided by what is known counts only if nobody else has committed since.
        if changes.is_empty() && (!trusts_known || self.own.has_lease(self.now)) {
            self.answer_ran();
            return true;
        }
        self.ask(Some(server), Purpose::Commit, Ask::Commit { process, fence, batch, operations, changes }, database)
    }

    fn may_attempt(&self) -> bool {
        self.is_at_once || self.now >= self.next_attempt
    }

    /// Sends a request. Returns whether its answer is there already.
    fn ask(&mut self, server: Option<u64>, purpose: Purpose, ask: Ask, database: &Mutex<SimDatabase>) -> bool {
        self.numbers += 1;
        let number = self.numbers;
        self.asked = Some(Asked { number, sent: self.now, purpose });
        let sent = Sent { number, server, request: Request(ask) };
        if !self.is_at_once {
            self.out.push(sent);
            return false;
        }
        if self.is_reachable {
            let answer = database.lock().serve(sent);
            self.answered(number, answer);
        } else {
            self.broken();
        }
        true
    }

    fn answered(&mut self, number: u64, answer: Answer) {
        let Some(asked) = self.asked.take_if(|asked| asked.number == number) else { return };
        let from = match self.planted {
            Some(PlantedBug::LeaseFromTheConfirmation) => self.now,
            _ => asked.sent,
        };
        match (asked.purpose, answer.said) {
            (Purpose::Return, Said::Changed(Some(row))) => {
                (self.server, self.away_since, self.known) = (Some(answer.server), None, None);
                self.returned(from, row);
            }
            (Purpose::Commit, Said::Committed(entries)) => {
                self.own.committed(from);
                self.known = Some(entries);
                self.stats.batches += 1;
                self.answer_ran();
            }
            (Purpose::Commit, Said::Collided) => self.collided(),
            (Purpose::Beat, Said::Changed(Some(_))) => self.own.confirmed(from),
            // The row is not as this process left it.
            (Purpose::Return | Purpose::Commit | Purpose::Beat, Said::Changed(None)) => {
                self.server = Some(answer.server);
                self.must_look = true;
            }
            (Purpose::Who, Said::Row { row, .. }) => {
                let row = row.as_ref().map(|row| (row.fence, row.batch, row.process.as_slice()));
                self.stop_because(self.own.why_not(row));
            }
            (Purpose::Close, Said::Changed(_)) => self.must_close = None,
            _ => {
                self.asked = Some(asked);
                self.broken();
            }
        }
    }

    /// This process has connected again.
    fn returned(&mut self, from: Instant, (fence, batch): (i64, i64)) {
        let (mut last, planted) = (self.own.returned(from, (fence, batch)), self.planted);
        if planted == Some(PlantedBug::LowerBatchAccepted) && last.is_err() {
            self.own = OwnPlace::taken(self.own.process, (fence, batch), from);
            last = Ok(LastBatch::NotCommitted);
        }
        let mut last = match last {
            Ok(last) => last,
            Err(why) => return self.stop_because(why),
        };
        let Some(broke) = self.broke.take() else { return };
        self.stats.were_committed += u64::from((broke, last) == (Broke::AtCommit, LastBatch::Committed));
        if planted == Some(PlantedBug::RunAgainBlindly) {
            last = LastBatch::NotCommitted;
        }
        self.after(broke, Some(last));
    }

    /// What follows at the first part when the connection is back, or nobody waits for it any longer.
    fn after(&mut self, broke: Broke, last: Option<LastBatch>) {
        let away = || KvError::Unavailable("the database is away".into());
        match after_return(broke, last) {
            Returned::TryAgain => {
                let (now, config) = (self.now, &self.config);
                let Some(part) = self.parts.front_mut() else { return };
                if !part.attempts.returned() && !part.attempts.may_try_again(now, config) {
                    self.answer_all(&away());
                }
            }
            Returned::Committed => self.answer_ran(),
            Returned::Fails => self.answer_all(&away()),
            Returned::MaybeCommitted => {
                self.stats.unknown += 1;
                self.answer_all(&KvError::MaybeCommitted);
            }
        }
    }

    fn collided(&mut self) {
        self.stats.collisions += 1;
        let Some(part) = self.parts.front_mut() else { return };
        match part.attempts.collided(self.now, false, &self.config) {
            Collided::GiveUp => {
                let retries = part.attempts.collisions;
                self.answer_all(&KvError::Conflict { retries });
            }
            Collided::Split if part.requests.len() > 1 => {
                let requests = part.requests.split_off(part.requests.len() / 2);
                self.batches += 1;
                let second = Part { number: self.batches, requests, attempts: part.attempts, ran: Vec::new() };
                self.parts.insert(1, second);
            }
            Collided::Split | Collided::Again => {}
        }
    }

    /// The connection broke, or the answer did not come.
    fn broken(&mut self) {
        let purpose = self.asked.take().map(|asked| asked.purpose);
        let at_commit = purpose == Some(Purpose::Commit);
        self.stats.answers_lost += u64::from(at_commit);
        self.lose_connection(if at_commit { Broke::AtCommit } else { Broke::BeforeCommit });
        self.next_attempt = self.now + self.config.between_attempts;
        let since = *self.away_since.get_or_insert(self.now);
        let is_over = self.is_at_once || self.now.saturating_duration_since(since) >= self.config.patience;
        if purpose == Some(Purpose::Return) && is_over && !self.parts.is_empty() {
            let broke = self.broke.take().unwrap_or(Broke::BeforeCommit);
            self.after(broke, None);
        }
    }

    fn lose_connection(&mut self, broke: Broke) {
        self.server = None;
        if !self.parts.is_empty() {
            // That a commit may have happened is not forgotten when the next attempt to connect fails.
            self.broke.get_or_insert(broke);
        }
    }

    fn stop_because(&mut self, why: NotOurs) {
        let end = match why {
            NotOurs::TakenOver => DatabaseError::TakenOver("another process commits in this one's place".into()),
            NotOurs::Lost(batches) => {
                let reason = format!("the database has lost at least {batches} acknowledged batches");
                self.must_close = Some(reason.clone());
                DatabaseError::LostTransactions(reason)
            }
        };
        self.own.lease().lock().end(self.now);
        self.end.get_or_insert(end);
    }

    fn release(&self) -> Option<Sent> {
        let server = self.server.filter(|_| self.end.is_none())?;
        let (process, fence, batch) = (self.own.process, self.own.fence(), self.own.batch());
        let request = Request(Ask::Release { process, fence, batch });
        Some(Sent { number: self.numbers + 1, server: Some(server), request })
    }

    fn answer_ran(&mut self) {
        let Some(part) = self.parts.pop_front() else { return };
        self.broke = None;
        let answer = |(request, ran): (Queued, OpResult)| {
            let result = match ran {
                OpResult::Refused(error) => Err(error),
                OpResult::Committed | OpResult::Aborted => Ok(()),
            };
            (request.done, result)
        };
        self.answers.extend(part.requests.into_iter().zip(part.ran).map(answer));
    }

    fn answer_all(&mut self, error: &KvError) {
        let Some(part) = self.parts.pop_front() else { return };
        self.broke = None;
        self.answers.extend(part.requests.into_iter().map(|request| (request.done, Err(error.clone()))));
    }

    fn fail_all(&mut self) {
        let Some(end) = self.end.clone() else { return };
        let error = KvError::from(end);
        while !self.parts.is_empty() {
            self.answer_all(&error);
        }
        self.answers.extend(self.queue.drain(..).map(|request| (request.done, Err(error.clone()))));
        self.broke = None;
    }
}

impl Kv for SimEngine {
    fn snapshot(&self) -> Box<dyn Read + Send + '_> {
        let mut inner = self.inner.lock();
        if let Some(end) = inner.end.clone().filter(|end| matches!(end, DatabaseError::LostTransactions(_))) {
            return Box::new(Unreadable(end.into()));
        }
        if let Some(known) = inner.known.clone().filter(|_| inner.own.has_lease(inner.now)) {
            return Box::new(View(known));
        }
        if !inner.is_reachable {
            return Box::new(Unreadable(KvError::Unavailable("the database is away".into())));
        }
        let (batch, entries) = {
            let database = self.database.lock();
            (database.batch(), database.entries())
        };
        let lacks = inner.own.batch() - batch;
        if lacks > 0 && inner.planted != Some(PlantedBug::LowerBatchAccepted) {
            inner.stop_because(NotOurs::Lost(lacks));
            return Box::new(Unreadable(KvError::Lost("the database has lost changes".into())));
        }
        Box::new(View(entries))
    }

    fn submit(&self, durability: Durability, op: Op, done: OpDone) {
        self.work(|inner| inner.queue.push_back(Queued { durability, urgent: false, op, done }));
    }
}
