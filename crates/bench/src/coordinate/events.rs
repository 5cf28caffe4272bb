//! The inputs and outputs of the machine.

use std::time::Duration;

use super::message::{AgentMessage, CoordinatorMessage, ServerAddress, TrialFolder};
use super::round::Outcome;
use super::{Kind, PeerId};
use crate::campaign::Phase;
use crate::load::Reading;
use crate::result::{MachineSettings, ServerRecord};
use crate::sampling::Sample;

/// A phase that all agents must do.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    /// The phase.
    pub phase: Phase,
    /// The folder on the system; `None`: the phase needs no system.
    pub home: Option<TrialFolder>,
    /// The folder for copies.
    pub copies: Option<TrialFolder>,
    /// The network-test servers of the phase.
    pub peers: Vec<ServerAddress>,
    /// The names of processes that do a part of the work on a client, such as a FUSE mount.
    pub client_processes: Vec<String>,
    /// The seed of contents.
    pub seed: u64,
    /// The time limit of the phase.
    pub limit: Option<Duration>,
}

/// The progress of work that this machine does itself, for display.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Local {
    /// Done since the start of the phase.
    pub done: Reading,
    /// Done in the last second.
    pub last: Reading,
    /// The time since the start.
    pub elapsed: Duration,
    /// The activity of the machine.
    pub sample: Sample,
}

/// An input of the machine.
#[derive(Debug)]
pub enum Input {
    /// A peer has proved that it may take part.
    Joined {
        /// Its connection.
        peer: PeerId,
        /// Its name.
        name: String,
        /// Its kind.
        kind: Kind,
    },
    /// A message from a peer.
    Told {
        /// The peer.
        peer: PeerId,
        /// The message.
        tell: Box<AgentMessage>,
    },
    /// A connection is gone.
    Gone {
        /// The peer.
        peer: PeerId,
        /// The reason.
        why: String,
    },
    /// A trial begins. The agents that are present now get shares of it.
    Muster,
    /// A phase of the trial begins.
    Begin(Box<Job>),
    /// Work of this machine itself begins, while servers are watched.
    Gather,
    /// That work has ended.
    Gathered,
    /// One second of that work.
    Local(Box<Local>),
    /// The phase must end now.
    Stop,
    /// All peers must leave. The text is the reason.
    Leave(String),
    /// Time has passed.
    Tick,
}

/// An output of the machine.
#[derive(PartialEq, Debug)]
pub enum Output {
    /// Send this to the peer.
    Send(PeerId, CoordinatorMessage),
    /// Close the connection.
    Close(PeerId),
    /// Report this to the user.
    Event(Event),
}

/// An event for the user.
#[derive(PartialEq, Debug)]
pub enum Event {
    /// A peer has joined.
    Joined {
        /// Its name.
        name: String,
        /// Whether it is an agent.
        is_agent: bool,
        /// The present number of agents.
        agents: usize,
    },
    /// A peer is lost.
    Lost {
        /// Its name.
        name: String,
        /// The reason.
        why: String,
    },
    /// A machine has reported its settings, for the first time or changed ones. All its settings are in it.
    Settings(MachineSettings),
    /// A phase has ended.
    Finished(Box<Outcome>),
    /// What the servers did while this machine worked itself.
    Servers(Vec<ServerRecord>),
}
