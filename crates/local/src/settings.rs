//! The settings of all nodes, which share one machine.

use std::path::Path;

use config::Config;

/// The nodes' settings, if none are given: by default, each would take an eighth of the machine's memory.
pub(crate) const SETTINGS: &str = "# The nodes of this cluster share one machine.\nlimits.recent = \"256MiB\"\n";
/// The same in the table `limits`.
const IN_TABLE: &str = "recent = \"256MiB\" # The nodes of this cluster share one machine.\n";

/// The settings that a user gives in the file `path`, with those of [`SETTINGS`] that the file lacks.
pub(crate) fn with_ours(path: &Path, given: &str) -> String {
    let header = given.split_inclusive('\n').scan(0, |end, line| {
        *end += line.len();
        Some((*end, line))
    });
    let mut header = header.filter(|(_, line)| line.trim_start().starts_with("[limits]"));
    let in_table = header.next().map(|(end, line)| {
        let newline = if line.ends_with('\n') { "" } else { "\n" };
        format!("{}{newline}{IN_TABLE}{}", &given[..end], &given[end..])
    });
    // If the file has the key already, the first two are not valid.
    let all = [Some(format!("{SETTINGS}{given}")), in_table];
    let found = all.into_iter().flatten().find(|text| Config::of_text(path, text).is_ok());
    found.or_else(|| written_anew(given)).unwrap_or_else(|| given.to_owned())
}

/// The same in another form, without comments: the table may be written in ways that are not looked for here.
fn written_anew(given: &str) -> Option<String> {
    let mut all = given.parse::<toml::Table>().ok()?;
    let limits = all.get_mut("limits")?.as_table_mut()?;
    if limits.contains_key("recent") {
        return None;
    }
    limits.extend(IN_TABLE.parse::<toml::Table>().ok()?);
    toml::to_string(&all).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use super::*;

    #[test]
    fn what_a_file_lacks_is_added_and_what_it_has_counts() {
        let path = Path::new("weir.toml");
        let ours = Config::of_text(path, SETTINGS).unwrap();
        assert_ne!(ours, Config::defaults());
        for (given, key) in [
            ("", ""),
            ("log = \"error\"\n[metrics]\nlisten = \"127.0.0.1:0\"", ""),
            ("limits.transfers = 7\n[metrics]\nlisten = \"127.0.0.1:0\"\n", ""),
            ("[metrics]\nlisten = \"127.0.0.1:0\"\n[limits] # of each node\ntransfers = 7\n", "recent"),
            ("[limits]", "recent"),
            ("limits = { transfers = 7 }\n", "recent"),
            ("[ \"limits\" ]\ntransfers = 7\n[metrics]\nlisten = \"127.0.0.1:0\"\n", "recent"),
        ] {
            let text = with_ours(path, given);
            let all = Config::of_text(path, &text).unwrap();
            assert_eq!(all, Config { recent: ours.recent, ..Config::of_text(path, given).unwrap() }, "{text}");
            assert!(text.contains(key) && text.matches("256MiB").count() == 1, "{text}");
        }
        for given in [
            "limits.recent = \"auto\"\n",
            "[limits]\ntransfers = 7\nrecent = \"1GiB\"\n",
            "limits = { recent = \"1GiB\" }\n",
        ] {
            assert_eq!(with_ours(path, given), given);
        }
    }
}
