//! Which resource bounded a figure: by a decision table over what was measured beside it.

mod collect;
mod evidence;
mod table;

use serde::{Deserialize, Serialize};

pub(super) use self::collect::{mount_kind, put, way_to};
pub use self::evidence::{DiskUse, Evidence, Growth, Link, Machine, Way};
pub use self::table::{Bound, RULES, Rule};

/// What bounded a figure, and why that is thought.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Verdict {
    /// What.
    pub bound: Bound,
    /// Why, with figures.
    pub evidence: String,
}

impl Bound {
    /// Its name in JSON, CSV and the documentation.
    #[must_use]
    pub fn name(self) -> String {
        crate::workload::word_of(self)
    }

    /// Whether it is told from figures alone, and no machine is looked at.
    fn is_of_figures(self) -> bool {
        matches!(self, Self::AskedRate | Self::Generator | Self::NetworkStage | Self::DiskStage | Self::NotKnown)
    }

    /// For people.
    #[must_use]
    pub fn says(self) -> &'static str {
        RULES.iter().find(|rule| rule.bound == self).map_or("not known", |rule| rule.says)
    }
}

/// The first row of the table that holds.
#[must_use]
pub fn decide(found: &Evidence) -> Verdict {
    // Of what was too short for counters only what figures alone say is known.
    let mut rules = RULES.iter().filter(|rule| !found.is_short() || rule.bound.is_of_figures());
    let holds = |rule: &Rule| Some(Verdict { bound: rule.bound, evidence: (rule.test)(found)? });
    rules.find_map(holds).unwrap_or(Verdict { bound: Bound::NotKnown, evidence: String::new() })
}

#[cfg(test)]
mod tests;
