//! `weir db import`, `export`, `dump` and `continue`: a namespace between the embedded engine and a database.
//!
//! - [`import`]: from the data directory of a stopped manager, or from a backup, into a database;
//! - [`export`]: from a database into the data directory of its manager;
//! - [`dump`]: from a database into a folder of backups, which `weir restore` and [`import`] read;
//! - [`go_on`]: continues a database that has lost transactions above everything that it may have handed out.
//!
//! At any time at most one of the two can be used: the database is closed, or the directory has the mark [`DatabaseMark`], or both during the copy.
//! Only after both were read and compared entry by entry the new one is opened. The old one stays: the directory's namespace under another name,
//! the database's closed.

pub mod dump;
pub mod export;
pub mod go_on;
pub mod import;

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use console::Exit;
use database::{Compared, Copying, compare};
use disk::{Disk, DiskError};
use foundation::layout::{JOURNAL_DIR, NAMESPACE_DIR};
use foundation::{DataDir, IndexFoundation, OpenError, Settings};
use journal::{Journal, JournalConfig, Seq, StreamId};
use kv::{Batch, EntrySource};
use types::ClusterId;

use crate::Error;

#[cfg(doc)]
use foundation::DatabaseMark;

/// Entries of an index that are read at once.
const CHUNK: usize = 1000;
/// The prefix of the names of namespaces that were moved away; a number follows.
const MOVED: &str = "namespace-moved-";
/// The prefix of the names of former journals; a number follows.
const FORMER_JOURNAL: &str = "journal-moved-";

/// The line on the terminal that shows how far a copy is.
struct Screen {
    what: &'static str,
    last: Instant,
    is_shown: bool,
}

impl Screen {
    fn new(is_quiet: bool) -> Self {
        Self { what: "", last: Instant::now(), is_shown: io::stderr().is_terminal() && !is_quiet }
    }

    /// `entries` were worked on.
    fn step(&mut self, entries: u64) {
        if self.is_shown && self.last.elapsed() > Duration::from_millis(200) {
            self.last = Instant::now();
            let _ = write!(io::stderr(), "\r\x1b[K{entries} entries {}", self.what);
        }
    }

    fn clear(&self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// Compares what was copied with its source. Returns the number of entries.
fn verify(source: &mut dyn EntrySource, copy: &mut dyn EntrySource, screen: &mut Screen) -> Result<u64, Error> {
    screen.what = "compared";
    let compared = compare(source, copy, &mut |entries| screen.step(entries));
    screen.clear();
    match compared.map_err(Error::Copy)? {
        Compared::Equal { entries } => Ok(entries),
        Compared::Different { key, what } => Err(Error::CopyDiffers { key: key.escape_ascii().to_string(), what }),
    }
}

/// Whether the directory has a folder for a namespace.
fn has_namespace(disk: &dyn Disk) -> Result<bool, DiskError> {
    has_folder(disk, NAMESPACE_DIR)
}

fn has_folder(disk: &dyn Disk, name: &str) -> Result<bool, DiskError> {
    Ok(disk.list("")?.iter().any(|entry| entry.is_dir && entry.name == name))
}

/// Gives the folder `name` another name, which says that it was moved away. Returns it.
fn move_aside(disk: &dyn Disk, name: &str, prefix: &str) -> Result<String, DiskError> {
    let number = |name: &str| name.strip_prefix(prefix).and_then(|number| number.parse::<u64>().ok());
    let last = disk.list("")?.iter().filter_map(|entry| number(&entry.name)).max().unwrap_or(0);
    let aside = format!("{prefix}{}", last.saturating_add(1));
    disk.rename(name, &aside)?;
    disk.sync_dir("")?;
    Ok(aside)
}

/// Begins a new journal, and moves the one that is there aside. Returns the new one's last record and incarnation, and the name of the old one.
fn renew_journal(disk: &Arc<dyn Disk>, settings: &Settings) -> Result<((Seq, u64), Option<String>), OpenError> {
    let is_there = has_folder(&**disk, JOURNAL_DIR)?;
    let aside = is_there.then(|| move_aside(&**disk, JOURNAL_DIR, FORMER_JOURNAL)).transpose()?;
    Ok((new_journal(disk, settings)?, aside))
}

/// Begins a journal. Returns its last record and its incarnation.
fn new_journal(disk: &Arc<dyn Disk>, settings: &Settings) -> Result<(Seq, u64), OpenError> {
    let config = JournalConfig { streams: vec![StreamId::NAMESPACE], ..settings.journal() };
    let (journal, _) = Journal::open(Arc::clone(disk), JOURNAL_DIR, config)?;
    // A checkpoint stands at a record: no record is the state before all.
    let failed = |source| OpenError::Index { which: "namespace", source };
    let nothing = Batch::new().encode().map_err(failed)?;
    let seq = journal.append(StreamId::NAMESPACE, &[&nothing])?.seq;
    journal.sync_to(seq)?;
    let incarnation = journal.incarnation();
    journal.close()?;
    Ok((seq, incarnation))
}

/// The data directory of a cluster's manager, as a copy's source or target is called.
fn described(data: &DataDir) -> String {
    let path = std::fs::canonicalize(&data.path).unwrap_or_else(|_| data.path.clone());
    format!("the data directory {} made at {}", path.display(), data.format.created.0)
}

fn cluster_of(data: &DataDir) -> ClusterId {
    ClusterId(data.format.cluster)
}

fn refused(data: &DataDir, error: OpenError) -> Error {
    foundation::refused(data, error).into()
}

/// Compares the namespace that stands in `data` with the entries of the database.
fn verify_directory(
    data: &DataDir,
    settings: &Settings,
    copying: &mut Copying,
    screen: &mut Screen,
) -> Result<u64, Error> {
    let foundation = IndexFoundation::open_index(data, settings).map_err(|error| refused(data, error))?;
    let verified = {
        let snapshot = foundation.names.index.snapshot();
        let mut there = kv::Chunks::new(|after| kv::chunk_of(&*snapshot, after, CHUNK));
        verify(&mut copying.entries(), &mut there, screen)
    };
    foundation.close().map_err(Error::Close)?;
    verified
}

/// Prints the result: `json`, or `words`.
fn say(is_json: bool, json: &serde_json::Value, words: &[String]) -> Result<Exit, Error> {
    let mut stdout = io::stdout().lock();
    let printed =
        if is_json { writeln!(stdout, "{json}") } else { words.iter().try_for_each(|line| writeln!(stdout, "{line}")) };
    printed.and_then(|()| stdout.flush()).map_err(Error::Print)?;
    Ok(Exit::Done)
}
