//! Third-party copies: one server fetches a file from another because a client asks both.
//!
//! As the stock client does it: it opens the target with `tpc.key`, `tpc.src` and `tpc.lfn`; the first sync there starts the copy;
//! it opens the source with the same key and `tpc.dst`, which lets that host in; the target opens the source with the key and
//! `tpc.org`, who the client is; the second sync on the target is answered when the copy is done. The client's own stat of the
//! target shows how far it is; `ofs.tpc cancel` by a query, a close before the end, or a lost connection stop it.
//!
//! The target is an upload like any other: nothing is visible before the client has closed it.

mod pull;
mod rendezvous;

pub(crate) use pull::{PullJob, Pulls};
pub(crate) use rendezvous::{Grant, OpenRequest, Registration, Rendezvous, addresses_of};

use std::net::IpAddr;
use std::sync::Arc;

use crate::figures::Counters;
use crate::settings::Settings;
use crate::transfers::Transfers;

/// The third-party copies of a node, on both sides.
pub(crate) struct ThirdParty {
    pub(crate) rendezvous: Arc<Rendezvous>,
    pub(crate) pulls: Pulls,
    transfers: Arc<Transfers>,
    counters: Arc<Counters>,
}

impl ThirdParty {
    /// Fetching as `settings` say, in slots of `transfers`, counted in `counters`.
    pub(crate) fn new(settings: &Settings, transfers: Arc<Transfers>, counters: Arc<Counters>) -> Arc<Self> {
        let with = settings.config.pull.as_ref().map(|fetcher| Arc::clone(&fetcher.0));
        let pulls = Pulls::new(with, settings.config.limits.pulls_max);
        Arc::new(Self { rendezvous: Arc::default(), pulls, transfers, counters })
    }
}

/// What fetches from other servers.
pub trait Pull: Send + Sync {
    /// Fetches a whole file into `into`, compares its checksum with the source's, and says how it went; the text of an
    /// error is for the client. Gives up within seconds once it is `cancelled`, whatever the source does or does not do.
    ///
    /// # Errors
    /// What went wrong, in words.
    fn pull(&self, source: &PullSource, cancelled: Cancelled, into: &mut dyn PullSink) -> Result<(), String>;

    /// May files be fetched from this server (`host`, `host:port` or `user@host:port`)?
    ///
    /// # Errors
    /// Why not, in words for the client.
    fn may_fetch_from(&self, server: &str) -> Result<(), String>;
}

/// Tells whether a copy has been stopped: by its client, by the client's going away, or because the server stops.
pub type Cancelled = Arc<dyn Fn() -> bool + Send + Sync>;

/// Where to fetch from.
#[derive(Clone, PartialEq, Eq)]
pub struct PullSource {
    /// `host`, `host:port` or `user@host:port`.
    pub server: String,
    /// The path there.
    pub path: String,
    /// The key that the client has agreed on with both. A secret.
    pub key: String,
    /// The client, as `user.pid`.
    pub origin: String,
    /// The client's address.
    pub client: IpAddr,
    /// The length that the client has announced, in bytes.
    pub expected_len: Option<u64>,
}

/// Where fetched bytes go.
pub trait PullSink {
    /// Takes bytes at an offset, in any order.
    ///
    /// # Errors
    /// Why not; there is no use in going on.
    fn put(&mut self, offset: u64, data: &[u8]) -> Result<(), String>;
}

/// What an open has to do with a third-party copy.
#[derive(Clone, PartialEq, Eq, Default)]
pub enum Part {
    /// Nothing.
    #[default]
    None,
    /// The client lets `dst` in as a reader of this file.
    Source {
        /// The key that the client has agreed on with both servers. A secret.
        key: Vec<u8>,
        /// The host that may read it.
        dst: String,
    },
    /// Another server asks for this file on behalf of `origin`.
    Fetch {
        /// See `Source`.
        key: Vec<u8>,
        /// The client, as `user.pid@host`.
        origin: Vec<u8>,
    },
    /// This file is to be fetched from there.
    Target {
        /// See `Source`.
        key: String,
        /// `host`, `host:port` or `user@host:port`.
        server: String,
        /// The path there; `None`: the same.
        path: Option<String>,
    },
}
