//! Which resource bounded a figure: by a decision table over what was measured beside it.

mod collect;
mod evidence;
mod table;

use serde::{Deserialize, Serialize};

pub(super) use self::collect::put;
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

    /// For people.
    #[must_use]
    pub fn says(self) -> &'static str {
        RULES.iter().find(|rule| rule.bound == self).map_or("not known", |rule| rule.says)
    }
}

/// The first row of the table that holds.
#[must_use]
pub fn decide(found: &Evidence) -> Verdict {
    let holds = |rule: &Rule| Some(Verdict { bound: rule.bound, evidence: (rule.test)(found)? });
    RULES.iter().find_map(holds).unwrap_or(Verdict { bound: Bound::NotKnown, evidence: String::new() })
}

#[cfg(test)]
mod tests;
