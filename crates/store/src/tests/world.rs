//! A store on a simulated disk, with its journal and index.

use std::sync::Arc;

use disk::{Disk, SimDisk};
use journal::{Journal, JournalConfig, StreamId};
use kv::{IndexConfig, JournaledIndex, MemoryEngine};
use types::{Incarnation, ObjectId, ReplicaId};

use crate::{NewReplica, PlantedBug, RecordIndex, Store, StoreConfig, StoreError, StoreRecovery, Writer};

pub(crate) struct World {
    pub(crate) disk: SimDisk,
    pub(crate) journal: Arc<Journal>,
    pub(crate) index: Arc<JournaledIndex>,
    pub(crate) store: Arc<Store>,
    pub(crate) recovery: StoreRecovery,
}

pub(crate) type Parts = (Arc<dyn Disk>, Arc<Journal>, Arc<JournaledIndex>);

/// Small sizes, so that every boundary is crossed often.
pub(crate) fn small_config() -> StoreConfig {
    StoreConfig {
        small_max: 8 << 10,
        segment_bytes: 32 << 10,
        floor: Some(0),
        direct: true,
        ranges_max: 64,
        held_pages_max: 3,
        redo_bytes_max: 40 << 10,
        snapshot_after_bytes: 128 << 10,
        checkpoint_bytes_max: 48 << 10,
        settle_step_bytes: 8 << 10,
        first_read_min: 1 << 20,
        buffers_max: 2,
        known_sums_bytes_max: 1 << 20,
        recent: None,
        find_orphans: true,
        clear_away: true,
        planted: None,
    }
}

pub(crate) fn with(planted: Option<PlantedBug>) -> StoreConfig {
    StoreConfig { planted, ..small_config() }
}

impl World {
    pub(crate) fn open(disk: SimDisk, config: StoreConfig) -> Result<World, StoreError> {
        Self::open_with(disk, config, |index| index)
    }

    /// With a layer between the store and its index.
    pub(crate) fn open_with(
        disk: SimDisk,
        config: StoreConfig,
        wrap: impl FnOnce(Arc<dyn RecordIndex>) -> Arc<dyn RecordIndex>,
    ) -> Result<World, StoreError> {
        let (shared, journal, index) = Self::parts(&disk, IndexConfig::small())?;
        let (store, recovery) =
            Store::open(shared, "store", Arc::clone(&journal), wrap(Arc::clone(&index) as _), config)?;
        Ok(World { disk, journal, index, store, recovery })
    }

    /// The parts that a store needs.
    pub(crate) fn parts(disk: &SimDisk, config: IndexConfig) -> Result<Parts, StoreError> {
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let streams = vec![StreamId::STORE_INDEX, StreamId::STORE_DATA];
        let (journal, _) =
            Journal::open(Arc::clone(&shared), "journal", JournalConfig { streams, ..JournalConfig::small() })?;
        let journal = Arc::new(journal);
        let (log, engine) = (Arc::clone(&journal), Box::new(MemoryEngine::new()));
        let stream = StreamId::STORE_INDEX;
        let (index, _) = JournaledIndex::open(log, stream, engine, Arc::clone(&shared), "checkpoint", config)?;
        Ok((shared, journal, index))
    }

    pub(crate) fn new(seed: u64) -> World {
        World::open(SimDisk::new(seed), small_config()).unwrap()
    }

    /// After SIGKILL.
    pub(crate) fn killed(&self) -> World {
        World::open(self.disk.kill(), small_config()).unwrap()
    }

    /// After a power failure that loses all unsynced data.
    pub(crate) fn power_lost(&self) -> World {
        let mut rng = <rand::rngs::SmallRng as rand::SeedableRng>::seed_from_u64(1);
        World::open(self.disk.crash(&mut rng, disk::CrashFaults::all_lost()).0, small_config()).unwrap()
    }

    pub(crate) fn create(&self, object: u64, expected_len: Option<u64>) -> Arc<Writer> {
        self.store.create(replica(object), new_replica(expected_len)).unwrap()
    }

    pub(crate) fn read_all(&self, object: u64) -> Vec<u8> {
        let reader = self.store.open_read(replica(object)).unwrap();
        let mut bytes = vec![0; reader.len() as usize];
        assert_eq!(reader.read(0, &mut bytes).unwrap(), bytes.len());
        bytes
    }

    pub(crate) fn read_by_writer(&self, object: u64) -> Vec<u8> {
        let writer = self.store.reopen(replica(object)).unwrap();
        let mut bytes = vec![0; writer.len() as usize];
        assert_eq!(writer.read(0, &mut bytes).unwrap(), bytes.len());
        bytes
    }

    /// Makes a complete, durable replica.
    pub(crate) fn put(&self, object: u64, bytes: &[u8]) {
        let writer = self.create(object, None);
        writer.write(0, bytes).unwrap();
        let completed = writer.complete().unwrap();
        self.journal.sync_to(completed.seq).unwrap();
    }
}

pub(crate) fn replica(object: u64) -> ReplicaId {
    ReplicaId::first(ObjectId(object))
}

pub(crate) fn new_replica(expected_len: Option<u64>) -> NewReplica<'static> {
    NewReplica { path_hint: b"/data/file", expected_len, incarnation: Incarnation(1) }
}

/// Bytes that depend on their offset and the seed.
pub(crate) fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|at| ((at ^ seed.wrapping_mul(0x9e37)).wrapping_mul(0x2545_f491_4f6c_dd1d) >> 40) as u8 | 1)
        .collect()
}
