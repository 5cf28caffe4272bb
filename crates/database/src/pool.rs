//! Connections for readers: a bounded number, made when they are needed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::DatabaseError;
use crate::session::{Connector, Session};

/// Waits between attempts to connect.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(100);

struct State {
    idle: Vec<Session>,
    /// Connections that exist or are being made.
    count: usize,
    /// Since when attempts to connect fail.
    away_since: Option<Instant>,
    /// When the database had no room for another connection.
    full_at: Option<Instant>,
}

impl State {
    /// Whether a reader makes a connection. While the database has no room, those that are there must do.
    fn may_connect(&self, max: usize, now: Instant) -> bool {
        let is_full = self.full_at.is_some_and(|at| now.saturating_duration_since(at) < FULL);
        self.count < max && (self.count == 0 || !is_full)
    }
}

/// How long the pool makes no connection after the database had no room for one.
const FULL: Duration = Duration::from_secs(1);

/// Connections for readers.
pub(crate) struct Pool {
    connector: Arc<Connector>,
    state: Mutex<State>,
    returned: Condvar,
    max: usize,
    /// How long a reader waits for a connection.
    patience: Duration,
}

impl Pool {
    pub(crate) fn new(connector: Arc<Connector>, max: usize, patience: Duration) -> Self {
        let state = Mutex::new(State { idle: Vec::new(), count: 0, away_since: None, full_at: None });
        Self { connector, state, returned: Condvar::new(), max: max.max(1), patience }
    }

    /// Until when a reader that begins now waits.
    pub(crate) fn until(&self) -> Instant {
        Instant::now() + self.patience
    }

    /// Takes a connection. Waits until one is free and the database can be reached, but at most `until` then.
    pub(crate) fn take(&self, until: Instant) -> Result<Pooled<'_>, DatabaseError> {
        let mut state = self.state.lock();
        loop {
            match state.idle.pop() {
                Some(session) if !self.is_of_use(&session) => state.count -= 1,
                Some(session) => return Ok(Pooled { pool: self, session: Some(session) }),
                None if state.may_connect(self.max, Instant::now()) => {
                    state.count += 1;
                    drop(state);
                    // Counts the connection until it is put back, or dropped.
                    let mut pooled = Pooled { pool: self, session: None };
                    match self.connect(until) {
                        Err(full @ DatabaseError::Full { .. }) => {
                            drop(pooled);
                            state = self.state.lock();
                            self.note_full(&mut state, &full);
                            // Nobody will put one back.
                            if state.count == 0 {
                                drop(state);
                                if Instant::now() >= until {
                                    return Err(full);
                                }
                                std::thread::sleep(BETWEEN_ATTEMPTS);
                                state = self.state.lock();
                            }
                        }
                        connected => {
                            pooled.session = Some(connected?);
                            return Ok(pooled);
                        }
                    }
                }
                None => {
                    if self.returned.wait_until(&mut state, until).timed_out() {
                        return Err(self.connector.unavailable(self.none_came(&state)));
                    }
                }
            }
        }
    }

    /// Why a reader got no connection in time.
    fn none_came(&self, state: &State) -> String {
        let (max, count) = (self.max, state.count);
        if state.away_since.is_some() {
            "all readers wait for it".into()
        } else if state.full_at.is_some() {
            format!("it has room for {count} connections for readers, and all are in use; raise its `max_connections`")
        } else {
            format!("all {max} connections for readers are in use; raise `database.connections`")
        }
    }

    fn note_full(&self, state: &mut State, full: &DatabaseError) {
        if state.full_at.is_none() {
            tracing::warn!("{full}; readers share {} of {} connections", state.count, self.max);
        }
        state.full_at = Some(Instant::now());
    }

    fn is_of_use(&self, session: &Session) -> bool {
        !session.connection.is_broken() && session.generation == self.connector.acknowledged.generation()
    }

    /// Connects, with patience since the database went away. Who comes later gets one attempt.
    fn connect(&self, until: Instant) -> Result<Session, DatabaseError> {
        loop {
            let connected = self.connector.connect_to_read();
            let now = Instant::now();
            let is_away = matches!(connected, Err(DatabaseError::Unavailable { .. } | DatabaseError::Timeout(_)));
            let away_since = {
                let mut state = self.state.lock();
                state.away_since = is_away.then(|| state.away_since.unwrap_or(now));
                if connected.is_ok() && state.full_at.take().is_some() {
                    tracing::info!("the database has room for another connection");
                }
                state.away_since
            };
            if away_since.is_none_or(|since| now >= until.min(since + self.patience)) {
                return connected;
            }
            std::thread::sleep(BETWEEN_ATTEMPTS);
        }
    }

    /// Closes the idle connections: one of them was dead, and the others may be, too.
    pub(crate) fn close_idle(&self) {
        let idle = {
            let mut state = self.state.lock();
            state.count -= state.idle.len();
            std::mem::take(&mut state.idle)
        };
        self.returned.notify_all();
        drop(idle);
    }
}

/// A connection that returns to its pool. A broken one is closed.
pub(crate) struct Pooled<'a> {
    pool: &'a Pool,
    session: Option<Session>,
}

impl Pooled<'_> {
    pub(crate) fn session(&mut self) -> Result<&mut Session, DatabaseError> {
        let pool = self.pool;
        self.session.as_mut().ok_or_else(|| pool.connector.unavailable("there is no connection"))
    }
}

impl Drop for Pooled<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.state.lock();
        match self.session.take() {
            // A panic may have left a transaction open.
            Some(session) if self.pool.is_of_use(&session) && !std::thread::panicking() => state.idle.push(session),
            session => {
                state.count -= 1;
                drop(state);
                drop(session);
            }
        }
        self.pool.returned.notify_one();
    }
}
