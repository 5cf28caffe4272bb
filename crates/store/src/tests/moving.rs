//! Settling and compaction with obstacles.

use std::sync::Arc;

use disk::SimDisk;
use journal::Seq;
use kv::{Batch, KvError};

use super::world::{World, bytes, replica, small_config};
use crate::{RecordIndex, StoreConfig};

/// An index that accepts only small batches.
struct Limited {
    index: Arc<dyn RecordIndex>,
    limit: usize,
}

impl RecordIndex for Limited {
    fn append(&self, batch: &Batch, urgent: bool) -> Result<Seq, KvError> {
        if batch.len() > self.limit {
            return Err(KvError::TooLarge { what: "a batch of changes", len: batch.len(), limit: self.limit });
        }
        self.index.append(batch, urgent)
    }

    fn snapshot(&self) -> Box<dyn kv::Read + Send + '_> {
        self.index.snapshot()
    }
}

fn segments(world: &World) -> Vec<u64> {
    world.store.inner.records.lock().keys().copied().collect()
}

#[test]
fn a_segment_of_many_tiny_replicas_is_compacted_in_steps() {
    let config = StoreConfig { settle_step_bytes: 4 << 10, ..small_config() };
    let limited = |index| Arc::new(Limited { index, limit: 60 }) as Arc<dyn RecordIndex>;
    let world = World::open_with(SimDisk::new(1), config, limited).unwrap();
    // More than one segment of 32 KiB.
    for object in 1..=400 {
        world.put(object, &bytes(object, 20));
        if object % 20 == 0 {
            world.store.tick().unwrap();
        }
    }
    assert!(segments(&world).len() > 1);
    for object in (1..=400).filter(|object| object % 5 > 1) {
        world.store.delete(replica(object)).unwrap();
    }
    world.journal.sync_to(world.journal.appended()).unwrap();
    for _ in 0..4 {
        world.store.tick().unwrap();
    }
    assert!(!segments(&world).contains(&1), "{:?}", segments(&world));
    for object in (1..=400).filter(|object| object % 5 <= 1) {
        assert_eq!(world.read_all(object), bytes(object, 20));
    }
}

#[test]
fn a_bad_segment_does_not_block_the_compaction_of_others() {
    let world = World::new(1);
    for object in 1..=30 {
        world.put(object, &bytes(object, 3000));
        world.store.tick().unwrap();
    }
    assert!(segments(&world).len() >= 3, "{:?}", segments(&world));
    // All but the first replica of each segment of ten.
    for object in (1..=30).filter(|object| object % 10 != 1) {
        world.store.delete(replica(object)).unwrap();
    }
    world.journal.sync_to(world.journal.appended()).unwrap();
    // The header of the first record.
    assert!(world.disk.rot(&world.store.inner.segments.path(1), 64 + 20));
    let refused = (0..5).filter(|_| world.store.tick().is_err()).count();
    assert_eq!(refused, 1, "it is said once");
    let left = segments(&world);
    assert!(left.contains(&1) && !left.contains(&2), "{left:?}");
    assert_eq!(world.read_all(1), bytes(1, 3000));
    assert_eq!(world.read_all(11), bytes(11, 3000));
}
