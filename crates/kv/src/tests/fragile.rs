//! An engine in memory that fails on request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::engine::{Applied, Engine, EntrySource};
use crate::{KvError, MemoryEngine, Read};

#[derive(Clone, Default)]
pub(crate) struct Fragile(pub(crate) Arc<State>);

#[derive(Default)]
pub(crate) struct State {
    engine: MemoryEngine,
    /// Why the engine reports damage, until it is reset.
    pub(crate) damaged: Mutex<Option<String>>,
    /// The error of the next steps.
    pub(crate) refusal: Mutex<Option<KvError>>,
    /// How many of the next steps panic.
    pub(crate) panics: AtomicU64,
    pub(crate) resets: AtomicU64,
}

impl Engine for Fragile {
    fn snapshot(&self) -> Arc<dyn Read + Send + Sync> {
        self.0.engine.snapshot()
    }
    fn apply(&self, entries: &mut dyn EntrySource, applied: Applied) -> Result<(), KvError> {
        let left = self.0.panics.load(Ordering::SeqCst);
        if left > 0 {
            self.0.panics.store(left - 1, Ordering::SeqCst);
            panic!("told so");
        }
        match self.0.refusal.lock().clone() {
            Some(refusal) => Err(refusal),
            None => self.0.engine.apply(entries, applied),
        }
    }
    fn applied(&self) -> Applied {
        self.0.engine.applied()
    }
    fn flushed(&self) -> Applied {
        self.0.engine.flushed()
    }
    fn flush(&self) -> Result<(), KvError> {
        self.0.engine.flush()
    }
    fn reset(&self, why: &str) -> Result<(), KvError> {
        self.0.resets.fetch_add(1, Ordering::SeqCst);
        *self.0.damaged.lock() = None;
        self.0.engine.reset(why)
    }
    fn load(&self, entries: &mut dyn EntrySource, applied: Applied) -> Result<(), KvError> {
        self.0.engine.load(entries, applied)
    }
    fn damaged(&self) -> Option<String> {
        self.0.damaged.lock().clone()
    }
}
