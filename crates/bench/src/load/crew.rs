//! Workers that get ready, start together, and are watched once a second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::{Meter, Reading, Tally};
use crate::target::TargetError;

/// How often the crew is looked at.
const SECOND: Duration = Duration::from_secs(1);

/// What a worker has at hand.
#[derive(Debug)]
pub struct Worker {
    /// Which one it is, from 0.
    pub number: usize,
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
}

impl Worker {
    /// Says that this worker is ready, and waits for all others. Everything before costs nobody's time.
    #[must_use]
    pub fn start(&self) -> Instant {
        let mut gate = self.shared.gate.lock().unwrap_or_else(PoisonError::into_inner);
        gate.ready += 1;
        self.shared.changed.notify_all();
        loop {
            if let Some(start) = gate.start {
                return start;
            }
            gate = self.shared.changed.wait(gate).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Where this worker counts.
    #[must_use]
    pub fn meter(&self) -> &Meter {
        &self.shared.meters[self.number]
    }

    /// Whether everything is to end.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }
}

/// What a crew did.
#[derive(Debug)]
pub struct Finished {
    /// From the common start to the end of the last worker.
    pub wall: Duration,
    /// What each worker did, or why it did nothing.
    pub workers: Vec<Result<Tally, TargetError>>,
    /// What all had done at the end of each second, from the start; the last entry is of the end.
    pub seconds: Vec<Reading>,
}

/// Workers under way.
#[derive(Debug)]
pub struct Crew {
    shared: Arc<Shared>,
    threads: Vec<thread::JoinHandle<Result<Tally, TargetError>>>,
}

impl Crew {
    /// Starts `workers` threads. Each gets ready, calls [`Worker::start`], and works. One that fails before it was ready ends the others.
    pub fn hire<F>(workers: usize, work: F) -> Self
    where
        F: Fn(&Worker) -> Result<Tally, TargetError> + Send + Sync + 'static,
    {
        let meters = (0..workers).map(|_| Meter::default()).collect();
        let shared =
            Arc::new(Shared { meters, stop: AtomicBool::new(false), gate: Mutex::default(), changed: Condvar::new() });
        let work = Arc::new(work);
        let threads = (0..workers)
            .map(|number| {
                let (worker, work) = (Worker { number, shared: Arc::clone(&shared) }, Arc::clone(&work));
                thread::spawn(move || {
                    let left = Left(Arc::clone(&worker.shared));
                    let result = work(&worker);
                    if result.is_err() {
                        worker.shared.stop.store(true, Ordering::Relaxed);
                    }
                    drop(left);
                    result
                })
            })
            .collect();
        Self { shared, threads }
    }

    /// Lets all start as soon as they are ready, and waits for their end. `watch` is called at the end of each second with what all have
    /// done so far, and says whether to go on; `limit` ends the work as well.
    #[must_use]
    pub fn run(self, limit: Option<Duration>, mut watch: impl FnMut(Reading) -> bool) -> Finished {
        let all = self.threads.len();
        let mut gate = self.shared.gate.lock().unwrap_or_else(PoisonError::into_inner);
        while gate.ready + gate.left < all {
            gate = self.shared.changed.wait(gate).unwrap_or_else(PoisonError::into_inner);
        }
        let start = Instant::now();
        gate.start = Some(start);
        self.shared.changed.notify_all();
        let mut seconds = Vec::new();
        let mut next = start + SECOND;
        while gate.left < all {
            let now = Instant::now();
            if limit.is_some_and(|limit| now >= start + limit) {
                self.shared.stop.store(true, Ordering::Relaxed);
            }
            if now >= next {
                next += SECOND;
                drop(gate);
                let reading = self.read();
                seconds.push(reading);
                if !watch(reading) {
                    self.shared.stop.store(true, Ordering::Relaxed);
                }
                gate = self.shared.gate.lock().unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let end = limit.map_or(next, |limit| next.min(start + limit)).max(now + Duration::from_millis(1));
            let waited = self.shared.changed.wait_timeout(gate, end - now);
            gate = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(gate);
        let wall = start.elapsed();
        seconds.push(self.read());
        let workers = self.threads.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        Finished { wall, workers: workers.collect(), seconds }
    }

    fn read(&self) -> Reading {
        self.shared.meters.iter().map(Meter::read).sum()
    }
}

/// Says that a worker has ended, however it did.
struct Left(Arc<Shared>);

impl Drop for Left {
    fn drop(&mut self) {
        self.0.gate.lock().unwrap_or_else(PoisonError::into_inner).left += 1;
        self.0.changed.notify_all();
    }
}
