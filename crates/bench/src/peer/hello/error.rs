//! Why a handshake failed.

use std::io;
use std::time::Duration;

use super::{Role, VERSION};

/// Why one side refuses the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PeerRefused {
    /// The secrets differ.
    WrongToken = 1,
    /// The token has expired.
    Expired = 2,
    /// The role is not accepted here.
    Role = 3,
}

/// A handshake failed. Each text names the other side and says what to do.
#[derive(Debug, thiserror::Error)]
pub enum HelloError {
    /// The connection broke.
    #[error("cannot greet {peer}: {source}")]
    Io {
        /// The peer.
        peer: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The peer did not send enough in time.
    #[error("{peer} did not finish its greeting in {} s; is it `weir bench` that listens there?", within.as_secs_f32())]
    Slow {
        /// The peer.
        peer: String,
        /// The time limit.
        within: Duration,
    },
    /// The peer has closed the connection before its greeting was complete.
    #[error("{peer} has closed the connection during the greeting; its own output says why")]
    Gone {
        /// The peer.
        peer: String,
    },
    /// Another program listens or calls there.
    #[error("{peer} is not a `weir bench`: it does not send the greeting")]
    Stranger {
        /// The peer.
        peer: String,
    },
    /// The peer has another version.
    #[error(
        "{peer} speaks version {theirs} of the bench's protocol, and this program version {VERSION}; use the same weir on all machines"
    )]
    Version {
        /// The peer.
        peer: String,
        /// Its version.
        theirs: u16,
    },
    /// The peer's role is not accepted here.
    #[error("{peer} is {}, and here {} is expected", name_of(*theirs), names_of(wanted))]
    WrongRole {
        /// The peer.
        peer: String,
        /// The peer's role as a number.
        theirs: u8,
        /// The accepted roles.
        wanted: Vec<Role>,
    },
    /// One side has a token and the other has none.
    #[error("{peer} has {}; give both sides the same token file (`weir bench token FILE` makes one)", if *they { "a token, and this side has none" } else { "no token, and this side has one" })]
    NoToken {
        /// The peer.
        peer: String,
        /// Whether the peer is the side with the token.
        they: bool,
    },
    /// The peer's proof is wrong.
    #[error("{peer} has another token; give both sides the same token file")]
    WrongToken {
        /// The peer.
        peer: String,
    },
    /// Our own token has expired.
    #[error(
        "the token for {peer} has expired by this machine's clock; make a new one with `weir bench token FILE`, and copy it to all machines"
    )]
    Expired {
        /// The peer.
        peer: String,
    },
    /// The peer refuses us.
    #[error("{peer} refuses: {}", told(*why))]
    Refused {
        /// The peer.
        peer: String,
        /// The reason.
        why: PeerRefused,
    },
}

fn told(why: PeerRefused) -> &'static str {
    match why {
        PeerRefused::WrongToken => "it has another token; give both sides the same token file",
        PeerRefused::Expired => {
            "the token has expired by its clock; make a new one with `weir bench token FILE`, and copy it to all machines"
        }
        PeerRefused::Role => "it does not accept this role; is the address right?",
    }
}

fn name_of(number: u8) -> String {
    Role::from_number(number).map_or(format!("something unknown ({number})"), |role| role.to_string())
}

fn names_of(roles: &[Role]) -> String {
    roles.iter().map(Role::to_string).collect::<Vec<_>>().join(" or ")
}
