//! Plots as SVG: scales with round ticks, a frame with axes, lines and dots. Colours come from the page's style by
//! class.

use std::fmt::Write;

use super::escape::escape;

/// The width of a plot in its own units. The page scales it.
pub(super) const WIDTH: f64 = 420.0;
/// The most series with different colours. The page's style has as many.
pub(super) const COLOURS: usize = 8;

/// Maps values to positions on an axis.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    /// Whether the scale is logarithmic.
    log: bool,
    /// The marked values, and their texts.
    pub(super) ticks: Vec<(f64, String)>,
}

impl Scale {
    /// A scale from 0 to `most` or a round number above it. `show` formats a value; its second argument is the end
    /// of the scale.
    pub(super) fn linear(most: f64, ticks: u32, show: impl Fn(f64, f64) -> String) -> Self {
        let most = if most.is_finite() && most > 0.0 { most } else { 1.0 };
        let step = round_step(most / f64::from(ticks.max(1)));
        let steps = (most / step - 1e-9).ceil().max(1.0);
        let high = steps * step;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a handful
        let ticks = (0..=steps as u32).map(|n| f64::from(n) * step).map(|value| (value, show(value, high))).collect();
        Self { low: 0.0, high, log: false, ticks }
    }

    /// A scale from 0 to `high` with the given ticks.
    pub(super) fn marked(high: f64, ticks: Vec<(f64, String)>) -> Self {
        Self { low: 0.0, high: if high > 0.0 { high } else { 1.0 }, log: false, ticks }
    }

    /// A scale between two powers of ten, around all positive `values`.
    pub(super) fn log(values: impl Iterator<Item = f64>, show: impl Fn(f64) -> String) -> Self {
        let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
        for value in values.filter(|value| value.is_finite() && *value > 0.0) {
            (low, high) = (low.min(value), high.max(value));
        }
        let (low, high) = if high > 0.0 { (low, high) } else { (1.0, 10.0) };
        #[allow(clippy::cast_possible_truncation)] // exponents of finite numbers
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let last = last.max(first + 1);
        let ticks = (first..=last).map(|power| 10_f64.powi(power)).map(|value| (value, show(value))).collect();
        Self { low: 10_f64.powi(first), high: 10_f64.powi(last), log: true, ticks }
    }

    /// Returns the position of a value, from 0 to 1. Values outside are at the edge.
    pub(super) fn place(&self, value: f64) -> f64 {
        let place = if self.log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        if place.is_finite() { place.clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// Returns 1, 2 or 5 times a power of ten, not below `least`.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= least * (1.0 - 1e-9))
        .unwrap_or(10.0 * power)
}

/// A plot that is being built.
pub(super) struct Plot {
    height: f64,
    left: f64,
    x: Scale,
    y: Option<Scale>,
    svg: String,
}

const TOP: f64 = 10.0;
const RIGHT: f64 = 14.0;
const BOTTOM: f64 = 38.0;

impl Plot {
    /// Starts with the axes and their ticks. `label` describes the plot for those who cannot see it. `x_label` is
    /// below the x axis. Without `y` the plot has lanes, which [`Self::lane`] draws.
    pub(super) fn new(label: &str, height: f64, x: Scale, x_label: &str, y: Option<Scale>) -> Self {
        // As wide as the longest text beside the axis, at about seven units a character.
        let longest = y.iter().flat_map(|y| &y.ticks).map(|(_, text)| text.chars().count()).max().unwrap_or(0);
        #[allow(clippy::cast_precision_loss)] // some characters
        let left = 12.0 + 6.5 * longest as f64;
        let mut plot = Self { height, left, x, y, svg: String::new() };
        let _ =
            write!(plot.svg, "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">", escape(label));
        let bottom = height - BOTTOM;
        let mut last_end = f64::NEG_INFINITY;
        for (value, text) in plot.x.ticks.clone() {
            let x = plot.at_x(value);
            let _ = write!(plot.svg, "<path class=\"grid\" d=\"M{x:.1} {TOP}V{bottom:.1}\"/>");
            // A text that would overlap the previous one is omitted.
            #[allow(clippy::cast_precision_loss)] // some characters
            let half = 3.4 * text.chars().count() as f64;
            let x = x.min(WIDTH - half);
            if x - half > last_end {
                let _ = write!(
                    plot.svg,
                    "<text class=\"tick mid\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
                    bottom + 15.0,
                    escape(&text)
                );
                last_end = x + half + 4.0;
            }
        }
        for (value, text) in plot.y.iter().flat_map(|y| y.ticks.clone()).collect::<Vec<_>>() {
            let (y, right) = (plot.at_y(value), WIDTH - RIGHT);
            let _ = write!(plot.svg, "<path class=\"grid\" d=\"M{left:.1} {y:.1}H{right:.1}\"/>");
            let _ = write!(
                plot.svg,
                "<text class=\"tick end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                left - 6.0,
                y + 4.0,
                escape(&text)
            );
        }
        let _ = write!(plot.svg, "<path class=\"axis\" d=\"M{left:.1} {bottom:.1}H{:.1}\"/>", WIDTH - RIGHT);
        let middle = f64::midpoint(left, WIDTH - RIGHT);
        let _ = write!(
            plot.svg,
            "<text class=\"label mid\" x=\"{middle:.1}\" y=\"{:.1}\">{}</text>",
            height - 6.0,
            escape(x_label)
        );
        plot
    }

    fn at_x(&self, value: f64) -> f64 {
        self.left + self.x.place(value) * (WIDTH - RIGHT - self.left)
    }

    fn at_y(&self, value: f64) -> f64 {
        let place = self.y.as_ref().map_or(0.0, |y| y.place(value));
        self.height - BOTTOM - place * (self.height - BOTTOM - TOP)
    }

    /// Draws a line through points with ascending x, thinned to about `most` points.
    pub(super) fn line(&mut self, series: usize, points: &[(f64, f64)], most: usize) {
        let thinned = thin(points, most);
        let colour = series % COLOURS;
        match &thinned[..] {
            [] => {}
            [(x, y)] => {
                let _ = write!(
                    self.svg,
                    "<circle class=\"d s{colour}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\"/>",
                    self.at_x(*x),
                    self.at_y(*y)
                );
            }
            many => {
                let _ = write!(self.svg, "<polyline class=\"l s{colour}\" points=\"");
                for (x, y) in many {
                    let (x, y) = (self.at_x(*x), self.at_y(*y));
                    let _ = write!(self.svg, "{x:.1},{y:.1} ");
                }
                self.svg.push_str("\"/>");
            }
        }
    }

    /// Marks a value of x with a text.
    pub(super) fn event(&mut self, x: f64, what: &str) {
        let (x, bottom) = (self.at_x(x), self.height - BOTTOM);
        let _ = write!(
            self.svg,
            "<path class=\"mark\" d=\"M{x:.1} {TOP}V{bottom:.1}\"><title>{0}</title></path><text class=\"tick\" x=\"{1:.1}\" y=\"{2:.1}\">{0}</text>",
            escape(what),
            x + 3.0,
            TOP + 9.0
        );
    }

    /// Draws a lane of a plot without a y axis: its values as dots, the median, the interval, and the `marks`
    /// across.
    pub(super) fn lane(&mut self, series: usize, middle: f64, lane: &Lane<'_>) {
        let colour = series % COLOURS;
        let _ =
            write!(self.svg, "<text class=\"lane\" x=\"4\" y=\"{:.1}\">{}</text>", middle - 11.0, escape(lane.name));
        for (value, what) in &lane.marks {
            let (x, top, bottom) = (self.at_x(*value), middle - 8.0, middle + 8.0);
            let _ = write!(
                self.svg,
                "<path class=\"mark\" d=\"M{x:.1} {top:.1}V{bottom:.1}\"><title>{}</title></path>",
                escape(what)
            );
        }
        if let Some((low, high)) = lane.interval {
            let (low, high) = (self.at_x(low), self.at_x(high));
            let width = (high - low).max(1.0);
            let _ = write!(
                self.svg,
                "<rect class=\"i s{colour}\" x=\"{low:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"12\" rx=\"2\"/>",
                middle - 6.0
            );
        }
        for (number, (value, what)) in lane.values.iter().enumerate() {
            // Dots of similar values are above each other, always in the same way.
            let away = [0.0, -3.0, 3.0, -1.5, 1.5][number % 5];
            let (x, y) = (self.at_x(*value), middle + away);
            let _ = write!(
                self.svg,
                "<circle class=\"d s{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{}</title></circle>",
                escape(what)
            );
        }
        let x = self.at_x(lane.median);
        let _ = write!(self.svg, "<path class=\"m\" d=\"M{x:.1} {:.1}V{:.1}\"/>", middle - 9.0, middle + 9.0);
    }

    /// Returns the picture.
    pub(super) fn end(mut self) -> String {
        self.svg.push_str("</svg>");
        self.svg
    }
}

/// The contents of a lane.
pub(super) struct Lane<'a> {
    pub(super) name: &'a str,
    /// The values, with a text for each.
    pub(super) values: Vec<(f64, String)>,
    pub(super) median: f64,
    pub(super) interval: Option<(f64, f64)>,
    pub(super) marks: Vec<(f64, String)>,
}

/// Returns at most about `most` of the points: of each run of neighbours the lowest and the highest, in order, so
/// that no spike is lost.
pub(super) fn thin(points: &[(f64, f64)], most: usize) -> Vec<(f64, f64)> {
    let most = most.max(4);
    if points.len() <= most {
        return points.to_vec();
    }
    let run = points.len().div_ceil(most / 2);
    let extremes = |run: &[(f64, f64)]| {
        let by = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let (low, high) = (run.iter().min_by(by).copied(), run.iter().max_by(by).copied());
        let mut both: Vec<(f64, f64)> = low.into_iter().chain(high).collect();
        both.sort_by(|a, b| a.0.total_cmp(&b.0));
        both.dedup();
        both
    };
    points.chunks(run).flat_map(extremes).collect()
}

/// A legend of series: their colours and names. Empty for a single series.
pub(super) fn legend<'a>(names: impl Iterator<Item = (usize, &'a str)>) -> String {
    let names: Vec<(usize, &str)> = names.collect();
    if names.len() < 2 {
        return String::new();
    }
    let mut out = String::from("<ul class=\"legend\">");
    for (colour, name) in names {
        let key = "<svg viewBox=\"0 0 24 8\"><path class=\"l";
        let _ = write!(out, "<li>{key} s{}\" d=\"M1 4H23\"/></svg>{}</li>", colour % COLOURS, escape(name));
    }
    out + "</ul>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_around_the_values() {
        let values = |most: f64| {
            Scale::linear(most, 4, |v, _| format!("{v}")).ticks.into_iter().map(|t| t.0).collect::<Vec<_>>()
        };
        assert_eq!(values(930.0), [0.0, 500.0, 1000.0]);
        assert_eq!(values(4.0), [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(values(0.0), [0.0, 0.5, 1.0]);
        assert_eq!(values(f64::NAN), [0.0, 0.5, 1.0]);
        let log = Scale::log([3.0, 700.0].into_iter(), |v| format!("{v}"));
        assert_eq!(log.ticks.iter().map(|t| t.0).collect::<Vec<_>>(), [1.0, 10.0, 100.0, 1000.0]);
        assert!((log.place(10.0) - 1.0 / 3.0).abs() < 1e-9 && log.place(0.0) == 0.0 && log.place(1e9) == 1.0);
        assert_eq!(Scale::log(std::iter::empty(), |v| format!("{v}")).ticks.len(), 2);
    }

    #[test]
    fn a_long_series_is_thinned_and_keeps_its_spikes() {
        let mut points: Vec<(f64, f64)> = (0..100_000).map(|n| (f64::from(n), f64::from(n % 7))).collect();
        points[54_321].1 = 1000.0;
        points[77_777].1 = -5.0;
        let thinned = thin(&points, 300);
        assert!(thinned.len() <= 300, "{}", thinned.len());
        assert!(thinned.contains(&(54_321.0, 1000.0)) && thinned.contains(&(77_777.0, -5.0)));
        assert!(thinned.is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!(thin(&points[..10], 300), &points[..10]);
    }

    #[test]
    fn names_are_escaped_in_pictures() {
        let x = Scale::linear(1.0, 2, |v, _| v.to_string());
        let mut plot = Plot::new("a<b", 100.0, x, "\"x\"", None);
        let lane = Lane { name: "<i>", values: vec![(0.5, "&".into())], median: 0.5, interval: None, marks: vec![] };
        plot.lane(0, 50.0, &lane);
        let svg = plot.end() + &legend([(0, "<u>"), (1, "b")].into_iter());
        for wrong in ["a<b", "\"x\"<", "<i>", "<u>", ">&<"] {
            assert!(!svg.contains(wrong), "{wrong} in {svg}");
        }
    }
}
