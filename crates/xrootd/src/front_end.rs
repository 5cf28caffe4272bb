//! What all connections share.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use service::{Caller, Complaints, Service, Shares};

use crate::config::{Limits, ServerConfig, Times};
use crate::drainer::Drainer;
use crate::meter::Meter;
use crate::session::Session;

/// What protocol callers are said to come by.
pub(crate) const PROTOCOL: &str = "root";

/// What belongs to no single connection.
pub(crate) struct FrontEnd {
    /// What is asked.
    pub(crate) service: Arc<Service>,
    pub(crate) config: ServerConfig,
    /// Where it really listens.
    pub(crate) address: SocketAddr,
    pub(crate) drainer: Arc<Drainer>,
    /// Connections, by who has them.
    pub(crate) connection_shares: Shares,
    /// By the number in the session's id.
    pub(crate) sessions: Mutex<HashMap<u64, Arc<Session>>>,
    /// Lines about what clients send.
    pub(crate) complaints: Complaints,
    pub(crate) meter: Arc<Meter>,
    /// Connections taken in.
    pub(crate) connections: AtomicU64,
    /// Those of `config` at first.
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

    /// The times that hold now.
    pub(crate) fn times(&self) -> Times {
        *self.times.read()
    }

    /// See [`crate::Server::adjust`].
    pub(crate) fn adjust(&self, limits: &Limits, times: Times) {
        self.connection_shares.set_most(limits.connections_max);
        self.drainer.set_patience(times.send);
        *self.times.write() = times;
    }

    /// Whoever comes from `peer`: nobody has to prove anything yet, so that all act as the configured principal.
    pub(crate) fn caller(&self, peer: SocketAddr) -> Caller {
        Caller::new(&self.config.principal, peer, PROTOCOL)
    }
}
