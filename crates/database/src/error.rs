//! What can fail at a database, by what one can do about it.

use kv::KvError;
use tokio_postgres::error::SqlState;

/// An error of the database.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DatabaseError {
    /// Another transaction got in the way. The same work succeeds if it is done again.
    #[error("a transaction collided with another one: {0}")]
    Conflict(String),
    /// The database has as many connections as it may have.
    #[error(
        "the database {address} takes no further connection: {reason}; raise its `max_connections`, or lower `database.connections`"
    )]
    Full {
        /// The database.
        address: String,
        /// What it said.
        reason: String,
    },
    /// The database is away, stops, starts, or is not the primary. It may come back.
    #[error("cannot reach the database {address}: {reason}")]
    Unavailable {
        /// The database.
        address: String,
        /// Why.
        reason: String,
    },
    /// A statement ran longer than it may.
    #[error("the database did not answer in time: {0}")]
    Timeout(String),
    /// The database's disk is full.
    #[error("no space left at the database: {0}; add space there")]
    NoSpace(String),
    /// The database refuses this account, its password, or its rights.
    #[error("the database {address} refuses the user {reason}")]
    Refused {
        /// The database.
        address: String,
        /// The account, and why.
        reason: String,
    },
    /// The tables are missing, or of another version.
    #[error("{0}")]
    Schema(String),
    /// A copy of a namespace cannot begin, or go on.
    #[error("{0}")]
    Copy(String),
    /// Another process is active on the database, and was left alone.
    #[error("{0}")]
    InUse(String),
    /// Another process commits in this one's place.
    #[error("{0}")]
    TakenOver(String),
    /// The database has lost transactions that it had acknowledged.
    #[error("{0}")]
    LostTransactions(String),
    /// Everything else.
    #[error("the database failed: {0}")]
    Failed(String),
}

impl DatabaseError {
    /// Whether the connection is of no use any more.
    pub(crate) fn ends_connection(&self) -> bool {
        matches!(self, DatabaseError::Unavailable { .. } | DatabaseError::Full { .. })
    }
}

impl From<DatabaseError> for KvError {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::Conflict(_) => KvError::Conflict { retries: 0 },
            DatabaseError::Unavailable { .. }
            | DatabaseError::Full { .. }
            | DatabaseError::Timeout(_)
            | DatabaseError::Refused { .. } => KvError::Unavailable(error.to_string()),
            DatabaseError::NoSpace(_) => KvError::NoSpace,
            DatabaseError::LostTransactions(reason) => KvError::Lost(reason),
            DatabaseError::Schema(_)
            | DatabaseError::Copy(_)
            | DatabaseError::InUse(_)
            | DatabaseError::TakenOver(_) => KvError::Stopped { reason: error.to_string() },
            DatabaseError::Failed(_) => KvError::Io(error.to_string()),
        }
    }
}

/// What may be the cause that a database accepts no changes, and what helps.
pub const READ_ONLY: &str = "it is a replica, or was set to read only; name the primary, or all hosts of the database";

/// The error for a database that accepts no changes.
pub(crate) fn read_only(address: &str) -> DatabaseError {
    DatabaseError::Unavailable { address: address.into(), reason: format!("it accepts no changes: {READ_ONLY}") }
}

/// Sorts an error of the client library. `place` names the database and the account.
pub(crate) fn sorted(error: &tokio_postgres::Error, (address, user): (&str, &str)) -> DatabaseError {
    let Some(db) = error.as_db_error() else {
        // The library's own message is "db error" or "error communicating with the server"; the cause says more.
        let mut reason = error.to_string();
        let mut cause = std::error::Error::source(error);
        while let Some(next) = cause {
            reason = format!("{reason}: {next}");
            cause = next.source();
        }
        if reason.contains("does not allow writes") {
            return read_only(address);
        }
        return DatabaseError::Unavailable { address: address.into(), reason };
    };
    let said = match db.detail() {
        Some(detail) => format!("{} ({detail})", db.message()),
        None => db.message().to_owned(),
    };
    let code = db.code();
    let class = code.code().get(..2).unwrap_or_default();
    match code {
        code if *code == SqlState::T_R_SERIALIZATION_FAILURE || *code == SqlState::T_R_DEADLOCK_DETECTED => {
            DatabaseError::Conflict(said)
        }
        code if *code == SqlState::LOCK_NOT_AVAILABLE => DatabaseError::Timeout(said),
        code if *code == SqlState::QUERY_CANCELED => DatabaseError::Timeout(said),
        code if *code == SqlState::DISK_FULL => DatabaseError::NoSpace(said),
        // The second one: a replica does not know SERIALIZABLE.
        code if *code == SqlState::READ_ONLY_SQL_TRANSACTION || *code == SqlState::FEATURE_NOT_SUPPORTED => {
            DatabaseError::Unavailable { address: address.into(), reason: format!("{said}: {READ_ONLY}") }
        }
        code if *code == SqlState::UNDEFINED_TABLE || *code == SqlState::INVALID_SCHEMA_NAME => DatabaseError::Schema(
            format!("the database {address} has no tables of weir: {said}; run `weir db init` for it"),
        ),
        code if *code == SqlState::INSUFFICIENT_PRIVILEGE || class == "28" || class == "3D" => {
            DatabaseError::Refused { address: address.into(), reason: format!("{user}: {said}") }
        }
        code if *code == SqlState::TOO_MANY_CONNECTIONS => {
            DatabaseError::Full { address: address.into(), reason: said }
        }
        // Connections, shutdown and start.
        _ if matches!(class, "08" | "57") => DatabaseError::Unavailable { address: address.into(), reason: said },
        _ => DatabaseError::Failed(format!("{said} ({})", code.code())),
    }
}
