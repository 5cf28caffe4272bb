//! A connection that is kept from one look at the database to the next.

use std::sync::Arc;

use crate::DatabaseError;
use crate::session::{Connection, Connector};

pub(crate) struct KeptConnection {
    pub(crate) connector: Arc<Connector>,
    connection: Option<Connection>,
}

impl KeptConnection {
    pub(crate) fn new(connector: Connector) -> Self {
        Self { connector: Arc::new(connector), connection: None }
    }

    /// Asks on the connection, or on a new one if there is none or it has ended. Calls `opened` with each new one first. After an error it keeps none:
    /// the next one may lead to another server.
    pub(crate) fn ask<T>(
        &mut self,
        opened: impl FnOnce(&mut Connection) -> Result<(), DatabaseError>,
        ask: impl Fn(&mut Connection) -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        if let Some(mut connection) = self.connection.take() {
            match ask(&mut connection) {
                // Somebody ended this connection. Only a new one tells whether the database is away.
                Err(_) if connection.is_broken() => {}
                answered => {
                    self.connection = answered.is_ok().then_some(connection);
                    return answered;
                }
            }
        }
        let mut connection = self.connector.connect_bare()?;
        opened(&mut connection)?;
        let answer = ask(&mut connection)?;
        self.connection = Some(connection);
        Ok(answer)
    }
}
