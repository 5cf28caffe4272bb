//! The command line of `weir identity`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ManagerArgs;

/// Arguments of `weir identity`.
#[derive(Args, Debug, Clone)]
pub struct IdentityArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: IdentityCommand,
}

/// What `weir identity` does.
#[derive(Subcommand, Debug, Clone)]
pub enum IdentityCommand {
    /// List the users, or the groups, that the node knows, with their numbers.
    List(IdentityListArgs),
    /// Show the number of a user or group, or who has a number.
    Show(IdentityNameArgs),
    /// Give a number to a user or group before its first login, so that files and ACLs can name it.
    Add(IdentityNameArgs),
    /// Give another name to a user or group. It keeps its number, and so its files.
    ///
    /// Change the [[identity]] rules of the configuration as well: a client that they still give the old name becomes a new
    /// user.
    Rename(IdentityRenameArgs),
    /// Say step by step who the bearer of a token would be, and what the token lets it do.
    ///
    /// Reads the configuration of a node, not the node itself, and asks the token's issuer for its keys. If no [[identity]]
    /// matches the token, it asks the mapping service as well.
    Test(IdentityTestArgs),
}

/// Arguments of `weir identity list`.
#[derive(Args, Debug, Clone)]
pub struct IdentityListArgs {
    /// The groups instead of the users.
    #[arg(short, long)]
    pub group: bool,
    /// The node to ask.
    #[command(flatten)]
    pub node: ManagerArgs,
}

/// Arguments of `weir identity show` and `add`.
#[derive(Args, Debug, Clone)]
pub struct IdentityNameArgs {
    /// The name.
    pub name: String,
    /// A group instead of a user.
    #[arg(short, long)]
    pub group: bool,
    /// The node to ask.
    #[command(flatten)]
    pub node: ManagerArgs,
}

/// Arguments of `weir identity rename`.
#[derive(Args, Debug, Clone)]
pub struct IdentityRenameArgs {
    /// The present name.
    pub from: String,
    /// The new name.
    pub to: String,
    /// A group instead of a user.
    #[arg(short, long)]
    pub group: bool,
    /// The node to ask.
    #[command(flatten)]
    pub node: ManagerArgs,
}

/// Arguments of `weir identity test`.
#[derive(Args, Debug, Clone)]
pub struct IdentityTestArgs {
    /// A file with a token, or with certificates such as a proxy's; - is standard input. (A token on the command line would be seen
    /// by others.)
    #[arg(value_name = "CREDENTIAL-FILE")]
    pub token: PathBuf,
    /// The configuration of the node.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// The address of the client, for a mapping service that wants to know it.
    #[arg(long, value_name = "ADDRESS")]
    pub from: Option<IpAddr>,
}
