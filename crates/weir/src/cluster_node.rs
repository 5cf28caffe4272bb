//! What managers and disk servers of a cluster have in common: their address for nodes, their name, how they wait and end.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Signals, RecvTimeoutError};
use std::time::{Duration, Instant};

use link::Listener;
use node::links::Receiver;
use types::Timestamp;
use xrootd::Server;

use crate::Failure;
use crate::config::Config;
use crate::exit::Exit;
use crate::serve::{self, SERVER_STOP};
use crate::signals::Asked;

/// How often a node looks at what it stands on.
const WATCH: Duration = Duration::from_secs(1);
/// How often it looks whether something has happened that ends it.
const LOOK: Duration = Duration::from_millis(100);
/// How long the ends of connections are waited for.
pub(crate) const LINKS_STOP: Duration = Duration::from_secs(3);

/// The address for nodes, as it is listened on and as others are told.
pub(crate) struct NodesAddress {
    given: String,
    resolved: SocketAddr,
}

impl NodesAddress {
    /// What the configuration says. Whoever connects there has to have a certificate of the cluster, so it need not be loopback.
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

    /// Listens there.
    pub(crate) fn listen(&self) -> Result<Arc<Listener>, Failure> {
        Listener::bind(self.resolved).map_err(|error| {
            let what =
                format!("cannot listen for nodes on {}; is another node there? Port 0 picks a free one", self.given);
            Failure::new(Exit::Listen, error).while_doing(what)
        })
    }

    /// As others are told: the name that was given, the port that it really is.
    pub(crate) fn told(&self, listener: &Listener) -> String {
        let host = self.given.rsplit_once(':').map_or(self.given.as_str(), |(host, _)| host);
        format!("{host}:{}", listener.address().port())
    }
}

/// How people call this machine.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name.trim().chars().take(64).collect();
    if name.is_empty() { "unnamed".into() } else { name }
}

/// Why a node ends.
pub(crate) enum End {
    /// It was asked to.
    Asked,
    /// The disk below it has failed.
    DiskFailed(String),
    /// One of its own threads has died.
    Broken(String),
    /// The cluster does not want it as it is.
    Refused(Failure),
}

impl End {
    /// What a log that has stopped means.
    pub(crate) fn of_journal(journal: &journal::Journal) -> Option<Self> {
        let reason = journal.poisoned()?;
        tracing::error!("the journal has stopped: {reason}");
        Some(if reason == journal::WRITER_DIED { Self::Broken(reason) } else { Self::DiskFailed(reason) })
    }

    /// The code of a stop that hangs.
    pub(crate) fn late(&self) -> Exit {
        match self {
            Self::Asked => Exit::Unclean,
            Self::DiskFailed(_) => Exit::DiskFailed,
            Self::Broken(_) => Exit::Broken,
            Self::Refused(failure) => failure.exit,
        }
    }

    /// How the run ends, once all is stopped; `close` closes what it stands on.
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
            Self::Refused(failure) => {
                // What is open is closed as far as it goes; why the node ends is what counts.
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

/// Waits until the node is to end. `reload` is called when the configuration is to be read again, `soon` some times a second, `watch` once a second.
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

/// A role, running.
pub(crate) struct Started {
    /// Who is told what comes from other nodes.
    pub(crate) receiver: Arc<dyn Receiver>,
    /// Its front door.
    pub(crate) server: Server,
    /// Ends what is behind that.
    pub(crate) stop_node: Box<dyn FnOnce()>,
}

impl Started {
    /// Ends it, before what it stands on is closed.
    pub(crate) fn stop(self) {
        let left = self.server.stop(Instant::now() + SERVER_STOP);
        if left.connections_cut > 0 {
            tracing::warn!("{} connections were not done in time and were cut", left.connections_cut);
        }
        (self.stop_node)();
    }

    /// A thread of the front door has died.
    pub(crate) fn broken(&self) -> Option<End> {
        self.server.broken().map(|name| End::Broken(format!("the {name} has died by a panic")))
    }
}

/// The one line on stdout.
pub(crate) fn say_ready(started: &Started) -> Result<(), Failure> {
    serve::say_ready(&format!("root://{}/", started.server.address()))
}

/// The time of day.
pub(crate) fn now() -> Timestamp {
    serve::now()
}
