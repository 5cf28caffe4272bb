//! Answers batches. For each batch it runs the completions in the order of the operations, and then the hook. A thread
//! does that while the committer goes on with the next batch. If there is nothing to go on with, the committer answers
//! itself: waking the thread would take longer than the answers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use super::BatchDone;
use super::queue::{Queue, enter_engine, guard};
use crate::{KvError, OpDone};

/// Batches that may wait for their answers; with more, the committer waits.
const BATCHES_WAITING_MAX: usize = 16;

/// Batches with more answers are left to the thread.
const ANSWERS_OF_COMMITTER_MAX: usize = 2;

/// The completions of a batch with their results.
pub type Completions = Vec<(OpDone, Result<(), KvError>)>;

type Hook = Arc<Mutex<Option<BatchDone>>>;

/// The committer's end: where it hands over its batches, or answers them.
pub struct Answers {
    sender: SyncSender<Completions>,
    /// Batches that the thread has not answered completely.
    unanswered: Arc<AtomicUsize>,
    hook: Hook,
}

impl Answers {
    /// Answers a batch after all earlier ones. `idle`: whether the committer has nothing else to do.
    pub fn give(&self, answers: Completions, idle: bool) {
        // Only this thread adds to the number, so what was 0 stays 0.
        if idle && answers.len() <= ANSWERS_OF_COMMITTER_MAX && self.unanswered.load(Ordering::Acquire) == 0 {
            answer(answers, &self.hook);
            return;
        }
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        // The thread ends only after the committer, or has died. Dropping a completion informs its caller.
        if self.sender.send(answers).is_err() {
            self.flush();
        }
    }

    /// Runs the hook after answers that the committer has given otherwise.
    pub fn flush(&self) {
        answer(Vec::new(), &self.hook);
    }
}

/// The thread that answers.
pub struct Responder {
    hook: Hook,
    sender: Mutex<Option<SyncSender<Completions>>>,
    unanswered: Arc<AtomicUsize>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Responder {
    /// Starts the thread. If it dies, `queue` is broken off: continuing without answers is useless.
    pub fn start(queue: Arc<Queue>) -> Result<Self, KvError> {
        let (sender, receiver) = sync_channel::<Completions>(BATCHES_WAITING_MAX);
        let hook = Hook::default();
        let inner = Arc::clone(&hook);
        let unanswered = Arc::<AtomicUsize>::default();
        let left = Arc::clone(&unanswered);
        let thread = std::thread::Builder::new()
            .name("responder".into())
            .spawn(move || {
                enter_engine();
                let work = AssertUnwindSafe(|| {
                    receiver.iter().for_each(|answers| {
                        answer(answers, &inner);
                        left.fetch_sub(1, Ordering::Release);
                    });
                });
                if let Err(panic) = catch_unwind(work) {
                    // Dropping its contents may panic again.
                    std::mem::forget(panic);
                    queue.break_off("the thread that answers, the responder, has died by a panic");
                }
            })
            .map_err(|error| KvError::Io(format!("cannot start the responder: {error}")))?;
        Ok(Self { hook, sender: Mutex::new(Some(sender)), unanswered, thread: Mutex::new(Some(thread)) })
    }

    /// The committer's end. The thread ends when it is dropped.
    #[must_use]
    pub fn answers(&self) -> Option<Answers> {
        let sender = self.sender.lock().clone()?;
        Some(Answers { sender, unanswered: Arc::clone(&self.unanswered), hook: Arc::clone(&self.hook) })
    }

    /// Makes `hook` run after the completions of each batch.
    pub fn set_hook(&self, hook: BatchDone) {
        *self.hook.lock() = Some(hook);
    }

    /// Ends the thread after its pending answers. The committer has already ended.
    pub fn stop(&self) {
        *self.sender.lock() = None;
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

fn answer(answers: Completions, hook: &Hook) {
    for (done, result) in answers {
        // A panic is a bug of the completion's owner; the others must still be answered.
        guard("a completion", || done(result));
    }
    let hook = hook.lock().clone();
    if let Some(hook) = hook {
        guard("the hook behind a batch", || hook());
    }
}
