//! An export without the namespace: every object of the store, under the path at which it was created.
//!
//! It uses the store's own index if that can be opened. Otherwise it builds an index from the files of objects, in the target, and deletes it
//! afterwards. The data directory stays as it is.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use disk::{Disk, RealDisk};
use foundation::layout::{JOURNAL_DIR, STORE_CHECKPOINT_DIR, STORE_DIR, STORE_INDEX_DIR};
use foundation::{DataDir, OpenError, Settings, disk_of, engine};
use journal::{Journal, JournalConfig, StreamId};
use kv::{IndexConfig, JournaledIndex, KvError, LsmConfig, LsmEngine};
use store::{Store, StoreConfig};

use super::ExportOptions;
use super::copy::{Copier, Facts};
use super::out::{FileMetadata, TargetFolder};
use super::report::{ExportProblem, Report};
use crate::Error;

/// Objects read at a time.
const PAGE: usize = 1024;
/// The mode of files whose mode is unknown.
const MODE: u32 = 0o644;

/// An open store and the parts below it.
struct Opened {
    store: Arc<Store>,
    index: Arc<JournaledIndex>,
    journal: Arc<Journal>,
}

impl Opened {
    fn close(&self) -> Result<(), OpenError> {
        self.index.close().map_err(of_index)?;
        Ok(self.journal.close()?)
    }
}

/// Exports every object.
pub fn export(
    data: &DataDir,
    settings: &Settings,
    out: &TargetFolder,
    args: &ExportOptions,
    report: &mut Report,
) -> Result<(), Error> {
    let failed = Error::ExportObjects;
    let disk = disk_of(data);
    let opened = match own(data, settings, &disk) {
        Ok(opened) => opened,
        Err(error) => {
            let _ = writeln!(
                std::io::stderr(),
                "the store's index cannot be used ({error}): one is built again from the files of objects. Small files that were still in the journal are not among them, and some that were removed recently may come back"
            );
            from_files(&disk, out, report).map_err(failed)?
        }
    };
    let exported = all(&opened.store, &data.held(), &mut Copier::new(&opened.store, out, args.damaged), report);
    let closed = opened.close();
    exported?;
    closed.map_err(failed)
}

fn all(store: &Store, data: &Path, copier: &mut Copier<'_>, report: &mut Report) -> Result<(), Error> {
    let failed = Error::ReadStore;
    let mut before = None;
    loop {
        // Newest first: of several objects with one path, the newest gets the name.
        let page = store.replicas_before(before, PAGE).map_err(failed)?;
        let Some(last) = page.last() else { return Ok(()) };
        before = Some(*last);
        for replica in page {
            let facts = store.provenance(replica).map_err(failed)?;
            let time = facts.file.and_then(|file| modified(&data.join(file))).unwrap_or(SystemTime::UNIX_EPOCH);
            // Only the namespace knows the owner and the attributes.
            let about = FileMetadata { mode: MODE, time, owner: None, xattrs: Vec::new() };
            copier.file(&Facts { path: &facts.path_hint, replica, about, interrupted: false }, report)?;
        }
    }
}

/// When a file of the store was last written.
fn modified(file: &Path) -> Option<SystemTime> {
    file.metadata().and_then(|there| there.modified()).ok()
}

/// Opens the store with its own index.
fn own(data: &DataDir, settings: &Settings, disk: &Arc<dyn Disk>) -> Result<Opened, OpenError> {
    if foundation::marks::is_rebuilding(&**disk)? {
        return Err(OpenError::RebuildInterrupted);
    }
    let journal_config = JournalConfig { must_exist: true, ..settings.journal() };
    let (journal, opened) = Journal::open(Arc::clone(disk), JOURNAL_DIR, journal_config)?;
    let journal = Arc::new(journal);
    let engine = engine(data, STORE_INDEX_DIR, settings).map_err(of_index)?;
    let index_config = IndexConfig { background: false, journal_ended_at: Some(opened.last), ..IndexConfig::default() };
    let (log, dir) = (Arc::clone(&journal), STORE_CHECKPOINT_DIR);
    let (index, _) = JournaledIndex::open(log, StreamId::STORE_INDEX, engine, Arc::clone(disk), dir, index_config)
        .map_err(of_index)?;
    open_store(disk, journal, index)
}

/// Builds an index from the files of objects, in the target.
fn from_files(disk: &Arc<dyn Disk>, out: &TargetFolder, report: &mut Report) -> Result<Opened, OpenError> {
    let work = out.work();
    let scratch: Arc<dyn Disk> = Arc::new(RealDisk::open(&work)?);
    let streams = vec![StreamId::STORE_INDEX, StreamId::STORE_DATA];
    let journal_config = JournalConfig { streams, ballast: None, ..JournalConfig::default() };
    let (journal, _) = Journal::open(Arc::clone(&scratch), JOURNAL_DIR, journal_config)?;
    let journal = Arc::new(journal);
    let engine = Box::new(LsmEngine::open(&work.join("index"), LsmConfig::default()).map_err(of_index)?);
    let log = Arc::clone(&journal);
    let (index, _) =
        JournaledIndex::open(log, StreamId::STORE_INDEX, engine, scratch, "checkpoint", IndexConfig::default())
            .map_err(of_index)?;
    let rebuilt = Store::rebuild_index(Arc::clone(disk), STORE_DIR, Arc::clone(&journal), Arc::clone(&index) as _)?;
    for file in rebuilt.unreadable {
        report.trouble(ExportProblem::Missing, &file, "cannot be read as objects");
    }
    open_store(disk, journal, index)
}

fn open_store(disk: &Arc<dyn Disk>, journal: Arc<Journal>, index: Arc<JournaledIndex>) -> Result<Opened, OpenError> {
    let config = StoreConfig { find_orphans: false, clear_away: false, ..StoreConfig::default() };
    let records = Arc::clone(&index) as Arc<dyn store::RecordIndex>;
    let (store, _) = Store::open(Arc::clone(disk), STORE_DIR, Arc::clone(&journal), records, config)?;
    Ok(Opened { store, index, journal })
}

fn of_index(source: KvError) -> OpenError {
    OpenError::Index { which: "store", source }
}
