//! What the machine is told, and what it wants.

use std::time::Duration;

use super::message::{Ask, FarSide, Home, Tell};
use super::round::Outcome;
use super::{Kind, PeerId};
use crate::campaign::Phase;
use crate::load::Reading;
use crate::result::{MachineSettings, ServerRecord};
use crate::sampling::Sample;

/// A phase that all agents are to do.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    /// What.
    pub phase: Phase,
    /// Where; `None`: with no system.
    pub home: Option<Home>,
    /// Where copies go.
    pub copies: Option<Home>,
    /// Far sides of the flows that it is about.
    pub peers: Vec<FarSide>,
    /// Names of processes on a client that do a part of the work there, as that of a FUSE mount does.
    pub client_processes: Vec<String>,
    /// Seed of contents.
    pub seed: u64,
    /// How long it may take.
    pub limit: Option<Duration>,
}

/// What this machine does by itself, for those who watch.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Local {
    /// Done since the phase began.
    pub done: Reading,
    /// Done in the last second.
    pub last: Reading,
    /// How long ago it began.
    pub elapsed: Duration,
    /// What the machine did.
    pub sample: Sample,
}

/// What happens to the machine.
#[derive(Debug)]
pub enum Input {
    /// Somebody has proved that he may take part.
    Joined {
        /// His connection.
        peer: PeerId,
        /// What he calls himself.
        name: String,
        /// What he does.
        kind: Kind,
    },
    /// Somebody says something.
    Told {
        /// Who.
        peer: PeerId,
        /// What.
        tell: Box<Tell>,
    },
    /// A connection is gone.
    Gone {
        /// Whose.
        peer: PeerId,
        /// Why.
        why: String,
    },
    /// A trial begins: from now on those who are there have their shares of it.
    Muster,
    /// A phase of it begins.
    Begin(Box<Job>),
    /// The work begins that this machine does by itself, while servers are watched.
    Gather,
    /// It is over.
    Gathered,
    /// One second of the work that this machine does by itself.
    Local(Box<Local>),
    /// The phase is to end now.
    Stop,
    /// All is over.
    Leave(String),
    /// Time has passed.
    Tick,
}

/// What the machine wants to be done.
#[derive(PartialEq, Debug)]
pub enum Output {
    /// Say this.
    Send(PeerId, Ask),
    /// Close the connection.
    Close(PeerId),
    /// Tell people.
    Event(Event),
}

/// What people want to know.
#[derive(PartialEq, Debug)]
pub enum Event {
    /// Somebody is there; how many agents there are now.
    Joined {
        /// His name.
        name: String,
        /// Whether he works.
        is_agent: bool,
        /// How many who work there are now.
        agents: usize,
    },
    /// Somebody is lost.
    Lost {
        /// His name.
        name: String,
        /// Why.
        why: String,
    },
    /// Somebody has told of his machine, for the first time or something new; all that is known of it.
    Settings(MachineSettings),
    /// A phase is over.
    Finished(Box<Outcome>),
    /// What servers did while this machine worked by itself.
    Servers(Vec<ServerRecord>),
}
