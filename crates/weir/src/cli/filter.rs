//! `--include` and `--exclude`, in the order of the command line.

use clap::{Arg, ArgAction, ArgMatches, Command};
use transfer::{Filter, Rule};

/// Which names of a tree are copied.
#[derive(Clone, Default, Debug)]
pub struct FilterArgs(pub Filter);

impl clap::Args for FilterArgs {
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

impl clap::FromArgMatches for FilterArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut rules = Vec::new();
        for name in ["exclude", "include"] {
            let given = matches.get_many::<Rule>(name).into_iter().flatten();
            rules.extend(matches.indices_of(name).into_iter().flatten().zip(given.cloned()));
        }
        rules.sort_by_key(|(index, _)| *index);
        Ok(Self(Filter::of(rules.into_iter().map(|(_, rule)| rule).collect())))
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
        let command = FilterArgs::augment_args(Command::new("x").no_binary_name(true));
        FilterArgs::from_arg_matches(&command.try_get_matches_from(arguments).unwrap()).unwrap().0
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
        let bad = FilterArgs::augment_args(Command::new("x").no_binary_name(true));
        assert!(bad.try_get_matches_from(["--exclude", "["]).is_err());
    }
}
