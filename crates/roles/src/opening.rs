//! What a manager is asked for an open, and what it says.

use std::fmt;
use std::net::IpAddr;

use cluster::placement::PlacementError;
use namespace::{Actor, NsError};
use types::direct::StripedFile;
use types::{BodyId, ErrorCode, NodeId, NsPath, Place, Timestamp};

/// Who opens, and how the client came here.
#[derive(Clone, Debug)]
pub struct Asking {
    /// The time of day.
    pub now: Timestamp,
    /// The path by which it asks, and will show its permission with: that is good with no other one.
    pub path: NsPath,
    /// Where the client is.
    pub from: IpAddr,
    /// Where it says that it stands.
    pub place: Option<Place>,
    /// Hosts that it could not reach (`tried=`).
    pub tried: Vec<String>,
    /// How many bytes it says that it will write: its stores need that much room.
    pub announced: Option<u64>,
    /// It sends the whole content at once, and has no use for a file whose content is dealt out: where one would be made, it is refused.
    pub at_once: bool,
    /// Whom it acts as.
    pub actor: Actor,
}

/// Where a client is sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Redirect {
    /// Which node that is.
    pub node: NodeId,
    /// Host name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// What the client has to show there. Never shown to anybody else.
    pub capability: String,
    /// The content that it leads to.
    pub body: BodyId,
    /// Of a striped file that a client can read or write at the servers of its units itself.
    pub striped: Option<StripedFile>,
}

impl fmt::Debug for Redirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redirect({}:{})", self.host, self.port)
    }
}

/// Why a client is sent nowhere.
#[derive(Debug, thiserror::Error)]
pub enum OpeningError {
    /// The namespace says no.
    #[error(transparent)]
    Names(#[from] NsError),
    /// Nobody may be placed so.
    #[error("no stores can be chosen for it: {0}")]
    Placement(#[from] PlacementError),
    /// It may work in a while.
    #[error("{why}")]
    Wait {
        /// At least 1.
        seconds: u32,
        /// What is waited for.
        why: String,
    },
    /// What was acknowledged of it may be lost.
    #[error(
        "all stores that had taken part in writing it have begun anew since, and may have lost what they had acknowledged and not synced; write it again"
    )]
    Lost,
    /// It has no copy.
    #[error("its content is on no store that is there; it was on {0}")]
    NoCopy(String),
    /// A striped one lacks units.
    #[error("not all of its units are on stores that are there: {0}")]
    NoUnits(String),
    /// This build cannot.
    #[error("{0}")]
    Unsupported(&'static str),
}

impl OpeningError {
    /// For protocols.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Names(error) => error.code(),
            Self::Placement(PlacementError::NoRoom { .. }) => ErrorCode::NoSpace,
            Self::Placement(_) | Self::NoCopy(_) | Self::NoUnits(_) => ErrorCode::Unavailable,
            Self::Wait { .. } => ErrorCode::Overloaded,
            Self::Lost => ErrorCode::Interrupted,
            Self::Unsupported(_) => ErrorCode::Unsupported,
        }
    }

    pub(crate) fn wait(why: impl Into<String>) -> Self {
        Self::Wait { seconds: 1, why: why.into() }
    }
}
