//! Finds machines, or runs, that differ from the others.

use super::interval::median;

/// Iglewicz and Hoaglin's bound on the modified z-score.
const SCORE_MAX: f64 = 3.5;
/// The median absolute deviation of a normal distribution, in standard deviations.
const DEVIATION_OF_NORMAL: f64 = 0.6745;

/// Returns the indexes of values that are far from the others. They must differ from the median by more than 3.5
/// times the deviation of the middle half (modified z-score). They must also differ by more than `share_min` of the
/// median, so that a tiny spread has no outliers. Fewer than five values have no outliers.
#[must_use]
pub fn outliers(values: &[f64], share_min: f64) -> Vec<usize> {
    let Some(middle) = median(values).filter(|_| values.len() >= 5) else { return Vec::new() };
    let away: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    let Some(deviation) = median(&away) else { return Vec::new() };
    away.iter()
        .enumerate()
        .filter(|(_, away)| DEVIATION_OF_NORMAL * **away > SCORE_MAX * deviation && **away > share_min * middle.abs())
        .map(|(place, _)| place)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_of_twenty_nodes_are_found() {
        let mut rates: Vec<f64> = (0..20).map(|n| 100.0 + f64::from(n % 5)).collect();
        assert_eq!(outliers(&rates, 0.05), Vec::<usize>::new());
        rates[3] = 200.0;
        rates[17] = 198.0;
        assert_eq!(outliers(&rates, 0.05), vec![3, 17]);
    }

    #[test]
    fn a_tiny_difference_is_no_outlier() {
        assert_eq!(outliers(&[100.0, 100.0, 100.0, 100.0, 100.1], 0.05), Vec::<usize>::new());
        assert_eq!(outliers(&[100.0, 100.0, 100.0, 100.0, 120.0], 0.05), vec![4]);
        assert_eq!(outliers(&[1.0, 100.0], 0.05), Vec::<usize>::new());
    }
}
