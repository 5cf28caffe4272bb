//! [`Copying`]: a namespace on its way into the database or out of it.
//!
//! While a copy is under way the database is closed to managers (`weir.schema.closed`), and no manager that still runs can commit. The row
//! in `weir.copy` says what is copied, by which process, and how far an import has come. Each chunk of an import is one statement, which also
//! moves the position. So an import that was killed goes on where it was. No transaction is open between two chunks.

mod repair;
mod steps;

use std::sync::Arc;

use kv::{Chunks, EntrySource, KvError, OwnedEntry};
use types::ClusterId;

use crate::schema::{self, Owner};
use crate::session::{Connection, Connector, Limits, entry};
use crate::{DatabaseAddress, DatabaseError};

/// Entries that are read at once.
const CHUNK: i64 = 1000;

const IMPORT: &str = "import";
const EXPORT: &str = "export";

/// What an import copies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImportSource {
    /// Identifies the state that is copied, for people as well.
    pub text: String,
    /// The cluster whose namespace it is.
    pub cluster: ClusterId,
}

/// What to do with entries that are not needed any more: those of an interrupted import, or of a namespace that was moved out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IfThere {
    /// Refuse, unless the import continues.
    Refuse,
    /// Remove them.
    Replace,
}

/// Whether the target of an export, a data directory, says that its namespace is in the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirectoryMark {
    /// It does: no manager starts on the directory alone.
    Present,
    /// It does not, or it names another database.
    Absent,
}

/// How far an import has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ImportState {
    /// Entries are missing.
    Copying {
        /// The last key that was copied.
        after: Option<Vec<u8>>,
        /// How many were copied.
        entries: u64,
    },
    /// All entries are there, and were compared.
    Complete,
}

/// The row of `weir.copy`.
struct Row {
    direction: String,
    other: String,
    position: Option<Vec<u8>>,
    entries: i64,
    is_complete: bool,
}

/// A database whose namespace is being moved.
pub struct Copying {
    connection: Connection,
    address: String,
    /// This process, as a random number: another one that continues the same copy takes it over.
    process: [u8; 16],
}

impl Copying {
    /// Connects.
    ///
    /// # Errors
    /// [`DatabaseError::Schema`]: the tables are missing, or of another version. [`DatabaseError::Unavailable`], [`DatabaseError::Refused`].
    pub fn connect(address: &DatabaseAddress) -> Result<Self, DatabaseError> {
        let connector = Arc::new(Connector::new(address.clone(), Limits::COMMAND));
        let mut connection = connector.connect_bare()?;
        let address = address.to_string();
        schema::check_version(&mut connection, &address)?;
        Ok(Self { connection, address, process: rand::random() })
    }

    /// The cluster whose namespace the database has.
    ///
    /// # Errors
    /// Those of the database.
    pub fn cluster(&mut self) -> Result<Option<ClusterId>, DatabaseError> {
        Ok(schema::owner(&mut self.connection, &self.address, "")?.cluster)
    }

    /// Begins an import of `source`, or continues it. The database is closed from now on. A complete import of something else may have been handed over:
    /// it is replaced only if `is_unmarked` says of its source that no directory has the mark of a namespace in the database.
    ///
    /// # Errors
    /// [`DatabaseError::InUse`]: a manager is active. [`DatabaseError::Copy`]: the database has another namespace, or a part of another copy. [`DatabaseError::Schema`]: it is closed for another
    /// reason.
    pub fn begin_import(
        &mut self,
        source: &ImportSource,
        if_there: IfThere,
        is_unmarked: impl Fn(&str) -> bool,
    ) -> Result<ImportState, DatabaseError> {
        let state = self.closing_transaction(|copying| copying.try_begin_import(source, if_there, &is_unmarked))?;
        if matches!(state, ImportState::Copying { after: None, .. }) {
            // This import has copied nothing yet: what is there is from the one that it replaces.
            self.remove_entries()?;
        }
        Ok(state)
    }

    fn try_begin_import(
        &mut self,
        source: &ImportSource,
        if_there: IfThere,
        is_unmarked: &dyn Fn(&str) -> bool,
    ) -> Result<ImportState, DatabaseError> {
        let address = self.address.clone();
        let Owner { cluster, closed } = schema::owner(&mut self.connection, &address, " FOR UPDATE")?;
        if let Some(cluster) = cluster.filter(|cluster| *cluster != source.cluster) {
            return Err(DatabaseError::Copy(format!(
                "cannot import the namespace of cluster {} into the database {address}: it belongs to cluster {cluster}; take an empty database",
                source.cluster
            )));
        }
        let replace = if_there == IfThere::Replace;
        let state = match self.row()? {
            None => match closed {
                Some(closed) => return Err(schema::cannot_be_used(&address, &closed)),
                None if self.has_entries()? => {
                    return Err(DatabaseError::Copy(format!(
                        "cannot import a namespace into the database {address}: it has one already; take an empty database"
                    )));
                }
                None => None,
            },
            Some(row) if row.direction == EXPORT && !row.is_complete => {
                return Err(DatabaseError::Copy(format!(
                    "cannot import a namespace into the database {address}: the export of its own to {} was not finished; run it again, or cancel it with `weir db export --cancel`",
                    row.other
                )));
            }
            Some(row) if row.direction == EXPORT && !replace => {
                return Err(DatabaseError::Copy(format!(
                    "cannot import a namespace into the database {address}: it still has the one that was moved to {}; remove that with --replace",
                    row.other
                )));
            }
            Some(row) if replace && row.direction == IMPORT && row.is_complete && !is_unmarked(&row.other) => {
                return Err(DatabaseError::Copy(format!(
                    "cannot replace what is in the database {address}: the import of {} is complete, and that directory may say already that its namespace is in the database. Run that import again, which ends it. If the directory does not have the file DATABASE, cancel its import first: `weir db import --cancel --data` with that directory. If it is lost, take an empty database",
                    row.other
                )));
            }
            // Also a complete import of the same state: the database may have changed it since.
            Some(_) if replace => None,
            Some(row) if row.other == source.text && row.is_complete => Some(ImportState::Complete),
            Some(row) if row.other == source.text => {
                Some(ImportState::Copying { after: row.position, entries: u64::try_from(row.entries).unwrap_or(0) })
            }
            Some(row) => {
                return Err(DatabaseError::Copy(format!(
                    "cannot import {} into the database {address}: {} was imported, which is another state, and that was not finished; remove that with --replace",
                    source.text, row.other
                )));
            }
        };
        let process = self.process.as_slice();
        if state.is_none() {
            self.connection.query("DELETE FROM weir.copy", &[])?;
            self.connection.query(
                "INSERT INTO weir.copy (direction, other, process, position, entries, is_complete) VALUES ($1, $2, $3, NULL, 0, false)",
                &[&IMPORT, &source.text, &process],
            )?;
            let cluster = source.cluster.0.to_be_bytes().to_vec();
            self.connection.query("UPDATE weir.schema SET cluster = $1", &[&cluster])?;
        } else {
            self.connection.query("UPDATE weir.copy SET process = $1", &[&process])?;
        }
        self.close("a namespace is being imported into it, and that was not finished; run `weir db import` again")?;
        Ok(state.unwrap_or(ImportState::Copying { after: None, entries: 0 }))
    }

    /// Writes the next entries of an import. Their keys are above all before.
    ///
    /// # Errors
    /// [`DatabaseError::TakenOver`]: another process continues this import. Those of the database; then the import continues where it was.
    pub fn put(&mut self, entries: &[OwnedEntry]) -> Result<(), DatabaseError> {
        let Some((last, _)) = entries.last() else { return Ok(()) };
        let keys: Vec<&[u8]> = entries.iter().map(|(key, _)| key.as_slice()).collect();
        let values: Vec<&[u8]> = entries.iter().map(|(_, value)| value.as_slice()).collect();
        let (last, own) = (last.as_slice(), self.process);
        let process = own.as_slice();
        let count = i64::try_from(entries.len()).unwrap_or(i64::MAX);
        // One statement, so that entries and position are written together.
        let put = "WITH moved AS (
                UPDATE weir.copy SET position = $3::bytea, entries = entries + $4::int8
                WHERE direction = 'import' AND process = $5::bytea AND NOT is_complete RETURNING 1
            ), written AS (
                INSERT INTO weir.entries (key, value)
                SELECT n.key, n.value FROM unnest($1::bytea[], $2::bytea[]) AS n (key, value), moved
            )
            SELECT 1 FROM moved";
        self.guarded(put, &[&keys, &values, &last, &count, &process]).map(drop)
    }

    /// Notes that all entries of an import were written and compared. The database stays closed until [`Copying::finish_import`].
    ///
    /// # Errors
    /// [`DatabaseError::TakenOver`]; those of the database.
    pub fn complete_import(&mut self) -> Result<(), DatabaseError> {
        self.transaction(|copying| copying.complete(IMPORT))
    }

    /// Continues an import of the namespace of `cluster` that is complete, if there is one. Returns whether there is.
    ///
    /// # Errors
    /// Those of the database.
    pub fn continue_complete_import(&mut self, cluster: ClusterId) -> Result<bool, DatabaseError> {
        self.transaction(|copying| {
            let owner = schema::owner(&mut copying.connection, &copying.address, " FOR UPDATE")?;
            let is_there = copying.row()?.is_some_and(|row| row.direction == IMPORT && row.is_complete);
            if !is_there || owner.cluster != Some(cluster) {
                return Ok(false);
            }
            copying.connection.query("UPDATE weir.copy SET process = $1", &[&copying.process.as_slice()])?;
            Ok(true)
        })
    }

    /// Opens the database to managers, unless it must stay closed for a reason.
    ///
    /// # Errors
    /// [`DatabaseError::TakenOver`]; those of the database.
    pub fn finish_import(&mut self, closed: Option<&str>) -> Result<(), DatabaseError> {
        self.transaction(|copying| {
            copying.complete(IMPORT)?;
            copying.connection.query("DELETE FROM weir.copy", &[])?;
            schema::close(&mut copying.connection, closed)
        })
    }

    /// Begins an export to `target`, or continues it. The database is closed from now on. `mark`: a
    /// finished export is repeated only as long as the target has the mark. Later the namespace goes on there, and the database has an old one.
    ///
    /// # Errors
    /// [`DatabaseError::InUse`]: a manager is active. [`DatabaseError::Copy`]: it has no namespace, or that of another cluster, or one that was moved out, or a part of a copy.
    /// [`DatabaseError::Schema`]: it is closed for another reason.
    pub fn begin_export(&mut self, target: &str, ours: ClusterId, mark: DirectoryMark) -> Result<(), DatabaseError> {
        self.closing_transaction(|copying| copying.try_begin_export(target, ours, mark))
    }

    fn try_begin_export(&mut self, target: &str, ours: ClusterId, mark: DirectoryMark) -> Result<(), DatabaseError> {
        let address = self.address.clone();
        let refused = |why: String| {
            Err(DatabaseError::Copy(format!("cannot export the namespace of the database {address}: {why}")))
        };
        let Owner { cluster, closed } = schema::owner(&mut self.connection, &address, " FOR UPDATE")?;
        let row = self.row()?;
        match (cluster, &row, closed) {
            (_, Some(row), _) if row.direction == IMPORT => {
                return refused(format!(
                    "the import of {} into it was not finished; run that again, or cancel it with `weir db import --cancel`",
                    row.other
                ));
            }
            (None, ..) => return refused("it has none".into()),
            (Some(cluster), ..) if cluster != ours => {
                return refused(format!("it belongs to cluster {cluster}, and the data directory to cluster {ours}"));
            }
            (_, Some(row), _) if row.is_complete && mark == DirectoryMark::Absent => {
                return refused(format!(
                    "the namespace was moved out already, to {}; what the database has is old. If that directory is lost, use a backup of it (`weir restore`)",
                    row.other
                ));
            }
            (_, Some(row), _) if row.other != target && row.is_complete => {
                return refused(format!("it was moved to {} already", row.other));
            }
            (_, Some(row), _) if row.other != target => {
                return refused(format!(
                    "an export to {} was not finished; run that again, or cancel it with `weir db export --cancel`",
                    row.other
                ));
            }
            (_, None, Some(closed)) => return Err(schema::cannot_be_used(&address, &closed)),
            (_, None, None) if !self.has_entries()? => return refused("it is empty".into()),
            (_, Some(_), _) | (_, None, None) => {}
        }
        let process = self.process.as_slice();
        self.connection.query("DELETE FROM weir.copy", &[])?;
        self.connection.query(
            "INSERT INTO weir.copy (direction, other, process, position, entries, is_complete) VALUES ($1, $2, $3, NULL, 0, false)",
            &[&EXPORT, &target, &process],
        )?;
        self.close(&format!(
            "its namespace is being exported to {target}, and that was not finished; run `weir db export` again"
        ))
    }

    /// Notes that the namespace was moved out. The database stays closed.
    ///
    /// # Errors
    /// [`DatabaseError::TakenOver`]; those of the database.
    pub fn finish_export(&mut self) -> Result<(), DatabaseError> {
        self.transaction(|copying| {
            copying.complete(EXPORT)?;
            let target = copying.row()?.map_or_else(String::new, |row| row.other);
            let moved = format!("its namespace was moved to {target}; start the manager without a database");
            schema::close(&mut copying.connection, Some(&moved))
        })
    }

    /// Ends an unfinished import or export as if it had not begun. Of an import, the entries that were copied are removed. A complete import may have
    /// been handed over: it is ended only if `is_unmarked` says of its source that no directory has the mark of a namespace in the database.
    ///
    /// # Errors
    /// [`DatabaseError::Copy`]: there is nothing to end, or it may have been handed over. [`DatabaseError::TakenOver`]: another process continues the
    /// copy, or cancels it as well. Those of the database.
    pub fn cancel(&mut self, is_unmarked: impl Fn(&str) -> bool) -> Result<(), DatabaseError> {
        let own = self.process;
        let process = own.as_slice();
        let is_import = self.transaction(|copying| {
            let address = copying.address.clone();
            schema::owner(&mut copying.connection, &address, " FOR UPDATE")?;
            let row = copying.row()?.filter(|row| row.direction == IMPORT || !row.is_complete);
            let Some(row) = row else {
                return Err(DatabaseError::Copy(format!(
                    "there is nothing to cancel: no import or export of the database {address} is unfinished"
                )));
            };
            if row.is_complete && !is_unmarked(&row.other) {
                return Err(DatabaseError::Copy(format!(
                    "cannot cancel the import of {} into the database {address}: it is complete, and that directory may say already that its namespace is in the database. Run the import again, which ends it. If the directory does not have the file DATABASE, you can cancel the import: add --data with that directory",
                    row.other
                )));
            }
            // It begins again: the position does not count any more, and the process that may still copy stops.
            copying.connection.query(
                "UPDATE weir.copy SET process = $1, position = NULL, entries = 0, is_complete = false",
                &[&process],
            )?;
            Ok(row.direction == IMPORT)
        })?;
        if is_import {
            self.remove_entries()?;
        }
        self.transaction(|copying| {
            let gone = copying.connection.query("DELETE FROM weir.copy WHERE process = $1 RETURNING 1", &[&process])?;
            if gone.is_empty() {
                return Err(copying.taken_over());
            }
            if is_import {
                if copying.has_entries()? {
                    return Err(DatabaseError::Copy(format!(
                        "cannot cancel the import into the database {}: somebody has added entries meanwhile; cancel it again",
                        copying.address
                    )));
                }
                copying.connection.query("UPDATE weir.schema SET cluster = NULL", &[])?;
            }
            schema::close(&mut copying.connection, None)
        })
    }

    /// The first entries behind `after`, or of all.
    ///
    /// # Errors
    /// Those of the database.
    pub fn chunk(&mut self, after: Option<&[u8]>) -> Result<Vec<OwnedEntry>, DatabaseError> {
        // No key is empty.
        let after = after.unwrap_or_default();
        let rows = self.connection.query(
            "SELECT key, value FROM weir.entries WHERE key > $1::bytea ORDER BY key LIMIT $2::int8",
            &[&after, &CHUNK],
        )?;
        rows.iter().map(|row| entry(row).map(|(key, value)| (key.to_vec(), value.to_vec()))).collect()
    }

    /// All entries, in chunks. They belong together only while the database is closed, or between [`Copying::begin_view`] and [`Copying::end_view`].
    pub fn entries(&mut self) -> impl EntrySource + '_ {
        Chunks::new(|after| self.chunk(after).map_err(KvError::from))
    }

    /// Begins a view of the entries that does not change, for a dump while managers run.
    ///
    /// # Errors
    /// [`DatabaseError::Copy`]: a part of a copy is there. Those of the database.
    pub fn begin_view(&mut self) -> Result<(), DatabaseError> {
        self.connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
        match self.row()? {
            Some(row) if row.direction == IMPORT => Err(DatabaseError::Copy(format!(
                "cannot dump the namespace of the database {}: the import of {} into it was not finished",
                self.address, row.other
            ))),
            _ => Ok(()),
        }
    }

    /// Ends the view.
    ///
    /// # Errors
    /// Those of the database.
    pub fn end_view(&mut self) -> Result<(), DatabaseError> {
        self.connection.execute("COMMIT")
    }
}
