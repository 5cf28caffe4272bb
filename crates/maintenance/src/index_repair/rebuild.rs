//! `weir fsck --rebuild-store`: the store's index, lost with its checkpoints, made anew from the files of contents.
//!
//! From before the first change until everything is in the new index, a file says that the rebuild is under way: an index with half of
//! its records looks like a whole one, and a node on it would miss the other half. Whatever interrupts the rebuild, it is begun again.

use std::sync::Arc;

use disk::{Access, Disk, DiskError, OpenOptions};
use foundation::layout::{JOURNAL_DIR, STORE_CHECKPOINT_DIR, STORE_DIR, STORE_INDEX_DIR};
use foundation::marks::REBUILDING;
use foundation::runs::Runs;
use foundation::{DataDir, Foundation, OpenError, Settings, disk_of, engine, marks};
use journal::{Journal, JournalConfig, StreamId};
use kv::{IndexConfig, KvError, LoggedIndex};
use namespace::FileState;
use store::Store;
use types::{GroupId, ReplicaId};

/// Bodies asked for at a time.
const PAGE: usize = 1024;

/// Makes the store's index anew from segments and sidecars, if it is lost; `None`: it is not, and nothing was changed. Afterwards
/// [`restore_empty`] and [`finish`] are due.
pub fn rebuild(data: &DataDir, settings: &Settings) -> Result<Option<store::Rebuilt>, OpenError> {
    let disk = disk_of(data)?;
    if !marks::is_rebuilding(&*disk)? {
        if !is_lost(data, settings, &disk)? {
            return Ok(None);
        }
        // What comes back without a name may be the only copy of something: the store clears nothing away from now on.
        Runs { older_accepted: true, ..Runs::read(&*disk)? }.write(&*disk)?;
        disk.open(REBUILDING, OpenOptions { access: Access::CreateNew, direct: false })?.sync_data()?;
        disk.sync_dir(STORE_DIR)?;
    }
    fill(data, settings, true).map(Some)
}

/// Adds to the store's index what is newer in the files of contents: where the index is older than they are.
pub fn catch_up(data: &DataDir, settings: &Settings) -> Result<store::Rebuilt, OpenError> {
    fill(data, settings, false)
}

fn fill(data: &DataDir, settings: &Settings, begin_empty: bool) -> Result<store::Rebuilt, OpenError> {
    let disk = disk_of(data)?;
    let (journal, index) = open(data, settings, &disk, begin_empty)?;
    let rebuilt = Store::rebuild_index(disk, STORE_DIR, Arc::clone(&journal), Arc::clone(&index) as _)?;
    index.close().map_err(of_store)?;
    journal.close()?;
    Ok(rebuilt)
}

/// Complete files without a byte have no place but the index: those that the namespace names are put into it. `over`: also where the
/// store has found bytes; only where the namespace is the newer of the two.
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

/// All is in the new index, and durable: the node may start.
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
) -> Result<(Arc<Journal>, Arc<LoggedIndex>), OpenError> {
    // The log has what is newer than all files of contents; without it there is more to mend than an index.
    let journal_config = JournalConfig { must_exist: true, ..settings.journal() };
    let (journal, opened) = Journal::open(Arc::clone(disk), JOURNAL_DIR, journal_config)?;
    let journal = Arc::new(journal);
    let index_config =
        IndexConfig { background: false, log_ended_at: Some(opened.last), begin_empty, ..IndexConfig::default() };
    let engine = engine(data, STORE_INDEX_DIR, settings).map_err(of_store)?;
    let (log, disk) = (Arc::clone(&journal), Arc::clone(disk));
    let opened = LoggedIndex::open(log, StreamId::STORE_INDEX, engine, disk, STORE_CHECKPOINT_DIR, index_config);
    Ok((journal, opened.map_err(of_store)?.0))
}

fn of_store(source: KvError) -> OpenError {
    OpenError::Index { which: "store", source }
}
