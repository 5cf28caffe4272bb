//! The list of commands in `weir --help`, in groups, and the topic `weir help exit-codes`.

use std::ffi::OsString;

use clap::Command;

use crate::exit::Exit;
use crate::wrap::wrapped_line;

/// Where the descriptions begin.
const INDENT: usize = 15;
/// Where the meanings of exit codes begin in their table.
const CODE_INDENT: usize = 6;
/// What stands below the help of each command.
const CODES_ARE_IN: &str = "Exit codes: `weir help exit-codes`";
/// The groups with their commands, in the order in which they are shown.
const GROUPS: [(&str, &[&str]); 4] = [
    (
        "Server",
        &[
            "serve",
            "init",
            "reload",
            "status",
            "top",
            "scrub",
            "fsck",
            "backup",
            "restore",
            "db",
            "export",
            "drop-caches",
        ],
    ),
    (
        "Cluster",
        &[
            "admin", "context", "token", "identity", "explain", "audit", "stores", "store", "node", "policy", "tree",
            "quota", "file", "missing", "repair", "drain", "restored", "local", "demo",
        ],
    ),
    (
        "Files",
        &[
            "cp", "sync", "ls", "stat", "cat", "checksum", "find", "du", "df", "mkdir", "mv", "rm", "touch", "ln",
            "xattr", "chmod", "chown", "acl",
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
    let lines: Vec<String> = Exit::table().lines().flat_map(|line| wrapped_line(line, CODE_INDENT)).collect();
    lines.join("\n") + "\n"
}

/// The manual page weir(1) with its list of commands in the same groups. `page` lists them in one.
pub(crate) fn page_in_groups(page: &str) -> String {
    const LIST: &str = ".SH SUBCOMMANDS\n";
    let Some((before, rest)) = page.split_once(LIST) else { return page.to_owned() };
    let (list, after) = rest.split_at(rest.find("\n.SH ").map_or(rest.len(), |at| at + 1));
    // Each entry begins with its command: `weir\-cp(1)`.
    let entries: Vec<&str> = list.split(".TP\n").filter(|entry| !entry.is_empty()).collect();
    let mut text = format!("{before}.SH COMMANDS\n");
    for (group, names) in GROUPS {
        text.push_str(&format!(".SS {group}\n"));
        for name in names {
            let begins = format!("weir\\-{name}(");
            let of_it = entries.iter().filter(|entry| entry.starts_with(&begins));
            of_it.for_each(|entry| text.push_str(&format!(".TP\n{entry}")));
        }
    }
    text + after
}

fn list(command: &Command) -> String {
    let mut text = String::new();
    for (group, names) in GROUPS {
        text.push_str(&format!("{group}:\n"));
        for sub in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
            let line = format!("  {:<1$} {about}", sub.get_name(), INDENT - 3);
            text.push_str(&wrapped_line(&line, INDENT).join("\n"));
            text.push('\n');
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_page_has_the_commands_in_groups() {
        let entry = |name: &str| format!(".TP\nweir\\-{name}(1)\nabout {name}\n");
        let page = format!(
            ".SH NAME\nweir\n.SH SUBCOMMANDS\n{}{}{}.SH EXTRA\nend\n",
            entry("cp"),
            entry("serve"),
            entry("help")
        );
        let grouped = format!(
            ".SH NAME\nweir\n.SH COMMANDS\n.SS Server\n{}.SS Cluster\n.SS Files\n{}.SS Measure\n.SH EXTRA\nend\n",
            entry("serve"),
            entry("cp")
        );
        assert_eq!(page_in_groups(&page), grouped);
    }

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
