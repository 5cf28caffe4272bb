//! Notices that the database is away, also while nobody asks it for anything.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;

use crate::away::{Away, Outage};
use crate::session::{Connection, Connector, Limits};
use crate::{DatabaseAddress, DatabaseError, schema};

/// How often it looks.
const EVERY: Duration = Duration::from_secs(1);
/// Short, so that a database that hangs is noticed soon.
const LIMITS: Limits = Limits { statement: Duration::from_secs(3), lock: Duration::from_secs(3) };

/// Looks at the database every second, on a connection of its own.
pub(crate) struct Watch {
    away: Arc<Away>,
    /// Ends the thread when it is dropped. Nobody waits for the thread: it may just wait for an answer.
    stop: Mutex<Option<Sender<()>>>,
}

impl Watch {
    /// Starts the thread.
    pub(crate) fn start(address: DatabaseAddress) -> io::Result<Self> {
        let away = Arc::<Away>::default();
        let (stop, stopped) = channel();
        let seen = Arc::clone(&away);
        std::thread::Builder::new().name("database-watch".into()).spawn(move || look(address, &seen, &stopped))?;
        Ok(Self { away, stop: Mutex::new(Some(stop)) })
    }

    /// Whether the database is away.
    pub(crate) fn outage(&self) -> Option<Outage> {
        self.away.outage()
    }

    pub(crate) fn stop(&self) {
        drop(self.stop.lock().take());
    }
}

fn look(address: DatabaseAddress, away: &Away, stopped: &Receiver<()>) {
    let shown = address.to_string();
    let connector = Arc::new(Connector::new(address, LIMITS));
    let mut connection = None;
    loop {
        match answers(&connector, &mut connection, &shown) {
            Ok(()) => away.end(&format!("the database {shown} is back")),
            Err(error) => {
                connection = None;
                away.note(&error, "opens and changes wait until it is back");
            }
        }
        if stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

fn answers(connector: &Arc<Connector>, connection: &mut Option<Connection>, shown: &str) -> Result<(), DatabaseError> {
    if let Some(known) = connection {
        match schema::accepts_changes(known, shown) {
            // Somebody ended this connection. Only a new one tells whether the database is away.
            Err(_) if known.is_broken() => {}
            answered => return answered,
        }
    }
    schema::accepts_changes(connection.insert(connector.connect_bare()?), shown)
}
