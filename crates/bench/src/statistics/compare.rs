//! Whether one system is faster than another, and by how much.

use super::interval::{Interval, sorted};

/// The relation of two sets of values.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Comparison {
    /// The typical ratio of a value of the first set to one of the second: the median over all pairs (Hodges and
    /// Lehmann's shift, of logarithms).
    pub ratio: f64,
    /// The interval of the true ratio; `None`: there are too few values.
    pub interval: Option<Interval>,
}

impl Comparison {
    /// Whether there is a difference, with the interval's confidence. `None`: there are too few values.
    #[must_use]
    pub fn differs(&self) -> Option<bool> {
        self.interval.map(|interval| interval.low > 1.0 || interval.high < 1.0)
    }
}

/// Compares positive values; `None`: a value is not positive, or a set is empty. The interval is that of the
/// inverted Mann-Whitney test. It is exact for any distribution, if the two differ only by a factor.
#[must_use]
pub fn compare(first: &[f64], second: &[f64], confidence: f64) -> Option<Comparison> {
    if first.iter().chain(second).any(|value| value.is_nan() || *value <= 0.0) {
        return None;
    }
    let ratios: Vec<f64> = first.iter().flat_map(|a| second.iter().map(move |b| a / b)).collect();
    let ratios = sorted(&ratios)?;
    let middle = ratios.len() / 2;
    let ratio =
        if ratios.len().is_multiple_of(2) { (ratios[middle - 1] * ratios[middle]).sqrt() } else { ratios[middle] };
    let below = cumulative_u(first.len(), second.len());
    let tail = (1.0 - confidence) / 2.0;
    let interval = below.iter().rposition(|share| *share <= tail).map(|cut| Interval {
        low: ratios[cut],
        high: ratios[ratios.len() - 1 - cut],
        confidence: 1.0 - 2.0 * below[cut],
    });
    Some(Comparison { ratio, interval })
}

/// P(U <= u) for u = 0..=n·m of Mann and Whitney's U, if both sets have the same distribution.
fn cumulative_u(n: usize, m: usize) -> Vec<f64> {
    // The number of ways to get each u is a product of polynomials: of (1 - x^(m+i)) / (1 - x^i) for i = 1..=n.
    // Shares instead of counts avoid an overflow: each factor is divided by its value at 1, (m + i) / i.
    let top = n * m;
    let mut ways = vec![0.0; top + 1];
    ways[0] = 1.0;
    for i in 1..=n {
        for u in (m + i..=top).rev() {
            ways[u] -= ways[u - m - i];
        }
        for u in i..=top {
            ways[u] += ways[u - i];
        }
        #[allow(clippy::cast_precision_loss)] // numbers of repeats
        let share = i as f64 / (m + i) as f64;
        ways.iter_mut().for_each(|way| *way *= share);
    }
    let mut sum = 0.0;
    ways.iter()
        .map(|way| {
            sum += way;
            sum
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn u_is_distributed_as_in_the_tables() {
        // n = m = 3: of 20 orders, u = 0 in 1, 1 in 1, 2 in 2, 3 in 3, 4 in 3, ...
        let below = cumulative_u(3, 3);
        let right = [1.0, 2.0, 4.0, 7.0, 10.0, 13.0, 16.0, 18.0, 19.0, 20.0].map(|ways| ways / 20.0);
        assert!(below.iter().zip(right).all(|(a, b)| (a - b).abs() < 1e-12), "{below:?}");
        // Critical value for n = m = 5, two-sided 5 %: U <= 2; for 10 and 10: 23.
        let critical = |n| cumulative_u(n, n).iter().rposition(|share| *share <= 0.025);
        assert_eq!((critical(5), critical(10), critical(3)), (Some(2), Some(23), None));
    }

    #[test]
    fn a_factor_is_found_and_its_absence_too() {
        let mut random = StdRng::seed_from_u64(2);
        let mut draw = |factor: f64| -> Vec<f64> { (0..8).map(|_| factor * (1.0 + random.random::<f64>())).collect() };
        let (mut held, mut differs) = (0, 0);
        for _ in 0..1000 {
            let same = compare(&draw(1.0), &draw(1.0), 0.95).unwrap();
            held += usize::from(same.differs() == Some(false));
            let other = compare(&draw(1.5), &draw(1.0), 0.95).unwrap();
            differs += usize::from(other.differs() == Some(true));
        }
        assert!((930..=985).contains(&held), "{held}");
        assert!(differs > 700, "{differs}");
        assert_eq!(compare(&draw(2.0), &[0.0], 0.95), None);
        assert_eq!(compare(&draw(2.0)[..2], &draw(1.0)[..2], 0.95).unwrap().differs(), None);
    }
}
