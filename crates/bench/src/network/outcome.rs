//! The results of a network test.

use serde::{Deserialize, Serialize};

use super::flow::FlowEnd;
use super::kernel::{Counts, TcpState};
use crate::statistics::median;

/// The result of the flows with one system.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// The system's name.
    pub system: String,
    /// The address of its server.
    pub peer: String,
    /// The client's machine.
    #[serde(alias = "near")]
    pub client: MachineCounters,
    /// The server's machine.
    #[serde(alias = "far")]
    pub server: MachineCounters,
    /// One direction, or both.
    pub ways: Vec<DirectionOutcome>,
}

/// A machine's counters while bytes flowed, including other traffic.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct MachineCounters {
    /// The interface on the route to the other machine. The counters include those of interfaces below it. Empty if
    /// the kernel does not reveal it.
    pub interface: String,
    /// The kernel's counters.
    pub counts: Counts,
    /// User and system CPU time of all processes of the flows, in seconds.
    pub cpu_s: f64,
}

/// All flows of one direction.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DirectionOutcome {
    /// Whether the bytes go to the system, not from it.
    pub to: bool,
    /// The flows.
    pub flows: Vec<Flow>,
}

/// One flow.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Flow {
    /// Its number.
    pub number: u32,
    /// Bytes that arrived while the sender's time ran.
    pub bytes: u64,
    /// All bytes that arrived, including those under way at the end.
    pub arrived: u64,
    /// The TCP calls that received them, or UDP datagrams.
    pub operations: u64,
    /// How long it was sent, or until it ended early.
    pub seconds: f64,
    /// The sent bytes.
    pub sent: u64,
    /// The kernel's state of its TCP sender, if known.
    pub tcp: Option<TcpState>,
    /// Its datagrams, for UDP.
    pub datagrams: Option<Datagrams>,
    /// Why it ended early, if it did. The two ends may give different reasons.
    pub failures: Vec<String>,
}

/// The datagrams of a flow, counted by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Datagrams {
    /// Sent.
    pub sent: u64,
    /// Arrived, each counted once.
    pub received: u64,
    /// Arrived after a later one.
    pub reordered: u64,
    /// Arrived again.
    pub duplicates: u64,
}

/// The slowest, the median and the fastest flow, in bytes a second.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct RateSpread {
    /// The slowest.
    pub min: f64,
    /// The median.
    pub median: f64,
    /// The fastest.
    pub max: f64,
}

impl Datagrams {
    /// Returns the number that did not arrive.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }
}

impl Flow {
    /// Returns bytes a second; 0 without time.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a rate
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 / self.seconds } else { 0.0 }
    }
}

impl Outcome {
    /// Combines the results of both ends of each flow. A flow without a result from one end has failed.
    pub(super) fn of(
        system: &str,
        peer: &str,
        client: (MachineCounters, Vec<FlowEnd>),
        server: (MachineCounters, Vec<FlowEnd>),
    ) -> Self {
        let mut ways: Vec<DirectionOutcome> = Vec::new();
        for here in &client.1 {
            let there = server.1.iter().find(|there| there.number == here.number && there.sends != here.sends);
            let flow = flow(here, there);
            match ways.iter_mut().find(|way| way.to == here.sends) {
                Some(way) => way.flows.push(flow),
                None => ways.push(DirectionOutcome { to: here.sends, flows: vec![flow] }),
            }
        }
        Self { system: system.to_owned(), peer: peer.to_owned(), client: client.0, server: server.0, ways }
    }

    /// Returns all flows.
    pub fn flows(&self) -> impl Iterator<Item = &Flow> {
        self.ways.iter().flat_map(|way| &way.flows)
    }

    /// Returns the bytes that arrived in time, of both directions together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.flows().map(|flow| flow.bytes).sum()
    }

    /// Returns the calls or datagrams that received them.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.flows().map(|flow| flow.operations).sum()
    }

    /// Returns the duration of the longest flow in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.flows().map(|flow| flow.seconds).fold(0.0, f64::max)
    }

    /// Returns the bytes a second of all flows.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a rate
    pub fn rate(&self) -> f64 {
        let seconds = self.seconds();
        if seconds > 0.0 { self.bytes() as f64 / seconds } else { 0.0 }
    }

    /// Returns the spread of the flows' rates; `None` without flows.
    #[must_use]
    pub fn spread(&self) -> Option<RateSpread> {
        RateSpread::of(&self.flows().map(Flow::rate).collect::<Vec<_>>())
    }

    /// Returns the first failure of each failed flow.
    pub fn failures(&self) -> impl Iterator<Item = String> + '_ {
        self.flows().filter_map(|flow| Some(format!("flow {}: {}", flow.number, flow.failures.first()?)))
    }
}

impl RateSpread {
    /// Returns the spread of `rates`; `None` if there are none.
    #[must_use]
    pub fn of(rates: &[f64]) -> Option<Self> {
        let (min, max) = rates.iter().fold((f64::INFINITY, 0.0), |(min, max), rate| (rate.min(min), rate.max(max)));
        Some(Self { min, median: median(rates)?, max })
    }
}

fn flow(here: &FlowEnd, there: Option<&FlowEnd>) -> Flow {
    let mut failures = Vec::new();
    // The receiver knows better why bytes did not arrive.
    let (sender, receiver) = if here.sends { (Some(here), there) } else { (there, Some(here)) };
    failures.extend([receiver, sender].into_iter().flatten().filter_map(|end| end.failure.clone()));
    if there.is_none() {
        failures.push("the other side has no result of it".to_owned());
    }
    if let (Some(sender), Some(receiver), true) = (sender, receiver, failures.is_empty() && !here.is_udp)
        && sender.bytes != receiver.bytes
    {
        failures.push(format!("{} bytes were sent, and {} arrived", sender.bytes, receiver.bytes));
    }
    let datagrams = here.is_udp.then(|| Datagrams {
        sent: sender.map_or(0, |end| end.operations),
        received: receiver.map_or(0, |end| end.operations),
        reordered: receiver.map_or(0, |end| end.reordered),
        duplicates: receiver.map_or(0, |end| end.duplicates),
    });
    Flow {
        number: here.number,
        bytes: receiver.map_or(0, |end| end.in_time),
        arrived: receiver.map_or(0, |end| end.bytes),
        operations: receiver.map_or(0, |end| end.operations),
        seconds: receiver.map_or(0.0, |end| end.seconds),
        sent: sender.map_or(0, |end| end.bytes),
        tcp: sender.and_then(|end| end.tcp.clone()),
        datagrams,
        failures,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(number: u32, sends: bool, bytes: u64, seconds: f64) -> FlowEnd {
        FlowEnd { number, sends, bytes, in_time: bytes, operations: bytes / 100, seconds, ..FlowEnd::default() }
    }

    #[test]
    fn only_arrived_bytes_count() {
        let client = vec![end(0, true, 800, 1.0), end(1, true, 1000, 1.0), end(2, false, 500, 2.0)];
        let server = vec![end(2, true, 500, 1.0), end(0, false, 800, 2.0), end(1, false, 1000, 1.0)];
        let outcome =
            Outcome::of("s", "h:1", (MachineCounters::default(), client), (MachineCounters::default(), server));
        assert_eq!((outcome.bytes(), outcome.seconds(), outcome.rate()), (2300, 2.0, 1150.0));
        assert_eq!(outcome.spread(), Some(RateSpread { min: 250.0, median: 400.0, max: 1000.0 }));
        let [to, from] = &outcome.ways[..] else { panic!("{outcome:?}") };
        assert_eq!((to.to, to.flows.len(), from.to, from.flows[0].sent), (true, 2, false, 500));
        assert_eq!(outcome.failures().count(), 0);
    }

    #[test]
    fn loss_is_the_number_of_sent_datagrams_that_did_not_arrive() {
        let sender = FlowEnd { is_udp: true, ..end(0, true, 1000, 1.0) };
        let receiver = FlowEnd { is_udp: true, operations: 7, reordered: 2, duplicates: 1, ..end(0, false, 700, 1.0) };
        let outcome = Outcome::of(
            "s",
            "h:1",
            (MachineCounters::default(), vec![sender]),
            (MachineCounters::default(), vec![receiver]),
        );
        let datagrams = outcome.flows().next().unwrap().datagrams.unwrap();
        assert_eq!((datagrams.lost(), datagrams.reordered, datagrams.duplicates), (3, 2, 1));
    }

    #[test]
    fn tcp_bytes_that_did_not_arrive_are_a_failure() {
        let (client, server) = (vec![end(0, true, 1000, 1.0)], vec![end(0, false, 900, 1.0)]);
        let outcome =
            Outcome::of("s", "h:1", (MachineCounters::default(), client), (MachineCounters::default(), server));
        assert_eq!(outcome.failures().collect::<Vec<_>>(), ["flow 0: 1000 bytes were sent, and 900 arrived"]);
    }

    #[test]
    fn a_flow_without_a_result_from_one_side_has_failed() {
        let outcome = Outcome::of(
            "s",
            "h:1",
            (MachineCounters::default(), vec![end(0, true, 5, 1.0)]),
            (MachineCounters::default(), vec![]),
        );
        assert_eq!((outcome.bytes(), outcome.failures().count()), (0, 1));
    }
}
