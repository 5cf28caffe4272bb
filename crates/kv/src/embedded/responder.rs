//! The thread that answers. For each batch it runs the completions in the order of the operations, and then the hook.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use super::BatchDone;
use super::queue::{Queue, enter_engine};
use crate::{KvError, OpDone};

/// Batches that may wait for their answers; with more, the committer waits.
const BATCHES_WAITING_MAX: usize = 16;

/// The completions of a batch with their results.
pub(super) type Completions = Vec<(OpDone, Result<(), KvError>)>;

type Hook = Arc<Mutex<Option<BatchDone>>>;

pub(super) struct Responder {
    hook: Hook,
    sender: Mutex<Option<SyncSender<Completions>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Responder {
    /// Starts the thread. If it dies, `queue` is broken off: continuing without answers is useless.
    pub(super) fn start(queue: Arc<Queue>) -> Result<Self, KvError> {
        let (sender, receiver) = sync_channel::<Completions>(BATCHES_WAITING_MAX);
        let hook = Hook::default();
        let inner = Arc::clone(&hook);
        let thread = std::thread::Builder::new()
            .name("responder".into())
            .spawn(move || {
                enter_engine();
                let work = AssertUnwindSafe(|| receiver.iter().for_each(|answers| answer(answers, &inner)));
                if let Err(panic) = catch_unwind(work) {
                    // Dropping its contents may panic again.
                    std::mem::forget(panic);
                    queue.break_off("the thread that answers, the responder, has died by a panic");
                }
            })
            .map_err(|error| KvError::Io(format!("cannot start the responder: {error}")))?;
        Ok(Self { hook, sender: Mutex::new(Some(sender)), thread: Mutex::new(Some(thread)) })
    }

    /// The committer's end of the channel. The thread ends when all senders are dropped.
    pub(super) fn sender(&self) -> Option<SyncSender<Completions>> {
        self.sender.lock().clone()
    }

    pub(super) fn set_hook(&self, hook: BatchDone) {
        *self.hook.lock() = Some(hook);
    }

    /// Ends the thread after its pending answers. The committer has already ended.
    pub(super) fn stop(&self) {
        *self.sender.lock() = None;
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

fn answer(answers: Completions, hook: &Hook) {
    for (done, result) in answers {
        // A panic is a bug of the completion's owner; the others must still be answered.
        if catch_unwind(AssertUnwindSafe(|| done(result))).is_err() {
            tracing::error!("a completion panicked");
        }
    }
    let hook = hook.lock().clone();
    if let Some(hook) = hook
        && catch_unwind(AssertUnwindSafe(|| hook())).is_err()
    {
        tracing::error!("the hook behind a batch panicked");
    }
}
