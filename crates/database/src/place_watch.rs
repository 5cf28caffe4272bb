//! Looks at a committer's place, for a process that waits until it is free.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::holder::{Holder, TEXT_MAX};
use crate::place_lease::{Judged, PlaceRow, Silence, Terms, Vacancy};
use crate::session::{Connection, Connector, Limits};
use crate::{DatabaseAddress, DatabaseError, schema};

/// Short, so that a database that hangs is noticed soon.
const LIMITS: Limits = Limits { statement: Duration::from_secs(3), lock: Duration::from_secs(3) };

/// Whether somebody has a committer's place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// A process has it, or may have it.
    Held {
        /// Who, if it has said so.
        holder: Option<Holder>,
        /// For how long it has given no sign of life. The place is free after 5 s without one.
        quiet: Duration,
    },
    /// Nobody has it: it may be taken with [`crate::Postgres::open_if_free`].
    Free(Vacancy),
}

/// What a look has found.
enum Found {
    /// Nobody may use the database, for this reason.
    Closed(String),
    /// The row of the place, and what its holder says.
    Place(Option<PlaceRow>, Option<Holder>),
}

/// Looks at the place of a committer, on a connection of its own.
pub struct PlaceWatch {
    connector: Arc<Connector>,
    name: String,
    connection: Option<Connection>,
    silence: Silence,
}

impl PlaceWatch {
    /// A watch over the place of the committer `name`. It connects with the first look.
    #[must_use]
    pub fn new(address: &DatabaseAddress, name: &str) -> Self {
        let connector = Arc::new(Connector::new(address.clone(), LIMITS));
        Self { connector, name: name.into(), connection: None, silence: Silence::new(Terms::DEFAULT) }
    }

    /// Looks at the place. Call it about every 500 ms: a place counts as free only if several looks in a row found it unchanged.
    ///
    /// # Errors
    /// [`DatabaseError::LostTransactions`]: the database has lost changes that an earlier look has seen; it is closed to managers.
    /// [`DatabaseError::Schema`]: it cannot be used. Others: it cannot be reached now.
    pub fn look(&mut self) -> Result<Standing, DatabaseError> {
        let found = self.row().inspect_err(|_| self.silence.unanswered())?;
        let (row, holder) = match found {
            Found::Place(row, holder) => (row, holder),
            Found::Closed(why) => {
                // A person decides in what state it opens again. What was seen before must not close it then.
                self.silence = Silence::new(Terms::DEFAULT);
                return Err(schema::cannot_be_used(&self.connector.address.to_string(), &why));
            }
        };
        match self.silence.answered(Instant::now(), row) {
            Judged::Held { quiet } => Ok(Standing::Held { holder, quiet }),
            Judged::Free(vacancy) => Ok(Standing::Free(vacancy)),
            Judged::Lost(batches) => Err(self.lost(batches)),
        }
    }

    fn row(&mut self) -> Result<Found, DatabaseError> {
        if let Some(connection) = &mut self.connection {
            match row(connection, &self.name) {
                // Somebody ended this connection. Only a new one tells whether the database is away.
                Err(_) if connection.is_broken() => {}
                answered => return answered,
            }
        }
        self.connection = None;
        // The new one may lead to another server, which may be behind: a row that it shows may be older than what was seen.
        self.silence.unanswered();
        let mut connection = self.connector.connect_bare()?;
        schema::check_version(&mut connection, &self.connector.address.to_string())?;
        row(self.connection.insert(connection), &self.name)
    }

    /// Keeps every manager from starting on the database, as the manager that has the place would.
    fn lost(&mut self, batches: i64) -> DatabaseError {
        let lost = self.connector.lost_batches(batches);
        if let DatabaseError::LostTransactions(reason) = &lost
            && let Err(error) = self.connector.close(reason)
        {
            tracing::error!("cannot note in the database that it has lost changes: {error}");
        }
        lost
    }
}

fn row(connection: &mut Connection, name: &str) -> Result<Found, DatabaseError> {
    let most = i32::try_from(TEXT_MAX).unwrap_or(i32::MAX);
    let rows = connection.query(
        "SELECT s.closed, c.process, c.fence, c.batch, c.beat,
            CASE WHEN length(c.holder) <= $2::int4 THEN c.holder END
         FROM weir.schema s LEFT JOIN weir.committers c ON c.name = $1::text",
        &[&name, &most],
    )?;
    let row = rows.first().ok_or_else(|| schema::no_tables(&connection.address()))?;
    if let Some(closed) = row.get::<_, Option<String>>(0) {
        return Ok(Found::Closed(closed));
    }
    let Some(process) = row.get::<_, Option<Vec<u8>>>(1) else { return Ok(Found::Place(None, None)) };
    let place = PlaceRow { process, fence: row.get(2), batch: row.get(3), beat: row.get(4) };
    let holder = row.get::<_, Option<String>>(5);
    Ok(Found::Place(Some(place), holder.and_then(|text| Holder::parse(&text))))
}
