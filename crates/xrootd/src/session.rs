//! One client's session: a session of the service, and the way to the client. On a single node a session is one connection.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use wire::SessionId;

use crate::data_streams::DataStreams;
use crate::front_end::FrontEnd;
use crate::outgoing::Outgoing;

/// A session.
pub(crate) struct Session {
    /// On whose behalf it acts, and what it has open.
    pub(crate) open: Arc<service::Session>,
    /// What the client was told it is called.
    pub(crate) id: SessionId,
    /// Where it comes from.
    pub(crate) peer: SocketAddr,
    /// Its further connections.
    pub(crate) streams: DataStreams,
    /// The way to the client.
    pub(crate) outgoing: Arc<Outgoing>,
}

impl Session {
    pub(crate) fn new(front: &FrontEnd, peer: SocketAddr, outgoing: Arc<Outgoing>) -> Arc<Self> {
        let open = front.service.session(front.caller(peer));
        let mut id = [0u8; 16];
        id[..8].copy_from_slice(&open.number().to_be_bytes());
        // Tells this run of the server from others, so that a session of an earlier run is not mistaken for one of ours.
        id[8..].copy_from_slice(&front.service.started().0.to_be_bytes());
        Arc::new(Self { open, id: SessionId(id), peer, streams: DataStreams::default(), outgoing })
    }

    /// Ends the session: no file can be opened in it any more.
    pub(crate) fn end(&self, front: &FrontEnd) {
        self.streams.end();
        front.service.end_session(&self.open);
        front.sessions.lock().remove(&self.open.number());
    }
}

impl FrontEnd {
    /// The session that a client was told is called `id`, if it is still there.
    pub(crate) fn session(&self, id: SessionId) -> Option<Arc<Session>> {
        let [n0, n1, n2, n3, n4, n5, n6, n7, ..] = id.0;
        let found = self.sessions.lock().get(&u64::from_be_bytes([n0, n1, n2, n3, n4, n5, n6, n7])).cloned();
        found.filter(|session| session.id == id)
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.open.fmt(f)
    }
}
