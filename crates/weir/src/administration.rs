//! A manager's connections of administrators: how many there are, that each administrator may still act, and that a
//! revocation ends them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use link::admin::{AdminHandler, AdminId, AdminName, AdminStream, StreamCutter};
use manager::administrators::Administrators;
use parking_lot::Mutex;

use crate::cluster_node::now;
use crate::control::{Answerer, Caller, Reply, gate};

/// Simultaneous connections; a further one is told to try again.
const CONNECTIONS_MAX: usize = 16;
/// Those of one administrator.
const OF_ONE_MAX: usize = 8;
/// Short, because a program writes a request as one line at once.
const REQUEST_TIME: Duration = Duration::from_secs(5);

/// The connections that are open.
#[derive(Debug, Default)]
pub(crate) struct OpenConnections(Mutex<(u64, Vec<OpenConnection>)>);

#[derive(Debug)]
struct OpenConnection {
    number: u64,
    id: AdminId,
    cutter: StreamCutter,
}

impl OpenConnections {
    /// Counts a connection until the guard is dropped; `None` if there is no room for it.
    fn enter(self: &Arc<Self>, id: AdminId, cutter: StreamCutter) -> Option<ConnectionGuard> {
        let mut open = self.0.lock();
        let (counted, connections) = &mut *open;
        let of_one = connections.iter().filter(|one| one.id == id).count();
        if connections.len() >= CONNECTIONS_MAX || of_one >= OF_ONE_MAX {
            return None;
        }
        *counted += 1;
        connections.push(OpenConnection { number: *counted, id, cutter });
        Some(ConnectionGuard { open: Arc::clone(self), number: *counted })
    }

    /// Ends the connections of these administrators.
    pub(crate) fn cut(&self, ids: &[AdminId]) {
        for one in self.0.lock().1.iter().filter(|one| ids.contains(&one.id)) {
            one.cutter.cut();
        }
    }

    /// Ends all connections, and waits until nobody answers a request any more, but not longer than `patience`.
    pub(crate) fn end_all(&self, patience: Duration) {
        self.0.lock().1.iter().for_each(|one| one.cutter.cut());
        let began = Instant::now();
        while !self.0.lock().1.is_empty() && began.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

struct ConnectionGuard {
    open: Arc<OpenConnections>,
    number: u64,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.open.0.lock().1.retain(|one| one.number != self.number);
    }
}

/// Serves administrators' connections.
pub(crate) struct Administration {
    pub(crate) administrators: Arc<Administrators>,
    pub(crate) open: Arc<OpenConnections>,
    pub(crate) answer: Box<Answerer>,
}

impl AdminHandler for Administration {
    fn serve(&self, who: AdminName, mut stream: AdminStream) {
        let peer = stream.address();
        let admitted = || {
            self.administrators.admit(who.id, now()).map_err(|error| {
                tracing::warn!(id = %who.id, %peer, %error, "somebody with an administrator's certificate was refused");
                error.to_string()
            })
        };
        // Asked first, so that somebody whose access has ended takes nobody's place.
        if let Err(why) = admitted() {
            let _ = gate::say(&mut stream, &Reply::Denied(why));
            stream.end();
            return;
        }
        let Some(_counted) = self.open.enter(who.id, stream.cutter()) else {
            let _ = gate::say(&mut stream, &Reply::Refused(gate::TOO_MANY.into()));
            stream.end();
            return;
        };
        stream.read_within(REQUEST_TIME);
        // Asked again when the request is here, and the connection is in the list that a revocation ends: none slips through.
        let caller =
            || admitted().map(|record| Caller::Remote { id: who.id, name: record.name, role: record.role, peer });
        let served = gate::read(&mut stream).and_then(|line| gate::serve(&line, &mut stream, caller, &*self.answer));
        match served {
            Ok(()) => stream.end(),
            Err(error) => tracing::debug!(%peer, "an administrator's connection ended: {error}"),
        }
    }
}
