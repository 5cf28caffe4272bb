//! The last resort where the log is lost and the indexes are not: a new log, numbered above all that the lost one can have
//! left behind, and the indexes as they are at its beginning.
//!
//! Each step can be interrupted anywhere and done again. First the folder of the old log is moved aside, if there is
//! anything in it; then a mark is written that says which log is to begin; then that log is made; then the indexes are
//! placed at its beginning; the namespace begins a new life; and the mark says that all is done. Until then no start goes on,
//! and from the mark on nothing in the store is cleared away: the lost log may have known more of it than the index does.

use std::sync::Arc;

use console::Exit;
use disk::{Disk, DiskError};
use foundation::layout::{INDEXES, JOURNAL_DIR, NAMESPACE_CHECKPOINT_DIR, STORE_CHECKPOINT_DIR, STORE_DIR};
use foundation::marks::NewLog;
use foundation::{DataDir, OpenError, Settings, disk_of, engine, holds_anything};
use journal::{Beginning, Journal, JournalError, Seq, StreamId};
use kv::{Applied, Engine, Standing, WithoutLog};
use store::StoreError;

use crate::Error;

/// How folders of lost logs are called, a number behind it.
const ASIDE: &str = "journal-lost-";
/// Numbers of records left free above the highest that is known.
const LEFT_FREE: u64 = 1 << 20;

/// Why no new log was begun.
#[derive(Debug, thiserror::Error)]
pub enum NewLogError {
    /// What is there could not be opened, or does not take a change.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A new log was asked for where there is one.
    #[error(
        "the journal is there, and goes as far as the indexes: nothing was changed. If it is another node's, move journal away first"
    )]
    LogIsThere,
    /// A new log was asked for where a part of the old one is left.
    #[error(
        "a part of the journal is there, records {oldest} to {last}: put the missing segments back. If they are lost \
         for good, rename journal to journal-lost-by-hand and run this again: what it holds is then lost. Nothing \
         was changed"
    )]
    PartOfLog {
        /// Its first record.
        oldest: u64,
        /// Its last.
        last: u64,
    },
    /// Neither the index nor its checkpoints hold anything that a new log could go on with.
    #[error(
        "there is no journal, and neither the index of the {which} nor its checkpoints hold anything: with a new \
         journal there would be nothing left. Put {which}/index and {which}/checkpoint back; nothing was changed"
    )]
    NothingToGoOnWith {
        /// Whose.
        which: &'static str,
    },
}

impl NewLogError {
    /// The code that the run ends with.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Open(error) => error.exit(),
            Self::LogIsThere | Self::PartOfLog { .. } => Exit::Failed,
            Self::NothingToGoOnWith { .. } => Exit::Damaged,
        }
    }
}

impl From<DiskError> for NewLogError {
    fn from(error: DiskError) -> Self {
        Self::Open(error.into())
    }
}

impl From<JournalError> for NewLogError {
    fn from(error: JournalError) -> Self {
        Self::Open(error.into())
    }
}

impl From<StoreError> for NewLogError {
    fn from(error: StoreError) -> Self {
        Self::Open(error.into())
    }
}

/// What was done by [`begin_new_log`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Begun {
    /// How the new log begins.
    pub beginning: Beginning,
    /// The folder that holds what was left of the lost one.
    pub aside: Option<String>,
}

/// What to do where nothing is left of the store's index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreIndex {
    /// Refuse: it may be mounted elsewhere.
    MustBeThere,
    /// Go on: the caller makes it anew from the files of contents.
    MayBeMadeAnew,
}

/// Begins a new log and lets the indexes follow it, or finishes what was interrupted. The namespace's new life and
/// [`finish`] are to come.
///
/// # Errors
/// [`NewLogError::LogIsThere`] where the log is not lost.
pub fn begin_new_log(data: &DataDir, settings: &Settings, store_index: StoreIndex) -> Result<Begun, NewLogError> {
    let disk = disk_of(data)?;
    let unfinished = NewLog::read(&*disk)?.filter(|mark| !mark.finished);
    let (beginning, aside) = match unfinished {
        Some(mark) => (mark.beginning, None),
        None => prepare(data, &disk, settings, store_index)?,
    };
    Journal::begin(&*disk, JOURNAL_DIR, &settings.journal(), &beginning)?;
    for index in Index::all() {
        index.place(data, &disk, settings, beginning, store_index)?;
    }
    Ok(Begun { beginning, aside })
}

/// Says of a command that could not begin a new log in `data` what helps, where something does.
#[must_use]
pub fn refused(data: &DataDir, error: NewLogError) -> Error {
    match error {
        NewLogError::Open(error) => foundation::refused(data, error).into(),
        source => Error::NewLog { data: data.path.clone(), source },
    }
}

/// All has followed the new log: the node may start.
pub fn finish(disk: &dyn Disk) -> Result<(), OpenError> {
    match NewLog::read(disk)? {
        Some(mark) if !mark.finished => Ok(NewLog { finished: true, ..mark }.write(disk)?),
        _ => Ok(()),
    }
}

/// Makes sure that the log is lost, takes what is left of it out of the way, and writes the mark.
fn prepare(
    data: &DataDir,
    disk: &Arc<dyn Disk>,
    settings: &Settings,
    store_index: StoreIndex,
) -> Result<(Beginning, Option<String>), NewLogError> {
    if !holds_anything(&**disk)? {
        return Err(NewLogError::NothingToGoOnWith { which: "namespace" });
    }
    let found = find_log(&**disk, settings)?;
    let mut standings = Vec::new();
    for index in Index::all() {
        standings.push(index.standing(data, disk, settings)?);
    }
    if let Some((oldest, last)) = found {
        let fits = |standing: &Standing| standing.furthest() <= last && standing.furthest().next() >= oldest;
        if standings.iter().all(fits) {
            return Err(NewLogError::LogIsThere);
        }
        return Err(NewLogError::PartOfLog { oldest: oldest.0, last: last.0 });
    }
    for (index, standing) in Index::all().iter().zip(&standings) {
        index.must_hold_something(&**disk, standing, store_index)?;
    }
    let mut referred = 0;
    for index in Index::all() {
        referred = referred.max(index.bring_up(data, disk, settings)?);
    }
    let known = standings.iter().map(Standing::furthest).max().unwrap_or_default();
    let known = known.max(last_aside(&**disk, settings)?);
    let aside = move_aside(&**disk)?;
    let beginning = Beginning::new(Seq(known.0.saturating_add(1 + LEFT_FREE)), referred.saturating_add(1));
    NewLog { beginning, finished: false }.write(&**disk)?;
    Ok((beginning, aside))
}

/// The first and the last record of the log; `None`: there is none. A damaged one is not lost: that is an error.
fn find_log(disk: &dyn Disk, settings: &Settings) -> Result<Option<(Seq, Seq)>, NewLogError> {
    if !is_folder(disk, JOURNAL_DIR)? {
        return Ok(None);
    }
    match Journal::check(disk, JOURNAL_DIR, &settings.journal()) {
        Ok(found) => Ok(Some((found.oldest, found.last))),
        Err(JournalError::Missing { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The last record of what lies aside: an interruption may have come between moving it there and the mark, or somebody has moved it.
fn last_aside(disk: &dyn Disk, settings: &Settings) -> Result<Seq, NewLogError> {
    let mut last = Seq::ZERO;
    for entry in disk.list("")?.into_iter().filter(|entry| entry.is_dir && entry.name.starts_with(ASIDE)) {
        // What of it does not check says nothing; the numbers left free are for that.
        if let Ok(found) = Journal::check(disk, &entry.name, &settings.journal()) {
            last = last.max(found.last);
        }
    }
    Ok(last)
}

fn is_folder(disk: &dyn Disk, name: &str) -> Result<bool, DiskError> {
    Ok(disk.list("")?.iter().any(|entry| entry.is_dir && entry.name == name))
}

/// Renames the folder of the log, unless there is nothing in it: it may be where a new disk is mounted.
fn move_aside(disk: &dyn Disk) -> Result<Option<String>, NewLogError> {
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

/// An index, and where its parts are.
struct Index {
    which: &'static str,
    stream: StreamId,
    dir: &'static str,
    checkpoint: &'static str,
}

impl Index {
    fn all() -> [Self; 2] {
        let [(namespace, namespace_dir), (store, store_dir)] = INDEXES;
        let stream = StreamId::NAMESPACE;
        let namespace = Self { which: namespace, stream, dir: namespace_dir, checkpoint: NAMESPACE_CHECKPOINT_DIR };
        let stream = StreamId::STORE_INDEX;
        [namespace, Self { which: store, stream, dir: store_dir, checkpoint: STORE_CHECKPOINT_DIR }]
    }

    fn failed(&self) -> impl Fn(kv::KvError) -> NewLogError + use<> {
        let which = self.which;
        move |source| OpenError::Index { which, source }.into()
    }

    /// Does something with the engine and its checkpoints.
    fn with<T>(
        &self,
        data: &DataDir,
        disk: &Arc<dyn Disk>,
        settings: &Settings,
        what: impl FnOnce(&dyn Engine, &mut WithoutLog) -> Result<T, NewLogError>,
    ) -> Result<T, NewLogError> {
        let engine = engine(data, self.dir, settings).map_err(self.failed())?;
        let opened = WithoutLog::open(self.stream, Arc::clone(disk), self.checkpoint).map_err(self.failed());
        let done = opened.and_then(|mut without_log| what(&*engine, &mut without_log));
        engine.close();
        done
    }

    fn standing(&self, data: &DataDir, disk: &Arc<dyn Disk>, settings: &Settings) -> Result<Standing, NewLogError> {
        self.with(data, disk, settings, |engine, without_log| Ok(without_log.standing(engine)))
    }

    /// Gives the engine all that is left of the index, and tells the highest segment of the log that it points into.
    fn bring_up(&self, data: &DataDir, disk: &Arc<dyn Disk>, settings: &Settings) -> Result<u64, NewLogError> {
        self.with(data, disk, settings, |engine, without_log| {
            without_log.bring_up(engine).map_err(self.failed())?;
            if self.stream != StreamId::STORE_INDEX {
                return Ok(0);
            }
            Ok(store::highest_log_segment(&*engine.snapshot())?)
        })
    }

    /// Lets the index begin where the new log begins, unless it does already.
    fn place(
        &self,
        data: &DataDir,
        disk: &Arc<dyn Disk>,
        settings: &Settings,
        beginning: Beginning,
        store_index: StoreIndex,
    ) -> Result<(), NewLogError> {
        self.with(data, disk, settings, |engine, without_log| {
            if engine.applied().incarnation == beginning.incarnation {
                return Ok(());
            }
            self.must_hold_something(&**disk, &without_log.standing(engine), store_index)?;
            without_log.bring_up(engine).map_err(self.failed())?;
            let applied = Applied { seq: Seq(beginning.first.0 - 1), incarnation: beginning.incarnation };
            WithoutLog::place(engine, applied).map_err(self.failed())
        })
    }

    /// Refuses to go on with nothing: what is mounted elsewhere, or can be put back, would be shut out by the new log. A store
    /// without files may be empty.
    fn must_hold_something(
        &self,
        disk: &dyn Disk,
        standing: &Standing,
        store_index: StoreIndex,
    ) -> Result<(), NewLogError> {
        if standing.furthest() > Seq::ZERO
            || self.stream == StreamId::STORE_INDEX && store_index == StoreIndex::MayBeMadeAnew
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
        Err(NewLogError::NothingToGoOnWith { which: self.which })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_log_is_moved_aside_and_an_empty_folder_is_used() {
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
