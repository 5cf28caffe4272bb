//! Times as Kerberos writes them: `20261129233000Z`, in seconds and in UTC (RFC 4120, section 5.2.3).

use types::Timestamp;

/// Parses a time. `None`: it is none.
pub(crate) fn parse(text: &[u8]) -> Option<Timestamp> {
    let (digits, zone) = text.split_at_checked(14)?;
    if zone != b"Z" || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number =
        |from: usize, to: usize| digits[from..to].iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    let (year, month, day) = (number(0, 4), number(4, 6), number(6, 8));
    let (hour, minute, second) = (number(8, 10), number(10, 12), number(12, 14));
    // A leap second may be written.
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let days = days_before(year, month) + day - 1;
    Some(Timestamp::from_secs(days * 86_400 + hour * 3600 + minute * 60 + second))
}

/// The days from 1970 to the first day of a month. Years are counted from March, so that a leap day comes last.
fn days_before(year: i64, month: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    365 * year + leap_days + (153 * month + 2) / 5 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_since_1970() {
        let secs = |text: &str| parse(text.as_bytes()).map(Timestamp::secs);
        for (text, expected) in [
            ("19700101000000Z", 0),
            ("19691231235959Z", -1),
            ("20000229000000Z", 951_782_400),
            ("20000301000000Z", 951_868_800),
            ("20261129233000Z", 1_795_995_000),
            ("21000301000000Z", 4_107_542_400),
        ] {
            assert_eq!(secs(text), Some(expected), "{text}");
        }
        for wrong in
            ["", "Z", "20261129233000", "20261129233000z", "2026112923300Z", "20261329233000Z", "20260029233000Z"]
        {
            assert_eq!(secs(wrong), None, "{wrong}");
        }
        for wrong in ["20261129243000Z", "20261129236000Z", "20261100233000Z", "2026112x233000Z", "20261129233000ZZ"] {
            assert_eq!(secs(wrong), None, "{wrong}");
        }
    }
}
