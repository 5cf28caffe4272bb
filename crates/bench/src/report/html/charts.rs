//! The plots of a row: all repeats together, rates over time, and latencies.

use super::plot::{Key, Lane, Picture, Plot, Scale, Side};
use super::view::RowView;
use crate::latency::Latency;
use crate::measure::{Measured, count};
use crate::report::figures::{rate, took};
use crate::report::{Cell, Unit};

/// The height of the frame of plots with a y axis.
pub(super) const HEIGHT: f64 = 160.0;
/// The height of a lane.
const LANE: f64 = 26.0;
/// The fewest whole seconds of a useful series.
const SERIES_SECONDS_MIN: usize = 3;
/// A ceiling is hidden if it exceeds the best figure by more than this factor. Otherwise the figures would be
/// squeezed together.
const CEILING_SHOWN_MAX: f64 = 1.5;

/// The most ceilings in the legend of a plot.
const CEILINGS_MAX: usize = 6;
/// The most events in the legend of a plot.
const EVENTS_MAX: usize = 8;

/// Returns a divisor for numbers up to `high`, and the unit of the results.
fn unit_of(high: f64, unit: Unit) -> (f64, &'static str) {
    match unit {
        Unit::Bytes if high >= 1e9 => (1e9, "GB/s"),
        Unit::Bytes if high >= 1e6 => (1e6, "MB/s"),
        Unit::Bytes => (1e3, "kB/s"),
        Unit::Operations if high >= 1e6 => (1e6, "millions a second"),
        Unit::Operations if high >= 1e4 => (1e3, "thousands a second"),
        Unit::Operations => (1.0, "a second"),
        Unit::Efficiency => (0.01, "%"),
    }
}

/// Formats a number without trailing zeros.
pub(super) fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Returns a scale of rates, and its unit.
pub(super) fn rates_scale(most: f64, unit: Unit) -> (Scale, &'static str) {
    let show = |value: f64, high: f64| short(value / unit_of(high, unit).0);
    let scale = Scale::linear(most, 4, show);
    let high = scale.ticks.last().map_or(most, |tick| tick.0);
    (scale, unit_of(high, unit).1)
}

/// Plots all repeats of all systems, with medians, intervals and near ceilings.
pub(super) fn repeats(view: &RowView<'_>) -> Option<Picture> {
    let row = view.row;
    let cells: Vec<(usize, &Cell)> = row.cells.iter().enumerate().filter(|(_, cell)| cell.usable().is_some()).collect();
    let best = cells.iter().flat_map(|(_, cell)| &cell.values).copied().fold(0.0, f64::max);
    if cells.is_empty() || best <= 0.0 {
        return None;
    }
    let near = |cell: &Cell| -> Vec<(f64, String)> {
        let shown = cell.ceilings.iter().filter(|ceiling| ceiling.rate <= CEILING_SHOWN_MAX * best);
        shown
            .map(|ceiling| (ceiling.rate, format!("{} alone: {}", ceiling.stage.name(), rate(ceiling.rate, row.unit))))
            .collect()
    };
    let most = cells.iter().flat_map(|(_, cell)| near(cell)).map(|(value, _)| value).fold(best, f64::max);
    let (x, unit) = rates_scale(most, row.unit);
    #[allow(clippy::cast_precision_loss)] // some systems
    let height = LANE * cells.len() as f64;
    let caption = "All repeats, median, and the interval of the median";
    let side = Side::Lanes(cells.iter().map(|(_, cell)| cell.system.as_str()).collect());
    let mut plot = Plot::new(caption, &format!("{}: all repeats by system", row.phase), height, x, unit, side);
    let mut middle = LANE / 2.0;
    let mut ceilings: Vec<String> = Vec::new();
    for (number, cell) in &cells {
        let say =
            |(repeat, value): (usize, &f64)| (*value, format!("repeat {}: {}", repeat + 1, rate(*value, row.unit)));
        let marks = near(cell);
        let of_system = marks.iter().map(|(_, what)| format!("{}, {what}", cell.system));
        ceilings.extend(of_system.take(CEILINGS_MAX.saturating_sub(ceilings.len())));
        let lane = Lane {
            name: &cell.system,
            values: cell.values.iter().enumerate().map(say).collect(),
            median: cell.median,
            interval: cell.interval.map(|interval| (interval.low, interval.high)),
            marks,
        };
        plot.lane(view.colour(*number), middle, &lane);
        middle += LANE;
    }
    let mut legend = vec![(Key::Value, "a repeat"), (Key::Median, "median")];
    if cells.iter().any(|(_, cell)| cell.interval.is_some()) {
        legend.push((Key::Interval, "95 % interval of it"));
    }
    legend.extend(ceilings.iter().map(|text| (Key::Mark, text.as_str())));
    plot.legend(&legend);
    Some(plot.end())
}

/// Returns the rates of each second, and of the rest of the last one.
#[allow(clippy::cast_precision_loss)] // a rate
fn series(measured: &Measured, unit: Unit) -> Vec<(f64, f64)> {
    let (mut before, mut from, each) = (0, 0.0, f64::from(measured.second_s.max(1)));
    let mut points = Vec::new();
    for (second, reading) in measured.seconds.iter().enumerate() {
        let count = count(reading, unit);
        let until = if second + 1 == measured.seconds.len() { measured.wall_s } else { (second as f64 + 1.0) * each };
        // A rate over a very short time is useless.
        if until - from >= 0.2 {
            points.push((until, count.saturating_sub(before) as f64 / (until - from)));
        }
        (before, from) = (count, until);
    }
    points
}

/// Plots rates over time, of each system's typical repeat.
pub(super) fn over_time(view: &RowView<'_>, points_max: usize) -> Option<Picture> {
    let row = view.row;
    let all: Vec<(usize, Vec<(f64, f64)>)> =
        view.typical().map(|(number, phase)| (number, series(&phase.measured, row.unit))).collect();
    if all.iter().all(|(_, points)| points.len() < SERIES_SECONDS_MIN) {
        return None;
    }
    let most = |axis: fn(&(f64, f64)) -> f64| all.iter().flat_map(|(_, points)| points).map(axis).fold(0.0, f64::max);
    let (y, unit) = rates_scale(most(|point| point.1), row.unit);
    let x = Scale::linear(most(|point| point.0), 6, |value, _| short(value));
    let caption = "Rate over time, in the repeat nearest to the median";
    let label = format!("{}: rate over time", row.phase);
    let mut plot = Plot::new(caption, &label, HEIGHT, x, "seconds", Side::Scale(y, unit));
    for (number, points) in &all {
        plot.line(view.colour(*number), points, points_max);
    }
    let mut legend: Vec<(Key, &str)> = view.systems().map(|(series, name)| (Key::Series(series), name)).collect();
    let faults = view.typical().flat_map(|(_, phase)| &phase.faults).take(EVENTS_MAX);
    for (number, fault) in faults.enumerate() {
        plot.event(fault.at_s, number + 1);
        legend.push((Key::Event(number + 1), fault.what.as_str()));
    }
    plot.legend(&legend);
    Some(plot.end())
}

/// Plots latencies by percentile, of all repeats. Both axes are logarithmic, so that rare latencies are visible.
pub(super) fn latencies(view: &RowView<'_>, points_max: usize) -> Option<Picture> {
    let merged = |phases: &[&crate::result::PhaseRecord]| {
        let mut latency = Latency::default();
        phases.iter().for_each(|phase| latency.merge(&phase.measured.tally.latency));
        latency
    };
    let all: Vec<(usize, Vec<(f64, f64)>)> =
        view.phases.iter().enumerate().map(|(number, phases)| (number, by_nines(&merged(phases)))).collect();
    let furthest = all.iter().flat_map(|(_, points)| points).map(|point| point.0).fold(0.0, f64::max);
    if furthest <= 0.0 {
        return None;
    }
    let high = furthest.ceil();
    let nines = |n: u32| match n {
        0 => "0".to_owned(),
        1 => "90 %".to_owned(),
        2 => "99 %".to_owned(),
        n => format!("99.{} %", "9".repeat(n as usize - 2)),
    };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a logarithm of a count
    let ticks = (0..=high as u32).map(|n| (f64::from(n), nines(n))).collect();
    let y = Scale::log(all.iter().flat_map(|(_, points)| points).map(|point| point.1), latency_tick);
    let mut plot = Plot::new(
        "Latency, all repeats",
        &format!("{}: latency by percentile", view.row.phase),
        HEIGHT,
        Scale::marked(high, ticks),
        "share of operations that took no longer",
        Side::Scale(y, "latency"),
    );
    for (number, points) in &all {
        plot.line(view.colour(*number), points, points_max);
    }
    plot.legend(&view.systems().map(|(series, name)| (Key::Series(series), name)).collect::<Vec<_>>());
    Some(plot.end())
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a power of ten below an hour
fn latency_tick(us: f64) -> String {
    if us >= 1e6 { format!("{} s", short(us / 1e6)) } else { took(us as u64) }
}

/// Returns the points of the curve: the number of nines of each share, and the latency that it does not exceed.
#[allow(clippy::cast_precision_loss)] // counts
fn by_nines(latency: &Latency) -> Vec<(f64, f64)> {
    let all = latency.count() as f64;
    let mut below = 0;
    latency
        .steps()
        .map(|(us, count)| {
            below += count;
            // The last operation stands for the middle of its share, because the end would be infinitely far away.
            ((all / (all - below as f64 + 0.5)).log10().max(0.0), us as f64)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::load::{Reading, Tally};

    #[test]
    fn seconds_and_the_rest_of_the_last_one_become_rates() {
        let reading = |bytes| Reading { operations: 1, bytes, failures: 0 };
        let measured = Measured {
            wall_s: 2.5,
            tally: Tally::default(),
            seconds: vec![reading(100), reading(300), reading(400)],
            second_s: 1,
            client_cpu_s: 0.0,
            client_system_s: 0.0,
            client: vec![],
            idle_workers: vec![],
        };
        assert_eq!(series(&measured, Unit::Bytes), [(1.0, 100.0), (2.0, 200.0), (2.5, 200.0)]);
        // A phase that ended with its last second has no rest.
        assert_eq!(series(&Measured { wall_s: 2.01, ..measured }, Unit::Bytes).len(), 2);
    }

    #[test]
    fn the_curve_reaches_as_far_as_the_count() {
        let mut latency = Latency::default();
        (1..=1000).for_each(|us| latency.add(Duration::from_micros(us)));
        let points = by_nines(&latency);
        let at = |us: f64| points.iter().find(|point| point.1 >= us).unwrap().0;
        assert!((at(900.0) - 1.0).abs() < 0.01 && (at(990.0) - 2.0).abs() < 0.03, "{} {}", at(900.0), at(990.0));
        assert!((3.0..3.5).contains(&points.last().unwrap().0));
    }

    #[test]
    fn scales_have_units_that_fit() {
        let ticks = |most, unit| {
            let (scale, name) = rates_scale(most, unit);
            (scale.ticks.into_iter().map(|tick| tick.1).collect::<Vec<_>>().join(" "), name)
        };
        assert_eq!(ticks(1.7e9, Unit::Bytes), ("0 0.5 1 1.5 2".to_owned(), "GB/s"));
        assert_eq!(ticks(80e6, Unit::Bytes), ("0 20 40 60 80".to_owned(), "MB/s"));
        assert_eq!(ticks(4100.0, Unit::Operations), ("0 2000 4000 6000".to_owned(), "a second"));
    }
}
