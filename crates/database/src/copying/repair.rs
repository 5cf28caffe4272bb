//! The repair of a namespace in a database that is closed meanwhile.

use super::{Copying, IMPORT};
use crate::{DatabaseError, schema};

impl Copying {
    /// Closes the database for a repair of its namespace: `reason` says what must be done if it is interrupted.
    ///
    /// # Errors
    /// [`DatabaseError::InUse`]: a manager is active. [`DatabaseError::Copy`]: it has no namespace, or a part of a copy.
    pub fn begin_repair(&mut self, reason: &str) -> Result<(), DatabaseError> {
        self.closing_transaction(|copying| {
            let address = copying.address.clone();
            schema::owner(&mut copying.connection, &address, " FOR UPDATE")?;
            let refused = |why: String| {
                Err(DatabaseError::Copy(format!("cannot continue the namespace of the database {address}: {why}")))
            };
            match copying.row()? {
                Some(row) if row.direction == IMPORT => {
                    return refused(format!("the import of {} into it was not finished; run that again", row.other));
                }
                Some(row) if row.is_complete => return refused(format!("it was moved to {}", row.other)),
                Some(row) => {
                    return refused(format!("its export to {} was not finished; run that again", row.other));
                }
                None if !copying.has_entries()? => return refused("it has none".into()),
                None => {}
            }
            copying.close(reason)
        })
    }

    /// Opens the database to managers after a repair that began with the same `reason`.
    ///
    /// # Errors
    /// [`DatabaseError::Copy`]: it is not closed for this reason any more. Then it stays as it is. Those of the database.
    pub fn end_repair(&mut self, reason: &str) -> Result<(), DatabaseError> {
        self.transaction(|copying| {
            if schema::open_if_closed_for(&mut copying.connection, reason)? {
                return Ok(());
            }
            let address = copying.address.clone();
            let now = match schema::owner(&mut copying.connection, &address, "")?.closed {
                Some(closed) => format!("meanwhile it was closed for another reason: {closed}"),
                None => "another process has opened it meanwhile; stop all managers, and run this again".into(),
            };
            Err(DatabaseError::Copy(format!("cannot end the repair of the namespace of the database {address}: {now}")))
        })
    }
}
