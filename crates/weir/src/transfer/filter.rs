//! Which names of a tree are copied: `--include` and `--exclude`, in the order in which they were given.

use clap::{Arg, ArgAction, ArgMatches, Command};
use glob::{MatchOptions, Pattern};

/// `*` and `?` stop at a `/`, `**` does not; a leading dot is like any other letter.
const HOW: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: false };

/// Rules, of which the first that fits decides. What none fits is copied.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Filter(Vec<Rule>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    include: bool,
    pattern: Pattern,
    /// Of the whole path below the top, not of its last name.
    of_path: bool,
    directories_only: bool,
}

impl Rule {
    fn parse(include: bool, text: &str) -> Result<Self, String> {
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
    /// For tests: leaves these out.
    #[cfg(test)]
    pub fn excluding(patterns: &[&str]) -> Self {
        Self(patterns.iter().filter_map(|text| Rule::parse(false, text).ok()).collect())
    }

    /// Is what stands at `path`, below the top of the tree and without a leading `/`, to be copied? What is in a directory that is
    /// not, is not either: nobody looks there.
    #[must_use]
    pub fn takes(&self, path: &str, directory: bool) -> bool {
        self.0.iter().find(|rule| rule.fits(path, directory)).is_none_or(|rule| rule.include)
    }
}

impl clap::Args for Filter {
    fn augment_args(command: Command) -> Command {
        let arg = |name: &'static str| {
            Arg::new(name)
                .long(name)
                .value_name("PATTERN")
                .action(ArgAction::Append)
                .value_parser(move |text: &str| Rule::parse(name == "include", text))
        };
        command
            .arg(arg("exclude").help(
                "Leave out names in a tree that this fits: *, ?, [abc]; with a / in it, the path below the top (** fits any depth); \
                 with a / at its end, directories. Of several --exclude and --include the first that fits decides",
            ))
            .arg(arg("include").help("Copy such names although a later --exclude fits them"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Filter {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut rules = Vec::new();
        for name in ["exclude", "include"] {
            let given = matches.get_many::<Rule>(name).into_iter().flatten();
            rules.extend(matches.indices_of(name).into_iter().flatten().zip(given.cloned()));
        }
        rules.sort_by_key(|(index, _)| *index);
        Ok(Self(rules.into_iter().map(|(_, rule)| rule).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use clap::{Args as _, FromArgMatches as _};

    use super::*;

    fn filter(arguments: &[&str]) -> Filter {
        let command = Filter::augment_args(Command::new("x").no_binary_name(true));
        Filter::from_arg_matches(&command.try_get_matches_from(arguments).unwrap()).unwrap()
    }

    #[test]
    fn the_first_that_fits_decides() {
        let some =
            filter(&["--include", "keep.tmp", "--exclude", "*.tmp", "--exclude", "/logs/", "--include", "late.tmp"]);
        assert!(some.takes("a/keep.tmp", false) && some.takes("b.root", false));
        assert!(!some.takes("a/b/x.tmp", false) && !some.takes("late.tmp", false), "an earlier one fits");
        assert!(!some.takes("logs", true) && some.takes("logs", false) && some.takes("a/logs", true));
        assert!(Filter::default().takes("anything", false));
    }

    #[test]
    fn a_slash_means_the_path() {
        let some = filter(&["--exclude", "raw/*.dat", "--exclude", "old/**/x?"]);
        assert!(
            !some.takes("raw/a.dat", false) && some.takes("raw/b/a.dat", false) && some.takes("c/raw/a.dat", false)
        );
        assert!(!some.takes("old/a/b/x1", false) && !some.takes("old/x1", false) && some.takes("old/a/x", false));
        let all_but = filter(&["--include", "*/", "--include", "*.root", "--exclude", "*"]);
        assert!(all_but.takes("d/e", true) && all_but.takes("d/a.root", false) && !all_but.takes("d/a.txt", false));
        let bad = Filter::augment_args(Command::new("x").no_binary_name(true));
        assert!(bad.try_get_matches_from(["--exclude", "["]).is_err());
    }
}
