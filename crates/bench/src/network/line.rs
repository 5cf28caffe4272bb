//! The socket of one flow.

use std::io;
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::Protocol;

/// A socket connected to the other side.
#[derive(Debug)]
pub(super) enum Line {
    /// A TCP connection.
    Tcp(TcpStream),
    /// A UDP socket that receives from its peer only.
    Udp(UdpSocket),
}

impl Line {
    /// Makes it from a descriptor of another process.
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

    /// Ends it for both sides, and wakes any thread that waits in it.
    pub(super) fn cut(&self) {
        // A connection that is no longer connected needs no cut. A waiting `recv` of datagrams returns by itself.
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

/// What can be read from a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pending {
    /// Nothing so far.
    Nothing,
    /// Some bytes.
    Something,
    /// Nothing, and the other side has closed.
    Gone,
}

/// Looks at the next bytes without waiting, and leaves them there.
pub(super) fn pending(stream: &TcpStream) -> Pending {
    let mut byte = [0];
    match recv(stream, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((_, 0)) => Pending::Gone,
        Ok(_) => Pending::Something,
        Err(Errno::AGAIN | Errno::INTR) => Pending::Nothing,
        Err(_) => Pending::Gone,
    }
}
