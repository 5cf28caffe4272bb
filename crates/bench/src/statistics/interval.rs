//! Quantiles, and their confidence intervals.

/// A confidence interval.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Interval {
    /// The lower bound.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
    /// The least probability that the value is inside. Order statistics allow only certain probabilities.
    pub confidence: f64,
}

/// Returns the value below which a share `q` of all values lies, interpolated between neighbours (Hyndman and Fan's
/// type 7, as in R and NumPy). `None`: there are no values, or one is not a number.
#[must_use]
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let sorted = sorted(values)?;
    let last = sorted.len().checked_sub(1)?;
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // within the list
    let (below, between) = {
        let place = q.clamp(0.0, 1.0) * last as f64;
        (place.floor() as usize, place.fract())
    };
    let above = (below + 1).min(last);
    Some(sorted[below] + between * (sorted[above] - sorted[below]))
}

/// Returns the median of the values.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Returns the interval of the true median by order statistics (binomial), with at least `confidence`. `None`:
/// there are too few values; 95 % needs six.
#[must_use]
pub fn median_interval(values: &[f64], confidence: f64) -> Option<Interval> {
    quantile_interval(values, 0.5, confidence)
}

/// The same for any quantile. The number of values below it is binomial, whatever the distribution is. Of all pairs
/// of order statistics with enough confidence, it takes the pair with the fewest values in between, and of these
/// the most central one.
#[must_use]
pub fn quantile_interval(values: &[f64], q: f64, confidence: f64) -> Option<Interval> {
    if !(q > 0.0 && q < 1.0) {
        return None;
    }
    let sorted = sorted(values)?;
    let below = cumulative_binomial(sorted.len(), q);
    // P(X_(i) <= quantile < X_(j)) = P(i <= number below < j), with i and j counted from 1. At most half of the
    // rest is cut off on each side.
    let tail = (1.0 - confidence) / 2.0;
    let low = below.iter().rposition(|share| *share <= tail)?;
    let high = below.iter().position(|share| *share >= 1.0 - tail)? + 1;
    // `low` is the largest number below with P(number <= low) <= tail, so the value of rank low + 1 is a lower
    // bound.
    let (first, last) = (low, high - 1);
    if last >= sorted.len() {
        return None;
    }
    Some(Interval { low: sorted[first], high: sorted[last], confidence: below[high - 1] - below[low] })
}

/// P(number <= k) for k = 0..=n, for n values each of which counts with probability `q`.
fn cumulative_binomial(n: usize, q: f64) -> Vec<f64> {
    // In logarithms, because n may be in the hundred thousands.
    let (log_q, log_not) = (q.ln(), (1.0 - q).ln());
    let mut log_choose = 0.0;
    let mut sum = 0.0;
    (0..=n)
        .map(|k| {
            #[allow(clippy::cast_precision_loss)] // counts of values
            let (k, n) = (k as f64, n as f64);
            if k > 0.0 {
                log_choose += ((n - k + 1.0) / k).ln();
            }
            sum += (log_choose + k * log_q + (n - k) * log_not).exp();
            sum
        })
        .collect()
}

pub(super) fn sorted(values: &[f64]) -> Option<Vec<f64>> {
    if values.is_empty() || values.iter().any(|value| value.is_nan()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(sorted)
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn quantiles_are_those_of_r_and_numpy() {
        let values = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0];
        assert_eq!(median(&values), Some(3.5));
        assert_eq!(quantile(&values, 0.25), Some(1.75));
        assert_eq!(quantile(&values, 1.0), Some(9.0));
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(median(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn the_ranks_are_those_of_the_tables() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        // From published tables of order statistics for the median at 95 %: n = 6 takes all, 10 the 2nd and 9th, 100 the 40th and 61st.
        let ranks = |n: usize| median_interval(&values[..n], 0.95).map(|interval| (interval.low, interval.high));
        assert_eq!(ranks(5), None);
        assert_eq!(ranks(6), Some((1.0, 6.0)));
        assert_eq!(ranks(10), Some((2.0, 9.0)));
        assert_eq!(ranks(100), Some((40.0, 61.0)));
        let six = median_interval(&values[..6], 0.95).map_or(0.0, |interval| interval.confidence);
        assert!((six - 0.96875).abs() < 1e-9, "{six}");
    }

    #[test]
    fn the_interval_contains_the_true_value_with_its_confidence() {
        // Exponential: as skewed as latencies are. Its median is ln 2, its 90 % quantile ln 10.
        let mut random = StdRng::seed_from_u64(1);
        for (q, truth, n) in [(0.5, 2.0_f64.ln(), 20), (0.9, 10.0_f64.ln(), 80)] {
            let held = (0..4000)
                .filter(|_| {
                    let values: Vec<f64> = (0..n).map(|_| -(1.0 - random.random::<f64>()).ln()).collect();
                    quantile_interval(&values, q, 0.95).is_some_and(|i| i.low <= truth && truth <= i.high)
                })
                .count();
            assert!((3780..=3960).contains(&held), "{q}: {held} of 4000");
        }
    }
}
