//! A server's disk: the real store and its journal, and the state that the checks read.

use std::sync::Arc;

use cluster::replication::ObjectDigest;
use disk::{Access, Disk, OpenOptions, SimDisk};
use journal::{Journal, JournalConfig, StreamId};
use kv::{IndexConfig, JournaledIndex, MemoryEngine};
use namespace::AtRest;
use store::{FreshMemory, RecentPages, ReplicaState, Scrubbed, Scrubber, Store, StoreConfig};
use types::{BootId, ErrorCode, ReplicaId};

pub(crate) struct Stored {
    journal: Arc<Journal>,
    records: Arc<JournaledIndex>,
    store: Arc<Store>,
}

impl Stored {
    /// Opens the store on a disk, which an earlier store may have used.
    pub(crate) fn open(disk: &SimDisk) -> Result<Self, String> {
        let text = |error: &dyn std::error::Error| error.to_string();
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let streams = vec![StreamId::STORE_INDEX, StreamId::STORE_DATA];
        let config = JournalConfig { streams, ..JournalConfig::small() };
        let (journal, _) = Journal::open(Arc::clone(&shared), "journal", config).map_err(|error| text(&error))?;
        let journal = Arc::new(journal);
        let (log, engine) = (Arc::clone(&journal), Box::new(MemoryEngine::new()));
        let (stream, small) = (StreamId::STORE_INDEX, IndexConfig::small());
        let opened = JournaledIndex::open(log, stream, engine, Arc::clone(&shared), "checkpoint", small);
        let (records, _) = opened.map_err(|error| text(&error))?;
        // Values that fit the small journal.
        let config = StoreConfig {
            small_max: 8 << 10,
            segment_bytes: 32 << 10,
            floor: Some(0),
            ranges_max: 64,
            held_pages_max: 3,
            redo_bytes_max: 40 << 10,
            snapshot_after_bytes: 128 << 10,
            settle_step_bytes: 8 << 10,
            recent: Some(Arc::new(RecentPages::new(8 << 20, FreshMemory::AtOnce))),
            ..StoreConfig::default()
        };
        let (store, _) = Store::open(shared, "store", Arc::clone(&journal), Arc::clone(&records) as _, config)
            .map_err(|error| text(&error))?;
        Ok(Self { journal, records, store })
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The boot generation of this disk. It changes when unsynced bytes may be lost.
    pub(crate) fn boot(&self, kernel: BootId) -> BootId {
        self.journal.boot(kernel)
    }

    /// Whether a write of the journal has failed, or a sync of bytes that others rely on.
    pub(crate) fn has_failed(&self) -> bool {
        self.journal.has_failed()
    }

    /// The store's periodic work. A failed part is tried again, or has stopped the journal.
    pub(crate) fn tick(&self) {
        let _ = self.store.tick();
    }

    /// The store's less frequent work.
    pub(crate) fn sweep(&self) {
        let _ = self.records.sweep_now().and_then(|_| self.records.checkpoint_now());
    }

    /// The digest of a replica, if it is complete.
    pub(crate) fn whole(&self, replica: ReplicaId) -> Result<Option<ObjectDigest>, ErrorCode> {
        let status = self.store.status(replica).map_err(|error| error.code())?.ok_or(ErrorCode::NotFound)?;
        Ok(match status.state {
            ReplicaState::Complete { adler32, crc32c } => Some(ObjectDigest { len: status.len, crc32c, adler32 }),
            _ => None,
        })
    }

    /// Whether the disk has a complete replica as it was written.
    pub(crate) fn is_intact(&self, replica: ReplicaId) -> bool {
        matches!(self.store.scrub(replica, &mut Scrubber::default(), &mut |_| true), Ok(Scrubbed::Whole(_)))
    }

    /// Where a part of a complete replica is on the disk: a file and an offset. `None` if the bytes are still in the journal.
    pub(crate) fn location(&self, disk: &SimDisk, replica: ReplicaId, part: &[u8]) -> Option<(String, u64)> {
        let path = self.store.provenance(replica).ok()?.file?;
        let file = disk.open(&path, OpenOptions { access: Access::Read, direct: false }).ok()?;
        let mut bytes = vec![0; usize::try_from(file.len().ok()?).ok()?];
        let read = file.read_at(&mut bytes, 0).ok()?;
        let at = bytes[..read].windows(part.len()).position(|found| found == part)?;
        Some((path, at as u64))
    }

    /// All its replicas.
    pub(crate) fn all(&self) -> Result<Vec<ReplicaId>, String> {
        let replicas = self.store.replicas(None, usize::MAX).map_err(|error| error.to_string())?;
        Ok(replicas.into_iter().map(|(replica, _)| replica).collect())
    }

    /// Checks that the replica is complete and has this digest. The error describes the replica as it is.
    pub(crate) fn holds(&self, replica: ReplicaId, whole: ObjectDigest) -> Result<(), String> {
        if self.whole(replica) == Ok(Some(whole)) {
            return Ok(());
        }
        let status = self.store.status(replica).map_err(|error| error.to_string())?;
        let found = status.map(|status| (status.len, status.state));
        Err(format!("{found:?} of replica {replica}, and not {whole:?}"))
    }

    /// A part of a replica for the checks, including unsynced bytes. Returns fewer bytes where the replica ends earlier.
    pub(crate) fn written(&self, replica: ReplicaId, offset: u64, len: usize) -> Result<Vec<u8>, ErrorCode> {
        let reader = self.store.open_read_of_writer(replica).map_err(|error| error.code())?;
        let mut bytes = vec![0; len];
        let read = reader.read(offset, &mut bytes).map_err(|error| error.code())?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Checks that an object at rest is on this disk.
    pub(crate) fn keeps(&self, replica: ReplicaId, at_rest: &AtRest) -> Result<(), String> {
        let status = self.store.status(replica).map_err(|error| error.to_string())?;
        let is_it = status.as_ref().is_some_and(|status| match (&status.state, at_rest.sums) {
            (ReplicaState::Complete { crc32c, .. }, Some(sums)) if at_rest.is_whole => {
                (status.len, *crc32c) == (at_rest.len, sums.crc32c)
            }
            (ReplicaState::BeingWritten { .. }, _) => false,
            _ => status.len >= at_rest.len,
        });
        let found = status.map(|status| (status.len, status.state));
        if is_it { Ok(()) } else { Err(format!("{found:?} of replica {replica}, and not {at_rest:?}")) }
    }

    /// All bytes of a replica.
    pub(crate) fn content(&self, replica: ReplicaId) -> Result<Arc<[u8]>, ErrorCode> {
        let reader = self.store.open_read(replica).map_err(|error| error.code())?;
        let mut bytes = vec![0; usize::try_from(reader.len()).map_err(|_| ErrorCode::TooLarge)?];
        let read = reader.read(0, &mut bytes).map_err(|error| error.code())?;
        bytes.truncate(read);
        Ok(bytes.into())
    }
}
