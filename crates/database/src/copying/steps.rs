//! What all copies are made of: transactions, and statements that have an effect only while the copy is this process's.

use std::time::Duration;

use tokio_postgres::types::ToSql;

use super::{Copying, IMPORT, Row};
use crate::pause::pause;
use crate::silence::{is_still, wait_for_silence};
use crate::{DatabaseError, schema};

/// Entries that are removed at once.
const REMOVED_AT_ONCE: i64 = 10_000;
/// How often work that collides with other transactions is tried.
const ATTEMPTS: u32 = 10;
/// The unit of the wait after a collision.
const COLLIDED: Duration = Duration::from_millis(10);

impl Copying {
    pub(super) fn row(&mut self) -> Result<Option<Row>, DatabaseError> {
        let rows =
            self.connection.query("SELECT direction, other, position, entries, is_complete FROM weir.copy", &[])?;
        Ok(rows.first().map(|row| Row {
            direction: row.get(0),
            other: row.get(1),
            position: row.get(2),
            entries: row.get(3),
            is_complete: row.get(4),
        }))
    }

    pub(super) fn has_entries(&mut self) -> Result<bool, DatabaseError> {
        Ok(!self.connection.query("SELECT 1 FROM weir.entries LIMIT 1", &[])?.is_empty())
    }

    /// Removes all entries, in steps. Only the process whose import it is can do it.
    pub(super) fn remove_entries(&mut self) -> Result<(), DatabaseError> {
        // One statement, so that a process that has lost the copy removes nothing: what is there may be a namespace that managers use.
        // It begins at the last removed key: what is before it would have to be passed over each time, until the database has cleaned up.
        let remove = "WITH ours AS (
                UPDATE weir.copy SET process = $1::bytea
                WHERE direction = $4::text AND process = $1::bytea AND NOT is_complete RETURNING 1
            ), gone AS (
                DELETE FROM weir.entries
                WHERE key IN (SELECT key FROM weir.entries WHERE key >= $2::bytea ORDER BY key LIMIT $3::int8)
                    AND EXISTS (SELECT 1 FROM ours)
                RETURNING key
            )
            SELECT (SELECT key FROM gone ORDER BY key DESC LIMIT 1) FROM ours";
        let own = self.process;
        let process = own.as_slice();
        let mut after: Vec<u8> = Vec::new();
        loop {
            let row = self.guarded(remove, &[&process, &after, &REMOVED_AT_ONCE, &IMPORT])?;
            match row.get::<_, Option<Vec<u8>>>(0) {
                Some(last) => after = last,
                // A process that was taken over may have removed the same entries, so only a look tells that nothing is left.
                None if !self.has_entries()? => return Ok(()),
                None => after.clear(),
            }
        }
    }

    /// Closes the database. A manager that stands still, and goes on later, has lost its place: it cannot commit.
    pub(super) fn close(&mut self, reason: &str) -> Result<(), DatabaseError> {
        self.connection.query("UPDATE weir.committers SET fence = fence + 1, process = '', holder = NULL", &[])?;
        schema::close(&mut self.connection, Some(reason))
    }

    pub(super) fn complete(&mut self, direction: &str) -> Result<(), DatabaseError> {
        let process = self.process.as_slice();
        let noted = self.connection.query(
            "UPDATE weir.copy SET is_complete = true WHERE direction = $1 AND process = $2 RETURNING 1",
            &[&direction, &process],
        )?;
        if noted.is_empty() { Err(self.taken_over()) } else { Ok(()) }
    }

    pub(super) fn taken_over(&self) -> DatabaseError {
        DatabaseError::TakenOver(format!(
            "another process continues or has cancelled this copy at the database {}; this one stops",
            self.address
        ))
    }

    /// Runs one statement that returns a row, and changes something, only while the copy is this process's.
    ///
    /// # Errors
    /// [`DatabaseError::TakenOver`]: it returned no row. Those of the database.
    pub(super) fn guarded(
        &mut self,
        sql: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<tokio_postgres::Row, DatabaseError> {
        let mut attempt = 1;
        loop {
            match self.connection.change(sql, parameters) {
                Err(DatabaseError::Conflict(_)) if attempt < ATTEMPTS => {
                    pause(COLLIDED, attempt.min(6));
                    attempt += 1;
                }
                Err(error) => return Err(error),
                Ok(rows) => return rows.into_iter().next().ok_or_else(|| self.taken_over()),
            }
        }
    }

    /// Does `work` in one transaction, again if it collides with another one.
    pub(super) fn transaction<T>(
        &mut self,
        work: impl FnMut(&mut Self) -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        self.transaction_on("weir.copy", work)
    }

    /// As [`Copying::transaction`], for work that closes the database ([`Copying::close`]). Refuses while a manager gives signs of life, and waits until one
    /// that does not has no lease any more.
    pub(super) fn closing_transaction<T>(
        &mut self,
        mut work: impl FnMut(&mut Self) -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        let seen = wait_for_silence(&mut self.connection, None)?;
        self.transaction_on("weir.committers, weir.copy", |copying| {
            is_still(&mut copying.connection, None, &seen)?;
            work(copying)
        })
    }

    fn transaction_on<T>(
        &mut self,
        tables: &str,
        mut work: impl FnMut(&mut Self) -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        // Who changes these tables all the time, a busy manager or another copy, would make each attempt collide. The locks come first: the
        // transaction sees the state as of its first statement behind them, so it has everything for which it has waited.
        let begin = format!("BEGIN ISOLATION LEVEL SERIALIZABLE; LOCK TABLE {tables} IN EXCLUSIVE MODE");
        let mut attempt = 1;
        loop {
            let begun = self.connection.execute(&begin);
            let worked = begun.and_then(|()| work(self));
            let done = worked.and_then(|done| self.connection.commit().map(|()| done));
            if done.is_err() && !self.connection.is_broken() {
                // It changed nothing in any case.
                let _ = self.connection.execute("ROLLBACK");
            }
            match done {
                Err(DatabaseError::Conflict(_)) if attempt < ATTEMPTS => {
                    pause(COLLIDED, attempt.min(6));
                    attempt += 1;
                }
                done => return done,
            }
        }
    }
}
