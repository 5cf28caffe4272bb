//! Plots as SVG: scales with round ticks, a frame with axes, lines and markers. Colours and line styles come from a
//! style by class, each with a marker of its own, so that a plot is readable without colours.

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

/// What stands beside the y axis.
pub(super) enum Side<'a> {
    /// A scale, and its unit, which is above the axis.
    Scale(Scale, &'a str),
    /// Lanes with these names, which [`Plot::lane`] draws.
    Lanes(Vec<&'a str>),
}

/// A plot that is being built. Names, units and the legend are outside of the frame that holds the lines.
pub(super) struct Plot {
    caption: String,
    label: String,
    top: f64,
    bottom: f64,
    left: f64,
    x: Scale,
    y: Option<Scale>,
    /// The end of the last text above the frame.
    event_end: f64,
    /// The height with all texts below the frame.
    height: f64,
    svg: String,
}

const RIGHT: f64 = 14.0;
/// The approximate width of a character.
const CHARACTER: f64 = 6.5;
/// The most characters of a name beside a lane.
const NAME_MAX: usize = 20;
/// The most characters of a text in a legend.
const LEGEND_MAX: usize = 54;
/// The height of a line of a legend.
const LEGEND_LINE: f64 = 17.0;
/// The width of a key in a legend.
const KEY: f64 = 30.0;
/// The number of markers on a line.
const MARKERS: usize = 5;

impl Plot {
    /// Starts with the axes and their ticks. `label` describes the plot for those who cannot see it. `height` is that
    /// of the frame, `x_label` is below the x axis.
    pub(super) fn new(caption: &str, label: &str, height: f64, x: Scale, x_label: &str, side: Side<'_>) -> Self {
        let (y, names, unit) = match side {
            Side::Scale(scale, unit) => (Some(scale), Vec::new(), unit),
            Side::Lanes(names) => (None, names, ""),
        };
        let ticks = y.iter().flat_map(|y| &y.ticks).map(|(_, text)| text.chars().count());
        let longest = names.iter().map(|name| name.chars().count().min(NAME_MAX)).chain(ticks).max().unwrap_or(0);
        let left = 14.0 + width(longest);
        // Above a scale there is a line for its unit, and one for events.
        let top = if y.is_some() { 34.0 } else { 10.0 };
        let bottom = top + height;
        let svg = String::new();
        let (caption, label) = (caption.to_owned(), label.to_owned());
        let event_end = left;
        let mut plot = Self { caption, label, top, bottom, left, x, y, event_end, height: bottom + 38.0, svg };
        let mut last_end = f64::NEG_INFINITY;
        for (value, text) in plot.x.ticks.clone() {
            let x = plot.at_x(value);
            let _ = write!(plot.svg, "<path class=\"grid\" d=\"M{x:.1} {top}V{bottom:.1}\"/>");
            // A text that would overlap the previous one is omitted.
            let half = width(text.chars().count()) / 2.0 + 0.5;
            let x = x.min(WIDTH - half);
            if x - half > last_end {
                plot.text("tick mid", x, bottom + 15.0, &text);
                last_end = x + half + 4.0;
            }
        }
        for (value, text) in plot.y.iter().flat_map(|y| y.ticks.clone()).collect::<Vec<_>>() {
            let (y, right) = (plot.at_y(value), WIDTH - RIGHT);
            let _ = write!(plot.svg, "<path class=\"grid\" d=\"M{left:.1} {y:.1}H{right:.1}\"/>");
            plot.text("tick end", left - 6.0, y + 4.0, &text);
        }
        let _ = write!(plot.svg, "<path class=\"axis\" d=\"M{left:.1} {top}V{bottom:.1}H{:.1}\"/>", WIDTH - RIGHT);
        plot.text("label", 2.0, 12.0, unit);
        plot.text("label mid", f64::midpoint(left, WIDTH - RIGHT), bottom + 32.0, x_label);
        plot
    }

    fn text(&mut self, class: &str, x: f64, y: f64, text: &str) {
        if !text.is_empty() {
            let text = escape(text);
            let _ = write!(self.svg, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>");
        }
    }

    fn at_x(&self, value: f64) -> f64 {
        self.left + self.x.place(value) * (WIDTH - RIGHT - self.left)
    }

    fn at_y(&self, value: f64) -> f64 {
        let place = self.y.as_ref().map_or(0.0, |y| y.place(value));
        self.bottom - place * (self.bottom - self.top)
    }

    /// Draws a line through points with ascending x, thinned to about `most` points. Some of them have the marker of
    /// the series.
    pub(super) fn line(&mut self, series: usize, points: &[(f64, f64)], most: usize) {
        let thinned: Vec<(f64, f64)> =
            thin(points, most).into_iter().map(|(x, y)| (self.at_x(x), self.at_y(y))).collect();
        let class = class(series);
        if thinned.len() > 1 {
            let _ = write!(self.svg, "<polyline class=\"l {class}\" points=\"");
            for (x, y) in &thinned {
                let _ = write!(self.svg, "{x:.1},{y:.1} ");
            }
            self.svg.push_str("\"/>");
        }
        // Each series begins elsewhere, so that equal lines show the markers of all.
        let step = thinned.len().div_ceil(MARKERS).max(1);
        let markers = thinned.iter().skip(series % COLOURS * step / COLOURS).step_by(step);
        let d: String = markers.map(|(x, y)| marker(series, *x, *y)).collect();
        if !d.is_empty() {
            let _ = write!(self.svg, "<path class=\"d {class}\" d=\"{d}\"/>");
        }
    }

    /// Marks a value of x with a number above the frame. The legend says what happened then.
    pub(super) fn event(&mut self, x: f64, number: usize) {
        let (x, top, bottom) = (self.at_x(x), self.top, self.bottom);
        let _ = write!(self.svg, "<path class=\"mark\" d=\"M{x:.1} {top}V{bottom:.1}\"/>");
        let text = number.to_string();
        let half = width(text.chars().count()) / 2.0;
        let x = x.max(self.event_end + half);
        self.text("tick mid", x, top - 4.0, &text);
        self.event_end = x + half + 3.0;
    }

    /// Draws a lane of a plot without a y axis: its values as markers, the median, the interval, and the `marks`
    /// across. The name is beside the frame.
    pub(super) fn lane(&mut self, series: usize, middle: f64, lane: &Lane<'_>) {
        let class = class(series);
        let middle = self.top + middle;
        let _ = write!(
            self.svg,
            "<text class=\"lane end\" x=\"{:.1}\" y=\"{:.1}\">{}<title>{}</title></text>",
            self.left - 8.0,
            middle + 4.0,
            escape(&shortened(lane.name, NAME_MAX)),
            escape(lane.name)
        );
        for (value, what) in &lane.marks {
            let (x, top, bottom) = (self.at_x(*value), middle - 10.0, middle + 10.0);
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
                "<rect class=\"i {class}\" x=\"{low:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"12\" rx=\"2\"/>",
                middle - 6.0
            );
        }
        for (number, (value, what)) in lane.values.iter().enumerate() {
            // Markers of similar values are above each other, always in the same way.
            let away = [0.0, -3.0, 3.0, -1.5, 1.5][number % 5];
            let d = marker(series, self.at_x(*value), middle + away);
            let what = escape(what);
            let _ = write!(self.svg, "<path class=\"d {class}\" d=\"{d}\"><title>{what}</title></path>");
        }
        let x = self.at_x(lane.median);
        let _ = write!(self.svg, "<path class=\"m\" d=\"M{x:.1} {:.1}V{:.1}\"/>", middle - 9.0, middle + 9.0);
    }

    /// Adds the legend below the frame.
    pub(super) fn legend(&mut self, entries: &[(Key, &str)]) {
        let (mut x, mut y) = (4.0, self.height + 8.0);
        for (key, text) in entries {
            let text = shortened(text, LEGEND_MAX);
            let wide = KEY + width(text.chars().count()) + 14.0;
            if x > 4.0 && x + wide > WIDTH {
                (x, y) = (4.0, y + LEGEND_LINE);
            }
            key.draw(&mut self.svg, x, y);
            self.text("tick", x + KEY, y + 4.0, &text);
            x += wide;
        }
        if !entries.is_empty() {
            self.height = y + 10.0;
        }
    }

    /// Returns the picture.
    pub(super) fn end(self) -> Picture {
        Picture { caption: self.caption, label: self.label, width: WIDTH, height: self.height, inside: self.svg }
    }
}

/// A picture without its element `svg`.
pub(super) struct Picture {
    /// A line for people, above the picture on the page.
    pub(super) caption: String,
    /// A text for those who cannot see it.
    pub(super) label: String,
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) inside: String,
}

/// A key of a legend.
#[derive(Clone, Copy)]
pub(super) enum Key {
    /// A line with its markers.
    Series(usize),
    /// A value of one repeat.
    Value,
    /// A median.
    Median,
    /// An interval of a median.
    Interval,
    /// A rate of something else.
    Mark,
    /// The number of an event.
    Event(usize),
}

impl Key {
    fn draw(self, svg: &mut String, x: f64, y: f64) {
        let middle = x + 12.0;
        let _ = match self {
            Self::Series(series) => {
                let (class, d) = (class(series), marker(series, middle, y));
                let line = format!("<path class=\"l {class}\" d=\"M{x:.1} {y:.1}h24\"/>");
                write!(svg, "{line}<path class=\"d {class}\" d=\"{d}\"/>")
            }
            Self::Value => write!(svg, "<path class=\"v\" d=\"{}\"/>", marker(0, middle, y)),
            Self::Median => write!(svg, "<path class=\"m\" d=\"M{middle:.1} {:.1}v14\"/>", y - 7.0),
            Self::Interval => {
                let (x, y) = (x + 2.0, y - 5.0);
                write!(svg, "<rect class=\"i\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"20\" height=\"10\" rx=\"2\"/>")
            }
            Self::Mark => write!(svg, "<path class=\"mark\" d=\"M{middle:.1} {:.1}v14\"/>", y - 7.0),
            Self::Event(number) => {
                write!(svg, "<text class=\"tick mid\" x=\"{middle:.1}\" y=\"{:.1}\">{number}</text>", y + 4.0)
            }
        };
    }
}

/// The class of a series: its colour and line style. Those after the first eight have hollow markers.
pub(super) fn class(series: usize) -> String {
    let hollow = if series / COLOURS % 2 == 1 { " h" } else { "" };
    format!("s{}{hollow}", series % COLOURS)
}

/// Returns the marker of a series as commands of a path: each colour has its own shape, for paper without colours.
pub(super) fn marker(series: usize, x: f64, y: f64) -> String {
    let shape = match series % COLOURS {
        0 => "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z",
        1 => "m-3-3h6v6h-6z",
        2 => "m0-4l4 7h-8z",
        3 => "m0-4.5l4.5 4.5l-4.5 4.5l-4.5-4.5z",
        4 => "m0 4l4-7h-8z",
        5 => "m-1.3-4h2.6v2.7h2.7v2.6h-2.7v2.7h-2.6v-2.7h-2.7v-2.6h2.7z",
        6 => "m0-1.8l2.3-2.3l1.8 1.8l-2.3 2.3l2.3 2.3l-1.8 1.8l-2.3-2.3l-2.3 2.3l-1.8-1.8l2.3-2.3l-2.3-2.3l1.8-1.8z",
        _ => "m-3.6-3.6h7.2l-7.2 7.2h7.2z",
    };
    format!("M{x:.1} {y:.1}{shape}")
}

/// The approximate width of a text of this many characters.
#[allow(clippy::cast_precision_loss)] // some characters
pub(super) fn width(characters: usize) -> f64 {
    CHARACTER * characters as f64
}

/// Returns the beginning of a long text.
pub(super) fn shortened(text: &str, characters_max: usize) -> String {
    if text.chars().count() <= characters_max {
        return text.to_owned();
    }
    text.chars().take(characters_max.saturating_sub(1)).chain(['…']).collect()
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
        let mut plot = Plot::new("", "a<b", 100.0, x, "\"x\"", Side::Lanes(vec!["<i>"]));
        let lane = Lane {
            name: "<i>",
            values: vec![(0.5, "&".into())],
            median: 0.5,
            interval: None,
            marks: vec![(0.1, "<s>".into())],
        };
        plot.lane(0, 50.0, &lane);
        plot.legend(&[(Key::Series(0), "<u>"), (Key::Mark, "b")]);
        let svg = plot.end().inside;
        for wrong in ["a<b", "\"x\"<", "<i>", "<u>", "<s>", ">&<"] {
            assert!(!svg.contains(wrong), "{wrong} in {svg}");
        }
    }

    /// The places of all texts in a picture.
    fn texts(inside: &str) -> Vec<(f64, f64)> {
        let number = |text: &str, name: &str| -> f64 {
            let rest = text.split_once(&format!(" {name}=\"")).unwrap().1;
            rest.split('"').next().unwrap().parse().unwrap()
        };
        inside.split("<text").skip(1).map(|text| (number(text, "x"), number(text, "y"))).collect()
    }

    #[test]
    fn no_text_is_inside_the_frame() {
        let scale = || Scale::linear(100.0, 4, |v, _| v.to_string());
        let mut lanes =
            Plot::new("", "", 80.0, scale(), "MB/s", Side::Lanes(vec!["a", "a system with a very long name"]));
        for (number, name) in ["a", "a system with a very long name"].into_iter().enumerate() {
            let lane = Lane { name, values: vec![(5.0, "v".into())], median: 5.0, interval: None, marks: vec![] };
            lanes.lane(number, 20.0 + 40.0 * f64::from(u8::try_from(number).unwrap()), &lane);
        }
        let mut lines = Plot::new("", "", 150.0, scale(), "seconds", Side::Scale(scale(), "MB/s"));
        lines.line(0, &[(0.0, 0.0), (100.0, 100.0)], 10);
        // Two events at nearly the same time have numbers beside each other.
        [0.0, 0.1, 99.0].into_iter().enumerate().for_each(|(number, at)| lines.event(at, number + 1));
        for mut plot in [lanes, lines] {
            plot.legend(&[(Key::Series(0), "one"), (Key::Event(1), "fail"), (Key::Mark, "client alone: 1.0 GB/s")]);
            let (left, top, bottom) = (plot.left, plot.top, plot.bottom);
            let picture = plot.end();
            for (x, y) in texts(&picture.inside) {
                assert!(x < left || y < top || y > bottom, "{x} {y}");
                assert!(y < picture.height && x < WIDTH, "{x} {y}");
            }
        }
    }

    #[test]
    fn series_differ_without_their_colours() {
        let shapes: std::collections::BTreeSet<String> = (0..COLOURS).map(|series| marker(series, 0.0, 0.0)).collect();
        assert_eq!(shapes.len(), COLOURS);
        assert_ne!(class(1), class(1 + COLOURS));
        let scale = || Scale::linear(100.0, 4, |v, _| v.to_string());
        let mut plot = Plot::new("", "", 150.0, scale(), "", Side::Scale(scale(), ""));
        plot.line(3, &[(0.0, 5.0), (50.0, 6.0), (100.0, 7.0)], 10);
        let inside = plot.end().inside;
        assert!(inside.contains("class=\"l s3\"") && inside.contains("l4.5 4.5l-4.5 4.5"), "{inside}");
        // A legend breaks its lines, and shortens long names.
        let mut plot = Plot::new("", "", 150.0, scale(), "", Side::Scale(scale(), ""));
        let before = plot.height;
        let long = "n".repeat(1000);
        plot.legend(&[(Key::Series(0), long.as_str()), (Key::Series(1), long.as_str()), (Key::Series(2), "c")]);
        assert!(plot.height > before + 2.0 * LEGEND_LINE && !plot.svg.contains(&long));
    }
}
