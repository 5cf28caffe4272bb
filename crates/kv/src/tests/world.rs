//! An index over a journal on a simulated disk, a model of its contents, and engines that survive like real ones.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use disk::{CrashFaults, CrashReport, SimDisk};
use journal::{Journal, JournalConfig, Seq, StreamId};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::PlantedBug;
use crate::engine::{Applied, Engine, EntrySource, MapSnapshot};
use crate::{Batch, IndexConfig, JournaledIndex, KvError, MemoryEngine, Read, Recovery, ScanOrder};

pub(crate) type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// An engine that remembers each of its states. A stop can leave any state that is not older than the last flush. Its
/// clock is the simulated disk's count of changes, so it can stop during a step.
#[derive(Clone)]
pub(crate) struct SurvivingEngine {
    history: Arc<Mutex<History>>,
    /// The engine flushes by itself after this many steps.
    steps_to_flush: usize,
}

struct History {
    clock: Option<SimDisk>,
    /// When each state was reached, and the state.
    states: Vec<(u64, Applied, Arc<Map>)>,
    /// When the state with that index was flushed.
    flushes: Vec<(u64, usize)>,
}

impl SurvivingEngine {
    pub(crate) fn new(steps_to_flush: usize) -> Self {
        Self::with(0, Applied::default(), Arc::default(), steps_to_flush)
    }

    fn with(time: u64, applied: Applied, map: Arc<Map>, steps_to_flush: usize) -> Self {
        let history = History { clock: None, states: vec![(time, applied, map)], flushes: vec![(time, 0)] };
        Self { history: Arc::new(Mutex::new(history)), steps_to_flush }
    }

    /// A state that a stop at the time `now` may leave.
    fn after_stop(&self, now: u64, rng: &mut SmallRng) -> Self {
        let history = self.history.lock();
        let flushed = history.flushes.iter().filter(|(time, _)| *time < now).map(|(_, state)| *state).max();
        let there = history.states.iter().filter(|(time, ..)| *time <= now).count();
        let (_, applied, map) = history.states[rng.random_range(flushed.unwrap_or(0)..there.max(1))].clone();
        Self::with(0, applied, map, self.steps_to_flush)
    }

    fn latest(&self) -> (Applied, Arc<Map>) {
        let history = self.history.lock();
        let (_, applied, map) = history.states.last().unwrap().clone();
        (applied, map)
    }

    fn set(&self, applied: Applied, map: Map, flush: bool) {
        let mut history = self.history.lock();
        let now = history.now();
        history.states.push((now, applied, Arc::new(map)));
        let state = history.states.len() - 1;
        let (_, flushed) = *history.flushes.last().unwrap();
        if flush || state - flushed >= self.steps_to_flush {
            history.flushes.push((now, state));
        }
    }
}

impl History {
    fn now(&self) -> u64 {
        self.clock.as_ref().map_or(0, SimDisk::change_count)
    }
}

impl Engine for SurvivingEngine {
    fn snapshot(&self) -> Arc<dyn Read + Send + Sync> {
        Arc::new(MapSnapshot(self.latest().1))
    }
    fn apply(&self, entries: &mut dyn EntrySource, applied: Applied) -> Result<(), KvError> {
        let mut map = Map::clone(&self.latest().1);
        while let Some((key, value)) = entries.next()? {
            match value {
                Some(value) => map.insert(key.to_vec(), value.to_vec()),
                None => map.remove(key),
            };
        }
        self.set(applied, map, false);
        Ok(())
    }
    fn applied(&self) -> Applied {
        self.latest().0
    }
    fn flushed(&self) -> Applied {
        let history = self.history.lock();
        let (_, flushed) = *history.flushes.last().unwrap();
        history.states[flushed].1
    }
    fn flush(&self) -> Result<(), KvError> {
        let mut history = self.history.lock();
        let flush = (history.now(), history.states.len() - 1);
        history.flushes.push(flush);
        Ok(())
    }
    fn reset(&self, _why: &str) -> Result<(), KvError> {
        self.set(Applied::default(), Map::new(), true);
        Ok(())
    }
    fn load(&self, entries: &mut dyn EntrySource, applied: Applied) -> Result<(), KvError> {
        self.apply(entries, applied)?;
        self.flush()
    }
}

/// The engine of a world.
#[derive(Clone)]
pub(crate) enum Kind {
    /// Lost at each stop.
    Lost,
    /// Survives in part.
    Surviving(SurvivingEngine),
}

impl Kind {
    fn engine(&self, sim: &SimDisk) -> Box<dyn Engine> {
        match self {
            Kind::Lost => Box::new(MemoryEngine::new()),
            Kind::Surviving(engine) => {
                engine.history.lock().clock = Some(sim.clone());
                Box::new(engine.clone())
            }
        }
    }
}

pub(crate) const OTHER: StreamId = StreamId::STORE_DATA;

pub(crate) struct World {
    pub(crate) sim: SimDisk,
    pub(crate) journal: Arc<Journal>,
    pub(crate) index: Arc<JournaledIndex>,
    pub(crate) kind: Kind,
    pub(crate) config: IndexConfig,
    /// Every batch with its number, in order.
    pub(crate) history: Vec<(Seq, Batch)>,
    /// The highest record that must survive a power failure, and the highest that must survive SIGKILL.
    pub(crate) synced: Seq,
    pub(crate) written: Seq,
}

pub(crate) fn open(
    sim: &SimDisk,
    kind: &Kind,
    config: &IndexConfig,
) -> Result<(Arc<Journal>, Arc<JournaledIndex>, Recovery, Seq), String> {
    let config_of_log = JournalConfig { streams: vec![StreamId::NAMESPACE, OTHER], ..JournalConfig::small() };
    let disk: Arc<SimDisk> = Arc::new(sim.clone());
    let (journal, opened_log) = Journal::open(disk.clone(), "journal", config_of_log)
        .map_err(|error| format!("the log does not open: {error}"))?;
    let journal = Arc::new(journal);
    let opened = JournaledIndex::open(
        Arc::clone(&journal),
        StreamId::NAMESPACE,
        kind.engine(sim),
        disk,
        "namespace/checkpoint",
        config.clone(),
    );
    let (index, recovery) = opened.map_err(|error| format!("the index does not open: {error}"))?;
    // Opening may write a mark, which may reuse the number of a lost record.
    Ok((journal, index, recovery, opened_log.last))
}

impl World {
    pub(crate) fn new(seed: u64, kind: Kind, planted: Option<PlantedBug>) -> Self {
        let sim = SimDisk::new(seed);
        let small = IndexConfig::small();
        // Half of the worlds have no cache: cached keys are not looked up.
        let cache_bytes = if seed.is_multiple_of(2) { small.cache_bytes } else { 0 };
        let config = IndexConfig { planted, cache_bytes, ..small };
        let (journal, index, ..) = open(&sim, &kind, &config).unwrap();
        Self { sim, journal, index, kind, config, history: Vec::new(), synced: Seq(0), written: Seq(0) }
    }

    pub(crate) fn append(&mut self, batch: Batch) -> Seq {
        let seq = self.index.append(&batch).unwrap();
        self.history.push((seq, batch));
        seq
    }

    pub(crate) fn model_at(&self, seq: Seq) -> Map {
        model_of(&self.history, seq)
    }

    pub(crate) fn model(&self) -> Map {
        self.model_at(Seq(u64::MAX))
    }

    /// Continues with `sim`, the disk after a stop at the time `now` of the old disk. It must have everything up to
    /// `least`. An error says what is wrong.
    pub(crate) fn stop(&mut self, sim: SimDisk, now: u64, least: Seq, rng: &mut SmallRng) -> Result<Recovery, String> {
        if let Kind::Surviving(engine) = &self.kind {
            self.kind = if rng.random_bool(0.15) {
                Kind::Surviving(SurvivingEngine::new(4)) // its files are lost
            } else {
                Kind::Surviving(engine.after_stop(now, rng))
            };
        }
        let (journal, index, recovery, last) = open(&sim, &self.kind, &self.config)?;
        if last < least {
            return Err(format!("records up to {least} have to be there, only {last} are"));
        }
        self.history.retain(|(seq, _)| *seq <= last);
        let (found, expected) = (content(&*index.snapshot()), self.model());
        if found != expected {
            return Err(format!("after a stop at {last} with {recovery:?}: {}", difference(&found, &expected)));
        }
        (self.sim, self.journal, self.index) = (sim, journal, index);
        self.synced = recovery.last;
        self.written = recovery.last;
        Ok(recovery)
    }
}

pub(crate) fn crash_image(sim: &SimDisk, rng: &mut SmallRng, report: &mut CrashReport) -> SimDisk {
    let faults = if rng.random_bool(0.3) { CrashFaults::all_lost() } else { CrashFaults::mixed() };
    let (image, found) = sim.crash(rng, faults);
    report.add(&found);
    image
}

pub(crate) fn model_of(history: &[(Seq, Batch)], seq: Seq) -> Map {
    let mut map = Map::new();
    for (_, batch) in history.iter().filter(|(number, _)| *number <= seq) {
        for (key, value) in batch.iter() {
            match value {
                Some(value) => map.insert(key.to_vec(), value.to_vec()),
                None => map.remove(key),
            };
        }
    }
    map
}

pub(crate) fn difference(found: &Map, expected: &Map) -> String {
    let keys = found.keys().chain(expected.keys());
    let differing = keys.filter(|key| found.get(*key) != expected.get(*key)).take(4);
    let show = |value: Option<&Vec<u8>>| {
        value.map(|value| String::from_utf8_lossy(&value[..value.len().min(24)]).into_owned())
    };
    differing
        .map(|key| {
            let key_text = String::from_utf8_lossy(key);
            format!("{key_text}: found {:?}, expected {:?}", show(found.get(key)), show(expected.get(key)))
        })
        .collect::<Vec<_>>()
        .join("; ")
}

pub(crate) fn content(read: &dyn Read) -> Map {
    let mut map = Map::new();
    read.scan(b"", b"\xff", ScanOrder::Ascending, &mut |key, value| {
        map.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    })
    .unwrap();
    map
}

/// Keys of several shapes, few enough to be changed repeatedly.
pub(crate) fn random_key(rng: &mut SmallRng) -> Vec<u8> {
    match rng.random_range(0..10) {
        0 => b"hot".to_vec(),
        1..=3 => format!("D/{:02}", rng.random_range(0..20)).into_bytes(),
        4..=6 => format!("D/{:02}/{}", rng.random_range(0..20), rng.random_range(0..30)).into_bytes(),
        7 => vec![rng.random_range(0..=0xfe); rng.random_range(1..4)],
        _ => format!("W{}", rng.random_range(0..2000)).into_bytes(),
    }
}

pub(crate) fn random_batch(rng: &mut SmallRng, mark: u64) -> Batch {
    let mut batch = Batch::new();
    for _ in 0..rng.random_range(1..8) {
        let key = random_key(rng);
        if rng.random_bool(0.35) {
            batch.delete(&key);
        } else {
            let mut value = format!("{mark}.").into_bytes();
            let len = if rng.random_bool(0.1) { rng.random_range(0..4000) } else { rng.random_range(0..60) };
            value.resize(value.len() + len, b'v');
            batch.put(&key, &value);
        }
    }
    batch
}

/// Compares random scans and reads with the model.
pub(crate) fn compare_reads(read: &dyn Read, model: &Map, rng: &mut SmallRng) -> Result<(), String> {
    for _ in 0..4 {
        let key = random_key(rng);
        let found = read.get(&key).unwrap();
        if found.as_ref() != model.get(&key) {
            return Err(format!("get {} is wrong", key.escape_ascii()));
        }
    }
    let (mut start, mut end) = (random_key(rng), random_key(rng));
    if start > end && rng.random_bool(0.9) {
        std::mem::swap(&mut start, &mut end);
    }
    if rng.random_bool(0.1) {
        start.clear();
    }
    let limit = rng.random_range(1..40);
    for order in [ScanOrder::Ascending, ScanOrder::Descending] {
        let mut found = Vec::new();
        read.scan(&start, &end, order, &mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            if found.len() == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
        let within = model.iter().filter(|(key, _)| **key >= start && **key < end);
        let mut expected: Vec<_> = within.map(|(key, value)| (key.clone(), value.clone())).collect();
        if order == ScanOrder::Descending {
            expected.reverse();
        }
        expected.truncate(limit);
        if found != expected {
            return Err(format!(
                "scan {order:?} from {} to {}: {} entries, expected {}",
                start.escape_ascii(),
                end.escape_ascii(),
                found.len(),
                expected.len()
            ));
        }
    }
    Ok(())
}

pub(crate) fn rng(seed: u64) -> SmallRng {
    SmallRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5bd1_e995)
}
