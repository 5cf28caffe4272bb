//! Reading whole files for their checksums, when these are not known: on a thread of its own, one file after the
//! other, so that no close, re-open or end of a grace period waits for it.
//!
//! Equal questions share one reading; a reading whose askers have all gone stops; what it found is kept with the file.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::thread::JoinHandle;

use namespace::{Durability, KeepSums, Sums};
use parking_lot::{Condvar, Mutex};
use types::{BodyId, Ino, PieceId};
use wire::ErrorNumber;

use crate::answer::Reply;
use crate::node::{Node, Role};
use crate::refusal::Refusal;

/// Files that may wait to be read.
const WAITING_MAX: usize = 64;

/// The content that is asked for: as long as the generation is the same, so are its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Question {
    pub(crate) ino: Ino,
    pub(crate) body: BodyId,
    pub(crate) generation: u32,
}

/// One who asked, and what it is to be told.
pub(crate) struct Asker {
    pub(crate) reply: Reply,
    pub(crate) tell: Box<dyn FnOnce(Reply, Sums) + Send>,
}

/// The queue and its thread.
pub(crate) struct Checksums {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    order: VecDeque<Question>,
    /// Those who wait, also for the file that is being read.
    askers: HashMap<Question, Vec<Asker>>,
    stopping: bool,
}

impl Checksums {
    pub(crate) fn new() -> Self {
        Self { shared: Arc::default(), thread: Mutex::new(None) }
    }

    pub(crate) fn start(&self, node: Arc<Node>) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let builder = std::thread::Builder::new().name("checksums".into()).stack_size(512 << 10);
        *self.thread.lock() = Some(builder.spawn(move || run(&node, &shared))?);
        Ok(())
    }

    /// Queues a question, with equal ones.
    pub(crate) fn ask(&self, question: Question, asker: Asker) {
        let mut state = self.shared.state.lock();
        if state.stopping || (state.order.len() >= WAITING_MAX && !state.askers.contains_key(&question)) {
            drop(state);
            return asker.reply.refuse(&Refusal::busy());
        }
        let State { order, askers, .. } = &mut *state;
        askers
            .entry(question)
            .or_insert_with(|| {
                order.push_back(question);
                Vec::new()
            })
            .push(asker);
        drop(state);
        self.shared.work.notify_one();
    }

    /// Whether the thread has ended, which it does not by itself.
    pub(crate) fn ended(&self) -> bool {
        self.thread.lock().as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Ends the thread; the node must be stopping, so that a reading stops too.
    pub(crate) fn stop(&self) {
        self.shared.state.lock().stopping = true;
        self.shared.work.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the checksums' thread had panicked");
        }
    }
}

fn run(node: &Arc<Node>, shared: &Shared) {
    loop {
        let question = {
            let mut state = shared.state.lock();
            loop {
                if state.stopping {
                    state.askers.drain().flat_map(|(_, askers)| askers).for_each(|a| a.reply.refuse(&Refusal::busy()));
                    return;
                }
                if let Some(question) = state.order.pop_front() {
                    break question;
                }
                shared.work.wait(&mut state);
            }
        };
        let work = std::panic::AssertUnwindSafe(|| read_through(node, shared, question));
        let result = std::panic::catch_unwind(work).unwrap_or_else(|_| {
            tracing::error!(body = %question.body, "reading a file for its checksum panicked");
            Err(Refusal::new(ErrorNumber::SERVER_ERROR, "Cannot compute the checksum: an error of the server"))
        });
        let askers = shared.state.lock().askers.remove(&question).unwrap_or_default();
        for asker in askers {
            match &result {
                Ok(sums) => (asker.tell)(asker.reply, *sums),
                Err(refusal) => asker.reply.refuse(refusal),
            }
        }
    }
}

fn read_through(node: &Arc<Node>, shared: &Shared, question: Question) -> Result<Sums, Refusal> {
    let wanted = || {
        let state = shared.state.lock();
        let wanted = state.askers.get(&question).is_some_and(|askers| askers.iter().any(|a| !a.reply.is_dead()));
        wanted && !state.stopping
    };
    if !wanted() {
        return Err(Refusal::busy());
    }
    if let Role::Manager(_) = node.role {
        let why =
            "it has no checksum, since its writer went away while it was changed; and a manager has nothing to read";
        return Err(Refusal::new(ErrorNumber::UNSUPPORTED, format!("Cannot compute the checksum: {why}")));
    }
    let piece = PieceId::first(question.body);
    let verified = node.store_of(piece).and_then(|store| store.verify(piece, &mut |_| wanted()));
    let verified = verified.map_err(|error| Refusal::of_store(&"compute the checksum", &error))?;
    let sums = Sums { adler32: verified.adler32, crc32c: verified.crc32c };
    let Question { ino, body, generation } = question;
    node.change(Durability::Written, KeepSums { ino, body, generation, sums }, |result| {
        if let Err(error) = result {
            tracing::warn!(%error, "cannot keep a checksum");
        }
    });
    Ok(sums)
}
