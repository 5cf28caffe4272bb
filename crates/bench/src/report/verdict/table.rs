//! The decision table: an ordered list of rows, each with its condition. The first that holds is the verdict.
//! `docs/how-to/bench.md` has the same rows.

use serde::{Deserialize, Serialize};

use super::evidence::{DataRoute, Evidence, Machine};
use crate::report::{Ceiling, Stage};

/// The shares of the requested rate between which it was kept. A rate above the upper bound was not the requested
/// one.
const ASKED_KEPT: f64 = 0.97;
const ASKED_EXCEEDED: f64 = 1.03;
/// From this share of a stage's rate on, the stage is the bottleneck.
const CEILING_REACHED: f64 = 0.85;
/// Above this share of its rate, the stage is no ceiling: the data came from a cache.
const CEILING_BELIEVED: f64 = 1.25;
/// The busy share of all processors at which they are the bottleneck.
const CPU_BUSY: f64 = 0.9;
/// The same for a single processor.
const CORE_BUSY: f64 = 0.95;
/// A worker that uses more of a processor only computes.
const WORKER_BUSY: f64 = 0.9;
/// The share of a link's speed at which it is full.
const LINK_FULL: f64 = 0.9;
/// The share of retransmitted TCP segments that is too high.
const RETRANSMITTED: f64 = 0.01;
/// The fewest sent segments for which a share is meaningful.
const SEGMENTS_MIN: f64 = 1000.0;
/// The busy share of a disk at which it is the bottleneck.
const DISK_BUSY: f64 = 0.9;
/// With fewer requests under way, a disk's latency is the bottleneck, not its rate.
const DISK_QUEUE: f64 = 1.5;
/// The share of time waiting for I/O at which I/O is the bottleneck.
const IO_WAITED: f64 = 0.7;
/// The share of time waiting for memory that is too high.
const MEMORY_WAITED: f64 = 0.1;
/// How much faster the same work must be in separate directories.
const DIRECTORY_SLOWER: f64 = 1.5;
/// The factor of workers that should give a higher rate.
const MORE_WORKERS: f64 = 2.0;
/// Growth below this means none.
const NO_GROWTH: f64 = 1.15;
/// A worker with more operations under way, on average, only waits.
const WAITING: f64 = 0.8;
/// The bytes of an operation up to which latency dominates, not data.
const SMALL: f64 = 65_536.0;

/// A bottleneck.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// The requested rate.
    AskedRate,
    /// The client's own generation and checking of data.
    Generator,
    /// The network to the system, by its own measurement.
    NetworkStage,
    /// The disk below the system, by its own measurement.
    DiskStage,
    /// The client's processors.
    ClientCpu,
    /// A server's processors.
    ServerCpu,
    /// One processor of the client.
    ClientCore,
    /// One processor of a server.
    ServerCore,
    /// A network interface.
    Link,
    /// Losses in the network.
    Retransmits,
    /// A disk.
    Disk,
    /// Waiting for I/O although no disk is busy.
    Io,
    /// Lack of memory.
    Memory,
    /// A single directory shared by all.
    OneDirectory,
    /// A resource that only one operation can hold at a time.
    Locks,
    /// The latency of small operations.
    Answers,
    /// The route between client and servers.
    Between,
    /// Unknown.
    NotKnown,
}

/// A row of the table.
pub struct Rule {
    /// The bottleneck.
    pub bound: Bound,
    /// The condition as readable text.
    pub when: fn() -> String,
    /// The verdict as readable text.
    pub says: &'static str,
    /// Returns the evidence, if the condition holds.
    pub test: fn(&Evidence) -> Option<String>,
}

/// The table.
pub const RULES: [Rule; 18] = [
    Rule {
        bound: Bound::AskedRate,
        when: || {
            format!(
                "a rate was requested, and {} to {} of it was kept, without the first operations",
                percent(ASKED_KEPT),
                percent(ASKED_EXCEEDED)
            )
        },
        says: "the requested rate",
        test: |found| {
            let asked = found.asked.filter(|asked| *asked > 0.0)?;
            // Each worker's first operation starts before any time has passed.
            let most = ASKED_EXCEEDED * asked + found.at_once;
            (ASKED_KEPT * asked..=most)
                .contains(&found.figure)
                .then(|| format!("{} of the requested rate was kept", percent(found.figure / asked)))
        },
    },
    Rule {
        bound: Bound::Generator,
        when: || {
            format!(
                "{} to {} of the rate at which the client alone makes or checks data; or there is no system",
                percent(CEILING_REACHED),
                percent(CEILING_BELIEVED)
            )
        },
        says: "this client: making and checking data",
        test: |found| match found.way {
            DataRoute::None => Some("the client worked alone".to_owned()),
            _ => reached(found, Stage::Client),
        },
    },
    Rule {
        bound: Bound::NetworkStage,
        when: || {
            let (low, high) = (percent(CEILING_REACHED), percent(CEILING_BELIEVED));
            format!("{low} to {high} of the rate of equally many flows through the network alone")
        },
        says: "the network to the system",
        test: |found| reached(found, Stage::Network),
    },
    Rule {
        bound: Bound::DiskStage,
        when: || {
            let (low, high) = (percent(CEILING_REACHED), percent(CEILING_BELIEVED));
            format!("{low} to {high} of the rate of the disk below on the same work")
        },
        says: "the disk below the system",
        test: |found| reached(found, Stage::Disk),
    },
    Rule {
        bound: Bound::ClientCpu,
        when: || format!("all processors of a client were busy at least {} of the time", percent(CPU_BUSY)),
        says: "the client's CPU",
        test: |found| {
            let shared = if found.way == DataRoute::SameMachine { "; the server also runs on it" } else { "" };
            let used = format!("; the bench itself used {:.1} processors{shared}", found.bench_cores);
            Some(busy_cpu(&found.clients)? + &used)
        },
    },
    Rule {
        bound: Bound::ServerCpu,
        when: || format!("all processors of a server were busy at least {} of the time", percent(CPU_BUSY)),
        says: "a server's CPU",
        test: |found| busy_cpu(&found.servers),
    },
    Rule {
        bound: Bound::ClientCore,
        when: || {
            let (core, worker) = (percent(CORE_BUSY), percent(WORKER_BUSY));
            format!(
                "one processor of a client was busy at least {core} of the time, or each worker of the bench at least {worker}"
            )
        },
        says: "a single core of the client",
        test: |found| {
            let each = found.bench_cores / f64::from(found.workers.max(1));
            let workers = || {
                format!(
                    "the {} workers of the bench used {:.2} processors: they were computing all the time",
                    found.workers, found.bench_cores
                )
            };
            // Another tool has its own threads, and its CPU time includes its startup and its summary.
            busy_core(&found.clients).or_else(|| (each >= WORKER_BUSY && !found.is_foreign).then(workers))
        },
    },
    Rule {
        bound: Bound::ServerCore,
        when: || format!("one processor of a server was busy at least {} of the time", percent(CORE_BUSY)),
        says: "a single core of a server",
        test: |found| busy_core(&found.servers),
    },
    Rule {
        bound: Bound::Link,
        when: || {
            format!(
                "the system is reached over a network, and an interface moved at least {} of its speed in one direction",
                percent(LINK_FULL)
            )
        },
        says: "the network: a link is full",
        test: |found| {
            found.networked().find_map(|machine| {
                let link = machine.link.as_ref()?;
                let speed = link.speed.filter(|speed| *speed > 0.0)?;
                let say = || {
                    format!(
                        "{} of {} moved {:.0} of at most {:.0} MB/s",
                        link.name,
                        machine.name,
                        link.rate / 1e6,
                        speed / 1e6
                    )
                };
                (link.rate >= LINK_FULL * speed).then(say)
            })
        },
    },
    Rule {
        bound: Bound::Retransmits,
        when: || {
            format!(
                "the system is reached over a network, and a machine retransmitted at least {} of its TCP segments, of at least {SEGMENTS_MIN:.0}",
                percent(RETRANSMITTED)
            )
        },
        says: "the network: losses",
        test: |found| {
            let say = |machine: &Machine| {
                format!("{} retransmitted {:.1} % of its TCP segments", machine.name, 100.0 * machine.retransmitted)
            };
            let lossy = |machine: &&Machine| machine.segments >= SEGMENTS_MIN && machine.retransmitted >= RETRANSMITTED;
            found.networked().find(lossy).map(say)
        },
    },
    Rule {
        bound: Bound::Disk,
        when: || format!("a disk that may hold the data was busy at least {} of the time", percent(DISK_BUSY)),
        says: "the disk",
        test: |found| {
            found.with_disks().find_map(|machine| {
                let disk = machine.disk.as_ref().filter(|disk| disk.busy >= DISK_BUSY)?;
                let mut text = format!(
                    "{} of {} was busy {} of the time and moved {:.0} MB/s",
                    disk.name,
                    machine.name,
                    percent(disk.busy),
                    disk.rate / 1e6
                );
                if disk.queue < DISK_QUEUE {
                    text += &format!(
                        "; {:.1} requests were under way, so its latency is the limit: more requests at a time may be faster",
                        disk.queue
                    );
                }
                Some(text)
            })
        },
    },
    Rule {
        bound: Bound::Io,
        when: || format!("programs waited for I/O at least {} of the time, and no disk was busy", percent(IO_WAITED)),
        says: "I/O behind the path: a mounted system, or a limit on the disk",
        test: |found| {
            found.with_disks().find_map(|machine| {
                let waited = machine.pressure.as_ref()?.io;
                (waited >= IO_WAITED)
                    .then(|| format!("programs of {} waited for I/O {} of the time", machine.name, percent(waited)))
            })
        },
    },
    Rule {
        bound: Bound::Memory,
        when: || format!("programs waited for memory at least {} of the time", percent(MEMORY_WAITED)),
        says: "lack of memory",
        test: |found| {
            found.machines().find_map(|machine| {
                let waited = machine.pressure.as_ref()?.memory;
                (waited >= MEMORY_WAITED)
                    .then(|| format!("programs of {} waited for memory {} of the time", machine.name, percent(waited)))
            })
        },
    },
    Rule {
        bound: Bound::OneDirectory,
        when: || {
            format!(
                "all workers use one directory, and in separate directories they are {DIRECTORY_SLOWER} times as fast"
            )
        },
        says: "the shared directory: its changes wait for each other",
        test: |found| {
            let faster = found.own_directories.filter(|faster| *faster >= DIRECTORY_SLOWER)?;
            Some(format!("in separate directories the rate was {faster:.2} times as high"))
        },
    },
    Rule {
        bound: Bound::Locks,
        when: || {
            format!(
                "with {MORE_WORKERS} times the workers or more it is less than {NO_GROWTH} times as fast, all machines were watched, and no condition above holds"
            )
        },
        says: "something that only one operation can use at a time: a lock, or a single thread",
        test: |found| {
            let growth = found.growth.filter(|_| found.is_seen())?;
            let more = f64::from(found.workers) / f64::from(growth.fewer.max(1));
            (more >= MORE_WORKERS && growth.ratio < NO_GROWTH).then(|| {
                format!(
                    "{} workers did {:.2} times the work of {}, and no watched resource was busy",
                    found.workers, growth.ratio, growth.fewer
                )
            })
        },
    },
    Rule {
        bound: Bound::Answers,
        when: || {
            format!(
                "operations of at most {} KiB, each worker waits for one at least {} of the time (without the bench's own computing), and no condition above holds",
                SMALL / 1024.0,
                percent(WAITING)
            )
        },
        says: "the latency of answers: each worker waits for them",
        test: |found| {
            let each = waiting(found)?;
            let took = found.latency_us.map(super::super::figures::took).unwrap_or_default();
            (found.operation_bytes <= SMALL).then(|| {
                format!(
                    "each of {} workers waited for answers {} of the time, half of them longer than {took}",
                    found.workers,
                    percent(each.min(1.0))
                )
            })
        },
    },
    Rule {
        bound: Bound::Between,
        when: || {
            format!(
                "clients and servers were watched, workers wait at least {} of the time, and no condition above holds",
                percent(WAITING)
            )
        },
        says: "the route between client and servers: its delay, or a limit on it; more requests under way may be faster",
        test: |found| {
            waiting(found)?;
            let both = found.way == DataRoute::Network && !found.clients.is_empty() && !found.servers.is_empty();
            both.then(|| format!("{:.1} requests were under way, and neither end was busy", found.under_way))
        },
    },
    Rule {
        bound: Bound::NotKnown,
        when: || "no condition above holds".to_owned(),
        says: "not known",
        test: |found| Some(looked_at(found)),
    },
];

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn reached(found: &Evidence, stage: Stage) -> Option<String> {
    let Ceiling { share, rate, .. } = *found.ceiling(stage)?;
    (CEILING_REACHED..=CEILING_BELIEVED)
        .contains(&share)
        .then(|| format!("{} of the {:.0} MB/s of the {} alone", percent(share), rate / 1e6, stage.name()))
}

fn busy_cpu(machines: &[Machine]) -> Option<String> {
    let say = |machine: &Machine| {
        format!("the processors of {} were busy {} of the time", machine.name, percent(machine.cpu))
    };
    machines.iter().find(|machine| machine.cpu >= CPU_BUSY).map(say)
}

fn busy_core(machines: &[Machine]) -> Option<String> {
    let say = |machine: &Machine| {
        let (one, all) = (percent(machine.core), percent(machine.cpu));
        format!("one processor of {} was busy {one} of the time, all together {all}", machine.name)
    };
    machines.iter().find(|machine| machine.core >= CORE_BUSY).map(say)
}

/// Returns the operations under way for each worker, if it did nothing but wait for them. System calls that compute
/// are the client's own time.
fn waiting(found: &Evidence) -> Option<f64> {
    let each = (found.under_way - found.bench_cores).max(0.0) / f64::from(found.workers.max(1));
    (each >= WAITING).then_some(each)
}

/// Lists the observations, for further investigation.
fn looked_at(found: &Evidence) -> String {
    let mut seen: Vec<String> = Vec::new();
    for machine in found.machines() {
        let mut of = vec![format!("processors {} busy, one of them {}", percent(machine.cpu), percent(machine.core))];
        if let Some(disk) = &machine.disk {
            of.push(format!("disk {} {} busy", disk.name, percent(disk.busy)));
        }
        if let Some(link) = &machine.link {
            let speed = link.speed.map_or("unknown speed".to_owned(), |speed| format!("{:.0} MB/s", speed / 1e6));
            of.push(format!("{} {:.0} MB/s of {speed}", link.name, link.rate / 1e6));
        }
        if let Some(pressure) = &machine.pressure {
            of.push(format!("waited for I/O {}, for memory {}", percent(pressure.io), percent(pressure.memory)));
        }
        seen.push(format!("{}: {}", machine.name, of.join(", ")));
    }
    if found.clients.is_empty() {
        seen.push("the time was too short to observe this client".to_owned());
    } else if found.is_short() {
        seen.push("the time was too short for a verdict from these figures".to_owned());
    }
    if found.servers.is_empty() && found.way == DataRoute::Network {
        seen.push("no server was watched".to_owned());
    }
    for ceiling in &found.ceilings {
        seen.push(format!("{} of the rate of the {} alone", percent(ceiling.share), ceiling.stage.name()));
    }
    seen.join("; ")
}
