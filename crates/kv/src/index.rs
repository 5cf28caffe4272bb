//! [`JournaledIndex`]: a stream of the journal as a map.
//!
//! `append` puts a batch into the journal and into the overlay. Readers see the overlay over the engine as of a
//! sequence number. The sweeper moves durable changes from the overlay to the engine. Nothing reaches the engine that
//! the journal might lose.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use disk::{Disk, Removal};
use journal::{Journal, JournalError, Seq, StreamId};
use parking_lot::{Condvar, Mutex, RwLock};

use crate::cache::ReadCache;
use crate::checkpoint::CheckpointSet;
use crate::overlay::Generation;
use crate::recovery::{Recovery, recover};
use crate::snapshot::{Snapshot, View};
use crate::sweeper::Sweeper;
use crate::{Batch, Engine, KvError, Read, batch};

/// Whose a journal is that lies beside an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JournalOwner {
    /// This directory's: an index that was made from another journal does not belong here, and is rebuilt.
    ThisDirectory,
    /// Another directory's: the index may be the last that knows what its own journal held, and is refused.
    AnotherDirectory,
    /// Nothing says so. The checkpoints decide: they are in the journal's directory as long as the index.
    Unknown,
}

/// How to keep an index. The default is for production.
#[derive(Clone, Debug)]
pub struct IndexConfig {
    /// Bytes of the overlay beyond which appends wait for the sweeper.
    pub overlay_bytes_max: usize,
    /// Bytes of recently read or written keys and values kept in memory, to save lookups.
    pub cache_bytes: usize,
    /// Bytes at which a generation is sealed and the sweeper wakes.
    pub generation_bytes: usize,
    /// How long changes stay in the overlay when there are few. A longer time keeps more short-lived keys from the
    /// engine.
    pub sweep_interval: Duration,
    /// How long the engine may hold changes only in memory. The journal has them; if the journal is lost, these changes
    /// are lost with it.
    pub flush_interval: Duration,
    /// Sealed journal segments that may wait for a checkpoint. With one more, a checkpoint is made.
    pub segments_kept_max: usize,
    /// Bytes of entries in one delta file of a checkpoint; they are in memory while it is made.
    pub delta_bytes_max: usize,
    /// Deltas that may exist before they are merged into one.
    pub deltas_max: usize,
    /// How to remove checkpoint files that were merged into others.
    pub removal: Removal,
    /// Whether a thread sweeps. Without it the caller runs [`JournaledIndex::sweep_now`] and
    /// [`JournaledIndex::checkpoint_now`], for deterministic tests.
    pub background: bool,
    /// The last record of the journal when it was opened ([`journal::Opened::last`]). Opening may have added a mark,
    /// which would hide that the journal has lost its last record. `None` means the present last record.
    pub journal_ended_at: Option<Seq>,
    /// Whose the journal is, as far as the caller knows. Decides about an index that was made from another journal.
    pub journal_owner: JournalOwner,
    /// For a requested repair: rebuilds an index that is ahead of its journal up to the journal's end. Otherwise this
    /// is damage, because only durable records reach the index: the journal has lost some.
    pub follow_shorter_journal: bool,
    /// For a requested repair: the index starts without its checkpoint, only with the records that the journal still
    /// has. The caller adds what it knows from elsewhere. Existing checkpoint files are set aside.
    pub begin_empty: bool,
    /// How long an append waits for room in the overlay before it fails.
    pub room_wait_max: Duration,
    #[cfg(test)]
    pub(crate) planted: Option<crate::tests::PlantedBug>,
    #[cfg(test)]
    pub(crate) before_verify: crate::tests::BeforeVerify,
}

impl Default for IndexConfig {
    fn default() -> Self {
        Self {
            overlay_bytes_max: 32 << 20,
            cache_bytes: 16 << 20,
            generation_bytes: 8 << 20,
            sweep_interval: Duration::from_secs(2),
            flush_interval: Duration::from_secs(60),
            segments_kept_max: 4,
            delta_bytes_max: 24 << 20,
            deltas_max: 8,
            removal: Removal::default(),
            background: true,
            journal_ended_at: None,
            journal_owner: JournalOwner::Unknown,
            follow_shorter_journal: false,
            begin_empty: false,
            room_wait_max: Duration::from_secs(30),
            #[cfg(test)]
            planted: None,
            #[cfg(test)]
            before_verify: Default::default(),
        }
    }
}

impl IndexConfig {
    /// Waiting sealed segments at which checkpoints are made at full speed: an opening must read the whole remaining
    /// journal.
    pub(crate) fn urgent_segments(&self) -> usize {
        3 * self.segments_kept_max
    }

    /// For tests on a simulated disk: small bounds, no thread.
    #[must_use]
    pub fn small() -> Self {
        Self {
            overlay_bytes_max: 1 << 20,
            cache_bytes: 16 << 10,
            generation_bytes: 4 << 10,
            segments_kept_max: 1,
            delta_bytes_max: 24 << 10,
            deltas_max: 3,
            removal: Removal { part: 4 << 10, rest: Duration::ZERO },
            background: false,
            ..Self::default()
        }
    }
}

/// Counters since the index was opened.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct IndexStats {
    /// Batches appended.
    pub batches: u64,
    /// Bytes in the overlay.
    pub overlay_bytes: usize,
    /// Sweeps that moved changes.
    pub sweeps: u64,
    /// Versions in the swept generations.
    pub versions_swept: u64,
    /// Entries that these sweeps gave to the engine.
    pub entries_applied: u64,
    /// Checkpoint files made (deltas, merged deltas and bases).
    pub checkpoints: u64,
    /// New checkpoint files that did not read back correctly and were deleted.
    pub checkpoints_refused: u64,
    /// Times that a rotten checkpoint was replaced by a new one made from the engine.
    pub checkpoints_renewed: u64,
    /// Times that a damaged engine was rebuilt during operation.
    pub healed: u64,
    /// Panics in the sweeper and checkpoint threads. The threads continue.
    pub panics: u64,
    /// Times that an append waited for room in the overlay.
    pub waits_for_room: u64,
    /// Why the last sweep failed; `None` if it succeeded.
    pub trouble: Option<String>,
    /// Why the last checkpoint failed; `None` if it succeeded.
    pub checkpoint_trouble: Option<String>,
}

/// State shared by all appends.
pub(crate) struct Appender {
    /// Takes versions; the last of the view's generations.
    pub(crate) active: Arc<Generation>,
    /// The last record appended to the stream, or replayed at the start.
    pub(crate) last: u64,
    /// Reused for encoding.
    buffer: Vec<u8>,
}

pub(crate) struct Shared {
    pub(crate) journal: Arc<Journal>,
    pub(crate) stream: StreamId,
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) config: IndexConfig,
    pub(crate) view: RwLock<Arc<View>>,
    pub(crate) cache: Arc<ReadCache>,
    /// Readers see records up to this one.
    pub(crate) published: AtomicU64,
    pub(crate) appender: Mutex<Appender>,
    pub(crate) checkpoints: Mutex<CheckpointSet>,
    /// Abandons unfinished checkpoint files.
    pub(crate) cancel: Arc<AtomicBool>,
    pub(crate) overlay_bytes: AtomicUsize,
    pub(crate) stats: Mutex<IndexStats>,
    /// Held while the engine is changed: one change at a time.
    pub(crate) sweeping: Mutex<EngineState>,
    room: (Mutex<()>, Condvar),
    /// Wakes the sweeper; true stops it.
    pub(crate) wake: (Mutex<Wake>, Condvar),
}

/// The state of changes to the engine.
#[derive(Default)]
pub(crate) struct EngineState {
    /// The engine was emptied for a rebuild that has not succeeded yet: the position that the rebuild must reach before
    /// any later change. The next start would mistake an engine without its past for a complete one.
    pub(crate) missing: Option<Seq>,
    /// Views that were replaced when the engine took over their generations. Readers may still use some. The last user
    /// must free generations and remove tables, which takes milliseconds. The next sweep does it, and never the
    /// committer.
    pub(crate) retired: Vec<Retired>,
    /// The time since which the engine holds changes only in memory.
    pub(crate) unflushed_since: Option<Instant>,
}

/// A replaced view, and how many of its generations the engine has taken over.
pub(crate) struct Retired {
    pub(crate) view: Arc<View>,
    pub(crate) swept: usize,
}

impl Retired {
    /// Whether a reader still uses this view, or an earlier one that shares its parts.
    fn is_read(&self) -> bool {
        let mut swept = self.view.generations.iter().take(self.swept);
        Arc::strong_count(&self.view) > 1
            || Arc::strong_count(&self.view.engine) > 1
            || swept.any(|generation| Arc::strong_count(generation) > 1)
    }
}

impl EngineState {
    /// Frees views without readers.
    pub(crate) fn free_retired(&mut self) {
        self.retired.retain(Retired::is_read);
    }

    /// Fails if the engine lacks its past.
    pub(crate) fn check(&self) -> Result<(), KvError> {
        match self.missing {
            None => Ok(()),
            Some(_) => Err(KvError::Damaged("the index could not be built again yet".into())),
        }
    }
}

#[derive(Default)]
pub(crate) struct Wake {
    pub(crate) stop: bool,
    pub(crate) now: bool,
}

/// A stream of the journal as a map. The crate's documentation lists its promises.
pub struct JournaledIndex {
    pub(crate) shared: Arc<Shared>,
    sweeper: Sweeper,
}

impl JournaledIndex {
    /// Brings `engine` up to the end of the journal. Rebuilds it from the checkpoints in `checkpoint_dir` (relative to
    /// `disk`'s root) if it lost too much, cannot be trusted, or belongs to another journal.
    ///
    /// # Errors
    /// [`KvError::Damaged`] if neither the engine nor checkpoint and journal together hold everything.
    pub fn open(
        journal: Arc<Journal>,
        stream: StreamId,
        engine: Box<dyn Engine>,
        disk: Arc<dyn Disk>,
        checkpoint_dir: &str,
        config: IndexConfig,
    ) -> Result<(Arc<JournaledIndex>, Recovery), KvError> {
        let (checkpoints, recovery) = recover(&journal, stream, &*engine, disk, checkpoint_dir, &config)?;
        let active = Arc::new(Generation::default());
        let cache = Arc::new(ReadCache::new(config.cache_bytes));
        let epoch = cache.epoch();
        let generations = vec![Arc::clone(&active)];
        let view = View { engine: engine.snapshot(), generations, cache: Arc::clone(&cache), epoch };
        let shared = Arc::new(Shared {
            journal,
            stream,
            engine,
            config,
            view: RwLock::new(Arc::new(view)),
            cache,
            published: AtomicU64::new(recovery.last.0),
            appender: Mutex::new(Appender { active, last: recovery.last.0, buffer: Vec::new() }),
            cancel: Arc::clone(&checkpoints.cancel),
            checkpoints: Mutex::new(checkpoints),
            overlay_bytes: AtomicUsize::new(0),
            stats: Mutex::default(),
            sweeping: Mutex::default(),
            room: Default::default(),
            wake: Default::default(),
        });
        shared.trim()?;
        let sweeper = Sweeper::start(&shared)?;
        Ok((Arc::new(Self { shared, sweeper }), recovery))
    }

    /// Appends `batch` to the journal and the overlay; new snapshots see it at once. It is NOT durable yet, nor even
    /// written: the caller calls [`Journal::write_to`] or [`Journal::sync_to`] with the returned number. Waits if the
    /// overlay is full.
    ///
    /// # Errors
    /// [`KvError::NoSpace`], [`KvError::Stopped`], [`KvError::TooLarge`], [`KvError::BadKey`]: nothing was appended.
    pub fn append(&self, batch: &Batch) -> Result<Seq, KvError> {
        self.append_as(batch, Append { urgent: false, publish: true })
    }

    /// [`JournaledIndex::append`] for changes that free space: may use the journal's reserve.
    pub fn append_urgent(&self, batch: &Batch) -> Result<Seq, KvError> {
        self.append_as(batch, Append { urgent: true, publish: true })
    }

    /// [`JournaledIndex::append`], but snapshots show the batch only after [`JournaledIndex::publish`]. No other thread may
    /// call `append` on this index meanwhile, because publishing sets a position.
    pub fn append_unpublished(&self, batch: &Batch, urgent: bool) -> Result<Seq, KvError> {
        self.append_as(batch, Append { urgent, publish: false })
    }

    /// Makes everything up to `seq` visible to snapshots taken from now on.
    pub fn publish(&self, seq: Seq) {
        self.shared.published.fetch_max(seq.0, Ordering::AcqRel);
    }

    fn append_as(&self, batch: &Batch, how: Append) -> Result<Seq, KvError> {
        self.shared.append(batch, how)
    }

    /// Everything appended and published. It does not change while it is held, and occupies memory.
    #[must_use]
    pub fn snapshot(&self) -> Box<dyn Read + Send + '_> {
        Box::new(self.shared.snapshot())
    }

    /// Everything appended, published or not. Only for the sole appender.
    pub(crate) fn latest(&self) -> Snapshot {
        self.shared.latest()
    }

    /// Moves durable and published changes to the engine. Returns whether it moved any.
    pub fn sweep_now(&self) -> Result<bool, KvError> {
        self.shared.sweep()
    }

    /// Makes a checkpoint if enough sealed segments wait for one, merges if due, and trims. Returns whether it made
    /// files.
    pub fn checkpoint_now(&self) -> Result<bool, KvError> {
        self.shared.checkpoint()
    }

    /// Rebuilds the engine if it is damaged. Returns whether it did.
    pub fn heal_now(&self) -> Result<bool, KvError> {
        self.shared.heal()
    }

    /// The journal to which the stream belongs.
    #[must_use]
    pub fn journal(&self) -> &Arc<Journal> {
        &self.shared.journal
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> IndexStats {
        let mut stats = self.shared.stats.lock().clone();
        stats.overlay_bytes = self.shared.overlay_bytes.load(Ordering::Relaxed);
        stats
    }

    /// Reads every checkpoint file completely and compares all checksums. For scrubs and `fsck`. Returns the number of
    /// entries.
    pub fn verify_checkpoints(&self) -> Result<u64, KvError> {
        let mut set = self.shared.checkpoints.lock();
        let verified = set.verify_all();
        if let Err(KvError::Damaged(what)) = &verified {
            // The next round makes a new one.
            set.rotten = Some(what.clone());
        }
        verified
    }

    /// Stops cleanly, so that the next start is quick: sweeps once more, flushes the engine, ends the threads. The
    /// owner of the journal closes it afterwards.
    pub fn close(&self) -> Result<(), KvError> {
        self.sweeper.stop(&self.shared);
        let swept = self.shared.sweep();
        let flushed = self.shared.engine.flush();
        self.shared.engine.close();
        swept?;
        flushed
    }
}

impl Drop for JournaledIndex {
    fn drop(&mut self) {
        self.sweeper.stop(&self.shared);
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Append {
    pub(crate) urgent: bool,
    pub(crate) publish: bool,
}

impl Shared {
    pub(crate) fn append(&self, batch: &Batch, how: Append) -> Result<Seq, KvError> {
        self.wait_for_room(how.urgent)?;
        let mut appender = self.appender.lock();
        let mut buffer = std::mem::take(&mut appender.buffer);
        let taken = batch::encode(batch.iter(), &mut buffer).and_then(|()| {
            let append = if how.urgent { Journal::append_urgent } else { Journal::append };
            append(&self.journal, self.stream, &[&buffer]).map_err(from_journal)
        });
        if buffer.capacity() <= 1 << 20 {
            appender.buffer = buffer;
        }
        let seq = taken?.seq;
        let mut bytes = 0;
        for (key, value) in batch.shared() {
            // Before any reader can see it.
            if !self.forgets_to_invalidate() {
                self.cache.changed(seq.0, key.bytes(), value.as_ref());
            }
            bytes += appender.active.insert(seq.0, key, value);
        }
        appender.last = seq.0;
        if how.publish {
            self.published.fetch_max(seq.0, Ordering::AcqRel);
        }
        let total = self.overlay_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if appender.active.bytes() >= self.config.generation_bytes {
            self.seal(&mut appender);
            drop(appender);
            self.wake_sweeper();
        } else if total >= self.config.overlay_bytes_max {
            drop(appender);
            self.wake_sweeper();
        }
        self.stats.lock().batches += 1;
        Ok(seq)
    }

    /// Begins a new generation if the active one has versions.
    pub(crate) fn seal(&self, appender: &mut Appender) {
        if appender.active.last() == 0 {
            return;
        }
        let active = Arc::new(Generation::default());
        let mut view = self.view.write();
        let mut generations = view.generations.clone();
        generations.push(Arc::clone(&active));
        let (engine, cache, epoch) = (Arc::clone(&view.engine), Arc::clone(&view.cache), view.epoch);
        *view = Arc::new(View { engine, generations, cache, epoch });
        appender.active = active;
    }

    fn wait_for_room(&self, urgent: bool) -> Result<(), KvError> {
        let limit = self.config.overlay_bytes_max.saturating_mul(if urgent { 2 } else { 1 });
        let full = || self.overlay_bytes.load(Ordering::Relaxed) >= limit;
        if !full() {
            return Ok(());
        }
        if !self.config.background {
            // No other thread would make room.
            self.sweep()?;
            return if full() { Err(self.no_room()) } else { Ok(()) };
        }
        self.stats.lock().waits_for_room += 1;
        let deadline = Instant::now() + self.config.room_wait_max;
        let mut guard = self.room.0.lock();
        while full() {
            if self.is_out_of_space() {
                // Waiting would not help, and would delay deletions.
                return Err(KvError::NoSpace);
            }
            self.wake_sweeper();
            if self.room.1.wait_until(&mut guard, deadline).timed_out() && full() {
                return Err(self.no_room());
            }
        }
        Ok(())
    }

    /// Whether the last sweep failed for lack of space. The sweeper retries by itself.
    fn is_out_of_space(&self) -> bool {
        self.stats.lock().trouble.as_deref() == Some(KvError::NoSpace.to_string().as_str())
    }

    fn no_room(&self) -> KvError {
        let trouble = self.stats.lock().trouble.clone();
        match trouble {
            Some(reason) if !self.is_out_of_space() => {
                KvError::Io(format!("the index cannot take in more changes: {reason}"))
            }
            _ => KvError::NoSpace,
        }
    }

    /// Tells waiting appends that the overlay has shrunk; 0 means that it will not.
    pub(crate) fn made_room(&self, bytes: usize) {
        self.overlay_bytes.fetch_sub(bytes, Ordering::Relaxed);
        let _guard = self.room.0.lock();
        self.room.1.notify_all();
    }

    pub(crate) fn wake_sweeper(&self) {
        self.wake.0.lock().now = true;
        self.wake.1.notify_all();
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let view = self.view.read();
        // Under the lock: a generation outside this view gets its first version, and its publication, later.
        let at = self.published.load(Ordering::Acquire);
        Snapshot { view: Arc::clone(&view), at }
    }

    #[cfg(test)]
    fn forgets_to_invalidate(&self) -> bool {
        self.config.planted == Some(crate::tests::PlantedBug::CacheNotInvalidated)
    }

    #[cfg(not(test))]
    #[allow(clippy::unused_self)]
    fn forgets_to_invalidate(&self) -> bool {
        false
    }

    pub(crate) fn latest(&self) -> Snapshot {
        let appender = self.appender.lock();
        Snapshot { view: Arc::clone(&self.view.read()), at: appender.last }
    }
}

/// Converts a journal error to this crate's error.
pub(crate) fn from_journal(error: JournalError) -> KvError {
    match error {
        JournalError::NoSpace { .. } => KvError::NoSpace,
        JournalError::Poisoned { reason } => KvError::Stopped { reason },
        JournalError::Damaged(_) | JournalError::Trimmed { .. } | JournalError::NotThere { .. } => {
            KvError::Damaged(error.to_string())
        }
        JournalError::TooLarge { len, max } => KvError::TooLarge {
            what: "a batch of changes",
            len: usize::try_from(len).unwrap_or(usize::MAX),
            limit: usize::try_from(max).unwrap_or(usize::MAX),
        },
        other => KvError::Io(other.to_string()),
    }
}
