//! Why there is no figure of the network.

use std::io;
use std::net::SocketAddr;

use super::SpecError;
use crate::peer::{FrameError, HelloError};

/// Flows did not come about, or broke.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// A name that nobody knows, or no `HOST:PORT`.
    #[error("`{peer}` is no address: {source}; give HOST:PORT, as `weir bench flows` says it on the other machine")]
    Address {
        /// The text.
        peer: String,
        /// Why.
        source: io::Error,
    },
    /// Nobody listens there.
    #[error("cannot connect to {peer}: {source}; is `weir bench flows` running there, and is the port open?")]
    Connect {
        /// The far side.
        peer: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The two did not come together.
    #[error(transparent)]
    Hello(#[from] HelloError),
    /// The talk broke.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The far side does not do it.
    #[error("{peer} does not do that: {why}")]
    Refused {
        /// The far side.
        peer: String,
        /// Why, in its words.
        why: String,
    },
    /// The far side said something that has no place there.
    #[error("{peer} said something that makes no sense at this point: {what}")]
    Unexpected {
        /// The far side.
        peer: String,
        /// What.
        what: String,
    },
    /// Datagrams do not get through.
    #[error("no datagram came through between here and {peer}, port {port}; is UDP let through?")]
    NoDatagrams {
        /// The far side.
        peer: String,
        /// Its port.
        port: u16,
    },
    /// Not all flows were opened in time.
    #[error("only {open} of {flows} flows were there after {seconds} s")]
    NotOpened {
        /// Those that were.
        open: usize,
        /// All.
        flows: usize,
        /// The time that there was.
        seconds: u64,
    },
    /// It took longer than it can take.
    #[error("the flows with {peer} have not ended {seconds} s after their time was over")]
    Endless {
        /// The far side.
        peer: String,
        /// The time that there was.
        seconds: u64,
    },
    /// A flow broke.
    #[error("flows with {peer}: {why}")]
    Broken {
        /// The far side.
        peer: String,
        /// Which, and why.
        why: String,
    },
    /// It says nothing any more.
    #[error("nothing from {peer} for {seconds} s, in the middle of its flows; is the machine still there?")]
    Silent {
        /// The far side.
        peer: String,
        /// The time that it had.
        seconds: u64,
    },
    /// Everybody would be let in.
    #[error(
        "{listen} is not of this machine alone, and without a token everybody could ask for flows; make one with `weir bench token FILE`, and give it with --token-file"
    )]
    Open {
        /// The address.
        listen: SocketAddr,
    },
    /// It cannot be listened there.
    #[error("cannot listen on {listen}: {source}")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// Somebody said stop.
    #[error("stopped")]
    Stopped,
    /// Something on this machine.
    #[error("cannot {what}: {source}")]
    Here {
        /// What was tried.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A flow that did not get ready.
    #[error("a flow cannot begin: {0}")]
    NotReady(String),
    /// Flows that make no sense.
    #[error(transparent)]
    Spec(#[from] SpecError),
}

impl NetworkError {
    pub(super) fn here(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Here { what, source }
    }
}
