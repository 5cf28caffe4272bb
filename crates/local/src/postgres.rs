//! PostgreSQL's programs, as Debian installs them, and the account that runs them: PostgreSQL refuses root.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::LocalError;

/// Where Debian's packages have the programs, by version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// The oldest version that weir works with.
const OLDEST: u32 = 13;
const ACCOUNTS: &str = "/etc/passwd";
/// The account that runs the database if this process is root's, and the superuser of the database.
pub const SUPERUSER: &str = "postgres";
/// A file of a data directory with the version that made it.
const VERSION_FILE: &str = "PG_VERSION";

/// The numbers of an account and of its group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Account {
    /// The account's.
    pub user: u32,
    /// The group's.
    pub group: u32,
}

impl Account {
    /// Reads `UID:GID`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let numbers = text.split_once(':').and_then(|(user, group)| Some((user.parse().ok()?, group.parse().ok()?)));
        numbers.map(|(user, group)| Self { user, group }).ok_or_else(|| "write UID:GID, as in 101:104".into())
    }

    /// The account `name` in a file as passwd(5) describes.
    fn named(name: &str, accounts: &str) -> Option<Self> {
        let fields = |line: &str| line.split(':').map(ToOwned::to_owned).collect::<Vec<_>>();
        let line = accounts.lines().map(fields).find(|fields| fields.first().is_some_and(|first| first == name))?;
        Some(Self { user: line.get(2)?.parse().ok()?, group: line.get(3)?.parse().ok()? })
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.user, self.group)
    }
}

/// The programs of one version.
#[derive(Debug)]
pub struct Postgres {
    bin: PathBuf,
    /// Who must run the server, if not the account of this process.
    account: Option<Account>,
}

impl Postgres {
    /// The newest installed version, for a new data directory.
    pub fn newest() -> Result<Self, LocalError> {
        let newest = newest_in(Path::new(VERSIONS)).ok_or_else(|| {
            let why = format!("{VERSIONS}/*/bin has no PostgreSQL of version {OLDEST} or newer");
            missing(why, "postgresql")
        })?;
        let account = match rustix::process::geteuid().is_root() {
            true => Some(postgres_account()?),
            false => None,
        };
        Ok(Self { bin: newest.join("bin"), account })
    }

    /// The version that made the data directory. Its owner runs it.
    pub fn of(data: &Path) -> Result<Self, LocalError> {
        let failed = |path: PathBuf| move |source| LocalError::Io { what: "read", path, source };
        let file = data.join(VERSION_FILE);
        let version = fs::read_to_string(&file).map_err(failed(file))?;
        let version = version.trim();
        // Its owner could otherwise name a folder with programs of its own, which root would run.
        if !is_version(version) {
            let why = format!("{} names no version of PostgreSQL", data.join(VERSION_FILE).display());
            return Err(LocalError::Database { what: "run", why });
        }
        let bin = Path::new(VERSIONS).join(version).join("bin");
        if !bin.join("postgres").exists() {
            let why = format!("PostgreSQL {version} made {}, and {} has no programs", data.display(), bin.display());
            return Err(missing(why, &format!("postgresql-{version}")));
        }
        let owner = fs::metadata(data).map_err(failed(data.to_owned()))?;
        let account = Account { user: owner.uid(), group: owner.gid() };
        Ok(Self { bin, account: rustix::process::geteuid().is_root().then_some(account) })
    }

    /// The path of a program.
    pub fn program(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }

    /// Who must run the server, if not the account of this process.
    pub fn account(&self) -> Option<Account> {
        self.account
    }

    /// Gives a file or folder to the account that runs the server.
    pub fn give(&self, path: &Path) -> Result<(), LocalError> {
        let Some(Account { user, group }) = self.account else { return Ok(()) };
        let given = std::os::unix::fs::chown(path, Some(user), Some(group));
        given.map_err(|source| LocalError::Io { what: "give PostgreSQL's account", path: path.to_owned(), source })
    }

    /// Makes a data directory in the empty folder `data`, with a superuser whose password is in a file. Everybody needs a password.
    pub fn make_data(&self, data: &Path, password: &Path) -> Result<(), LocalError> {
        let mut command = Command::new(self.program("initdb"));
        command.arg("--pgdata").arg(data).arg("--pwfile").arg(password).args(["--username", SUPERUSER]);
        command.args(["--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C.UTF-8"]).current_dir(data);
        clean(&mut command);
        if let Some(Account { user, group }) = self.account {
            command.uid(user).gid(group);
        }
        match command.stdin(Stdio::null()).output() {
            // It could not enter its folder.
            Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
                Err(LocalError::Closed { data: data.to_owned(), account: SUPERUSER })
            }
            ended => succeeded("make", ended).map(drop),
        }
    }
}

/// Whether it is the number of a version, and nothing else in a path.
fn is_version(text: &str) -> bool {
    (1..=9).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The folder of the newest version that fits.
fn newest_in(versions: &Path) -> Option<PathBuf> {
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok().filter(|found| *found >= OLDEST);
    let all = fs::read_dir(versions).ok()?.flatten().map(|entry| entry.path());
    all.filter(|path| number(path).is_some() && path.join("bin/initdb").exists()).max_by_key(number)
}

/// The account of Debian's package.
fn postgres_account() -> Result<Account, LocalError> {
    let accounts = fs::read_to_string(ACCOUNTS).unwrap_or_default();
    let why = || format!("PostgreSQL refuses root, and there is no account `{SUPERUSER}`");
    Account::named(SUPERUSER, &accounts).ok_or_else(|| missing(why(), "postgresql"))
}

fn missing(why: String, package: &str) -> LocalError {
    LocalError::Database { what: "run", why: format!("{why}; install Debian's package `{package}`") }
}

/// The output of a program that has ended well.
pub fn succeeded(what: &'static str, ended: io::Result<Output>) -> Result<Output, LocalError> {
    let output = ended.map_err(|error| LocalError::Database { what, why: error.to_string() })?;
    if output.status.success() {
        return Ok(output);
    }
    let said = [output.stdout, output.stderr].concat();
    let why = format!("({}) {}", output.status, String::from_utf8_lossy(&said).trim());
    Err(LocalError::Database { what, why })
}

/// Keeps the user's settings from the server and its tools. Messages are in English.
pub fn clean(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("PG") || name.starts_with("LC_")) {
            command.env_remove(name);
        }
    }
    command.env("LC_ALL", "C.UTF-8");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts() {
        let account = Account { user: 101, group: 104 };
        assert_eq!(Account::parse(&account.to_string()), Ok(account));
        for text in ["", "101", "101:", ":104", "postgres:postgres", "-1:2"] {
            assert!(Account::parse(text).is_err(), "{text}");
        }
        let accounts = "root:x:0:0::/root:/bin/bash\nbroken\npostgres:x:101:104:,,,:/var/lib/postgresql:/bin/bash\n";
        assert_eq!(Account::named("postgres", accounts), Some(account));
        assert_eq!((Account::named("post", accounts), Account::named("broken", accounts)), (None, None));
    }

    #[test]
    fn a_data_directory_names_a_version_and_no_other_folder() {
        let temp = tempfile::tempdir().unwrap();
        for text in ["../../../tmp/evil", "/tmp", "..", "", "15/../../x", "1234567890"] {
            fs::write(temp.path().join(VERSION_FILE), text).unwrap();
            let why = Postgres::of(temp.path()).unwrap_err().to_string();
            assert!(why.contains("names no version"), "{text}: {why}");
        }
        fs::write(temp.path().join(VERSION_FILE), "99\n").unwrap();
        let why = Postgres::of(temp.path()).unwrap_err().to_string();
        assert!(why.contains("postgresql-99"), "{why}");
    }

    #[test]
    fn the_newest_version_with_programs_is_taken() {
        let temp = tempfile::tempdir().unwrap();
        let install = |version: &str| {
            fs::create_dir_all(temp.path().join(version).join("bin")).unwrap();
            fs::write(temp.path().join(version).join("bin/initdb"), "").unwrap();
        };
        assert_eq!((newest_in(temp.path()), newest_in(&temp.path().join("none"))), (None, None));
        install("9.6");
        install("12");
        // Only its libraries are left.
        fs::create_dir_all(temp.path().join("17/bin")).unwrap();
        assert_eq!(newest_in(temp.path()), None);
        install("13");
        assert_eq!(newest_in(temp.path()), Some(temp.path().join("13")));
        install("100");
        assert_eq!(newest_in(temp.path()), Some(temp.path().join("100")));
    }
}
