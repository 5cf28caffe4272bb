//! Moves what is durable from the overlay to the engine, and has checkpoints made.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use journal::Seq;
use parking_lot::Mutex;

use crate::KvError;
use crate::background::in_spare_time;
use crate::engine::{Applied, Entry, EntrySource};
use crate::index::{EngineState, IndexStats, Retired, Shared, from_journal};
use crate::overlay::{Generation, NetChange, NetChanges};
use crate::snapshot::View;
use crate::write_set::Bytes;

/// How long to wait after a failure before the next try.
const PAUSE_AFTER_TROUBLE: Duration = Duration::from_millis(500);

/// How often it is looked whether a checkpoint is due.
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
        // Apart from the sweeper, because reading segments back and merging files takes long.
        sweeper.threads.lock().push(spawn("checkpoint", checkpoint_step, CHECKPOINT_INTERVAL, false)?);
        Ok(sweeper)
    }

    /// Ends the threads after their present step.
    pub(crate) fn stop(&self, shared: &Shared) {
        shared.cancel.store(true, Ordering::Relaxed);
        shared.wake.0.lock().stop = true;
        shared.wake.1.notify_all();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // A panic was already reported by the panic hook; there is nothing to add here.
            let _ = thread.join();
        }
    }
}

/// Does `step` every `interval`, and whenever it is asked for if it is the one that can be asked for.
fn run(shared: &Shared, step: fn(&Shared), interval: Duration, on_demand: bool) {
    while !shared.pause(interval, on_demand) {
        step(shared);
    }
}

/// Does a step; a panic in it is an error of this step alone, because without the thread everything would stop unseen.
fn caught(shared: &Shared, step: impl FnOnce() -> Result<bool, KvError>) -> Result<bool, KvError> {
    // No lock is left locked, and a half-done step is what a failed one leaves too.
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
    let made = in_spare_time("checkpointing", urgent, || caught(shared, || shared.make_checkpoint()));
    let result = made.and_then(|made| caught(shared, || shared.trim_by_checkpoint().map(|()| made)));
    if shared.cancel.load(Ordering::Relaxed) {
        return; // perhaps given up half way
    }
    note(shared, "no checkpoint can be made, so the journal grows", &result, |stats| &mut stats.checkpoint_trouble);
}

/// Keeps the reason of a failure for the status, says it once, and waits a little before the next try.
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
    /// Waits; says whether to stop.
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

    /// One step: sealed generations that are published are made durable in the log, merged (the newest version of each
    /// key counts), and applied to the engine; then readers get a view without them.
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
            // The engine's old files go when nobody looks at them any more, and compaction has made new ones meanwhile.
            self.renew_view(&mut alone, 0);
            return Ok(false);
        };
        if !self.skips_sync() {
            self.journal.sync_to(Seq(through)).map_err(from_journal)?;
        }
        let mut swept = Swept::collect(&ready, &view)?;
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

    /// On a quiet server it would take long until so much has come together that the engine flushes by itself.
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

    /// Gives readers the engine as it is now, without the `swept` oldest generations, which it holds. Generations are
    /// only taken away by those who hold `sweeping`, of which `alone` is the proof.
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
        self.config.planted == Some(crate::tests::Planted::ApplyBeforeDurable)
    }

    #[cfg(not(test))]
    fn skips_sync(&self) -> bool {
        false
    }
}

/// The net effect of some generations.
struct Swept {
    entries: Vec<(Bytes, Option<Bytes>)>,
    next: usize,
    versions: usize,
}

impl Swept {
    fn collect(generations: &[&Generation], view: &View) -> Result<Self, KvError> {
        let mut entries = Vec::new();
        for NetChange { key, value, versions } in NetChanges::new(generations.iter().rev().copied()) {
            // A key that came and went within these generations never reaches the engine. What the engine holds is
            // exactly what the view shows of it: sweeps are alone. Of a key that only went it is known that it came before;
            // if there was none to remove, the engine is told in vain.
            if versions > 1 && value.is_none() && view.engine.get(&key)?.is_none() {
                continue;
            }
            entries.push((key, value));
        }
        let versions = generations.iter().map(|generation| generation.len()).sum();
        Ok(Self { entries, next: 0, versions })
    }
}

impl EntrySource for Swept {
    fn next(&mut self) -> Result<Option<Entry<'_>>, KvError> {
        let entry = self.entries.get(self.next);
        self.next += 1;
        Ok(entry.map(|(key, value)| (&**key, value.as_deref())))
    }
}
