//! `[[network]]`.

use serde::Deserialize;

use super::super::trial::{Phase, Work};
use super::super::value::{OneOrMany, Rate, Size};
use super::{Section, each, named, one, product, rate, request};
use crate::network::{Direction, NetworkSpec, Processes, Protocol};
use crate::workload::{FlowTool, ForeignFlowsSpec};

/// Flows between clients and network-test servers, in all combinations of the parameters.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Its name in results.
    pub name: String,
    /// The protocols.
    #[serde(default = "tcp")]
    pub protocols: OneOrMany<Protocol>,
    /// The directions, one after the other.
    #[serde(default = "both_ways")]
    pub directions: Vec<Direction>,
    /// Flows at a time, of each direction.
    #[serde(default = "one")]
    pub flows: OneOrMany<u32>,
    /// The processes that move the bytes.
    #[serde(default = "one_process")]
    pub processes: OneOrMany<Processes>,
    /// Whether all systems are tested together or one after the other.
    #[serde(default = "each_alone")]
    pub at_once: OneOrMany<bool>,
    /// The duration of each test.
    #[serde(default = "some_seconds")]
    pub seconds: u32,
    /// The bytes of each TCP call.
    #[serde(default = "block")]
    pub block: Size,
    /// The bytes of each UDP datagram.
    #[serde(default = "datagram")]
    pub datagram: Size,
    /// The rate of each flow in bytes a second.
    #[serde(default = "flat_out")]
    pub rate: OneOrMany<Rate>,
    /// Other tools for the same flows, each right after the bench's own test.
    #[serde(default)]
    pub beside: Vec<FlowTool>,
}

fn tcp() -> OneOrMany<Protocol> {
    OneOrMany::One(Protocol::Tcp)
}

fn both_ways() -> Vec<Direction> {
    vec![Direction::To, Direction::From]
}

fn one_process() -> OneOrMany<Processes> {
    OneOrMany::One(Processes::One)
}

fn each_alone() -> OneOrMany<bool> {
    OneOrMany::One(false)
}

fn some_seconds() -> u32 {
    10
}

fn block() -> Size {
    Size::of(128 << 10)
}

/// Fits into an Ethernet packet of 1,500 bytes, including the headers of IPv6, UDP and a tunnel.
fn datagram() -> Size {
    Size::of(1400)
}

fn flat_out() -> OneOrMany<Rate> {
    OneOrMany::One(Rate(None))
}

impl Section for Network {
    fn combinations(&self) -> u64 {
        product([
            self.protocols.count(),
            self.flows.count(),
            self.processes.count(),
            self.at_once.count(),
            self.rate.count(),
        ])
    }

    fn works(&self, _seed: u64) -> Vec<Work> {
        let first = NetworkSpec {
            protocol: Protocol::Tcp,
            direction: Direction::To,
            flows: 0,
            processes: Processes::One,
            at_once: false,
            seconds: self.seconds,
            block_bytes: 0,
            rate: None,
        };
        let specs = each(vec![first], &self.protocols, |spec, protocol| {
            spec.protocol = protocol;
            spec.block_bytes = request(if protocol == Protocol::Tcp { self.block.bytes } else { self.datagram.bytes });
        });
        let specs = each(specs, &self.flows, |spec, flows| spec.flows = flows);
        let specs = each(specs, &self.processes, |spec, processes| spec.processes = processes);
        let specs = each(specs, &self.at_once, |spec, at_once| spec.at_once = at_once);
        let specs = each(specs, &self.rate, |spec, rate| spec.rate = rate.0.map(|rate| rate.bytes));
        let work = |spec: NetworkSpec| Work {
            parameters: named([
                ("protocol", if spec.protocol == Protocol::Tcp { "TCP" } else { "UDP" }.to_owned()),
                ("flows", spec.flows.to_string()),
                ("processes", if spec.processes == Processes::One { "one" } else { "one each" }.to_owned()),
                ("systems", if spec.at_once { "all at once" } else { "each alone" }.to_owned()),
                ("block", if spec.protocol == Protocol::Tcp { self.block } else { self.datagram }.to_string()),
                ("rate", rate(spec.rate, &self.rate)),
            ]),
            phases: self
                .directions
                .iter()
                .flat_map(|direction| {
                    let work = NetworkSpec { direction: *direction, ..spec.clone() };
                    let theirs =
                        |tool: &FlowTool| Phase::ForeignFlows(ForeignFlowsSpec { tool: *tool, work: work.clone() });
                    // A network's capacity changes with time, so one tool follows right after the other.
                    let theirs: Vec<Phase> = self.beside.iter().map(theirs).collect();
                    std::iter::once(Phase::Network(work)).chain(theirs)
                })
                .collect(),
            ..Work::new(&self.name)
        };
        specs.into_iter().map(work).collect()
    }
}
