//! [`Embedded`]: the committer. It takes queued operations and runs each on a savepoint over the batch's changes. It
//! writes their net effect into one journal record with one sync, publishes it, and then answers all callers.

mod commit;
pub(crate) mod drive;
pub(crate) mod queue;
pub(crate) mod responder;
pub(crate) mod run;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use types::Histogram;

use crate::{Durability, JournaledIndex, Kv, KvError, Op, OpDone, Read};
use queue::{Queue, Request};
use responder::Responder;
pub(crate) use run::panic_text;

/// Called after the completions of a batch, on the same thread, to flush what they produced. Must not block.
pub type BatchDone = Arc<dyn Fn() + Send + Sync>;

/// How the committer works. The default is for production.
#[derive(Clone, Debug)]
pub struct EmbeddedConfig {
    /// Operations that may wait; with more, [`Kv::submit`] blocks.
    pub queue_max: usize,
    /// Operations in a batch at most.
    pub batch_ops_max: usize,
    /// Bytes of changes at which a batch takes no more operations.
    pub batch_bytes: usize,
    /// How long the committer waits for the clients of the last batch to return, before it commits fewer operations. It
    /// waits only after batches of several operations: a single client never waits.
    pub linger: Duration,
    #[cfg(test)]
    pub(crate) planted: Option<crate::tests::PlantedBug>,
}

impl Default for EmbeddedConfig {
    fn default() -> Self {
        Self {
            queue_max: 4096,
            batch_ops_max: 1024,
            batch_bytes: 4 << 20,
            linger: Duration::from_micros(50),
            #[cfg(test)]
            planted: None,
        }
    }
}

/// Counters since the committer was started.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EmbeddedStats {
    /// Batches committed.
    pub batches: u64,
    /// Operations in these batches.
    pub committed: u64,
    /// Operations that decided to abort.
    pub aborted: u64,
    /// Operations that panicked.
    pub panicked: u64,
    /// Operations refused for lack of space.
    pub no_space: u64,
    /// Operations in the largest batch.
    pub largest_batch: u64,
    /// Operations in each committed batch, including refused ones.
    pub batch_ops: Histogram,
}

/// The embedded engine of the namespace: one committer over a [`JournaledIndex`]. It is the index's only appender.
pub struct Embedded {
    index: Arc<JournaledIndex>,
    queue: Arc<Queue>,
    responder: Responder,
    stats: Arc<Mutex<EmbeddedStats>>,
    committer: Mutex<Option<JoinHandle<()>>>,
}

impl Embedded {
    /// Starts the threads.
    pub fn new(index: Arc<JournaledIndex>, config: EmbeddedConfig) -> Result<Self, KvError> {
        let queue = Arc::new(Queue::new(config.queue_max));
        let responder = Responder::start(Arc::clone(&queue))?;
        let stats = Arc::<Mutex<EmbeddedStats>>::default();
        let committer = commit::Committer::new(
            Arc::clone(&index),
            Arc::clone(&queue),
            responder.answers(),
            Arc::clone(&stats),
            config,
        );
        let committer = std::thread::Builder::new()
            .name("committer".into())
            .spawn(move || committer.run())
            .map_err(|error| KvError::Io(format!("cannot start the committer: {error}")))?;
        Ok(Self { index, queue, responder, stats, committer: Mutex::new(Some(committer)) })
    }

    /// Makes `hook` run after the completions of each batch.
    pub fn on_batch_done(&self, hook: BatchDone) {
        self.responder.set_hook(hook);
    }

    /// The index below the committer.
    #[must_use]
    pub fn index(&self) -> &Arc<JournaledIndex> {
        &self.index
    }

    /// Why no operation is committed or answered any more, if a thread of the engine has died. All operations then get
    /// [`KvError::Stopped`]. Acknowledged operations are durable. Only a restart helps.
    #[must_use]
    pub fn broken(&self) -> Option<String> {
        self.queue.broken()
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> EmbeddedStats {
        *self.stats.lock()
    }

    /// Commits and answers all queued operations, then ends the threads. Later operations get [`KvError::Stopped`].
    /// Operations and completions must not call this.
    pub fn stop(&self) {
        self.queue.close();
        if let Some(committer) = self.committer.lock().take() {
            // Panics of operations are caught. The panic hook has reported one of the committer itself.
            let _ = committer.join();
        }
        self.responder.stop();
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Kv for Embedded {
    fn snapshot(&self) -> Box<dyn Read + Send + '_> {
        self.index.snapshot()
    }

    fn submit(&self, durability: Durability, op: Op, done: OpDone) {
        self.queue.push(Request { durability, urgent: false, op, done });
    }

    fn submit_urgent(&self, durability: Durability, op: Op, done: OpDone) {
        self.queue.push(Request { durability, urgent: true, op, done });
    }
}
