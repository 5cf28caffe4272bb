//! The planned events in the order of their times. Events at the same moment keep the order in which they were planned.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use database::simulated::{Answer, Sent};

use crate::message::{Addr, Message};

/// Identifies the connection of a message: the runs of both processes, and the number of the connection between them.
pub(crate) type Connection = (u64, u64, u64);

/// An event.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A message arrives, if its connection is still the one on which it was sent.
    Deliver { from: Addr, to: Addr, connection: Connection, message: Message },
    /// A node does its periodic work, if this run of its process is still the present one.
    Tick { at: Addr, run: u64 },
    /// A thread of a server runs this job.
    Job { server: usize, run: u64, job: u64 },
    /// A request of a manager reaches the database.
    ToDatabase { manager: usize, run: u64, sent: Sent },
    /// An answer of the database reaches a manager.
    FromDatabase { manager: usize, run: u64, number: u64, answer: Answer },
    /// A fault happens.
    Fault(Fault),
    /// A fault is repaired.
    Mend(Mend),
    /// All faults are repaired, and clients start nothing new.
    Calm,
    /// The simulation ends.
    End,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    Server,
    Manager,
    Partition,
    Disk,
    Damage,
    Decision,
    Absence,
    Access,
    /// The database fails in one of many ways.
    Database,
    /// A manager stands still, or cannot reach the database.
    Stall,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mend {
    Start(Addr),
    /// A process ends and restarts.
    Renew(Addr),
    Path(Addr, Addr),
}

#[derive(Debug)]
struct Planned {
    at: Duration,
    number: u64,
    event: Event,
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl Eq for Planned {}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Events {
    planned: BinaryHeap<Reverse<Planned>>,
    given: u64,
}

impl Events {
    pub(crate) fn plan(&mut self, at: Duration, event: Event) {
        self.given += 1;
        self.planned.push(Reverse(Planned { at, number: self.given, event }));
    }

    pub(crate) fn next(&mut self) -> Option<(Duration, Event)> {
        self.planned.pop().map(|Reverse(planned)| (planned.at, planned.event))
    }
}
