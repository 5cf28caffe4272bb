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
}

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
        let state = Mutex::new(State { idle: Vec::new(), count: 0 });
        Self { connector, state, returned: Condvar::new(), max: max.max(1), patience }
    }

    /// Takes a connection. Waits until one is free and the database can be reached, but not longer than the pool's patience.
    pub(crate) fn take(&self) -> Result<Session, DatabaseError> {
        let until = Instant::now() + self.patience;
        {
            let mut state = self.state.lock();
            loop {
                match state.idle.pop() {
                    Some(session) if session.connection.is_broken() => state.count -= 1,
                    Some(session) => return Ok(session),
                    None if state.count < self.max => {
                        state.count += 1;
                        break;
                    }
                    None => {
                        if self.returned.wait_until(&mut state, until).timed_out() {
                            let reason = format!(
                                "all {} connections for readers are in use; raise `database.connections`",
                                self.max
                            );
                            return Err(self.connector.unavailable(reason));
                        }
                    }
                }
            }
        }
        let connected = self.connect(until);
        if connected.is_err() {
            self.forget();
        }
        connected
    }

    fn connect(&self, until: Instant) -> Result<Session, DatabaseError> {
        loop {
            match self.connector.connect() {
                Err(DatabaseError::Unavailable { .. } | DatabaseError::Timeout(_)) if Instant::now() < until => {
                    std::thread::sleep(BETWEEN_ATTEMPTS);
                }
                ended => return ended,
            }
        }
    }

    /// Returns a connection. A broken one is closed.
    pub(crate) fn put_back(&self, session: Session) {
        if session.connection.is_broken() {
            self.forget();
            return;
        }
        self.state.lock().idle.push(session);
        self.returned.notify_one();
    }

    /// A connection that was counted is gone.
    fn forget(&self) {
        self.state.lock().count -= 1;
        self.returned.notify_one();
    }
}
