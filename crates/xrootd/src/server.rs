//! Starting and stopping.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;

use service::{Role, Service, StartError};

use crate::config::{Limits, ServerConfig, Times};
use crate::figures::Watch;
use crate::front_end::FrontEnd;
use crate::listener::Listener;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        error: std::io::Error,
    },
    /// A thread or descriptor could not be had.
    #[error("cannot start: {0}")]
    Start(#[from] std::io::Error),
    /// The service behind it did not start.
    #[error(transparent)]
    Service(#[from] StartError),
}

/// What a stop has left undone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StopReport {
    /// Connections that were not done at the deadline and were cut.
    pub connections_cut: usize,
    /// Files in the making whose writers have not closed them; they can come back after the next start.
    pub writers_left: usize,
}

/// A running front door, with the service behind it.
pub struct Server {
    front: Arc<FrontEnd>,
    listener: Listener,
}

impl Server {
    /// Listens and serves. The writers of the last run get a full grace period from now on.
    ///
    /// # Errors
    /// Nobody is served.
    pub fn start(config: ServerConfig, role: Role) -> Result<Server, ServerError> {
        // An address that is not to be had is noticed before anything is started.
        let socket = listen_on(&config)?;
        let service = Service::start(config.service.clone(), role)?;
        Self::serve(config, socket, service)
    }

    /// The same over a service that runs already, as another front end's. [`Server::stop`] stops it, too; what [`ServerConfig::service`] says is not
    /// looked at.
    ///
    /// # Errors
    /// Nobody is served.
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

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.front.address
    }

    /// The service behind it, for another front end.
    #[must_use]
    pub fn service(&self) -> &Arc<Service> {
        &self.front.service
    }

    /// Connections at this moment.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.listener.connections()
    }

    /// Takes over what can be while it runs: the bound of connections for those that come from now on, the times for connections that come from now on.
    /// [`Service::adjust`] does the rest.
    pub fn adjust(&self, limits: &Limits, times: Times) {
        self.front.adjust(limits, times);
    }

    /// For monitoring.
    #[must_use]
    pub fn watch(&self) -> Watch {
        Watch { front: Arc::clone(&self.front) }
    }

    /// The thread that has died, if one has: the node does only half of its work since, and has to be stopped.
    #[must_use]
    pub fn broken(&self) -> Option<&'static str> {
        let threads = [("listener", self.listener.ended()), ("drainer", self.front.drainer.ended())];
        let own = threads.into_iter().find(|(_, ended)| *ended).map(|(name, _)| name);
        self.front.service.broken().or(own)
    }

    /// Ends it: nobody new is taken in, requests that were read are finished and answered, connections that are not
    /// done at `deadline` are cut, open writers are synced and wait for the next start. No thread that uses the
    /// namespace or the store is left.
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
