//! `weir db import`: the namespace of a stopped manager's data directory, or of a backup, into a database.
//!
//! 1. The database is closed to managers. The entries are copied in chunks, each with the position.
//! 2. Both are read again and compared. Then the database knows that it has everything.
//! 3. The directory gets the mark [`DatabaseMark`] and a new journal, and its namespace gets another name. The old journal ends before the changes in
//!    the database: with it a restore would take an old backup for complete.
//! 4. The database is opened. A backup is older than its cluster: there, [`super::go_on`] does that.
//!
//! The command can be interrupted anywhere and repeated. Up to step 3 the directory can be used as before; then the database has an older state,
//! and the next import notices that.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use console::Exit;
use console::time_text::show_time;
use database::{Copying, DatabaseAddress, IfThere, ImportSource, ImportState};
use disk::Disk;
use foundation::layout::NAMESPACE_DIR;
use foundation::{DataDir, DatabaseMark, DirRole, IfNew, IndexFoundation, OpenError, Settings, disk_of};
use journal::StreamId;
use kv::{EntrySource, OwnedEntry};
use namespace::Progress;
use serde_json::json;
use types::{ClusterId, Timestamp};

use super::{
    CHUNK, MOVED, Screen, cluster_of, described, go_on, has_namespace, move_aside, refused, renew_journal, say, verify,
};
use crate::backup::manifest::Manifest;
use crate::backup::target::{Target, TargetError};
use crate::{Error, now};

/// How the text of a backup as the source of an import begins. No directory is marked after such an import.
const BACKUP: &str = "backup ";

/// Where an import takes the namespace from.
#[derive(Clone, Debug)]
pub enum ImportFrom {
    /// The data directory of a stopped manager.
    Directory(PathBuf),
    /// The last backup in a folder.
    Backup(PathBuf),
}

/// The source and the target of an import.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// The database.
    pub database: DatabaseAddress,
    /// The source.
    pub from: ImportFrom,
    /// Remove what an interrupted import or a namespace that was moved out has left in the database.
    pub replace: bool,
    /// Print the result as JSON.
    pub json: bool,
}

/// Imports a namespace and prints the result. `settings` are those of the manager.
///
/// # Errors
///
/// The directory, the backup or the database was refused, or the import was interrupted. Run it again.
pub fn run(args: &ImportOptions, settings: &Settings) -> Result<Exit, Error> {
    let mut screen = Screen::new(args.json);
    let (entries, source, words) = match &args.from {
        ImportFrom::Directory(path) => from_directory(args, settings, path, &mut screen)?,
        ImportFrom::Backup(path) => from_backup(args, path, &mut screen)?,
    };
    let result = json!({ "entries": entries, "from": source, "database": args.database.to_string() });
    let mut lines = vec![match entries {
        Some(entries) => {
            format!("{entries} entries of {source} are in the database {}, and were compared", args.database)
        }
        None => format!("the import into the database {}, which was complete, is ended", args.database),
    }];
    lines.extend(words);
    say(args.json, &result, &lines)
}

/// Ends an unfinished import or export of `database`, and prints that. `data`: the data directory from which a complete import came.
///
/// # Errors
///
/// There is none, or a complete import may have been handed over, or those of the database.
pub fn cancel(database: &DatabaseAddress, data: Option<&Path>, is_json: bool) -> Result<Exit, Error> {
    // It stays open to the end, so that nobody marks it meanwhile.
    let data = data.map(|path| DataDir::open_as(path, DirRole::Manager, None, IfNew::Refuse, now())).transpose()?;
    let unmarked = match &data {
        Some(data) => {
            let mark = DatabaseMark::read(&*disk_of(data)).map_err(|error| refused(data, error))?;
            mark.is_none().then(|| from_this(data))
        }
        None => None,
    };
    Copying::connect(database)?.cancel(|source| {
        source.starts_with(BACKUP) || unmarked.as_deref().is_some_and(|directory| source.starts_with(directory))
    })?;
    let words = "cancelled: the namespace is where it was before, and can be used there";
    say(is_json, &json!({ "cancelled": true, "database": database.to_string() }), &[words.into()])
}

/// How the text of an import from this directory begins; the session follows.
fn from_this(data: &DataDir) -> String {
    format!("{} as of session ", described(data))
}

type Imported = (Option<u64>, String, Vec<String>);

fn from_directory(
    args: &ImportOptions,
    settings: &Settings,
    path: &Path,
    screen: &mut Screen,
) -> Result<Imported, Error> {
    let data = DataDir::open_as(path, DirRole::Manager, None, IfNew::Refuse, now())?;
    let disk = disk_of(&data);
    let failed = |error: OpenError| refused(&data, error);
    let mut copying = Copying::connect(&args.database)?;
    let (entries, progress) = if let Some(mark) = DatabaseMark::read(&*disk).map_err(failed)? {
        // The import was interrupted after the comparison, or there is nothing to do.
        if mark.address != args.database.to_string() || !copying.continue_complete_import(cluster_of(&data))? {
            return Err(failed(OpenError::InDatabase { address: mark.address }));
        }
        (None, mark.progress)
    } else {
        if !has_namespace(&*disk).map_err(|error| failed(error.into()))? {
            return Err(Error::NothingToImport { data: data.path.clone() });
        }
        let foundation = IndexFoundation::open_index(&data, settings).map_err(failed)?;
        let copied = copy_index(args, &data, &foundation, &mut copying, screen);
        foundation.close().map_err(Error::Close)?;
        let (entries, progress) = copied?;
        (Some(entries), progress)
    };
    let mark = DatabaseMark { cluster: cluster_of(&data), address: args.database.to_string(), progress };
    let aside = hand_over(&disk, settings, &mark).map_err(failed)?;
    copying.finish_import(None)?;
    let mut words = vec![format!(
        "start the manager with `--database`; its data directory {} still has the cluster's key",
        data.path.display()
    )];
    words.extend(aside.iter().map(|aside| format!("{aside} is from before, and is not used any more")));
    Ok((entries, described(&data), words))
}

/// Copies the index and compares it. Returns the number of entries, and how far the namespace has come.
fn copy_index(
    args: &ImportOptions,
    data: &DataDir,
    foundation: &IndexFoundation,
    copying: &mut Copying,
    screen: &mut Screen,
) -> Result<(u64, Progress), Error> {
    let snapshot = foundation.names.index.snapshot();
    let nothing = || Error::NothingToImport { data: data.path.clone() };
    // Each opening of the namespace begins a session. So the session tells whether the namespace was used since an interrupted import.
    let progress = namespace::progress(&*snapshot).map_err(Error::ReadNames)?.ok_or_else(nothing)?;
    let text = format!("{}{}", from_this(data), progress.session);
    let source = ImportSource { text, cluster: cluster_of(data) };
    // This directory has no mark, or the import would have been ended before.
    let own = from_this(data);
    let is_unmarked = |other: &str| other.starts_with(BACKUP) || other.starts_with(&own);
    let chunk = |after: Option<&[u8]>| kv::chunk_of(&*snapshot, after, CHUNK);
    if let ImportState::Copying { mut after, mut entries } =
        copying.begin_import(&source, if_there(args), is_unmarked)?
    {
        screen.what = "copied";
        loop {
            let entries_now = chunk(after.as_deref()).map_err(Error::Copy)?;
            let Some((last, _)) = entries_now.last() else { break };
            after = Some(last.clone());
            copying.put(&entries_now)?;
            entries += entries_now.len() as u64;
            screen.step(entries);
        }
    }
    let entries = verify(&mut kv::Chunks::new(chunk), &mut copying.entries(), screen)?;
    copying.complete_import()?;
    Ok((entries, progress))
}

/// Marks the directory, gives it a new journal, and moves its namespace aside. Returns the names of what was moved. The namespace goes last: while it is
/// there, the next run does all of this again, and then moves a journal without changes aside.
fn hand_over(disk: &Arc<dyn Disk>, settings: &Settings, mark: &DatabaseMark) -> Result<Vec<String>, OpenError> {
    mark.write(&**disk)?;
    if !has_namespace(&**disk)? {
        return Ok(Vec::new());
    }
    let (_, journal) = renew_journal(disk, settings)?;
    let namespace = move_aside(&**disk, NAMESPACE_DIR, MOVED)?;
    Ok(journal.into_iter().chain([namespace]).collect())
}

fn from_backup(args: &ImportOptions, path: &Path, screen: &mut Screen) -> Result<Imported, Error> {
    let target = Target::open(path, None)?;
    let whose = target.whose();
    if whose.role != DirRole::Manager {
        return Err(Error::BackupOfSingleNode { path: path.to_owned() });
    }
    let last = target.backups().last().ok_or_else(|| TargetError::NoSuch("in this folder".into()))?.clone();
    let chain = target.chain(&last)?;
    chain.iter().try_for_each(|manifest| target.verify(manifest))?;
    let files: Vec<String> = chain.iter().map(Manifest::file).collect();
    let open = || {
        let (_, entries) = kv::backup_entries((target.disk(), &files), StreamId::NAMESPACE).map_err(Error::Copy)?;
        Ok::<_, Error>(entries)
    };
    let taken = show_time(u64::try_from(last.taken.secs()).unwrap_or(0));
    let text = format!("{BACKUP}{} of {taken} (record {} of journal {:016x})", last.number, last.upto, last.log);
    let source = ImportSource { text: text.clone(), cluster: ClusterId(whose.cluster) };
    let mut copying = Copying::connect(&args.database)?;
    if let ImportState::Copying { after, mut entries } =
        copying.begin_import(&source, if_there(args), |other| other.starts_with(BACKUP))?
    {
        screen.what = "copied";
        let mut rest = open()?;
        loop {
            let chunk = next_chunk(&mut rest, after.as_deref())?;
            if chunk.is_empty() {
                break;
            }
            copying.put(&chunk)?;
            entries += chunk.len() as u64;
            screen.step(entries);
        }
    }
    let entries = verify(&mut open()?, &mut copying.entries(), screen)?;
    copying.complete_import()?;
    let why = format!("it has the namespace of {text}; run `weir db continue --after-restore` for it");
    copying.finish_import(Some(&why))?;
    drop(copying);
    let words = go_on::above_everything(&args.database, Timestamp(last.taken.0))?;
    Ok((Some(entries), text, words))
}

/// The next entries, without those up to `after`.
fn next_chunk(source: &mut dyn EntrySource, after: Option<&[u8]>) -> Result<Vec<OwnedEntry>, Error> {
    let mut chunk = Vec::new();
    while let Some((key, value)) = source.next().map_err(Error::Copy)? {
        if after.is_some_and(|after| key <= after) {
            continue;
        }
        // A full backup has no deletions.
        chunk.push((key.to_vec(), value.unwrap_or_default().to_vec()));
        if chunk.len() == CHUNK {
            break;
        }
    }
    Ok(chunk)
}

fn if_there(args: &ImportOptions) -> IfThere {
    if args.replace { IfThere::Replace } else { IfThere::Refuse }
}
