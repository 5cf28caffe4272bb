//! The command line of the commands that move a namespace into a database and out of it: `weir db import`, `export`, `dump` and `continue`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{DbAddressArgs, usual_data};

/// The commands of `weir db` that move a namespace.
#[derive(Subcommand, Debug, Clone)]
pub enum DbCopyCommand {
    /// Move the namespace of a stopped manager into a database.
    ///
    /// Stop the manager first. Copies the namespace, compares the copy entry by entry, and only then opens the database
    /// to managers. The data directory keeps the cluster's key, and its namespace under another name. If the command is
    /// interrupted, run it again: it goes on where it was.
    Import(DbImportArgs),
    /// Move the namespace of a database back into the data directory of the cluster's manager.
    ///
    /// Stop all managers first: one that still runs stops with its next change. Copies the namespace, compares the copy
    /// entry by entry, and only then lets the manager start without the database. The database keeps its entries, and
    /// is closed. If the command is interrupted, run it again: it begins again with the first entry.
    Export(DbExportArgs),
    /// Write the namespace of a database as a backup, which `weir restore` and `weir db import --backup` read.
    ///
    /// Managers can go on meanwhile: the backup shows one moment. It is always a full one.
    Dump(DbDumpArgs),
    /// Continue a database that has lost changes, or was restored to an earlier time.
    ///
    /// Stop all managers first. Clients, disk servers and nodes know of numbers that the database has forgotten. The
    /// command raises all numbers above them, and opens the database to managers. It then says what else is to do.
    Continue(DbContinueArgs),
}

/// Arguments of `weir db import`.
#[derive(Args, Debug, Clone)]
pub struct DbImportArgs {
    /// The database.
    #[command(flatten)]
    pub database: DbAddressArgs,
    /// The data directory of the stopped manager [default: $WEIR_DATA, else /var/lib/weir/data].
    #[arg(long, value_name = "DIR", conflicts_with = "backup")]
    pub data: Option<PathBuf>,
    /// Import the last backup in this folder instead. It is older than its cluster, so the database continues above all
    /// numbers that may be in use.
    #[arg(long, value_name = "FOLDER")]
    pub backup: Option<PathBuf>,
    /// Begin again: remove what the database has of an earlier import that was not ended, or of a namespace that
    /// `weir db export` has moved out.
    #[arg(long)]
    pub replace: bool,
    /// End an interrupted import: the database gets empty again, and the data directory stays as it is. If all entries
    /// were copied already, name the data directory (--data), which must not have the file DATABASE.
    #[arg(long, conflicts_with_all = ["backup", "replace"])]
    pub cancel: bool,
    /// Print the result as JSON on stdout.
    #[arg(long)]
    pub json: bool,
}

impl DbImportArgs {
    /// The data directory, if it is not a backup that is imported.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.data.clone().unwrap_or_else(usual_data)
    }
}

/// Arguments of `weir db export`.
#[derive(Args, Debug, Clone)]
pub struct DbExportArgs {
    /// The database.
    #[command(flatten)]
    pub database: DbAddressArgs,
    /// The data directory of the cluster's manager [default: $WEIR_DATA, else /var/lib/weir/data].
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// End an interrupted export: managers can use the database again.
    #[arg(long, conflicts_with = "data")]
    pub cancel: bool,
    /// Print the result as JSON on stdout.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `weir db dump`.
#[derive(Args, Debug, Clone)]
pub struct DbDumpArgs {
    /// The folder for the backups; created if it is missing.
    #[arg(value_name = "TARGET")]
    pub target: PathBuf,
    /// The database.
    #[command(flatten)]
    pub database: DbAddressArgs,
    /// The data directory of the cluster's manager, whose key is stored beside the backups. A restore needs it.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Afterwards keep only this many full backups; remove older ones.
    #[arg(long, value_name = "N")]
    pub keep: Option<u32>,
    /// Print the result as JSON on stdout.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `weir db continue`.
#[derive(Args, Debug, Clone)]
pub struct DbContinueArgs {
    /// The database.
    #[command(flatten)]
    pub database: DbAddressArgs,
    /// Confirm that the database is older than the cluster: it has lost changes, or was restored.
    #[arg(long, required = true)]
    pub after_restore: bool,
    /// The time whose state the database has (UTC, as in `2026-11-21 09:45`), for the records [default: now].
    #[arg(long, value_name = "TIME")]
    pub as_of: Option<String>,
    /// Print the result as JSON on stdout.
    #[arg(long)]
    pub json: bool,
}
