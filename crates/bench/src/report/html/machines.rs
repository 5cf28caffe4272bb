//! The activity of the machines during a row.

use super::charts::{HEIGHT, rates_scale, short};
use super::plot::{Key, Picture, Plot, Scale, Side};
use crate::report::Unit;
use crate::sampling::Sample;

/// Shorter samples are inaccurate, because the kernel counts in hundredths of a second.
const SECONDS_MIN: f64 = 0.3;
/// The fewest samples of a plot.
const SAMPLES_MIN: usize = 3;

/// A name, and a value for each sample.
type Line<'a> = (&'a str, Box<dyn Fn(&Sample) -> f64 + 'a>);

/// Plots a machine: processors, the busiest disk, the busiest interface, and the pressure.
/// Each comes with a word for its file's name.
pub(super) fn plots(samples: &[Sample], points_max: usize) -> Vec<(&'static str, Picture)> {
    let samples: Vec<Sample> = samples.iter().filter(|sample| sample.seconds >= SECONDS_MIN).cloned().collect();
    let samples = &samples[..];
    let mut out = Vec::new();
    if samples.len() < SAMPLES_MIN {
        return out;
    }
    let cpu: [Line<'_>; 4] = [
        ("busy", Box::new(|sample| 1.0 - sample.cpu.idle - sample.cpu.iowait)),
        ("of it in the kernel", Box::new(|sample| sample.cpu.system + sample.cpu.interrupts)),
        ("waiting for a disk", Box::new(|sample| sample.cpu.iowait)),
        ("busiest core", Box::new(|sample| sample.busiest_core)),
    ];
    out.push(("processors", over_time("Processors", samples, &cpu, None, points_max)));
    if let Some(name) = busiest(samples, |sample| {
        sample.disks.iter().map(|(name, disk)| (name.as_str(), disk.read_bytes + disk.written_bytes))
    }) {
        let of = |part: fn(&crate::sampling::DiskRates) -> f64| {
            move |sample: &Sample| sample.disks.get(name).map_or(0.0, part)
        };
        let disk: [Line<'_>; 2] =
            [("read", Box::new(of(|disk| disk.read_bytes))), ("written", Box::new(of(|disk| disk.written_bytes)))];
        out.push(("disk", over_time(&format!("Disk {name}"), samples, &disk, Some(Unit::Bytes), points_max)));
    }
    if let Some(name) =
        busiest(samples, |sample| sample.interfaces.iter().map(|(name, of)| (name.as_str(), of.received + of.sent)))
    {
        let of = |part: fn(&crate::sampling::InterfaceRates) -> f64| {
            move |sample: &Sample| sample.interfaces.get(name).map_or(0.0, part)
        };
        let network: [Line<'_>; 2] =
            [("received", Box::new(of(|of| of.received))), ("sent", Box::new(of(|of| of.sent)))];
        let again: f64 = samples.iter().map(|sample| sample.retransmitted * sample.seconds).sum();
        let caption = format!("Interface {name}; {again:.0} TCP segments retransmitted");
        out.push(("interface", over_time(&caption, samples, &network, Some(Unit::Bytes), points_max)));
    }
    if samples.iter().any(|sample| sample.pressure.is_some()) {
        let of = |part: fn(&crate::sampling::PressureShares) -> f64| {
            move |sample: &Sample| sample.pressure.as_ref().map_or(0.0, part)
        };
        let held: [Line<'_>; 4] = [
            ("waited for a CPU", Box::new(of(|pressure| pressure.cpu))),
            ("for memory", Box::new(of(|pressure| pressure.memory))),
            ("for I/O", Box::new(of(|pressure| pressure.io))),
            (
                "busiest disk at work",
                Box::new(|sample| sample.disks.values().map(|disk| disk.busy).fold(0.0, f64::max)),
            ),
        ];
        let caption = "Pressure: share of the time in which something waited";
        out.push(("pressure", over_time(caption, samples, &held, None, points_max)));
    }
    out
}

/// Returns the device that moved the most; `None` if nothing moved.
fn busiest<'a, I: Iterator<Item = (&'a str, f64)>>(
    samples: &'a [Sample],
    of: impl Fn(&'a Sample) -> I,
) -> Option<&'a str> {
    let mut sums = std::collections::BTreeMap::<&str, f64>::new();
    samples.iter().flat_map(of).for_each(|(name, moved)| *sums.entry(name).or_default() += moved);
    sums.into_iter().filter(|(_, moved)| *moved > 0.0).max_by(|a, b| a.1.total_cmp(&b.1)).map(|(name, _)| name)
}

/// Plots lines over time: shares, or rates.
fn over_time(caption: &str, samples: &[Sample], lines: &[Line<'_>], unit: Option<Unit>, points_max: usize) -> Picture {
    let mut elapsed = 0.0;
    let ends: Vec<f64> = samples
        .iter()
        .map(|sample| {
            elapsed += sample.seconds;
            elapsed
        })
        .collect();
    let points = |line: &Line<'_>| -> Vec<(f64, f64)> {
        ends.iter().copied().zip(samples.iter().map(|sample| (line.1)(sample))).collect()
    };
    let all: Vec<Vec<(f64, f64)>> = lines.iter().map(points).collect();
    let most = all.iter().flatten().map(|point| point.1).fold(0.0, f64::max);
    let (y, y_unit) = match unit {
        Some(unit) => rates_scale(most, unit),
        None => (
            Scale::marked(
                1.0,
                [0.0, 0.25, 0.5, 0.75, 1.0].map(|share: f64| (share, format!("{:.0} %", 100.0 * share))).to_vec(),
            ),
            "share of the time",
        ),
    };
    let x = Scale::linear(elapsed, 6, |value, _| short(value));
    let mut plot = Plot::new(caption, caption, HEIGHT, x, "seconds", Side::Scale(y, y_unit));
    for (number, points) in all.iter().enumerate() {
        plot.line(number, points, points_max);
    }
    let legend = lines.iter().enumerate().map(|(number, line)| (Key::Series(number), line.0));
    plot.legend(&legend.collect::<Vec<_>>());
    plot.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::DiskRates;

    #[test]
    fn the_disk_that_moved_the_most_is_shown() {
        let disk = |bytes| DiskRates { read_bytes: bytes, ..DiskRates::default() };
        let sample = Sample {
            seconds: 1.0,
            disks: [("sda".into(), disk(1e6)), ("sdb".into(), disk(9e6))].into(),
            ..Sample::default()
        };
        let all = plots(&[sample.clone(), sample.clone(), sample], 100);
        let page: String = all.into_iter().map(|(_, picture)| picture.caption + &picture.inside).collect();
        assert!(page.contains("Disk sdb") && !page.contains("Disk sda") && page.contains("Processors"));
        assert!(!page.contains("Interface") && !page.contains("Pressure"), "what is not there has no plot");
    }
}
