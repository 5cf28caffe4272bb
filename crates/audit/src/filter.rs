//! Which lines somebody wants to see.

use types::ErrorCode;

use crate::{Event, Outcome, Record};

/// What a line must be about. Empty fields exclude nothing; several values of one field are alternatives.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// The principal, by name or number.
    pub principals: Vec<String>,
    /// A directory: one of the names in the line is this or below.
    pub paths: Vec<String>,
    /// The operation.
    pub operations: Vec<String>,
    /// What the line is about.
    pub events: Vec<Event>,
    /// How it ended.
    pub results: Vec<Outcome>,
    /// Not before this time, as lines have it.
    pub since: Option<String>,
    /// Before this time.
    pub until: Option<String>,
}

impl Filter {
    /// Whether the line is wanted. Lines about lost lines are always wanted within the time: what is missing may be what was
    /// looked for.
    #[must_use]
    pub fn wants(&self, record: &Record) -> bool {
        // All times have the same form, so their order is that of their text.
        let is_in_time = self.since.as_ref().is_none_or(|since| record.time >= *since)
            && self.until.as_ref().is_none_or(|until| record.time < *until);
        if !is_in_time || record.event == Event::Lost {
            return is_in_time;
        }
        let is_of = |who: &String| {
            record.principal.as_deref() == Some(who) || record.number.is_some_and(|number| number.to_string() == *who)
        };
        let is_below = |directory: &String| {
            let names = [&record.path, &record.to].into_iter().flatten();
            names.into_iter().any(|path| is_at_or_below(path, directory))
        };
        (self.principals.is_empty() || self.principals.iter().any(is_of))
            && (self.paths.is_empty() || self.paths.iter().any(is_below))
            && (self.operations.is_empty() || self.operations.iter().any(|operation| *operation == record.operation))
            && (self.events.is_empty() || self.events.contains(&record.event))
            && (self.results.is_empty() || self.results.contains(&record.result))
    }
}

/// Compares whole names.
fn is_at_or_below(path: &str, directory: &str) -> bool {
    let directory = directory.trim_end_matches('/');
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The kind of an error as an outcome.
impl From<ErrorCode> for Outcome {
    fn from(code: ErrorCode) -> Self {
        if code == ErrorCode::Denied { Self::Denied } else { Self::Failed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_filters_and_paths_are_compared_by_whole_names() {
        let record = Record {
            time: "2026-11-21T09:45:00.123Z".into(),
            operation: "rename".into(),
            path: Some("/data/run1".into()),
            to: Some("/archive/run1".into()),
            principal: Some("ana".into()),
            number: Some(1001),
            result: Outcome::Denied,
            ..Record::default()
        };
        let all = Filter::default();
        assert!(all.wants(&record));
        let one = |text: &str| vec![text.to_owned()];
        let wanted = [
            Filter { principals: one("ana"), ..all.clone() },
            Filter { principals: one("1001"), ..all.clone() },
            Filter { paths: one("/data"), ..all.clone() },
            Filter { paths: one("/archive/"), ..all.clone() },
            Filter { paths: one("/"), ..all.clone() },
            Filter { paths: vec!["/none".into(), "/data/run1".into()], ..all.clone() },
            Filter { operations: one("rename"), ..all.clone() },
            Filter { events: vec![Event::Change], ..all.clone() },
            Filter { results: vec![Outcome::Ok, Outcome::Denied], ..all.clone() },
            Filter { since: Some("2026-11-21T09:45:00.123Z".into()), ..all.clone() },
            Filter { until: Some("2026-11-21T09:45:00.124Z".into()), ..all.clone() },
        ];
        for filter in wanted {
            assert!(filter.wants(&record), "{filter:?}");
        }
        let unwanted = [
            Filter { principals: one("an"), ..all.clone() },
            Filter { principals: one("100"), ..all.clone() },
            Filter { paths: one("/dat"), ..all.clone() },
            Filter { paths: one("/data/run"), ..all.clone() },
            Filter { operations: one("ren"), ..all.clone() },
            Filter { events: vec![Event::Login], ..all.clone() },
            Filter { results: vec![Outcome::Ok], ..all.clone() },
            Filter { since: Some("2026-11-21T09:45:00.124Z".into()), ..all.clone() },
            Filter { until: Some("2026-11-21T09:45:00.123Z".into()), ..all.clone() },
        ];
        for filter in &unwanted {
            assert!(!filter.wants(&record), "{filter:?}");
        }
        let lost = Record { event: Event::Lost, ..record };
        assert_eq!(unwanted.iter().filter(|filter| filter.wants(&lost)).count(), 7, "in each case but those of time");
    }
}
