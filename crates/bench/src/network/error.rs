//! Why a network test has no result.

use std::io;
use std::net::SocketAddr;

use super::SpecError;
use crate::peer::{FrameError, HelloError};

/// The flows could not be made, or broke.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The name is unknown, or the text is not `HOST:PORT`.
    #[error(
        "`{peer}` is not an address: {source}; give the HOST:PORT that `weir bench flows` prints on the other machine"
    )]
    Address {
        /// The text.
        peer: String,
        /// The reason.
        source: io::Error,
    },
    /// No server listens there.
    #[error("cannot connect to {peer}: {source}; is `weir bench flows` running there, and is the port open?")]
    Connect {
        /// The server.
        peer: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The handshake failed.
    #[error(transparent)]
    Hello(#[from] HelloError),
    /// The control connection broke.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The server refuses the test.
    #[error("{peer} refuses the test: {why}")]
    Refused {
        /// The server.
        peer: String,
        /// The reason in the server's words.
        why: String,
    },
    /// The server sent an unexpected message.
    #[error("{peer} sent an unexpected message: {what}")]
    Unexpected {
        /// The server.
        peer: String,
        /// The message.
        what: String,
    },
    /// Datagrams do not arrive.
    #[error("no datagram arrived between this machine and {peer}, port {port}; does a firewall block UDP?")]
    NoDatagrams {
        /// The server.
        peer: String,
        /// Its port.
        port: u16,
    },
    /// Not all flows were opened in time.
    #[error("only {open} of {flows} flows were open after {seconds} s")]
    NotOpened {
        /// The number of opened flows.
        open: usize,
        /// The number of all flows.
        flows: usize,
        /// The time limit in seconds.
        seconds: u64,
    },
    /// The test takes longer than possible.
    #[error("the flows with {peer} have not ended {seconds} s after their time was over")]
    Endless {
        /// The server.
        peer: String,
        /// The time limit in seconds.
        seconds: u64,
    },
    /// A flow broke.
    #[error("flows with {peer}: {why}")]
    Broken {
        /// The server.
        peer: String,
        /// The flow, and the reason.
        why: String,
    },
    /// The server is silent.
    #[error("{peer} sent nothing for {seconds} s in the middle of a test; is the machine still running?")]
    Silent {
        /// The server.
        peer: String,
        /// The time limit in seconds.
        seconds: u64,
    },
    /// The server would accept anyone.
    #[error(
        "{listen} is reachable from other machines, and without a token anyone could use this server; make a token with `weir bench token FILE`, and give it with --token-file"
    )]
    Open {
        /// The address.
        listen: SocketAddr,
    },
    /// The server cannot listen there.
    #[error("cannot listen on {listen}: {source}")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// The test was stopped.
    #[error("stopped")]
    Stopped,
    /// An error on this machine.
    #[error("cannot {what}: {source}")]
    Here {
        /// What was tried.
        what: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A flow could not be prepared.
    #[error("a flow cannot start: {0}")]
    NotReady(String),
    /// The flows' parameters are not valid.
    #[error(transparent)]
    Spec(#[from] SpecError),
}

impl NetworkError {
    pub(super) fn here(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Here { what, source }
    }
}
