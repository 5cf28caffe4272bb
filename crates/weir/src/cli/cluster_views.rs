//! The command line of what shows a cluster, and of its policies. All ask the running manager.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Whom to ask, and how to answer.
#[derive(Args, Debug, Clone)]
pub struct ManagerArgs {
    /// The data directory of the running manager.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Print JSON on stdout. Sizes in bytes.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `weir missing`.
#[derive(Args, Debug, Clone)]
pub struct MissingArgs {
    /// Only files that nobody can read just now.
    #[arg(long)]
    pub unreadable: bool,
    /// Whom.
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
    /// Gives a directory a policy, in the place of the one that it had.
    ///
    /// Refused if the stores that there are cannot meet it even if all of them are in order. Files that are there stay as they are.
    Set(PolicySetArgs),
    /// Shows the policy of what is made in a directory, and the directory that it comes from.
    Get(PolicyPathArgs),
    /// Takes the policy of a directory away: it inherits again.
    Remove(PolicyPathArgs),
    /// Shows all directories that have a policy of their own.
    List(ManagerArgs),
}

/// Arguments of `weir policy set`.
#[derive(Args, Debug, Clone)]
pub struct PolicySetArgs {
    /// The directory.
    #[arg(value_name = "PATH")]
    pub path: String,
    /// The policy, as in `'replica(2)' sync=1 spread=site`; docs/how-to/policies.md has all words.
    #[arg(value_name = "WORD", required = true)]
    pub words: Vec<String>,
    /// Whom.
    #[command(flatten)]
    pub manager: ManagerArgs,
}

/// Which directory.
#[derive(Args, Debug, Clone)]
pub struct PolicyPathArgs {
    /// The directory.
    #[arg(value_name = "PATH")]
    pub path: String,
    /// Whom.
    #[command(flatten)]
    pub manager: ManagerArgs,
}

/// Arguments of `weir file`.
#[derive(Args, Debug, Clone)]
pub struct FileArgs {
    /// The file.
    #[arg(value_name = "PATH")]
    pub path: String,
    /// Whom.
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
    /// Nothing new is put on it; what is there is read, and changed in place.
    ReadOnly(OneStoreArgs),
    /// It is used as ever.
    Online(OneStoreArgs),
    /// Takes it off the list. Refused while a group counts on it: `weir drain` or `weir repair` comes first.
    Remove(OneStoreArgs),
}

/// Which store.
#[derive(Args, Debug, Clone)]
pub struct OneStoreArgs {
    /// Its number or its place, as `weir stores` shows them; of the place the end will do where it is the only one (`disk2`).
    #[arg(value_name = "STORE")]
    pub store: String,
    /// Whom.
    #[command(flatten)]
    pub manager: ManagerArgs,
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
    /// Takes it off the list: it is let in no more. Refused while it is there. Its stores stay on theirs, and another node may bring them.
    Remove(OneNodeArgs),
}

/// Which node.
#[derive(Args, Debug, Clone)]
pub struct OneNodeArgs {
    /// Its name or number, as `weir status` shows it.
    #[arg(value_name = "NODE")]
    pub name: String,
    /// Whom.
    #[command(flatten)]
    pub manager: ManagerArgs,
}

/// Arguments of `weir drain`.
#[derive(Args, Debug, Clone)]
pub struct DrainArgs {
    /// The store: its number, as `weir stores` shows it.
    #[arg(value_name = "STORE")]
    pub store: Option<String>,
    /// Do not empty it any more: it is used again. What has gone elsewhere stays there.
    #[arg(long, requires = "store", conflicts_with = "wait")]
    pub stop: bool,
    /// End when nothing is on it any more.
    #[arg(long, requires = "store")]
    pub wait: bool,
    /// Whom.
    #[command(flatten)]
    pub manager: ManagerArgs,
}

/// Arguments of `weir repair`.
#[derive(Args, Debug, Clone)]
pub struct RepairArgs {
    /// The store that is gone for good: its number or its place, as `weir stores` shows them.
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,
    /// Give it up although its node is there. What it has alone is lost.
    #[arg(long, requires = "store")]
    pub force: bool,
    /// Whom.
    #[command(flatten)]
    pub manager: ManagerArgs,
}
