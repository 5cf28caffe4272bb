//! What speaks against a figure.

use std::fmt;

/// A reason for which a figure may not be what it seems.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flag {
    /// Reads brought wrong data.
    WrongData,
    /// What was acknowledged is not there any more.
    Lost,
    /// Operations failed.
    Failures,
    /// The system, or its protocol, cannot do this.
    Unsupported,
    /// A trial ended before all of it was done.
    EndedEarly,
    /// What was read may have come from this machine's memory, or the server's.
    MaybeCached,
    /// There are too few repeats for an interval.
    FewRepeats,
    /// The interval is wider than a tenth of the figure to each side.
    Scattered,
    /// There was a trend to the end of the runs.
    NotSteady,
    /// Blocks were begun later than a detector could have waited.
    MissedDeadlines,
}

impl Flag {
    /// The letter that stands beside a figure.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Self::WrongData => 'W',
            Self::Lost => 'L',
            Self::Failures => 'F',
            Self::Unsupported => 'U',
            Self::EndedEarly => 'E',
            Self::MaybeCached => 'c',
            Self::FewRepeats => 'n',
            Self::Scattered => 's',
            Self::NotSteady => 't',
            Self::MissedDeadlines => 'd',
        }
    }

    /// Whether the figure must not be used at all.
    #[must_use]
    pub fn is_fatal(self) -> bool {
        matches!(self, Self::WrongData | Self::Lost | Self::Failures | Self::Unsupported | Self::EndedEarly)
    }
}

impl fmt::Display for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WrongData => "reads brought wrong data",
            Self::Lost => "what was acknowledged is not there any more",
            Self::Failures => "operations failed",
            Self::Unsupported => "the system or its protocol cannot do this",
            Self::EndedEarly => "ended before all was done",
            Self::MaybeCached => "what was read may have come from a memory: this machine's caches were not emptied, or the server's could not be",
            Self::FewRepeats => "too few repeats for an interval of 95 %: six are needed",
            Self::Scattered => "the repeats scatter by more than a tenth to each side",
            Self::NotSteady => "no steady state: there was a trend to the end",
            Self::MissedDeadlines => "deadlines were missed: a detector would have lost data",
        })
    }
}
