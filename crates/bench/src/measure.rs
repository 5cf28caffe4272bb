//! One piece of work, measured: what was done second by second, what it cost this machine, and what that machine did meanwhile.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::load::{Crew, Group, Reading, Tally};
use crate::network::Outcome;
use crate::sampling::{Observer, Sample, Series};
use crate::workload::Unit;

/// What came of it.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Measured {
    /// From the common start to the end of the last worker, in seconds.
    pub wall_s: f64,
    /// What all workers did together.
    pub tally: Tally,
    /// What had been done at the end of each second, or of each `second_s` seconds, from the start; the last entry is of the end.
    pub seconds: Vec<Reading>,
    /// Seconds between two of these: more than one where there would be too many.
    #[serde(default = "one")]
    pub second_s: u32,
    /// CPU time of this process and of the programs that it ran, user and system, in seconds; of a crew with several roles all of it is told with the first.
    pub client_cpu_s: f64,
    /// The part of it that the kernel spent, in seconds, to a hundredth.
    #[serde(default)]
    pub client_system_s: f64,
    /// This machine, second by second, with the processes that do the client's work for the bench; longer samples where there would be too many.
    pub client: Vec<Sample>,
    /// Workers that did nothing, and why.
    pub idle_workers: Vec<String>,
}

fn one() -> u32 {
    1
}

/// Most samples of this machine: one a second for an hour, then longer ones.
const SAMPLES_MAX: usize = 3600;

/// How far it is, for those who watch.
#[derive(Clone, Copy, Default, Debug)]
pub struct Progress {
    /// Since the start.
    pub elapsed: Duration,
    /// Done so far.
    pub done: Reading,
    /// Done in the last second.
    pub last: Reading,
}

impl Measured {
    /// Operations a second, from the start to the end of the last worker; 0 of nothing.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a rate
    pub fn operation_rate(&self) -> f64 {
        if self.wall_s > 0.0 { self.tally.operations as f64 / self.wall_s } else { 0.0 }
    }

    /// Bytes a second.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a rate
    pub fn byte_rate(&self) -> f64 {
        if self.wall_s > 0.0 { self.tally.bytes as f64 / self.wall_s } else { 0.0 }
    }

    /// The rate of each whole second, or of each `second_s` seconds: bytes, or operations, a second.
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

/// Of what has been done, that which figures count.
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
    /// How far it is.
    pub progress: Progress,
    /// What each role has done so far.
    pub roles: &'a [Reading],
    /// What the machine did in this second.
    pub sample: &'a Sample,
}

/// Lets a crew work, for `limit` at most; `watch` is called each second and says whether to go on. What came of it, role by role.
#[must_use]
pub fn measure(
    crew: Crew,
    limit: Option<Duration>,
    mut watch: impl FnMut(Progress) -> bool,
) -> Vec<(&'static str, Measured)> {
    crew.prepare();
    measure_at(crew, Instant::now(), limit, &[], |second| watch(second.progress))
}

/// The same from `start` on, with a crew that is prepared, for those who want to know more of each second. `helpers`: names of processes on this
/// machine that do a part of the work in the bench's stead, as that of a FUSE mount does; the samples have their CPU time.
#[must_use]
pub fn measure_at(
    crew: Crew,
    start: Instant,
    limit: Option<Duration>,
    helpers: &[String],
    mut watch: impl FnMut(Second<'_>) -> bool,
) -> Vec<(&'static str, Measured)> {
    let times_before = ProcessTimes::read();
    let mut observer = Observer::new(helpers.to_vec());
    let (mut last, mut client, mut elapsed) = (Reading::default(), Series::new(SAMPLES_MAX), Duration::ZERO);
    let finished = crew.run_at(start, limit, |roles| {
        let sample = observer.sample();
        client.push(sample.clone());
        // Seconds of the work itself: how long it took to get ready is nobody's time.
        elapsed += Duration::from_secs(1);
        let done = roles.iter().copied().sum();
        let progress = Progress { elapsed, done, last: Reading::since(done, last) };
        last = done;
        watch(Second { progress, roles, sample: &sample })
    });
    // What is left of the last second stands by itself: an agent tells it at its end.
    let last_sample = observer.sample();
    let times = ProcessTimes::read();
    let spent = |of: fn(&ProcessTimes) -> Duration| of(&times).saturating_sub(of(&times_before)).as_secs_f64();
    let mut cpu = Some((spent(ProcessTimes::all), spent(ProcessTimes::system)));
    let mut client = client.into_samples();
    client.push(last_sample);
    let mut client = Some(client);
    finished.roles.into_iter().map(|group| (group.role, measured(group, &mut cpu, &mut client))).collect()
}

/// The kernel's ticks a second, in which it counts CPU time.
#[must_use]
#[allow(clippy::cast_precision_loss)] // a hundred
pub fn ticks() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// The machine and its CPU time are told once, with the first role: nobody can divide them.
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
    // What came of flows was counted where bytes arrived; what was said about it afterwards is not a part of it.
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

/// CPU times of this process, and of the programs that it ran and waited for. The only place where they are read: who reads them twice counts
/// programs twice.
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

    /// From `/proc/PID/stat`, proc(5): its fields 15 to 17, in `ticks` a second; zeros where they are not told.
    fn of(stat: &str, ticks: u64) -> Self {
        // The second field is a name in parentheses, and may hold blanks and brackets.
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        let mut fields = after.split_ascii_whitespace().skip(12).map(|field| field.parse::<u64>().unwrap_or(0));
        let mut next = || {
            let count = fields.next().unwrap_or(0);
            Duration::from_secs(count / ticks)
                + Duration::from_secs(count % ticks) / u32::try_from(ticks).unwrap_or(100)
        };
        Self { own: Duration::ZERO, own_system: next(), programs_user: next(), programs_system: next() }
    }

    /// User and system time of all of them.
    fn all(&self) -> Duration {
        self.own + self.programs_user + self.programs_system
    }

    /// The part of it that the kernel spent.
    fn system(&self) -> Duration {
        self.own_system + self.programs_system
    }
}

/// User and system time of this process, and of those that it has started and that have ended.
pub(crate) fn cpu_time() -> Duration {
    ProcessTimes::read().all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_line_is_understood() {
        let times = ProcessTimes::of("7 (a) b) S 1 2 3 4 5 6 7 8 9 10 40 50 30 12 20 0", 100);
        let ms = Duration::from_millis;
        assert_eq!((times.own_system, times.programs_user, times.programs_system), (ms(500), ms(300), ms(120)));
        assert_eq!((times.all(), times.system()), (ms(420), ms(620)));
        assert_eq!(ProcessTimes::of("", 100), ProcessTimes::default());
    }
}
