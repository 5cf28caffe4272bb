//! The state of a measurement for display: plain data, for a terminal and for a page.

use serde::Serialize;

use crate::load::Reading;
use crate::sampling::Sample;

/// The activity of one machine in its last second.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// The system whose server it is; `None`: it is an agent.
    pub system: Option<String>,
    /// The bytes that its workers moved.
    pub bytes: u64,
    /// The operations that they did.
    pub operations: u64,
    /// Operations that failed.
    pub failures: u64,
    /// The share of its processors' time that was used (0 to 1).
    pub cpu: f64,
    /// The share of time in which they waited for disks.
    pub iowait: f64,
    /// The bytes a second that its interfaces received. The loopback counts only if no other interface moves
    /// anything.
    pub received: f64,
    /// The bytes a second that they sent.
    pub sent: f64,
    /// The TCP segments a second that were retransmitted.
    pub retransmitted: f64,
    /// The packets a second that its interfaces dropped.
    pub dropped: f64,
    /// The bytes a second that its disks read.
    pub disk_read: f64,
    /// The bytes a second that they wrote.
    pub disk_written: f64,
    /// The share of time in which its busiest disk was busy.
    pub disk_busy: f64,
    /// The bytes of memory in use.
    pub memory: u64,
}

/// All machines.
#[derive(Clone, PartialEq, Default, Debug, Serialize)]
pub struct View {
    /// The planned number of agents.
    pub planned: usize,
    /// Seconds since the start of the phase; 0 before.
    pub elapsed_s: f64,
    /// The work of all agents in it so far.
    pub done: Reading,
    /// The agents.
    pub agents: Vec<Line>,
    /// The watched servers.
    pub servers: Vec<Line>,
    /// The lost agents, with the reason.
    pub gone: Vec<String>,
}

impl Line {
    /// Makes a line from a machine's last report.
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
    /// Returns the work of all agents in their last second.
    #[must_use]
    pub fn total(&self) -> Reading {
        let reading = |line: &Line| Reading { operations: line.operations, bytes: line.bytes, failures: line.failures };
        self.agents.iter().map(reading).sum()
    }
}
