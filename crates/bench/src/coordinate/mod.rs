//! Several machines: agents call a coordinator, which gives each a share of every phase, lets all begin at the same moment, follows them second
//! by second, and puts together what came of it. Servers can be watched meanwhile.
//!
//! Who decides is a synchronous machine ([`Machine`]) that sees messages and times alone; connections and threads stand around it
//! ([`Coordinator`]). An agent is the other side ([`crate::agent`]).

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

pub use clock::{Offset, SteadyClock, Trips};
pub use events::{Event, Input, Job, Local, Output};
pub use machine::{Machine, SILENCE_MAX};
pub use round::Outcome;
pub use shell::{CoordinateError, Coordinator, News, Setting};
pub use view::{Line, View};

/// A connection.
pub type PeerId = u64;

/// What one who joins does.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// It works.
    Agent,
    /// It tells what a server does.
    Watcher {
        /// The system, by its name in the campaign.
        system: String,
        /// Processes whose CPU time is the server's, by their names; none: all of the machine.
        processes: Vec<String>,
    },
}

impl Kind {
    /// The system of a server.
    #[must_use]
    pub fn system(&self) -> Option<&str> {
        match self {
            Self::Agent => None,
            Self::Watcher { system, .. } => Some(system),
        }
    }
}

/// The first thing that one who joins says, when both sides have proved that they have the same token.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Introduction {
    /// The program; it has to be the coordinator's own, as work is described in its own terms.
    pub program: String,
    /// What it calls itself.
    pub name: String,
    /// What it does.
    pub kind: Kind,
}

/// The program that this is, as it introduces itself.
pub const PROGRAM: &str = concat!("weir ", env!("CARGO_PKG_VERSION"));
