//! The CPU time of a thread, and how to spend it.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the user and system time of this thread so far.
pub(super) fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Computes for this CPU time of the thread, or until `stop` returns `true`.
pub(super) fn burn(time: Duration, stop: impl Fn() -> bool) {
    let end = thread_cpu() + time;
    let mut number = 1_u64;
    while thread_cpu() < end && !stop() {
        for _ in 0..10_000 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        }
    }
    // The result is used, so that the compiler keeps the work.
    std::hint::black_box(number);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burning_uses_cpu_time() {
        let before = thread_cpu();
        burn(Duration::from_millis(30), || false);
        let spent = (thread_cpu() - before).as_millis();
        assert!((30..200).contains(&spent), "{spent} ms");
        burn(Duration::from_secs(1000), || true);
    }
}
