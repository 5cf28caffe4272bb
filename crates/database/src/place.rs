//! A committer's place in the database: its row of `weir.committers`. It has the number of its last batch, which tells after a lost connection whether a
//! batch was committed, and a fence, which keeps out what an earlier connection or process still sends.

use crate::DatabaseError;
use crate::session::{Connector, Session};

use std::sync::Arc;

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
    /// Takes the place at the start of a process. An earlier process that still runs cannot commit any more.
    pub(crate) fn take(connector: &Arc<Connector>, name: &str) -> Result<(Self, Session), DatabaseError> {
        let mut session = connector.connect()?;
        let process: [u8; 16] = rand::random();
        let rows = session.connection.change(
            "INSERT INTO weir.committers AS c (name, process, fence, batch) VALUES ($1, $2, 1, 0)
             ON CONFLICT (name) DO UPDATE SET process = excluded.process, fence = c.fence + 1
             RETURNING fence, batch",
            &[&name, &process.as_slice()],
        )?;
        let row = rows.first().ok_or_else(|| DatabaseError::Failed("no place for the committer".into()))?;
        let place = Self { name: name.into(), process, fence: row.get(0), batch: row.get(1) };
        connector.acknowledged.begin(name);
        connector.acknowledged.note(place.batch);
        Ok((place, session))
    }

    /// Connects again. If the answer to the batch after the last known one was lost, the result says whether it was committed.
    ///
    /// # Errors
    /// [`DatabaseError::TakenOver`], [`DatabaseError::LostTransactions`]: this committer must stop.
    pub(crate) fn return_to(&mut self, connector: &Arc<Connector>) -> Result<(Session, LastBatch), DatabaseError> {
        connector.acknowledged.connected_again();
        let mut session = connector.connect()?;
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
        connector.acknowledged.note(batch);
        Ok((session, last))
    }

    /// Why the place is not this process's any more.
    fn who_has_it(&self, session: &mut Session, connector: &Arc<Connector>) -> DatabaseError {
        let rows = session.connection.query("SELECT fence FROM weir.committers WHERE name = $1", &[&self.name]);
        match rows.as_ref().map(|rows| rows.first().map(|row| row.get::<_, i64>(0))) {
            Ok(Some(fence)) if fence > self.fence => DatabaseError::TakenOver(format!(
                "another process commits in the place of {} at the database {}; this one stops",
                self.name, connector.address
            )),
            // The row is older than this process: the database does not know that it has started.
            Ok(_) => connector.lost_batches(self.batch.max(1)),
            Err(error) => error.clone(),
        }
    }
}
