//! Finds the bottleneck of a figure, by a decision table over the measurements.

mod collect;
mod evidence;
mod table;

use serde::{Deserialize, Serialize};

pub(super) use self::collect::{mount_kind, put, way_to};
pub use self::evidence::{DataRoute, DiskUse, Evidence, Growth, Link, Machine};
pub use self::table::{Bound, RULES, Rule};

/// The bottleneck of a figure, with the reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Verdict {
    /// The bottleneck.
    pub bound: Bound,
    /// The reason, with figures.
    pub evidence: String,
}

impl Bound {
    /// Returns its name in JSON, CSV and the documentation.
    #[must_use]
    pub fn name(self) -> String {
        crate::workload::word_of(self)
    }

    /// Whether it follows from figures alone, without observing a machine.
    fn is_of_figures(self) -> bool {
        matches!(self, Self::AskedRate | Self::Generator | Self::NetworkStage | Self::DiskStage | Self::NotKnown)
    }

    /// Returns a readable text.
    #[must_use]
    pub fn says(self) -> &'static str {
        RULES.iter().find(|rule| rule.bound == self).map_or("not known", |rule| rule.says)
    }
}

/// Returns the verdict of the first row of the table that holds.
#[must_use]
pub fn decide(found: &Evidence) -> Verdict {
    // After a very short time only verdicts from figures alone are possible.
    let mut rules = RULES.iter().filter(|rule| !found.is_short() || rule.bound.is_of_figures());
    let holds = |rule: &Rule| Some(Verdict { bound: rule.bound, evidence: (rule.test)(found)? });
    rules.find_map(holds).unwrap_or(Verdict { bound: Bound::NotKnown, evidence: String::new() })
}

#[cfg(test)]
mod tests;
