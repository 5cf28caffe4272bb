//! `[[network]]`.

use serde::Deserialize;

use super::super::trial::{Phase, Work};
use super::super::value::{Many, Rate, Size};
use super::{Section, each, named, one, product, request, size};
use crate::network::{Direction, NetworkSpec, Processes, Protocol};
use crate::workload::{FlowTool, ForeignFlowsSpec};

/// Flows with the far sides of systems, in all combinations of the parameters.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// What it is called in results.
    pub name: String,
    /// What carries the bytes.
    #[serde(default = "tcp")]
    pub protocols: Many<Protocol>,
    /// Where they go, one after the other.
    #[serde(default = "both_ways")]
    pub directions: Vec<Direction>,
    /// Flows at a time, of each direction.
    #[serde(default = "one")]
    pub flows: Many<u32>,
    /// Who moves them.
    #[serde(default = "one_process")]
    pub processes: Many<Processes>,
    /// One system after the other, or all together.
    #[serde(default = "each_alone")]
    pub at_once: Many<bool>,
    /// For how long each.
    #[serde(default = "some_seconds")]
    pub seconds: u32,
    /// Bytes of each call of TCP.
    #[serde(default = "block")]
    pub block: Size,
    /// Bytes of each datagram of UDP.
    #[serde(default = "datagram")]
    pub datagram: Size,
    /// Bytes a second of each flow.
    #[serde(default = "flat_out")]
    pub rate: Many<Rate>,
    /// Other tools on the same flows, each right after our own.
    #[serde(default)]
    pub beside: Vec<FlowTool>,
}

fn tcp() -> Many<Protocol> {
    Many::One(Protocol::Tcp)
}

fn both_ways() -> Vec<Direction> {
    vec![Direction::To, Direction::From]
}

fn one_process() -> Many<Processes> {
    Many::One(Processes::One)
}

fn each_alone() -> Many<bool> {
    Many::One(false)
}

fn some_seconds() -> u32 {
    10
}

fn block() -> Size {
    Size(128 << 10)
}

/// Fits into a packet of an Ethernet whose packets are of 1,500 bytes, with IPv6, UDP and a tunnel's heads.
fn datagram() -> Size {
    Size(1400)
}

fn flat_out() -> Many<Rate> {
    Many::One(Rate(None))
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
            spec.block_bytes = request(if protocol == Protocol::Tcp { self.block.0 } else { self.datagram.0 });
        });
        let specs = each(specs, &self.flows, |spec, flows| spec.flows = flows);
        let specs = each(specs, &self.processes, |spec, processes| spec.processes = processes);
        let specs = each(specs, &self.at_once, |spec, at_once| spec.at_once = at_once);
        let specs = each(specs, &self.rate, |spec, rate| spec.rate = rate.0);
        let work = |spec: NetworkSpec| Work {
            parameters: named([
                ("protocol", if spec.protocol == Protocol::Tcp { "TCP" } else { "UDP" }.to_owned()),
                ("flows", spec.flows.to_string()),
                ("processes", if spec.processes == Processes::One { "one" } else { "one each" }.to_owned()),
                ("systems", if spec.at_once { "all at once" } else { "each alone" }.to_owned()),
                ("block", size(u64::from(spec.block_bytes))),
                ("rate", spec.rate.map_or("flat out".to_owned(), |rate| format!("{}/s each", size(rate)))),
            ]),
            phases: self
                .directions
                .iter()
                .flat_map(|direction| {
                    let work = NetworkSpec { direction: *direction, ..spec.clone() };
                    let theirs =
                        |tool: &FlowTool| Phase::ForeignFlows(ForeignFlowsSpec { tool: *tool, work: work.clone() });
                    // What a network carries changes with the time: one tool right after the other.
                    let theirs: Vec<Phase> = self.beside.iter().map(theirs).collect();
                    std::iter::once(Phase::Network(work)).chain(theirs)
                })
                .collect(),
            ..Work::new(&self.name)
        };
        specs.into_iter().map(work).collect()
    }
}
