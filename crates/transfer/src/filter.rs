//! Selects the names of a tree to copy: `--include` and `--exclude`, in the order of the command line.

use glob::{MatchOptions, Pattern};

/// `*` and `?` stop at a `/`, `**` does not; a leading dot is like any other letter.
const HOW: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: false };

/// Rules; the first matching one decides. A name that matches none is copied.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Filter(Vec<Rule>);

/// A pattern, and whether its matches are copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    include: bool,
    pattern: Pattern,
    /// Whether it matches the whole path below the top, rather than the last name.
    of_path: bool,
    directories_only: bool,
}

impl Rule {
    /// Makes the rule of `--include` (or `--exclude`) from `text`.
    ///
    /// # Errors
    /// In words: the text is no pattern.
    pub fn parse(include: bool, text: &str) -> Result<Self, String> {
        let (text, directories_only) = match text.strip_suffix('/') {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        if text.is_empty() {
            return Err("an empty pattern matches nothing".to_owned());
        }
        let of_path = text.contains('/');
        let pattern = Pattern::new(text.trim_start_matches('/')).map_err(|error| error.to_string())?;
        Ok(Self { include, pattern, of_path, directories_only })
    }

    fn fits(&self, path: &str, directory: bool) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        (directory || !self.directories_only) && self.pattern.matches_with(if self.of_path { path } else { name }, HOW)
    }
}

impl Filter {
    /// A filter of these rules, in their order.
    #[must_use]
    pub fn of(rules: Vec<Rule>) -> Self {
        Self(rules)
    }

    /// For tests: excludes these.
    #[cfg(test)]
    pub fn excluding(patterns: &[&str]) -> Self {
        Self(patterns.iter().filter_map(|text| Rule::parse(false, text).ok()).collect())
    }

    /// Whether to copy `path`, which is relative to the top of the tree. Does not look at parents: the walk never enters an excluded
    /// directory.
    #[must_use]
    pub fn takes(&self, path: &str, directory: bool) -> bool {
        self.0.iter().find(|rule| rule.fits(path, directory)).is_none_or(|rule| rule.include)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use super::*;

    fn filter(arguments: &[&str]) -> Filter {
        let rule = |pair: &[&str]| Rule::parse(pair[0] == "--include", pair[1]).unwrap();
        Filter::of(arguments.chunks(2).map(rule).collect())
    }

    #[test]
    fn the_first_matching_rule_decides() {
        let some =
            filter(&["--include", "keep.tmp", "--exclude", "*.tmp", "--exclude", "/logs/", "--include", "late.tmp"]);
        assert!(some.takes("a/keep.tmp", false) && some.takes("b.root", false));
        assert!(!some.takes("a/b/x.tmp", false) && !some.takes("late.tmp", false), "an earlier one fits");
        assert!(!some.takes("logs", true) && some.takes("logs", false) && some.takes("a/logs", true));
        assert!(Filter::default().takes("anything", false));
    }

    #[test]
    fn a_pattern_with_a_slash_matches_the_path() {
        let some = filter(&["--exclude", "raw/*.dat", "--exclude", "old/**/x?"]);
        assert!(
            !some.takes("raw/a.dat", false) && some.takes("raw/b/a.dat", false) && some.takes("c/raw/a.dat", false)
        );
        assert!(!some.takes("old/a/b/x1", false) && !some.takes("old/x1", false) && some.takes("old/a/x", false));
        let all_but = filter(&["--include", "*/", "--include", "*.root", "--exclude", "*"]);
        assert!(all_but.takes("d/e", true) && all_but.takes("d/a.root", false) && !all_but.takes("d/a.txt", false));
        assert!(Rule::parse(false, "[").is_err());
    }
}
