//! What there is to see while it goes on: plain data, for a terminal and for a page.

use serde::Serialize;

use crate::load::Reading;
use crate::sampling::Sample;

/// One machine in its last second.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// The system that it is a server of; `None`: it works.
    pub system: Option<String>,
    /// Bytes that its workers moved.
    pub bytes: u64,
    /// Operations that they did.
    pub operations: u64,
    /// Operations that failed.
    pub failures: u64,
    /// Share of its processors' time that was used (0 to 1).
    pub cpu: f64,
    /// Share in which they waited for disks.
    pub iowait: f64,
    /// Bytes a second that its interfaces received, loopback left out where there is another one that moves anything.
    pub received: f64,
    /// Bytes a second that they sent.
    pub sent: f64,
    /// TCP segments a second that were sent once more.
    pub retransmitted: f64,
    /// Packets a second that were lost in its interfaces.
    pub dropped: f64,
    /// Bytes a second that its disks read.
    pub disk_read: f64,
    /// Bytes a second that they wrote.
    pub disk_written: f64,
    /// Share of the time in which its busiest disk was busy.
    pub disk_busy: f64,
    /// Bytes of memory in use.
    pub memory: u64,
}

/// All machines.
#[derive(Clone, PartialEq, Default, Debug, Serialize)]
pub struct View {
    /// Agents that there should be.
    pub planned: usize,
    /// Seconds since the phase began; 0 before.
    pub elapsed_s: f64,
    /// What all have done in it so far.
    pub done: Reading,
    /// Machines that work.
    pub agents: Vec<Line>,
    /// Servers that are watched.
    pub servers: Vec<Line>,
    /// Agents that are lost, and why.
    pub gone: Vec<String>,
}

impl Line {
    /// From what a machine told last.
    #[must_use]
    pub fn new(name: &str, system: Option<&str>, last: Reading, sample: Option<&Sample>) -> Self {
        let nothing = Sample::default();
        let sample = sample.unwrap_or(&nothing);
        let moves = |name: &str| sample.interfaces.get(name).is_some_and(|rates| rates.received + rates.sent > 0.0);
        let has_outside = sample.interfaces.keys().any(|name| name != "lo" && moves(name));
        let interfaces =
            || sample.interfaces.iter().filter(|(name, _)| !has_outside || *name != "lo").map(|(_, rates)| rates);
        let cpu = sample.cpu;
        Self {
            name: name.to_owned(),
            system: system.map(str::to_owned),
            bytes: last.bytes,
            operations: last.operations,
            failures: last.failures,
            cpu: cpu.user + cpu.system + cpu.interrupts,
            iowait: cpu.iowait,
            received: interfaces().map(|rates| rates.received).sum(),
            sent: interfaces().map(|rates| rates.sent).sum(),
            retransmitted: sample.retransmitted,
            dropped: interfaces().map(|rates| rates.lost).sum(),
            disk_read: sample.disks.values().map(|disk| disk.read_bytes).sum(),
            disk_written: sample.disks.values().map(|disk| disk.written_bytes).sum(),
            disk_busy: sample.disks.values().map(|disk| disk.busy).fold(0.0, f64::max),
            memory: sample.memory_used,
        }
    }
}

impl View {
    /// What all agents did in their last second.
    #[must_use]
    pub fn total(&self) -> Reading {
        let reading = |line: &Line| Reading { operations: line.operations, bytes: line.bytes, failures: line.failures };
        self.agents.iter().map(reading).sum()
    }
}
