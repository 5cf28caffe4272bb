//! A worker's counters, which others may read at any time.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of one worker, on a cache line of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Meter {
    operations: AtomicU64,
    bytes: AtomicU64,
    failures: AtomicU64,
}

/// The counters at one moment, of one worker or several together.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize, serde::Deserialize)]
pub struct Reading {
    /// Operations done.
    pub operations: u64,
    /// Bytes moved by them.
    pub bytes: u64,
    /// Operations that failed.
    pub failures: u64,
}

impl Meter {
    /// Counts an operation that moved `bytes`. Only the worker itself counts, so a plain addition is enough.
    pub fn add(&self, bytes: u64) {
        self.operations.store(self.operations.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.bytes.store(self.bytes.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
    }

    /// Counts a failed operation.
    pub fn add_failure(&self) {
        self.failures.store(self.failures.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Sets the counters to those of another process.
    pub fn set(&self, reading: Reading) {
        self.operations.store(reading.operations, Ordering::Relaxed);
        self.bytes.store(reading.bytes, Ordering::Relaxed);
        self.failures.store(reading.failures, Ordering::Relaxed);
    }

    /// Returns the counters now.
    #[must_use]
    pub fn read(&self) -> Reading {
        Reading {
            operations: self.operations.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }
}

impl Reading {
    /// Returns the work done since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            operations: self.operations.saturating_sub(earlier.operations),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            failures: self.failures.saturating_sub(earlier.failures),
        }
    }
}

impl std::iter::Sum for Reading {
    fn sum<I: Iterator<Item = Self>>(readings: I) -> Self {
        readings.fold(Self::default(), |sum, one| Self {
            operations: sum.operations + one.operations,
            bytes: sum.bytes + one.bytes,
            failures: sum.failures + one.failures,
        })
    }
}
