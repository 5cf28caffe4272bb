//! Makes a TCP connection. Unlike the standard library it can stop meanwhile, and neither the name's resolution nor
//! the connection outlasts the deadline.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{set_tcp_keepidle, set_tcp_keepintvl, set_tcp_user_timeout, socket_error};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::settings::TICK;
use crate::waiting::Waiting;
use crate::watch::WaitReason;
use crate::{ClientError, Endpoint};

/// The time for a server, or an address of its name, after which another one is tried.
const NEXT_AFTER: Duration = Duration::from_secs(3);
/// After this idle time the kernel probes a server that another one can replace.
const PROBE_AFTER: Duration = Duration::from_secs(5);
/// How long such a server may acknowledge nothing: neither what is sent to it, nor the probes.
const LOST_AFTER: Duration = Duration::from_secs(15);

/// Returns the time for one server or address, of the time for a connection. `has_next`: another one is tried after it.
pub(crate) fn within(most: Duration, has_next: bool) -> Duration {
    if has_next { most.min(NEXT_AFTER) } else { most }
}

/// Connects to the server of `waiting`. `most`: the time for each of its addresses. Also returns whether the name has
/// the addresses of one machine.
///
/// # Errors
/// [`ClientError::Connect`], [`ClientError::Stopped`].
pub(crate) fn connect(waiting: &Waiting, most: Duration) -> Result<(TcpStream, bool), ClientError> {
    connect_first(&addresses(&waiting.server, waiting, most)?, waiting, most)
}

/// Connects to the first of the addresses that answers.
fn connect_first(
    addresses: &[SocketAddr],
    waiting: &Waiting,
    most: Duration,
) -> Result<(TcpStream, bool), ClientError> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for (at, address) in addresses.iter().enumerate() {
        let has_next = at + 1 < addresses.len();
        match connect_to(*address, waiting, within(most, has_next))? {
            Ok(socket) => return Ok((socket, is_one_machine(addresses))),
            Err(error) => last = error,
        }
    }
    Err(ClientError::Connect { server: waiting.server.clone(), source: last })
}

/// Whether these may be the addresses of one machine: one of each kind.
fn is_one_machine(addresses: &[SocketAddr]) -> bool {
    let of_kind = |is_v4| addresses.iter().filter(|address| address.is_ipv4() == is_v4).count();
    of_kind(true) <= 1 && of_kind(false) <= 1
}

/// Lets the kernel end the connection if the other machine is gone without a word. Where another server can answer instead,
/// that is better than to wait.
///
/// # Errors
/// An error of the system.
pub(crate) fn notice_loss(socket: &TcpStream) -> io::Result<()> {
    set_tcp_keepidle(socket, PROBE_AFTER)?;
    set_tcp_keepintvl(socket, PROBE_AFTER)?;
    // This also bounds how long the probes may be unanswered.
    set_tcp_user_timeout(socket, u32::try_from(LOST_AFTER.as_millis()).unwrap_or(u32::MAX))?;
    Ok(())
}

/// Looks at the clock. The end of the deadline is no error of its own here: the connection was not made in time.
fn is_over(waiting: &Waiting, end: Instant) -> Result<bool, ClientError> {
    match waiting.tick(WaitReason::Connection) {
        Err(error @ ClientError::Stopped) => Err(error),
        Err(_) => Ok(true),
        Ok(()) => Ok(Instant::now() >= end),
    }
}

fn addresses(server: &Endpoint, waiting: &Waiting, most: Duration) -> Result<Vec<SocketAddr>, ClientError> {
    if let Ok(address) = server.host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, server.port)]);
    }
    let failed = |source| ClientError::Connect { server: server.clone(), source };
    let (name, end) = ((server.host.clone(), server.port), Instant::now() + most);
    let (tell, told) = channel();
    // The resolver cannot be interrupted. Its thread ends when it has given up.
    let resolver = std::thread::Builder::new().name("resolver".to_owned());
    let begun = resolver.spawn(move || {
        let found = (name.0.as_str(), name.1).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
        let _ = tell.send(found);
    });
    begun.map_err(failed)?;
    loop {
        match told.recv_timeout(TICK) {
            Ok(found) => return found.map_err(failed),
            Err(RecvTimeoutError::Disconnected) => return Err(failed(io::ErrorKind::Other.into())),
            Err(RecvTimeoutError::Timeout) if is_over(waiting, end)? => {
                return Err(failed(io::Error::new(io::ErrorKind::TimedOut, "its name was not resolved in time")));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

fn connect_to(
    address: SocketAddr,
    waiting: &Waiting,
    most: Duration,
) -> Result<Result<TcpStream, io::Error>, ClientError> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = match rustix::net::socket_with(family, SocketType::STREAM, flags, None) {
        Ok(socket) => socket,
        Err(error) => return Ok(Err(error.into())),
    };
    let end = Instant::now() + most;
    match rustix::net::connect(&socket, &address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => loop {
            let timeout = Timespec::try_from(TICK).ok();
            match poll(&mut [PollFd::new(&socket, PollFlags::OUT)], timeout.as_ref()) {
                Ok(0) | Err(Errno::INTR) => {
                    if is_over(waiting, end)? {
                        return Ok(Err(io::ErrorKind::TimedOut.into()));
                    }
                }
                Ok(_) => break,
                Err(error) => return Ok(Err(error.into())),
            }
        },
        Err(error) => return Ok(Err(error.into())),
    }
    let socket = TcpStream::from(socket);
    Ok(match socket_error(&socket) {
        Ok(Ok(())) => socket.set_nonblocking(false).map(|()| socket),
        Ok(Err(error)) | Err(error) => Err(error.into()),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use std::net::TcpListener;

    use rustix::net::sockopt::{tcp_keepidle, tcp_user_timeout};

    use super::*;
    use crate::Settings;
    use crate::deadline::Deadline;

    #[test]
    fn the_addresses_of_a_name_are_tried_one_after_the_other() {
        let live = TcpListener::bind("127.0.0.1:0").unwrap();
        let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let settings = Settings::default();
        let server = Endpoint::parse("managers.example.org").unwrap();
        let waiting = Waiting::new(&server, "connect", Deadline::new(&settings, Instant::now()), &settings);
        let connect = |addresses: &[SocketAddr]| connect_first(addresses, &waiting, Duration::from_secs(5));
        let (socket, is_only) = connect(&[dead, live.local_addr().unwrap()]).unwrap();
        assert_eq!((socket.peer_addr().unwrap(), is_only), (live.local_addr().unwrap(), false));
        notice_loss(&socket).unwrap();
        assert_eq!(tcp_keepidle(&socket).unwrap(), PROBE_AFTER);
        assert_eq!(u128::from(tcp_user_timeout(&socket).unwrap()), LOST_AFTER.as_millis());
        assert!(connect(&[live.local_addr().unwrap()]).unwrap().1);
        let v6 = "[::1]:1".parse().unwrap();
        assert!(is_one_machine(&[v6, dead]) && !is_one_machine(&[v6, v6]) && !is_one_machine(&[dead, v6, dead]));
        for none in [&[][..], &[dead], &[dead, dead]] {
            assert!(matches!(connect(none).unwrap_err(), ClientError::Connect { .. }));
        }
        assert_eq!(
            [within(Duration::from_secs(10), true), within(Duration::from_secs(10), false)],
            [NEXT_AFTER, Duration::from_secs(10)]
        );
    }
}
