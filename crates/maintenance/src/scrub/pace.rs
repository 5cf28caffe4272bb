//! The speed of the scrub: decisions without a clock.

use std::time::Duration;

/// Shorter rests are saved up, because a sleep is not more exact.
const SHORTEST_REST: Duration = Duration::from_millis(20);

/// Decides how long to rest. Over time the scrub never exceeds its rate. After each read it leaves the disk to others for at least as long. When
/// others keep the disk busy, each read takes longer, and so does the rest after it.
#[derive(Default, Debug)]
pub struct Pace {
    missing: Duration,
}

impl Pace {
    /// How long to rest now, after `bytes` were read in `took`, at `rate` bytes a second.
    pub fn rest(&mut self, bytes: u64, took: Duration, rate: u64) -> Duration {
        self.missing += at_rate(bytes, rate).saturating_sub(took).max(took);
        if self.missing < SHORTEST_REST { Duration::ZERO } else { std::mem::take(&mut self.missing) }
    }
}

/// How long `bytes` take at `rate` bytes a second.
fn at_rate(bytes: u64, rate: u64) -> Duration {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole time for reading `steps` of `bytes`, each using the disk for `took`.
    fn total(steps: u32, bytes: u64, took: Duration, rate: u64) -> Duration {
        let mut pace = Pace::default();
        (0..steps).map(|_| took + pace.rest(bytes, took, rate)).sum()
    }

    #[test]
    fn rate_is_kept_by_large_and_small_steps() {
        let quick = Duration::from_micros(30);
        for bytes in [4096, 100_000, 1 << 20] {
            let steps = u32::try_from((64 << 20) / bytes).unwrap();
            let spent = total(steps, bytes, quick, 16 << 20);
            assert!(spent >= Duration::from_millis(3900) && spent <= Duration::from_millis(4500), "{bytes}: {spent:?}");
        }
    }

    #[test]
    fn busy_disk_is_left_to_others_half_of_the_time() {
        let slow = Duration::from_millis(100);
        assert_eq!(total(10, 1 << 20, slow, u64::MAX), 20 * slow);
    }
}
