//! Statistics of measured values. Nothing here assumes a distribution: measured rates and latencies are not normal,
//! and more than a quarter of all set-ups vary by more than a tenth between runs.

mod compare;
mod interval;
mod outlier;
mod recovery;
mod steady;

pub use compare::{Comparison, compare};
pub use interval::{Interval, median, median_interval, quantile, quantile_interval};
pub use outlier::outliers;
pub use recovery::{Recovery, recovery};
pub use steady::{Steady, steady};
