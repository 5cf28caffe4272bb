//! The namespace's folder under a restore: what an interrupted one has put there and can be gone on with; the way aside for what is
//! there otherwise; and the backup in its place. What is there is never removed: it may be the only one that has it all.

use std::io;
use std::sync::Arc;

use disk::{Disk, DiskError};
use foundation::layout::{JOURNAL_DIR, NAMESPACE_CHECKPOINT_DIR, NAMESPACE_DIR, NAMESPACE_INDEX_DIR, STORE_DIR};
use foundation::{DataDir, OpenError, Settings, engine};
use journal::{Journal, Seq, StreamId};
use kv::{Applied, KvError, Standing, WithoutLog};

use super::manifest::Manifest;
use super::restore::Way;
use super::target::Target;
use super::under_way::{Placed, UnderWay, Which};

/// Where the namespace is made.
const NEW: &str = "namespace.new";
/// How namespaces that were there are called, a number behind it.
const ASIDE: &str = "namespace-lost-";

/// The log as it is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogHere {
    /// Its incarnation: numbers of records alone do not tell one log from another.
    pub incarnation: u64,
    /// Its first record.
    pub oldest: Seq,
    /// Its last.
    pub end: Seq,
}

/// Whether there is a namespace, and the log that is there (or any that will be begun) can be gone on with beside it.
///
/// # Errors
/// What cannot be read now. Damage is no error: it does not fit.
pub fn fits_the_log(
    data: &DataDir,
    disk: &Arc<dyn Disk>,
    settings: &Settings,
    log: Option<LogHere>,
) -> Result<bool, OpenError> {
    if !is_there(&**disk, NAMESPACE_DIR)? {
        return Ok(false);
    }
    let looked = engine(data, NAMESPACE_INDEX_DIR, settings).and_then(|engine| {
        let checkpoints = WithoutLog::open(StreamId::NAMESPACE, Arc::clone(disk), NAMESPACE_CHECKPOINT_DIR);
        let fits = checkpoints.map(|checkpoints| fits(checkpoints.standing(&*engine), engine.applied(), log));
        engine.close();
        fits
    });
    match looked {
        Err(KvError::Damaged(_) | KvError::Lost(_)) => Ok(false),
        looked => looked.map_err(|source| OpenError::Index { which: "namespace", source }),
    }
}

/// Beside a log that ends before the index does, or begins too far behind it, or is another one, a start refuses it as damage.
fn fits(standing: Standing, engine: Applied, log: Option<LogHere>) -> bool {
    let furthest = standing.furthest();
    let beside = |log: LogHere| {
        let of_this_log = engine.seq == Seq::ZERO || engine.incarnation == log.incarnation;
        of_this_log && furthest <= log.end && furthest.next() >= log.oldest
    };
    furthest > Seq::ZERO && log.is_none_or(beside)
}

/// Moves what there is of a namespace aside, and puts the backup in its place, to stand at the log's record `at`. Gives the folder that holds
/// what was moved.
///
/// # Errors
/// Of the disk, the log, or the backup.
pub fn place(
    data: &DataDir,
    disk: &Arc<dyn Disk>,
    settings: &Settings,
    (target, chain): (&Target, &[Manifest]),
    at: Seq,
    placed: Placed,
    mark: UnderWay,
) -> Result<Option<String>, OpenError> {
    let way = placed.way;
    // First of all: interrupted here, the next attempt finds nothing that it could take for what the mark says.
    let aside = if is_there(&**disk, NAMESPACE_DIR)? { Some(move_aside(&**disk)?) } else { None };
    let mark = UnderWay { branched: mark.branched || way != Way::ToTheEnd, placed: None, ..mark };
    mark.write(&**disk)?;
    remove_new(data)?;
    let files: Vec<String> = chain.iter().map(Manifest::file).collect();
    let folder = NAMESPACE_CHECKPOINT_DIR.replacen(NAMESPACE_DIR, NEW, 1);
    let from = (target.disk(), files.as_slice());
    let log = match way {
        Way::ToTheRecord(until) => Some((Journal::open(Arc::clone(disk), JOURNAL_DIR, settings.journal())?.0, until)),
        Way::ToTheEnd | Way::AsOfTheBackup => None,
    };
    let followed = log.as_ref().map(|(log, until)| kv::Followed { log, until: *until });
    kv::restore_backups(from, followed, StreamId::NAMESPACE, Arc::clone(disk), &folder, at)
        .map_err(|source| OpenError::Index { which: "namespace", source })?;
    if let Some((log, _)) = log {
        log.close()?;
    }
    disk.rename(NEW, NAMESPACE_DIR)?;
    disk.create_dir_all(STORE_DIR)?;
    disk.sync_dir("")?;
    // From here on the log may be trimmed below `at`: another attempt goes on with what stands there now.
    UnderWay { placed: Some(placed), ..mark }.write(&**disk)?;
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

/// Removes the half of a namespace that an interrupted attempt has left.
fn remove_new(data: &DataDir) -> Result<(), DiskError> {
    match std::fs::remove_dir_all(data.path.join(NEW)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(DiskError { op: disk::DiskOp::Remove, path: NEW.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

/// What is in the namespace's place once `backup` was followed so far, beside `log`.
#[must_use]
pub fn placed(backup: &Manifest, way: Way, log: Option<LogHere>) -> Placed {
    Placed { backup: Which::of(backup), beside: log.map_or(0, |log| log.incarnation), way }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_fits_the_log_that_a_start_would_open_it_with() {
        let log = Some(LogHere { incarnation: 5, oldest: Seq(10), end: Seq(20) });
        let fits = |engine, incarnation, checkpoint, log| {
            let (engine, checkpoint) = (Seq(engine), Seq(checkpoint));
            fits(Standing { engine, checkpoint }, Applied { seq: engine, incarnation }, log)
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
    fn what_is_there_goes_aside_under_a_name_of_its_own() {
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
