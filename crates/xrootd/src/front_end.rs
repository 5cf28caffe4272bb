//! The state that all connections share.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use service::{Caller, Complaints, Principal, Service, Shares};
use wire::{PROTOCOL_VERSION, PROTOCOL_VERSION_BEFORE};

use crate::config::{Limits, ServerConfig, Times};
use crate::drainer::Drainer;
use crate::meter::Meter;
use crate::session::Session;

/// The name of this front end in callers.
pub(crate) const PROTOCOL: &str = "root";

/// The state that belongs to no single connection.
pub(crate) struct FrontEnd {
    /// The service that handles the requests.
    pub(crate) service: Arc<Service>,
    pub(crate) config: ServerConfig,
    /// The actual address of the listener.
    pub(crate) address: SocketAddr,
    pub(crate) drainer: Arc<Drainer>,
    /// Connections, counted per client machine.
    pub(crate) connection_shares: Shares,
    /// Sessions by the number in their id.
    pub(crate) sessions: Mutex<HashMap<u64, Arc<Session>>>,
    /// Limits log lines about bad input.
    pub(crate) complaints: Complaints,
    pub(crate) meter: Arc<Meter>,
    /// The number of accepted connections.
    pub(crate) connections: AtomicU64,
    /// Initially those of `config`.
    times: RwLock<Times>,
}

impl FrontEnd {
    pub(crate) fn new(config: ServerConfig, address: SocketAddr, service: Arc<Service>) -> std::io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            service,
            address,
            drainer: Drainer::start(config.times.send)?,
            connection_shares: Shares::new(config.limits.connections_max),
            sessions: Mutex::new(HashMap::new()),
            complaints: Complaints::new(Instant::now()),
            meter: Arc::new(Meter::new()),
            connections: AtomicU64::new(0),
            times: RwLock::new(config.times),
            config,
        }))
    }

    /// The current times.
    pub(crate) fn times(&self) -> Times {
        *self.times.read()
    }

    /// See [`crate::Server::adjust`].
    pub(crate) fn adjust(&self, limits: &Limits, times: Times) {
        self.connection_shares.set_most(limits.connections_max);
        self.drainer.set_patience(times.send);
        *self.times.write() = times;
    }

    /// The protocol version that this server announces. By it XrdCl 6 decides whether to open a file by the template of an
    /// open one, which a server of a cluster refuses. Then the client does so itself, and its program can go on at once.
    pub(crate) fn protocol_version(&self) -> u32 {
        if self.service.makes_files_like_open_ones() { PROTOCOL_VERSION } else { PROTOCOL_VERSION_BEFORE }
    }

    /// The caller for a new connection from `peer`: the configured principal, or nobody while the client must show who it is.
    pub(crate) fn caller(&self, peer: SocketAddr) -> Caller {
        match self.config.authenticator {
            Some(_) => Caller::new(&Principal::nobody(), peer, PROTOCOL),
            None => Caller::new(&self.config.principal, peer, PROTOCOL),
        }
    }
}
