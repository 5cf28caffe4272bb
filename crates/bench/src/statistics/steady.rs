//! Finds the end of a series' warm-up, and whether the rest is steady.

use super::interval::median;

/// The number of values that are combined into one, so that single values do not decide (MSER-5).
const BATCH: usize = 5;
/// The least number of values after the warm-up.
const STEADY_MIN: usize = 10;
/// Squared errors within this factor count as equal.
const ABOUT_AS_GOOD: f64 = 2.0;
/// The two-sided 5 % of the normal distribution, for the trend test.
const Z_MAX: f64 = 1.96;

/// The usable part of a series.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Steady {
    /// The number of warm-up values at the start.
    pub warm_up: usize,
    /// The change over the steady part as a share of its median, if there is a trend (Mann and Kendall's test,
    /// Theil and Sen's slope).
    pub trend: Option<f64>,
}

/// Finds the end of the warm-up of one-second values by White's MSER-5: the first cut after which the standard
/// error of the mean is about the least. `None`: the series is too short, or half of it would be warm-up, so no
/// steady state was reached.
#[must_use]
pub fn steady(series: &[f64]) -> Option<Steady> {
    if series.len() < STEADY_MIN + BATCH || series.iter().any(|value| value.is_nan()) {
        return None;
    }
    let batches: Vec<f64> = series.chunks_exact(BATCH).map(mean).collect();
    let errors: Vec<f64> = (0..=batches.len() / 2).map(|cut| squared_error(&batches[cut..])).collect();
    let least = errors.iter().copied().min_by(f64::total_cmp)?;
    // In a level series the error hardly depends on the cut, and its least value is random. So the first cut that
    // is about as good is taken. A real warm-up has a much larger error.
    let cut = errors.iter().position(|error| *error <= ABOUT_AS_GOOD * least)?;
    if cut > 0 && cut == batches.len() / 2 {
        return None;
    }
    let rest = &series[cut * BATCH..];
    if rest.len() < STEADY_MIN {
        return None;
    }
    Some(Steady { warm_up: cut * BATCH, trend: trend(rest) })
}

#[allow(clippy::cast_precision_loss)] // seconds
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[allow(clippy::cast_precision_loss)] // seconds
fn squared_error(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (values.len() as f64).powi(2)
}

/// The most values in which a trend is searched. Pairs are compared, so longer series are combined before.
const TREND_MAX: usize = 600;

fn trend(values: &[f64]) -> Option<f64> {
    let together = values.len().div_ceil(TREND_MAX);
    let values: Vec<f64> = values.chunks_exact(together).map(mean).collect();
    let n = values.len();
    let mut slopes = Vec::with_capacity(n * (n - 1) / 2);
    let mut sign = 0.0;
    for (i, a) in values.iter().enumerate() {
        for (away, b) in values[i + 1..].iter().enumerate() {
            #[allow(clippy::cast_precision_loss)] // at most some hundred
            slopes.push((b - a) / (away + 1) as f64);
            sign += (b - a).partial_cmp(&0.0).map_or(0.0, |order| f64::from(order as i8));
        }
    }
    #[allow(clippy::cast_precision_loss)] // at most some hundred
    let n = n as f64;
    let deviation = (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
    let middle = median(&values)?;
    if (sign.abs() - 1.0) / deviation <= Z_MAX || middle == 0.0 {
        return None;
    }
    Some(median(&slopes)? * (n - 1.0) / middle)
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn noisy(seed: u64, len: usize, shape: impl Fn(f64) -> f64) -> Vec<f64> {
        let mut random = StdRng::seed_from_u64(seed);
        (0..len).map(|n| shape(f64::from(u32::try_from(n).unwrap())) * (0.95 + 0.1 * random.random::<f64>())).collect()
    }

    #[test]
    fn a_level_series_has_no_warm_up_worth_naming() {
        let (mut trends, mut warm) = (0, 0);
        for seed in 0..200 {
            let found = steady(&noisy(seed, 120, |_| 100.0)).unwrap();
            trends += usize::from(found.trend.is_some());
            warm += usize::from(found.warm_up > 60);
        }
        assert!(trends <= 25 && warm == 0, "{trends} {warm}");
    }

    #[test]
    fn a_warm_up_is_cut_off() {
        for seed in 0..50 {
            let found = steady(&noisy(seed, 120, |t| if t < 20.0 { 30.0 } else { 100.0 })).unwrap();
            assert!((20..=45).contains(&found.warm_up), "{seed}: {found:?}");
        }
    }

    #[test]
    fn a_decline_is_not_a_steady_state() {
        let falls = |t: f64| 100.0 - t * 0.5;
        for seed in 0..50 {
            let found = steady(&noisy(seed, 120, falls));
            assert!(found.is_none_or(|found| found.trend.is_some_and(|trend| trend < -0.1)), "{seed}: {found:?}");
        }
        assert_eq!(steady(&[1.0; 14]), None);
    }
}
