//! One client's session: who it says it is, and its open files. On a single node a session is one connection.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use types::ClientIdentity;
use wire::SessionId;

use crate::data_streams::DataStreams;
use crate::handles::Handles;
use crate::node::Node;
use crate::open_file::Access;
use crate::outgoing::Outgoing;

/// A session.
pub(crate) struct Session {
    /// Unique for as long as the server runs.
    pub(crate) number: u64,
    /// What the client was told it is called.
    pub(crate) id: SessionId,
    /// Where it comes from.
    pub(crate) peer: SocketAddr,
    /// Who the client said it is; `None` before login.
    client: Mutex<Option<Arc<ClientIdentity>>>,
    /// Its open files.
    pub(crate) handles: Handles,
    /// Its further connections.
    pub(crate) streams: DataStreams,
    /// The way to the client.
    pub(crate) outgoing: Arc<Outgoing>,
}

impl Session {
    pub(crate) fn new(node: &Node, peer: SocketAddr, outgoing: Arc<Outgoing>) -> Arc<Self> {
        let number = node.next_session();
        let mut id = [0u8; 16];
        id[..8].copy_from_slice(&number.to_be_bytes());
        // Tells this run of the server from others, so that a session of an earlier run is not mistaken for one of ours.
        id[8..].copy_from_slice(&node.started.0.to_be_bytes());
        Arc::new(Self {
            number,
            id: SessionId(id),
            peer,
            client: Mutex::new(None),
            handles: Handles::new(
                node.config.limits.handles_per_session_max,
                peer.ip(),
                Arc::clone(&node.handle_shares),
            ),
            streams: DataStreams::default(),
            outgoing,
        })
    }

    pub(crate) fn client(&self) -> Option<Arc<ClientIdentity>> {
        self.client.lock().clone()
    }

    pub(crate) fn set_client(&self, client: ClientIdentity) {
        *self.client.lock() = Some(Arc::new(client));
    }

    /// Ends the session: no file can be opened in it any more.
    pub(crate) fn end(&self, node: &Node) {
        self.handles.end();
        self.streams.end();
        self.let_go(node);
        node.sessions.lock().remove(&self.number);
    }

    /// Readers close, writers are detached and wait for their client to come back.
    pub(crate) fn let_go(&self, node: &Node) {
        let now = Instant::now();
        for file in self.handles.drain() {
            file.stop_copying();
            if let Access::Write(write) = &file.access {
                write.abandon_checkpoint();
                node.writers.lock().detach(file.body, write.key, false, now);
            }
        }
    }
}

impl Node {
    /// The session that a client was told is called `id`, if it is still there.
    pub(crate) fn session(&self, id: SessionId) -> Option<Arc<Session>> {
        let [n0, n1, n2, n3, n4, n5, n6, n7, ..] = id.0;
        let found = self.sessions.lock().get(&u64::from_be_bytes([n0, n1, n2, n3, n4, n5, n6, n7])).cloned();
        found.filter(|session| session.id == id)
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.client() {
            Some(client) => write!(f, "{}.{}@{}", client.user.escape_debug(), client.pid, self.peer),
            None => write!(f, "{}", self.peer),
        }
    }
}
