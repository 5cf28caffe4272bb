//! The kernel's counters from its text files.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// The ticks of all processors together since boot, by kind (`/proc/stat`, proc(5)).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Cpu {
    /// User, including niced processes.
    pub user: u64,
    /// Kernel.
    pub system: u64,
    /// Idle.
    pub idle: u64,
    /// Idle while waiting for a disk.
    pub iowait: u64,
    /// Interrupts, including soft ones, which receive from the network.
    pub interrupts: u64,
    /// Taken by the hypervisor for other machines.
    pub steal: u64,
}

/// Counters of a network interface (`/proc/net/dev`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Interface {
    /// Bytes received.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
    /// Packets dropped or failed, in both directions.
    pub lost: u64,
    /// Its speed in each direction in bytes a second; `None`: unknown.
    pub speed: Option<u64>,
}

/// Counters of TCP and UDP (`/proc/net/snmp`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tcp {
    /// Segments sent.
    pub sent: u64,
    /// Segments retransmitted.
    pub retransmitted: u64,
    /// UDP datagrams that found no room.
    pub udp_dropped: u64,
}

/// Counters of a disk (`/proc/diskstats`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Disk {
    /// Requests read.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Requests written.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Milliseconds in which at least one request was under way.
    pub busy_ms: u64,
    /// The sum of the times of all requests, in milliseconds.
    pub waited_ms: u64,
}

/// Microseconds in which tasks were delayed by the lack of a resource (`/proc/pressure`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Pressure {
    /// Some tasks wait for a processor.
    pub cpu_us: u64,
    /// Some tasks wait for memory.
    pub memory_us: u64,
    /// Some tasks wait for a disk.
    pub io_us: u64,
    /// All tasks wait for a disk.
    pub io_full_us: u64,
}

/// The counters at one moment.
#[derive(Clone, Debug)]
pub struct Counters {
    /// The moment.
    pub at: Instant,
    /// The number of processors.
    pub processors: u32,
    /// The time of all processors.
    pub cpu: Cpu,
    /// The busy ticks and all ticks of each processor, by number.
    pub cores: BTreeMap<u32, (u64, u64)>,
    /// The interfaces by name.
    pub interfaces: BTreeMap<String, Interface>,
    /// TCP and UDP.
    pub tcp: Tcp,
    /// Whole disks by name, without partitions.
    pub disks: BTreeMap<String, Disk>,
    /// Available memory in bytes, including caches.
    pub memory_available: u64,
    /// All memory in bytes.
    pub memory_total: u64,
    /// Bytes that wait for writing to disks.
    pub dirty: u64,
    /// The pressure; `None`: the kernel does not count it.
    pub pressure: Option<Pressure>,
    /// The user and system ticks of each watched process, by id.
    pub processes: BTreeMap<u32, u64>,
}

impl Counters {
    /// Reads the counters below `proc` (`/proc`) and `sys` (`/sys`), and those of `processes` that exist. A counter
    /// that the kernel does not show is 0.
    #[must_use]
    pub fn read(proc: &Path, sys: &Path, processes: &[u32], at: Instant) -> Self {
        let text = |name: &str| std::fs::read_to_string(proc.join(name)).unwrap_or_default();
        let (meminfo, stat) = (text("meminfo"), text("stat"));
        let is_disk = |name: &str| sys.join("block").join(name).exists();
        let process = |id: &u32| {
            Some((*id, process_ticks(&std::fs::read_to_string(proc.join(id.to_string()).join("stat")).ok()?)?))
        };
        Self {
            at,
            processors: processors(&stat),
            cpu: cpu(&stat),
            cores: cores(&stat),
            interfaces: interfaces(&text("net/dev"), |name| link_speed(sys, name)),
            tcp: tcp(&text("net/snmp")),
            disks: disks(&text("diskstats"), is_disk),
            memory_available: kib(&meminfo, "MemAvailable:"),
            memory_total: kib(&meminfo, "MemTotal:"),
            dirty: kib(&meminfo, "Dirty:") + kib(&meminfo, "Writeback:"),
            pressure: pressure(&text("pressure/cpu"), &text("pressure/memory"), &text("pressure/io")),
            processes: processes.iter().filter_map(process).collect(),
        }
    }
}

fn numbers(words: &str) -> Vec<u64> {
    words.split_ascii_whitespace().map(|word| word.parse().unwrap_or(0)).collect()
}

fn cpu(stat: &str) -> Cpu {
    let Some(words) = stat.lines().find_map(|line| line.strip_prefix("cpu ")) else { return Cpu::default() };
    let n = numbers(words);
    let at = |place: usize| n.get(place).copied().unwrap_or(0);
    Cpu { user: at(0) + at(1), system: at(2), idle: at(3), iowait: at(4), interrupts: at(5) + at(6), steal: at(7) }
}

/// There is a line for each: `cpu0`, `cpu1`, ...
fn processors(stat: &str) -> u32 {
    let is_one =
        |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    u32::try_from(stat.lines().filter(is_one).count()).unwrap_or(u32::MAX)
}

fn cores(stat: &str) -> BTreeMap<u32, (u64, u64)> {
    stat.lines()
        .filter_map(|line| {
            let (number, words) = line.strip_prefix("cpu")?.split_once(' ')?;
            let n = numbers(words);
            // The fourth and fifth are idle and waiting for a disk. Those after the eighth are included in the
            // first two.
            let all: u64 = n.iter().take(8).sum();
            let busy = all.saturating_sub(n.get(3..5).map_or(0, |idle| idle.iter().sum()));
            Some((number.parse().ok()?, (busy, all)))
        })
        .collect()
}

fn interfaces(dev: &str, speed: impl Fn(&str) -> Option<u64>) -> BTreeMap<String, Interface> {
    dev.lines()
        .filter_map(|line| {
            let (name, words) = line.split_once(':')?;
            let n = numbers(words);
            let at = |place: usize| n.get(place).copied().unwrap_or(0);
            let lost = at(2) + at(3) + at(10) + at(11);
            (n.len() >= 16).then(|| {
                let name = name.trim();
                (name.to_owned(), Interface { received: at(0), sent: at(8), lost, speed: speed(name) })
            })
        })
        .collect()
}

/// The file has megabits a second. An interface without a speed returns an error or -1.
fn link_speed(sys: &Path, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(sys.join("class/net").join(name).join("speed")).ok()?;
    text.trim().parse::<u64>().ok().filter(|speed| *speed > 0)?.checked_mul(125_000)
}

/// The file has lines in pairs: names, then values.
fn tcp(snmp: &str) -> Tcp {
    let value = |kind: &str, name: &str| {
        let mut lines = snmp.lines().filter_map(|line| line.strip_prefix(kind));
        let place = lines.next()?.split_ascii_whitespace().position(|word| word == name)?;
        lines.next()?.split_ascii_whitespace().nth(place)?.parse().ok()
    };
    Tcp {
        sent: value("Tcp:", "OutSegs").unwrap_or(0),
        retransmitted: value("Tcp:", "RetransSegs").unwrap_or(0),
        udp_dropped: value("Udp:", "RcvbufErrors").unwrap_or(0) + value("Udp:", "SndbufErrors").unwrap_or(0),
    }
}

/// The sectors of this file have 512 bytes, whatever those of the disk are.
fn disks(diskstats: &str, is_disk: impl Fn(&str) -> bool) -> BTreeMap<String, Disk> {
    diskstats
        .lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let name = words.nth(2)?;
            let n: Vec<u64> = words.map(|word| word.parse().unwrap_or(0)).collect();
            let at = |place: usize| n.get(place).copied().unwrap_or(0);
            is_disk(name).then(|| {
                let disk = Disk {
                    reads: at(0),
                    read_bytes: at(2) * 512,
                    writes: at(4),
                    written_bytes: at(6) * 512,
                    busy_ms: at(9),
                    waited_ms: at(10),
                };
                (name.to_owned(), disk)
            })
        })
        .collect()
}

fn kib(meminfo: &str, name: &str) -> u64 {
    let words = meminfo.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    numbers(words).first().map_or(0, |kib| kib * 1024)
}

fn pressure(cpu: &str, memory: &str, io: &str) -> Option<Pressure> {
    let total = |text: &str, kind: &str| -> Option<u64> {
        text.lines().find(|line| line.starts_with(kind))?.split_once("total=")?.1.trim().parse().ok()
    };
    Some(Pressure {
        cpu_us: total(cpu, "some")?,
        memory_us: total(memory, "some")?,
        io_us: total(io, "some")?,
        io_full_us: total(io, "full")?,
    })
}

/// Returns the user and system ticks of a process (`/proc/PID/stat`). Its name may contain blanks and parentheses.
fn process_ticks(stat: &str) -> Option<u64> {
    let (_, words) = stat.rsplit_once(')')?;
    let n: Vec<&str> = words.split_ascii_whitespace().collect();
    Some(n.get(11)?.parse::<u64>().ok()? + n.get(12)?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        let found = cpu("cpu  100 5 50 1000 7 3 4 9 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n");
        assert_eq!(processors("cpu  100 5\ncpu0 1 1\ncpu1 2 2\nintr 5\n"), 2);
        assert_eq!(found, Cpu { user: 105, system: 50, idle: 1000, iowait: 7, interrupts: 7, steal: 9 });
        assert_eq!(cores("cpu  9 9 9 9\ncpu0 1 1 1 10 2 1 1 3 7 7\ncpu12 x\n")[&0], (8, 20));
        let dev = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes\n  eth0: 1000 10 1 2 0 0 0 0 2000 20 3 4 0 0 0 0\n";
        assert_eq!(
            interfaces(dev, |_| Some(7))["eth0"],
            Interface { received: 1000, sent: 2000, lost: 10, speed: Some(7) }
        );
        let snmp = "Tcp: RtoMin OutSegs RetransSegs\nTcp: 200 77 5\nUdp: InDatagrams RcvbufErrors SndbufErrors\nUdp: 1 2 3\nUdpLite: InDatagrams\nUdpLite: 0\n";
        assert_eq!(tcp(snmp), Tcp { sent: 77, retransmitted: 5, udp_dropped: 5 });
        let stats = " 254 0 vda 10 1 80 4 20 2 160 6 0 30 40 0 0\n 254 1 vda1 1 1 1 1 1 1 1 1 1 1 1\n";
        let found = disks(stats, |name| name == "vda");
        let right =
            Disk { reads: 10, read_bytes: 80 * 512, writes: 20, written_bytes: 160 * 512, busy_ms: 30, waited_ms: 40 };
        assert_eq!(found.into_iter().collect::<Vec<_>>(), vec![("vda".to_owned(), right)]);
        assert_eq!(kib("MemTotal:  24 kB\nMemAvailable:       12 kB\n", "MemAvailable:"), 12 * 1024);
        let some = "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";
        assert_eq!(pressure(some, some, some), Some(Pressure { cpu_us: 12, memory_us: 12, io_us: 12, io_full_us: 5 }));
        assert_eq!(pressure("", some, some), None);
        assert_eq!(process_ticks("7 (a) b) S 1 2 3 4 5 6 7 8 9 10 40 2 0 0"), Some(42));
    }

    #[test]
    fn files_of_any_bytes_are_read_without_a_panic() {
        for text in ["", "cpu \n", "eth0:\n", "Tcp: a\n", "Tcp: OutSegs\nTcp: x\n", "1 2\n", "some total=\n", ")"] {
            let _ = (
                cpu(text),
                cores(text),
                interfaces(text, |_| None),
                tcp(text),
                disks(text, |_| true),
                kib(text, "x"),
                pressure(text, text, text),
                process_ticks(text),
            );
        }
    }

    #[test]
    fn this_machine_has_counters() {
        let counters = Counters::read(Path::new("/proc"), Path::new("/sys"), &[std::process::id()], Instant::now());
        assert!(counters.cpu.user > 0 && counters.memory_total > counters.memory_available);
        assert!(counters.interfaces.contains_key("lo") && counters.processes.contains_key(&std::process::id()));
    }
}
