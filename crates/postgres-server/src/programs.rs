//! PostgreSQL's programs, and the account that runs them.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{ADMIN, run};

const VERSIONS: &str = "/usr/lib/postgresql";

/// Where the programs are, and the account that must run the server, if it is not the account of this process.
#[derive(Debug)]
pub(crate) struct Programs {
    bin: PathBuf,
    account: Option<(u32, u32)>,
}

impl Programs {
    /// The newest installed version.
    pub(crate) fn find() -> Result<Self, String> {
        let install = "run `scripts/setup.sh test`, which installs Debian's package `postgresql`";
        let versions = std::fs::read_dir(VERSIONS).into_iter().flatten().flatten().map(|entry| entry.path());
        let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
        let newest = versions.filter(|path| path.join("bin/initdb").exists()).max_by_key(number);
        let Some(newest) = newest else {
            return Err(format!("cannot start PostgreSQL: there is no {VERSIONS}/*/bin/initdb; {install}"));
        };
        let me = std::fs::metadata("/proc/self").map_err(|why| format!("cannot read /proc/self: {why}"))?;
        let account = if me.uid() == 0 { Some(account().map_err(|why| format!("{why}; {install}"))?) } else { None };
        Ok(Self { bin: newest.join("bin"), account })
    }

    /// A program that runs as the account that owns the server's files. The process is the program itself.
    pub(crate) fn as_account(&self, name: &str) -> Command {
        let mut command = match self.account {
            None => Command::new(self.bin.join(name)),
            Some((user, group)) => {
                let mut command = Command::new("setpriv");
                command.args([format!("--reuid={user}"), format!("--regid={group}"), "--clear-groups".to_owned()]);
                command.arg(self.bin.join(name));
                command
            }
        };
        clean(&mut command);
        command
    }

    /// A program that runs as this process does, such as a client.
    pub(crate) fn as_user(&self, name: &str) -> Command {
        let mut command = Command::new(self.bin.join(name));
        clean(&mut command);
        command
    }

    /// Gives a file or a directory to the account.
    pub(crate) fn give(&self, path: &Path, mode: u32) -> Result<(), String> {
        let given = match self.account {
            None => Ok(()),
            Some((user, group)) => chown(path, Some(user), Some(group)),
        };
        given
            .and_then(|()| std::fs::set_permissions(path, Permissions::from_mode(mode)))
            .map_err(|why| format!("cannot give {} to PostgreSQL's account: {why}", path.display()))
    }

    /// Makes a data directory, `data` below `home`. Everybody needs the password.
    pub(crate) fn make_cluster(&self, home: &Path, password: &str) -> Result<(), String> {
        let file = home.join("password");
        std::fs::write(&file, password).map_err(|why| format!("cannot write {}: {why}", file.display()))?;
        self.give(&file, 0o600)?;
        let mut initdb = self.as_account("initdb");
        initdb.arg("--pgdata").arg(home.join("data")).arg("--pwfile").arg(&file).args(["--username", ADMIN]);
        initdb.args(["--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C.UTF-8"]);
        // No sync of all files, because no crash of the machine matters before the server has started.
        run(initdb.arg("--no-sync").current_dir(home)).map(|_| ())
    }
}

/// Settings of the user must not reach the server or its tools. Messages are in English.
fn clean(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("PG") || name.starts_with("LC_")) {
            command.env_remove(name);
        }
    }
    command.env("LC_ALL", "C.UTF-8");
}

/// The numbers of the package's account and of its group.
fn account() -> Result<(u32, u32), String> {
    let number = |flag| -> Result<u32, String> {
        let output = run(Command::new("id").args([flag, ADMIN]))?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        text.parse().map_err(|why| format!("cannot read the number of the account {ADMIN} from {text:?}: {why}"))
    };
    let why = |why| format!("cannot start PostgreSQL, which refuses root, as the account {ADMIN}: {why}");
    Ok((number("-u").map_err(why)?, number("-g").map_err(why)?))
}
