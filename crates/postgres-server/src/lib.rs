//! A PostgreSQL server for tests, with the durability that it has by default.
//!
//! It runs the programs of Debian's package as child processes. A cluster is in a temporary directory, on a free port of 127.0.0.1, and
//! is gone when the value is dropped or the test program ends, however that ends. PostgreSQL refuses to run as root; a test program
//! that runs as root starts it under the package's account `postgres`.
//!
//! [`shared`] is one server for all tests of a program. Each takes a database of its own there ([`PostgresServer::database`]). A test
//! that stops or kills the server starts its own ([`PostgresServer::start`]).
//!
//! Only tests may use this crate. It knows nothing of weir.

mod keeper;
mod programs;
mod proxy;

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use keeper::Keeper;
use programs::Programs;
pub use proxy::{Fault, Proxy};

/// The superuser, and the account that runs the server if the tests run as root.
const ADMIN: &str = "postgres";
/// It protects nothing. A URL must quote one of its characters, which shows whether programs do.
const PASSWORD: &str = "p@ss";
const PASSWORD_IN_URL: &str = "p%40ss";
const START_TIME: Duration = Duration::from_secs(60);
const STOP_TIME: Duration = Duration::from_secs(30);
/// Another program can take a free port before the server does.
const STARTS: u32 = 5;

/// How a server ends, as `pg_ctl stop -m` calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// It waits until the last client has left.
    Smart,
    /// It disconnects clients, rolls their transactions back and writes a checkpoint.
    Fast,
    /// It ends like in a crash, but its clients get a message. The next start recovers.
    Immediate,
}

impl StopMode {
    fn signal(self) -> &'static str {
        match self {
            StopMode::Smart => "TERM",
            StopMode::Fast => "INT",
            StopMode::Immediate => "QUIT",
        }
    }
}

/// A PostgreSQL server of its own. Dropping it ends the server and removes its files.
#[derive(Debug)]
pub struct PostgresServer {
    programs: Programs,
    keeper: Keeper,
    port: u16,
    postmaster: Mutex<Option<Child>>,
    databases: AtomicU32,
}

/// One server for all tests of the program. It starts with the first call. It leaves it to the kernel when its files reach the disk: a
/// killed server loses nothing by that, and tests that run beside compilers do not wait for the disk.
///
/// # Panics
/// If it does not start: no test that asks for it can pass.
#[must_use]
#[allow(clippy::panic)] // only tests call this
pub fn shared() -> &'static PostgresServer {
    static SHARED: OnceLock<Result<PostgresServer, String>> = OnceLock::new();
    match SHARED.get_or_init(|| PostgresServer::start_with(&[("fsync", "off")])) {
        Ok(server) => server,
        Err(why) => panic!("{why}"),
    }
}

impl PostgresServer {
    /// Makes a cluster and starts its server.
    ///
    /// # Errors
    /// If PostgreSQL is not installed, or does not start; with the end of its log.
    pub fn start() -> Result<Self, String> {
        Self::start_with(&[])
    }

    /// As [`PostgresServer::start`], with settings of `postgresql.conf`, such as `("max_connections", "10")`.
    ///
    /// # Errors
    /// The same, and if the server knows no such setting.
    pub fn start_with(settings: &[(&str, &str)]) -> Result<Self, String> {
        let programs = Programs::find()?;
        let keeper = Keeper::start(&programs)?;
        programs.make_cluster(keeper.home(), PASSWORD)?;
        let mut server = Self { programs, keeper, port: 0, postmaster: Mutex::new(None), databases: AtomicU32::new(0) };
        let mut why = String::new();
        for _ in 0..STARTS {
            server.port = free_port()?;
            server.configure(settings)?;
            match server.start_again() {
                Ok(()) => return Ok(server),
                Err(error) => why = error,
            }
            if !why.contains("Address already in use") {
                break;
            }
        }
        Err(why)
    }

    /// The port on 127.0.0.1. It stays the same when the server starts again.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a database, as the superuser.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        self.url_of(ADMIN, PASSWORD_IN_URL, database)
    }

    /// The URL of a database for another user. The password must need no quoting.
    #[must_use]
    pub fn url_of(&self, user: &str, password: &str, database: &str) -> String {
        format!("postgres://{user}:{password}@127.0.0.1:{}/{database}", self.port)
    }

    /// Makes an empty database and returns its URL, as the superuser.
    ///
    /// # Panics
    /// If the server does not run.
    #[must_use]
    #[allow(clippy::panic)] // only tests call this
    pub fn database(&self) -> String {
        let name = format!("weir{}", self.databases.fetch_add(1, Ordering::Relaxed) + 1);
        match self.psql("postgres", &format!("CREATE DATABASE {name}")) {
            Ok(_) => self.url(&name),
            Err(why) => panic!("{why}"),
        }
    }

    /// Runs statements as the superuser in a database, given by its name or its URL. Returns the rows as lines, with `|` between columns.
    ///
    /// # Errors
    /// The message of `psql`.
    pub fn psql(&self, database: &str, sql: &str) -> Result<String, String> {
        let url = if database.contains("://") { database.to_owned() } else { self.url(database) };
        let mut psql = self.programs.as_user("psql");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", &url, "-c", sql]);
        let output = run(&mut psql)?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Ends the connections of all clients, as an administrator does; returns their number.
    ///
    /// # Errors
    /// If the server does not run.
    pub fn terminate_backends(&self) -> Result<u32, String> {
        let sql = "SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()) ended";
        let count = self.psql("postgres", sql)?;
        count.parse().map_err(|why| format!("cannot read the number of ended connections from {count:?}: {why}"))
    }

    /// Ends the server in an orderly way. Does nothing if it does not run.
    ///
    /// # Errors
    /// If it is still there after half a minute, when it is killed.
    pub fn stop(&self, mode: StopMode) -> Result<(), String> {
        let mut postmaster = self.postmaster.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(child) = postmaster.as_mut() else { return Ok(()) };
        signal(mode.signal(), &[child.id().to_string()])?;
        let end = Instant::now() + STOP_TIME;
        while Instant::now() < end {
            if has_ended(child)? {
                *postmaster = None;
                return Ok(());
            }
            sleep(Duration::from_millis(10));
        }
        kill_with_children(child)?;
        *postmaster = None;
        Err(format!(
            "PostgreSQL was still there {} s after the {mode:?} stop:\n{}",
            STOP_TIME.as_secs(),
            self.log_text()
        ))
    }

    /// Kills the whole server with SIGKILL: no client gets a message, and the next start recovers. Does nothing if it does not run.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub fn kill(&self) -> Result<(), String> {
        let mut postmaster = self.postmaster.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(child) = postmaster.as_mut() {
            kill_with_children(child)?;
        }
        *postmaster = None;
        Ok(())
    }

    /// Starts the server again, after [`PostgresServer::stop`] or [`PostgresServer::kill`]. Returns when it takes connections: after a
    /// crash, when it has recovered. Does nothing if it runs.
    ///
    /// # Errors
    /// If it does not start; with the end of its log.
    pub fn start_again(&self) -> Result<(), String> {
        let mut postmaster = self.postmaster.lock().unwrap_or_else(PoisonError::into_inner);
        if postmaster.is_some() {
            return Ok(());
        }
        let log = OpenOptions::new().create(true).append(true).open(self.log());
        let log = log.map_err(|why| format!("cannot open the log of PostgreSQL: {why}"))?;
        let log_too = log.try_clone().map_err(|why| format!("cannot open the log of PostgreSQL: {why}"))?;
        let mut command = self.programs.as_account("postgres");
        command.arg("-D").arg(self.data()).current_dir(self.keeper.home());
        command.stdin(Stdio::null()).stdout(log).stderr(log_too);
        let mut child = command.spawn().map_err(|why| format!("cannot run {command:?}: {why}"))?;
        let end = Instant::now() + START_TIME;
        while Instant::now() < end {
            if has_ended(&mut child)? {
                return Err(format!("PostgreSQL did not start:\n{}", self.log_text()));
            }
            if self.is_ready(child.id()) {
                *postmaster = Some(child);
                return Ok(());
            }
            sleep(Duration::from_millis(10));
        }
        kill_with_children(&mut child)?;
        Err(format!("PostgreSQL did not start within {} s:\n{}", START_TIME.as_secs(), self.log_text()))
    }

    /// The server's log: all that it has said since the first start.
    #[must_use]
    pub fn log_text(&self) -> String {
        let mut bytes = Vec::new();
        // A log that cannot be read has nothing to say; the caller's own message counts.
        let _ = std::fs::File::open(self.log()).and_then(|mut file| file.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn data(&self) -> PathBuf {
        self.keeper.home().join("data")
    }

    fn log(&self) -> PathBuf {
        self.keeper.home().join("log")
    }

    /// Later lines count more, so that a second call can change the port.
    fn configure(&self, settings: &[(&str, &str)]) -> Result<(), String> {
        let home = self.keeper.home().display();
        let mut lines =
            format!("listen_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = '{home}'\n", self.port);
        for (name, value) in settings {
            lines += &format!("{name} = '{value}'\n");
        }
        let file = OpenOptions::new().append(true).open(self.data().join("postgresql.conf"));
        file.and_then(|mut file| file.write_all(lines.as_bytes()))
            .map_err(|why| format!("cannot configure PostgreSQL: {why}"))
    }

    /// The server writes its number and its state into this file. That of a killed server stays.
    fn is_ready(&self, postmaster: u32) -> bool {
        let Ok(text) = std::fs::read_to_string(self.data().join("postmaster.pid")) else { return false };
        let lines: Vec<&str> = text.lines().collect();
        lines.first() == Some(&postmaster.to_string().as_str())
            && lines.get(7).is_some_and(|state| state.trim() == "ready")
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // The keeper ends what is left, and then removes the files.
        let _ = self.kill();
    }
}

/// A port of 127.0.0.1 that is free at the moment. It is below those that the kernel gives out, so that a stopped server keeps its port,
/// and below those of the clients' tests, which can run at the same time.
fn free_port() -> Result<u16, String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (first, ports) = (4200, 6000);
    // Programs that run at the same time begin at different ports.
    let begin = std::process::id().wrapping_mul(97);
    for _ in 0..ports {
        let number = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % ports;
        let port = u16::try_from(first + number).map_err(|why| format!("cannot number a port: {why}"))?;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(format!("cannot start PostgreSQL: none of the ports {first} to {} of 127.0.0.1 is free", first + ports - 1))
}

/// Runs a command to its end.
fn run(command: &mut Command) -> Result<Output, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|why| format!("cannot run {command:?}: {why}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = [output.stdout, output.stderr].concat();
    Err(format!("{command:?} failed ({}): {}", output.status, String::from_utf8_lossy(&said).trim()))
}

fn has_ended(child: &mut Child) -> Result<bool, String> {
    child.try_wait().map(|status| status.is_some()).map_err(|why| format!("cannot wait for PostgreSQL: {why}"))
}

fn signal(name: &str, processes: &[String]) -> Result<(), String> {
    run(Command::new("kill").arg(format!("-{name}")).args(processes)).map(|_| ())
}

/// The postmaster is stopped first, so that it starts no further child and reports none as lost.
fn kill_with_children(postmaster: &mut Child) -> Result<(), String> {
    let id = postmaster.id();
    if has_ended(postmaster)? {
        return Ok(());
    }
    signal("STOP", &[id.to_string()])?;
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    let children: Vec<String> = children.unwrap_or_default().split_whitespace().map(str::to_owned).collect();
    // One that has ended by itself makes the command fail; the others got the signal.
    let _ = signal("KILL", &children);
    postmaster.kill().map_err(|why| format!("cannot kill PostgreSQL: {why}"))?;
    postmaster.wait().map_err(|why| format!("cannot wait for PostgreSQL: {why}"))?;
    // A child that holds the shared memory for another moment would keep a new server from starting.
    let end = Instant::now() + STOP_TIME;
    while children.iter().any(|child| runs(child)) {
        if Instant::now() > end {
            return Err(format!("a process of PostgreSQL is still there {} s after SIGKILL", STOP_TIME.as_secs()));
        }
        sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Whether a process executes instructions: it exists, and not only as an entry that its new parent has not collected yet.
fn runs(process: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(process).join("stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}
