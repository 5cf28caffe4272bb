//! One piece of work, measured: what was done second by second, what it cost this machine, and what that machine did meanwhile.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::load::{Crew, Group, Reading, Tally};
use crate::network::Outcome;
use crate::sampling::{Counters, Sample};
use crate::workload::Unit;

/// What came of it.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Measured {
    /// From the common start to the end of the last worker, in seconds.
    pub wall_s: f64,
    /// What all workers did together.
    pub tally: Tally,
    /// What had been done at the end of each second, from the start; the last entry is of the end.
    pub seconds: Vec<Reading>,
    /// CPU time of this process and of the programs that it ran, user and system, in seconds; of a crew with several roles all of it is told with the first.
    pub client_cpu_s: f64,
    /// The part of it that the kernel spent, in seconds, to a hundredth.
    #[serde(default)]
    pub client_system_s: f64,
    /// This machine, second by second.
    pub client: Vec<Sample>,
    /// Workers that did nothing, and why.
    pub idle_workers: Vec<String>,
}

/// How far it is, for those who watch.
#[derive(Clone, Copy, Debug)]
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

    /// What was done in each whole second: bytes, or operations.
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
                in_it as f64
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
    measure_at(crew, Instant::now(), limit, |second| watch(second.progress))
}

/// The same from `start` on, with a crew that is prepared, for those who want to know more of each second.
#[must_use]
pub fn measure_at(
    crew: Crew,
    start: Instant,
    limit: Option<Duration>,
    mut watch: impl FnMut(Second<'_>) -> bool,
) -> Vec<(&'static str, Measured)> {
    let ticks = ticks();
    let counters = || Counters::read(Path::new("/proc"), Path::new("/sys"), &[], Instant::now());
    let (cpu_before, times_before) = (cpu_time(), ProcessTimes::read(ticks));
    let (mut last_counters, mut last, mut client, mut elapsed) =
        (counters(), Reading::default(), Vec::new(), Duration::ZERO);
    let mut sample = || {
        let now = counters();
        let sample = Sample::between(&last_counters, &now, ticks);
        last_counters = now;
        sample
    };
    let finished = crew.run_at(start, limit, |roles| {
        client.push(sample());
        // Seconds of the work itself: how long it took to get ready is nobody's time.
        elapsed += Duration::from_secs(1);
        let done = roles.iter().copied().sum();
        let progress = Progress { elapsed, done, last: Reading::since(done, last) };
        last = done;
        client.last().is_none_or(|sample| watch(Second { progress, roles, sample }))
    });
    client.push(sample());
    let times = ProcessTimes::read(ticks);
    let programs_system_s = times.programs_system - times_before.programs_system;
    let programs_s = times.programs_user - times_before.programs_user + programs_system_s;
    let cpu_s = cpu_time().saturating_sub(cpu_before).as_secs_f64() + programs_s;
    let mut cpu = Some((cpu_s, times.own_system - times_before.own_system + programs_system_s));
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
        client_cpu_s,
        client_system_s,
        client: client.take().unwrap_or_default(),
        idle_workers,
    }
}

/// Times of this process and of the programs that it ran and waited for, in seconds, as the kernel counts them.
#[derive(Clone, Copy, Default)]
struct ProcessTimes {
    own_system: f64,
    programs_user: f64,
    programs_system: f64,
}

impl ProcessTimes {
    /// Zeros where they are not told. proc(5): the fields 15 to 17 of `/proc/PID/stat`.
    fn read(ticks: f64) -> Self {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The second field is a name in parentheses, and may hold spaces.
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        let mut fields = after.split_whitespace().skip(12).map(|field| field.parse::<f64>().map_or(0.0, |n| n / ticks));
        let mut next = || fields.next().unwrap_or_default();
        Self { own_system: next(), programs_user: next(), programs_system: next() }
    }
}

/// User and system time of this process, and of those that it has started and that have ended.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let own = Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0));
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    #[allow(clippy::cast_precision_loss)] // ticks of processes that live for seconds
    let children = children_ticks(&stat) as f64 / ticks as f64;
    own + Duration::from_secs_f64(children)
}

/// User and system ticks of children that have ended (`/proc/PID/stat`, proc(5)); a name may hold blanks and brackets.
fn children_ticks(stat: &str) -> u64 {
    let words = stat.rsplit_once(')').map_or("", |(_, words)| words);
    words.split_ascii_whitespace().skip(13).take(2).filter_map(|word| word.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_counted_when_they_have_ended() {
        assert_eq!(children_ticks("7 (a) b) S 1 2 3 4 5 6 7 8 9 10 40 2 30 12 20 0"), 42);
        assert_eq!(children_ticks(""), 0);
        let before = cpu_time();
        let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        assert!(std::process::Command::new("sh").args(["-c", busy]).status().unwrap().success());
        assert!(cpu_time() - before > Duration::from_millis(40), "{:?}", cpu_time() - before);
    }
}
