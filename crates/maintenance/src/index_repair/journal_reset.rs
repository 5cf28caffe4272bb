//! The last resort if the journal is lost and the indexes are not. It starts a new journal and places the indexes at its beginning. The new record
//! numbers are above all that the lost journal can have used.
//!
//! Each step can be interrupted anywhere and repeated:
//! 1. Move the folder of the old journal aside, unless it is empty.
//! 2. Write a mark that describes the new journal.
//! 3. Create that journal.
//! 4. Place the indexes at its beginning.
//! 5. Start a new incarnation of the namespace.
//! 6. Write into the mark that all is done.
//!
//! Until then the node does not start. From the mark on, the store deletes no unknown files: the lost journal may have known more of them than the
//! index does.

use std::sync::Arc;

use console::Exit;
use disk::{Disk, DiskError};
use foundation::layout::{INDEXES, JOURNAL_DIR, NAMESPACE_CHECKPOINT_DIR, STORE_CHECKPOINT_DIR, STORE_DIR};
use foundation::marks::JournalReset;
use foundation::{DataDir, DirRole, OpenError, Settings, disk_of, engine, holds_anything};
use journal::{Beginning, Journal, JournalError, Seq, StreamId};
use kv::{Applied, Engine, IndexPositions, WithoutJournal};
use store::StoreError;

use crate::Error;

/// The prefix of the names of lost journals' folders; a number follows.
const ASIDE: &str = "journal-lost-";
/// Record numbers left free above the highest known one.
const LEFT_FREE: u64 = 1 << 20;

/// Why no new journal was begun.
#[derive(Debug, thiserror::Error)]
pub enum JournalResetError {
    /// A part could not be opened or changed.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The journal exists, so no new one is needed.
    #[error(
        "the journal is there, and goes as far as the indexes: nothing was changed. If it is another node's, move journal away first"
    )]
    JournalExists,
    /// A part of the old journal exists.
    #[error(
        "a part of the journal is there, records {oldest} to {last}: put the missing segments back. If they are lost \
         for good, rename journal to journal-lost-by-hand and run this again: what it holds is then lost. Nothing \
         was changed"
    )]
    PartOfJournalExists {
        /// Its first record.
        oldest: u64,
        /// Its last record.
        last: u64,
    },
    /// Neither the index nor its checkpoints hold anything from which a new journal could continue.
    #[error(
        "there is no journal, and neither the index of the {which} nor its checkpoints hold anything: with a new \
         journal there would be nothing left. Put {which}/index and {which}/checkpoint back; nothing was changed"
    )]
    NoIndex {
        /// The owner of the index.
        which: &'static str,
    },
}

impl JournalResetError {
    /// The exit code of the command.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Open(error) => error.exit(),
            Self::JournalExists | Self::PartOfJournalExists { .. } => Exit::Failed,
            Self::NoIndex { .. } => Exit::Damaged,
        }
    }
}

impl From<DiskError> for JournalResetError {
    fn from(error: DiskError) -> Self {
        Self::Open(error.into())
    }
}

impl From<JournalError> for JournalResetError {
    fn from(error: JournalError) -> Self {
        Self::Open(error.into())
    }
}

impl From<StoreError> for JournalResetError {
    fn from(error: StoreError) -> Self {
        Self::Open(error.into())
    }
}

/// The result of [`reset_journal`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResetJournal {
    /// How the new journal begins.
    pub beginning: Beginning,
    /// The folder with the remains of the lost journal.
    pub aside: Option<String>,
}

/// What to do if the store's index is lost completely.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreIndex {
    /// Refuse: the index may be on a disk that is not mounted.
    MustExist,
    /// Continue: the caller rebuilds it from the files of objects.
    MayBeRebuilt,
}

/// Starts a new journal and makes the indexes follow it, or finishes an interrupted attempt. The caller then starts the namespace's new incarnation
/// and calls [`finish`].
///
/// # Errors
///
/// [`JournalResetError::JournalExists`] if the journal is not lost.
pub fn reset_journal(
    data: &DataDir,
    settings: &Settings,
    store_index: StoreIndex,
) -> Result<ResetJournal, JournalResetError> {
    let disk = disk_of(data);
    let unfinished = JournalReset::read(&*disk)?.filter(|mark| !mark.finished);
    let (beginning, aside) = match unfinished {
        Some(mark) => (mark.beginning, None),
        None => prepare(data, &disk, settings, store_index)?,
    };
    Journal::begin(&*disk, JOURNAL_DIR, &settings.journal(), &beginning)?;
    for index in Index::of(data) {
        index.place(data, &disk, settings, beginning, store_index)?;
    }
    Ok(ResetJournal { beginning, aside })
}

/// Adds the remedy, if any, to the error of a command that could not start a new journal in `data`.
#[must_use]
pub fn refused(data: &DataDir, error: JournalResetError) -> Error {
    match error {
        JournalResetError::Open(error) => foundation::refused(data, error).into(),
        source => Error::JournalReset { data: data.path.clone(), source },
    }
}

/// Everything follows the new journal: the node may start.
pub fn finish(disk: &dyn Disk) -> Result<(), OpenError> {
    match JournalReset::read(disk)? {
        Some(mark) if !mark.finished => Ok(JournalReset { finished: true, ..mark }.write(disk)?),
        _ => Ok(()),
    }
}

/// Makes sure that the journal is lost, moves its remains aside, and writes the mark.
fn prepare(
    data: &DataDir,
    disk: &Arc<dyn Disk>,
    settings: &Settings,
    store_index: StoreIndex,
) -> Result<(Beginning, Option<String>), JournalResetError> {
    if !holds_anything(&**disk)? {
        return Err(JournalResetError::NoIndex { which: "namespace" });
    }
    let found = find_log(&**disk, settings)?;
    let mut standings = Vec::new();
    for index in Index::of(data) {
        standings.push(index.standing(data, disk, settings)?);
    }
    if let Some((oldest, last)) = found {
        let fits = |standing: &IndexPositions| standing.furthest() <= last && standing.furthest().next() >= oldest;
        if standings.iter().all(fits) {
            return Err(JournalResetError::JournalExists);
        }
        return Err(JournalResetError::PartOfJournalExists { oldest: oldest.0, last: last.0 });
    }
    for (index, standing) in Index::of(data).iter().zip(&standings) {
        index.must_hold_something(&**disk, standing, store_index)?;
    }
    let mut referred = 0;
    for index in Index::of(data) {
        referred = referred.max(index.bring_up(data, disk, settings)?);
    }
    let known = standings.iter().map(IndexPositions::furthest).max().unwrap_or_default();
    let known = known.max(last_aside(&**disk, settings)?);
    let aside = move_aside(&**disk)?;
    let beginning = Beginning::new(Seq(known.0.saturating_add(1 + LEFT_FREE)), referred.saturating_add(1));
    JournalReset { beginning, finished: false }.write(&**disk)?;
    Ok((beginning, aside))
}

/// The first and the last record of the journal; `None`: there is no journal. A damaged journal is not lost: that is an error.
fn find_log(disk: &dyn Disk, settings: &Settings) -> Result<Option<(Seq, Seq)>, JournalResetError> {
    if !is_folder(disk, JOURNAL_DIR)? {
        return Ok(None);
    }
    match Journal::check(disk, JOURNAL_DIR, &settings.journal()) {
        Ok(found) => Ok(Some((found.oldest, found.last))),
        Err(JournalError::Missing { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The last record of the journals moved aside. An earlier attempt may have stopped before it wrote the mark, or the operator has moved them.
fn last_aside(disk: &dyn Disk, settings: &Settings) -> Result<Seq, JournalResetError> {
    let mut last = Seq::ZERO;
    for entry in disk.list("")?.into_iter().filter(|entry| entry.is_dir && entry.name.starts_with(ASIDE)) {
        // A damaged part is ignored: the numbers left free cover it.
        if let Ok(found) = Journal::check(disk, &entry.name, &settings.journal()) {
            last = last.max(found.last);
        }
    }
    Ok(last)
}

fn is_folder(disk: &dyn Disk, name: &str) -> Result<bool, DiskError> {
    Ok(disk.list("")?.iter().any(|entry| entry.is_dir && entry.name == name))
}

/// Renames the journal's folder, unless it is empty: a new disk may be mounted on it.
fn move_aside(disk: &dyn Disk) -> Result<Option<String>, JournalResetError> {
    if !is_folder(disk, JOURNAL_DIR)? || disk.list(JOURNAL_DIR)?.iter().all(|entry| entry.name == "lost+found") {
        return Ok(None);
    }
    let number = |name: &str| name.strip_prefix(ASIDE).and_then(|number| number.parse::<u64>().ok());
    let last = disk.list("")?.iter().filter_map(|entry| number(&entry.name)).max().unwrap_or(0);
    let aside = format!("{ASIDE}{}", last.saturating_add(1));
    disk.rename(JOURNAL_DIR, &aside)?;
    disk.sync_dir("")?;
    Ok(Some(aside))
}

/// An index, and the paths of its parts.
struct Index {
    which: &'static str,
    stream: StreamId,
    dir: &'static str,
    checkpoint: &'static str,
}

impl Index {
    /// The indexes in `data`: a manager has no store.
    fn of(data: &DataDir) -> Vec<Self> {
        let [(namespace, namespace_dir), (store, store_dir)] = INDEXES;
        let stream = StreamId::NAMESPACE;
        let mut all = vec![Self { which: namespace, stream, dir: namespace_dir, checkpoint: NAMESPACE_CHECKPOINT_DIR }];
        if data.format.role != DirRole::Manager {
            let stream = StreamId::STORE_INDEX;
            all.push(Self { which: store, stream, dir: store_dir, checkpoint: STORE_CHECKPOINT_DIR });
        }
        all
    }

    fn failed(&self) -> impl Fn(kv::KvError) -> JournalResetError + use<> {
        let which = self.which;
        move |source| OpenError::Index { which, source }.into()
    }

    /// Runs `what` on the engine and its checkpoints.
    fn with<T>(
        &self,
        data: &DataDir,
        disk: &Arc<dyn Disk>,
        settings: &Settings,
        what: impl FnOnce(&dyn Engine, &mut WithoutJournal) -> Result<T, JournalResetError>,
    ) -> Result<T, JournalResetError> {
        let engine = engine(data, self.dir, settings).map_err(self.failed())?;
        let opened = WithoutJournal::open(self.stream, Arc::clone(disk), self.checkpoint).map_err(self.failed());
        let done = opened.and_then(|mut without_journal| what(&*engine, &mut without_journal));
        engine.close();
        done
    }

    fn standing(
        &self,
        data: &DataDir,
        disk: &Arc<dyn Disk>,
        settings: &Settings,
    ) -> Result<IndexPositions, JournalResetError> {
        self.with(data, disk, settings, |engine, without_journal| Ok(without_journal.standing(engine)))
    }

    /// Writes everything that is left of the index into the engine. Returns the highest journal segment to which it points.
    fn bring_up(&self, data: &DataDir, disk: &Arc<dyn Disk>, settings: &Settings) -> Result<u64, JournalResetError> {
        self.with(data, disk, settings, |engine, without_journal| {
            without_journal.bring_up(engine).map_err(self.failed())?;
            if self.stream != StreamId::STORE_INDEX {
                return Ok(0);
            }
            Ok(store::highest_journal_segment(&*engine.snapshot())?)
        })
    }

    /// Places the index at the beginning of the new journal, unless it is there already.
    fn place(
        &self,
        data: &DataDir,
        disk: &Arc<dyn Disk>,
        settings: &Settings,
        beginning: Beginning,
        store_index: StoreIndex,
    ) -> Result<(), JournalResetError> {
        self.with(data, disk, settings, |engine, without_journal| {
            if engine.applied().incarnation == beginning.incarnation {
                return Ok(());
            }
            self.must_hold_something(&**disk, &without_journal.standing(engine), store_index)?;
            without_journal.bring_up(engine).map_err(self.failed())?;
            let applied = Applied { seq: Seq(beginning.first.0 - 1), incarnation: beginning.incarnation };
            WithoutJournal::place(engine, applied).map_err(self.failed())
        })
    }

    /// Refuses to continue with an empty index. The real one may be on a disk that is not mounted, and a new journal would no longer fit it. A store
    /// without files may be empty.
    fn must_hold_something(
        &self,
        disk: &dyn Disk,
        standing: &IndexPositions,
        store_index: StoreIndex,
    ) -> Result<(), JournalResetError> {
        if standing.furthest() > Seq::ZERO
            || self.stream == StreamId::STORE_INDEX && store_index == StoreIndex::MayBeRebuilt
        {
            return Ok(());
        }
        let holds_files = |folder: &str| -> Result<bool, DiskError> {
            let there = is_folder(disk, STORE_DIR)?
                && disk.list(STORE_DIR)?.iter().any(|entry| entry.is_dir && entry.name == folder);
            Ok(there && !disk.list(&format!("{STORE_DIR}/{folder}"))?.is_empty())
        };
        if self.stream == StreamId::STORE_INDEX && !holds_files("objects")? && !holds_files("segments")? {
            return Ok(());
        }
        Err(JournalResetError::NoIndex { which: self.which })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remains_of_a_journal_are_moved_aside_and_an_empty_folder_is_used() {
        let temp = tempfile::tempdir().unwrap();
        let disk = disk::RealDisk::open(temp.path()).unwrap();
        assert_eq!(move_aside(&disk).unwrap(), None);
        for (file, aside) in [("lost+found", None), ("x", Some("journal-lost-1")), ("y", Some("journal-lost-2"))] {
            std::fs::create_dir_all(temp.path().join("journal").join(file)).unwrap();
            assert_eq!(move_aside(&disk).unwrap().as_deref(), aside);
            std::fs::remove_dir_all(temp.path().join("journal")).ok();
            assert!(aside.is_none_or(|aside| temp.path().join(aside).join(file).exists()));
        }
    }
}
