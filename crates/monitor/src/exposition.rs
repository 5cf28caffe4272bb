//! Prometheus' text format, version 0.0.4: families of samples, each with its type and help text.

use std::fmt::{Display, Write as _};

use types::Histogram;

/// The type of a family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by upper bounds.
    Histogram,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// The text under construction.
#[derive(Default)]
pub struct Exposition {
    text: String,
    family: &'static str,
}

/// The unit of a [`Histogram`]'s values, and the buckets to show: those whose upper bounds are 2^`from` to 2^`to`.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// The first bound shown.
    pub from: usize,
    /// The last bound shown.
    pub to: usize,
    /// Whether values are microseconds; they are shown as seconds.
    pub micros: bool,
}

impl Scale {
    /// Microseconds, shown as seconds: from 1 µs to 16.8 s.
    pub const TIMES: Scale = Scale { from: 0, to: 24, micros: true };
    /// Numbers of things: from 1 to 4095.
    pub const COUNTS: Scale = Scale { from: 1, to: 12, micros: false };

    /// The upper bound of `bucket`, as the page shows it.
    #[allow(clippy::cast_precision_loss)] // far below 2^53
    fn bound(self, bucket: usize) -> f64 {
        // Times are cut to whole microseconds, so values counted below 2^n took less than 2^n.
        if self.micros { (1u64 << bucket) as f64 / 1e6 } else { ((1u64 << bucket) - 1) as f64 }
    }

    #[allow(clippy::cast_precision_loss)] // a sum for display
    fn sum(self, sum: u64) -> f64 {
        if self.micros { sum as f64 / 1e6 } else { sum as f64 }
    }
}

impl Exposition {
    /// Begins a family: its name, type and help text. The samples that follow belong to it.
    pub fn family(&mut self, name: &'static str, kind: Kind, help: &str) -> &mut Self {
        self.family = name;
        let _ = writeln!(self.text, "# HELP {name} {}", escaped(help, false));
        let _ = writeln!(self.text, "# TYPE {name} {}", kind.name());
        self
    }

    /// A sample without labels.
    pub fn sample(&mut self, value: impl Display) -> &mut Self {
        self.labelled(&[], value)
    }

    /// A sample with labels.
    pub fn labelled(&mut self, labels: &[(&str, &str)], value: impl Display) -> &mut Self {
        self.line("", labels, None, value);
        self
    }

    /// All samples of a histogram.
    pub fn histogram(&mut self, labels: &[(&str, &str)], histogram: &Histogram, scale: Scale) -> &mut Self {
        let mut below = 0;
        for (bucket, count) in histogram.counts().iter().enumerate().take(scale.to + 1) {
            below += count;
            if bucket >= scale.from {
                self.line("_bucket", labels, Some(&scale.bound(bucket)), below);
            }
        }
        self.line("_bucket", labels, Some(&"+Inf"), histogram.count());
        self.line("_sum", labels, None, scale.sum(histogram.sum()));
        self.line("_count", labels, None, histogram.count());
        self
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], le: Option<&dyn Display>, value: impl Display) {
        let _ = write!(self.text, "{}{suffix}", self.family);
        let le = le.map(|le| le.to_string());
        let all = labels.iter().copied().chain(le.as_deref().map(|le| ("le", le)));
        let mut open = '{';
        for (name, value) in all {
            let _ = write!(self.text, "{open}{name}=\"{}\"", escaped(value, true));
            open = ',';
        }
        if open == ',' {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    /// The whole text.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }
}

/// Escapes backslashes, line ends and (in labels) quotes as the format requires.
fn escaped(text: &str, quotes: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if quotes { text.replace('"', "\\\"") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_samples_and_labels_follow_the_format() {
        let mut text = Exposition::default();
        text.family("a_total", Kind::Counter, "All\nof it").sample(3);
        text.family("b", Kind::Gauge, "x").labelled(&[("who", "a\"b\\c\nd"), ("n", "1")], 0.5);
        assert_eq!(
            text.into_text(),
            "# HELP a_total All\\nof it\n# TYPE a_total counter\na_total 3\n\
             # HELP b x\n# TYPE b gauge\nb{who=\"a\\\"b\\\\c\\nd\",n=\"1\"} 0.5\n"
        );
    }

    #[test]
    fn buckets_are_cumulative_and_end_with_all() {
        let mut histogram = Histogram::default();
        // below the first bound, at its edges, and beyond the last
        [1, 3, 4, 1000, 1 << 29].into_iter().for_each(|micros| histogram.add(micros));
        let mut text = Exposition::default();
        text.family("t_seconds", Kind::Histogram, "x").histogram(&[("op", "stat")], &histogram, Scale::TIMES);
        let text = text.into_text();
        assert!(text.contains("t_seconds_bucket{op=\"stat\",le=\"0.000004\"} 2\n"), "{text}");
        assert!(text.contains("t_seconds_bucket{op=\"stat\",le=\"0.000008\"} 3\n"), "{text}");
        assert!(text.contains("t_seconds_bucket{op=\"stat\",le=\"0.001024\"} 4\n"), "{text}");
        assert!(text.contains("t_seconds_bucket{op=\"stat\",le=\"16.777216\"} 4\n"), "{text}");
        assert!(text.contains("t_seconds_bucket{op=\"stat\",le=\"+Inf\"} 5\n"), "{text}");
        assert!(text.ends_with("t_seconds_sum{op=\"stat\"} 536.87192\nt_seconds_count{op=\"stat\"} 5\n"), "{text}");
    }

    #[test]
    fn bounds_of_counts_are_the_largest_values_of_their_buckets() {
        let mut histogram = Histogram::default();
        [1, 3, 4].into_iter().for_each(|n| histogram.add(n));
        let mut text = Exposition::default();
        text.family("n", Kind::Histogram, "x").histogram(&[], &histogram, Scale::COUNTS);
        let text = text.into_text();
        for line in ["n_bucket{le=\"1\"} 1\n", "n_bucket{le=\"3\"} 2\n", "n_bucket{le=\"7\"} 3\n"] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
