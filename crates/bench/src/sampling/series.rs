//! The samples of a run of any length in bounded memory. With too many samples, each pair of neighbours is merged
//! into one of twice the length.

use std::collections::BTreeMap;

use super::{CpuShares, DiskRates, InterfaceRates, PressureShares, Sample};

/// A series of samples.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    samples: Vec<Sample>,
    /// The largest number of samples.
    max: usize,
    /// The number of pushed samples that are merged into one.
    each: usize,
    /// The number of samples merged into the last one.
    last: usize,
}

impl Series {
    /// A series of at most `max` samples.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { samples: Vec::new(), max: max.max(2), each: 1, last: 1 }
    }

    /// Adds the next sample.
    pub fn push(&mut self, sample: Sample) {
        if let Some(last) = self.samples.last_mut().filter(|_| self.last < self.each) {
            *last = last.joined(&sample);
            self.last += 1;
            return;
        }
        if self.samples.len() >= self.max {
            let pair = |pair: &[Sample]| match pair {
                [first, second] => first.joined(second),
                rest => rest.first().cloned().unwrap_or_default(),
            };
            let odd = self.samples.len() % 2;
            self.samples = self.samples.chunks(2).map(pair).collect();
            self.last = if odd == 1 { self.each } else { 2 * self.each };
            self.each *= 2;
            self.push(sample);
            return;
        }
        self.samples.push(sample);
        self.last = 1;
    }

    /// Returns all samples.
    #[must_use]
    pub fn into_samples(self) -> Vec<Sample> {
        self.samples
    }

    /// Returns the last sample.
    #[must_use]
    pub fn last(&self) -> Option<&Sample> {
        self.samples.last()
    }
}

impl Sample {
    /// Merges this sample with the next one.
    #[must_use]
    pub fn joined(&self, next: &Self) -> Self {
        let seconds = self.seconds + next.seconds;
        let share = if seconds > 0.0 { next.seconds / seconds } else { 0.5 };
        let mean = |first: f64, second: f64| first + (second - first) * share;
        let pressure = self.pressure.zip(next.pressure).map(|(first, second)| PressureShares {
            cpu: mean(first.cpu, second.cpu),
            memory: mean(first.memory, second.memory),
            io: mean(first.io, second.io),
            io_full: mean(first.io_full, second.io_full),
        });
        Self {
            seconds,
            processors: self.processors.max(next.processors),
            cpu: CpuShares {
                user: mean(self.cpu.user, next.cpu.user),
                system: mean(self.cpu.system, next.cpu.system),
                interrupts: mean(self.cpu.interrupts, next.cpu.interrupts),
                iowait: mean(self.cpu.iowait, next.cpu.iowait),
                steal: mean(self.cpu.steal, next.cpu.steal),
                idle: mean(self.cpu.idle, next.cpu.idle),
            },
            busiest_core: mean(self.busiest_core, next.busiest_core),
            interfaces: both(&self.interfaces, &next.interfaces, |first, second| InterfaceRates {
                received: mean(first.received, second.received),
                sent: mean(first.sent, second.sent),
                lost: mean(first.lost, second.lost),
                speed: second.speed.or(first.speed),
            }),
            segments: mean(self.segments, next.segments),
            retransmitted: mean(self.retransmitted, next.retransmitted),
            udp_dropped: mean(self.udp_dropped, next.udp_dropped),
            disks: both(&self.disks, &next.disks, |first, second| DiskRates {
                reads: mean(first.reads, second.reads),
                read_bytes: mean(first.read_bytes, second.read_bytes),
                writes: mean(first.writes, second.writes),
                written_bytes: mean(first.written_bytes, second.written_bytes),
                busy: mean(first.busy, second.busy),
                queue: mean(first.queue, second.queue),
            }),
            memory_used: self.memory_used.max(next.memory_used),
            dirty: self.dirty.max(next.dirty),
            pressure,
            processes: both(&self.processes, &next.processes, |first, second| mean(*first, *second)),
        }
    }

    /// Returns the CPU time of the whole machine in seconds, without waiting.
    #[must_use]
    pub fn machine_cpu_s(&self) -> f64 {
        let cpu = self.cpu;
        (cpu.user + cpu.system + cpu.interrupts) * f64::from(self.processors) * self.seconds
    }

    /// Returns the CPU time of the watched processes in seconds.
    #[must_use]
    pub fn processes_cpu_s(&self) -> f64 {
        self.processes.values().sum::<f64>() * self.seconds
    }
}

/// Combines the keys of both maps. A missing value is zero.
fn both<K: Ord + Clone, V: Default + Clone>(
    first: &BTreeMap<K, V>,
    second: &BTreeMap<K, V>,
    join: impl Fn(&V, &V) -> V,
) -> BTreeMap<K, V> {
    let (nothing, keys) = (V::default(), first.keys().chain(second.keys().filter(|key| !first.contains_key(*key))));
    let of = |key: &K| join(first.get(key).unwrap_or(&nothing), second.get(key).unwrap_or(&nothing));
    keys.map(|key| (key.clone(), of(key))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(second: u32) -> Sample {
        let of = f64::from(second);
        Sample {
            seconds: 1.0,
            processors: 4,
            cpu: CpuShares { user: 0.5, ..CpuShares::default() },
            segments: of,
            processes: [(second % 3, 2.0)].into(),
            interfaces: [("lo".to_owned(), InterfaceRates { sent: of, ..InterfaceRates::default() })].into(),
            ..Sample::default()
        }
    }

    #[test]
    fn a_long_run_keeps_its_sums_in_few_samples() {
        // The last is a week.
        for (max, seconds) in [(2, 3_u32), (7, 8), (8, 1000), (9, 1001), (100, 99), (3600, 7 * 86_400)] {
            let mut series = Series::new(max);
            (0..seconds).for_each(|second| series.push(sample(second)));
            let samples = series.into_samples();
            assert!(samples.len() <= max && samples.len() * 4 >= max.min(seconds as usize), "{max}: {}", samples.len());
            let all = f64::from(seconds);
            let sum = |of: fn(&Sample) -> f64| samples.iter().map(of).sum::<f64>();
            let close = |found: f64, right: f64| (found - right).abs() < 1e-6 * right.max(1.0);
            assert!(close(sum(|s| s.seconds), all), "{max} {seconds}");
            assert!(close(sum(|s| s.segments * s.seconds), all * (all - 1.0) / 2.0));
            assert!(close(sum(|s| s.interfaces["lo"].sent * s.seconds), all * (all - 1.0) / 2.0));
            assert!(close(sum(Sample::machine_cpu_s), 2.0 * all) && close(sum(Sample::processes_cpu_s), 2.0 * all));
        }
    }
}
