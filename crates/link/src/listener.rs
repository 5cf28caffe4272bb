//! Accepts connections from nodes, and from machines that want to join.

use std::io;
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::admin::{self, AdminName, AdminService, AdminStream};
use crate::channel::{self, Deadline};
use crate::connection::{Handler, LocalNode, Ready, greet};
use crate::credentials::{ADMIN_PROTOCOL, CERTIFICATE_PROTOCOL, INVITE_PROTOCOL, JOIN_PROTOCOL, TOKEN_PROTOCOL};
use crate::error::{CloseCause, LinkError};
use crate::hello::Expect;
use crate::join::{self, JoinService};
use crate::verify::admin_name_of;

/// Limits on connections that have not identified themselves, in total and from one host. Beyond a limit, the oldest
/// one whose time is up is closed; otherwise the new one is closed at once. Strangers can delay nodes for moments, but
/// they cannot use up memory or harm existing connections.
const STRANGERS_MAX: usize = 64;
const STRANGERS_OF_HOST_MAX: usize = 16;
/// An honest peer has identified itself by now, unless this machine or the network is slow.
const STRANGER_TIME: Duration = Duration::from_secs(1);
/// Address space of a connection's stack. Untouched parts cost nothing.
const STACK_BYTES: usize = 512 << 10;
/// Log lines about failed connections in one [`WINDOW`].
const LINES_MAX: u32 = 20;
const WINDOW: Duration = Duration::from_secs(10);

/// What a listener serves besides the links of nodes. A manager serves both, a disk server none.
#[derive(Clone, Debug, Default)]
pub struct OtherServices {
    /// Lets nodes join.
    pub join: Option<Arc<JoinService>>,
    /// Serves administrators.
    pub admin: Option<Arc<AdminService>>,
}

/// The address at which peers reach a node.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    stopping: AtomicBool,
    strangers: Mutex<UnidentifiedConnections>,
    lines: Mutex<Lines>,
}

/// Limits log lines about strangers, so that they cannot fill the log.
#[derive(Debug)]
struct Lines {
    began: Instant,
    lines: u32,
    held_back: u64,
}

impl Lines {
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if now.saturating_duration_since(self.began) >= WINDOW {
            (self.began, self.lines) = (now, 0);
        }
        if self.lines >= LINES_MAX {
            self.held_back += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.held_back))
    }
}

impl Listener {
    /// Listens on `address`.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn bind(address: SocketAddr) -> io::Result<Arc<Self>> {
        let socket = TcpListener::bind(address)?;
        let address = socket.local_addr()?;
        Ok(Self::on(socket, address))
    }

    fn on(socket: TcpListener, address: SocketAddr) -> Arc<Self> {
        Arc::new(Self {
            address,
            socket,
            stopping: AtomicBool::new(false),
            strangers: Mutex::default(),
            lines: Mutex::new(Lines { began: Instant::now(), lines: 0, held_back: 0 }),
        })
    }

    /// The same address for another turn of serving, after [`Listener::stop`] or before: the socket stays, so connections that arrive in between wait.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn again(&self) -> io::Result<Arc<Self>> {
        Ok(Self::on(self.socket.try_clone()?, self.address))
    }

    /// The address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts connections in the caller's thread until [`Listener::stop`]. Each gets its own thread, with `handler`.
    /// `others` are also served here.
    pub fn serve<H: Handler + 'static>(self: &Arc<Self>, us: &LocalNode, handler: &Arc<H>, others: &OtherServices) {
        loop {
            let accepted = self.socket.accept();
            if self.stopping.load(Ordering::Acquire) {
                return;
            }
            let (socket, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Most likely out of file descriptors: others must close some first.
                    if let Some(held_back) = self.lines.lock().admit(Instant::now()) {
                        tracing::error!(%error, held_back, "cannot accept connections of nodes");
                    }
                    std::thread::sleep(Duration::from_millis(50));
                    continue;
                }
            };
            let Some(stranger) = UnidentifiedConnection::new(self, address.ip(), &socket, Instant::now()) else {
                self.complain(
                    &CloseCause::ClosedHere("too many connections have not authenticated yet".into()).with(address),
                );
                continue;
            };
            let (us, handler, others) = (us.clone(), Arc::clone(handler), others.clone());
            let serve = move || {
                let listener = Arc::clone(&stranger.listener);
                match begin(&us, &*handler, &others, socket, address) {
                    Ok(Begun::Node(ready)) => {
                        drop(stranger);
                        // The handler and the log already know of the end.
                        let _ = ready.run(&*handler);
                    }
                    // Its certificate is valid, but it may be that of somebody who may not act any more: the handler finds out.
                    Ok(Begun::Administrator(who, stream, service)) => service.handler.serve(who, stream, stranger),
                    Ok(Begun::WithToken(stream, service)) => service.handler.serve_with_token(stream, stranger),
                    Ok(Begun::WithCertificate(stream, service)) => {
                        service.handler.serve_with_certificate(stream, stranger);
                    }
                    Ok(Begun::Nothing) => {}
                    Err(why) => listener.complain(&why.with(address)),
                }
            };
            let thread = std::thread::Builder::new().name("node".into()).stack_size(STACK_BYTES);
            if let Err(error) = thread.spawn(serve) {
                tracing::error!(%address, %error, "cannot serve a connection of a node");
            }
        }
    }

    /// How many connections have not identified themselves yet.
    #[must_use]
    pub fn unidentified(&self) -> usize {
        self.strangers.lock().there.len()
    }

    /// Stops accepting. Existing connections continue until their handles are closed.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        let mut own = self.address;
        if own.ip().is_unspecified() {
            own.set_ip(if own.is_ipv4() {
                IpAddr::from([127, 0, 0, 1])
            } else {
                IpAddr::from([0u16, 0, 0, 0, 0, 0, 0, 1])
            });
        }
        // Wakes the accepting thread, which checks the mark.
        let _ = TcpStream::connect_timeout(&own, Duration::from_secs(1));
    }

    fn complain(&self, error: &LinkError) {
        if let Some(held_back) = self.lines.lock().admit(Instant::now()) {
            match error.why {
                // A rule of this node, as for a node that the manager has not announced yet. The other side is told.
                CloseCause::ClosedHere(_) => {
                    tracing::info!(peer = error.peer, reason = %error.why, held_back, "a connection to this node did not come about");
                }
                _ => {
                    tracing::warn!(peer = error.peer, reason = %error.why, held_back, "a connection to this node did not come about");
                }
            }
        }
    }
}

/// What follows the beginning of a connection.
enum Begun<B> {
    /// Messages of a node.
    Node(Ready<B>),
    /// A request of an administrator.
    Administrator(AdminName, AdminStream, Arc<AdminService>),
    /// A request of somebody who shows a token with it.
    WithToken(AdminStream, Arc<AdminService>),
    /// A request of somebody who shows certificates with it that are not of the cluster.
    WithCertificate(AdminStream, Arc<AdminService>),
    /// Nothing remains to be done.
    Nothing,
}

/// Performs the TLS handshake, then the hello, the join, or the redeeming of an invitation.
fn begin<H: Handler>(
    us: &LocalNode,
    handler: &H,
    others: &OtherServices,
    socket: TcpStream,
    address: SocketAddr,
) -> Result<Begun<H::Buffer>, CloseCause> {
    let deadline = Deadline::new("connecting", us.settings.connect_time);
    let current = us.credentials.current();
    let (halves, shown) = channel::accept(socket, Arc::clone(&current.server), deadline, us.settings.send_time)?;
    let administrators = || {
        let service = others.admin.as_ref();
        service.ok_or_else(|| CloseCause::ClosedHere("an administrator came, and only managers serve them".into()))
    };
    match shown.protocol.as_deref() {
        Some(JOIN_PROTOCOL) => {
            let Some(service) = &others.join else {
                return Err(CloseCause::ClosedHere("it wants to join, and only managers let nodes join".into()));
            };
            join::serve(service, halves, address, deadline)?;
            Ok(Begun::Nothing)
        }
        Some(INVITE_PROTOCOL) => {
            admin::serve_redeem(administrators()?, halves, address, deadline)?;
            Ok(Begun::Nothing)
        }
        Some(ADMIN_PROTOCOL) => {
            // A node's certificate is not an administrator's.
            let who = shown.certificate.as_ref().and_then(admin_name_of).ok_or(CloseCause::NotAnAdministrator)?;
            let stream = AdminStream::new(halves, address, shown.chain, us.settings.frame_time);
            Ok(Begun::Administrator(who, stream, Arc::clone(administrators()?)))
        }
        Some(TOKEN_PROTOCOL) => {
            let stream = AdminStream::new(halves, address, shown.chain, us.settings.frame_time);
            Ok(Begun::WithToken(stream, Arc::clone(administrators()?)))
        }
        Some(CERTIFICATE_PROTOCOL) => {
            let stream = AdminStream::new(halves, address, shown.chain, us.settings.frame_time);
            Ok(Begun::WithCertificate(stream, Arc::clone(administrators()?)))
        }
        _ => {
            let admit = |peer: &_| handler.admit(peer);
            let ready = greet(us, current.name, halves, &shown, address, Expect::default(), deadline, &admit)?;
            Ok(Begun::Node(ready))
        }
    }
}

/// A host, as far as its address tells. An IPv6 host can use any address of a 64-bit network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Host(IpAddr);

impl Host {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => Self(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into()),
            address @ IpAddr::V4(_) => Self(address),
        }
    }
}

/// Connections that have not identified themselves, oldest first.
#[derive(Debug, Default)]
struct UnidentifiedConnections {
    counted: u64,
    there: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    host: Host,
    since: Instant,
    /// The socket with which to close it; `None` if the kernel could not duplicate it.
    socket: Option<TcpStream>,
}

impl UnidentifiedConnections {
    /// Makes room for one more connection. Without room, closes the oldest one whose time is up: one of the same host,
    /// if that has many.
    fn has_room(&mut self, host: Host, now: Instant) -> bool {
        let of_host = self.there.iter().filter(|one| one.host == host).count();
        if of_host < STRANGERS_OF_HOST_MAX && self.there.len() < STRANGERS_MAX {
            return true;
        }
        let gives_way = |one: &Waiting| {
            (of_host < STRANGERS_OF_HOST_MAX || one.host == host)
                && now.saturating_duration_since(one.since) >= STRANGER_TIME
        };
        let Some(at) = self.there.iter().position(gives_way) else { return false };
        if let Some(socket) = self.there.remove(at).socket {
            // Its thread notices the end. A connection that has already ended needs nothing more.
            let _ = socket.shutdown(Shutdown::Both);
        }
        true
    }
}

/// Counts a connection among those of strangers until this is dropped: when it has identified itself, or has ended. There is only so much room for
/// strangers, and a newcomer may take the place of one who stays longer than it needs.
#[derive(Debug)]
pub struct UnidentifiedConnection {
    listener: Arc<Listener>,
    number: u64,
}

impl UnidentifiedConnection {
    /// Whether a line about this connection may stand in the log now, and then how many lines were held back before it. Strangers cannot fill the
    /// log: all of them have a number of lines together.
    #[must_use]
    pub fn may_be_logged(&self) -> Option<u64> {
        self.listener.lines.lock().admit(Instant::now())
    }

    fn new(listener: &Arc<Listener>, address: IpAddr, socket: &TcpStream, now: Instant) -> Option<Self> {
        let mut strangers = listener.strangers.lock();
        let host = Host::of(address);
        if !strangers.has_room(host, now) {
            return None;
        }
        strangers.counted += 1;
        let number = strangers.counted;
        strangers.there.push(Waiting { number, host, since: now, socket: socket.try_clone().ok() });
        drop(strangers);
        Some(Self { listener: Arc::clone(listener), number })
    }
}

impl Drop for UnidentifiedConnection {
    fn drop(&mut self) {
        self.listener.strangers.lock().there.retain(|one| one.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A listener, and both ends of a connection to it.
    fn listening() -> (Arc<Listener>, TcpStream, TcpStream) {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let far = TcpStream::connect(listener.address()).unwrap();
        let near = listener.socket.accept().unwrap().0;
        (listener, near, far)
    }

    #[test]
    fn strangers_are_limited_in_total_and_per_host() {
        let (listener, near, _far) = listening();
        let now = Instant::now();
        let of = |last: u8| UnidentifiedConnection::new(&listener, IpAddr::from([10, 0, 0, last]), &near, now);
        let first: Vec<_> = (0..100).filter_map(|_| of(1)).collect();
        assert_eq!(first.len(), STRANGERS_OF_HOST_MAX);
        let others: Vec<_> = (2..200).filter_map(of).collect();
        assert_eq!(first.len() + others.len(), STRANGERS_MAX);
        drop(first);
        assert!(of(1).is_some());
        drop(others);
        assert!(listener.strangers.lock().there.is_empty());
    }

    #[test]
    fn all_addresses_of_an_ipv6_network_count_as_one_host() {
        let (listener, near, _far) = listening();
        let now = Instant::now();
        let of = |site: u16, last: u16| {
            let address = Ipv6Addr::new(0x2001, 0xdb8, 0, site, last, last, last, last);
            UnidentifiedConnection::new(&listener, address.into(), &near, now)
        };
        let many: Vec<_> = (0..100).filter_map(|last| of(1, last)).collect();
        assert_eq!(many.len(), STRANGERS_OF_HOST_MAX);
        assert!(of(2, 1).is_some());
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(Host::of(mapped), Host::of(IpAddr::from([10, 0, 0, 1])));
        assert!(Host::of(mapped) != Host::of("::ffff:10.0.0.2".parse().unwrap()));
    }

    #[test]
    fn a_silent_stranger_is_closed_for_a_newcomer() {
        let (listener, near, far) = listening();
        let start = Instant::now();
        let new = |last: u8, after: Duration| {
            UnidentifiedConnection::new(&listener, IpAddr::from([10, 0, 0, last]), &near, start + after)
        };
        let soon = STRANGER_TIME / 2;
        let mut there: Vec<_> =
            (0..4).flat_map(|host| (0..16).map(move |_| host)).map(|host| new(host, soon)).collect();
        assert!(there.iter().all(Option::is_some) && new(9, STRANGER_TIME).is_none(), "they are about to show it");
        let later = soon + STRANGER_TIME;
        let mut word = [0; 1];
        far.set_nonblocking(true).unwrap();
        assert_eq!(std::io::Read::read(&mut &far, &mut word).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        // A member connects: the oldest connection is closed.
        let member = new(9, later);
        assert!(member.is_some());
        far.set_nonblocking(false).unwrap();
        assert_eq!(std::io::Read::read(&mut &far, &mut word).unwrap(), 0);
        // Another connection of a host with many replaces one of that host.
        assert!(new(3, later).is_some());
        let of = |last: u8| {
            let host = Host::of(IpAddr::from([10, 0, 0, last]));
            listener.strangers.lock().there.iter().filter(|one| one.host == host).count()
        };
        assert_eq!((of(0), of(1), of(9)), (15, 16, 1));
        there.clear();
        assert_eq!(listener.strangers.lock().there.len(), 1);
    }

    #[test]
    fn a_flood_of_failures_is_suppressed_and_counted() {
        let start = Instant::now();
        let mut lines = Lines { began: start, lines: 0, held_back: 0 };
        let admitted = (0..1000).filter(|_| lines.admit(start).is_some()).count();
        assert_eq!(admitted, LINES_MAX as usize);
        assert_eq!(lines.admit(start + WINDOW), Some(980));
        // Whoever serves a connection shares the lines with the listener.
        let (listener, near, _far) = listening();
        let one = UnidentifiedConnection::new(&listener, IpAddr::from([10, 0, 0, 1]), &near, start).unwrap();
        let admitted = (0..1000).filter(|_| one.may_be_logged().is_some()).count();
        assert!((LINES_MAX as usize..1000).contains(&admitted), "{admitted}");
        assert_eq!(listener.unidentified(), 1);
    }
}
