//! Sizes and durations as people write them: a whole number and a unit. A number without a unit is an error, because
//! its meaning would be a guess.

use std::time::Duration;

/// The units of sizes with their bytes.
pub const SIZES: [(&str, u64); 10] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

const DURATIONS_MS: [(&str, u64); 6] =
    [("ms", 1), ("s", 1_000), ("min", 60_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Parses a size such as `64MiB`, `4 KiB`, `10GB`. Returns bytes.
///
/// # Errors
/// A text for people that says what would be right.
pub fn parse_size(text: &str) -> Result<u64, String> {
    parse(text, &SIZES)
        .ok_or_else(|| format!("`{text}` is not a size; write a whole number and one of B, KiB, MiB, GiB, TiB, kB, MB, GB, TB, as in `64MiB`"))
}

/// Parses a duration such as `60s`, `500 ms`, `1d`.
///
/// # Errors
/// A text for people that says what would be right.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    parse(text, &DURATIONS_MS).map(Duration::from_millis).ok_or_else(|| {
        format!("`{text}` is not a duration; write a whole number and one of ms, s, min, h, d, as in `60s`")
    })
}

fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits_end);
    let unit = unit.trim();
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// A number of bytes for people: three significant digits and a binary unit.
#[must_use]
pub fn show_size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    #[allow(clippy::cast_precision_loss)] // for display only
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{bytes} B")
    } else if value >= 100.0 {
        format!("{value:.0} {}", UNITS[unit])
    } else if value >= 10.0 {
        format!("{value:.1} {}", UNITS[unit])
    } else {
        format!("{value:.2} {}", UNITS[unit])
    }
}

/// A duration for people.
#[must_use]
pub fn show_duration(duration: Duration) -> String {
    let secs = duration.as_secs_f64();
    if secs < 0.001 {
        format!("{:.0} µs", secs * 1e6)
    } else if secs < 1.0 {
        format!("{:.0} ms", secs * 1e3)
    } else if secs < 120.0 {
        format!("{secs:.1} s")
    } else {
        show_seconds(duration)
    }
}

/// A duration for people, in whole seconds.
#[must_use]
pub fn show_seconds(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 120 { format!("{seconds} s") } else { format!("{} min {} s", seconds / 60, seconds % 60) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_need_a_unit() {
        assert_eq!(parse_size("64MiB"), Ok(64 << 20));
        assert_eq!(parse_size("4 KiB"), Ok(4096));
        assert_eq!(parse_size("10GB"), Ok(10_000_000_000));
        assert_eq!(parse_size("0B"), Ok(0));
        for wrong in ["", "64", "MiB", "-1MiB", "1.5GiB", "64mib", "64MiB/s", "99999999999TiB", "１MiB"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration("60s"), Ok(Duration::from_secs(60)));
        assert_eq!(parse_duration("500 ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2min"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_duration("1d"), Ok(Duration::from_secs(86_400)));
        for wrong in ["", "60", "s", "1w", "-1s", "1.5h"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn shown_as_people_read() {
        assert_eq!(show_size(0), "0 B");
        assert_eq!(show_size(1023), "1023 B");
        assert_eq!(show_size(1536), "1.50 KiB");
        assert_eq!(show_size(217_945), "213 KiB");
        assert_eq!(show_duration(Duration::from_millis(12)), "12 ms");
        assert_eq!(show_duration(Duration::from_secs(150)), "2 min 30 s");
        assert_eq!(show_duration(Duration::from_millis(179_700)), "2 min 59 s", "no minute has 60 s");
        assert_eq!(show_seconds(Duration::from_millis(1_900)), "1 s");
    }
}
