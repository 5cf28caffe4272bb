//! One client's session: who it says it is, and its open files. On a single node a session is one connection.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use types::ClientIdentity;
use wire::SessionId;
use wire::request::Login;

use crate::data_streams::DataStreams;
use crate::handles::Handles;
use crate::node::Node;
use crate::open_file::Access;
use crate::outgoing::Outgoing;

/// Longest word of a login's description that is remembered.
const WORD_MAX: usize = 256;

/// A process, as a login describes it. Its number alone does not do: containers have the same ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Process {
    pid: u32,
    /// `xrd.hostname`, and what program it is.
    host: Vec<u8>,
    program: Vec<u8>,
}

impl Process {
    /// `None`: it does not say on which machine it is.
    pub(crate) fn of(login: &Login) -> Option<Self> {
        let details = login.details().ok()?;
        let word = |key: &[u8]| details.get(key).filter(|word| !word.is_empty() && word.len() <= WORD_MAX);
        let host = word(b"xrd.hostname")?.to_vec();
        Some(Self { pid: login.pid, host, program: word(b"xrd.appname").unwrap_or_default().to_vec() })
    }
}

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
    /// Of which process it says it is, if it says so.
    process: Mutex<Option<Process>>,
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
            process: Mutex::new(None),
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

    /// What the login tells of the process besides.
    pub(crate) fn set_process(&self, process: Option<Process>) {
        *self.process.lock() = process;
    }

    /// Whether `other` is of the same process, as far as both have said: a client may have several sessions, under several names
    /// (xrootdfs has). What they say counts among sessions of one principal alone.
    pub(crate) fn is_of_process_of(&self, other: &Session) -> bool {
        let mine = self.process.lock().clone();
        let principal = |session: &Session| session.client().map(|client| client.principal);
        mine.is_some()
            && principal(self) == principal(other)
            && self.peer.ip() == other.peer.ip()
            && mine == *other.process.lock()
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
                if write.lease.waits_for_its_client() {
                    node.writers.lock().detach(file.object, write.key, false, now);
                } else {
                    node.writers.lock().detach_for_good(file.object, write.key, now);
                }
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
