//! A committer's place in the database: its row of `weir.committers`. It has the number of its last batch, which tells after a lost connection whether a
//! batch was committed, and a fence, which keeps out what an earlier connection or process still sends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::DatabaseError;
use crate::cache::Seen;
use crate::place_lease::{OwnLease, Terms, Vacancy};
use crate::session::{Connection, Connector, Session};

/// How long the answer to a release may take: nobody wants to wait for it when a process stops.
const RELEASE: Duration = Duration::from_secs(3);
/// How often the row changes at least.
pub(crate) const BEAT_EVERY: Duration = Duration::from_secs(1);
/// A transaction of a committer that waits longer for its next statement is undone. If the machine dies on the way, the lock of the row must not keep
/// others from the place for long.
const IDLE: Duration = Duration::from_secs(5);

/// The place of one committer.
pub(crate) struct Place {
    /// Its name: one committer at a time has it.
    pub(crate) name: String,
    /// This process, as a random number.
    process: [u8; 16],
    /// The fence of the present connection.
    pub(crate) fence: i64,
    /// The last batch that is known to be committed.
    pub(crate) batch: i64,
    /// Extended by each confirmed change of the row.
    lease: Arc<Mutex<OwnLease>>,
    /// When the last change of the row was sent.
    sent: Instant,
}

/// What the database knows of a batch whose answer was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LastBatch {
    /// It was committed.
    Committed,
    /// It was not, and cannot be any more.
    NotCommitted,
}

impl Place {
    /// Takes the place at the start of a process, only if the row still has the state in which it was found free. An earlier process that still runs
    /// cannot commit any more. `None`: the row has another state.
    pub(crate) fn take(
        connector: &Arc<Connector>,
        name: &str,
        vacancy: &Vacancy,
    ) -> Result<Option<(Self, Session)>, DatabaseError> {
        let mut session = connect(connector)?;
        let process: [u8; 16] = rand::random();
        let (own, sent) = (process.as_slice(), Instant::now());
        let rows = match vacancy {
            Vacancy(None) => session.connection.change(
                "INSERT INTO weir.committers (name, process, fence, batch) VALUES ($1, $2, 1, 0)
                 ON CONFLICT (name) DO NOTHING RETURNING fence, batch",
                &[&name, &own],
            )?,
            Vacancy(Some(seen)) => session.connection.change(
                "UPDATE weir.committers SET process = $2, fence = fence + 1, holder = NULL
                 WHERE name = $1 AND process = $3 AND fence = $4 AND batch = $5 AND beat = $6
                 RETURNING fence, batch",
                &[&name, &own, &seen.process, &seen.fence, &seen.batch, &seen.beat],
            )?,
        };
        let Some(row) = rows.first() else { return Ok(None) };
        let lease = Arc::new(Mutex::new(OwnLease::new(Terms::DEFAULT, sent)));
        let place = Self { name: name.into(), process, fence: row.get(0), batch: row.get(1), lease, sent };
        connector.acknowledged.begin(name, Arc::clone(&place.lease));
        connector.acknowledged.note(place.at());
        Ok(Some((place, session)))
    }

    /// What readers see of this committer in its database.
    pub(crate) fn at(&self) -> Seen {
        Seen { batch: self.batch, fence: self.fence }
    }

    /// Whether nobody else can have committed anything up to now.
    pub(crate) fn has_lease(&self, now: Instant) -> bool {
        self.lease.lock().at(now).is_held()
    }

    /// The lease, for those who ask about it.
    pub(crate) fn lease(&self) -> Arc<Mutex<OwnLease>> {
        Arc::clone(&self.lease)
    }

    /// Connects again. If the answer to the batch after the last known one was lost, the result says whether it was committed.
    ///
    /// # Errors
    /// [`DatabaseError::TakenOver`], [`DatabaseError::LostTransactions`]: this committer must stop.
    pub(crate) fn return_to(&mut self, connector: &Arc<Connector>) -> Result<(Session, LastBatch), DatabaseError> {
        connector.acknowledged.connected_again();
        let mut session = connect(connector)?;
        let sent = Instant::now();
        // Waits for what an earlier connection still does to the row, and keeps out what it has not done yet. Its own commit is behind all earlier ones
        // in the log, so a standby that has confirmed it has them, too.
        let rows = session.connection.change(
            "UPDATE weir.committers SET fence = greatest(fence, $3) + 1 WHERE name = $1 AND process = $2 RETURNING fence, batch",
            &[&self.name, &self.process.as_slice(), &self.fence],
        )?;
        let Some(row) = rows.first() else { return Err(self.who_has_it(&mut session, connector)) };
        let (fence, batch): (i64, i64) = (row.get(0), row.get(1));
        if batch < self.batch {
            return Err(connector.lost_batches(self.batch - batch));
        }
        let last = if batch > self.batch { LastBatch::Committed } else { LastBatch::NotCommitted };
        (self.fence, self.batch) = (fence, batch);
        connector.acknowledged.note(self.at());
        self.confirmed(sent);
        Ok((session, last))
    }

    /// The database has confirmed a change of the row that was sent at `sent`.
    pub(crate) fn confirmed(&mut self, sent: Instant) {
        self.sent = self.sent.max(sent);
        self.lease.lock().confirmed(sent);
    }

    /// When the last change of the row that the database has confirmed was sent.
    pub(crate) fn last_sent(&self) -> Instant {
        self.sent
    }

    /// Whether the row must change now, so that others see that this process lives.
    pub(crate) fn is_beat_due(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.sent) >= BEAT_EVERY
    }

    /// Changes the row without a batch. `holder`: what the row says about this process. If the answer is lost, nothing must be looked up: the next beat
    /// has another number.
    ///
    /// # Errors
    /// [`DatabaseError::TakenOver`], [`DatabaseError::LostTransactions`]: this committer must stop.
    pub(crate) fn beat(
        &mut self,
        connector: &Arc<Connector>,
        session: &mut Session,
        holder: Option<&str>,
    ) -> Result<(), DatabaseError> {
        let sent = Instant::now();
        let place = (self.name.as_str(), self.fence, self.batch);
        let is_ours = change_without_batch(&mut session.connection, place, holder)?;
        if !is_ours {
            return Err(self.who_has_it(session, connector));
        }
        self.confirmed(sent);
        Ok(())
    }

    /// Gives the place up, so that others need not wait until they may take it. Nothing that is still on its way can change the row any more.
    pub(crate) fn release(&mut self, session: &mut Session) -> Result<(), DatabaseError> {
        session.connection.limit_patience(RELEASE);
        session
            .connection
            .change(
                "UPDATE weir.committers SET process = '', fence = fence + 1, holder = NULL
                 WHERE name = $1 AND process = $2 AND fence = $3 AND batch = $4",
                &[&self.name, &self.process.as_slice(), &self.fence, &self.batch],
            )
            .map(drop)
    }

    /// From now on, this process must not act as the one that has the place.
    pub(crate) fn end_lease(&self) {
        self.lease.lock().end(Instant::now());
    }

    /// Why the row does not let this process commit.
    pub(crate) fn who_has_it(&self, session: &mut Session, connector: &Arc<Connector>) -> DatabaseError {
        let rows = session
            .connection
            .query("SELECT fence, batch, process FROM weir.committers WHERE name = $1", &[&self.name]);
        let rows = match rows {
            Ok(rows) => rows,
            Err(error) => return error,
        };
        let Some(row) = rows.first() else { return connector.lost_batches(self.batch.max(1)) };
        let (fence, batch, process): (i64, i64, Vec<u8>) = (row.get(0), row.get(1), row.get(2));
        if batch < self.batch {
            return connector.lost_batches(self.batch - batch);
        }
        // The row is older than this process: the database does not know that it has started.
        if process != self.process && fence <= self.fence {
            return connector.lost_batches(self.batch.max(1));
        }
        DatabaseError::TakenOver(format!(
            "another process commits in the place of {} at the database {}; this one stops",
            self.name, connector.address
        ))
    }
}

/// Changes the row of a place, given as its name, fence and batch, as a sign of life. Returns whether it was as given.
pub(crate) fn change_without_batch(
    connection: &mut Connection,
    (name, fence, batch): (&str, i64, i64),
    holder: Option<&str>,
) -> Result<bool, DatabaseError> {
    let rows = connection.change(
        "UPDATE weir.committers SET beat = beat + 1, holder = $4 WHERE name = $1 AND fence = $2 AND batch = $3 RETURNING 1",
        &[&name, &fence, &batch, &holder],
    )?;
    Ok(!rows.is_empty())
}

fn connect(connector: &Arc<Connector>) -> Result<Session, DatabaseError> {
    let mut session = connector.connect()?;
    session.connection.execute(&format!("SET idle_in_transaction_session_timeout = {}", IDLE.as_millis()))?;
    Ok(session)
}
