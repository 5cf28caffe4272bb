//! The command lines of `weir local` and `weir demo`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use config::DatabaseUrl;

use crate::postgres::Account;

/// Most disk servers of a cluster on one machine.
pub const LOCAL_DISKS_MAX: u16 = 64;

/// Most managers of a cluster on one machine.
pub const LOCAL_MANAGERS_MAX: u16 = 9;

/// Arguments of `weir local`.
#[derive(Args, Debug, Clone)]
pub struct LocalArgs {
    /// The command.
    #[command(subcommand)]
    pub command: LocalCommand,
}

/// Commands on a cluster on this machine.
#[derive(Subcommand, Debug, Clone)]
pub enum LocalCommand {
    /// Create a cluster in a folder, or start the one that is there: a manager and disk servers, each a process of
    /// its own. It can have several managers, with a database.
    ///
    /// Prints the ready line of `weir serve` when all nodes are ready, and returns; the processes stay. Run it again
    /// to start the nodes that are not running, with the addresses that they had.
    Up(LocalUpArgs),
    /// Kill nodes, or the database, with SIGKILL, as a crash would.
    Kill(LocalNodesArgs),
    /// Stop nodes, or the database, cleanly.
    Stop(LocalNodesArgs),
    /// Start nodes again, with the addresses that they had. A node whose data directory is gone is refused: is its disk
    /// mounted?
    Start(LocalStartArgs),
    /// Stop all nodes and the database, cleanly if they do so within 15 s. Their data stays in the folder.
    Down(LocalDirArgs),
    /// Show the nodes and the database: which are running, and their addresses.
    Status(LocalStatusArgs),
    /// Start a node in a session of its own; for `weir local` itself.
    #[command(hide = true)]
    Detached(LocalDetachedArgs),
}

/// Arguments of `weir local up`.
#[derive(Args, Debug, Clone)]
pub struct LocalUpArgs {
    /// The folder of the cluster: a new one, an empty one, or that of an earlier `up`.
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// The number of disk servers. A cluster that has fewer gets more [default: 4, or as many as there are].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(LOCAL_DISKS_MAX)))]
    pub disks: Option<u16>,
    /// The number of managers, 1 to 9; more than one needs --database. A cluster that has fewer gets more [default: 1, or as
    /// many as there are].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(LOCAL_MANAGERS_MAX)))]
    pub managers: Option<u16>,
    /// Keep the names of files in PostgreSQL: in a database that this command makes in the folder with Debian's programs,
    /// or in the one at URL, which has weir's tables (`weir db init`).
    #[arg(long, value_name = "URL", num_args = 0..=1)]
    #[allow(clippy::option_option)] // not given, given alone, given with an address
    pub database: Option<Option<DatabaseUrl>>,
    /// The loopback address for clients; port 0 picks a free one [default: 127.0.0.1:1094, or as before].
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// A TOML file with settings for all nodes, as `weir serve` takes it. A copy is kept in the folder and used from then on.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Which nodes.
#[derive(Args, Debug, Clone)]
pub struct LocalNodesArgs {
    /// Nodes: `manager`, `manager2`, `disk1`, `disk2` and so on, or `database`.
    #[arg(value_name = "NODE", required = true)]
    pub nodes: Vec<String>,
    /// The folder of the cluster.
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
}

/// Arguments of `weir local start`.
#[derive(Args, Debug, Clone)]
pub struct LocalStartArgs {
    /// Nodes: `manager`, `manager2`, `disk1`, `disk2` and so on, or `database`.
    #[arg(value_name = "NODE", required = true)]
    pub nodes: Vec<String>,
    /// The folder of the cluster.
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Let a disk server, or one of several managers, whose data directory is lost join as a new one.
    #[arg(long)]
    pub new: bool,
}

/// Which cluster.
#[derive(Args, Debug, Clone)]
pub struct LocalDirArgs {
    /// The folder of the cluster.
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
}

/// Arguments of `weir local status`.
#[derive(Args, Debug, Clone)]
pub struct LocalStatusArgs {
    /// The folder of the cluster.
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Print JSON on stdout.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `weir local detached`.
#[derive(Args, Debug, Clone)]
pub struct LocalDetachedArgs {
    /// The file for the process's number.
    #[arg(long, value_name = "FILE")]
    pub pid_file: PathBuf,
    /// The program; otherwise it is `weir`.
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// The numbers of the account and of the group that run the program.
    #[arg(long, value_name = "UID:GID", value_parser = Account::parse)]
    pub account: Option<Account>,
    /// The program's arguments.
    #[arg(last = true, value_name = "ARGUMENT", required = true)]
    pub arguments: Vec<OsString>,
}

/// Arguments of `weir demo`.
#[derive(Args, Debug, Default, Clone)]
pub struct DemoArgs {
    /// Give the cluster a database and this number of managers, 1 to 9, and kill the active one while a file is recorded.
    /// Needs Debian's package `postgresql`.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(LOCAL_MANAGERS_MAX)))]
    pub managers: Option<u16>,
    /// Keep the nodes' data directories and logs, and print where they are.
    #[arg(long)]
    pub keep: bool,
    /// Record the .root files of this folder too [default: ../shared/data/root, if it is there].
    #[arg(long, value_name = "DIR")]
    pub files: Option<PathBuf>,
    /// Create the temporary folder in this folder instead of the system's, to try out a certain disk.
    #[arg(long, value_name = "DIR")]
    pub within: Option<PathBuf>,
}
