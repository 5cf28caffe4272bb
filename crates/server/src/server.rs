//! Starting and stopping.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;

use namespace::NsError;

use crate::config::{Limits, ServerConfig, Times};
use crate::figures::Watch;
use crate::keeper::{self, Keeper};
use crate::listener::Listener;
use crate::node::{Node, Role};

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
    /// The writers of the last run could not be read.
    #[error("cannot read the open writes of the last run: {0}")]
    Writers(#[from] NsError),
}

/// What a stop has left undone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StopReport {
    /// Connections that were not done at the deadline and were cut.
    pub connections_cut: usize,
    /// Files in the making whose writers have not closed them; they can come back after the next start.
    pub writers_left: usize,
}

/// A running front door.
pub struct Server {
    node: Arc<Node>,
    listener: Listener,
    keeper: Keeper,
}

impl Server {
    /// Listens and serves. The writers of the last run get a full grace period from now on.
    pub fn start(config: ServerConfig, role: Role) -> Result<Server, ServerError> {
        let listen = |error| ServerError::Listen { address: config.listen, error };
        let socket = TcpListener::bind(config.listen).map_err(listen)?;
        let address = socket.local_addr().map_err(listen)?;
        let node = Node::new(config, address, role)?;
        node.checksums.start(Arc::clone(&node))?;
        let found = keeper::find_writers(&node)?;
        if found > 0 {
            tracing::info!(found, grace = ?node.times().grace, "open writes wait for their writers");
        }
        let keeper = Keeper::start(Arc::clone(&node))?;
        let listener = Listener::start(socket, Arc::clone(&node))?;
        tracing::info!(%address, "listening");
        Ok(Server { node, listener, keeper })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.node.address
    }

    /// Connections at this moment.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.listener.connections()
    }

    /// Takes over what can be while it runs: the bounds of connections, open files, writers' memory and transfers for what is
    /// asked for from now on, the times for connections that come from now on (the grace period for writers that go from now on).
    pub fn adjust(&self, limits: &Limits, times: Times) {
        self.node.adjust(limits, times);
    }

    /// For monitoring.
    #[must_use]
    pub fn watch(&self) -> Watch {
        Watch { node: Arc::clone(&self.node) }
    }

    /// The thread that has died, if one has: the node does only half of its work since, and has to be stopped.
    #[must_use]
    pub fn broken(&self) -> Option<&'static str> {
        let threads = [
            ("keeper", self.keeper.ended()),
            ("listener", self.listener.ended()),
            ("drainer", self.node.drainer.ended()),
            ("checksums' thread", self.node.checksums.ended()),
            ("worker", self.node.workers.ended()),
            ("storer", self.node.storers.ended()),
        ];
        threads.into_iter().find(|(_, ended)| *ended).map(|(name, _)| name)
    }

    /// Ends it: nobody new is taken in, requests that were read are finished and answered, connections that are not
    /// done at `deadline` are cut, open writers are synced and wait for the next start. No thread that uses the
    /// namespace or the store is left.
    pub fn stop(self, deadline: Instant) -> StopReport {
        let broken = self.broken().is_some();
        self.node.begin_stop();
        self.node.pulls.stop();
        let connections_cut = self.listener.stop(deadline);
        self.node.checksums.stop();
        self.keeper.stop();
        // A worker may wait for a store elsewhere, whose answer does not come any more.
        if let Role::Disk(disk) = &self.node.role {
            disk.set_summer(None);
            disk.let_go();
        }
        self.node.workers.stop();
        self.node.storers.stop();
        self.node.drainer.stop();
        // What a thread had under way when it died is under way for ever: nobody may wait for that.
        for store in self.node.stores().iter().filter(|_| !broken) {
            if let Err(error) = store.tick() {
                tracing::error!(%error, "the last sync failed");
            }
        }
        let writers_left = self.node.writers.lock().len();
        tracing::info!(connections_cut, writers_left, "stopped");
        StopReport { connections_cut, writers_left }
    }
}
