//! `weir fsck --rebuild-store`: rebuilds the store's index from the files of objects, if it is lost together with its checkpoints.
//!
//! A mark says that the rebuild is under way, from before its first change until everything is in the new index. Half an index looks like a complete
//! one, and a node on it would miss the other half. After an interruption the rebuild starts again.

use std::sync::Arc;

use disk::{Access, Disk, DiskError, OpenOptions};
use foundation::layout::{JOURNAL_DIR, STORE_CHECKPOINT_DIR, STORE_DIR, STORE_INDEX_DIR};
use foundation::marks::REBUILDING;
use foundation::runs::Runs;
use foundation::{DataDir, Foundation, OpenError, Settings, disk_of, engine, marks};
use journal::{Journal, JournalConfig, StreamId};
use kv::{IndexConfig, JournaledIndex, KvError};
use namespace::FileState;
use store::Store;
use types::{GroupId, ReplicaId};

/// Objects read at a time.
const PAGE: usize = 1024;

/// Rebuilds the store's index from segments and sidecars, if it is lost. `None`: it is not lost, and nothing was changed. The caller must then call
/// [`restore_empty`] and [`finish`].
pub fn rebuild(data: &DataDir, settings: &Settings) -> Result<Option<store::Rebuilt>, OpenError> {
    let disk = disk_of(data);
    if !marks::is_rebuilding(&*disk)? {
        if !is_lost(data, settings, &disk)? {
            return Ok(None);
        }
        // A restored object without a name may be the only copy of a file. So the store deletes no unknown files from now on.
        Runs { older_accepted: true, ..Runs::read(&*disk)? }.write(&*disk)?;
        disk.open(REBUILDING, OpenOptions { access: Access::CreateNew, direct: false })?.sync_data()?;
        disk.sync_dir(STORE_DIR)?;
    }
    fill(data, settings, true).map(Some)
}

/// Adds newer objects from the files to an index that is older than they are.
pub fn catch_up(data: &DataDir, settings: &Settings) -> Result<store::Rebuilt, OpenError> {
    fill(data, settings, false)
}

fn fill(data: &DataDir, settings: &Settings, begin_empty: bool) -> Result<store::Rebuilt, OpenError> {
    let disk = disk_of(data);
    let (journal, index) = open(data, settings, &disk, begin_empty)?;
    let rebuilt = Store::rebuild_index(disk, STORE_DIR, Arc::clone(&journal), Arc::clone(&index) as _)?;
    index.close().map_err(of_store)?;
    journal.close()?;
    Ok(rebuilt)
}

/// Puts complete files without bytes into the index: they exist nowhere else, so the names come from the namespace. `over`: also if the store has
/// found bytes. Use it only if the namespace is the newer of the two.
pub fn restore_empty(foundation: &Foundation, over: bool) -> Result<u64, OpenError> {
    let read = kv::Kv::snapshot(&*foundation.names.embedded);
    let incarnation = foundation.names.namespace.incarnation();
    let (mut after, mut restored) = (None, 0);
    loop {
        let page = namespace::objects(&*read, GroupId::DEFAULT, after, PAGE)?;
        let Some(last) = page.last() else { break };
        after = Some(last.object);
        for object in page.iter().filter(|object| object.len == 0) {
            let replica = ReplicaId::first(object.object);
            let complete = namespace::stat_ino(&*read, object.ino)
                .is_ok_and(|inode| inode.content().is_some_and(|content| content.state == FileState::Complete));
            if complete {
                restored += u64::from(foundation.objects.store.restore_empty(replica, incarnation, over)?);
            }
        }
    }
    foundation.journal.sync_to(foundation.journal.appended())?;
    Ok(restored)
}

/// Everything is in the new index, and durable: the node may start.
pub fn finish(disk: &dyn Disk) -> Result<(), DiskError> {
    disk.remove(REBUILDING)?;
    disk.sync_dir(STORE_DIR)
}

fn is_lost(data: &DataDir, settings: &Settings, disk: &Arc<dyn Disk>) -> Result<bool, OpenError> {
    match open(data, settings, disk, false) {
        Ok((journal, index)) => {
            let lost = Store::index_is_lost(&**disk, STORE_DIR, &*index)?;
            index.close().map_err(of_store)?;
            journal.close()?;
            Ok(lost)
        }
        Err(OpenError::Index { source: KvError::Lost(_), .. }) => Ok(true),
        Err(error) => Err(error),
    }
}

fn open(
    data: &DataDir,
    settings: &Settings,
    disk: &Arc<dyn Disk>,
    begin_empty: bool,
) -> Result<(Arc<Journal>, Arc<JournaledIndex>), OpenError> {
    // The journal has records newer than all files of objects. If it is missing, rebuilding an index is not enough.
    let journal_config = JournalConfig { must_exist: true, ..settings.journal() };
    let (journal, opened) = Journal::open(Arc::clone(disk), JOURNAL_DIR, journal_config)?;
    let journal = Arc::new(journal);
    let index_config =
        IndexConfig { background: false, journal_ended_at: Some(opened.last), begin_empty, ..IndexConfig::default() };
    let engine = engine(data, STORE_INDEX_DIR, settings).map_err(of_store)?;
    let (log, disk) = (Arc::clone(&journal), Arc::clone(disk));
    let opened = JournaledIndex::open(log, StreamId::STORE_INDEX, engine, disk, STORE_CHECKPOINT_DIR, index_config);
    Ok((journal, opened.map_err(of_store)?.0))
}

fn of_store(source: KvError) -> OpenError {
    OpenError::Index { which: "store", source }
}
