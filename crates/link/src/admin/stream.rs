//! A connection of an administrator: bytes over TLS, in both directions, which are not read here.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use crate::admin::{AdminIdentity, AdminName, TrustedCluster};
use crate::channel::{self, Channel, Deadline, SplitChannel};
use crate::credentials::{self, CERTIFICATE_PROTOCOL, TOKEN_PROTOCOL};
use crate::error::{CloseCause, LinkError};
use crate::verify::name_of;
use crate::{AuthoritySet, Fingerprint, Role, Settings, ShownChain, UnidentifiedConnection};

/// How long the other side may take nothing of what is sent to it.
const TAKE_TIME: Duration = Duration::from_secs(60);
/// How long to wait at the end for the other side to have read everything.
const END_TIME: Duration = Duration::from_secs(2);

/// A manager's side of administrators' connections.
pub trait AdminHandler: Send + Sync {
    /// Serves a connection in the caller's thread. Its certificate is valid; whether its administrator may still act
    /// is for the handler to decide. Until the handler drops `stranger`, the connection counts among those that have
    /// not identified themselves: it keeps that until it has decided and counts the connection itself, or has ended it.
    fn serve(&self, who: AdminName, stream: AdminStream, stranger: UnidentifiedConnection);

    /// Serves a connection of somebody who will show a token on it. Nothing is known about them yet. `stranger`: as above.
    fn serve_with_token(&self, stream: AdminStream, stranger: UnidentifiedConnection);

    /// Serves a connection of somebody who will show certificates on it that are not of the cluster, and sign [`AdminStream::binding`] with the key of
    /// the first one. Nothing is known about them yet. `stranger`: as above.
    fn serve_with_certificate(&self, stream: AdminStream, stranger: UnidentifiedConnection);
}

/// A connection with an administrator, or of one with a manager. Reads and writes block, each up to a time limit.
pub struct AdminStream {
    halves: SplitChannel,
    address: SocketAddr,
    shown: Option<Arc<ShownChain>>,
    read_time: ReadTime,
}

#[derive(Clone, Copy)]
enum ReadTime {
    /// For each read.
    Each(Duration),
    /// For all reads together.
    Until(Deadline),
}

/// Ends a connection from another thread.
#[derive(Clone)]
pub struct StreamCutter {
    channel: Arc<Channel>,
    address: SocketAddr,
    shown: Option<Arc<ShownChain>>,
}

impl StreamCutter {
    /// The address of the other side.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends both directions at once.
    pub fn cut(&self) {
        self.channel.cut();
    }

    /// Whether a node that trusts `authorities` would let the other side in with the certificate that it has shown. Also true if it has shown none.
    #[must_use]
    pub fn is_trusted_by(&self, authorities: &AuthoritySet) -> bool {
        self.shown.as_ref().is_none_or(|shown| shown.is_trusted_by(authorities))
    }
}

impl fmt::Debug for StreamCutter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamCutter(..)")
    }
}

impl fmt::Debug for AdminStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AdminStream(with {})", self.address)
    }
}

impl AdminStream {
    pub(crate) fn new(
        mut halves: SplitChannel,
        address: SocketAddr,
        shown: Option<Arc<ShownChain>>,
        read_time: Duration,
    ) -> Self {
        halves.writing.set_patience(TAKE_TIME);
        Self { halves, address, shown, read_time: ReadTime::Each(read_time) }
    }

    /// At the client: the authority that has signed the manager's certificate. It is another one than the client knows if the cluster is replacing its
    /// authority: then the one that the client knows vouches for it.
    #[must_use]
    pub fn authority(&self) -> Option<Fingerprint> {
        self.shown.as_ref().and_then(|shown| shown.signer())
    }

    /// What the other side has shown, if it has a certificate of the cluster.
    #[must_use]
    pub fn shown(&self) -> Option<Arc<ShownChain>> {
        self.shown.clone()
    }

    /// The address of the other side.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A value that both ends of this connection know, and nobody else: what is signed with it counts on this connection only.
    ///
    /// # Errors
    /// The connection has failed.
    pub fn binding(&self) -> io::Result<[u8; 32]> {
        self.halves.channel.binding().map_err(failed)
    }

    /// A handle that ends the connection.
    #[must_use]
    pub fn cutter(&self) -> StreamCutter {
        StreamCutter { channel: Arc::clone(&self.halves.channel), address: self.address, shown: self.shown.clone() }
    }

    /// Allows `time` for all further reads together.
    pub fn read_within(&mut self, time: Duration) {
        self.read_time = ReadTime::Until(Deadline::new("sending a request", time));
    }

    /// Ends the connection properly: the other side sees that nothing is missing.
    pub fn end(mut self) {
        self.halves.writing.end();
        self.halves.reading.discard(END_TIME);
    }
}

fn failed(why: CloseCause) -> io::Error {
    let kind = match &why {
        CloseCause::Slow { .. } => io::ErrorKind::TimedOut,
        CloseCause::BrokenOff => io::ErrorKind::UnexpectedEof,
        CloseCause::Certificate(_) | CloseCause::OurCertificate(_) => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, why.to_string())
}

impl Read for AdminStream {
    /// Returns 0 only at the proper end of the stream. A connection that breaks off is an error.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let deadline = match self.read_time {
            ReadTime::Each(time) => Deadline::new("an answer", time),
            ReadTime::Until(deadline) => deadline,
        };
        self.halves.reading.read_some(bytes, deadline).map_err(failed)
    }
}

impl Write for AdminStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.halves.writing.send(&[bytes]).map_err(failed)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Connects to the manager at `address` (`host:port`) as `identity`. An answer may take up to `read_time` before its
/// next byte.
///
/// # Errors
/// Nobody answers there, or it is not a manager of this cluster.
pub fn connect_admin(
    identity: &AdminIdentity,
    address: &str,
    settings: &Settings,
    read_time: Duration,
) -> Result<AdminStream, LinkError> {
    let connect = || {
        let config = identity.client().map_err(|error| CloseCause::ClosedHere(error.to_string()))?;
        connect_by(address, config, settings, read_time)
    };
    connect().map_err(|why: CloseCause| why.with(address))
}

/// Connects to the manager at `address` (`host:port`) of this cluster, to show a token. On return, the other side has shown that it is a manager of the
/// cluster: only then may it see the token.
///
/// # Errors
/// Nobody answers there, or it is not a manager of this cluster.
pub fn connect_with_token(
    cluster: &TrustedCluster,
    address: &str,
    settings: &Settings,
    read_time: Duration,
) -> Result<AdminStream, LinkError> {
    connect_unknown(cluster, address, TOKEN_PROTOCOL, settings, read_time)
}

/// Connects to the manager at `address` (`host:port`) of this cluster, to show certificates that are not of the cluster. On return, the other side has
/// shown that it is a manager of the cluster.
///
/// # Errors
/// Nobody answers there, or it is not a manager of this cluster.
pub fn connect_with_certificate(
    cluster: &TrustedCluster,
    address: &str,
    settings: &Settings,
    read_time: Duration,
) -> Result<AdminStream, LinkError> {
    connect_unknown(cluster, address, CERTIFICATE_PROTOCOL, settings, read_time)
}

/// Connects by `protocol` without a certificate.
fn connect_unknown(
    cluster: &TrustedCluster,
    address: &str,
    protocol: &[u8],
    settings: &Settings,
    read_time: Duration,
) -> Result<AdminStream, LinkError> {
    let connect = || {
        let config = credentials::joining(cluster.authority, protocol).map_err(CloseCause::of_tls)?;
        connect_by(address, config, settings, read_time)
    };
    connect().map_err(|why: CloseCause| why.with(address))
}

fn connect_by(
    address: &str,
    config: Arc<rustls::ClientConfig>,
    settings: &Settings,
    read_time: Duration,
) -> Result<AdminStream, CloseCause> {
    let deadline = Deadline::new("connecting", settings.connect_time);
    let (socket, at) = dial(address, settings)?;
    let (halves, shown) = channel::connect(socket, config, deadline, settings.send_time)?;
    let name = shown.certificate.as_ref().and_then(name_of).ok_or(CloseCause::NoCertificate)?;
    if !name.roles.contain(Role::Manager) {
        return Err(CloseCause::Misbehaved(format!("is node {}, which is no manager", name.node)));
    }
    Ok(AdminStream::new(halves, at, shown.chain, read_time))
}

/// Connects to the first address of this name that answers.
pub(crate) fn dial(address: &str, settings: &Settings) -> Result<(TcpStream, SocketAddr), CloseCause> {
    let mut refused = CloseCause::Connect(io::Error::other("its name has no address"));
    for address in address.to_socket_addrs().map_err(CloseCause::Connect)? {
        match TcpStream::connect_timeout(&address, settings.connect_time) {
            Ok(socket) => return Ok((socket, address)),
            Err(error) => refused = CloseCause::Connect(error),
        }
    }
    Err(refused)
}
