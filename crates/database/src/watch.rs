//! Notices that the database is away, also while nobody asks it for anything.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;

use crate::away::{Away, Outage};
use crate::kept::KeptConnection;
use crate::session::{Connector, Limits};
use crate::{DatabaseAddress, schema};

/// How often it looks.
const EVERY: Duration = Duration::from_secs(1);

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
    let mut kept = KeptConnection::new(Connector::new(address, Limits::LOOK));
    loop {
        match kept.ask(|_| Ok(()), |connection| schema::accepts_changes(connection, &shown)) {
            Ok(()) => away.end(&format!("the database {shown} is back")),
            Err(error) => away.note(&error, "opens and changes wait until it is back"),
        }
        if stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}
