//! What a manager's process keeps while it is active and while it is a standby: its directory, its sockets, and who people are.

use std::cell::{Cell, OnceCell, RefCell};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use console::signals::Signal;
use foundation::DataDir;
use link::Listener;
use types::BootId;

use crate::client_security::ClientSecurity;
use crate::cluster_node::NodesAddress;
use crate::exit::Exit;
use crate::metrics::Metrics;
use crate::people::People;
use crate::reload::Reload;
use crate::{Failure, serve, supervisor};

/// See the module.
pub(crate) struct ManagerProcess {
    pub(crate) data: DataDir,
    pub(crate) security: ClientSecurity,
    pub(crate) people: Arc<People>,
    /// The boot generation of the kernel.
    pub(crate) boot: BootId,
    pub(crate) stop: Receiver<Signal>,
    pub(crate) metrics: Metrics,
    /// With the configuration in force.
    pub(crate) reload: RefCell<Reload>,
    /// The addresses to listen on.
    pub(crate) listen: SocketAddr,
    pub(crate) nodes: NodesAddress,
    pub(crate) sockets: OnceCell<Sockets>,
    pub(crate) is_ready: Cell<bool>,
}

/// The sockets. They stay while the manager changes between active and standby: who connects meanwhile waits for a moment.
pub(crate) struct Sockets {
    clients: TcpListener,
    nodes: Arc<Listener>,
    /// The address that other nodes are told.
    pub(crate) for_nodes: String,
    /// The address that clients are told.
    pub(crate) for_clients: String,
}

impl Sockets {
    /// The socket for clients, for one front end.
    pub(crate) fn clients(&self) -> Result<TcpListener, Failure> {
        self.clients.try_clone().map_err(not_copied)
    }

    /// The socket for nodes, for one start of the connections.
    pub(crate) fn nodes(&self) -> Result<Arc<Listener>, Failure> {
        self.nodes.again().map_err(not_copied)
    }

    /// The URL that clients are told.
    pub(crate) fn url(&self) -> String {
        format!("root://{}/", self.for_clients)
    }
}

fn not_copied(error: std::io::Error) -> Failure {
    Failure::new(Exit::Failed, error).while_doing("cannot use a socket once more")
}

impl ManagerProcess {
    /// The sockets. The first call makes them: nobody can connect before.
    pub(crate) fn sockets(&self) -> Result<&Sockets, Failure> {
        if let Some(sockets) = self.sockets.get() {
            return Ok(sockets);
        }
        let nodes = self.nodes.listen()?;
        let clients = TcpListener::bind(self.listen);
        let clients =
            clients.map_err(|error| serve::not_served(xrootd::ServerError::Listen { address: self.listen, error }))?;
        let address = clients.local_addr().map_err(not_copied)?;
        let for_nodes = self.nodes.told(&nodes);
        let for_clients = self.reload.borrow().in_force().advertise.clone().unwrap_or_else(|| address.to_string());
        Ok(self.sockets.get_or_init(|| Sockets { clients, nodes, for_nodes, for_clients }))
    }

    /// Says once that clients are served, to whoever started the process.
    pub(crate) fn say_ready(&self, server: &xrootd::Server) -> Result<(), Failure> {
        if self.is_ready.replace(true) {
            return Ok(());
        }
        serve::say_ready(&format!("root://{}/", server.address()))?;
        supervisor::tell("READY=1");
        Ok(())
    }

    /// Reads the configuration again. Returns whether one is in force that may have changed.
    pub(crate) fn reload(&self, server: &xrootd::Server) -> bool {
        let mut reload = self.reload.borrow_mut();
        let Some(config) = reload.again(server, &self.people) else { return false };
        self.people.reload(config);
        true
    }
}
