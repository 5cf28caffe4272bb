//! The database of a cluster on this machine: PostgreSQL with its data in the cluster's folder, and two accounts: a superuser, which makes
//! weir's tables, and the managers' account, which may only read and write them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::LocalError;
use super::nodes::Nodes;
use super::plan::{DatabasePlan, NodePlan};
use super::postgres::{self, Postgres, SUPERUSER, succeeded};
use super::process::Process;

/// The database, and the account of the managers.
const WEIR: &str = "weir";
/// The file with the managers' password.
const PASSFILE: &str = "manager.pgpass";
/// The file with the superuser's password.
const ADMIN_PASSFILE: &str = "database.pgpass";
/// Each of nine managers may open 20.
const CONNECTIONS: u32 = 200;
/// A file of a data directory with the number and the state of the server that runs on it.
const POSTMASTER_FILE: &str = "postmaster.pid";
const STATE_MAX: u64 = 4096;

impl Nodes {
    /// The address of the database for the managers. That of a given one may hold a password.
    pub fn database_url(&self) -> Option<String> {
        match self.plan.database.as_ref()? {
            DatabasePlan::Own(node) => Some(url(WEIR, node.listen, &self.dir.join(PASSFILE))),
            DatabasePlan::Given(given) => Some(given.0.clone()),
        }
    }

    /// The address of the cluster's own database for its superuser.
    pub fn admin_url(&self, node: &NodePlan) -> String {
        url(SUPERUSER, node.listen, &self.dir.join(ADMIN_PASSFILE))
    }

    /// Makes the data directory of a database that was not made before, or not completely.
    pub fn make_database(&self, node: &NodePlan, passwords: &Passwords) -> Result<(), LocalError> {
        let data = self.data(node);
        let io = |what, path: &Path| {
            let path = path.to_owned();
            move |source| LocalError::Io { what, path, source }
        };
        // No manager has ever used what an interrupted attempt left.
        if data.exists() {
            fs::remove_dir_all(&data).map_err(io("remove", &data))?;
        }
        DirBuilder::new().mode(0o700).create(&data).map_err(io("make", &data))?;
        let programs = Postgres::newest()?;
        programs.give(&data)?;
        let password = self.in_run(node, "password");
        write_secret(&password, &passwords.admin)?;
        let made = programs.give(&password).and_then(|()| programs.make_data(&data, &password));
        fs::remove_file(&password).map_err(io("remove", &password))?;
        made?;
        let settings = data.join("postgresql.conf");
        let text = format!(
            "# Of `weir local`:\nlisten_addresses = '{}'\nport = {}\nunix_socket_directories = ''\nmax_connections = {CONNECTIONS}\npassword_encryption = 'scram-sha-256'\n",
            node.listen.ip(),
            node.listen.port()
        );
        // The account that has the folder could lead root elsewhere with a link.
        let no_link = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).map_err(std::io::Error::other);
        let file = no_link.and_then(|flag| OpenOptions::new().append(true).custom_flags(flag).open(&settings));
        file.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
            .map_err(io("write", &settings))?;
        for (file, account, password) in
            [(PASSFILE, WEIR, &passwords.manager), (ADMIN_PASSFILE, SUPERUSER, &passwords.admin)]
        {
            let line = format!("{}:{}:*:{account}:{password}", node.listen.ip(), node.listen.port());
            write_secret(&self.dir.join(file), &line)?;
        }
        Ok(())
    }

    /// Makes the managers' account, the database and weir's tables in a running server that has none.
    pub fn fill_database(&self, node: &NodePlan, passwords: &Passwords) -> Result<(), LocalError> {
        let mut psql = Command::new(Postgres::newest()?.program("psql"));
        postgres::clean(&mut psql);
        let (host, port) = (node.listen.ip().to_string(), node.listen.port().to_string());
        psql.args([
            "-X",
            "-q",
            "-w",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            &host,
            "-p",
            &port,
            "-U",
            SUPERUSER,
            "-d",
            "postgres",
        ]);
        psql.env("PGPASSFILE", self.dir.join(ADMIN_PASSFILE));
        // Other users could see it as an argument.
        let sql = format!("CREATE ROLE {WEIR} LOGIN PASSWORD '{}';\nCREATE DATABASE {WEIR};\n", passwords.manager);
        succeeded("make the managers' account in", fed(&mut psql, &sql))?;
        let own =
            std::env::current_exe().map_err(|error| LocalError::Database { what: "fill", why: error.to_string() });
        let mut init = Command::new(own?);
        init.args(["db", "init", "--grant-to", WEIR, "--database"]).arg(self.admin_url(node));
        succeeded("make the tables in", init.stdin(Stdio::null()).output()).map(drop)
    }

    /// The process that becomes the database server.
    pub fn spawn_database(&self, node: &NodePlan, out: File, log: File) -> Result<Child, LocalError> {
        let data = self.data(node);
        let programs = Postgres::of(&data)?;
        let mut command = self.detached(node)?;
        command.arg("--program").arg(programs.program("postgres"));
        if let Some(account) = programs.account() {
            command.arg("--account").arg(account.to_string());
        }
        command.arg("--").arg("-D").arg(&data);
        postgres::clean(&mut command);
        command.current_dir(&self.dir).stdin(Stdio::null()).stdout(out).stderr(log);
        command.spawn().map_err(|source| LocalError::Process { what: "start", name: node.name.clone(), source })
    }

    /// Whether the database server takes connections: it writes its number and its state into a file. That of a killed server stays.
    pub fn database_is_ready(&self, node: &NodePlan, process: &Process) -> bool {
        let text = self.postmaster_file(node);
        let lines: Vec<&str> = text.lines().collect();
        lines.first().is_some_and(|pid| *pid == process.pid().to_string())
            && lines.get(7).is_some_and(|state| state.trim() == "ready")
    }

    /// Removes the file of a server whose processes are all gone. As long as its parent has not collected it, a new server would take it for
    /// a running one.
    pub fn forget_killed(&self, node: &NodePlan, process: &Process) -> Result<(), LocalError> {
        if self.postmaster_file(node).lines().next() != Some(process.pid().to_string().as_str()) {
            return Ok(());
        }
        let path = self.data(node).join(POSTMASTER_FILE);
        fs::remove_file(&path).map_err(|source| LocalError::Io { what: "remove", path, source })
    }

    fn postmaster_file(&self, node: &NodePlan) -> String {
        let mut text = String::new();
        let file = File::open(self.data(node).join(POSTMASTER_FILE));
        // Without it, no server runs.
        let _ = file.and_then(|file| file.take(STATE_MAX).read_to_string(&mut text));
        text
    }
}

/// New passwords of a database.
pub struct Passwords {
    admin: String,
    manager: String,
}

impl Passwords {
    /// Makes them.
    pub fn new() -> Self {
        let one = || format!("{:032x}", rand::random::<u128>());
        Self { admin: one(), manager: one() }
    }
}

/// The address of the database at `at`, with a password in a file.
fn url(account: &str, at: SocketAddr, passfile: &Path) -> String {
    format!("postgres://{account}@{at}/{WEIR}?passfile={}", quoted(passfile))
}

/// A path as a part of an address.
fn quoted(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    let one = |byte: &u8| match byte {
        b'/' | b'-' | b'_' | b'.' | b'~' => char::from(*byte).to_string(),
        byte if byte.is_ascii_alphanumeric() => char::from(*byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    path.as_os_str().as_bytes().iter().map(one).collect()
}

/// Writes a line into a new file that only its owner can read.
pub fn write_secret(path: &Path, line: &str) -> Result<(), LocalError> {
    let failed = |source| LocalError::Io { what: "write", path: PathBuf::from(path), source };
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(path);
    file.and_then(|mut file| writeln!(file, "{line}").and_then(|()| file.sync_all())).map_err(failed)
}

/// Runs a program to its end, with `text` as its input.
fn fed(command: &mut Command, text: &str) -> io::Result<std::process::Output> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // A program that ends early says itself why.
        let _ = input.write_all(text.as_bytes());
    }
    child.wait_with_output()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_becomes_a_part_of_an_address() {
        let at = "127.0.0.1:5432".parse().unwrap();
        let address = url("weir", at, Path::new("/tmp/a b&c?d%e/é.pgpass"));
        assert_eq!(address, "postgres://weir@127.0.0.1:5432/weir?passfile=/tmp/a%20b%26c%3Fd%25e/%C3%A9.pgpass");
    }

    #[test]
    fn a_secret_is_the_owners_alone_and_replaces_what_was_there() {
        use std::os::unix::fs::PermissionsExt as _;
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("secret");
        fs::write(&path, "others can read this").unwrap();
        write_secret(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
