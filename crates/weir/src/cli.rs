//! The command line.

mod bench;
mod client;
mod cluster_views;
mod filter;
mod local;
mod machines;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use types::{Location, StoreClass};

use crate::config::ClusterRole;
use crate::exit::Exit;

pub use bench::*;
pub use client::*;
pub use cluster_views::*;
pub use local::*;
pub use machines::*;

const ABOUT: &str = "Storage for physics experiments: takes files from stock XRootD clients, keeps them through any \
crash, and gives them back with every page checked.";

/// What was asked for.
#[derive(Parser, Debug)]
#[command(name = "weir", version, about = ABOUT, max_term_width = 100, arg_required_else_help = true)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Serves a data directory over root://.
    ///
    /// Makes the data directory on the first start, if it is missing or empty. When ready, prints exactly one line to
    /// stdout, `weir: ready root://HOST:PORT/`; the log goes to stderr. SIGTERM or SIGINT ends it cleanly within 10 s;
    /// a second one at once. With --role it is a node of a cluster (docs/how-to/cluster.md).
    Serve(ServeArgs),
    /// Makes and looks after what nodes join a cluster with.
    Token(JoinTokenArgs),
    /// Shows a cluster as a whole: its nodes, and what there is to be done.
    Status(ManagerArgs),
    /// Shows the stores of a cluster.
    Stores(ManagerArgs),
    /// Shows where a file of a cluster is, and how each of its copies is.
    File(FileArgs),
    /// Lists the files of a cluster that lack copies, or that nobody can read.
    ///
    /// For each: whether it was lost for good (all stores that had it were given up), cannot be read until a store comes back, or only has fewer
    /// copies than it should have; and which stores should have it. What is being written for the first time is not among them.
    Missing(MissingArgs),
    /// Shows and changes the policies of directories: how files are copied, and where they go.
    Policy(PolicyArgs),
    /// Gives a lost store up for good, so that others get copies of what it had; without --store shows how far that is.
    ///
    /// The copies are made in the background, at the rate that `copies.rate` sets. See docs/how-to/cluster.md.
    Repair(RepairArgs),
    /// Empties a store, so that it can be taken away; without a store shows how far that is.
    ///
    /// Others take its place in its groups and copy what it has, in the background, at the rate that `copies.rate` sets; then it is deleted there.
    /// Files stay readable all the time. See docs/how-to/cluster.md.
    Drain(DrainArgs),
    /// Says that a store is only to be read from, or is to be used again, or is gone.
    Store(StoreArgs),
    /// Says that a node is gone.
    Node(NodeArgs),
    /// Makes a data directory, and nothing else.
    ///
    /// For who starts the node with `--existing` only. Does nothing where there is one already.
    Init(InitArgs),
    /// Shows what weir promises, on a cluster of its own in a temporary place.
    ///
    /// Starts a manager and four disk servers on this machine, records six streams while a reader follows one of them, kills a
    /// disk server in the middle, compares every byte, starts it again and sees the copies restored. Takes about a minute,
    /// needs no rights, and leaves nothing behind, also when it is ended by Ctrl-C.
    Demo(DemoArgs),
    /// Checks a data directory: names against replicas against checksums.
    ///
    /// The node must not be running. Recovers from an unclean stop as a start would, then reads everything and says in
    /// plain words what it found. Repairs only what a flag names.
    Fsck(FsckArgs),
    /// Shows what a node or a cluster does just now: requests, bytes, times, connections, space.
    ///
    /// With HOST:PORT it reads the metrics of a node that was started with `--metrics`; with `--data` it asks the running manager for all
    /// nodes of its cluster, a line each. Again and again until Ctrl-C; without a terminal it prints one block after the other.
    Top(TopArgs),
    /// Says what the scrub of a running node is at, or tells it what to do.
    ///
    /// A node reads all its contents from the disk in its spare time, compares them with their checksums, and marks the files that
    /// are damaged. `scrub.rate` and `scrub.period` in the configuration say how fast and how often.
    Scrub(ScrubArgs),
    /// Copies the namespace of a node, running or not, into a folder elsewhere.
    ///
    /// The first backup in the folder holds everything, later ones what changed since. Each is as of one moment, and read back before it
    /// counts. The contents of files are not in it. An interrupted backup leaves the ones before it as they are; run it again.
    Backup(BackupArgs),
    /// Gives a data directory the namespace that a backup holds, or lists the backups of a folder.
    ///
    /// The node must not be running. The contents stay as they are; the namespace that is there is moved aside. Where the log is there and
    /// has everything since the backup, nothing is lost, unless --until asks for an older state.
    Restore(RestoreArgs),
    /// Gives the contents of a stopped node back as plain files, each compared with its checksums.
    ///
    /// With the namespace: its tree, with modes, times, symbolic and hard links. Without it: every content in the store, under the path at
    /// which it was made. Never writes over anything; an interrupted export goes on when it is run again.
    Export(ExportArgs),
    /// Copies files between this machine and servers, and between servers.
    ///
    /// Takes local paths, `root://HOST[:PORT]//PATH` of any XRootD server, and `-` for standard input and output. Small files
    /// travel by the dozen, large ones in several requests at a time; what was copied is compared with the server's checksum;
    /// a lost connection is made again and the copy goes on. A local file gets its name when it is whole. What is there already
    /// is left alone unless `--force` or `--resume` says otherwise.
    Cp(CpArgs),
    /// Makes one directory like another, here or at servers, moving only what differs.
    ///
    /// A file is left alone if length and checksum are the same at both ends. What the source does not have stays, unless
    /// `--delete` says otherwise.
    Sync(SyncArgs),
    /// Runs a cluster on this machine, to try it out: a manager and disk servers, each a process of its own.
    Local(LocalArgs),
    /// Measures storage systems, side by side: by path or by root://.
    Bench(BenchArgs),
    /// Writes the man pages and the completions for shells into a folder.
    #[command(hide = true)]
    Generate(GenerateArgs),
    /// Commands on names, here and at servers.
    #[command(flatten)]
    Files(FileCommand),
}

/// Arguments of `weir serve`.
#[derive(Args, Debug, Default, Clone)]
pub struct ServeArgs {
    /// Where everything is kept.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Be a node of a cluster: its manager, which has the names, or a disk server, which has stores [default: a node that is alone].
    #[arg(long, value_name = "ROLE")]
    pub role: Option<ClusterRole>,
    /// Of a node of a cluster: where the other nodes reach it; port 0 picks a free one [default: 127.0.0.1:1095].
    #[arg(long, value_name = "HOST:PORT")]
    pub nodes: Option<String>,
    /// Of a disk server: the token that `weir token create` printed, when it starts for the first time. Others can read it in the list of
    /// processes; --join-file keeps it from them.
    #[arg(long, value_name = "TOKEN", conflicts_with = "join_file")]
    pub join: Option<JoinText>,
    /// Of a disk server: the file with the token in it, when it starts for the first time.
    #[arg(long, value_name = "FILE")]
    pub join_file: Option<PathBuf>,
    /// Of a disk server: where clients are sent to [default: the address that it listens on].
    #[arg(long, value_name = "HOST:PORT", value_parser = crate::config::keys::address)]
    pub advertise: Option<String>,
    /// Of a disk server: where it stands, as site/rack/host [default: default/default/ and the host's name].
    #[arg(long, value_name = "PLACE")]
    pub location: Option<Location>,
    /// Of a disk server: what its administrator calls the kind of its stores, for policies that ask for a class.
    #[arg(long, value_name = "CLASS")]
    pub class: Option<StoreClass>,
    /// The address to listen on; port 0 picks a free one [default: 127.0.0.1:1094].
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// A TOML file with settings; flags win over it. docs/reference/configuration.md lists all keys.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Serve addresses other than loopback although nobody has to say who they are: whoever reaches the port may read,
    /// write and delete everything.
    #[arg(long)]
    pub insecure: bool,
    /// Refuse to make a new data directory. For start scripts: a disk that is not mounted then stops the node instead
    /// of showing an empty one.
    #[arg(long)]
    pub existing: bool,
    /// Where to tell what the node does, for Prometheus and `weir top`: http://HOST:PORT/metrics; port 0 picks a free one [default: nowhere].
    #[arg(long, value_name = "HOST:PORT")]
    pub metrics: Option<String>,
    /// How long a writer that lost its connection is waited for before its file is marked interrupted [default: 60].
    #[arg(long, value_name = "N")]
    pub grace_seconds: Option<u64>,
    /// What to log: error, warn, info, debug, trace, or a filter such as `info,server=debug` [default: info].
    #[arg(long, value_name = "LEVEL")]
    pub log: Option<String>,
    /// Only read the settings, say what is wrong with them, and end: with 0 if a node would take them.
    #[arg(long)]
    pub check: bool,
}

/// A token to join with, as it was given. Whoever reads it can join, so it is not shown.
#[derive(Clone)]
pub struct JoinText(pub String);

impl std::fmt::Debug for JoinText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JoinText(not shown)")
    }
}

impl std::str::FromStr for JoinText {
    type Err = std::convert::Infallible;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

/// Commands on tokens.
#[derive(Args, Debug, Clone)]
pub struct JoinTokenArgs {
    /// The command.
    #[command(subcommand)]
    pub command: TokenCommand,
}

/// Commands on tokens.
#[derive(Subcommand, Debug, Clone)]
pub enum TokenCommand {
    /// Makes a token with which one node can join the cluster, and prints it: one line.
    ///
    /// Whoever has it can join in the node's place, until it is used or its time is over.
    Create(TokenCreateArgs),
    /// Lists the tokens that are kept: what they are for, until when, and who has used them. None can be joined with by what it shows.
    List(ManagerArgs),
    /// Makes a token that nobody has used worth nothing.
    Revoke(TokenRevokeArgs),
}

/// Arguments of `weir token revoke`.
#[derive(Args, Debug, Clone)]
pub struct TokenRevokeArgs {
    /// Its id, as `weir token list` shows it, or the beginning of that.
    #[arg(value_name = "ID")]
    pub id: String,
    /// Whom.
    #[command(flatten)]
    pub manager: ManagerArgs,
}

/// Arguments of `weir token create`.
#[derive(Args, Debug, Clone)]
pub struct TokenCreateArgs {
    /// The data directory of the running manager.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// What the node may become; a second manager cannot join yet.
    #[arg(long, value_name = "ROLE", default_value = "disk")]
    pub role: ClusterRole,
    /// For how long it is good, as in 1h; at most 30d.
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    pub valid: String,
}

/// Arguments of `weir init`.
#[derive(Args, Debug, Default, Clone)]
pub struct InitArgs {
    /// The data directory: empty, or not there in a folder that is.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
}

/// Arguments of `weir demo`.
#[derive(Args, Debug, Default, Clone)]
pub struct DemoArgs {
    /// Keep the nodes' data directories and logs, and say where they are.
    #[arg(long)]
    pub keep: bool,
    /// Record the .root files of this folder too [default: ../shared/data/root, if it is there].
    #[arg(long, value_name = "DIR")]
    pub files: Option<PathBuf>,
    /// Make the temporary place in this folder instead of the system's, to try out a certain disk.
    #[arg(long, value_name = "DIR")]
    pub within: Option<PathBuf>,
}

/// Arguments of `weir fsck`.
#[derive(Args, Debug, Default, Clone)]
pub struct FsckArgs {
    /// The data directory to check.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// A TOML file with settings, as `weir serve` takes it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Mark files whose bytes are gone or damaged with the extended attribute `weir.damaged`, and count directories anew
    /// whose totals are wrong. Never removes anything.
    #[arg(long)]
    pub repair: bool,
    /// Remove contents that no name, writer, upload or deletion refers to. After `--repair-journal`, `--rebuild-store`
    /// or `--begin-new-log` look at them first, in a run of their own: they may be files whose names were lost.
    #[arg(long, conflicts_with_all = ["repair_journal", "rebuild_store", "begin_new_log"])]
    pub remove_unreferenced: bool,
    /// Do not read the files' bytes: compare names, records and lengths alone.
    #[arg(long)]
    pub quick: bool,
    /// Give up what a damaged journal holds from the damage on (it is saved aside), so that the node starts again.
    /// Acknowledged changes after that place are lost; run it only when told to.
    #[arg(long)]
    pub repair_journal: bool,
    /// Make the store's index anew from the files of contents, where it and its checkpoints are lost. Changes nothing where they are
    /// not. Contents that were removed lately may come back; they are listed as without a name.
    #[arg(long, conflicts_with = "repair_journal")]
    pub rebuild_store: bool,
    /// Where the folder `journal` is lost for good: begin a new log with what the indexes hold. Lost is everything that was
    /// acknowledged after the indexes were last written to the disk (about the last minute before the node ended), the bytes of
    /// small files that lay in the log, and recordings in progress. Nothing is removed; what is left of the old log is moved aside.
    /// Refused where the log is there; put it back if there is any copy.
    #[arg(long, conflicts_with_all = ["repair_journal", "rebuild_store"])]
    pub begin_new_log: bool,
    /// Print the result as JSON on stdout.
    #[arg(long)]
    pub json: bool,
    /// List at most this many findings of each kind (all are counted).
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub list: usize,
}

/// Arguments of `weir top`.
#[derive(Args, Debug, Default, Clone)]
#[command(group = clap::ArgGroup::new("whom").required(true).args(["node", "data"]))]
pub struct TopArgs {
    /// Where the node tells its metrics: what `weir serve --metrics` was given, or the URL that its log says.
    #[arg(value_name = "HOST:PORT")]
    pub node: Option<String>,
    /// The data directory of a running manager, to see its whole cluster.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Show one look, and end.
    #[arg(long)]
    pub once: bool,
    /// Print one JSON object and end; with `--interval` one on a line for each look. Rates are per second, sizes in bytes, times in
    /// seconds unless their names say milliseconds.
    #[arg(long)]
    pub json: bool,
    /// Seconds between two looks [default: 1].
    #[arg(long, value_name = "SECONDS")]
    pub interval: Option<f64>,
}

/// Arguments of `weir backup`.
#[derive(Args, Debug, Default, Clone)]
pub struct BackupArgs {
    /// The folder that the backups are kept in; made if it is not there. One for each node.
    #[arg(value_name = "TARGET")]
    pub target: PathBuf,
    /// The data directory of the node.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// A TOML file with settings, as `weir serve` takes it; only used where the node is not running.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Everything, even if only what changed since the last backup would do.
    #[arg(long)]
    pub full: bool,
    /// Then keep only this many full backups and what follows them; older ones are removed.
    #[arg(long, value_name = "N")]
    pub keep: Option<u32>,
    /// Print what was made as JSON on stdout.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `weir restore`.
#[derive(Args, Debug, Default, Clone)]
pub struct RestoreArgs {
    /// The folder that the backups are in.
    #[arg(value_name = "TARGET")]
    pub target: PathBuf,
    /// The data directory that gets the namespace: that of the node that the backup was made of, whatever is left of it, or a new one.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["list", "verify"])]
    pub data: Option<PathBuf>,
    /// The newest state not after this time (UTC, as in `2026-11-21 09:45`): a backup's; or the one at this record of the log, also between two
    /// backups if the log is there.
    #[arg(long, value_name = "TIME|RECORD")]
    pub until: Option<String>,
    /// List the backups in the folder and do nothing else.
    #[arg(long)]
    pub list: bool,
    /// The same, after reading all of them through.
    #[arg(long)]
    pub verify: bool,
    /// A TOML file with settings, as `weir serve` takes it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print the result as JSON on stdout.
    #[arg(long)]
    pub json: bool,
    /// List at most this many findings of each kind (all are counted).
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub list_max: usize,
}

/// Arguments of `weir export`.
#[derive(Args, Debug, Clone)]
pub struct ExportArgs {
    /// The folder that the files go to; made if it is not there.
    #[arg(value_name = "TARGET")]
    pub target: PathBuf,
    /// The data directory of the stopped node.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// A TOML file with settings, as `weir serve` takes it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// For a node whose namespace is lost: every content in the store, under the path at which it was made, where that is known.
    #[arg(long)]
    pub without_namespace: bool,
    /// Give files and folders the numbers of their owners and groups as user and group of this machine; root alone may.
    #[arg(long, conflicts_with = "without_namespace")]
    pub owners: bool,
    /// What to do with files of which pages are damaged.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = IfDamaged::Suffix)]
    pub damaged: IfDamaged,
    /// Print the result as JSON on stdout.
    #[arg(long)]
    pub json: bool,
    /// List at most this many of each kind of trouble (all are counted).
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub list: usize,
}

/// What an export does with a damaged file.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum IfDamaged {
    /// Write it with `.weir-damaged` behind its name, and zeros where its damaged pages are.
    Suffix,
    /// Do not write it.
    LeaveOut,
}

/// Arguments of `weir scrub`.
#[derive(Args, Debug, Default, Clone)]
pub struct ScrubArgs {
    /// The data directory of the running node.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Say what it is at. Done after every other flag too.
    #[arg(long)]
    pub status: bool,
    /// Begin a pass now, or go on with the one under way.
    #[arg(long)]
    pub now: bool,
    /// The same, at so many bytes a second (as in 100MiB) to the end of the pass, instead of what is configured.
    #[arg(long, value_name = "SIZE")]
    pub rate: Option<String>,
    /// End the pass under way. The next one begins when it is due.
    #[arg(long, conflicts_with_all = ["now", "rate"])]
    pub stop: bool,
    /// Print the answer as JSON on stdout.
    #[arg(long)]
    pub json: bool,
}

/// The whole command line, for help and what is made from it.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

/// Parses; help, version and usage errors are printed here, and the code to end with returned.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, Exit> {
    let mut command = Cli::command().after_help(Exit::table());
    for name in [
        "serve", "token", "init", "demo", "fsck", "top", "scrub", "backup", "restore", "export", "cp", "sync", "local",
        "status", "stores", "file", "policy", "repair", "drain", "store", "node",
    ] {
        command = command.mut_subcommand(name, |sub| sub.after_help(Exit::table()));
    }
    command.try_get_matches_from(args).and_then(|matches| Cli::from_arg_matches(&matches)).map_err(|error| {
        let asked = !error.use_stderr();
        let text = error.render();
        // A reader that has gone away (`weir --help | head`) is no error.
        let _ = if asked { write!(std::io::stdout(), "{text}") } else { write!(std::io::stderr(), "{text}") };
        if asked { Exit::Done } else { Exit::Usage }
    })
}
