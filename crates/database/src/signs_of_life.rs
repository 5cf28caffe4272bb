//! Signs of life while a batch reads. The committer's own connection is busy then, for as long as the database takes to answer, and other processes
//! would take a row that does not change for the row of a dead one.
//!
//! A sign of life changes the row that the batch changes when it commits. So the two never run at once, and a batch during which one was sent commits in
//! a transaction that began afterwards: the database would refuse the older one.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::DatabaseAddress;
use crate::own_place::BEAT_EVERY;
use crate::place::change_without_batch;
use crate::place_lease::OwnLease;
use crate::session::{Connection, Connector, Limits};

/// How often it looks whether the row must change.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long an answer may take: a batch that has read everything waits for it.
const PATIENCE: Duration = Duration::from_secs(3);

/// The row of the place while a batch reads.
struct Reading {
    fence: i64,
    batch: i64,
    /// When the last change of the row was sent, or could not be.
    last: Instant,
    signs: Signs,
}

/// What was sent while a batch read.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Signs {
    /// Whether the row may have changed.
    pub(crate) is_sent: bool,
    /// When the last change that the database has confirmed was sent.
    pub(crate) confirmed: Option<Instant>,
}

#[derive(Default)]
struct State {
    reading: Option<Reading>,
    is_over: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// A thread that changes the row while a batch reads. It ends when this is dropped, and nobody waits for it: it may just wait for an answer.
pub(crate) struct SignsOfLife(Arc<Shared>);

/// What the thread changes, and how.
pub(crate) struct SignedRow {
    /// The name of the place.
    pub(crate) name: String,
    /// Extended by each confirmed change.
    pub(crate) lease: Arc<Mutex<OwnLease>>,
    /// What the row says about this process.
    pub(crate) holder: Arc<Mutex<Option<String>>>,
}

impl SignsOfLife {
    pub(crate) fn start(address: &DatabaseAddress, row: SignedRow) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let (seen, connector) = (Arc::clone(&shared), Arc::new(Connector::new(address.clone(), Limits::LOOK)));
        std::thread::Builder::new().name("signs-of-life".into()).spawn(move || run(&seen, &connector, &row))?;
        Ok(Self(shared))
    }

    /// A batch begins to read. `last`: when the last change of the row was sent.
    pub(crate) fn begin(&self, fence: i64, batch: i64, last: Instant) {
        self.0.state.lock().reading = Some(Reading { fence, batch, last, signs: Signs::default() });
    }

    /// The batch has read everything. Waits for a sign that is under way: after this, none is sent.
    pub(crate) fn end(&self) -> Signs {
        self.0.state.lock().reading.take().map_or_else(Signs::default, |reading| reading.signs)
    }
}

impl Drop for SignsOfLife {
    fn drop(&mut self) {
        self.0.state.lock().is_over = true;
        self.0.changed.notify_all();
    }
}

fn run(shared: &Shared, connector: &Arc<Connector>, row: &SignedRow) {
    let mut kept: Option<Connection> = None;
    let mut state = shared.state.lock();
    while !state.is_over {
        let is_due = state.reading.as_ref().map(|reading| reading.last.elapsed() >= BEAT_EVERY);
        match (is_due, kept.take()) {
            // Connecting may take long, and the batch must not wait for that.
            (Some(true), None) => {
                let connected = MutexGuard::unlocked(&mut state, || connector.connect_bare());
                match (connected, &mut state.reading) {
                    (Ok(mut connection), _) => {
                        connection.limit_patience(PATIENCE);
                        kept = Some(connection);
                        continue;
                    }
                    // The batch will find that out by itself.
                    (Err(_), Some(reading)) => reading.last = Instant::now(),
                    (Err(_), None) => {}
                }
            }
            (Some(true), Some(mut connection)) => {
                if let Some(reading) = &mut state.reading {
                    sign(&mut connection, row, reading);
                }
                kept = Some(connection).filter(|connection| !connection.is_broken());
            }
            (Some(false), connection) => kept = connection,
            // A batch that reads for so long is rare. Meanwhile nobody needs a further connection.
            (None, _) => {}
        }
        shared.changed.wait_for(&mut state, LOOK_EVERY);
    }
}

/// Changes the row. If it is not as it should be, or the change fails, the batch finds out why when it commits.
fn sign(connection: &mut Connection, row: &SignedRow, reading: &mut Reading) {
    let holder = row.holder.lock().clone();
    let sent = Instant::now();
    reading.last = sent;
    reading.signs.is_sent = true;
    let place = (row.name.as_str(), reading.fence, reading.batch);
    if let Ok(true) = change_without_batch(connection, place, holder.as_deref()) {
        reading.signs.confirmed = Some(sent);
        row.lease.lock().confirmed(sent);
    }
}
