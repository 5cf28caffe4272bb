//! Third-party copies: a client asks two servers, and one fetches a file from the other.
//!
//! The protocol is that of the stock client:
//! - The client opens the target with `tpc.key`, `tpc.src` and `tpc.lfn`. Its first sync there starts the copy.
//! - The client opens the source with the same key and `tpc.dst`, which lets that host read the file.
//! - The target opens the source with the key and `tpc.org`, which names the client.
//! - The client's second sync on the target is answered when the copy is done.
//!
//! With a delegated proxy (`tpc.dlgon=1`) the target logs in at the source as the client, and needs no key. Then the client does not
//! open the source.
//!
//! The client sees the progress in the length of the target. A query `ofs.tpc cancel`, an early close or a lost
//! connection stops the copy.
//!
//! The target is an upload like any other: it is not visible before the client has closed it.

mod pull;
mod rendezvous;

pub(crate) use pull::{PullJob, Pulls};
pub(crate) use rendezvous::{Grant, OpenRequest, Registration, Rendezvous, addresses_of};

use std::net::IpAddr;
use std::sync::Arc;

use identity::DelegatedProxy;
use types::Timestamp;

use crate::figures::Counters;
use crate::settings::Settings;
use crate::transfers::Transfers;

/// The third-party copies of a node, in both roles.
pub(crate) struct ThirdParty {
    pub(crate) rendezvous: Arc<Rendezvous>,
    pub(crate) pulls: Pulls,
    transfers: Arc<Transfers>,
    counters: Arc<Counters>,
}

impl ThirdParty {
    /// Fetches as `settings` say, in slots of `transfers`, and counts bytes in `counters`.
    pub(crate) fn new(settings: &Settings, transfers: Arc<Transfers>, counters: Arc<Counters>) -> Arc<Self> {
        let with = settings.config.pull.as_ref().map(|fetcher| Arc::clone(&fetcher.0));
        let pulls = Pulls::new(with, settings.config.limits.pulls_max);
        Arc::new(Self { rendezvous: Arc::default(), pulls, transfers, counters })
    }
}

/// Fetches files from other servers.
pub trait Pull: Send + Sync {
    /// Fetches a whole file into `into` and compares its checksum with that of the source. Once `cancelled` is true,
    /// it must give up within seconds, whatever the source does.
    ///
    /// # Errors
    /// The reason, as a text for the client.
    fn pull(&self, source: &PullSource, cancelled: Cancelled, into: &mut dyn PullSink) -> Result<(), String>;

    /// Checks that files may be fetched from this server (`host`, `host:port` or `user@host:port`).
    ///
    /// # Errors
    /// The reason, as a text for the client.
    fn may_fetch_from(&self, server: &str) -> Result<(), String>;
}

/// Whether a copy must stop: its client has cancelled it or is gone, or the server is stopping.
pub type Cancelled = Arc<dyn Fn() -> bool + Send + Sync>;

/// The source of a copy.
#[derive(Clone, PartialEq, Eq)]
pub struct PullSource {
    /// `host`, `host:port` or `user@host:port`.
    pub server: String,
    /// Whether the connection to it must be encrypted.
    pub tls: bool,
    /// The path on that server.
    pub path: String,
    /// What lets this server read the file there.
    pub leave: PullLeave,
    /// The client, as `user.pid`.
    pub origin: String,
    /// The client's address.
    pub client: IpAddr,
    /// The length that the client has announced, in bytes.
    pub expected_len: Option<u64>,
}

/// What lets a server read the source of a copy. It is a secret.
#[derive(Clone, PartialEq, Eq)]
pub enum PullLeave {
    /// The key that the client has given to both servers.
    Key(String),
    /// The proxy that the client has delegated. The server reads the file as the client.
    Proxy(DelegatedProxy),
}

impl PullLeave {
    /// Checks that it still counts. A client opens the target at one time, and starts the copy at another.
    fn check(&self, now: Timestamp) -> Result<(), String> {
        match self {
            Self::Proxy(proxy) if proxy.expires() <= now => {
                Err("the proxy that the client has delegated has ended".to_owned())
            }
            Self::Key(_) | Self::Proxy(_) => Ok(()),
        }
    }
}

/// The destination of fetched bytes.
pub trait PullSink {
    /// Takes bytes at an offset, in any order.
    ///
    /// # Errors
    /// The copy cannot continue.
    fn put(&mut self, offset: u64, data: &[u8]) -> Result<(), String>;
}

/// The role of an open in a third-party copy.
#[derive(Clone, PartialEq, Eq, Default)]
pub enum Part {
    /// None.
    #[default]
    None,
    /// The client allows the host `dst` to read this file.
    Source {
        /// The key that the client has given to both servers. It is a secret.
        key: Vec<u8>,
        /// The host that may read the file.
        dst: String,
    },
    /// Another server reads this file on behalf of `origin`.
    Fetch {
        /// See `Source`.
        key: Vec<u8>,
        /// The client, as `user.pid@host`.
        origin: Vec<u8>,
    },
    /// This server fetches the file from another one.
    Target {
        /// See `Source`.
        key: String,
        /// `host`, `host:port` or `user@host:port`.
        server: String,
        /// Whether the connection to it must be encrypted.
        tls: bool,
        /// The path on that server; `None`: the same path.
        path: Option<String>,
        /// The client wants its delegated proxy to be used, at this server: where it has begun, before any redirect.
        delegates: Option<String>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_that_has_ended_since_the_open_is_not_used() {
        let proxy = DelegatedProxy::new("x".to_owned().into(), Timestamp::from_secs(7));
        let (proxy, key) = (PullLeave::Proxy(proxy), PullLeave::Key("k".into()));
        assert!(proxy.check(Timestamp::from_secs(6)).is_ok() && key.check(Timestamp::from_secs(8)).is_ok());
        let why = proxy.check(Timestamp::from_secs(7)).unwrap_err();
        assert!(why.contains("has ended"), "{why}");
    }
}
