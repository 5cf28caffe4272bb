//! What a failure did to a rate, second by second: how far it fell, and how long it took to come back.

use serde::{Deserialize, Serialize};

use super::median;

/// What share of the rate before is being back.
const BACK: f64 = 0.5;
/// Seconds in a row at that rate before it counts.
const STEADY: usize = 3;
/// What share of the rate before is standing still.
const STILL: f64 = 0.1;

/// What a failure did.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Recovery {
    /// The rate before it, the median of all seconds.
    pub before: f64,
    /// The lowest second after it.
    pub lowest: f64,
    /// Seconds after it in which next to nothing was done (less than a tenth).
    pub still_s: usize,
    /// Seconds from it until at least half of the rate before was back for three seconds; `None`: it never was.
    pub back_after_s: Option<usize>,
}

/// From the amounts of each second, and the second in which it failed. `None` where there is nothing to compare with.
#[must_use]
pub fn recovery(seconds: &[f64], failed_at_s: usize) -> Option<Recovery> {
    let (before, after) = (seconds.get(..failed_at_s)?, seconds.get(failed_at_s..)?);
    // In the first second all begin.
    let before = median(before.get(1..).filter(|rest| !rest.is_empty()).unwrap_or(before))?;
    if before <= 0.0 || after.is_empty() {
        return None;
    }
    let is_back = |rate: &f64| *rate >= BACK * before;
    // From the last second that was too slow on: something that is buffered may go on for a moment after a failure.
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
    fn a_pause_is_as_long_as_it_is() {
        let mut seconds = vec![100.0; 10];
        seconds.extend([80.0, 0.0, 0.0, 3.0, 60.0, 20.0]);
        seconds.extend([90.0; 6]);
        let found = recovery(&seconds, 10);
        assert_eq!(found, Some(Recovery { before: 100.0, lowest: 0.0, still_s: 3, back_after_s: Some(6) }));
    }

    #[test]
    fn what_does_not_fall_is_back_at_once_and_what_stays_away_never_is() {
        assert_eq!(recovery(&[10.0; 20], 5).unwrap().back_after_s, Some(0));
        let gone: Vec<f64> = [vec![10.0; 5], vec![0.0; 9]].concat();
        assert_eq!(recovery(&gone, 5).unwrap(), Recovery { before: 10.0, lowest: 0.0, still_s: 9, back_after_s: None });
        assert_eq!(recovery(&[], 0), None);
        assert_eq!(recovery(&[1.0, 1.0], 2), None);
        assert_eq!(recovery(&[0.0; 9], 3), None);
        assert_eq!(recovery(&[1.0; 3], 9), None);
    }
}
