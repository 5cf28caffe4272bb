//! Stands where the server will be until its crate is there.
#![allow(missing_docs)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use types::BootId;

pub struct ServerConfig {
    pub listen: SocketAddr,
    pub boot: BootId,
    pub limits: Limits,
    pub times: Times,
}

pub struct Limits {
    pub connections_max: usize,
}

pub struct Times {
    pub grace: Duration,
    pub upload_kept: Duration,
}

impl ServerConfig {
    pub fn new(listen: SocketAddr, boot: BootId) -> Self {
        Self {
            listen,
            boot,
            limits: Limits { connections_max: 0 },
            times: Times { grace: Duration::ZERO, upload_kept: Duration::ZERO },
        }
    }
}

pub struct Server(std::net::TcpListener);

impl Server {
    pub fn start(
        config: ServerConfig,
        _namespace: Arc<namespace::Namespace>,
        _store: Arc<store::Store>,
    ) -> std::io::Result<Self> {
        let _ = (config.boot, config.limits.connections_max, config.times.grace, config.times.upload_kept);
        std::net::TcpListener::bind(config.listen).map(Self)
    }

    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap_or_else(|_| SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    pub fn stop(&self, _deadline: Instant) {}
}
