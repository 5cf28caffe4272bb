//! The settings of all nodes, which share one machine, and those that a node has for itself.

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

/// The settings of all nodes with those of a manager: the address of its database.
pub(crate) fn of_manager(all: &str, database: &str) -> Result<String, toml::de::Error> {
    let mut settings: toml::Table = all.parse()?;
    let section = settings.entry("database").or_insert_with(|| toml::Table::new().into());
    if let Some(section) = section.as_table_mut() {
        section.insert("url".into(), database.into());
    }
    Ok(settings.to_string())
}

/// The settings of all nodes with those of a disk server: where the managers are, if the settings do not say it.
pub(crate) fn of_disk(all: &str, managers: &[String]) -> Result<String, toml::de::Error> {
    let mut settings: toml::Table = all.parse()?;
    // Only managers have it.
    settings.remove("database");
    settings.entry("managers").or_insert_with(|| managers.to_vec().into());
    Ok(settings.to_string())
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

    #[test]
    fn nodes_have_settings_of_their_own() {
        let path = Path::new("weir.toml");
        for given in ["", "log = \"error\"\n[database]\nconnections = 5\n[metrics]\nlisten = \"127.0.0.1:0\"\n"] {
            let all = Config::of_text(path, given).unwrap();
            let url = "postgres://weir@127.0.0.1:5432/weir?passfile=/tmp/it's%20\"here\"";
            let manager = Config::of_text(path, &of_manager(given, url).unwrap()).unwrap();
            assert_eq!(manager.database.as_ref().map(config::DatabaseUrl::secret), Some(url));
            assert_eq!(Config { database: None, ..manager }, all);
            let managers = ["127.0.0.1:1".to_owned(), "127.0.0.2:2".to_owned()];
            let disk = Config::of_text(path, &of_disk(given, &managers).unwrap()).unwrap();
            let connections = Config::defaults().database_connections;
            assert_eq!(disk, Config { managers: managers.to_vec(), database_connections: connections, ..all });
        }
        let own = of_disk("managers = [\"127.0.0.9:9\"]", &["127.0.0.1:1".to_owned()]).unwrap();
        assert_eq!(Config::of_text(path, &own).unwrap().managers, ["127.0.0.9:9"]);
        assert!(of_manager("broken", "x").is_err());
    }
}
