//! A committer's place in the database: its row of `weir.committers`. It has the number of its last batch, which tells after a lost connection whether a
//! batch was committed, and a fence, which keeps out what an earlier connection or process still sends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::DatabaseError;
use crate::own_place::{LastBatch, NotOurs, OwnPlace, Process};
use crate::place_lease::Vacancy;
use crate::session::{Connection, Connector, Session};

/// How long the answer to a release may take: nobody wants to wait for it when a process stops.
const RELEASE: Duration = Duration::from_secs(3);
/// A transaction of a committer that waits longer for its next statement is undone. If the machine dies on the way, the lock of the row must not keep
/// others from the place for long.
const IDLE: Duration = Duration::from_secs(5);

/// The place of one committer.
pub(crate) struct Place {
    /// Its name: one committer at a time has it.
    pub(crate) name: String,
    /// What this process knows of its row.
    pub(crate) own: OwnPlace,
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
        let process: Process = rand::random();
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
        let place = Self { name: name.into(), own: OwnPlace::taken(process, (row.get(0), row.get(1)), sent) };
        connector.acknowledged.begin(name, Arc::clone(place.own.lease()));
        connector.acknowledged.note(place.own.at());
        Ok(Some((place, session)))
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
            &[&self.name, &self.own.process.as_slice(), &self.own.fence()],
        )?;
        let Some(row) = rows.first() else { return Err(self.who_has_it(&mut session, connector)) };
        let last = self.own.returned(sent, (row.get(0), row.get(1))).map_err(|why| self.error(why, connector))?;
        connector.acknowledged.note(self.own.at());
        Ok((session, last))
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
        let place = (self.name.as_str(), self.own.fence(), self.own.batch());
        let is_ours = change_without_batch(&mut session.connection, place, holder)?;
        if !is_ours {
            return Err(self.who_has_it(session, connector));
        }
        self.own.confirmed(sent);
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
                &[&self.name, &self.own.process.as_slice(), &self.own.fence(), &self.own.batch()],
            )
            .map(drop)
    }

    /// From now on, this process must not act as the one that has the place.
    pub(crate) fn end_lease(&self) {
        self.own.lease().lock().end(Instant::now());
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
        let row = rows.first().map(|row| (row.get(0), row.get(1), row.get::<_, Vec<u8>>(2)));
        let row = row.as_ref().map(|(fence, batch, process)| (*fence, *batch, process.as_slice()));
        self.error(self.own.why_not(row), connector)
    }

    fn error(&self, why: NotOurs, connector: &Connector) -> DatabaseError {
        match why {
            NotOurs::Lost(batches) => connector.lost_batches(batches),
            NotOurs::TakenOver => DatabaseError::TakenOver(format!(
                "another process commits in the place of {} at the database {}; this one stops",
                self.name, connector.address
            )),
        }
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
