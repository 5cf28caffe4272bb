//! What managers and disk servers have in common: the address for other nodes, the host name, waiting and stopping.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Signals, RecvTimeoutError};
use std::time::{Duration, Instant};

use foundation::{DataDir, DirWatch, Displaced};
use link::Listener;
use node::links::Receiver;
use node::renewal::Keep;
use types::Timestamp;
use xrootd::Server;

use crate::Failure;
use crate::config::Config;
use crate::exit::Exit;
use crate::serve::{self, SERVER_STOP};
use crate::signals::Asked;

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

    /// The address to listen on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.resolved
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

/// Why a node ends.
pub(crate) enum End {
    /// A signal asked for it.
    Asked,
    /// A disk of the node has failed.
    DiskFailed(String),
    /// One of the node's own threads has died.
    Broken(String),
    /// The cluster refuses the node as it is.
    Refused(Failure),
    /// A directory of the node is not what its path names any more.
    Displaced(Displaced),
}

impl End {
    /// The reason that a stopped journal gives for the end.
    pub(crate) fn of_journal(journal: &journal::Journal) -> Option<Self> {
        let reason = journal.poisoned()?;
        tracing::error!("the journal has stopped: {reason}");
        Some(if reason == journal::WRITER_DIED { Self::Broken(reason) } else { Self::DiskFailed(reason) })
    }

    /// Whether the path of a directory still names it.
    pub(crate) fn of_directory(watch: &DirWatch) -> Option<Self> {
        let displaced = watch.look().err()?;
        tracing::error!("{displaced}");
        Some(Self::Displaced(displaced))
    }

    /// The exit code if the stop hangs.
    pub(crate) fn late(&self) -> Exit {
        match self {
            Self::Asked => Exit::Unclean,
            Self::DiskFailed(_) => Exit::DiskFailed,
            Self::Broken(_) => Exit::Broken,
            Self::Refused(failure) => failure.exit,
            Self::Displaced(_) => Exit::DataDirectory,
        }
    }

    /// Ends the run after everything has stopped; `close` closes the stores and indexes.
    pub(crate) fn finish(
        self,
        data: &std::path::Path,
        close: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<Exit, Failure> {
        match self {
            Self::Asked => {
                close().map_err(|failure| {
                    failure.while_doing(
                        "the clean stop did not work; nothing acknowledged is lost, the next start recovers",
                    )
                })?;
                tracing::info!("stopped cleanly");
                Ok(Exit::Done)
            }
            Self::Displaced(displaced) => {
                // What was opened still works, so the stop is a clean one.
                if let Err(error) = close() {
                    tracing::warn!("the stop was not clean, the next start recovers: {error}");
                }
                Err(serve::stopped_displaced(displaced))
            }
            Self::Refused(failure) => {
                // Closing is best effort here: the reason for the end matters more.
                if let Err(error) = close() {
                    tracing::warn!("the stop was not clean, the next start recovers: {error}");
                }
                Err(failure)
            }
            Self::DiskFailed(reason) => Err(Failure::message(
                Exit::DiskFailed,
                format!(
                    "stopped, because a disk of {} failed: {reason}. What was acknowledged as durable is there; look at the disk, then start again",
                    data.display()
                ),
            )),
            Self::Broken(what) => Err(Failure::message(
                Exit::Broken,
                format!(
                    "stopped, because {what}: a bug of weir, please report it with the log. What was acknowledged as durable is there; start again"
                ),
            )),
        }
    }
}

/// Waits until something ends the node. Calls `reload` to read the configuration again, `soon` several times a second, `watch` once a
/// second.
pub(crate) fn wait(
    asked: &Signals<Asked>,
    mut reload: impl FnMut(),
    mut soon: impl FnMut() -> Option<End>,
    mut watch: impl FnMut() -> Option<End>,
) -> End {
    let mut watched = Instant::now();
    loop {
        match asked.recv_timeout(LOOK) {
            Ok(Asked::Reload) => reload(),
            Ok(Asked::Stop(signal)) => {
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
    /// Stops the role, before its stores and indexes close.
    pub(crate) fn stop(self) {
        let left = self.server.stop(Instant::now() + SERVER_STOP);
        if left.connections_cut > 0 {
            tracing::warn!("{} connections were not done in time and were cut", left.connections_cut);
        }
        (self.stop_node)();
    }

    /// Whether a thread of the front end has died.
    pub(crate) fn broken(&self) -> Option<End> {
        self.server.broken().map(|name| End::Broken(format!("the {name} has died by a panic")))
    }
}

/// Prints the ready line, the only line on stdout.
pub(crate) fn say_ready(started: &RunningRole) -> Result<(), Failure> {
    serve::say_ready(&format!("root://{}/", started.server.address()))
}

/// The failure in words that name the data directory as people know it, where the code used the path of the open directory.
pub(crate) fn in_words(data: &DataDir, failure: &Failure) -> Failure {
    Failure::message(failure.exit, data.directory().in_words(&failure.to_string()))
}

/// Writes the node's identity into its open data directory.
pub(crate) fn keep_identity(data: &DataDir, file: &'static str) -> Box<Keep> {
    let directory = Arc::clone(data.directory());
    Box::new(move |identity| {
        let written = identity.write(&directory.held().join(file));
        written.map_err(|error| directory.in_words(&error.to_string()))
    })
}

/// The time of day.
pub(crate) fn now() -> Timestamp {
    serve::now()
}
