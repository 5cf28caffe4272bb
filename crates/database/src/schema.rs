//! The tables, their version, and whose they are.

use tokio_postgres::config::TargetSessionAttrs;
use types::ClusterId;

use crate::error::read_only;
use crate::session::{Connection, Connector, Limits};
use crate::{DatabaseAddress, DatabaseError};

use std::sync::Arc;

/// The version of the tables that this weir makes and uses.
pub const SCHEMA_VERSION: i32 = 2;

/// The steps from one version to the next: `STEPS[0]` makes version 1 in an empty database.
const STEPS: [&str; 2] = [
    "
CREATE TABLE weir.entries (
    key bytea PRIMARY KEY,
    value bytea NOT NULL
);
CREATE TABLE weir.committers (
    name text PRIMARY KEY,
    process bytea NOT NULL,
    fence bigint NOT NULL,
    batch bigint NOT NULL
);
CREATE TABLE weir.copy (
    direction text PRIMARY KEY,
    other text NOT NULL,
    process bytea NOT NULL,
    position bytea,
    entries bigint NOT NULL,
    is_complete boolean NOT NULL
);
",
    // Managers of version 1 give no sign of life between batches, so none of them may go on.
    "
ALTER TABLE weir.committers ADD COLUMN beat bigint NOT NULL DEFAULT 0;
ALTER TABLE weir.committers ADD COLUMN holder text;
UPDATE weir.committers SET process = '', fence = fence + 1;
",
];

/// What the database has of weir.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SchemaState {
    /// No tables of weir.
    Empty,
    /// Tables of this version.
    Version(i32),
}

/// What a database has, and says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SchemaReport {
    /// The version of the tables.
    pub state: SchemaState,
    /// The cluster whose namespace it is; `None` before a manager has started on it.
    pub cluster: Option<ClusterId>,
    /// Why nobody may use it now: a copy into it has not ended, or it has lost transactions.
    pub closed: Option<String>,
    /// Number of entries, as the database estimates it.
    pub entries: u64,
    /// Their size on the database's disk with the index, in bytes. 0 if the database cannot tell.
    pub bytes: u64,
    /// What the database says it is.
    pub server: String,
    /// Whether it accepts no changes now.
    pub is_read_only: bool,
}

/// A database, for commands that make, check and change its tables.
pub struct Schema {
    connection: Connection,
    address: String,
}

impl Schema {
    /// Connects.
    ///
    /// # Errors
    /// [`DatabaseError::Unavailable`], [`DatabaseError::Refused`].
    pub fn connect(address: &DatabaseAddress) -> Result<Self, DatabaseError> {
        let connector = Arc::new(Connector::new(address.clone(), Limits::COMMAND));
        Ok(Self { connection: connector.connect_bare()?, address: address.to_string() })
    }

    /// Connects to the first host that answers, also to a replica.
    ///
    /// # Errors
    /// As [`Schema::connect`].
    pub fn connect_to_any(address: &DatabaseAddress) -> Result<Self, DatabaseError> {
        let mut any = address.clone();
        any.config.target_session_attrs(TargetSessionAttrs::Any);
        Self::connect(&any)
    }

    /// Makes the tables, and lets `user` work on them, if one is given. Nothing happens to tables that are there already, except that `user` gets its
    /// rights.
    ///
    /// # Errors
    /// [`DatabaseError::Schema`]: tables of another version are there. [`DatabaseError::Refused`]: the account may not make tables.
    pub fn init(&mut self, user: Option<&str>) -> Result<SchemaState, DatabaseError> {
        let state = self.state()?;
        match state {
            SchemaState::Empty => self.change(0)?,
            SchemaState::Version(SCHEMA_VERSION) => {}
            SchemaState::Version(other) => return Err(wrong_version(&self.address, other)),
        }
        if let Some(user) = user {
            self.grant(user)?;
        }
        Ok(state)
    }

    /// Brings the tables to the version of this weir. Returns the version before.
    ///
    /// # Errors
    /// [`DatabaseError::Schema`]: there are no tables, or they are of a newer weir.
    pub fn migrate(&mut self) -> Result<i32, DatabaseError> {
        match self.state()? {
            SchemaState::Empty => Err(no_tables(&self.address)),
            SchemaState::Version(version) if version > SCHEMA_VERSION => Err(wrong_version(&self.address, version)),
            SchemaState::Version(version) => {
                if version < SCHEMA_VERSION {
                    self.change(version)?;
                }
                Ok(version)
            }
        }
    }

    /// Refuses a database on which a manager cannot start now. Returns the cluster whose namespace it has, if it has one.
    ///
    /// # Errors
    /// [`DatabaseError::Schema`]: the tables are missing, of another version, or closed. [`DatabaseError::Unavailable`]: it accepts no changes.
    pub fn check(&mut self) -> Result<Option<ClusterId>, DatabaseError> {
        let cluster = check(&mut self.connection, &self.address)?;
        accepts_changes(&mut self.connection, &self.address)?;
        Ok(cluster)
    }

    /// What is there.
    ///
    /// # Errors
    /// Those of the database.
    pub fn report(&mut self) -> Result<SchemaReport, DatabaseError> {
        let state = self.state()?;
        let server = text(&mut self.connection, "SELECT version()")?;
        let is_read_only = is_read_only(&mut self.connection)?;
        if state == SchemaState::Empty {
            return Ok(SchemaReport { state, cluster: None, closed: None, entries: 0, bytes: 0, server, is_read_only });
        }
        let Owner { cluster, closed } = owner(&mut self.connection, &self.address, "")?;
        // Estimates, which other databases of PostgreSQL's family may not have.
        let sizes = self.connection.query(
            "SELECT reltuples::bigint, pg_total_relation_size(oid) FROM pg_class WHERE oid = 'weir.entries'::regclass",
            &[],
        );
        let (entries, bytes) = sizes
            .ok()
            .and_then(|rows| rows.first().map(|row| (row.get::<_, i64>(0), row.get::<_, i64>(1))))
            .unwrap_or((0, 0));
        let positive = |n: i64| u64::try_from(n).unwrap_or(0);
        Ok(SchemaReport {
            state,
            cluster,
            closed,
            entries: positive(entries),
            bytes: positive(bytes),
            server,
            is_read_only,
        })
    }

    /// The version of the tables.
    ///
    /// # Errors
    /// Those of the database.
    pub fn state(&mut self) -> Result<SchemaState, DatabaseError> {
        state(&mut self.connection)
    }

    /// Does the steps behind `version`, all or none.
    fn change(&mut self, version: i32) -> Result<(), DatabaseError> {
        let done = usize::try_from(version).unwrap_or(0);
        let mut sql = String::from("BEGIN;");
        if version == 0 {
            sql.push_str(
                "CREATE SCHEMA IF NOT EXISTS weir;
                 CREATE TABLE weir.schema (version int NOT NULL, cluster bytea, closed text);
                 INSERT INTO weir.schema (version) VALUES (0);",
            );
        }
        for step in STEPS.iter().skip(done) {
            sql.push_str(step);
        }
        sql.push_str(&format!("UPDATE weir.schema SET version = {SCHEMA_VERSION}; COMMIT;"));
        let changed = self.connection.execute(&sql);
        if changed.is_err() {
            let _ = self.connection.execute("ROLLBACK");
        }
        changed
    }

    /// Gives an account the rights that managers need, and no others.
    fn grant(&mut self, user: &str) -> Result<(), DatabaseError> {
        let user = quoted(user);
        self.connection.execute(&format!(
            "GRANT USAGE ON SCHEMA weir TO {user};
             GRANT SELECT, INSERT, UPDATE, DELETE ON weir.entries, weir.committers, weir.copy TO {user};
             GRANT SELECT, UPDATE ON weir.schema TO {user};"
        ))
    }
}

fn state(connection: &mut Connection) -> Result<SchemaState, DatabaseError> {
    // The table itself, and not the list of tables: that leaves out what the account may not use.
    match connection.query("SELECT version FROM weir.schema", &[]) {
        Ok(rows) => Ok(rows.first().map_or(SchemaState::Empty, |row| SchemaState::Version(row.get(0)))),
        Err(DatabaseError::Schema(_)) => Ok(SchemaState::Empty),
        Err(error) => Err(error),
    }
}

/// Refuses a database whose tables this weir cannot use, or that is closed.
pub(crate) fn check(connection: &mut Connection, address: &str) -> Result<Option<ClusterId>, DatabaseError> {
    check_version(connection, address)?;
    let Owner { cluster, closed } = owner(connection, address, "")?;
    match closed {
        Some(closed) => Err(cannot_be_used(address, &closed)),
        None => Ok(cluster),
    }
}

/// Refuses a database whose tables this weir cannot use.
pub(crate) fn check_version(connection: &mut Connection, address: &str) -> Result<(), DatabaseError> {
    match state(connection)? {
        SchemaState::Empty => Err(no_tables(address)),
        SchemaState::Version(SCHEMA_VERSION) => Ok(()),
        SchemaState::Version(other) => Err(wrong_version(address, other)),
    }
}

/// Whose the database is, and why nobody may use it.
pub(crate) struct Owner {
    pub(crate) cluster: Option<ClusterId>,
    pub(crate) closed: Option<String>,
}

/// Reads whose the database is. `lock`: "" or " FOR UPDATE".
pub(crate) fn owner(connection: &mut Connection, address: &str, lock: &str) -> Result<Owner, DatabaseError> {
    let rows = connection.query(&format!("SELECT cluster, closed FROM weir.schema{lock}"), &[])?;
    let row = rows.first().ok_or_else(|| no_tables(address))?;
    let cluster = row.get::<_, Option<Vec<u8>>>(0);
    let cluster = cluster.and_then(|bytes| bytes.try_into().ok()).map(|bytes| ClusterId(u128::from_be_bytes(bytes)));
    Ok(Owner { cluster, closed: row.get(1) })
}

/// The error for a database that is closed for the reason `closed`.
pub(crate) fn cannot_be_used(address: &str, closed: &str) -> DatabaseError {
    DatabaseError::Schema(format!("the database {address} cannot be used: {closed}"))
}

/// Notes whose database it is. Returns the cluster that it belongs to, which may be another one.
pub(crate) fn claim(
    connection: &mut Connection,
    address: &str,
    cluster: ClusterId,
) -> Result<Option<ClusterId>, DatabaseError> {
    let bytes = cluster.0.to_be_bytes().to_vec();
    connection.query("UPDATE weir.schema SET cluster = $1 WHERE cluster IS NULL", &[&bytes])?;
    Ok(owner(connection, address, "")?.cluster)
}

/// Closes the database to managers, with the reason, or opens it again.
pub(crate) fn close(connection: &mut Connection, reason: Option<&str>) -> Result<(), DatabaseError> {
    connection.query("UPDATE weir.schema SET closed = $1", &[&reason]).map(drop)
}

/// Opens the database to managers if it is closed for this reason. Returns whether it was.
pub(crate) fn open_if_closed_for(connection: &mut Connection, reason: &str) -> Result<bool, DatabaseError> {
    let opened = connection.query("UPDATE weir.schema SET closed = NULL WHERE closed = $1 RETURNING 1", &[&reason])?;
    Ok(!opened.is_empty())
}

/// The error for a database without weir's tables.
pub(crate) fn no_tables(address: &str) -> DatabaseError {
    DatabaseError::Schema(format!("the database {address} has no tables of weir; run `weir db init` for it"))
}

fn wrong_version(address: &str, found: i32) -> DatabaseError {
    DatabaseError::Schema(if found > SCHEMA_VERSION {
        format!(
            "the tables in {address} are of a newer weir (version {found}, this one knows {SCHEMA_VERSION}); use that weir"
        )
    } else {
        format!(
            "the tables in {address} are of an older weir (version {found}, this one needs {SCHEMA_VERSION}); stop all managers and run `weir db migrate` for it"
        )
    })
}

/// Refuses a database that accepts no changes now.
pub(crate) fn accepts_changes(connection: &mut Connection, address: &str) -> Result<(), DatabaseError> {
    if !is_read_only(connection)? {
        return Ok(());
    }
    Err(read_only(address))
}

fn is_read_only(connection: &mut Connection) -> Result<bool, DatabaseError> {
    Ok(text(connection, "SHOW transaction_read_only")? == "on")
}

fn text(connection: &mut Connection, sql: &str) -> Result<String, DatabaseError> {
    let rows = connection.query(sql, &[])?;
    Ok(rows.first().map(|row| row.get::<_, String>(0)).unwrap_or_default())
}

/// A name as SQL has it.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted() {
        assert_eq!(quoted("weir"), "\"weir\"");
        assert_eq!(quoted("a\"; DROP TABLE x; --"), "\"a\"\"; DROP TABLE x; --\"");
    }
}
