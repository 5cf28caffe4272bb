//! The list of commands in `weir --help`, in groups, and the topic `weir help exit-codes`.

use std::ffi::OsString;

use clap::Command;

use crate::exit::Exit;

/// The columns that the list takes at most: those of the narrowest usual terminal.
const WIDTH: usize = 80;
/// Where the descriptions begin.
const INDENT: usize = 13;
/// What stands below the help of each command.
const CODES_ARE_IN: &str = "Exit codes: `weir help exit-codes`";
/// The groups with their commands, in the order in which they are shown.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Server", &["serve", "init", "status", "top", "scrub", "fsck", "backup", "restore", "export"]),
    ("Cluster", &["token", "stores", "store", "node", "policy", "file", "missing", "repair", "drain", "local", "demo"]),
    (
        "Files",
        &[
            "cp", "sync", "ls", "stat", "cat", "checksum", "find", "du", "df", "mkdir", "mv", "rm", "touch", "ln",
            "xattr",
        ],
    ),
    ("Measure", &["bench"]),
];

/// Returns `command` with its list of commands in groups, and with a line about exit codes below the help of each
/// command.
pub(super) fn grouped(command: Command) -> Command {
    let list = list(&command);
    let template =
        format!("{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}Options:\n{{options}}{{after-help}}");
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    let more = "`weir COMMAND --help` has the options of a command.";
    let command = command.help_template(template).after_help(format!("{more}\n{CODES_ARE_IN}"));
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, |sub| sub.after_help(CODES_ARE_IN)))
}

/// Whether the command line asks for the topic `exit-codes`, and not for a command.
pub(super) fn asks_for_exit_codes(args: &[OsString]) -> bool {
    matches!(args, [_, help, topic] if help == "help" && topic == "exit-codes")
}

/// The topic `exit-codes`.
pub(super) fn exit_codes() -> String {
    let mut text = String::from("Exit codes:\n");
    for exit in Exit::ALL {
        let code = exit.code().to_string();
        text.push_str(&entry(&format!("{code:>2}"), exit.meaning(), 6));
    }
    text
}

fn list(command: &Command) -> String {
    let mut text = String::new();
    for (group, names) in GROUPS {
        text.push_str(&format!("{group}:\n"));
        for sub in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
            text.push_str(&entry(sub.get_name(), &about, INDENT));
        }
        text.push('\n');
    }
    text
}

/// A name and its description, which begins at column `indent` on each line.
fn entry(name: &str, about: &str, indent: usize) -> String {
    let mut lines = vec![format!("  {name:<0$}", indent.saturating_sub(3))];
    for word in about.split_whitespace() {
        let fits = lines.last().is_some_and(|line| line.chars().count() + 1 + word.chars().count() <= WIDTH);
        match lines.last_mut() {
            Some(line) if fits => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("{}{word}", " ".repeat(indent))),
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_in_one_group() {
        let command = crate::cli::command();
        let mut commands: Vec<&str> =
            command.get_subcommands().filter(|sub| !sub.is_hide_set()).map(Command::get_name).collect();
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        commands.sort_unstable();
        listed.sort_unstable();
        assert_eq!(commands, listed);
    }
}
