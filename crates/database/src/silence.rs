//! Makes sure that no process has a lease on a place of the database, for commands on a stopped cluster.

use std::time::{Duration, Instant};

use crate::DatabaseError;
use crate::holder::{Holder, TEXT_MAX};
use crate::place_lease::{PlaceRow, Terms};
use crate::session::Connection;

/// The wait between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A place, and what its holder says.
type Found = Vec<(String, PlaceRow, Option<Holder>)>;

/// The places of a database as they were found without a sign of life. Who takes them, or closes the database, compares them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Silent(Vec<(String, PlaceRow)>);

impl Silent {
    /// The state of the place `name`; `None` if nobody has had it.
    pub(crate) fn place(&self, name: &str) -> Option<PlaceRow> {
        self.0.iter().find(|(of, _)| of == name).map(|(_, row)| row.clone())
    }
}

/// Waits until nobody has a lease on any of the places, or on that of `name` alone: at once if they were given up, else for the silence after which a
/// standby takes over ([`Terms::silence`]).
///
/// # Errors
/// [`DatabaseError::InUse`]: there was a sign of life. Those of the database.
pub(crate) fn wait_for_silence(connection: &mut Connection, name: Option<&str>) -> Result<Silent, DatabaseError> {
    let first = look(connection, name)?;
    let (mut since, mut looked) = (Instant::now(), Instant::now());
    loop {
        let now = look(connection, name)?;
        // While the database stood still, nobody could give a sign of life.
        if looked.elapsed() > Terms::DEFAULT.gap {
            since = Instant::now();
        }
        looked = Instant::now();
        // The process has given the place up meanwhile.
        let is_given_up = |found: &Found| found.iter().all(|(_, row, _)| row.process.is_empty());
        if is_given_up(&now) {
            return Ok(silent(now));
        }
        if silent(now.clone()) != silent(first.clone()) {
            return Err(in_use(&connection.address(), &now));
        }
        if since.elapsed() >= Terms::DEFAULT.silence {
            return Ok(silent(now));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Whether the places are as they were found.
pub(crate) fn is_still(connection: &mut Connection, name: Option<&str>, seen: &Silent) -> Result<(), DatabaseError> {
    let now = look(connection, name)?;
    if silent(now.clone()) == *seen { Ok(()) } else { Err(in_use(&connection.address(), &now)) }
}

fn silent(found: Found) -> Silent {
    Silent(found.into_iter().map(|(name, row, _)| (name, row)).collect())
}

fn look(connection: &mut Connection, name: Option<&str>) -> Result<Found, DatabaseError> {
    let most = i32::try_from(TEXT_MAX).unwrap_or(i32::MAX);
    let rows = connection.query(
        "SELECT name, process, fence, batch, beat, CASE WHEN length(holder) <= $2::int4 THEN holder END
         FROM weir.committers WHERE $1::text IS NULL OR name = $1::text ORDER BY name",
        &[&name, &most],
    )?;
    let found = rows.iter().map(|row| {
        let place = PlaceRow { process: row.get(1), fence: row.get(2), batch: row.get(3), beat: row.get(4) };
        let holder = row.get::<_, Option<String>>(5).and_then(|text| Holder::parse(&text));
        (row.get(0), place, holder)
    });
    Ok(found.collect())
}

fn in_use(address: &str, found: &Found) -> DatabaseError {
    let holder = found.iter().find_map(|(_, row, holder)| holder.as_ref().filter(|_| !row.process.is_empty()));
    let who = match holder {
        Some(Holder { node, for_nodes, .. }) => format!("node {node}, at {for_nodes}"),
        None => "it has not said which one".into(),
    };
    DatabaseError::InUse(format!(
        "a manager is active on the database {address}: {who}; nothing was changed. Stop all managers of the cluster, and run this again"
    ))
}
