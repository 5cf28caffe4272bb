//! [`LoggedIndex`]: a stream of the log as a map.
//!
//! `append` puts a batch into the log and into the overlay; readers see the overlay over the engine as of a sequence
//! number; the sweeper moves what is durable from the overlay to the engine. Nothing reaches the engine that the log
//! might lose.

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

/// How an index is to be kept. The default is for production.
#[derive(Clone, Debug)]
pub struct IndexConfig {
    /// Bytes in memory that the engine doesn't have yet, beyond which appends wait for the sweeper.
    pub overlay_bytes_max: usize,
    /// Bytes of keys and values in memory that were read or written lately, so that they need not be looked up.
    pub cache_bytes: usize,
    /// Bytes at which a generation is sealed and the sweeper is woken.
    pub generation_bytes: usize,
    /// How long changes stay in the overlay when there are few. Longer: more short-lived keys never reach the engine.
    pub sweep_interval: Duration,
    /// How long the engine may hold changes in its memory alone. The log has them; should it be lost, this is what is lost with it.
    pub flush_interval: Duration,
    /// Sealed segments of the log that may wait for a checkpoint; one more, and a checkpoint is made.
    pub segments_kept_max: usize,
    /// Bytes of entries (in memory while it is made) in one delta file of a checkpoint.
    pub delta_bytes_max: usize,
    /// Deltas that may stand beside each other before they are merged into one.
    pub deltas_max: usize,
    /// How files of checkpoints that were merged into others are removed.
    pub removal: Removal,
    /// Whether a thread sweeps. Without it [`LoggedIndex::sweep_now`] and [`LoggedIndex::checkpoint_now`] are called by
    /// hand (deterministic tests).
    pub background: bool,
    /// The last record that the log had when it was opened ([`journal::Opened::last`]); opening may have added a mark,
    /// which would hide that the log has lost its last record. `None`: what it has now.
    pub log_ended_at: Option<Seq>,
    /// For a repair that was asked for: an index that is further than its log is built again as far as the log goes.
    /// Otherwise that is damage, because only durable records reach the index: some are missing from the log.
    pub follow_shorter_log: bool,
    /// For a repair that was asked for: the index begins without what its checkpoint held, with the records alone that the log still
    /// has; the caller puts in what it knows from elsewhere. Checkpoint files that are there are set aside.
    pub begin_empty: bool,
    /// How long an append waits for room in the overlay before it is refused.
    pub room_wait_max: Duration,
    #[cfg(test)]
    pub(crate) planted: Option<crate::tests::Planted>,
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
            log_ended_at: None,
            follow_shorter_log: false,
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
    /// Sealed segments that wait at which checkpoints are made as fast as they can be: an opening reads all that is left of the log.
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
    /// Sweeps that moved something.
    pub sweeps: u64,
    /// Versions that were in the swept generations.
    pub versions_swept: u64,
    /// Entries that were handed to the engine for them.
    pub entries_applied: u64,
    /// Checkpoint files made (deltas, merged deltas and bases).
    pub checkpoints: u64,
    /// Checkpoint files that did not read back as they were written, and were thrown away.
    pub checkpoints_refused: u64,
    /// Times that a checkpoint was made anew from the engine, because a file of it had rotted.
    pub checkpoints_renewed: u64,
    /// Times that a damaged engine was built again while everything went on.
    pub healed: u64,
    /// Steps of the sweeper's and the checkpoint's threads that panicked. The threads go on.
    pub panics: u64,
    /// Times that an append waited for room in the overlay.
    pub waits_for_room: u64,
    /// Why the last sweep failed, if it did.
    pub trouble: Option<String>,
    /// Why the last checkpoint could not be made, if so.
    pub checkpoint_trouble: Option<String>,
}

/// What appends share.
pub(crate) struct Appender {
    /// Takes versions; the last of the view's generations.
    pub(crate) active: Arc<Generation>,
    /// The last record appended to the stream (or, at first, replayed).
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
    /// Gives up checkpoint files in the making.
    pub(crate) cancel: Arc<AtomicBool>,
    pub(crate) overlay_bytes: AtomicUsize,
    pub(crate) stats: Mutex<IndexStats>,
    /// Held while the engine is changed: one at a time.
    pub(crate) sweeping: Mutex<EngineState>,
    room: (Mutex<()>, Condvar),
    /// Wakes the sweeper; true: stop.
    pub(crate) wake: (Mutex<Wake>, Condvar),
}

/// What the engine is to hold.
#[derive(Default)]
pub(crate) struct EngineState {
    /// It was emptied in order to be built again, which has not succeeded yet: where it has to stand before anything is
    /// put on top. What is applied to an engine without its past would be taken for the whole at the next start.
    pub(crate) missing: Option<Seq>,
    /// What readers looked at before it took generations in. Some may still do so; whoever is last would have to free generations
    /// and remove tables, which takes milliseconds: not the committer, but who sweeps next.
    pub(crate) retired: Vec<Retired>,
    /// Since when it holds changes in its memory alone.
    pub(crate) unflushed_since: Option<Instant>,
}

/// A view that was replaced, and how many of its generations the engine has taken in.
pub(crate) struct Retired {
    pub(crate) view: Arc<View>,
    pub(crate) swept: usize,
}

impl Retired {
    /// Whether somebody still reads this view, or one from before it, which shares what is in it.
    fn is_read(&self) -> bool {
        let mut swept = self.view.generations.iter().take(self.swept);
        Arc::strong_count(&self.view) > 1
            || Arc::strong_count(&self.view.engine) > 1
            || swept.any(|generation| Arc::strong_count(generation) > 1)
    }
}

impl EngineState {
    /// Frees what nobody reads any more.
    pub(crate) fn free_retired(&mut self) {
        self.retired.retain(Retired::is_read);
    }

    /// Refuses to change an engine that lacks its past.
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

/// A stream of the log as a map. See the crate's documentation for what it promises.
pub struct LoggedIndex {
    pub(crate) shared: Arc<Shared>,
    sweeper: Sweeper,
}

impl LoggedIndex {
    /// Brings `engine` up to the end of the log, rebuilding it from the checkpoints in `checkpoint_dir` (relative to
    /// `disk`'s root) if it lost too much, cannot be trusted or was written for another log.
    ///
    /// # Errors
    /// [`KvError::Damaged`] if neither the engine nor checkpoint and log together hold everything.
    pub fn open(
        journal: Arc<Journal>,
        stream: StreamId,
        engine: Box<dyn Engine>,
        disk: Arc<dyn Disk>,
        checkpoint_dir: &str,
        config: IndexConfig,
    ) -> Result<(Arc<LoggedIndex>, Recovery), KvError> {
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

    /// Puts `batch` in the log's order and into the overlay, visible to snapshots at once. It is NOT yet durable, nor
    /// even written: the caller does [`Journal::write_to`] or [`Journal::sync_to`] with the number returned. Waits if
    /// the overlay is full.
    ///
    /// # Errors
    /// [`KvError::NoSpace`], [`KvError::Stopped`], [`KvError::TooLarge`], [`KvError::BadKey`]: nothing was appended.
    pub fn append(&self, batch: &Batch) -> Result<Seq, KvError> {
        self.append_as(batch, Append { urgent: false, publish: true })
    }

    /// [`LoggedIndex::append`] for what frees space: may use the log's reserve.
    pub fn append_urgent(&self, batch: &Batch) -> Result<Seq, KvError> {
        self.append_as(batch, Append { urgent: true, publish: true })
    }

    /// [`LoggedIndex::append`], but snapshots don't show it until [`LoggedIndex::publish`]. Nobody else may append to
    /// this index with `append` meanwhile, because publishing is a position, not a set.
    pub fn append_unpublished(&self, batch: &Batch, urgent: bool) -> Result<Seq, KvError> {
        self.append_as(batch, Append { urgent, publish: false })
    }

    /// Shows everything up to `seq` to snapshots taken from now on.
    pub fn publish(&self, seq: Seq) {
        self.shared.published.fetch_max(seq.0, Ordering::AcqRel);
    }

    fn append_as(&self, batch: &Batch, how: Append) -> Result<Seq, KvError> {
        self.shared.append(batch, how)
    }

    /// Everything that was appended and published. Stays as it is for as long as it is held (and holds memory).
    #[must_use]
    pub fn snapshot(&self) -> Box<dyn Read + Send + '_> {
        Box::new(self.shared.snapshot())
    }

    /// Everything that was appended, published or not: for the only appender.
    pub(crate) fn latest(&self) -> Snapshot {
        self.shared.latest()
    }

    /// Moves what is durable and published to the engine. Says whether anything was moved.
    pub fn sweep_now(&self) -> Result<bool, KvError> {
        self.shared.sweep()
    }

    /// Makes a checkpoint if enough sealed segments wait for one, merges if due, and trims. Says whether files were made.
    pub fn checkpoint_now(&self) -> Result<bool, KvError> {
        self.shared.checkpoint()
    }

    /// Builds the engine again if it was found to be damaged. Says whether it did.
    pub fn heal_now(&self) -> Result<bool, KvError> {
        self.shared.heal()
    }

    /// The log that this is a stream of.
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

    /// Reads every checkpoint file through and compares all sums. For scrubs and `fsck`.
    pub fn verify_checkpoints(&self) -> Result<u64, KvError> {
        let mut set = self.shared.checkpoints.lock();
        let verified = set.verify_all();
        if let Err(KvError::Damaged(what)) = &verified {
            // Made anew in the next round.
            set.rotten = Some(what.clone());
        }
        verified
    }

    /// The last sweep, a flushed engine, no more threads: a clean stop that makes the next start quick. The log itself
    /// is closed by its owner afterwards.
    pub fn close(&self) -> Result<(), KvError> {
        self.sweeper.stop(&self.shared);
        let swept = self.shared.sweep();
        let flushed = self.shared.engine.flush();
        self.shared.engine.close();
        swept?;
        flushed
    }
}

impl Drop for LoggedIndex {
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
            // Before anybody can see it.
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

    /// Begins a new generation if there is anything in the active one.
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
            // Nobody else would make room.
            self.sweep()?;
            return if full() { Err(self.no_room()) } else { Ok(()) };
        }
        self.stats.lock().waits_for_room += 1;
        let deadline = Instant::now() + self.config.room_wait_max;
        let mut guard = self.room.0.lock();
        while full() {
            if self.is_out_of_space() {
                // Waiting would not help, and would hold up deletes.
                return Err(KvError::NoSpace);
            }
            self.wake_sweeper();
            if self.room.1.wait_until(&mut guard, deadline).timed_out() && full() {
                return Err(self.no_room());
            }
        }
        Ok(())
    }

    /// Whether the last sweep failed for want of space. The sweeper tries again by itself.
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

    /// Tells waiting appends that the overlay has shrunk (or that it will not: 0).
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
        // Under the lock: a generation that is not in this view gets its first version, hence its publication, later.
        let at = self.published.load(Ordering::Acquire);
        Snapshot { view: Arc::clone(&view), at }
    }

    #[cfg(test)]
    fn forgets_to_invalidate(&self) -> bool {
        self.config.planted == Some(crate::tests::Planted::CacheNotInvalidated)
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

/// The log's refusals in this crate's words.
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
