//! The command line of the commands that show a cluster, and of its policies. All ask the running manager.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// The data directory that the package serves.
pub(crate) const DATA_DEFAULT: &str = "/var/lib/weir/data";

/// The data directory that a command for this machine's node means without `--data`.
pub(crate) fn usual_data() -> PathBuf {
    std::env::var_os("WEIR_DATA").filter(|data| !data.is_empty()).unwrap_or_else(|| DATA_DEFAULT.into()).into()
}

/// The running node to ask.
///
/// The first of these that is given names it: --data or --cluster, WEIR_CLUSTER, WEIR_DATA, the current context.
#[derive(Args, Debug, Default, Clone)]
pub struct TargetArgs {
    /// The data directory of the running manager, on its machine; for `weir status` and `weir scrub`, of any running
    /// node [default: /var/lib/weir/data].
    ///
    /// Without --data and --cluster, the first of these names what is asked: the environment variables WEIR_CLUSTER
    /// and WEIR_DATA, the current context (`weir context use`), the data directory that the package serves.
    #[arg(long, value_name = "DIR", conflicts_with = "cluster")]
    pub data: Option<PathBuf>,
    /// The cluster to ask, from any machine: a context (`weir context list`), or HOST[:PORT] of a manager, or of
    /// several with commas between them. Or on its machine, the path of the socket that a node has for all users
    /// (`administration.socket`).
    #[arg(long, value_name = "CONTEXT|HOST")]
    pub cluster: Option<String>,
}

/// The manager to ask, and the form of the answer.
#[derive(Args, Debug, Clone)]
pub struct ManagerArgs {
    /// The manager.
    #[command(flatten)]
    pub data: TargetArgs,
    /// Print JSON on stdout, with sizes in bytes.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `weir status`.
#[derive(Args, Debug, Clone)]
pub struct StatusArgs {
    /// Print one line for Nagios and the like, with performance data, and end with 0 (OK), 1 (WARNING), 2 (CRITICAL) or
    /// 3 (UNKNOWN: the node cannot be asked).
    #[arg(long, conflicts_with = "json")]
    pub check: bool,
    /// The node to ask.
    #[command(flatten)]
    pub manager: ManagerArgs,
}

/// Arguments of `weir missing`.
#[derive(Args, Debug, Clone)]
pub struct MissingArgs {
    /// List only files that nobody can read at this moment.
    #[arg(long)]
    pub unreadable: bool,
    /// The manager to ask.
    #[command(flatten)]
    pub manager: ManagerArgs,
}

/// Arguments of `weir policy`.
#[derive(Args, Debug, Clone)]
pub struct PolicyArgs {
    /// The command.
    #[command(subcommand)]
    pub command: PolicyCommand,
}

/// Commands on policies.
#[derive(Subcommand, Debug, Clone)]
pub enum PolicyCommand {
    /// Give a directory a policy, in place of its present one.
    ///
    /// Refused if the cluster's stores could not meet it even if all of them were online. Existing files stay as they
    /// are.
    Set(PolicySetArgs),
    /// Give existing files below a directory as many replicas as their policies ask for.
    ///
    /// A file with too few replicas is assigned further stores, and repair makes the replicas at the rate that
    /// `repair.rate` sets; `weir repair` shows how far it is. Files with more replicas than their policy asks for keep
    /// them. An interrupted command is simply run again: it passes over files that fit.
    Apply(PolicyApplyArgs),
    /// Show the policy for new files in a directory, and the directory that it comes from.
    Get(PolicyPathArgs),
    /// Remove the policy of a directory: it inherits again.
    Remove(PolicyPathArgs),
    /// List all directories that have a policy of their own.
    List(ManagerArgs),
}

/// Arguments of `weir policy set`.
#[derive(Args, Debug, Clone)]
pub struct PolicySetArgs {
    /// The directory.
    #[arg(value_name = "PATH")]
    pub path: String,
    /// The policy, as in `'replica(2)' sync=1 spread=site`. Words are replica(N), sync=M, stripe(W, CHUNK),
    /// spread=site|rack|host, near=client, prefer=LOCATION and class=NAME:REPLICAS.
    #[arg(value_name = "WORD", required = true)]
    pub words: Vec<String>,
    /// Make the directory first, with those above it, if it is not there.
    #[arg(long)]
    pub mkdir: bool,
    /// The manager to ask.
    #[command(flatten)]
    pub manager: ManagerArgs,
}

/// Arguments of `weir policy apply`.
#[derive(Args, Debug, Clone)]
pub struct PolicyApplyArgs {
    /// The directory. Each file below it gets what the policy of its own directory asks for.
    #[arg(value_name = "PATH")]
    pub path: String,
    /// Count what would be done, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Assign further stores to at most this many files per second.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub files_per_second: u32,
    /// The manager to ask.
    #[command(flatten)]
    pub manager: ManagerArgs,
}

/// Which directory.
#[derive(Args, Debug, Clone)]
pub struct PolicyPathArgs {
    /// The directory.
    #[arg(value_name = "PATH")]
    pub path: String,
    /// The manager to ask.
    #[command(flatten)]
    pub manager: ManagerArgs,
}

/// Arguments of `weir file`.
#[derive(Args, Debug, Clone)]
pub struct FileArgs {
    /// The file.
    #[arg(value_name = "PATH")]
    pub path: String,
    /// The manager to ask.
    #[command(flatten)]
    pub manager: ManagerArgs,
}

/// Arguments of `weir store`.
#[derive(Args, Debug, Clone)]
pub struct StoreArgs {
    /// The command.
    #[command(subcommand)]
    pub command: StoreCommand,
}

/// Commands on stores.
#[derive(Subcommand, Debug, Clone)]
pub enum StoreCommand {
    /// Make a store in a directory of this disk server, for a new disk or in place of a lost one.
    ///
    /// Also names it as a [[store]] in the configuration file. The disk server may run, and uses the store after its
    /// next start.
    Add(AddStoreArgs),
    /// Put no new objects on the store; its existing ones are read, and changed in place.
    ReadOnly(OneStoreArgs),
    /// Use the store for new objects again.
    Online(OneStoreArgs),
    /// Remove a store from the cluster: one that is drained or replaced, or with --lost one that is gone for good.
    ///
    /// Without --lost it is refused while a group depends on the store: drain it first. With --lost, other stores
    /// replace it, and what only this store has is lost. The command first lists what will be lost, and changes
    /// nothing without --yes.
    Remove(RemoveStoreArgs),
}

/// Arguments of `weir store add`.
#[derive(Args, Debug, Clone)]
pub struct AddStoreArgs {
    /// The directory: a new one or an empty one, on the disk of the store.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// The data directory of the disk server, which has joined its cluster. Without it, the environment variable
    /// WEIR_DATA names it, else it is the one that the package serves.
    #[arg(long, value_name = "DIR", default_value_os_t = usual_data())]
    pub data: PathBuf,
    /// The configuration file of the disk server, which gets a [[store]] for the directory [default:
    /// /etc/weir/weir.toml, if it is about this data directory].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Then restart the package's service, so that the disk server uses the store.
    #[arg(long)]
    pub restart: bool,
}

/// Which store.
#[derive(Args, Debug, Clone)]
pub struct OneStoreArgs {
    /// The store's number or location, as `weir stores` shows them. The end of the location is enough if no other
    /// store has it (`disk2`).
    #[arg(value_name = "STORE")]
    pub store: String,
    /// The manager to ask.
    #[command(flatten)]
    pub manager: ManagerArgs,
}

/// Arguments of `weir store remove`.
#[derive(Args, Debug, Clone)]
pub struct RemoveStoreArgs {
    /// Which.
    #[command(flatten)]
    pub stores: WhichStoresArgs,
    /// The store is gone for good. Lists what will be lost: the number of files, their bytes, and the first names.
    #[arg(long)]
    pub lost: bool,
    /// Remove it as lost. This cannot be undone.
    #[arg(long, requires = "lost", conflicts_with = "dry_run")]
    pub yes: bool,
    /// Only list what will be lost.
    #[arg(long, short = 'n', requires = "lost")]
    pub dry_run: bool,
    /// Remove it as lost although its node is online.
    #[arg(long, requires = "lost")]
    pub force: bool,
    /// The manager to ask.
    #[command(flatten)]
    pub manager: ManagerArgs,
}

/// One store, or all stores of a node.
#[derive(Args, Debug, Clone)]
pub struct WhichStoresArgs {
    /// The store's number or location, as `weir stores` shows them. The end of the location is enough if no other
    /// store has it (`disk2`).
    #[arg(value_name = "STORE", required_unless_present = "node", conflicts_with = "node")]
    pub store: Option<String>,
    /// All stores of this node: its name, its number, or the end of its location.
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
}

/// Arguments of `weir node`.
#[derive(Args, Debug, Clone)]
pub struct NodeArgs {
    /// The command.
    #[command(subcommand)]
    pub command: NodeCommand,
}

/// Commands on nodes.
#[derive(Subcommand, Debug, Clone)]
pub enum NodeCommand {
    /// Remove the node from the cluster: it cannot connect any more. Refused while it is online, unless you use --force.
    /// Its stores stay in the cluster, and another node may take them over.
    Remove(OneNodeArgs),
}

/// Which node.
#[derive(Args, Debug, Clone)]
pub struct OneNodeArgs {
    /// The node's name or number, as `weir status` shows it.
    #[arg(value_name = "NODE")]
    pub name: String,
    /// Also if it is online: cut it off, and wait until its lease has ended. For a node that somebody else controls.
    #[arg(long)]
    pub force: bool,
    /// The manager to ask.
    #[command(flatten)]
    pub manager: ManagerArgs,
}

/// Arguments of `weir drain`.
#[derive(Args, Debug, Clone)]
pub struct DrainArgs {
    /// The store's number or location, as `weir stores` shows them.
    #[arg(value_name = "STORE", conflicts_with = "node")]
    pub store: Option<String>,
    /// All stores of this node: its name, its number, or the end of its location.
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Stop draining the store and use it again. Replicas that have moved to other stores stay there.
    #[arg(long, conflicts_with = "wait")]
    pub stop: bool,
    /// Wait until nothing is left on the store. Shows each change of the progress.
    #[arg(long)]
    pub wait: bool,
    /// The manager to ask.
    #[command(flatten)]
    pub manager: ManagerArgs,
}

/// Arguments of `weir repair`.
#[derive(Args, Debug, Clone)]
pub struct RepairArgs {
    /// Wait until every missing replica that can be made is made. Shows each change of the progress.
    #[arg(long)]
    pub wait: bool,
    /// The manager to ask.
    #[command(flatten)]
    pub manager: ManagerArgs,
}
