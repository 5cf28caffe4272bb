//! Errors of a cluster on this machine.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use console::Exit;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum LocalError {
    /// There is no cluster in the folder.
    #[error("there is no cluster in {dir}; `weir local up --dir {dir}` makes one")]
    None { dir: PathBuf },
    /// The folder holds something else.
    #[error(
        "{dir} is not empty and has no cluster of `weir local up` in it (it holds `{found}`); nothing was touched. Give an empty or a new folder"
    )]
    Foreign { dir: PathBuf, found: String },
    /// The file with the addresses cannot be parsed.
    #[error("{path} does not read: {why}")]
    Plan { path: PathBuf, why: String },
    /// The cluster has more disk servers or managers than were asked for.
    #[error(
        "the cluster in {dir} has {are} {of}, and cannot have fewer; leave {option} out, or make another one in a new folder"
    )]
    TooMany { dir: PathBuf, are: u16, of: &'static str, option: &'static str },
    /// Several managers need a database.
    #[error("several managers need a database, which has the names of files for all of them; add --database")]
    ManagersWithoutDatabase,
    /// The cluster keeps its names somewhere else.
    #[error(
        "the cluster in {dir} keeps the names of files in {is}, and that cannot change; leave --database out, or make another one in a new folder"
    )]
    NamesElsewhere { dir: PathBuf, is: &'static str },
    /// The database cannot be made.
    #[error("cannot {what} the database: {why}")]
    Database { what: &'static str, why: String },
    /// The database's account cannot reach its data directory.
    #[error(
        "cannot make the database: the account `{account}`, which runs it, cannot enter {data}; let others enter the folders above (`chmod o+x`), or give a folder that all can enter, such as one below /var/tmp"
    )]
    Closed { data: PathBuf, account: &'static str },
    /// The cluster listens on another address.
    #[error(
        "the cluster in {dir} listens on {is}, not on {asked}; leave --listen out, or make another one in a new folder"
    )]
    ListensElsewhere { dir: PathBuf, is: SocketAddr, asked: SocketAddr },
    /// The address for clients cannot be used.
    #[error("cannot listen on {listen}: {source}; is another server there? `--listen {}:0` picks a free port", listen.ip())]
    Listen { listen: SocketAddr, source: io::Error },
    /// A node's data directory is gone.
    #[error("{name} has no data in {data} any more: is its disk mounted? Nothing was made. {hint}")]
    DataGone { name: String, data: PathBuf, hint: &'static str },
    /// No port is free.
    #[error("no free port was found at {ip}")]
    NoPort { ip: IpAddr },
    /// There is no such node.
    #[error("there is no node `{name}`; there are {known}")]
    NoNode { name: String, known: String },
    /// The node cannot be killed, because it is not running.
    #[error("{name} is not running")]
    NotRunning { name: String },
    /// A manager waits for its database, and nothing starts that.
    #[error("{name} cannot start: its database is not running; `weir local start database {name}` starts both")]
    DatabaseDown { name: String },
    /// The node started and then ended.
    #[error("{name} did not start ({how}). Its log, {log}, ends:\n{end}")]
    Ended { name: String, how: String, code: Option<i32>, log: PathBuf, end: String },
    /// The node started, but did not become ready.
    #[error("{name} was not ready within {seconds} s and was stopped. Its log, {log}, ends:\n{end}")]
    Late { name: String, seconds: u64, log: PathBuf, end: String },
    /// The manager makes no token.
    #[error("cannot get a token from the manager for {name}: {source}")]
    Token { name: String, source: control::client::AskError },
    /// The manager does not report the stores, or they are not online.
    #[error("the stores of the disk servers did not come online within {seconds} s: {why}. Their logs are in {dir}")]
    Stores { seconds: u64, why: String, dir: PathBuf },
    /// A process cannot be signalled.
    #[error("cannot {what} {name}: {source}")]
    Process { what: &'static str, name: String, source: io::Error },
    /// A killed process does not end.
    #[error("{name} (process {pid}) is still there after SIGKILL; does its disk hang?")]
    Stuck { name: String, pid: i32 },
    /// A file operation failed.
    #[error("cannot {what} {path}: {source}")]
    Io { what: &'static str, path: PathBuf, source: io::Error },
}

impl LocalError {
    /// The exit code of the run. If a node did not start, it is that node's code.
    pub fn exit(&self) -> Exit {
        match self {
            Self::None { .. } | Self::Foreign { .. } | Self::Plan { .. } | Self::DataGone { .. } => Exit::DataDirectory,
            Self::Listen { .. } => Exit::Listen,
            Self::DatabaseDown { .. } => Exit::Unreachable,
            Self::TooMany { .. }
            | Self::ListensElsewhere { .. }
            | Self::NamesElsewhere { .. }
            | Self::ManagersWithoutDatabase
            | Self::NoNode { .. } => Exit::Usage,
            Self::Ended { code: Some(code), .. } => {
                let known = Exit::ALL.into_iter().filter(|exit| *exit != Exit::Done);
                known.into_iter().find(|exit| i32::from(exit.code()) == *code).unwrap_or(Exit::Failed)
            }
            _ => Exit::Failed,
        }
    }
}
