//! The cost of reading for a job.

use std::time::{Duration, Instant};

use super::clock::thread_cpu;
use crate::load::{Tally, Worker};
use crate::target::{RoundTrips, TargetError};

/// Counts a job's storage requests.
#[derive(Debug)]
pub(super) struct Cost<'a> {
    worker: &'a Worker,
    pub(super) tally: Tally,
    /// The delay before each answer.
    pub(super) added: Duration,
    /// The CPU time of this thread in calls of the driver.
    pub(super) io_cpu: Duration,
    /// The CPU time of a thread that reads ahead for the job.
    pub(super) helper_cpu: Duration,
    /// The time in those calls, or waiting for the read-ahead.
    pub(super) waited: Duration,
    pub(super) requests: u64,
    pub(super) moved: u64,
}

/// The result of a call.
pub(super) struct CallResult<T> {
    pub(super) value: T,
    pub(super) trips: RoundTrips,
    pub(super) bytes: u64,
}

impl<'a> Cost<'a> {
    pub(super) fn new(worker: &'a Worker, added: Duration) -> Self {
        let (io_cpu, helper_cpu, waited) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        Self { worker, tally: Tally::default(), added, io_cpu, helper_cpu, waited, requests: 0, moved: 0 }
    }

    /// Calls the driver, and delays its answer.
    pub(super) fn call<T>(
        &mut self,
        call: impl FnOnce() -> Result<CallResult<T>, TargetError>,
    ) -> Result<T, TargetError> {
        let (begun, cpu) = (Instant::now(), thread_cpu());
        let brought = call();
        self.io_cpu += thread_cpu().saturating_sub(cpu);
        let result = brought.map(|brought| {
            delay(self.added, brought.trips.in_turn);
            self.has_moved(brought.trips.requests, brought.bytes, begun.elapsed());
            brought.value
        });
        self.waited += begun.elapsed();
        result
    }

    /// The same for a call that moves nothing between the system and this machine.
    pub(super) fn local<T>(&mut self, call: impl FnOnce() -> Result<T, TargetError>) -> Result<T, TargetError> {
        let (begun, cpu) = (Instant::now(), thread_cpu());
        let result = call();
        self.io_cpu += thread_cpu().saturating_sub(cpu);
        self.waited += begun.elapsed();
        result
    }

    /// Counts moved bytes.
    pub(super) fn has_moved(&mut self, requests: u64, bytes: u64, took: Duration) {
        self.requests += requests;
        self.moved += bytes;
        self.worker.meter().add(bytes);
        self.tally.add(bytes, took);
    }

    /// Whether everything must end.
    pub(super) fn is_stopped(&self) -> bool {
        self.worker.is_stopped()
    }
}

/// Waits for `times` round trips of `added`.
pub(super) fn delay(added: Duration, times: u64) {
    if !added.is_zero() {
        std::thread::sleep(added.saturating_mul(u32::try_from(times).unwrap_or(u32::MAX)));
    }
}
