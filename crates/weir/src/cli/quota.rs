//! The command lines of `weir tree` and `weir quota`.

use std::time::Duration;

use clap::{Args, Subcommand};
use control::LimitEdit;

use super::ManagerArgs;

/// Arguments of `weir tree`.
#[derive(Args, Debug, Clone)]
pub struct TreeArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: TreeCommand,
}

/// What `weir tree` does.
#[derive(Subcommand, Debug, Clone)]
pub enum TreeCommand {
    /// Make an empty directory the root of a tree, which counts and limits what is in it.
    ///
    /// Files in it no longer count in the tree around it. Directories and files with several names cannot be moved out of a
    /// tree; others can.
    Create(TreeCreateArgs),
    /// Give a tree to a user or a group. The owner may set policies and quotas in it, and lower its own.
    ///
    /// An owner needs no role. Only an administrator raises or removes the limits of the tree itself, makes trees, and
    /// gives them away.
    Owner(TreeOwnerArgs),
    /// List the trees, with what they use, their own limits and their owners. The root directory is always one.
    List(ManagerArgs),
}

/// Arguments of `weir tree create`.
#[derive(Args, Debug, Clone)]
pub struct TreeCreateArgs {
    /// The directory.
    #[arg(value_name = "PATH")]
    pub path: String,
    /// Make the directory first, with those above it, if it is not there.
    #[arg(long)]
    pub mkdir: bool,
    /// The node to ask.
    #[command(flatten)]
    pub node: ManagerArgs,
}

/// Arguments of `weir tree owner`.
#[derive(Args, Debug, Clone)]
#[command(group = clap::ArgGroup::new("owner").required(true).args(["user", "group", "nobody"]))]
pub struct TreeOwnerArgs {
    /// The root of the tree.
    #[arg(value_name = "PATH")]
    pub path: String,
    /// The user who gets it, by name or number.
    #[arg(value_name = "USER")]
    pub user: Option<String>,
    /// The group whose members get it.
    #[arg(long, value_name = "NAME")]
    pub group: Option<String>,
    /// Take it from its owner: only administrators decide about it.
    #[arg(long)]
    pub nobody: bool,
    /// The node to ask.
    #[command(flatten)]
    pub node: ManagerArgs,
}

/// Arguments of `weir quota`.
#[derive(Args, Debug, Clone)]
pub struct QuotaArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: QuotaCommand,
}

/// What `weir quota` does.
#[derive(Subcommand, Debug, Clone)]
pub enum QuotaCommand {
    /// Limit what a tree, or a user or group in it, may use.
    ///
    /// Limits that are not named stay as they are. A limit below the usage refuses what is new. It removes nothing and
    /// breaks no open write that has reserved its space.
    Set(QuotaSetArgs),
    /// List what trees, and users and groups in them, use and may use.
    List(QuotaListArgs),
}

/// Arguments of `weir quota set`.
#[derive(Args, Debug, Clone)]
pub struct QuotaSetArgs {
    /// The root of the tree; / for what is in no other tree.
    #[arg(value_name = "PATH")]
    pub path: String,
    /// Limit a user in the tree, by name or number, instead of the tree.
    #[arg(long, value_name = "NAME", conflicts_with = "group")]
    pub user: Option<String>,
    /// Limit a group in the tree.
    #[arg(long, value_name = "NAME")]
    pub group: Option<String>,
    /// The hard limit of bytes, as in 10TiB, or none.
    #[arg(long, value_name = "SIZE", value_parser = limit_of_bytes)]
    pub bytes: Option<LimitEdit>,
    /// The soft limit of bytes: above it for longer than the grace, nothing may grow.
    #[arg(long, value_name = "SIZE", value_parser = limit_of_bytes)]
    pub soft_bytes: Option<LimitEdit>,
    /// The hard limit of files, links and directories, or none.
    #[arg(long, value_name = "N", value_parser = limit_of_files)]
    pub files: Option<LimitEdit>,
    /// The soft limit of files, links and directories.
    #[arg(long, value_name = "N", value_parser = limit_of_files)]
    pub soft_files: Option<LimitEdit>,
    /// How long the usage may stay above a soft limit. 7 days if nobody has set it.
    #[arg(long, value_name = "TIME", value_parser = config::units::parse_duration)]
    pub grace: Option<Duration>,
    /// The node to ask.
    #[command(flatten)]
    pub node: ManagerArgs,
}

/// Arguments of `weir quota list`.
#[derive(Args, Debug, Clone)]
pub struct QuotaListArgs {
    /// Only the tree with this root.
    #[arg(value_name = "PATH")]
    pub path: Option<String>,
    /// The node to ask.
    #[command(flatten)]
    pub node: ManagerArgs,
}

fn limit_of_bytes(text: &str) -> Result<LimitEdit, String> {
    if text == "none" { Ok(LimitEdit::None) } else { config::units::parse_size(text).map(LimitEdit::At) }
}

fn limit_of_files(text: &str) -> Result<LimitEdit, String> {
    let number = || text.parse().map_err(|_| "it is a number of files, or `none`".to_owned());
    if text == "none" { Ok(LimitEdit::None) } else { number().map(LimitEdit::At) }
}
