//! The namespace's folder during a restore. This module decides whether the result of an interrupted restore can be used. It moves an existing
//! namespace aside, and puts the backup in its place. It never removes an existing namespace, which may be the only complete one.

use std::io;
use std::sync::Arc;

use disk::{Disk, DiskError};
use foundation::layout::{JOURNAL_DIR, NAMESPACE_CHECKPOINT_DIR, NAMESPACE_DIR, NAMESPACE_INDEX_DIR, STORE_DIR};
use foundation::{DataDir, DirRole, OpenError, Settings, engine};
use journal::{Journal, Seq, StreamId};
use kv::{Applied, IndexPositions, KvError, WithoutJournal};

use super::manifest::Manifest;
use super::restore::CatchUp;
use super::target::Target;
use super::under_way::{BackupId, RestoreMark, RestoredBackup};

/// The folder in which the new namespace is built.
const NEW: &str = "namespace.new";
/// The prefix of the names of former namespaces; a number follows.
const ASIDE: &str = "namespace-lost-";

/// The journal of the data directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalHere {
    /// Its incarnation. Record numbers alone do not identify a journal.
    pub incarnation: u64,
    /// Its first record.
    pub oldest: Seq,
    /// Its last record.
    pub end: Seq,
}

/// Whether a namespace exists that can continue with the existing journal, or with a new one if there is none.
///
/// # Errors
///
/// The namespace cannot be read now. Damage is not an error: a damaged namespace does not fit.
pub fn fits_the_journal(
    data: &DataDir,
    disk: &Arc<dyn Disk>,
    settings: &Settings,
    log: Option<JournalHere>,
) -> Result<bool, OpenError> {
    if !is_there(&**disk, NAMESPACE_DIR)? {
        return Ok(false);
    }
    let looked = engine(data, NAMESPACE_INDEX_DIR, settings).and_then(|engine| {
        let checkpoints = WithoutJournal::open(StreamId::NAMESPACE, Arc::clone(disk), NAMESPACE_CHECKPOINT_DIR);
        let fits = checkpoints.map(|checkpoints| fits(checkpoints.standing(&*engine), engine.applied(), log));
        engine.close();
        fits
    });
    match looked {
        Err(KvError::Damaged(_) | KvError::Lost(_)) => Ok(false),
        looked => looked.map_err(|source| OpenError::Index { which: "namespace", source }),
    }
}

/// A start refuses an index as damaged if the journal ends before it, begins too far behind it, or is another journal.
fn fits(standing: IndexPositions, engine: Applied, log: Option<JournalHere>) -> bool {
    let furthest = standing.furthest();
    let beside = |log: JournalHere| {
        let of_this_journal = engine.seq == Seq::ZERO || engine.incarnation == log.incarnation;
        of_this_journal && furthest <= log.end && furthest.next() >= log.oldest
    };
    furthest > Seq::ZERO && log.is_none_or(beside)
}

/// Moves an existing namespace aside, and puts the backup in its place, standing at the journal's record `at`. Returns the folder with the former
/// namespace.
///
/// # Errors
///
/// Errors of the disk, the journal, or the backup.
pub fn place(
    data: &DataDir,
    disk: &Arc<dyn Disk>,
    settings: &Settings,
    (target, chain): (&Target, &[Manifest]),
    at: Seq,
    placed: RestoredBackup,
    mark: RestoreMark,
) -> Result<Option<String>, OpenError> {
    let way = placed.way;
    // This comes first. After an interruption here, the next attempt finds no namespace that it could mistake for the one in the mark.
    let aside = if is_there(&**disk, NAMESPACE_DIR)? { Some(move_aside(&**disk)?) } else { None };
    let mark = RestoreMark { branched: mark.branched || way != CatchUp::ToTheEnd, placed: None, ..mark };
    mark.write(&**disk)?;
    remove_new(data)?;
    let files: Vec<String> = chain.iter().map(Manifest::file).collect();
    let folder = NAMESPACE_CHECKPOINT_DIR.replacen(NAMESPACE_DIR, NEW, 1);
    let from = (target.disk(), files.as_slice());
    let log = match way {
        CatchUp::ToTheRecord(until) => {
            Some((Journal::open(Arc::clone(disk), JOURNAL_DIR, settings.journal())?.0, until))
        }
        CatchUp::ToTheEnd | CatchUp::AsOfTheBackup => None,
    };
    let followed = log.as_ref().map(|(log, until)| kv::BackupJournal { log, until: *until });
    kv::restore_backups(from, followed, StreamId::NAMESPACE, Arc::clone(disk), &folder, at)
        .map_err(|source| OpenError::Index { which: "namespace", source })?;
    if let Some((log, _)) = log {
        log.close()?;
    }
    disk.rename(NEW, NAMESPACE_DIR)?;
    if data.format.role != DirRole::Manager {
        disk.create_dir_all(STORE_DIR)?;
    }
    disk.sync_dir("")?;
    // From here on the journal may be trimmed below `at`. So another attempt continues with the namespace that stands there now.
    RestoreMark { placed: Some(placed), ..mark }.write(&**disk)?;
    Ok(aside)
}

fn is_there(disk: &dyn Disk, name: &str) -> Result<bool, DiskError> {
    Ok(disk.list("")?.iter().any(|entry| entry.name == name))
}

fn move_aside(disk: &dyn Disk) -> Result<String, DiskError> {
    let number = |name: &str| name.strip_prefix(ASIDE).and_then(|number| number.parse::<u64>().ok());
    let last = disk.list("")?.iter().filter_map(|entry| number(&entry.name)).max().unwrap_or(0);
    let aside = format!("{ASIDE}{}", last.saturating_add(1));
    disk.rename(NAMESPACE_DIR, &aside)?;
    disk.sync_dir("")?;
    Ok(aside)
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

/// The mark's entry for `backup`, followed by `log` as far as `way` says.
#[must_use]
pub fn placed(backup: &Manifest, way: CatchUp, log: Option<JournalHere>) -> RestoredBackup {
    RestoredBackup { backup: BackupId::of(backup), beside: log.map_or(0, |log| log.incarnation), way }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_fits_the_journal_with_which_a_start_would_open_it() {
        let log = Some(JournalHere { incarnation: 5, oldest: Seq(10), end: Seq(20) });
        let fits = |engine, incarnation, checkpoint, log| {
            let (engine, checkpoint) = (Seq(engine), Seq(checkpoint));
            fits(IndexPositions { engine, checkpoint }, Applied { seq: engine, incarnation }, log)
        };
        for (engine, checkpoint) in [(0, 20), (20, 9), (15, 15), (9, 0), (3, 12)] {
            assert!(fits(engine, 5, checkpoint, log), "{engine} {checkpoint}");
            assert!(fits(engine, 6, checkpoint, None), "a journal that is started then begins behind all of it");
            assert_eq!(fits(engine, 6, checkpoint, log), engine == 0, "only the backup was of another log");
        }
        for (engine, checkpoint) in [(21, 12), (0, 21), (8, 3), (0, 0)] {
            assert!(!fits(engine, 5, checkpoint, log), "{engine} {checkpoint}");
        }
        assert!(!fits(0, 0, 0, None), "nothing is no namespace");
    }

    #[test]
    fn existing_namespace_is_moved_aside_under_its_own_name() {
        let temp = tempfile::tempdir().unwrap();
        let disk = disk::RealDisk::open(temp.path()).unwrap();
        for (n, file) in [(1, "a"), (2, "b")] {
            std::fs::create_dir_all(temp.path().join(NAMESPACE_DIR).join(file)).unwrap();
            assert_eq!(move_aside(&disk).unwrap(), format!("{ASIDE}{n}"));
        }
        assert!(temp.path().join("namespace-lost-1/a").exists() && temp.path().join("namespace-lost-2/b").exists());
        assert!(!is_there(&disk, NAMESPACE_DIR).unwrap());
    }
}
