//! Measures one phase: the work second by second, its cost on this machine, and the machine's activity meanwhile.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::load::{Group, Reading, Tally, WorkerPool};
use crate::network::Outcome;
use crate::sampling::{Observer, Sample, Series};
use crate::workload::Unit;

/// The measurement of a role.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Measured {
    /// The seconds from the common start to the end of the last worker.
    pub wall_s: f64,
    /// The work of all workers together.
    pub tally: Tally,
    /// The work done at the end of each second (or of each `second_s` seconds) from the start. The last entry is
    /// the end.
    pub seconds: Vec<Reading>,
    /// The seconds between two of these entries. More than one if there would be too many.
    #[serde(default = "one")]
    pub second_s: u32,
    /// User and system CPU time of this process and of the programs that it ran, in seconds. If a crew has several
    /// roles, the first role has all of it.
    pub client_cpu_s: f64,
    /// The system CPU time of these, in seconds, to a hundredth.
    #[serde(default)]
    pub client_system_s: f64,
    /// This machine second by second, with the helper processes that do a part of the client's work. Samples are
    /// longer if there would be too many.
    pub client: Vec<Sample>,
    /// The reasons of workers that did nothing.
    pub idle_workers: Vec<String>,
}

fn one() -> u32 {
    1
}

/// The most samples of this machine: one for each second of an hour, then longer ones.
const SAMPLES_MAX: usize = 3600;

/// The progress of a phase, for display.
#[derive(Clone, Copy, Default, Debug)]
pub struct Progress {
    /// The time since the start.
    pub elapsed: Duration,
    /// Done so far.
    pub done: Reading,
    /// Done in the last second.
    pub last: Reading,
}

impl Measured {
    /// Returns the record of work that was not begun.
    pub(crate) fn nothing(tally: Tally) -> Self {
        Self {
            wall_s: 0.0,
            tally,
            seconds: Vec::new(),
            second_s: 1,
            client_cpu_s: 0.0,
            client_system_s: 0.0,
            client: Vec::new(),
            idle_workers: Vec::new(),
        }
    }

    /// Returns operations a second, from the start to the end of the last worker; 0 without work.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a rate
    pub fn operation_rate(&self) -> f64 {
        if self.wall_s > 0.0 { self.tally.operations as f64 / self.wall_s } else { 0.0 }
    }

    /// Returns bytes a second.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a rate
    pub fn byte_rate(&self) -> f64 {
        if self.wall_s > 0.0 { self.tally.bytes as f64 / self.wall_s } else { 0.0 }
    }

    /// Returns the rate of each whole second (or of each `second_s` seconds), in bytes or operations a second.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a rate
    pub fn series(&self, unit: Unit) -> Vec<f64> {
        let whole = self.seconds.len().saturating_sub(1);
        let mut before = 0;
        self.seconds[..whole]
            .iter()
            .map(|reading| {
                let done = count(reading, unit);
                let in_it = done.saturating_sub(before);
                before = done;
                in_it as f64 / f64::from(self.second_s.max(1))
            })
            .collect()
    }
}

/// Returns the value of a reading that counts for figures with this unit.
#[must_use]
pub fn count(reading: &Reading, unit: Unit) -> u64 {
    match unit {
        Unit::Bytes | Unit::Efficiency => reading.bytes,
        Unit::Operations => reading.operations,
    }
}

/// One second of a crew's work.
#[derive(Debug)]
pub struct Second<'a> {
    /// The progress.
    pub progress: Progress,
    /// The work of each role so far.
    pub roles: &'a [Reading],
    /// The activity of the machine in this second.
    pub sample: &'a Sample,
}

/// Lets a crew work, for at most `limit`. Calls `watch` each second, which returns whether to continue. Returns the
/// measurement of each role.
#[must_use]
pub fn measure(
    worker_pool: WorkerPool,
    limit: Option<Duration>,
    mut watch: impl FnMut(Progress) -> bool,
) -> Vec<(&'static str, Measured)> {
    worker_pool.prepare();
    measure_at(worker_pool, Instant::now(), limit, &[], |second| watch(second.progress))
}

/// The same from `start` on with a prepared crew, and with more detail for each second. `helpers` are the names of
/// processes on this machine that do a part of the bench's work, such as a FUSE mount. The samples contain their
/// CPU time.
#[must_use]
pub fn measure_at(
    worker_pool: WorkerPool,
    start: Instant,
    limit: Option<Duration>,
    helpers: &[String],
    mut watch: impl FnMut(Second<'_>) -> bool,
) -> Vec<(&'static str, Measured)> {
    let times_before = ProcessTimes::read();
    let mut observer = Observer::new(helpers.to_vec());
    let (mut last, mut client, mut elapsed) = (Reading::default(), Series::new(SAMPLES_MAX), Duration::ZERO);
    let finished = worker_pool.run_at(start, limit, |roles| {
        let sample = observer.sample();
        client.push(sample.clone());
        // These are seconds of the work itself, without the preparation.
        elapsed += Duration::from_secs(1);
        let done = roles.iter().copied().sum();
        let progress = Progress { elapsed, done, last: Reading::since(done, last) };
        last = done;
        watch(Second { progress, roles, sample: &sample })
    });
    // The rest of the last second is a sample of its own; an agent reports it at its end.
    let last_sample = observer.sample();
    let times = ProcessTimes::read();
    let spent = |of: fn(&ProcessTimes) -> Duration| of(&times).saturating_sub(of(&times_before)).as_secs_f64();
    let mut cpu = Some((spent(ProcessTimes::all), spent(ProcessTimes::system)));
    let mut client = client.into_samples();
    client.push(last_sample);
    let mut client = Some(client);
    finished.roles.into_iter().map(|group| (group.role, measured(group, &mut cpu, &mut client))).collect()
}

/// Returns the kernel's ticks a second, its unit of CPU time.
#[must_use]
#[allow(clippy::cast_precision_loss)] // a hundred
pub fn ticks() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// The machine and its CPU time are reported once, with the first role, because they cannot be divided among roles.
fn measured(group: Group, cpu: &mut Option<(f64, f64)>, client: &mut Option<Vec<Sample>>) -> Measured {
    let mut tally = Tally::default();
    let mut idle_workers = Vec::new();
    for worker in &group.workers {
        match worker {
            Ok(one) => tally.merge(one),
            Err(error) => idle_workers.push(error.to_string()),
        }
    }
    let (client_cpu_s, client_system_s) = cpu.take().unwrap_or_default();
    // The bytes of flows were counted on arrival. The messages after that do not belong to the measured time.
    let arrived = tally.network.iter().map(Outcome::seconds).reduce(f64::max);
    Measured {
        wall_s: arrived.unwrap_or(group.wall.as_secs_f64()),
        tally,
        seconds: group.seconds,
        second_s: group.second_s,
        client_cpu_s,
        client_system_s,
        client: client.take().unwrap_or_default(),
        idle_workers,
    }
}

/// The CPU times of this process, and of the programs that it ran and waited for. They are read only here. A second
/// reader would count programs twice.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct ProcessTimes {
    /// User and system time of this process, by the kernel's finest clock.
    own: Duration,
    own_system: Duration,
    programs_user: Duration,
    programs_system: Duration,
}

impl ProcessTimes {
    fn read() -> Self {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        let own = Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0));
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        Self { own, ..Self::of(&stat, rustix::param::clock_ticks_per_second().max(1)) }
    }

    /// Parses `/proc/PID/stat`, proc(5): its fields 15 to 17, in `ticks` a second; zeros if they are missing.
    fn of(stat: &str, ticks: u64) -> Self {
        // The second field is a name in parentheses, which may contain blanks and parentheses.
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        let mut fields = after.split_ascii_whitespace().skip(12).map(|field| field.parse::<u64>().unwrap_or(0));
        let mut next = || {
            let count = fields.next().unwrap_or(0);
            Duration::from_secs(count / ticks)
                + Duration::from_secs(count % ticks) / u32::try_from(ticks).unwrap_or(100)
        };
        Self { own: Duration::ZERO, own_system: next(), programs_user: next(), programs_system: next() }
    }

    /// Returns user and system time of all of them.
    fn all(&self) -> Duration {
        self.own + self.programs_user + self.programs_system
    }

    /// Returns their system time.
    fn system(&self) -> Duration {
        self.own_system + self.programs_system
    }
}

/// Returns user and system time of this process, and of its children that have ended.
pub(crate) fn cpu_time() -> Duration {
    ProcessTimes::read().all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_line_is_parsed() {
        let times = ProcessTimes::of("7 (a) b) S 1 2 3 4 5 6 7 8 9 10 40 50 30 12 20 0", 100);
        let ms = Duration::from_millis;
        assert_eq!((times.own_system, times.programs_user, times.programs_system), (ms(500), ms(300), ms(120)));
        assert_eq!((times.all(), times.system()), (ms(420), ms(620)));
        assert_eq!(ProcessTimes::of("", 100), ProcessTimes::default());
    }
}
