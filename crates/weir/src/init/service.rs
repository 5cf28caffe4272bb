//! The package's service: which directories systemd lets it write to, and its start.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use config::Config;

use crate::Failure;
use crate::exit::Exit;

/// The configuration file that the package's unit reads.
pub(crate) const CONFIG: &str = "/etc/weir/weir.toml";
/// Where the unit may write anyway.
const HOME: &str = "/var/lib/weir";
const UNIT: &str = "weir.service";
const UNIT_FOLDERS: [&str; 3] = ["/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];
const DROP_IN_FOLDER: &str = "/etc/systemd/system/weir.service.d";
const DROP_IN: &str = "/etc/systemd/system/weir.service.d/directories.conf";
/// Exists while systemd runs.
const BOOTED: &str = "/run/systemd/system";

/// The service of this machine, if this command may change it.
#[derive(Debug)]
pub(crate) struct Service(());

impl Service {
    /// The service that reads the configuration file `config`. `None`: this machine has none, or another user than root asks.
    pub(crate) fn of(config: &Path) -> Option<Self> {
        let has_unit = UNIT_FOLDERS.iter().any(|folder| Path::new(folder).join(UNIT).exists());
        (has_unit && config == Path::new(CONFIG) && rustix::process::geteuid().is_root()).then_some(Self(()))
    }

    /// Lets the service write to the directories of `config`, and wait for their disks. Returns the file that says so, if it was changed.
    pub(crate) fn allow(&self, config: &Config) -> Result<Option<PathBuf>, Failure> {
        let failed = |error: io::Error| {
            Failure::new(Exit::Failed, error)
                .while_doing(format!("cannot tell systemd about the directories in {DROP_IN}"))
        };
        let dirs = config.data.iter().chain(config.stores.iter().map(|table| &table.dir));
        let text = drop_in(dirs.map(PathBuf::as_path));
        let before = match fs::read_to_string(DROP_IN) {
            Ok(before) => Some(before),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        if before == text {
            return Ok(None);
        }
        match text {
            Some(text) => {
                fs::create_dir_all(DROP_IN_FOLDER).and_then(|()| fs::write(DROP_IN, text)).map_err(failed)?;
            }
            None => fs::remove_file(DROP_IN).map_err(failed)?,
        }
        if Path::new(BOOTED).exists() {
            systemctl(&["daemon-reload"])?;
        }
        Ok(Some(DROP_IN.into()))
    }

    /// Starts the service now and at each boot. If it runs already, it starts again. Returns when it is ready.
    pub(crate) fn start(&self) -> Result<(), Failure> {
        systemctl(&["enable", "--quiet", UNIT])?;
        self.restart()
    }

    /// Starts the service again, or now. Returns when it is ready.
    pub(crate) fn restart(&self) -> Result<(), Failure> {
        systemctl(&["restart", UNIT])
    }
}

/// Runs systemctl, which says itself what went wrong.
fn systemctl(arguments: &[&str]) -> Result<(), Failure> {
    let what = format!("`systemctl {}` failed", arguments.join(" "));
    match Command::new("systemctl").args(arguments).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Failure::message(Exit::Failed, format!("{what}; `journalctl -u weir` has the node's own words"))),
        Err(error) => Err(Failure::new(Exit::Failed, error).while_doing(what)),
    }
}

/// The addition to the unit for directories outside its own folder; `None`: all are inside.
fn drop_in<'a>(dirs: impl Iterator<Item = &'a Path>) -> Option<String> {
    let outside: Vec<&Path> = dirs.filter(|dir| !dir.starts_with(HOME)).collect();
    if outside.is_empty() {
        return None;
    }
    let list = |prefix: &str| outside.iter().fold(String::new(), |text, dir| text + " " + &word(prefix, dir));
    let mut text =
        "# Written by `weir init` and `weir store add`: the directories of the node outside /var/lib/weir.\n"
            .to_owned();
    let _ = writeln!(text, "[Unit]\nRequiresMountsFor={}", list("").trim_start());
    // `-`: if a directory is missing, weir says so itself.
    let _ = writeln!(text, "[Service]\nReadWritePaths={}", list("-").trim_start());
    Some(text)
}

/// A path as a word in a unit file.
fn word(prefix: &str, path: &Path) -> String {
    let mut word = prefix.to_owned();
    for c in path.to_string_lossy().chars() {
        match c {
            '%' => word += "%%",
            '\\' | '"' => word.extend(['\\', c]),
            c => word.push(c),
        }
    }
    if word.contains([' ', '\t', '\'', '\\']) { format!("\"{word}\"") } else { word }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_outside_the_folder_of_the_package_are_named() {
        let said = |dirs: &[&str]| drop_in(dirs.iter().map(Path::new));
        assert_eq!(said(&["/var/lib/weir/data", "/var/lib/weir/data/store"]), None);
        let text = said(&["/var/lib/weir/data", "/srv/disk1/weir", "/srv/100% \"x\""]).unwrap();
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "[Unit]",
                r#"RequiresMountsFor=/srv/disk1/weir "/srv/100%% \"x\"""#,
                "[Service]",
                r#"ReadWritePaths=-/srv/disk1/weir "-/srv/100%% \"x\"""#,
            ]
        );
        assert!(said(&["/var/lib/weird"]).is_some());
    }
}
