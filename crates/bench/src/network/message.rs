//! What the near side and the far side say to each other, and a process to those that it has started for its flows.

use serde::{Deserialize, Serialize};

use super::flow::{FlowEnd, FlowWork};
use super::outcome::Side;
use super::spec::NetworkSpec;
use crate::load::Reading;

/// From the near side.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Ask {
    /// Get ready for these.
    Plan(NetworkSpec),
    /// Begin now.
    Start,
    /// All is known: connections may be closed.
    Enough,
}

/// From the far side.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Tell {
    /// Flows are waited for.
    Prepared {
        /// What they have to name.
        session: u64,
        /// Of UDP: where each is waited for, in the order of their numbers.
        ports: Vec<u16>,
    },
    /// All flows are there.
    Ready,
    /// What has come so far, about once a second.
    Progress(Reading),
    /// All flows have ended here.
    Finished {
        /// What this machine counted.
        side: Side,
        /// This end of each flow.
        ends: Vec<FlowEnd>,
    },
    /// It cannot be done.
    Refused(String),
}

/// The first message of a flow of TCP.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Join {
    pub(super) session: u64,
    pub(super) number: u32,
}

/// To the process of a flow.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Order {
    /// Get ready. The socket follows.
    Prepare {
        /// What is to be done.
        work: FlowWork,
        /// Of the content.
        seed: u64,
    },
    /// Begin now.
    Start,
}

/// From the process of a flow.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Report {
    /// It can begin.
    Ready,
    /// What it has done so far, some times a second.
    Progress(Reading),
    /// It has ended.
    Finished(FlowEnd),
}
