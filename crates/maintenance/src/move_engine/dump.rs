//! `weir db dump`: the namespace of a database as a full backup in a folder of backups. `weir restore` puts it into a data directory, and `weir db
//! import` into a database. Managers can go on meanwhile: the dump shows one moment.

use std::io;
use std::path::PathBuf;

use console::Exit;
use database::{Copying, DatabaseAddress};
use foundation::datadir::{self, Format};
use foundation::{DataDirError, DirRole};
use journal::{Seq, StreamId};
use kv::BackupHead;
use serde_json::json;
use types::units::show_size;
use types::{ClusterId, StoreId};

use super::say;
use crate::backup::target::Target;
use crate::backup::{authority, note};
use crate::{Error, now};

/// The source and the target of a dump.
#[derive(Clone, Debug)]
pub struct DumpOptions {
    /// The database.
    pub database: DatabaseAddress,
    /// The folder of backups.
    pub target: PathBuf,
    /// The data directory of the cluster's manager, whose key is stored beside the backups.
    pub data: Option<PathBuf>,
    /// Afterwards keep only this many full backups, and the backups that follow them.
    pub keep: Option<u32>,
    /// Print the result as JSON.
    pub json: bool,
}

/// Dumps a namespace and prints the result.
///
/// # Errors
///
/// The folder, the directory or the database was refused, or the dump was interrupted. Run it again.
pub fn run(args: &DumpOptions) -> Result<Exit, Error> {
    let mut copying = Copying::connect(&args.database)?;
    let cluster = copying.cluster()?.ok_or_else(|| Error::EmptyDatabase { database: args.database.to_string() })?;
    let format = match &args.data {
        Some(data) => format_of(data, cluster)?,
        None => Format::of_backup(DirRole::Manager, cluster.0, StoreId(0), now()),
    };
    let mut target = Target::open(&args.target, Some(&format))?;
    if let Some(data) = &args.data {
        // First, so that no backup counts without it.
        authority::save(data, &target).map_err(Error::TakeBackup)?;
    }
    // No journal has this incarnation: none can follow the dump.
    let head = BackupHead { after: None, upto: Seq(1), incarnation: rand::random() };
    copying.begin_view()?;
    let made = target
        .add(head, now(), &mut |file| {
            let written = kv::write_backup(file, StreamId::NAMESPACE, head, &mut copying.entries());
            written.map_err(|error| io::Error::other(error.to_string()))
        })
        .map_err(Error::TakeBackup)?;
    copying.end_view()?;
    if let Some(data) = &args.data
        && let Err(error) = note(data)
    {
        tracing::warn!("the dump is whole, but `weir status` does not know of it: {error}");
    }
    let removed = args.keep.map_or(Ok(0), |keep| target.keep(keep))?;

    let mut result = made.to_json();
    if let Some(object) = result.as_object_mut() {
        object.insert("removed".into(), removed.into());
        object.insert("database".into(), json!(args.database.to_string()));
    }
    let mut words = vec![format!(
        "backup {} in {}: the namespace of the database {}; {} keys, {}, read back and whole",
        made.number,
        args.target.display(),
        args.database,
        made.entries,
        show_size(made.bytes)
    )];
    if args.data.is_none() && !authority::is_saved(&target) {
        words.push(
            "the cluster's key is not beside it, and `weir restore` needs it: say --data with the manager's data directory"
                .into(),
        );
    }
    if removed > 0 {
        words.push(format!("{removed} older backups were removed"));
    }
    say(args.json, &result, &words)
}

/// The format of the manager's directory, which must belong to the database's cluster.
fn format_of(data: &std::path::Path, cluster: ClusterId) -> Result<Format, Error> {
    let missing = || DataDirError::Missing { path: data.to_owned() };
    let format = datadir::format_of(data).and_then(|format| format.ok_or_else(missing))?;
    if format.role != DirRole::Manager {
        return Err(Error::NoNames { data: data.to_owned(), is: format.role });
    }
    if format.cluster != cluster.0 {
        let is = ClusterId(format.cluster);
        return Err(DataDirError::OtherCluster { path: data.to_owned(), is, ours: cluster }.into());
    }
    Ok(format)
}
