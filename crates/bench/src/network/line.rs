//! What carries one flow.

use std::io;
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::Protocol;

/// A socket that is connected to the other side.
#[derive(Debug)]
pub(super) enum Line {
    /// A connection.
    Tcp(TcpStream),
    /// A socket that takes datagrams of its peer only.
    Udp(UdpSocket),
}

impl Line {
    /// From a descriptor that another process has made.
    pub(super) fn from_descriptor(descriptor: OwnedFd, protocol: Protocol) -> Self {
        match protocol {
            Protocol::Tcp => Self::Tcp(descriptor.into()),
            Protocol::Udp => Self::Udp(descriptor.into()),
        }
    }

    pub(super) fn another(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
            Self::Udp(socket) => socket.try_clone().map(Self::Udp),
        }
    }

    /// Ends it for both sides, whoever waits in it.
    pub(super) fn cut(&self) {
        // One that is not connected any more is cut already; a waiting `recv` of datagrams looks up by itself.
        if let Self::Tcp(stream) = self {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Udp(socket) => socket.as_fd(),
        }
    }
}

/// What there is to be read from a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pending {
    /// Nothing so far.
    Nothing,
    /// Something.
    Something,
    /// Nothing, ever again.
    Gone,
}

/// Looks without waiting, and leaves it there.
pub(super) fn pending(stream: &TcpStream) -> Pending {
    let mut byte = [0];
    match recv(stream, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((_, 0)) => Pending::Gone,
        Ok(_) => Pending::Something,
        Err(Errno::AGAIN | Errno::INTR) => Pending::Nothing,
        Err(_) => Pending::Gone,
    }
}
