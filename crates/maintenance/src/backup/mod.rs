//! `weir backup` and `weir restore`: the namespace of a node, as of one record of its journal, in a folder elsewhere.
//!
//! The backups in a folder are complete: a full one, then the changes since. Each file is checksummed and read back before it counts. They do not
//! hold the bytes of files. [`target`] is the folder, [`restore`] the way back. Beside the backups of a cluster's manager lies the key of its cluster
//! ([`authority`]).

pub(crate) mod authority;
pub(crate) mod manager;
pub mod manifest;
mod place;
pub mod restore;
pub mod target;
mod under_way;
mod whole_file;

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use console::Exit;
use foundation::{
    DataDir, DataDirError, DatabaseMark, DirRole, Foundation, IfNew, ManagerFoundation, Purpose, Settings, datadir,
    refused,
};
use journal::Seq;
use kv::{BackupHead, JournaledIndex};
use manifest::{Kind, Manifest};
use target::Target;
use types::Timestamp;
use types::units::show_size;

use crate::Error;
use crate::{now, open_data_dir};

/// The file in a data directory whose time is that of the last backup. Who makes backups by other means touches it.
pub const LAST_BACKUP: &str = "last-backup";

/// How to back up a namespace that is in a database.
pub const BACKUP_OF_DATABASE: &str =
    "back it up with pg_basebackup or pg_dump, and copy `FORMAT`, `DATABASE` and the folder `cluster` of the directory";

/// The source and the target of a backup.
#[derive(Clone, Debug)]
pub struct BackupOptions {
    /// The folder of backups.
    pub target: PathBuf,
    /// The data directory of the node.
    pub data: PathBuf,
    /// Take a full backup, even if the changes since the last one would be enough.
    pub full: bool,
    /// Afterwards keep only this many full backups, and the backups that follow them.
    pub keep: Option<u32>,
    /// Print the result as JSON.
    pub json: bool,
}

/// Asks the running node for its namespace: all of it, or the changes since a record of a journal's incarnation. Returns the head of the backup and
/// its bytes; `None` if no node is running.
pub type AskNode<'a> = dyn FnMut(Option<(Seq, u64)>) -> Result<Option<(BackupHead, Box<dyn Read>)>, Box<dyn std::error::Error + Send + Sync>>
    + 'a;

/// Takes a backup and prints the result. If `ask` reaches a running node, that node provides the namespace. Otherwise the stopped node's data
/// directory does, opened with `settings`.
///
/// # Errors
///
/// The folder or the directory was refused, or the backup was interrupted. Run it again.
pub fn run(args: &BackupOptions, settings: &Settings, ask: &mut AskNode<'_>) -> Result<Exit, Error> {
    let missing = || DataDirError::Missing { path: args.data.clone() };
    let format = datadir::format_of(&args.data).and_then(|format| format.ok_or_else(missing))?;
    if matches!(format.role, DirRole::Disk | DirRole::Store) {
        return Err(Error::NoNames { data: args.data.clone(), is: format.role });
    }
    if let Some(DatabaseMark { address, .. }) = DatabaseMark::in_directory(&args.data).map_err(Error::Mark)? {
        return Err(Error::InDatabase { data: args.data.clone(), address, advice: BACKUP_OF_DATABASE });
    }
    let mut target = Target::open(&args.target, Some(&format))?;
    if format.role == DirRole::Manager {
        // First, so that no backup counts without it.
        authority::save(&args.data, &target).map_err(Error::TakeBackup)?;
    }
    let since = if args.full { None } else { target.continues_at() };
    let made = match ask(since).map_err(Error::Node)? {
        Some((head, mut content)) => take(&mut target, head, now(), &mut |file| io::copy(&mut content, file).map(drop)),
        None => stopped_node(args, settings, &mut target, since, format.role),
    }?;
    if let Err(error) = note(&args.data) {
        tracing::warn!(
            "the backup is whole, but {LAST_BACKUP} cannot be written, so `weir status` does not know of it: {error}"
        );
    }
    let removed = args.keep.map_or(Ok(0), |keep| target.keep(keep))?;
    say(args, &made, removed).map_err(Error::Print)?;
    Ok(Exit::Done)
}

/// Notes in the data directory that a backup of it is whole.
pub(crate) fn note(data: &Path) -> io::Result<()> {
    let text = b"The time of this file is the time of the last backup of the namespace.\n";
    // Root may run this in the directory of another user.
    let found = std::fs::metadata(data)?;
    let owner = rustix::process::geteuid().is_root().then_some((found.uid(), found.gid()));
    whole_file::write(data, LAST_BACKUP, 0o666, owner, text)
}

/// When the last backup was made of the node whose data directory is `data`. `None`: nobody knows of one.
#[must_use]
pub fn last(data: &Path) -> Option<SystemTime> {
    std::fs::metadata(data.join(LAST_BACKUP)).and_then(|found| found.modified()).ok()
}

/// Takes the namespace of a stopped node from its data directory.
fn stopped_node(
    args: &BackupOptions,
    settings: &Settings,
    target: &mut Target,
    since: Option<(Seq, u64)>,
    role: DirRole,
) -> Result<Manifest, Error> {
    if role == DirRole::Manager {
        let data = DataDir::open_as(&args.data, DirRole::Manager, None, IfNew::Refuse, now())?;
        let foundation = ManagerFoundation::open_names(&data, settings, Purpose::Check, 0, now())
            .map_err(|error| refused(&data, error))?;
        // A directory whose names are in a database was refused above.
        let index = foundation.names.engine.index().ok_or(Error::NoDirectory)?;
        let made = from_index(index, target, since);
        foundation.close().map_err(Error::Close)?;
        return made;
    }
    let data = open_data_dir(&args.data)?;
    let foundation = Foundation::open(&data, settings, Purpose::Check, now()).map_err(|error| refused(&data, error))?;
    let made = from_index(&foundation.names.index, target, since);
    foundation.close().map_err(Error::Close)?;
    made
}

fn from_index(index: &JournaledIndex, target: &mut Target, since: Option<(Seq, u64)>) -> Result<Manifest, Error> {
    let backup = index.backup(since).map_err(Error::MakeBackup)?;
    let head = backup.head();
    let mut backup = Some(backup);
    take(target, head, now(), &mut |file| match backup.take() {
        Some(backup) => backup.write_to(file).map_err(|error| io::Error::other(error.to_string())),
        None => Ok(()),
    })
}

/// Stores one backup. It counts only after it is written, synced and read back.
fn take(
    target: &mut Target,
    head: BackupHead,
    taken: Timestamp,
    content: &mut dyn FnMut(&mut File) -> io::Result<()>,
) -> Result<Manifest, Error> {
    target.add(head, taken, content).map_err(Error::TakeBackup)
}

fn say(args: &BackupOptions, made: &Manifest, removed: usize) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    if args.json {
        let mut value = made.to_json();
        if let Some(object) = value.as_object_mut() {
            object.insert("removed".into(), removed.into());
        }
        writeln!(stdout, "{value}")?;
        return stdout.flush();
    }
    let what = match made.kind {
        Kind::Full => "everything".to_owned(),
        Kind::Delta => format!("what changed after record {}", made.after),
    };
    writeln!(
        stdout,
        "backup {} in {}: {what}, as of record {}; {} keys, {}, read back and whole",
        made.number,
        show(&args.target),
        made.upto,
        made.entries,
        show_size(made.bytes)
    )?;
    if removed > 0 {
        writeln!(stdout, "{removed} older backups were removed")?;
    }
    stdout.flush()
}

fn show(path: &Path) -> std::path::Display<'_> {
    path.display()
}
