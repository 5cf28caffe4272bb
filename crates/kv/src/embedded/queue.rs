//! The bounded queue between callers and the committer.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::{Durability, KvError, Op, OpDone};

thread_local! {
    /// Whether this thread is the committer or the responder: an operation that it submits must not wait for itself.
    static OF_ENGINE: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as one of the engine's.
pub fn enter_engine() {
    OF_ENGINE.set(true);
}

/// Runs code of other crates. Returns false if it panicked. Not even the destructor of the panic's contents can end the
/// thread.
pub(crate) fn guard(what: &str, work: impl FnOnce()) -> bool {
    let Err(panic) = catch_unwind(AssertUnwindSafe(work)) else { return true };
    tracing::error!("{what} panicked");
    // Its destructor is foreign code too.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(panic)));
    false
}

/// A waiting operation.
pub struct Request {
    /// How durable its commit must be.
    pub durability: Durability,
    /// Whether it frees space.
    pub urgent: bool,
    /// What it does.
    pub op: Op,
    /// Called with its result.
    pub done: OpDone,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Request>,
    closed: bool,
    /// Why no operation will be taken any more: a thread of the engine has died.
    broken: Option<String>,
    /// The committer sleeps until an operation arrives.
    asleep: bool,
    /// Threads that wait for room.
    blocked: usize,
}

/// A bounded queue of operations.
pub struct Queue {
    state: Mutex<State>,
    came: Condvar,
    room: Condvar,
    max: usize,
}

impl Queue {
    /// An empty queue. At most `max` operations wait.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { state: Mutex::default(), came: Condvar::new(), room: Condvar::new(), max: max.max(1) }
    }

    /// Adds an operation, and waits while the queue is full. A closed queue answers it at once.
    pub fn push(&self, request: Request) {
        let mut state = self.state.lock();
        if !OF_ENGINE.get() {
            while state.waiting.len() >= self.max && !state.closed {
                state.blocked += 1;
                self.room.wait(&mut state);
                state.blocked -= 1;
            }
        }
        if state.closed {
            let reason = state.broken.clone().unwrap_or_else(|| "the server is stopping".into());
            drop(state);
            (request.done)(Err(KvError::Stopped { reason }));
            return;
        }
        state.waiting.push_back(request);
        let wake = state.asleep;
        drop(state);
        if wake {
            self.came.notify_one();
        }
    }

    /// Takes up to `max` operations and waits for the first. If fewer than `expected` are queued, waits up to `linger`
    /// for more. Returns no operations if none came for as long as `idle`, and `None` once the queue is closed and empty.
    pub fn take(
        &self,
        max: usize,
        expected: usize,
        linger: Duration,
        idle: Option<Duration>,
    ) -> Option<VecDeque<Request>> {
        let mut state = self.state.lock();
        let until = idle.map(|idle| Instant::now() + idle);
        while state.waiting.is_empty() {
            if state.closed {
                return None;
            }
            state.asleep = true;
            let is_idle = match until {
                Some(until) => self.came.wait_until(&mut state, until).timed_out(),
                None => {
                    self.came.wait(&mut state);
                    false
                }
            };
            state.asleep = false;
            if is_idle && state.waiting.is_empty() && !state.closed {
                return Some(VecDeque::new());
            }
        }
        if state.waiting.len() < expected.min(max) && !state.closed {
            let until = Instant::now() + linger;
            loop {
                drop(state);
                // The remaining time is shorter than a timer's resolution.
                std::thread::yield_now();
                state = self.state.lock();
                if state.waiting.len() >= expected.min(max) || state.closed || Instant::now() >= until {
                    break;
                }
            }
        }
        let count = state.waiting.len().min(max);
        let rest = state.waiting.split_off(count);
        let taken = std::mem::replace(&mut state.waiting, rest);
        let wake = state.blocked > 0;
        drop(state);
        if wake {
            self.room.notify_all();
        }
        Some(taken)
    }

    /// Whether no operation waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.state.lock().waiting.is_empty()
    }

    /// Stops the queue: it takes and returns nothing more. All waiting and later callers get `reason`.
    pub fn break_off(&self, reason: &str) {
        let waiting = {
            let mut state = self.state.lock();
            state.closed = true;
            state.broken.get_or_insert_with(|| reason.to_owned());
            std::mem::take(&mut state.waiting)
        };
        self.came.notify_all();
        self.room.notify_all();
        for request in waiting {
            let stopped = KvError::Stopped { reason: reason.to_owned() };
            guard("a completion", || (request.done)(Err(stopped)));
        }
    }

    /// See [`Queue::break_off`].
    #[must_use]
    pub fn broken(&self) -> Option<String> {
        self.state.lock().broken.clone()
    }

    /// Whether it takes no more operations.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Takes no more operations; queued ones are still returned.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.came.notify_all();
        self.room.notify_all();
    }
}
