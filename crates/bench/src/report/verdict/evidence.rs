//! The evidence for the verdict on a figure.

use crate::report::{Ceiling, Stage};
use crate::sampling::{PressureShares, Sample};

/// The route of data to the system.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum DataRoute {
    /// By a path: this machine's disk, or a mount.
    #[default]
    Path,
    /// To a server on this machine.
    SameMachine,
    /// Over a network.
    Network,
    /// The client works alone, without a system.
    None,
}

/// A machine's activity during a phase, on average.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// The observed seconds.
    pub seconds: f64,
    /// The busy share of the time of all processors.
    pub cpu: f64,
    /// The busy share of the busiest processor.
    pub core: f64,
    /// The network interface that moved the most, without the loopback.
    pub link: Option<Link>,
    /// The TCP segments that it sent.
    pub segments: f64,
    /// The share of these that were retransmitted.
    pub retransmitted: f64,
    /// The busiest disk.
    pub disk: Option<DiskUse>,
    /// The pressure on resources.
    pub pressure: Option<PressureShares>,
}

/// A network interface.
#[derive(Clone, PartialEq, Debug)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// The bytes a second in the busier direction.
    pub rate: f64,
    /// Its speed in each direction in bytes a second, if known.
    pub speed: Option<f64>,
}

/// A disk.
#[derive(Clone, PartialEq, Debug)]
pub struct DiskUse {
    /// Its name.
    pub name: String,
    /// The share of time in which it was busy.
    pub busy: f64,
    /// The number of requests under way.
    pub queue: f64,
    /// The bytes a second in both directions.
    pub rate: f64,
}

/// The relation of a figure to that of the same work with fewer workers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Growth {
    /// The smaller number of workers.
    pub fewer: u32,
    /// The figure, divided by that of the fewer workers.
    pub ratio: f64,
}

/// The evidence for a verdict.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Evidence {
    /// The route of data to the system.
    pub way: DataRoute,
    /// Whether the route has a network: a server elsewhere, or a mounted network file system.
    pub is_networked: bool,
    /// Whether another tool did the work.
    pub is_foreign: bool,
    /// The average length of a repeat in seconds.
    pub seconds: f64,
    /// The figure.
    pub figure: f64,
    /// The requested rate, if there was one.
    pub asked: Option<f64>,
    /// The contribution of each worker's first operation to the figure.
    pub at_once: f64,
    /// The rates of the stages below.
    pub ceilings: Vec<Ceiling>,
    /// The clients.
    pub clients: Vec<Machine>,
    /// The servers that were watched.
    pub servers: Vec<Machine>,
    /// Workers.
    pub workers: u32,
    /// The processors that the bench itself used, on average.
    pub bench_cores: f64,
    /// The operations under way, on average.
    pub under_way: f64,
    /// The median latency in microseconds.
    pub latency_us: Option<u64>,
    /// The bytes of an operation.
    pub operation_bytes: f64,
    /// The comparison with fewer workers.
    pub growth: Option<Growth>,
    /// The rate of the same work with a directory for each client, divided by this figure with one directory.
    pub own_directories: Option<f64>,
}

/// In a shorter time the counters are too coarse.
const SECONDS_MIN: f64 = 0.5;

impl Machine {
    /// Averages its samples; `None`: their time is too short.
    pub fn of<'a>(name: &str, samples: impl Iterator<Item = &'a Sample> + Clone) -> Option<Self> {
        let seconds: f64 = samples.clone().map(|sample| sample.seconds).sum();
        if seconds < SECONDS_MIN {
            return None;
        }
        let mean = |of: &dyn Fn(&Sample) -> f64| {
            samples.clone().map(|sample| of(sample) * sample.seconds).sum::<f64>() / seconds
        };
        let (sent, again) = (mean(&|sample| sample.segments), mean(&|sample| sample.retransmitted));
        let names = |of: fn(&Sample) -> Vec<&String>| {
            let mut names: Vec<&String> = samples.clone().flat_map(of).collect();
            names.sort();
            names.dedup();
            names
        };
        let links =
            names(|sample| sample.interfaces.keys().filter(|name| *name != "lo").collect()).into_iter().map(|name| {
                let of = |part: fn(&crate::sampling::InterfaceRates) -> f64| {
                    mean(&|sample| sample.interfaces.get(name).map_or(0.0, part))
                };
                let speed = samples.clone().filter_map(|sample| sample.interfaces.get(name)?.speed).last();
                Link { name: name.clone(), rate: of(|of| of.received).max(of(|of| of.sent)), speed }
            });
        let disks = names(|sample| sample.disks.keys().collect()).into_iter().map(|name| {
            let of =
                |part: fn(&crate::sampling::DiskRates) -> f64| mean(&|sample| sample.disks.get(name).map_or(0.0, part));
            let rate = of(|of| of.read_bytes + of.written_bytes);
            DiskUse { name: name.clone(), busy: of(|of| of.busy), queue: of(|of| of.queue), rate }
        });
        let pressure = |part: fn(&PressureShares) -> f64| mean(&|sample| sample.pressure.as_ref().map_or(0.0, part));
        let counted = samples.clone().any(|sample| sample.pressure.is_some());
        Some(Self {
            name: name.to_owned(),
            seconds,
            cpu: mean(&|sample| 1.0 - sample.cpu.idle - sample.cpu.iowait),
            core: mean(&|sample| sample.busiest_core),
            link: links.filter(|link| link.rate > 0.0).max_by(|a, b| a.rate.total_cmp(&b.rate)),
            segments: sent * seconds,
            retransmitted: if sent > 0.0 { again / sent } else { 0.0 },
            disk: disks.filter(|disk| disk.busy > 0.0).max_by(|a, b| a.busy.total_cmp(&b.busy)),
            pressure: counted.then(|| PressureShares {
                cpu: pressure(|of| of.cpu),
                memory: pressure(|of| of.memory),
                io: pressure(|of| of.io),
                io_full: pressure(|of| of.io_full),
            }),
        })
    }
}

impl Evidence {
    /// Returns the ceiling of a stage.
    pub fn ceiling(&self, stage: Stage) -> Option<&Ceiling> {
        self.ceilings.iter().find(|ceiling| ceiling.stage == stage)
    }

    /// Returns the machines whose disks may hold the data.
    pub fn with_disks(&self) -> impl Iterator<Item = &Machine> {
        let local = matches!(self.way, DataRoute::Path | DataRoute::SameMachine);
        self.clients.iter().filter(move |_| local).chain(&self.servers)
    }

    /// Returns the machines that the network connects; none if the route has no network.
    pub fn networked(&self) -> impl Iterator<Item = &Machine> {
        self.machines().filter(|_| self.is_networked)
    }

    /// Whether all machines that take part were observed.
    pub fn is_seen(&self) -> bool {
        let at_servers = !self.servers.is_empty() || self.way == DataRoute::SameMachine;
        !self.clients.is_empty() && (at_servers || (self.way == DataRoute::Path && !self.is_networked))
    }

    /// Whether the time was too short to observe a machine.
    pub fn is_short(&self) -> bool {
        self.seconds < SECONDS_MIN
    }

    /// Returns all machines.
    pub fn machines(&self) -> impl Iterator<Item = &Machine> {
        self.clients.iter().chain(&self.servers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::{CpuShares, DiskRates, InterfaceRates};

    #[test]
    fn a_machine_is_the_average_over_its_time() {
        let sample = |seconds: f64, busy: f64| Sample {
            seconds,
            cpu: CpuShares { user: busy, idle: 1.0 - busy, ..CpuShares::default() },
            busiest_core: busy,
            interfaces: [
                ("lo".to_owned(), InterfaceRates { sent: 1e9, ..InterfaceRates::default() }),
                (
                    "eth0".to_owned(),
                    InterfaceRates { sent: 1e6, received: 3e6, speed: Some(125e6), ..InterfaceRates::default() },
                ),
            ]
            .into(),
            segments: 100.0,
            retransmitted: 2.0,
            disks: [("sda".to_owned(), DiskRates { busy, ..DiskRates::default() })].into(),
            ..Sample::default()
        };
        let samples = [sample(3.0, 1.0), sample(1.0, 0.2)];
        let machine = Machine::of("a", samples.iter()).unwrap();
        assert!((machine.cpu - 0.8).abs() < 1e-9 && (machine.core - 0.8).abs() < 1e-9 && machine.retransmitted == 0.02);
        assert!((machine.segments - 400.0).abs() < 1e-9);
        assert_eq!(machine.link, Some(Link { name: "eth0".into(), rate: 3e6, speed: Some(125e6) }));
        assert!(machine.disk.is_some_and(|disk| (disk.busy - 0.8).abs() < 1e-9) && machine.pressure.is_none());
        assert_eq!(Machine::of("a", samples[..0].iter()), None);
        assert_eq!(Machine::of("a", [sample(0.1, 1.0)].iter()), None);
    }
}
