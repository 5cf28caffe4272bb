//! What the front end is told when it starts: where to listen, how much a connection may use, how long it waits.

use std::net::SocketAddr;
use std::time::Duration;

use service::Principal;
use types::BootId;

/// Everything [`crate::Server::start`] needs besides what the service stands on.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where to listen; port 0 picks a free one.
    pub listen: SocketAddr,
    /// Whom clients act as, as long as nobody is asked to prove anything: the administrator by default.
    pub principal: Principal,
    /// What the site calls itself (`query config sitename`).
    pub site: String,
    /// Bounds.
    pub limits: Limits,
    /// Time-outs.
    pub times: Times,
    /// What the service behind it is told.
    pub service: service::Config,
}

impl ServerConfig {
    /// The defaults, listening on `listen`; `boot`: see [`service::Config::boot`].
    #[must_use]
    pub fn new(listen: SocketAddr, boot: BootId) -> Self {
        Self {
            listen,
            principal: Principal::admin(),
            site: "weir".into(),
            limits: Limits::default(),
            times: Times::default(),
            service: service::Config::new(boot),
        }
    }
}

/// Bounds on what clients can make the front end hold.
///
/// One connection costs at most: its thread's stack (256 KiB of address space, about 20 KiB touched), [`INPUT_BYTES`]
/// of input, 64 KiB for one request's arguments while it is worked on, `pending_bytes_max` of answers that the client
/// does not take plus those of the requests under way, its open files, and one transfer buffer while data moves (see [`service::Limits`]).
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at a time. One more is told so and closed. One machine gets no more than are left after it for the
    /// others: half of these if it is alone.
    pub connections_max: usize,
    /// Requests of one connection handed on and not answered yet; the next waits in the socket.
    pub requests_in_flight_max: usize,
    /// Answers queued for one connection before its thread stops to send them.
    pub pending_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections_max: 4096, requests_in_flight_max: 256, pending_bytes_max: 256 << 10 }
    }
}

/// Bytes of a connection's input buffer.
pub const INPUT_BYTES: usize = 16 << 10;

/// The least that a client has to send, or to take, of data under way within [`Times::frame`] or [`Times::send`].
pub const PACE_BYTES: usize = 32 << 10;

/// Time-outs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// A request that has begun to arrive must be whole after this time; of bytes to be written [`PACE_BYTES`] must come in it.
    pub frame: Duration,
    /// A client that takes less than [`PACE_BYTES`] of what is sent to it in this time is cut off.
    pub send: Duration,
    /// A connection that has not logged in after this time is cut off. Afterwards it may be idle for ever.
    pub login: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self { frame: Duration::from_secs(30), send: Duration::from_secs(60), login: Duration::from_secs(30) }
    }
}
