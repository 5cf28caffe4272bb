//! One piece of work, measured: what was done second by second, what it cost this machine, and what that machine did meanwhile.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::load::{Crew, Group, Reading, Tally};
use crate::sampling::{Counters, Sample};

/// What came of it.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Measured {
    /// From the common start to the end of the last worker, in seconds.
    pub wall_s: f64,
    /// What all workers did together.
    pub tally: Tally,
    /// What had been done at the end of each second, from the start; the last entry is of the end.
    pub seconds: Vec<Reading>,
    /// CPU time of this process, user and system, in seconds; of a crew with several roles all of it is told with the first.
    pub client_cpu_s: f64,
    /// The part of it that the kernel spent for this process, in seconds, to a hundredth.
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

    /// Bytes in each whole second.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a rate
    pub fn byte_series(&self) -> Vec<f64> {
        let whole = self.seconds.len().saturating_sub(1);
        let mut before = 0;
        self.seconds[..whole]
            .iter()
            .map(|reading| {
                let bytes = reading.bytes - before;
                before = reading.bytes;
                bytes as f64
            })
            .collect()
    }
}

/// Lets a crew work, for `limit` at most; `watch` is called each second and says whether to go on. What came of it, role by role.
#[must_use]
pub fn measure(
    crew: Crew,
    limit: Option<Duration>,
    mut watch: impl FnMut(Progress) -> bool,
) -> Vec<(&'static str, Measured)> {
    let ticks = rustix::param::clock_ticks_per_second();
    #[allow(clippy::cast_precision_loss)] // a hundred
    let ticks = ticks as f64;
    let counters = || Counters::read(Path::new("/proc"), Path::new("/sys"), &[], Instant::now());
    let (cpu_before, system_before) = (cpu_time(), system_time_s(ticks));
    let (mut last_counters, mut last, mut client, mut elapsed) =
        (counters(), Reading::default(), Vec::new(), Duration::ZERO);
    let mut sample = || {
        let now = counters();
        client.push(Sample::between(&last_counters, &now, ticks));
        last_counters = now;
    };
    let finished = crew.run(limit, |done| {
        sample();
        // Seconds of the work itself: how long it took to get ready is nobody's time.
        elapsed += Duration::from_secs(1);
        let progress = Progress { elapsed, done, last: done.since(last) };
        last = done;
        watch(progress)
    });
    sample();
    let system_s = (system_time_s(ticks) - system_before).max(0.0);
    let mut cpu = Some((cpu_time().saturating_sub(cpu_before).as_secs_f64(), system_s));
    let mut client = Some(client);
    finished.roles.into_iter().map(|group| (group.role, measured(group, &mut cpu, &mut client))).collect()
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
    Measured {
        wall_s: group.wall.as_secs_f64(),
        tally,
        seconds: group.seconds,
        client_cpu_s,
        client_system_s,
        client: client.take().unwrap_or_default(),
        idle_workers,
    }
}

/// Time that the kernel spent for this process, in seconds; 0 where it is not told. proc(5): the 15th field of `/proc/PID/stat`.
fn system_time_s(ticks: f64) -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is a name in parentheses, and may hold spaces.
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    after.split_whitespace().nth(12).and_then(|field| field.parse::<f64>().ok()).map_or(0.0, |spent| spent / ticks)
}

/// User and system time of this process.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
