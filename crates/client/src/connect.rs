//! Makes a TCP connection. Unlike the standard library it can stop meanwhile, and neither the name's resolution nor
//! the connection outlasts the deadline.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::settings::TICK;
use crate::waiting::Waiting;
use crate::watch::WaitReason;
use crate::{ClientError, Endpoint};

/// Connects to the server of `waiting`. `most`: the time for each of its addresses.
///
/// # Errors
/// [`ClientError::Connect`], [`ClientError::Stopped`].
pub(crate) fn connect(waiting: &Waiting, most: Duration) -> Result<TcpStream, ClientError> {
    let server = &waiting.server;
    let failed = |source| ClientError::Connect { server: server.clone(), source };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses(server, waiting, most)? {
        match connect_to(address, waiting, most)? {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(failed(last))
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
