//! `weir db export`: the namespace of a database into the data directory of the cluster's manager.
//!
//! 1. The database is closed. The command refuses while a manager is active there.
//! 2. The directory gets a new journal. The old one ends before the namespace went into the database: with it a restore would take an old backup for
//!    complete.
//! 3. The entries become a checkpoint in a new folder, which then gets the namespace's name.
//! 4. The directory is opened as a start would do it, and compared with the database.
//! 5. The database notes that its namespace was moved, and the directory loses the mark [`DatabaseMark`].
//!
//! The command can be interrupted anywhere and repeated. Until the last step no manager starts on the directory alone. An interrupted export begins
//! again with the first entry: a checkpoint counts only as a whole.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use console::Exit;
use database::{Copying, DatabaseAddress, DirectoryMark, read_once};
use disk::{Disk, DiskError};
use foundation::layout::{NAMESPACE_CHECKPOINT_DIR, NAMESPACE_DIR};
use foundation::{DataDir, DatabaseMark, DirRole, IfNew, OpenError, Settings, disk_of};
use journal::StreamId;
use kv::{Entry, EntrySource, KvError};
use namespace::Progress;
use serde_json::json;

use super::{
    MOVED, Screen, cluster_of, described, has_namespace, move_aside, refused, renew_journal, say, verify_directory,
};
use crate::{Error, now};

/// The folder in which the new namespace is built.
const NEW: &str = "namespace.new";

/// The source and the target of an export.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// The database.
    pub database: DatabaseAddress,
    /// The data directory of the manager.
    pub data: PathBuf,
    /// Print the result as JSON.
    pub json: bool,
}

/// Exports a namespace and prints the result. `settings` are those of the manager.
///
/// # Errors
///
/// The directory or the database was refused, or the export was interrupted. Run it again.
pub fn run(args: &ExportOptions, settings: &Settings) -> Result<Exit, Error> {
    let data = DataDir::open_as(&args.data, DirRole::Manager, None, IfNew::Refuse, now())?;
    let disk = disk_of(&data);
    let failed = |error: OpenError| refused(&data, error);
    let mark = DatabaseMark::read(&*disk).map_err(failed)?;
    if mark.is_none() && has_namespace(&*disk).map_err(|error| failed(error.into()))? {
        return Err(Error::HasNamespace { data: data.path.clone() });
    }
    let address = args.database.to_string();
    let mut screen = Screen::new(args.json);
    let mut copying = Copying::connect(&args.database)?;
    // Before the database is closed.
    if let Some(mark) = &mark {
        is_not_older(args, mark).map_err(failed)?;
    }
    let is_here = mark.as_ref().is_some_and(|mark| mark.address == address);
    let directory = if is_here { DirectoryMark::Present } else { DirectoryMark::Absent };
    copying.begin_export(&described(&data), cluster_of(&data), directory)?;
    let mut aside = Vec::new();
    if !is_here {
        // It may be of the time before the namespace went into that other database.
        if has_namespace(&*disk).map_err(|error| failed(error.into()))? {
            aside.push(move_aside(&*disk, NAMESPACE_DIR, MOVED).map_err(|error| failed(error.into()))?);
        }
        // Also over the mark of the same database under another address: the next attempt looks for this one. A directory without a mark has seen nothing
        // of this database yet.
        let progress = mark.as_ref().map_or_else(Progress::default, |mark| mark.progress);
        let mark = DatabaseMark { cluster: cluster_of(&data), address, progress };
        mark.write(&*disk).map_err(|error| failed(error.into()))?;
    }
    aside.extend(place(&data, &disk, settings, &mut copying, &mut screen)?);
    let entries = verify_directory(&data, settings, &mut copying, &mut screen)?;
    copying.finish_export()?;
    DatabaseMark::remove(&*disk).map_err(|error| failed(error.into()))?;

    let result =
        json!({ "entries": entries, "database": args.database.to_string(), "data": data.path.display().to_string() });
    let mut words = vec![
        format!(
            "{entries} entries of the database {} are in {}, and were compared",
            args.database,
            data.path.display()
        ),
        "start the manager without a database; the one that it had is closed, and keeps its entries".to_owned(),
    ];
    words.extend(aside.iter().map(|aside| format!("{aside} is from before, and is not used any more")));
    say(args.json, &result, &words)
}

/// Refuses a database that is behind what the directory has seen of it.
fn is_not_older(args: &ExportOptions, mark: &DatabaseMark) -> Result<(), OpenError> {
    let found = read_once(&args.database, |read| namespace::progress(read))?.unwrap_or_default();
    if found >= mark.progress {
        return Ok(());
    }
    let address = args.database.to_string();
    Err(OpenError::OlderDatabase { address, found: Box::new(found), expected: Box::new(mark.progress) })
}

/// Puts the entries of the database in the namespace's place, behind a new journal. Returns the name of the former journal.
fn place(
    data: &DataDir,
    disk: &Arc<dyn Disk>,
    settings: &Settings,
    copying: &mut Copying,
    screen: &mut Screen,
) -> Result<Option<String>, Error> {
    let failed = |error: OpenError| refused(data, error);
    let io = |error: DiskError| failed(error.into());
    remove_new(data).map_err(io)?;
    // What an interrupted export has put there: no manager has started on it, because the directory has the mark.
    if has_namespace(&**disk).map_err(io)? {
        disk.rename(NAMESPACE_DIR, NEW).and_then(|()| disk.sync_dir("")).map_err(io)?;
        remove_new(data).map_err(io)?;
    }
    let (at, journal) = renew_journal(disk, settings).map_err(failed)?;
    screen.what = "copied";
    let folder = NAMESPACE_CHECKPOINT_DIR.replacen(NAMESPACE_DIR, NEW, 1);
    let mut entries = Counted { source: copying.entries(), count: 0, screen: &mut *screen };
    let placed = kv::place_entries(&mut entries, StreamId::NAMESPACE, Arc::clone(disk), &folder, at);
    screen.clear();
    placed.map_err(Error::Copy)?;
    disk.rename(NEW, NAMESPACE_DIR).and_then(|()| disk.sync_dir("")).map_err(io)?;
    Ok(journal)
}

/// Removes the unfinished namespace of an interrupted attempt.
fn remove_new(data: &DataDir) -> Result<(), DiskError> {
    match std::fs::remove_dir_all(data.held().join(NEW)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(DiskError { op: disk::DiskOp::Remove, path: NEW.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

/// Shows how many entries were taken.
struct Counted<'a, S> {
    source: S,
    count: u64,
    screen: &'a mut Screen,
}

impl<S: EntrySource> EntrySource for Counted<'_, S> {
    fn next(&mut self) -> Result<Option<Entry<'_>>, KvError> {
        self.screen.step(self.count);
        self.count += 1;
        self.source.next()
    }
}
