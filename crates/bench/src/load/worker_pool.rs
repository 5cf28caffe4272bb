//! Workers that prepare, start together, and are observed once a second.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::{HISTORY_MAX, History, Meter, Reading, Tally};
use crate::target::TargetError;

/// How often the crew is observed.
const SECOND: Duration = Duration::from_secs(1);

/// What a worker can use.
#[derive(Debug)]
pub struct Worker {
    /// The index of its role.
    pub role: usize,
    /// Its number in its role. Numbers start at 0, unless other machines have the first ones.
    pub number: usize,
    /// Its number among all workers.
    place: usize,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    meters: Vec<Meter>,
    stop: AtomicBool,
    gate: Mutex<Gate>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Gate {
    ready: usize,
    left: usize,
    start: Option<Instant>,
    /// When each role began, if not with all others.
    begins: Vec<Option<Instant>>,
    /// For each role, when its last worker so far ended.
    ends: Vec<Option<Instant>>,
    /// Roles that have reported their own duration.
    told: Vec<bool>,
}

impl Worker {
    /// Reports that this worker is ready, and waits for all others and the common start. Time before that does not
    /// count.
    #[must_use]
    pub fn start(&self) -> Instant {
        let mut gate = self.shared.gate.lock().unwrap_or_else(PoisonError::into_inner);
        gate.ready += 1;
        self.shared.changed.notify_all();
        loop {
            if let Some(start) = gate.start {
                drop(gate);
                thread::sleep(start.saturating_duration_since(Instant::now()));
                return start;
            }
            gate = self.shared.changed.wait(gate).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Reports that this role's work took `took` from `begin` on, by another clock. Only for a role with one
    /// worker.
    pub fn span(&self, begin: Instant, took: Duration) {
        let mut gate = self.shared.gate.lock().unwrap_or_else(PoisonError::into_inner);
        gate.begins[self.role] = Some(begin);
        gate.ends[self.role] = Some(begin + took);
        gate.told[self.role] = true;
    }

    /// Reports that this role begins only now, so that its work counts from here. Only the first report of a role
    /// counts.
    pub fn begin(&self) {
        let mut gate = self.shared.gate.lock().unwrap_or_else(PoisonError::into_inner);
        gate.begins[self.role].get_or_insert_with(Instant::now);
    }

    /// Returns this worker's meter.
    #[must_use]
    pub fn meter(&self) -> &Meter {
        &self.shared.meters[self.place]
    }

    /// Whether everything must end.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }
}

/// The work of one role.
#[derive(Debug)]
pub struct Group {
    /// The role's name.
    pub role: &'static str,
    /// From the common start, or the role's own later begin, to the end of its last worker.
    pub wall: Duration,
    /// The work of each worker, or why it did nothing.
    pub workers: Vec<Result<Tally, TargetError>>,
    /// The work done at the end of each second (or of each `second_s` seconds) from the start. The last entry is
    /// the end.
    pub seconds: Vec<Reading>,
    /// The seconds between two of these entries.
    pub second_s: u32,
}

/// The work of a crew.
#[derive(Debug)]
pub struct Finished {
    /// From the common start to the end of the last worker.
    pub wall: Duration,
    /// The work of each role.
    pub roles: Vec<Group>,
}

/// The system has no more threads, or no memory for them.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("cannot start more than {started} workers on this machine: {why}")]
pub struct HireError {
    /// The number of workers that had started.
    pub started: usize,
    /// The system's error.
    pub why: String,
}

/// A worker's whole work.
type WorkerTask = dyn FnOnce() -> Result<Tally, TargetError> + Send;

/// Workers under way.
#[derive(Debug)]
pub struct WorkerPool {
    shared: Arc<Shared>,
    roles: Vec<(&'static str, usize)>,
    threads: Vec<thread::JoinHandle<Result<Tally, TargetError>>>,
}

impl WorkerPool {
    /// Starts a thread for each worker. `roles` has names, and the numbers of each role's workers. Each worker
    /// prepares, calls [`Worker::start`], and works. If one fails before it is ready, the others end.
    ///
    /// # Errors
    /// [`HireError`]. The workers that had started have ended.
    pub fn hire<F>(roles: &[(&'static str, Range<usize>)], work: F) -> Result<Self, HireError>
    where
        F: Fn(&Worker) -> Result<Tally, TargetError> + Send + Sync + 'static,
    {
        Self::hire_by(roles, work, |working| thread::Builder::new().spawn(working))
    }

    /// The same with another way to start a thread.
    fn hire_by<F>(
        roles: &[(&'static str, Range<usize>)],
        work: F,
        mut spawn: impl FnMut(Box<WorkerTask>) -> io::Result<thread::JoinHandle<Result<Tally, TargetError>>>,
    ) -> Result<Self, HireError>
    where
        F: Fn(&Worker) -> Result<Tally, TargetError> + Send + Sync + 'static,
    {
        let all =
            roles.iter().enumerate().flat_map(|(role, (_, numbers))| numbers.clone().map(move |number| (role, number)));
        let meters = all.clone().map(|_| Meter::default()).collect();
        let count = roles.len();
        let gate =
            Gate { begins: vec![None; count], ends: vec![None; count], told: vec![false; count], ..Gate::default() };
        let shared =
            Arc::new(Shared { meters, stop: AtomicBool::new(false), gate: Mutex::new(gate), changed: Condvar::new() });
        let work = Arc::new(work);
        let roles = roles.iter().map(|(role, numbers)| (*role, numbers.len())).collect();
        let mut worker_pool = Self { shared, roles, threads: Vec::new() };
        for (place, (role, number)) in all.enumerate() {
            let shared = Arc::clone(&worker_pool.shared);
            let (worker, work) = (Worker { role, number, place, shared }, Arc::clone(&work));
            let working = move || {
                let left = WorkerEnd(Arc::clone(&worker.shared), role);
                let result = work(&worker);
                if result.is_err() {
                    worker.shared.stop.store(true, Ordering::Relaxed);
                }
                drop(left);
                result
            };
            match spawn(Box::new(working)) {
                Ok(thread) => worker_pool.threads.push(thread),
                Err(error) => {
                    let (started, why) = (worker_pool.threads.len(), error.to_string());
                    worker_pool.call_off();
                    return Err(HireError { started, why });
                }
            }
        }
        Ok(worker_pool)
    }

    /// Waits until all are ready, or have failed.
    pub fn prepare(&self) {
        let mut gate = self.shared.gate.lock().unwrap_or_else(PoisonError::into_inner);
        while gate.ready + gate.left < self.threads.len() {
            gate = self.shared.changed.wait(gate).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Starts all workers as soon as they are ready, and waits for their end. Calls `watch` at the end of each
    /// second with the total work so far. If it returns `false`, or after `limit`, the work is stopped.
    #[must_use]
    pub fn run(self, limit: Option<Duration>, mut watch: impl FnMut(Reading) -> bool) -> Finished {
        self.prepare();
        self.run_at(Instant::now(), limit, |roles| watch(roles.iter().copied().sum()))
    }

    /// Ends the workers without starting them.
    pub fn call_off(self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let _ = self.run_at(Instant::now(), None, |_| false);
    }

    /// Starts all prepared workers at `start`. `watch` gets the work of each role.
    #[must_use]
    pub fn run_at(
        self,
        start: Instant,
        limit: Option<Duration>,
        mut watch: impl FnMut(&[Reading]) -> bool,
    ) -> Finished {
        let all = self.threads.len();
        let mut gate = self.shared.gate.lock().unwrap_or_else(PoisonError::into_inner);
        gate.start = Some(start);
        self.shared.changed.notify_all();
        let mut histories = vec![History::new(HISTORY_MAX); self.roles.len()];
        let mut next = start + SECOND;
        while gate.left < all {
            let now = Instant::now();
            if limit.is_some_and(|limit| now >= start + limit) {
                self.shared.stop.store(true, Ordering::Relaxed);
            }
            if now >= next {
                next += SECOND;
                drop(gate);
                let done = self.read();
                histories.iter_mut().zip(&done).for_each(|(history, done)| history.push(*done));
                if !watch(&done) {
                    self.shared.stop.store(true, Ordering::Relaxed);
                }
                gate = self.shared.gate.lock().unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let end = limit.map_or(next, |limit| next.min(start + limit)).max(now + Duration::from_millis(1));
            let waited = self.shared.changed.wait_timeout(gate, end - now);
            gate = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let wall = |(begin, end): (&Option<Instant>, &Option<Instant>)| {
            end.map_or(Duration::ZERO, |end| end.saturating_duration_since(begin.unwrap_or(start)))
        };
        let walls: Vec<Duration> = gate.begins.iter().zip(&gate.ends).map(wall).collect();
        let last = gate.ends.iter().flatten().max().map_or(Duration::ZERO, |end| *end - start);
        drop(gate);
        let ends = self.read();
        let mut results = self.threads.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        let seconds = histories.into_iter().zip(ends).map(|(history, end)| (history.each_s(), history.ended(end)));
        let groups = self.roles.iter().zip(seconds).zip(&walls).map(|(((role, workers), seconds), wall)| Group {
            role,
            wall: *wall,
            workers: results.by_ref().take(*workers).collect(),
            seconds: seconds.1,
            second_s: seconds.0,
        });
        let roles = groups.collect();
        Finished { wall: last, roles }
    }

    /// Returns the names of the roles, in order.
    pub fn roles(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.roles.iter().map(|(role, _)| *role).collect::<Vec<_>>().into_iter()
    }

    /// Returns the work of each role so far.
    fn read(&self) -> Vec<Reading> {
        let mut meters = self.shared.meters.iter();
        self.roles.iter().map(|(_, workers)| meters.by_ref().take(*workers).map(Meter::read).sum()).collect()
    }
}

/// Reports the end of a worker, however it ends.
struct WorkerEnd(Arc<Shared>, usize);

impl Drop for WorkerEnd {
    fn drop(&mut self) {
        let mut gate = self.0.gate.lock().unwrap_or_else(PoisonError::into_inner);
        gate.left += 1;
        let Gate { ends, told, .. } = &mut *gate;
        if !told[self.1] {
            ends[self.1] = Some(Instant::now());
        }
        drop(gate);
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn if_a_thread_cannot_start_the_started_workers_end() {
        let (mut left, worked) = (3, Arc::new(AtomicBool::new(false)));
        let told = Arc::clone(&worked);
        let work = move |worker: &Worker| {
            let _ = worker.start();
            told.fetch_or(!worker.is_stopped(), Ordering::Relaxed);
            Ok(Tally::default())
        };
        let spawn = |working: Box<WorkerTask>| {
            left -= 1;
            if left > 0 { thread::Builder::new().spawn(working) } else { Err(io::ErrorKind::WouldBlock.into()) }
        };
        let error = WorkerPool::hire_by(&[("", 0..8)], work, spawn).unwrap_err();
        assert!(error.started == 2 && error.to_string().contains("cannot start more than 2 workers"), "{error}");
        // They have ended, and none has begun to work.
        assert!(Arc::strong_count(&worked) == 1 && !worked.load(Ordering::Relaxed));
    }
}
