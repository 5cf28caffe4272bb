//! Times of day as text: UTC, to the second, in the Gregorian calendar.

use types::Timestamp;

const DAY: i64 = 86_400;

/// Seconds since 1970 as `2026-11-21 09:45:00Z`.
#[must_use]
pub fn show_time(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    let (days, rest) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    let (year, month, day) = date_of(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// A time from `2026-11-21`, `2026-11-21 09:45`, `2026-11-21T09:45:00Z` (UTC), or `@1795254300` (seconds since 1970).
pub fn parse_time(text: &str) -> Result<Timestamp, String> {
    parse_seconds(text).and_then(|seconds| seconds.checked_mul(1_000_000_000)).map(Timestamp).ok_or_else(|| {
        format!(
            "`{text}` is not a time; write it in UTC, as in `2026-11-21 09:45:00`, or as `@` and seconds since 1970"
        )
    })
}

fn parse_seconds(text: &str) -> Option<i64> {
    if let Some(seconds) = text.strip_prefix('@') {
        return seconds.parse().ok();
    }
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00:00"));
    let [year, month, day] = numbers(date, '-')?.try_into().ok()?;
    let mut time = numbers(time, ':')?;
    if time.len() == 2 {
        time.push(0);
    }
    let [hour, minute, second] = time.try_into().ok()?;
    let is_time = hour < 24 && minute < 60 && second < 60;
    let days = days_before(year, month, day);
    // An invalid date changes when it is converted back.
    (is_time && year >= 1970 && date_of(days) == (year, month, day))
        .then(|| days * DAY + hour * 3600 + minute * 60 + second)
}

fn numbers(text: &str, between: char) -> Option<Vec<i64>> {
    let number = |word: &str| word.bytes().all(|b| b.is_ascii_digit()).then(|| word.parse().ok()).flatten();
    text.split(between).map(|word| number(word).filter(|number| *number < 10_000)).collect()
}

/// Days from 1970-01-01 to a date. Years begin in March, so that the leap day comes last.
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let months = (month + 9) % 12;
    era * 146_097 + year * 365 + year / 4 - year / 100 + (153 * months + 2) / 5 + day - 1 - 719_468
}

/// The date `days` after 1970-01-01.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let months = (5 * day + 2) / 153;
    let month = if months < 10 { months + 3 } else { months - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    (year, month, day - (153 * months + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_times_can_be_parsed() {
        let mut day_before = (1969, 12, 31);
        for days in 0..60_000 {
            let date = date_of(days);
            assert_eq!(days_before(date.0, date.1, date.2), days);
            assert!(date > day_before, "{date:?}");
            day_before = date;
        }
        for seconds in [0, 951_782_400, 1_795_254_300, 4_102_444_799] {
            let text = show_time(seconds);
            assert_eq!(parse_time(&text), Ok(Timestamp(i64::try_from(seconds).unwrap() * 1_000_000_000)), "{text}");
        }
        assert_eq!(show_time(951_782_400), "2000-02-29 00:00:00Z");
        assert_eq!(show_time(1_795_254_300), "2026-11-21 09:45:00Z");
    }

    #[test]
    fn other_forms_of_a_time_are_parsed() {
        let expected = Ok(Timestamp(1_795_254_300_000_000_000));
        for text in ["2026-11-21 09:45", "2026-11-21T09:45:00Z", "2026-11-21 09:45:00", "@1795254300"] {
            assert_eq!(parse_time(text), expected, "{text}");
        }
        for text in [
            "",
            "2026",
            "2026-02-29",
            "2026-13-01",
            "2026-11-21 24:00",
            "2026-11-21 9:60",
            "x",
            "@",
            "1969-12-31",
            "+026-01-01",
        ] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
