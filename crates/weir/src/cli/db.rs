//! The command line of `weir db`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use config::DatabaseUrl;

use super::DbCopyCommand;

/// Arguments of `weir db`.
#[derive(Args, Debug, Clone)]
pub struct DbArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: DbCommand,
}

/// What `weir db` does.
#[derive(Subcommand, Debug, Clone)]
pub enum DbCommand {
    /// Make weir's tables in a database.
    ///
    /// Needs an account that may create a schema there. Managers need fewer rights: name their account with --grant-to.
    /// Tables that are there already stay as they are.
    Init(DbInitArgs),
    /// Show what a database has of weir, and whether a manager can start on it.
    ///
    /// Changes nothing. Ends with 0 if a manager can start, and with 1 if the database answers and a manager cannot start.
    Check(DbCheckArgs),
    /// Bring the tables of an earlier weir to the version of this one. Stop all managers before.
    Migrate(DbAddressArgs),
    /// The commands that move a namespace.
    #[command(flatten)]
    Copy(DbCopyCommand),
}

/// Which database.
#[derive(Args, Debug, Clone, Default)]
pub struct DbAddressArgs {
    /// The address of the database, as in postgres://weir@db1.example.org/weir?passfile=/etc/weir/pgpass. Others can see
    /// a password in it in the list of processes [default: `database.url` of --config].
    #[arg(long, value_name = "URL", required_unless_present = "config")]
    pub database: Option<DatabaseUrl>,
    /// A TOML file with settings, as `weir serve` takes it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Arguments of `weir db init`.
#[derive(Args, Debug, Clone)]
pub struct DbInitArgs {
    /// The database.
    #[command(flatten)]
    pub database: DbAddressArgs,
    /// Give this account of the database the rights that a manager needs.
    #[arg(long, value_name = "ROLE")]
    pub grant_to: Option<String>,
}

/// Arguments of `weir db check`.
#[derive(Args, Debug, Clone)]
pub struct DbCheckArgs {
    /// The database.
    #[command(flatten)]
    pub database: DbAddressArgs,
    /// Print the result as JSON on stdout.
    #[arg(long)]
    pub json: bool,
}
