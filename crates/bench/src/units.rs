//! Sizes and times in the units that people use: a size in the unit in which it was given, and an estimate in days if
//! it is long.

use std::time::Duration;

use types::units::{SIZES, show_size};

/// A unit of sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeUnit {
    name: &'static str,
    bytes: u64,
}

/// The family of units in which a sum of sizes is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// Powers of 1,000: kB, MB.
    Decimal,
    /// Powers of 1,024: KiB, MiB.
    Binary,
}

impl SizeUnit {
    /// Returns the unit of a size such as `4KiB`; `None`: it has none.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        let name = text.trim_start_matches(|c: char| c.is_ascii_digit()).trim();
        SIZES.into_iter().find(|unit| unit.0 == name).map(|(name, bytes)| Self { name, bytes })
    }

    /// Returns the unit in which a size is the smallest whole number.
    #[must_use]
    pub fn whole(size: u64) -> Self {
        let fits = SIZES.into_iter().filter(|(_, bytes)| size > 0 && size.is_multiple_of(*bytes));
        let (name, bytes) = fits.reduce(|best, unit| if unit.1 > best.1 { unit } else { best }).unwrap_or(SIZES[0]);
        Self { name, bytes }
    }

    /// Returns a size in this unit, which must divide it.
    #[must_use]
    pub fn show(self, size: u64) -> String {
        format!("{} {}", size / self.bytes, self.name)
    }

    /// Returns its family; `None`: bytes, which belong to both.
    #[must_use]
    pub fn family(self) -> Option<Family> {
        match self.bytes {
            1 => None,
            bytes if bytes.is_power_of_two() => Some(Family::Binary),
            _ => Some(Family::Decimal),
        }
    }
}

/// Returns a sum of sizes with three digits.
#[must_use]
#[allow(clippy::cast_precision_loss)] // for display only
pub fn show_sum(bytes: u64, family: Family) -> String {
    let (step, names) = match family {
        Family::Binary => return show_size(bytes),
        Family::Decimal => (1000.0, ["B", "kB", "MB", "GB", "TB", "PB", "EB"]),
    };
    let (mut value, mut unit) = (bytes as f64, 0);
    // 999.5 would be shown as 1000.
    while value >= step - 0.5 && unit + 1 < names.len() {
        value /= step;
        unit += 1;
    }
    let digits = match value {
        _ if unit == 0 || value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        _ => 2,
    };
    format!("{} {}", without_zeros(&format!("{value:.digits$}")), names[unit])
}

/// Returns a number of things, by the word for one and for several of them.
#[must_use]
pub fn counted(number: u64, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

/// Returns a rate of bytes. Rates are decimal, whatever the units of the sizes.
#[must_use]
pub fn show_rate(bytes_per_second: u64) -> String {
    format!("{}/s", show_sum(bytes_per_second, Family::Decimal))
}

/// Returns an estimated time in seconds, minutes, hours or days, with two digits if it is short.
#[must_use]
pub fn show_estimate(time: Duration) -> String {
    const MINUTE: f64 = 60.0;
    const HOUR: f64 = 60.0 * MINUTE;
    const DAY: f64 = 24.0 * HOUR;
    let seconds = time.as_secs_f64();
    let (value, unit) = match seconds {
        _ if seconds < 1.5 * MINUTE => (seconds, "second"),
        _ if seconds < 1.5 * HOUR => (seconds / MINUTE, "minute"),
        _ if seconds < 1.5 * DAY => (seconds / HOUR, "hour"),
        _ => (seconds / DAY, "day"),
    };
    let is_fine = value < 9.95 && seconds >= 1.5 * HOUR;
    let number = if is_fine { without_zeros(&format!("{value:.1}")) } else { format!("{value:.0}") };
    let plural = if number == "1" { "" } else { "s" };
    format!("{number} {unit}{plural}")
}

/// Returns a decimal number without zeros at its end.
fn without_zeros(number: &str) -> String {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.').to_owned() } else { number.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_keep_the_unit_in_which_they_were_given() {
        for (text, size, shown) in [
            ("1MB", 1_000_000, "1 MB"),
            ("1MiB", 1 << 20, "1 MiB"),
            ("1024KiB", 1 << 20, "1024 KiB"),
            ("1000 kB", 1_000_000, "1000 kB"),
            ("2KB", 2000, "2 KB"),
            ("20GB", 20_000_000_000, "20 GB"),
            ("0B", 0, "0 B"),
        ] {
            assert_eq!(SizeUnit::of(text).unwrap().show(size), shown, "{text}");
        }
        for wrong in ["", "64", "MiB/s", "1mib"] {
            assert_eq!(SizeUnit::of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sizes_that_nobody_gave_are_whole_numbers() {
        let shown = |size| SizeUnit::whole(size).show(size);
        let expected = ["0 B", "1 B", "1400 B", "4 KiB", "20 MB", "64 MiB", "18446744073709551615 B"];
        assert_eq!([0, 1, 1400, 4096, 20_000_000, 64 << 20, u64::MAX].map(shown), expected);
    }

    #[test]
    fn sums_are_in_the_units_of_their_parts() {
        let shown = |size| show_sum(size, Family::Decimal);
        let sizes = [0, 999, 1_000, 999_600, 12_340_000, 1_500_000_000, 384_000_000_000_000];
        assert_eq!(sizes.map(shown), ["0 B", "999 B", "1 kB", "1 MB", "12.3 MB", "1.5 GB", "384 TB"]);
        assert_eq!([12_340_000, 0].map(show_rate), ["12.3 MB/s", "0 B/s"]);
        assert_eq!(show_sum(3 << 29, Family::Binary), "1.50 GiB");
        let family = |text| SizeUnit::of(text).and_then(SizeUnit::family);
        assert_eq!(["7B", "7kB", "7MiB"].map(family), [None, Some(Family::Decimal), Some(Family::Binary)]);
    }

    #[test]
    fn long_estimates_are_in_days() {
        let shown = |seconds| show_estimate(Duration::from_secs(seconds));
        assert_eq!([0, 1, 45, 89].map(shown), ["0 seconds", "1 second", "45 seconds", "89 seconds"]);
        assert_eq!([90, 12 * 60, 89 * 60].map(shown), ["2 minutes", "12 minutes", "89 minutes"]);
        assert_eq!([5400, 7200, 35 * 3600].map(shown), ["1.5 hours", "2 hours", "35 hours"]);
        assert_eq!([36 * 3600, 276_480, 86_400 * 40].map(shown), ["1.5 days", "3.2 days", "40 days"]);
    }
}
