//! A client's session: a session of the service, and the connection to the client.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use wire::SessionId;

use crate::data_streams::DataStreams;
use crate::front_end::FrontEnd;
use crate::outgoing::Outgoing;
use crate::repeated_opens::RepeatedOpens;

/// A session of a client.
pub(crate) struct Session {
    /// Its caller and its open files.
    pub(crate) open: Arc<service::Session>,
    /// The id that the client was told.
    pub(crate) id: SessionId,
    /// The address of the client.
    pub(crate) peer: SocketAddr,
    /// Its opens that come again.
    pub(crate) repeated: RepeatedOpens,
    /// Its data streams.
    pub(crate) streams: DataStreams,
    /// The sending half of its connection.
    pub(crate) outgoing: Arc<Outgoing>,
}

impl Session {
    pub(crate) fn new(front: &FrontEnd, peer: SocketAddr, outgoing: Arc<Outgoing>) -> Arc<Self> {
        let open = front.service.session(front.caller(peer));
        let mut id = [0u8; 16];
        id[..8].copy_from_slice(&open.number().to_be_bytes());
        // Nobody can guess it: whoever knows the id of a session may bind a connection to it, and use its open files.
        id[8..].copy_from_slice(&rand::random::<[u8; 8]>());
        Arc::new(Self {
            open,
            id: SessionId(id),
            peer,
            repeated: RepeatedOpens::default(),
            streams: DataStreams::default(),
            outgoing,
        })
    }

    /// Ends the session: it can open no more files.
    pub(crate) fn end(&self, front: &FrontEnd) {
        self.streams.end();
        front.service.end_session(&self.open);
        front.sessions.lock().remove(&self.open.number());
    }
}

impl FrontEnd {
    /// The session with this `id`, if it still exists.
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
