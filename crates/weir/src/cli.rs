//! The command line.

mod admin;
mod audit;
mod bench;
mod client;
mod cluster_views;
mod db;
mod db_copy;
mod explain;
mod filter;
mod identity;
mod init;
mod machines;
mod overview;
mod quota;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use config::{ClusterRole, Config, DatabaseUrl};

use types::{Location, StoreClass};

use crate::exit::Exit;

pub use admin::*;
pub use audit::*;
pub use bench::*;
pub use client::*;
pub use cluster_views::*;
pub use db::*;
pub use db_copy::*;
pub use explain::*;
pub use identity::*;
pub use init::*;
pub use local::args::*;
pub use machines::*;
pub(crate) use overview::page_in_groups;
pub use quota::*;

const ABOUT: &str = "Storage for physics experiments: takes files from stock XRootD clients, keeps them through any \
crash, and checks every page that it gives back.";

/// What was asked for.
#[derive(Parser, Debug)]
#[command(name = "weir", version, about = ABOUT, max_term_width = 80, arg_required_else_help = true)]
pub struct Cli {
    /// The cluster to ask: a context, or HOST[:PORT] of a manager or of several, with commas between them.
    #[arg(long, value_name = "CONTEXT|HOST")]
    pub cluster: Option<String>,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Serve a data directory over root://.
    ///
    /// Creates the data directory on the first start, if it is missing or empty. When the node is ready, it prints
    /// exactly one line to stdout, `weir: ready root://HOST:PORT/`; the log goes to stderr. SIGTERM or SIGINT ends it
    /// cleanly within 10 s; a second one ends it at once. With --role it is a node of a cluster: the manager, or a
    /// disk server that joins with a token.
    Serve(ServeArgs),
    /// Make a running node read its configuration file again.
    ///
    /// First checks the settings, with the flags with which the node was started. If something is wrong, the node
    /// goes on with the settings that it has.
    Reload(ReloadArgs),
    /// Make a running node forget what it and this machine keep of its data in memory, for measurements.
    ///
    /// The next reads come from the disks. Nothing is lost: only copies of what the disks have are forgotten. Needs
    /// root, as it empties the page cache of the whole machine.
    DropCaches(DropCachesArgs),
    /// Create, list and revoke the tokens with which nodes join a cluster.
    Token(JoinTokenArgs),
    /// List, add and rename users and groups, and find out who the bearer of a token would be.
    Identity(IdentityArgs),
    /// Explain by which rule somebody may do something, or may not.
    ///
    /// The node runs the operation as that user on its present state, and takes back what it changed. So the answer is the
    /// one that the user would get now.
    Explain(ExplainArgs),
    /// Show the audit log of a node: logins, denials and changes.
    ///
    /// Reads the files of the log on this machine, also while the node runs. In a cluster each node has its own: the
    /// manager's has logins and changes of names, a disk server's has what happened to the data there.
    Audit(AuditArgs),
    /// Invite administrators of a cluster, list and revoke them.
    ///
    /// An administrator runs the commands of a cluster from any machine, with a certificate of the cluster's own
    /// authority. A viewer reads; an operator also drains stores, makes them read-only and controls the scrub; an admin
    /// does everything.
    Admin(AdminArgs),
    /// Add, list, choose and remove contexts: the clusters that you administer from this machine.
    ///
    /// A context has the addresses of a cluster's managers, a key and a certificate. It is kept in ~/.config/weir (or
    /// $XDG_CONFIG_HOME/weir), where only you may read it. Commands of a running cluster ask, in this order: --data or
    /// --cluster, the environment variables WEIR_CLUSTER and WEIR_DATA, the current context, /var/lib/weir/data.
    Context(ContextArgs),
    /// Show how a cluster or a node is: healthy, warning or critical, and why.
    ///
    /// Asks the running node of a data directory. A manager judges its whole cluster, and shows its nodes and the work
    /// that is left. A single node or a disk server judges itself.
    Status(StatusArgs),
    /// Show the stores of a cluster.
    Stores(ManagerArgs),
    /// Show where a file of a cluster is, and the state of each of its replicas.
    File(FileArgs),
    /// List the files of a cluster that are under-replicated, or that nobody can read.
    ///
    /// Shows for each file whether it is lost (all stores that had it are removed as lost), cannot be read until a
    /// store comes back, or only has fewer replicas than it should have; and which stores should have it. Files that
    /// are being written for the first time are not listed.
    Missing(MissingArgs),
    /// Show and change the policies of directories: how files are replicated, and where they go.
    Policy(PolicyArgs),
    /// Create and list trees: directories that count and limit what is in them.
    Tree(TreeArgs),
    /// Set and list quotas: what trees, and users and groups in them, may use.
    Quota(QuotaArgs),
    /// Show the progress of repair: which stores are being replaced, and how many replicas are still missing.
    ///
    /// Repair makes missing replicas in the background, at the rate that `repair.rate` sets. A store that is offline is
    /// replaced only after you have removed it: `weir store remove STORE --lost`.
    Repair(RepairArgs),
    /// Drain a store, so that its disk can be taken away; without a store, show the progress.
    ///
    /// Other stores take its place in its groups and copy what it has, in the background, at the rate that
    /// `repair.rate` sets. Then its replicas are deleted. Files stay readable all the time.
    Drain(DrainArgs),
    /// Make a store read-only, put it back online, or remove it, also as lost.
    Store(StoreArgs),
    /// Remove a node from a cluster.
    Node(NodeArgs),
    /// Make a new node: its data directory and its configuration file.
    ///
    /// With --role it makes the data directory, lets a disk server join its cluster and makes its stores, and writes
    /// the configuration file. Without --role it makes what the file --config describes; with neither, only the data
    /// directory of a single node. What is there already stays as it is. Run by root where the package is installed,
    /// it gives what it makes to the user weir.
    Init(InitArgs),
    /// Show what weir promises, on a temporary cluster of its own.
    ///
    /// Starts a manager and four disk servers on this machine, records six streams while a reader follows one of
    /// them, kills a disk server in the middle, compares every byte, starts it again and waits until the replicas are
    /// restored. Takes about a minute, needs no privileges, and leaves nothing behind, also if you end it with
    /// Ctrl-C.
    Demo(DemoArgs),
    /// Check a data directory: names against replicas against checksums.
    ///
    /// The node must not be running, except with --cluster. Recovers from an unclean stop as a start would, then reads
    /// everything and reports in plain words what it found. Repairs only what a flag names.
    Fsck(FsckArgs),
    /// Show what a node or a cluster does at this moment: requests, bytes, times, connections, space.
    ///
    /// With HOST:PORT it reads the metrics of a node that was started with `--metrics`. Without it, it asks the
    /// running manager about all nodes of its cluster, and shows a line for each. It refreshes until Ctrl-C; without
    /// a terminal it prints one block after the other.
    Top(TopArgs),
    /// Show or control the scrub of a running node.
    ///
    /// A node reads all its objects from the disk in its spare time, compares them with their checksums, and marks
    /// the damaged files. A disk server does so for each of its stores, and reports damaged replicas to its manager,
    /// which has them replaced from other stores. On a manager the command lists the damage. `scrub.rate` and
    /// `scrub.period` in the configuration set how fast and how often.
    Scrub(ScrubArgs),
    /// Copy the namespace of a node, running or not, into a folder elsewhere.
    ///
    /// The first backup in the folder holds everything, later ones hold what changed since. Each shows the namespace
    /// at one moment, and is read back before it counts. The objects, that is the bytes of files, are not in it. An
    /// interrupted backup leaves the earlier ones as they are; run it again.
    Backup(BackupArgs),
    /// Put a backup of the namespace into a data directory, or list the backups of a folder.
    ///
    /// The node must not be running. The objects stay as they are; the existing namespace is moved aside. If the
    /// journal is there and has everything since the backup, nothing is lost, unless --until asks for an older state.
    Restore(RestoreArgs),
    /// Show how the names of a restored manager and its disk servers disagree, and accept that.
    ///
    /// A manager that was restored from a backup is older than its disk servers. It removes and replaces nothing on them
    /// until you accept its state. This command lists files that no store has any more, files that were changed since
    /// the backup, and replicas that have no name, with the paths under which they were made.
    Restored(RestoredArgs),
    /// Write the files of a stopped node out as plain files, each compared with its checksums.
    ///
    /// With the namespace: its tree, with modes, times, symbolic and hard links. Without it: every object in the
    /// store, under the path at which it was created. Never overwrites anything; run an interrupted export again to
    /// continue it.
    Export(ExportArgs),
    /// Make, check and change weir's tables in the database of a cluster's namespace, and move the namespace there and back.
    ///
    /// A manager can keep the namespace in a database of PostgreSQL's family instead of its data directory. These
    /// commands work on the database, not on a running manager.
    Db(DbArgs),
    /// Copy files between this machine and servers, and between servers.
    ///
    /// Takes local paths, `root://HOST[:PORT]//PATH` of any XRootD server (`roots://` with TLS), and `-` for standard
    /// input and output.
    /// Small files travel by the dozen, large ones in several requests at a time. Each copy is compared with the
    /// server's checksum. A lost connection is made again and the copy continues. A local file gets its name when it
    /// is complete. Existing targets are left alone unless `--force` or `--resume` says otherwise.
    Cp(CpArgs),
    /// Make one directory like another, here or at servers, moving only what differs.
    ///
    /// A file is left alone if its length and checksum are the same at both ends. Files that the source does not have
    /// stay, unless `--delete` says otherwise.
    Sync(SyncArgs),
    /// Run a cluster on this machine, to try it out: a manager and disk servers, each a process of its own.
    Local(LocalArgs),
    /// Measure storage systems side by side, by path or by root://.
    Bench(BenchArgs),
    /// Write the man pages and the shell completions into a folder.
    #[command(hide = true)]
    Generate(GenerateArgs),
    /// Commands on names, here and at servers.
    #[command(flatten)]
    Files(FileCommand),
}

/// Arguments of `weir serve`.
#[derive(Args, Debug, Default, Clone)]
pub struct ServeArgs {
    /// The data directory, which holds everything that the node keeps.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Be a node of a cluster: `manager`, which holds the namespace, or `disk`, which has stores [default: a single
    /// node].
    #[arg(long, value_name = "ROLE")]
    pub role: Option<ClusterRole>,
    /// Manager: keep the namespace in this database instead of the data directory, as in
    /// postgres://weir@db1.example.org/weir?passfile=/etc/weir/pgpass. Others can see a password in it in the list of
    /// processes.
    #[arg(long, value_name = "URL")]
    pub database: Option<DatabaseUrl>,
    /// Node of a cluster: the address at which the other nodes reach it; port 0 picks a free one [default:
    /// 127.0.0.1:1095].
    #[arg(long, value_name = "HOST:PORT")]
    pub nodes: Option<String>,
    /// Disk server, first start: the token that `weir token create` printed. Others can see it in the list of
    /// processes; use --join-file to avoid that.
    #[arg(long, value_name = "TOKEN", conflicts_with = "join_file")]
    pub join: Option<JoinText>,
    /// Disk server, first start: the file that holds the token.
    #[arg(long, value_name = "FILE")]
    pub join_file: Option<PathBuf>,
    /// Disk server: the address to which clients are sent [default: the address that it listens on].
    #[arg(long, value_name = "HOST:PORT", value_parser = config::keys::address)]
    pub advertise: Option<String>,
    /// Disk server: its location, as site/rack/host [default: default/default/ and the host's name].
    #[arg(long, value_name = "LOCATION")]
    pub location: Option<Location>,
    /// Disk server: the class of its stores, for policies that ask for a class.
    #[arg(long, value_name = "CLASS")]
    pub class: Option<StoreClass>,
    /// The address to listen on; port 0 picks a free one [default: 127.0.0.1:1094].
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// A TOML file with settings. Flags override it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Serve addresses other than loopback although clients need not prove who they are: everybody who reaches the port
    /// may read, write and delete everything.
    #[arg(long)]
    pub insecure: bool,
    /// Do not create a data directory. For start scripts: a disk that is not mounted then stops the node instead of
    /// showing an empty one.
    #[arg(long)]
    pub existing: bool,
    /// The address at which to serve metrics, for Prometheus and `weir top`: http://HOST:PORT/metrics; port 0 picks a
    /// free one [default: nowhere].
    #[arg(long, value_name = "HOST:PORT")]
    pub metrics: Option<String>,
    /// How many seconds to wait for a writer that has lost its connection, before its file is marked interrupted
    /// [default: 60].
    #[arg(long, value_name = "N")]
    pub grace_seconds: Option<u64>,
    /// What to log: error, warn, info, debug, trace, or a filter such as `info,xrootd=debug` [default: info].
    #[arg(long, value_name = "LEVEL")]
    pub log: Option<String>,
    /// Read the settings, report errors in them, and end: with 0 if a node would accept them.
    #[arg(long)]
    pub check: bool,
}

impl ServeArgs {
    /// The configuration with these flags over its settings.
    #[must_use]
    pub fn over(&self, mut config: Config) -> Config {
        if let Some(data) = &self.data {
            config.data = Some(data.clone());
        }
        if let Some(role) = self.role {
            config.role = Some(role);
        }
        if let Some(database) = &self.database {
            config.database = Some(database.clone());
        }
        if let Some(nodes) = &self.nodes {
            config.nodes.clone_from(nodes);
        }
        if let Some(advertise) = &self.advertise {
            config.advertise = Some(advertise.clone());
        }
        if let Some(location) = &self.location {
            config.location = Some(location.clone());
        }
        if let Some(class) = &self.class {
            config.class = Some(class.clone());
        }
        if let Some(listen) = &self.listen {
            config.listen.clone_from(listen);
        }
        if let Some(log) = &self.log {
            config.log.clone_from(log);
        }
        if let Some(metrics) = &self.metrics {
            config.metrics = Some(metrics.clone());
        }
        if let Some(seconds) = self.grace_seconds {
            config.grace = Duration::from_secs(seconds);
        }
        config.insecure |= self.insecure;
        config.existing |= self.existing;
        config
    }
}

/// Arguments of `weir reload`.
#[derive(Args, Debug, Clone)]
pub struct ReloadArgs {
    /// The data directory of the running node. Without it, the environment variable WEIR_DATA names it, else it is the
    /// one that the package serves.
    #[arg(long, value_name = "DIR", default_value_os_t = usual_data())]
    pub data: PathBuf,
    /// The process id of the node, instead of its data directory.
    #[arg(long, value_name = "PID", conflicts_with = "data")]
    pub pid: Option<i32>,
}

/// Arguments of `weir drop-caches`.
#[derive(Args, Debug, Clone)]
pub struct DropCachesArgs {
    /// The data directory of the running node. Without it, the environment variable WEIR_DATA names it, else it is the
    /// one that the package serves.
    #[arg(long, value_name = "DIR", default_value_os_t = usual_data())]
    pub data: PathBuf,
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
    /// Create a token with which a node can join the cluster, and print it: one line.
    ///
    /// Everybody who has the token can join in the node's place, until it is used up, expires, or is revoked.
    Create(TokenCreateArgs),
    /// List the tokens: what they are for, until when they are valid, and who has used them. The list does not reveal
    /// the tokens themselves.
    List(ManagerArgs),
    /// Revoke a token that is not used up. Nodes that have joined with it stay.
    Revoke(TokenRevokeArgs),
}

/// Arguments of `weir token revoke`.
#[derive(Args, Debug, Clone)]
pub struct TokenRevokeArgs {
    /// The token's id as `weir token list` shows it, or the beginning of the id.
    #[arg(value_name = "ID")]
    pub id: String,
    /// The manager to ask.
    #[command(flatten)]
    pub manager: ManagerArgs,
}

/// Arguments of `weir token create`.
#[derive(Args, Debug, Clone)]
pub struct TokenCreateArgs {
    /// The manager to ask.
    #[command(flatten)]
    pub data: TargetArgs,
    /// What the node may become: a disk server, or a further manager where the namespace is in a database.
    #[arg(long, value_name = "ROLE", default_value = "disk")]
    pub role: ClusterRole,
    /// How long the token is valid, as in 1h; at most 30d.
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    pub valid: String,
    /// How many nodes can join with the token; at most 256.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub uses: u16,
}

/// Arguments of `weir fsck`.
#[derive(Args, Debug, Default, Clone)]
pub struct FsckArgs {
    /// The data directory to check. With --cluster: that of the running manager, which other commands find without it,
    /// too.
    #[arg(long, value_name = "DIR", required_unless_present = "cluster")]
    pub data: Option<PathBuf>,
    /// With --cluster, the cluster that `weir --cluster CLUSTER fsck --cluster` names.
    #[arg(skip)]
    pub manager: TargetArgs,
    /// Ask the running manager to compare its names with what each store of the cluster has. Clients go on meanwhile.
    /// Changes nothing. Ends with 1 if something is wrong, and with 6 if nothing is and a store could not be checked.
    #[arg(long, conflicts_with_all = ["config", "repair", "remove_unreferenced", "quick", "repair_journal", "rebuild_store", "reset_journal"])]
    pub cluster: bool,
    /// A TOML file with settings, as `weir serve` takes it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Mark files whose bytes are gone or damaged with the extended attribute `weir.damaged`, and count directories
    /// again whose totals are wrong. Never removes anything.
    #[arg(long)]
    pub repair: bool,
    /// Remove objects that no name, writer, upload or deletion refers to. After `--repair-journal`, `--rebuild-store`
    /// or `--reset-journal` look at them first, in a run of their own: they may be files whose names were lost.
    #[arg(long, conflicts_with_all = ["repair_journal", "rebuild_store", "reset_journal"])]
    pub remove_unreferenced: bool,
    /// Do not read the files' bytes: compare only names, records and lengths.
    #[arg(long)]
    pub quick: bool,
    /// Cut a damaged journal at the damage, so that the node starts again. What is cut off is saved aside.
    /// Acknowledged changes after the damage are lost; run it only when told to.
    #[arg(long)]
    pub repair_journal: bool,
    /// Build the store's index again from the files of objects, if the index and its checkpoints are lost. Changes
    /// nothing if they are not. Objects that were removed recently may come back; they are listed as without a name.
    #[arg(long, conflicts_with = "repair_journal")]
    pub rebuild_store: bool,
    /// Start an empty journal, if the folder `journal` is lost for good. The node continues with what the indexes
    /// hold. You lose all changes that were acknowledged after the indexes were last written to the disk (about the
    /// last minute before the node ended), the bytes of small files that were still in the journal, and open writes.
    /// Nothing is removed; the rest of the old journal is moved aside. If you have any copy of the journal, put it
    /// back instead. Refused if the journal exists.
    #[arg(long, conflicts_with_all = ["repair_journal", "rebuild_store"])]
    pub reset_journal: bool,
    /// Print the result as JSON on stdout.
    #[arg(long)]
    pub json: bool,
    /// List at most this many findings of each kind (all are counted).
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub list: usize,
}

/// Arguments of `weir top`.
#[derive(Args, Debug, Default, Clone)]
pub struct TopArgs {
    /// The address of the node's metrics: what `weir serve --metrics` was given, or the URL in its log.
    #[arg(value_name = "HOST:PORT", conflicts_with_all = ["data", "cluster"])]
    pub node: Option<String>,
    /// The manager to ask, to see its whole cluster.
    #[command(flatten)]
    pub data: TargetArgs,
    /// Show one block, and end.
    #[arg(long)]
    pub once: bool,
    /// Print one JSON object and end; with `--interval` print one on a line for each interval. Rates are per second,
    /// sizes in bytes, times in seconds unless their names say milliseconds.
    #[arg(long)]
    pub json: bool,
    /// Seconds between two updates [default: 1].
    #[arg(long, value_name = "SECONDS")]
    pub interval: Option<f64>,
}

/// Arguments of `weir backup`.
#[derive(Args, Debug, Default, Clone)]
pub struct BackupArgs {
    /// The folder for the backups; created if it is missing. Each node needs its own.
    #[arg(value_name = "TARGET")]
    pub target: PathBuf,
    /// The data directory of the node [default: $WEIR_DATA, else /var/lib/weir/data].
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// A TOML file with settings, as `weir serve` takes it; only used if the node is not running.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Back up everything, even if the changes since the last backup would be enough.
    #[arg(long)]
    pub full: bool,
    /// Afterwards keep only this many full backups and those that build on them; remove older ones.
    #[arg(long, value_name = "N")]
    pub keep: Option<u32>,
    /// Print the result as JSON on stdout.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `weir restore`.
#[derive(Args, Debug, Default, Clone)]
pub struct RestoreArgs {
    /// The folder with the backups.
    #[arg(value_name = "TARGET")]
    pub target: PathBuf,
    /// The data directory that gets the namespace: that of the node that was backed up, whatever is left of it, or a
    /// new one.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["list", "verify"])]
    pub data: Option<PathBuf>,
    /// Restore the newest state that is not after this time (UTC, as in `2026-11-21 09:45`), which is a backup's; or
    /// the state at this record of the journal, which may lie between two backups if the journal is there.
    #[arg(long, value_name = "TIME|RECORD")]
    pub until: Option<String>,
    /// List the backups in the folder and do nothing else.
    #[arg(long)]
    pub list: bool,
    /// List the backups after reading all of them through.
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

/// Arguments of `weir restored`.
#[derive(Args, Debug, Clone)]
pub struct RestoredArgs {
    /// Accept the state: repair and clean-up go on. Replicas that stores do not have are made again from others where
    /// there are any; `weir missing` lists the other files as lost. Replicas without a name stay until you drain their
    /// store.
    #[arg(long)]
    pub accept: bool,
    /// Accept the state although some stores could not be compared, or files are only on stores that the names do not
    /// count on.
    #[arg(long, requires = "accept")]
    pub force: bool,
    /// List at most this many of each kind (all are counted).
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub list: u64,
    /// The manager to ask.
    #[command(flatten)]
    pub manager: ManagerArgs,
}

/// Arguments of `weir export`.
#[derive(Args, Debug, Clone)]
pub struct ExportArgs {
    /// The folder for the files; created if it is missing.
    #[arg(value_name = "TARGET")]
    pub target: PathBuf,
    /// The data directory of the stopped node.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// A TOML file with settings, as `weir serve` takes it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// For a node whose namespace is lost: export every object in the store, under the path at which it was created,
    /// if that is known.
    #[arg(long)]
    pub without_namespace: bool,
    /// Give files and folders the numeric owners and groups of the namespace as user and group of this machine; only
    /// root may.
    #[arg(long, conflicts_with = "without_namespace")]
    pub owners: bool,
    /// What to do with files that have damaged pages.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = IfDamaged::Suffix)]
    pub damaged: IfDamaged,
    /// Print the result as JSON on stdout.
    #[arg(long)]
    pub json: bool,
    /// List at most this many problems of each kind (all are counted).
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub list: usize,
}

/// What an export does with a damaged file.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum IfDamaged {
    /// Write it with `.weir-damaged` appended to its name, and zeros in place of its damaged pages.
    Suffix,
    /// Do not write it.
    LeaveOut,
}

/// Arguments of `weir scrub`.
#[derive(Args, Debug, Default, Clone)]
pub struct ScrubArgs {
    /// The node to ask.
    #[command(flatten)]
    pub data: TargetArgs,
    /// Show the progress. Also done after every other flag.
    #[arg(long)]
    pub status: bool,
    /// Begin a pass now, or continue the one under way.
    #[arg(long)]
    pub now: bool,
    /// Begin or continue a pass now, and read so many bytes per second (as in 100MiB) to its end, instead of the
    /// configured rate.
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

/// Returns the arguments with the words of find(1) as weir writes them: `-name` becomes `--name`.
fn long_words(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    if args.get(1).is_some_and(|command| command == "find") {
        for arg in &mut args[2..] {
            let long = match arg.to_str() {
                Some("-name") => "--name",
                Some("-type") => "--type",
                Some("-maxdepth") => "--max-depth",
                _ => continue,
            };
            *arg = long.into();
        }
    }
    args
}

/// Parses; help, version and usage errors are printed here, and the code to end with returned.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, Exit> {
    let args = long_words(args);
    if overview::asks_for_exit_codes(&args) {
        let _ = write!(std::io::stdout(), "{}", overview::exit_codes());
        return Err(Exit::Done);
    }
    let mut command = overview::grouped(Cli::command());
    let parsed = command.clone().try_get_matches_from(args);
    let parsed = parsed.and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.and_then(|cli| cli.with_cluster(&mut command)).map_err(|error| {
        let asked = !error.use_stderr();
        let text = error.render();
        // A closed reader (`weir --help | head`) is no error.
        let _ = if asked { write!(std::io::stdout(), "{text}") } else { write!(std::io::stderr(), "{text}") };
        if asked { Exit::Done } else { Exit::Usage }
    })
}
