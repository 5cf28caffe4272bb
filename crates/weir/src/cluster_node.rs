//! What managers and disk servers have in common: the address for other nodes, the host name, waiting and stopping.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Signals, RecvTimeoutError};
use std::time::{Duration, Instant};

use config::Config;
use foundation::DataDir;
use link::{Credentials, Identity, Listener, VALIDITY};
use node::links::Receiver;
use node::renewal::{CertificateRenewal, Keep, LOOK_EVERY, Moved, Renewal, Sign, Trusted};
use types::Timestamp;
use xrootd::Server;

use crate::end::End;
use crate::exit::Exit;
use crate::serve::{self, SERVER_STOP};
use crate::signals::Signal;
use crate::{Failure, free_addresses};

/// How often a node checks its disks and journals.
const WATCH: Duration = Duration::from_secs(1);
/// How often it checks whether something has ended it.
const LOOK: Duration = Duration::from_millis(100);
/// How long a stop waits for connections to end.
pub(crate) const LINKS_STOP: Duration = Duration::from_secs(3);

/// The address for nodes: the one to listen on and the one that other nodes get.
pub(crate) struct NodesAddress {
    given: String,
    resolved: SocketAddr,
}

impl NodesAddress {
    /// Takes the address from the configuration. It need not be loopback, because every peer must present a certificate of the cluster.
    pub(crate) fn of(config: &Config) -> Result<Self, Failure> {
        let given = config.nodes.clone();
        let usage = |why: String| Failure::message(Exit::Usage, format!("`nodes` is `{given}`: {why}"));
        let resolved = given.to_socket_addrs().map_err(|error| usage(error.to_string()))?.next();
        let resolved = resolved.ok_or_else(|| usage("the name stands for no address".into()))?;
        if resolved.ip().is_unspecified() {
            return Err(usage("other nodes cannot connect to it; write an address of this machine".into()));
        }
        if given.len() > 255 {
            return Err(usage("it is too long".into()));
        }
        Ok(Self { given, resolved })
    }

    /// Refuses a start that would make a directory, if this address, that for clients or that of the metrics is not free.
    pub(crate) fn check_free(&self, clients: SocketAddr, metrics: Option<SocketAddr>) -> Result<(), Failure> {
        free_addresses::check(&[
            ("listen for clients", Some(clients)),
            ("listen for nodes", Some(self.resolved)),
            ("serve metrics", metrics),
        ])
    }

    /// Listens on the address.
    pub(crate) fn listen(&self) -> Result<Arc<Listener>, Failure> {
        Listener::bind(self.resolved).map_err(|error| {
            let what =
                format!("cannot listen for nodes on {}; is another node there? Port 0 picks a free one", self.given);
            Failure::new(Exit::Listen, error).while_doing(what)
        })
    }

    /// The address that other nodes get: the configured name, with the port actually taken.
    pub(crate) fn told(&self, listener: &Listener) -> String {
        let host = self.given.rsplit_once(':').map_or(self.given.as_str(), |(host, _)| host);
        format!("{host}:{}", listener.address().port())
    }
}

/// The host name of this machine.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name.trim().chars().take(64).collect();
    if name.is_empty() { "unnamed".into() } else { name }
}

/// Waits until something ends the node. Calls `reload` to read the configuration again, `soon` several times a second, `watch` once a
/// second.
pub(crate) fn wait(
    asked: &Signals<Signal>,
    mut reload: impl FnMut(),
    mut soon: impl FnMut() -> Option<End>,
    mut watch: impl FnMut() -> Option<End>,
) -> End {
    let mut watched = Instant::now();
    loop {
        match asked.recv_timeout(LOOK) {
            Ok(Signal::Reload) => reload(),
            Ok(Signal::Stop(signal)) => {
                tracing::info!("{signal}: stopping; once more to stop at once");
                return End::Asked;
            }
            Err(RecvTimeoutError::Disconnected) => return End::Asked,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(end) = soon() {
            return end;
        }
        if watched.elapsed() >= WATCH {
            watched = Instant::now();
            if let Some(end) = watch() {
                return end;
            }
        }
    }
}

/// A running role.
pub(crate) struct RunningRole {
    /// Receives the messages of other nodes.
    pub(crate) receiver: Arc<dyn Receiver>,
    /// Its front end.
    pub(crate) server: Server,
    /// Stops what is behind the front end.
    pub(crate) stop_node: Box<dyn FnOnce()>,
}

impl RunningRole {
    /// The address that it listens on for clients.
    pub(crate) fn url(&self) -> String {
        format!("root://{}/", self.server.address())
    }

    /// The address that clients are told.
    pub(crate) fn url_for_clients(&self, config: &Config) -> String {
        config.advertise.as_ref().map_or_else(|| self.url(), |advertise| format!("root://{advertise}/"))
    }

    /// Stops the role, before its stores and indexes close.
    pub(crate) fn stop(self) {
        let audit = self.server.service().config().audit.clone();
        let left = self.server.stop(Instant::now() + SERVER_STOP);
        if left.connections_cut > 0 {
            tracing::warn!("{} connections were not done in time and were cut", left.connections_cut);
        }
        audit.stop();
        (self.stop_node)();
    }

    /// Whether a thread of the front end has died.
    pub(crate) fn broken(&self) -> Option<End> {
        self.server.broken().map(|name| End::Broken(format!("the {name} has died by a panic")))
    }
}

/// Prints the ready line, the only line on stdout.
pub(crate) fn say_ready(started: &RunningRole) -> Result<(), Failure> {
    serve::say_ready(&started.url())
}

/// The failure in words that name the data directory as people know it, where the code used the path of the open directory.
pub(crate) fn in_words(data: &DataDir, failure: &Failure) -> Failure {
    Failure::message(failure.exit, data.directory().in_words(&failure.to_string()))
}

/// Writes the node's identity into its open data directory.
fn keep_identity(data: &DataDir, file: &'static str) -> Box<Keep> {
    let directory = Arc::clone(data.directory());
    Box::new(move |identity| {
        let written = identity.write(&directory.held().join(file));
        written.map_err(|error| directory.in_words(&error.to_string()))
    })
}

/// Renews the certificate of this node in time, and writes the identity to `file` of its data directory.
pub(crate) fn start_renewal(
    identity: Identity,
    (data, file): (&DataDir, &'static str),
    credentials: Arc<Credentials>,
    sign: Box<Sign>,
    trusted: Box<Trusted>,
    moved: Box<Moved>,
) -> Result<Renewal, Failure> {
    let (keep, clock) = (keep_identity(data, file), Box::new(now));
    CertificateRenewal { identity, keep, credentials, validity: VALIDITY, clock, sign, trusted, moved }
        .start(LOOK_EVERY)
        .map_err(|error| Failure::new(Exit::Failed, error).while_doing("cannot start the renewal of the certificate"))
}

/// The time of day.
pub(crate) fn now() -> Timestamp {
    serve::now()
}
