//! How long invitations, accesses of administrators and join tokens may be valid. The commands say at once what is not possible; the manager decides,
//! because a request need not come from these commands.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use types::units::show_seconds;

const SHORTEST: Duration = Duration::from_secs(1);
const DAY_SECS: u64 = 86_400;
/// Invitations and tokens: whoever finds an old one can use it.
const LONGEST: Duration = Duration::from_secs(30 * DAY_SECS);
const LONGEST_ACCESS: Duration = Duration::from_secs(3650 * DAY_SECS);

/// What is valid for a time only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limited {
    /// The invitation of an administrator.
    Invitation,
    /// The access of an administrator, if it has an end.
    Access,
    /// A token with which nodes join.
    Token,
}

/// A time that is too short or too long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub struct ValidityError(Limited);

impl fmt::Display for ValidityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Limited::Invitation => "an invitation is valid for 1 s to 30 d",
            Limited::Access => "an access with an end lasts 1 s to 3650 d",
            Limited::Token => "a token is valid for 1 s to 30 d",
        })
    }
}

impl Limited {
    fn range(self) -> RangeInclusive<Duration> {
        match self {
            Self::Invitation | Self::Token => SHORTEST..=LONGEST,
            Self::Access => SHORTEST..=LONGEST_ACCESS,
        }
    }

    /// Whether it may be valid for `time`.
    pub fn check(self, time: Duration) -> Result<Duration, ValidityError> {
        if self.range().contains(&time) { Ok(time) } else { Err(ValidityError(self)) }
    }
}

/// A time in a request, for the audit log.
pub fn in_words(millis: u64) -> String {
    let time = Duration::from_millis(millis);
    match time.as_secs() {
        secs if secs >= DAY_SECS && secs.is_multiple_of(DAY_SECS) => format!("{} d", secs / DAY_SECS),
        _ => show_seconds(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_those_of_the_documentation() {
        let (second, day) = (Duration::from_secs(1), Duration::from_secs(86_400));
        let moment = Duration::from_millis(1);
        for (what, longest) in
            [(Limited::Invitation, day * 30), (Limited::Token, day * 30), (Limited::Access, day * 3650)]
        {
            assert_eq!((what.check(second), what.check(longest)), (Ok(second), Ok(longest)));
            for wrong in [Duration::ZERO, second - moment, longest + moment, Duration::MAX] {
                assert_eq!(what.check(wrong), Err(ValidityError(what)), "{wrong:?}");
            }
        }
    }

    #[test]
    fn a_time_is_shown_in_days_if_it_is_whole_days() {
        assert_eq!(
            ["86400000", "2592000000", "3600000", "1000"].map(|text| in_words(text.parse().unwrap())),
            ["1 d", "30 d", "60 min 0 s", "1 s"]
        );
        assert_eq!(in_words(0), "0 s");
        assert!(in_words(u64::MAX).ends_with(" s"));
    }
}
