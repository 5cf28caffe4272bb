//! The activity between two readings of the counters, in rates and shares.

use std::collections::BTreeMap;

use super::Counters;

/// The use of the processors' time, as shares of all of it (0 to 1).
#[derive(Clone, Copy, PartialEq, Default, Debug, serde::Serialize, serde::Deserialize)]
pub struct CpuShares {
    /// Programs.
    pub user: f64,
    /// The kernel on behalf of programs.
    pub system: f64,
    /// Interrupts, including receiving from the network.
    pub interrupts: f64,
    /// Idle, waiting for a disk.
    pub iowait: f64,
    /// Taken by the hypervisor.
    pub steal: f64,
    /// Idle.
    pub idle: f64,
}

/// The rates of an interface.
#[derive(Clone, Copy, PartialEq, Default, Debug, serde::Serialize, serde::Deserialize)]
pub struct InterfaceRates {
    /// Bytes a second received.
    pub received: f64,
    /// Bytes a second sent.
    pub sent: f64,
    /// Packets a second lost.
    pub lost: f64,
    /// Its speed in each direction in bytes a second; `None`: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
}

/// The rates of a disk.
#[derive(Clone, Copy, PartialEq, Default, Debug, serde::Serialize, serde::Deserialize)]
pub struct DiskRates {
    /// Requests read a second.
    pub reads: f64,
    /// Bytes read a second.
    pub read_bytes: f64,
    /// Requests written a second.
    pub writes: f64,
    /// Bytes written a second.
    pub written_bytes: f64,
    /// The share of time in which it was busy.
    pub busy: f64,
    /// The average number of requests under way.
    pub queue: f64,
}

/// The shares of time in which tasks were delayed by the lack of a resource.
#[derive(Clone, Copy, PartialEq, Default, Debug, serde::Serialize, serde::Deserialize)]
pub struct PressureShares {
    /// A processor.
    pub cpu: f64,
    /// Memory.
    pub memory: f64,
    /// A disk.
    pub io: f64,
    /// A disk, with all tasks waiting.
    pub io_full: f64,
}

/// The activity of a machine, usually in one second.
#[derive(Clone, PartialEq, Default, Debug, serde::Serialize, serde::Deserialize)]
pub struct Sample {
    /// The length in seconds.
    pub seconds: f64,
    /// The number of processors; 0: unknown.
    #[serde(default)]
    pub processors: u32,
    /// The use of their time.
    pub cpu: CpuShares,
    /// The busy share of the busiest processor.
    #[serde(default)]
    pub busiest_core: f64,
    /// Interfaces by name.
    pub interfaces: BTreeMap<String, InterfaceRates>,
    /// TCP segments sent a second.
    pub segments: f64,
    /// Retransmitted TCP segments a second.
    pub retransmitted: f64,
    /// UDP datagrams a second that found no room.
    pub udp_dropped: f64,
    /// Disks by name.
    pub disks: BTreeMap<String, DiskRates>,
    /// Bytes of memory in use, without caches.
    pub memory_used: u64,
    /// Bytes that wait for writing to disks.
    pub dirty: u64,
    /// The pressure; `None`: the kernel does not count it.
    pub pressure: Option<PressureShares>,
    /// The average number of processors that each watched process used (1: one of them all the time), by id.
    pub processes: BTreeMap<u32, f64>,
}

impl Sample {
    /// Computes the activity between two readings. `ticks` are the kernel's ticks a second
    /// (`sysconf(_SC_CLK_TCK)`). Counters that went back (a device was removed, or another process has the id)
    /// count as 0.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // counters of a second
    pub fn between(before: &Counters, after: &Counters, ticks: f64) -> Self {
        let seconds = after.at.saturating_duration_since(before.at).as_secs_f64().max(1e-6);
        let rate = |after: u64, before: u64| after.saturating_sub(before) as f64 / seconds;
        let interfaces = after.interfaces.iter().filter_map(|(name, now)| {
            let then = before.interfaces.get(name)?;
            let rates = InterfaceRates {
                received: rate(now.received, then.received),
                sent: rate(now.sent, then.sent),
                lost: rate(now.lost, then.lost),
                speed: now.speed.map(|speed| speed as f64),
            };
            Some((name.clone(), rates))
        });
        let disks = after.disks.iter().filter_map(|(name, now)| {
            let then = before.disks.get(name)?;
            let rates = DiskRates {
                reads: rate(now.reads, then.reads),
                read_bytes: rate(now.read_bytes, then.read_bytes),
                writes: rate(now.writes, then.writes),
                written_bytes: rate(now.written_bytes, then.written_bytes),
                busy: (rate(now.busy_ms, then.busy_ms) / 1000.0).min(1.0),
                queue: rate(now.waited_ms, then.waited_ms) / 1000.0,
            };
            Some((name.clone(), rates))
        });
        let pressure = after.pressure.zip(before.pressure).map(|(now, then)| {
            let share = |now: u64, then: u64| (rate(now, then) / 1e6).min(1.0);
            PressureShares {
                cpu: share(now.cpu_us, then.cpu_us),
                memory: share(now.memory_us, then.memory_us),
                io: share(now.io_us, then.io_us),
                io_full: share(now.io_full_us, then.io_full_us),
            }
        });
        let processes =
            after.processes.iter().filter_map(|(id, now)| Some((*id, rate(*now, *before.processes.get(id)?) / ticks)));
        Self {
            seconds,
            processors: after.processors,
            cpu: cpu_shares(before, after),
            busiest_core: busiest_core(before, after),
            interfaces: interfaces.collect(),
            segments: rate(after.tcp.sent, before.tcp.sent),
            retransmitted: rate(after.tcp.retransmitted, before.tcp.retransmitted),
            udp_dropped: rate(after.tcp.udp_dropped, before.tcp.udp_dropped),
            disks: disks.collect(),
            memory_used: after.memory_total.saturating_sub(after.memory_available),
            dirty: after.dirty,
            pressure,
            processes: processes.collect(),
        }
    }
}

#[allow(clippy::cast_precision_loss)] // ticks of a second
fn cpu_shares(before: &Counters, after: &Counters) -> CpuShares {
    let (now, then) = (after.cpu, before.cpu);
    let parts = [
        now.user.saturating_sub(then.user),
        now.system.saturating_sub(then.system),
        now.interrupts.saturating_sub(then.interrupts),
        now.iowait.saturating_sub(then.iowait),
        now.steal.saturating_sub(then.steal),
        now.idle.saturating_sub(then.idle),
    ];
    let all = parts.iter().sum::<u64>().max(1) as f64;
    let [user, system, interrupts, iowait, steal, idle] = parts.map(|part| part as f64 / all);
    CpuShares { user, system, interrupts, iowait, steal, idle }
}

#[allow(clippy::cast_precision_loss)] // ticks of a second
fn busiest_core(before: &Counters, after: &Counters) -> f64 {
    let share = |(number, (busy, all)): (&u32, &(u64, u64))| {
        let (busy_before, all_before) = before.cores.get(number)?;
        let all = all.saturating_sub(*all_before);
        (all > 0).then(|| busy.saturating_sub(*busy_before) as f64 / all as f64)
    };
    after.cores.iter().filter_map(share).fold(0.0, f64::max).min(1.0)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::sampling::{Cpu, Disk, Interface, Pressure, Tcp};

    fn counters(at: Instant, k: u64) -> Counters {
        Counters {
            at,
            processors: 2,
            cpu: Cpu { user: 50 * k, system: 20 * k, idle: 100 * k, iowait: 10 * k, interrupts: 15 * k, steal: 5 * k },
            cores: [(0, (10 * k, 100 * k)), (1, (90 * k, 100 * k))].into(),
            interfaces: [(
                "eth0".to_owned(),
                Interface { received: 1000 * k, sent: 500 * k, lost: 3 * k, speed: Some(125) },
            )]
            .into(),
            tcp: Tcp { sent: 100 * k, retransmitted: 2 * k, udp_dropped: k },
            disks: [(
                "sda".to_owned(),
                Disk {
                    reads: k,
                    read_bytes: 4096 * k,
                    writes: 0,
                    written_bytes: 0,
                    busy_ms: 500 * k,
                    waited_ms: 4000 * k,
                },
            )]
            .into(),
            memory_available: 100,
            memory_total: 300,
            dirty: 7,
            pressure: Some(Pressure { cpu_us: 250_000 * k, memory_us: 0, io_us: 500_000 * k, io_full_us: 0 }),
            processes: [(7, 150 * k)].into(),
        }
    }

    #[test]
    fn two_readings_give_rates_and_shares() {
        let start = Instant::now();
        let sample = Sample::between(&counters(start, 1), &counters(start + Duration::from_secs(2), 5), 100.0);
        assert_eq!(
            sample.cpu,
            CpuShares { user: 0.25, system: 0.1, interrupts: 0.075, iowait: 0.05, steal: 0.025, idle: 0.5 }
        );
        assert_eq!(sample.busiest_core, 0.9);
        assert_eq!(
            sample.interfaces["eth0"],
            InterfaceRates { received: 2000.0, sent: 1000.0, lost: 6.0, speed: Some(125.0) }
        );
        assert_eq!((sample.segments, sample.retransmitted, sample.udp_dropped), (200.0, 4.0, 2.0));
        assert_eq!((sample.disks["sda"].busy, sample.disks["sda"].queue), (1.0, 8.0));
        assert_eq!((sample.memory_used, sample.dirty), (200, 7));
        assert_eq!(sample.pressure.unwrap(), PressureShares { cpu: 0.5, memory: 0.0, io: 1.0, io_full: 0.0 });
        assert_eq!(sample.processes[&7], 3.0);
    }

    #[test]
    fn counters_that_go_back_count_as_zero() {
        let start = Instant::now();
        let sample = Sample::between(&counters(start, 5), &counters(start, 1), 100.0);
        assert_eq!((sample.cpu.user, sample.retransmitted, sample.processes[&7]), (0.0, 0.0, 0.0));
    }
}
