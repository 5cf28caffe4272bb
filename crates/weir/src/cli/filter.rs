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
                "Leave out names in a tree that match this pattern: *, ?, [abc]. With a / in it, the pattern matches the path below the top \
                 (** matches any depth); with a / at its end, only directories. The first matching --exclude or --include decides",
            ))
            .arg(arg("include").help("Copy names that match this pattern, even if a later --exclude matches them"))
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

    /// `transfer` tests what a pattern matches.
    #[test]
    fn rules_keep_the_order_of_the_command_line() {
        let keep_first = filter(&["--include", "keep.tmp", "--exclude", "*.tmp", "--include", "late.tmp"]);
        assert!(keep_first.takes("keep.tmp", false) && !keep_first.takes("late.tmp", false));
        let exclude_first = filter(&["--exclude", "*.tmp", "--include", "keep.tmp"]);
        assert!(!exclude_first.takes("keep.tmp", false));
        let command = FilterArgs::augment_args(Command::new("x").no_binary_name(true));
        assert!(command.try_get_matches_from(["--exclude", "["]).is_err());
    }
}
