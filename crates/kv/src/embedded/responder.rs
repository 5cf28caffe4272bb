//! The thread that answers: completions in the order of the operations, then the hook, batch by batch.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use super::BatchDone;
use super::queue::{Queue, enter_engine};
use crate::{KvError, OpDone};

/// Batches that may wait for their answers; beyond that the committer waits.
const BATCHES_WAITING_MAX: usize = 16;

/// A batch's completions with what they are told.
pub(super) type Answers = Vec<(OpDone, Result<(), KvError>)>;

type Hook = Arc<Mutex<Option<BatchDone>>>;

pub(super) struct Responder {
    hook: Hook,
    sender: Mutex<Option<SyncSender<Answers>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Responder {
    /// Starts the thread. If it dies, `queue` is broken off: without answers there is no use in going on.
    pub(super) fn start(queue: Arc<Queue>) -> Result<Self, KvError> {
        let (sender, receiver) = sync_channel::<Answers>(BATCHES_WAITING_MAX);
        let hook = Hook::default();
        let inner = Arc::clone(&hook);
        let thread = std::thread::Builder::new()
            .name("responder".into())
            .spawn(move || {
                enter_engine();
                let work = AssertUnwindSafe(|| receiver.iter().for_each(|answers| answer(answers, &inner)));
                if let Err(panic) = catch_unwind(work) {
                    // Its content may panic once more when it goes.
                    std::mem::forget(panic);
                    queue.break_off("the thread that answers, the responder, has died by a panic");
                }
            })
            .map_err(|error| KvError::Io(format!("cannot start the responder: {error}")))?;
        Ok(Self { hook, sender: Mutex::new(Some(sender)), thread: Mutex::new(Some(thread)) })
    }

    /// For the committer. The thread ends when all senders are gone.
    pub(super) fn sender(&self) -> Option<SyncSender<Answers>> {
        self.sender.lock().clone()
    }

    pub(super) fn set_hook(&self, hook: BatchDone) {
        *self.hook.lock() = Some(hook);
    }

    /// Ends the thread after what it has; the committer is gone already.
    pub(super) fn stop(&self) {
        *self.sender.lock() = None;
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

fn answer(answers: Answers, hook: &Hook) {
    for (done, result) in answers {
        // A completion that panics is a bug of its owner; the others still have to be answered.
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
