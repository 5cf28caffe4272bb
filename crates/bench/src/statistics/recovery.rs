//! The effect of a failure on a rate, second by second: the drop, and the time until recovery.

use serde::{Deserialize, Serialize};

use super::median;

/// The share of the earlier rate that counts as recovered.
const BACK: f64 = 0.5;
/// The consecutive seconds at that rate that are required.
const STEADY: usize = 3;
/// The share of the earlier rate below which the work stands still.
const STILL: f64 = 0.1;

/// The effect of a failure.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Recovery {
    /// The rate before it, the median of all seconds.
    pub before: f64,
    /// The lowest rate after it.
    pub lowest: f64,
    /// The seconds after it in which less than a tenth was done.
    pub still_s: usize,
    /// The seconds until at least half of the earlier rate was back for three seconds; `None`: it never was.
    pub back_after_s: Option<usize>,
}

/// Computes the effect from the amounts of each second, and the second of the failure. `None`: there is nothing to
/// compare with.
#[must_use]
pub fn recovery(seconds: &[f64], failed_at_s: usize) -> Option<Recovery> {
    let (before, after) = (seconds.get(..failed_at_s)?, seconds.get(failed_at_s..)?);
    // In the first second the workers start.
    let before = median(before.get(1..).filter(|rest| !rest.is_empty()).unwrap_or(before))?;
    if before <= 0.0 || after.is_empty() {
        return None;
    }
    let is_back = |rate: &f64| *rate >= BACK * before;
    // Counts from the last slow second, because buffered work may continue briefly after a failure.
    let fell = after.iter().position(|rate| !is_back(rate));
    let back_after_s = match fell {
        None => Some(0),
        Some(fell) => {
            let rest = after.get(fell..).unwrap_or_default();
            rest.windows(STEADY).position(|some| some.iter().all(is_back)).map(|place| fell + place)
        }
    };
    Some(Recovery {
        before,
        lowest: after.iter().copied().fold(f64::INFINITY, f64::min),
        still_s: after.iter().filter(|rate| **rate < STILL * before).count(),
        back_after_s,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_pause_is_measured() {
        let mut seconds = vec![100.0; 10];
        seconds.extend([80.0, 0.0, 0.0, 3.0, 60.0, 20.0]);
        seconds.extend([90.0; 6]);
        let found = recovery(&seconds, 10);
        assert_eq!(found, Some(Recovery { before: 100.0, lowest: 0.0, still_s: 3, back_after_s: Some(6) }));
    }

    #[test]
    fn a_rate_without_a_drop_recovers_at_once_and_a_lost_one_never() {
        assert_eq!(recovery(&[10.0; 20], 5).unwrap().back_after_s, Some(0));
        let gone: Vec<f64> = [vec![10.0; 5], vec![0.0; 9]].concat();
        assert_eq!(recovery(&gone, 5).unwrap(), Recovery { before: 10.0, lowest: 0.0, still_s: 9, back_after_s: None });
        assert_eq!(recovery(&[], 0), None);
        assert_eq!(recovery(&[1.0, 1.0], 2), None);
        assert_eq!(recovery(&[0.0; 9], 3), None);
        assert_eq!(recovery(&[1.0; 3], 9), None);
    }
}
