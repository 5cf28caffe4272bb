//! The messages between the client and the server of a network test, and between a process and its children for
//! flows.

use serde::{Deserialize, Serialize};

use super::flow::{FlowEnd, FlowWork};
use super::outcome::MachineCounters;
use super::spec::NetworkSpec;
use crate::load::Reading;

/// A message from the client.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum ClientMessage {
    /// Prepare these flows.
    Plan(NetworkSpec),
    /// Start now.
    Start,
    /// The client knows everything. Connections may be closed.
    Enough,
}

/// A message from the server.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum ServerMessage {
    /// The server waits for the flows.
    Prepared {
        /// The session that the flows must name.
        session: u64,
        /// For UDP: the port of each flow, ordered by number.
        ports: Vec<u16>,
    },
    /// All flows have arrived.
    Ready,
    /// The bytes received so far, about once a second.
    Progress(Reading),
    /// All flows have ended at the server.
    Finished {
        /// The counters of this machine.
        side: MachineCounters,
        /// The server's end of each flow.
        ends: Vec<FlowEnd>,
    },
    /// The server refuses. The text is the reason.
    Refused(String),
}

/// The first message of a TCP flow.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Join {
    pub(super) session: u64,
    pub(super) number: u32,
}

/// A message to the process of a flow.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Order {
    /// Prepare. The socket follows.
    Prepare {
        /// The task.
        work: FlowWork,
        /// The seed of the contents.
        seed: u64,
    },
    /// Start now.
    Start,
}

/// A message from the process of a flow.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Report {
    /// It is ready.
    Ready,
    /// Its work so far, several times a second.
    Progress(Reading),
    /// It has ended.
    Finished(FlowEnd),
}
