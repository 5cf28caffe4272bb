//! Moves durable changes from the overlay to the engine, and makes checkpoints.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use journal::Seq;
use parking_lot::Mutex;

use crate::KvError;
use crate::background::at_low_priority;
use crate::engine::{Applied, Entry, EntrySource};
use crate::index::{EngineState, IndexStats, Retired, Shared, from_journal};
use crate::overlay::{Generation, NetChange, NetChanges};
use crate::snapshot::View;
use crate::write_set::Bytes;

/// How long to wait after a failure before the next attempt.
const PAUSE_AFTER_TROUBLE: Duration = Duration::from_millis(500);

/// How often to check whether a checkpoint is due.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);

/// The threads, if there are any.
#[derive(Default)]
pub(crate) struct Sweeper {
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Sweeper {
    pub(crate) fn start(shared: &Arc<Shared>) -> Result<Self, KvError> {
        if !shared.config.background {
            return Ok(Self::default());
        }
        let spawn = |name: &str, step: fn(&Shared), interval: Duration, on_demand: bool| {
            let inner = Arc::clone(shared);
            std::thread::Builder::new()
                .name(format!("{name}-{}", shared.stream.0))
                .spawn(move || run(&inner, step, interval, on_demand))
                .map_err(|error| KvError::Io(format!("cannot start the {name}: {error}")))
        };
        let sweeper = Self::default();
        sweeper.threads.lock().push(spawn("sweeper", sweep_step, shared.config.sweep_interval, true)?);
        // Separate from the sweeper, because reading segments and merging files take long.
        sweeper.threads.lock().push(spawn("checkpoint", checkpoint_step, CHECKPOINT_INTERVAL, false)?);
        Ok(sweeper)
    }

    /// Ends the threads after their current step.
    pub(crate) fn stop(&self, shared: &Shared) {
        shared.cancel.store(true, Ordering::Relaxed);
        shared.wake.0.lock().stop = true;
        shared.wake.1.notify_all();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // The panic hook has already reported a panic.
            let _ = thread.join();
        }
    }
}

/// Runs `step` every `interval`; with `on_demand` also whenever the sweeper is woken.
fn run(shared: &Shared, step: fn(&Shared), interval: Duration, on_demand: bool) {
    while !shared.pause(interval, on_demand) {
        step(shared);
    }
}

/// Runs a step. A panic is an error of this step only: without the thread everything would stop unnoticed.
fn caught(shared: &Shared, step: impl FnOnce() -> Result<bool, KvError>) -> Result<bool, KvError> {
    // No lock stays locked, and a half-done step leaves the same state as a failed one.
    catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|panic| {
        shared.stats.lock().panics += 1;
        Err(KvError::Panicked(crate::embedded::panic_text(&*panic)))
    })
}

fn sweep_step(shared: &Shared) {
    shared.wake.0.lock().now = false;
    let result = caught(shared, || {
        shared.heal()?;
        let moved = shared.sweep()?;
        shared.flush_if_due()?;
        Ok(moved)
    });
    note(shared, "the index falls behind its journal", &result, |stats| &mut stats.trouble);
}

fn checkpoint_step(shared: &Shared) {
    let waiting = shared.segments_waiting().len();
    let urgent = waiting <= shared.config.segments_kept_max || waiting > shared.config.urgent_segments();
    let made = at_low_priority("checkpointing", urgent, || caught(shared, || shared.make_checkpoint()));
    let result = made.and_then(|made| caught(shared, || shared.trim_by_checkpoint().map(|()| made)));
    if shared.cancel.load(Ordering::Relaxed) {
        return; // perhaps abandoned halfway
    }
    note(shared, "no checkpoint can be made, so the journal grows", &result, |stats| &mut stats.checkpoint_trouble);
}

/// Keeps the reason of a failure for the status, logs it once, and waits a little before the next attempt.
fn note(
    shared: &Shared,
    what: &str,
    result: &Result<bool, KvError>,
    place: fn(&mut IndexStats) -> &mut Option<String>,
) {
    let trouble = result.as_ref().err().map(ToString::to_string);
    let before = std::mem::replace(place(&mut shared.stats.lock()), trouble.clone());
    let stream = shared.stream.0;
    match (&before, &trouble) {
        (_, Some(trouble)) if before.as_ref() != Some(trouble) => tracing::error!(stream, "{what}: {trouble}"),
        (Some(_), None) => tracing::info!(stream, "no longer: {what}"),
        _ => {}
    }
    if result.is_err() {
        shared.made_room(0);
        shared.pause(PAUSE_AFTER_TROUBLE, false);
    }
}

impl Shared {
    /// Waits. Returns whether to stop.
    fn pause(&self, time: Duration, on_demand: bool) -> bool {
        let until = Instant::now() + time;
        let mut wake = self.wake.0.lock();
        loop {
            let asked = on_demand && wake.now;
            if wake.stop || asked || self.wake.1.wait_until(&mut wake, until).timed_out() {
                return wake.stop;
            }
        }
    }

    /// Runs one step. It makes published sealed generations durable in the journal, merges them (the newest version of
    /// each key counts), and applies them to the engine. Readers then get a view without them.
    pub(crate) fn sweep(&self) -> Result<bool, KvError> {
        let mut alone = self.sweeping.lock();
        alone.check()?;
        alone.free_retired();
        self.seal(&mut self.appender.lock());
        let view = Arc::clone(&self.view.read());
        let published = self.published.load(Ordering::Acquire);
        let sealed = view.generations.len().saturating_sub(1);
        let ready = view.generations.iter().take(sealed).take_while(|generation| generation.last() <= published);
        let ready: Vec<&Generation> = ready.map(|generation| &**generation).collect();
        let Some(through) = ready.last().map(|generation| generation.last()) else {
            // The engine removes its old files when no view uses them. Compaction has made new ones meanwhile.
            self.renew_view(&mut alone, 0);
            return Ok(false);
        };
        if !self.skips_sync() {
            self.journal.sync_to(Seq(through)).map_err(from_journal)?;
        }
        let mut swept = SweptChanges::collect(&ready, &view)?;
        let applied = Applied { seq: Seq(through), incarnation: self.journal.incarnation() };
        let (versions, entries) = (swept.versions, swept.entries.len());
        self.engine.apply(&mut swept, applied)?;

        let bytes = ready.iter().map(|generation| generation.bytes()).sum();
        self.renew_view(&mut alone, ready.len());
        drop(view);
        alone.free_retired();
        self.made_room(bytes);
        let mut stats = self.stats.lock();
        stats.sweeps += 1;
        stats.versions_swept += versions as u64;
        stats.entries_applied += entries as u64;
        Ok(true)
    }

    /// Flushes the engine if the interval has passed: on a quiet server it would take long to fill up and flush by
    /// itself.
    pub(crate) fn flush_if_due(&self) -> Result<(), KvError> {
        let mut alone = self.sweeping.lock();
        if self.engine.flushed() == self.engine.applied() {
            alone.unflushed_since = None;
            return Ok(());
        }
        if alone.unflushed_since.get_or_insert_with(Instant::now).elapsed() >= self.config.flush_interval {
            alone.check()?;
            self.engine.flush()?;
            alone.unflushed_since = None;
        }
        Ok(())
    }

    /// Gives readers the engine's present state, without the `swept` oldest generations, which the engine holds. Only
    /// the holder of `sweeping` may remove generations; `alone` proves that.
    pub(crate) fn renew_view(&self, alone: &mut EngineState, swept: usize) {
        let epoch = self.cache.epoch();
        let engine = self.engine.snapshot();
        let mut current = self.view.write();
        let generations = current.generations.iter().skip(swept).cloned().collect();
        let cache = Arc::clone(&self.cache);
        let renewed = Arc::new(View { engine, generations, cache, epoch });
        let view = std::mem::replace(&mut *current, renewed);
        alone.retired.push(Retired { view, swept });
    }

    #[cfg(test)]
    fn skips_sync(&self) -> bool {
        self.config.planted == Some(crate::tests::PlantedBug::ApplyBeforeDurable)
    }

    #[cfg(not(test))]
    fn skips_sync(&self) -> bool {
        false
    }
}

/// The net effect of some generations.
struct SweptChanges {
    entries: Vec<(Bytes, Option<Bytes>)>,
    next: usize,
    versions: usize,
}

impl SweptChanges {
    fn collect(generations: &[&Generation], view: &View) -> Result<Self, KvError> {
        let mut entries = Vec::new();
        for NetChange { key, value, versions } in NetChanges::new(generations.iter().rev().copied()) {
            // A key that was created and deleted within these generations never reaches the engine. The engine holds
            // exactly what the view shows of it: only one sweep runs at a time. A key with a single deletion existed
            // before; if it did not, the deletion is harmless.
            if versions > 1 && value.is_none() && view.engine.get(&key)?.is_none() {
                continue;
            }
            entries.push((key, value));
        }
        let versions = generations.iter().map(|generation| generation.len()).sum();
        Ok(Self { entries, next: 0, versions })
    }
}

impl EntrySource for SweptChanges {
    fn next(&mut self) -> Result<Option<Entry<'_>>, KvError> {
        let entry = self.entries.get(self.next);
        self.next += 1;
        Ok(entry.map(|(key, value)| (&**key, value.as_deref())))
    }
}
