//! The configuration of the front end: address, limits per connection, and timeouts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use authentication::Authenticator;
use service::Principal;
use tls::{ServerCertificate, TlsRequired};
use types::BootId;

/// Everything that [`crate::Server::start`] needs besides the parts below the service.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The address to listen on; port 0 picks a free one.
    pub listen: SocketAddr,
    /// Finds out who clients are; `None`: they need not show it, and act as `principal`.
    pub authenticator: Option<Arc<Authenticator>>,
    /// The principal of clients that need not show who they are; by default the administrator.
    pub principal: Principal,
    /// The name of the site (`query config sitename`).
    pub site: String,
    /// TLS; `None`: the server has no certificate.
    pub tls: Option<TlsConfig>,
    /// Limits.
    pub limits: Limits,
    /// Timeouts.
    pub times: Times,
    /// The configuration of the service.
    pub service: service::Config,
}

impl ServerConfig {
    /// The defaults, listening on `listen`. For `boot` see [`service::Config::boot`].
    #[must_use]
    pub fn new(listen: SocketAddr, boot: BootId) -> Self {
        Self {
            listen,
            authenticator: None,
            principal: Principal::admin(),
            site: "weir".into(),
            tls: None,
            limits: Limits::default(),
            times: Times::default(),
            service: service::Config::new(boot),
        }
    }
}

/// TLS with clients. Any client may use it. What requires it, is refused without it.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    /// What the server shows.
    pub certificate: Arc<ServerCertificate>,
    /// What requires it.
    pub required: TlsRequired,
}

/// Limits on what clients can make the front end hold.
///
/// One connection costs at most:
/// - its thread's stack: 256 KiB of address space, of which about 20 KiB are touched
/// - [`INPUT_BYTES`] of input
/// - with TLS, 64 KiB of encrypted input, and the state of the encryption
/// - 64 KiB for the arguments of one request
/// - `pending_bytes_max` of answers that the client does not take, plus those of the requests in progress
/// - its open files, and one transfer buffer while data moves (see [`service::Limits`])
#[derive(Clone, Debug)]
pub struct Limits {
    /// Concurrent connections. A further one gets an error and is closed. One machine gets no more than it leaves for
    /// the others: half of them if it is alone.
    pub connections_max: usize,
    /// Requests of one connection that other threads are handling. While there are more, it reads no further request.
    pub requests_in_flight_max: usize,
    /// Bytes of queued answers of one connection before its thread stops to send them.
    pub pending_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections_max: 4096, requests_in_flight_max: 256, pending_bytes_max: 256 << 10 }
    }
}

/// The size of a connection's input buffer, in bytes.
pub const INPUT_BYTES: usize = 16 << 10;

/// The minimum of data that a client must send within [`Times::frame`], or take within [`Times::send`], while data is
/// moving.
pub const PACE_BYTES: usize = 32 << 10;

/// Timeouts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// A request must arrive completely within this time. For data to write, [`PACE_BYTES`] must arrive in it.
    pub frame: Duration,
    /// A client that takes less than [`PACE_BYTES`] of its answers in this time is disconnected.
    pub send: Duration,
    /// A connection without a login after this time is closed. After the login it may be idle for ever.
    pub login: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self { frame: Duration::from_secs(30), send: Duration::from_secs(60), login: Duration::from_secs(30) }
    }
}
