//! Starting and stopping the server.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;

use authentication::Authenticator;
use service::{Role, Service, StartError};

use crate::config::{Limits, ServerConfig, Times};
use crate::figures::Watch;
use crate::front_end::FrontEnd;
use crate::listener::Listener;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The server cannot listen on the address.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        error: std::io::Error,
    },
    /// A thread or file descriptor could not be created.
    #[error("cannot start: {0}")]
    Start(#[from] std::io::Error),
    /// The service did not start.
    #[error(transparent)]
    Service(#[from] StartError),
}

/// The connections and open writes that a stop has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StopReport {
    /// Connections that were not finished at the deadline and were cut.
    pub connections_cut: usize,
    /// Open writes. Their writers can return after the next start.
    pub writers_left: usize,
}

/// A running front end with its service.
pub struct Server {
    front: Arc<FrontEnd>,
    listener: Listener,
}

impl Server {
    /// Starts a service and listens. The writers of the last run get a full grace period from now on.
    ///
    /// # Errors
    /// The address is not available, or the service or a thread cannot be started.
    pub fn start(config: ServerConfig, role: Role) -> Result<Server, ServerError> {
        // Bind first, so that nothing is started if the address is not available.
        let socket = listen_on(&config)?;
        let service = Service::start(config.service.clone(), role)?;
        Self::serve(config, socket, service)
    }

    /// Starts a service on a socket that listens already. Others may hold copies of it: connections that arrive after a stop wait for the next server.
    ///
    /// # Errors
    /// The service or a thread cannot be started.
    pub fn start_on(socket: TcpListener, config: ServerConfig, role: Role) -> Result<Server, ServerError> {
        let service = Service::start(config.service.clone(), role)?;
        Self::serve(config, socket, service)
    }

    /// Listens with a service that is already running, for example with another front end. [`ServerConfig::service`]
    /// is ignored. [`Server::stop`] also stops the service.
    ///
    /// # Errors
    /// The address is not available, or a thread cannot be started.
    pub fn over(config: ServerConfig, service: Arc<Service>) -> Result<Server, ServerError> {
        let socket = listen_on(&config)?;
        Self::serve(config, socket, service)
    }

    fn serve(config: ServerConfig, socket: TcpListener, service: Arc<Service>) -> Result<Server, ServerError> {
        let address = socket.local_addr().map_err(|error| ServerError::Listen { address: config.listen, error })?;
        let front = FrontEnd::new(config, address, service)?;
        let listener = Listener::start(socket, Arc::clone(&front))?;
        tracing::info!(%address, "listening");
        Ok(Server { front, listener })
    }

    /// The actual address of the listener.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.front.address
    }

    /// The service, for another front end.
    #[must_use]
    pub fn service(&self) -> &Arc<Service> {
        &self.front.service
    }

    /// The number of open connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.listener.connections()
    }

    /// Applies the settings that can change at run time: the maximum number of connections, and the times of later
    /// connections. [`Service::adjust`] does the same for the service.
    pub fn adjust(&self, limits: &Limits, times: Times) {
        self.front.adjust(limits, times);
    }

    /// What finds out who clients are; `None`: they need not show it.
    #[must_use]
    pub fn authenticator(&self) -> Option<&Authenticator> {
        self.front.config.authenticator.as_deref()
    }

    /// Access to the figures, for monitoring.
    #[must_use]
    pub fn watch(&self) -> Watch {
        Watch { front: Arc::clone(&self.front) }
    }

    /// The name of a thread that has died. The node then does only part of its work and must be stopped.
    #[must_use]
    pub fn broken(&self) -> Option<&'static str> {
        let threads = [("listener", self.listener.ended()), ("drainer", self.front.drainer.ended())];
        let own = threads.into_iter().find(|(_, ended)| *ended).map(|(name, _)| name);
        self.front.service.broken().or(own)
    }

    /// Stops the server and its service. It accepts no more connections, finishes and answers the requests that were
    /// read, and cuts the remaining connections at `deadline`. Open writes are synced and wait for the next start.
    /// Afterwards no thread uses the namespace or the store.
    pub fn stop(self, deadline: Instant) -> StopReport {
        self.front.service.begin_stop();
        let connections_cut = self.listener.stop(deadline);
        let writers_left = self.front.service.stop();
        self.front.drainer.stop();
        tracing::info!(connections_cut, writers_left, "stopped");
        StopReport { connections_cut, writers_left }
    }
}

fn listen_on(config: &ServerConfig) -> Result<TcpListener, ServerError> {
    TcpListener::bind(config.listen).map_err(|error| ServerError::Listen { address: config.listen, error })
}
