//! Measurements with several machines. Agents connect to a coordinator. It gives each a share of every phase,
//! starts all at the same moment, follows them each second, and combines their results. Servers can be watched
//! meanwhile.
//!
//! A synchronous machine ([`Machine`]) makes the decisions; it takes only messages and times. Connections and
//! threads are around it ([`Coordinator`]). An agent is the other side ([`crate::agent`]).

mod clock;
mod connection;
mod events;
mod gather;
mod machine;
pub mod message;
mod round;
mod shell;
#[cfg(test)]
mod tests;
mod view;

use serde::{Deserialize, Serialize};

pub use clock::{Offset, RoundTrips, SteadyClock};
pub use events::{Event, Input, Job, Local, Output};
pub use machine::{Machine, SILENCE_MAX};
pub use round::Outcome;
pub use shell::{CoordinateError, Coordinator, CoordinatorEvent, Setting};
pub use view::{Line, View};

/// The number of a connection.
pub type PeerId = u64;

/// The kind of a peer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// It works.
    Agent,
    /// It reports the activity of a server.
    Watcher {
        /// The system, by its name in the campaign.
        system: String,
        /// The names of the server's processes, whose CPU time is the server's. If empty, all CPU time of the
        /// machine counts.
        processes: Vec<String>,
    },
}

impl Kind {
    /// Returns the system of a server.
    #[must_use]
    pub fn system(&self) -> Option<&str> {
        match self {
            Self::Agent => None,
            Self::Watcher { system, .. } => Some(system),
        }
    }
}

/// A peer's first message after both sides have proved that they have the same token.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PeerIntroduction {
    /// Its program. It must be the same as the coordinator's, because messages describe work in the program's own
    /// types.
    pub program: String,
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
}

/// The name and version of this program in an introduction.
pub const PROGRAM: &str = concat!("weir ", env!("CARGO_PKG_VERSION"));
