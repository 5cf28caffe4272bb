//! Looks at a committer's place, for a process that waits until it is free.

use std::time::{Duration, Instant};

use crate::holder::{Holder, TEXT_MAX};
use crate::kept::KeptConnection;
use crate::place_lease::{Judged, PlaceRow, Silence, Terms, Vacancy};
use crate::session::{Connection, Connector, Limits};
use crate::{DatabaseAddress, DatabaseError, schema};

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
    kept: KeptConnection,
    name: String,
    silence: Silence,
}

impl PlaceWatch {
    /// A watch over the place of the committer `name`. It connects with the first look.
    #[must_use]
    pub fn new(address: &DatabaseAddress, name: &str) -> Self {
        let kept = KeptConnection::new(Connector::new(address.clone(), Limits::LOOK));
        Self { kept, name: name.into(), silence: Silence::new(Terms::DEFAULT) }
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
                self.silence.closed();
                return Err(schema::cannot_be_used(&self.kept.connector.address.to_string(), &why));
            }
        };
        match self.silence.answered(Instant::now(), row) {
            Judged::Held { quiet } => Ok(Standing::Held { holder, quiet }),
            Judged::Free(vacancy) => Ok(Standing::Free(vacancy)),
            // As the manager that has the place would do it.
            Judged::Lost(batches) => Err(self.kept.connector.close_as_lost(batches)),
        }
    }

    fn row(&mut self) -> Result<Found, DatabaseError> {
        let Self { kept, name, silence } = self;
        let address = kept.connector.address.to_string();
        let opened = |connection: &mut Connection| {
            // It may lead to another server, which may be behind: a row that it shows may be older than what was seen.
            silence.unanswered();
            schema::check_version(connection, &address)
        };
        kept.ask(opened, |connection| row(connection, name))
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
