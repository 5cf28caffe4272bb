//! A few threads for what may take long and must not stop a connection or the responder: closing a big file,
//! taking up one again, reading a whole file for its checksum; and others for storing while a connection receives.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use crate::answer::Answer;
use crate::error::Error;

type Job = Box<dyn FnOnce() + Send>;

/// The threads and their bounded queue.
pub(crate) struct Workers {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    queue_max: usize,
}

struct State {
    jobs: VecDeque<Job>,
    /// Threads that wait for a job.
    idle: usize,
    stopping: bool,
}

impl Workers {
    /// `threads` of them, called `name` and a number.
    pub(crate) fn start(name: &str, threads: usize, queue_max: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State { jobs: VecDeque::new(), idle: 0, stopping: false }),
            work: Condvar::new(),
            queue_max,
        });
        let mut handles = Vec::new();
        for n in 0..threads.max(1) {
            let shared = Arc::clone(&shared);
            let builder = std::thread::Builder::new().name(format!("{name}-{n}")).stack_size(512 << 10);
            handles.push(builder.spawn(move || work(&shared))?);
        }
        Ok(Self { shared, threads: Mutex::new(handles) })
    }

    /// Queues `job`; gives it back when the queue is full or the workers have stopped.
    pub(crate) fn submit(&self, job: Job) -> Result<(), Job> {
        let mut state = self.shared.state.lock();
        if state.stopping || state.jobs.len() >= self.shared.queue_max {
            return Err(job);
        }
        state.jobs.push_back(job);
        drop(state);
        self.shared.work.notify_one();
        Ok(())
    }

    /// Has `job` done at once, if a thread has nothing to do; gives it back otherwise.
    pub(crate) fn offer(&self, job: Job) -> Result<(), Job> {
        let mut state = self.shared.state.lock();
        // A thread that was woken counts as idle until it has its job.
        if state.stopping || state.jobs.len() >= state.idle {
            return Err(job);
        }
        state.jobs.push_back(job);
        drop(state);
        self.shared.work.notify_one();
        Ok(())
    }

    /// Queues `job` past the bound: for work that somebody has a duty to do, because what it follows has been done
    /// already. There is one such job for each request under way at most. Dropped when the workers have stopped: then
    /// no connection is left, and the next start finds what was left.
    pub(crate) fn submit_duty(&self, job: Job) {
        let mut state = self.shared.state.lock();
        if state.stopping {
            return;
        }
        state.jobs.push_back(job);
        drop(state);
        self.shared.work.notify_one();
    }

    /// Hands `work` to the threads with the duty to answer, however much waits there: for what follows from a change
    /// that the namespace has made already.
    pub(crate) fn must_do<A: Send + 'static>(&self, answer: A, work: impl FnOnce(A) + Send + 'static) {
        self.submit_duty(Box::new(move || work(answer)));
    }

    /// Hands `work` to the threads with the duty to answer; too much work is answered with a wait. Only for work that
    /// nothing was done for yet.
    pub(crate) fn on_worker<T, A: Answer<T>>(&self, answer: A, work: impl FnOnce(A) + Send + 'static) {
        // The duty lies where both outcomes find it.
        let slot = Arc::new(Mutex::new(Some(answer)));
        let inner = Arc::clone(&slot);
        let queued = self.submit(Box::new(move || {
            let answer = inner.lock().take();
            if let Some(answer) = answer {
                work(answer);
            }
        }));
        if queued.is_err()
            && let Some(answer) = slot.lock().take()
        {
            answer.give(Err(Error::busy()));
        }
    }

    /// Whether a thread has ended, which none does by itself.
    pub(crate) fn ended(&self) -> bool {
        self.threads.lock().iter().any(JoinHandle::is_finished)
    }

    /// Finishes what is queued and ends the threads.
    pub(crate) fn stop(&self) {
        self.shared.state.lock().stopping = true;
        self.shared.work.notify_all();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            if thread.join().is_err() {
                tracing::error!("a worker thread had panicked");
            }
        }
    }
}

/// Does `work` in a thread of its own, with the duty `then`: for what waits for other servers, and so must not keep the workers from those who
/// wait for this one. Without a thread it is done by the caller.
pub(crate) fn apart<T: Send + 'static>(then: T, work: impl FnOnce(T) + Send + 'static) {
    // The work lies where both outcomes find it.
    let slot = Arc::new(Mutex::new(Some((then, work))));
    let inner = Arc::clone(&slot);
    let run = |slot: &Mutex<Option<_>>| {
        let taken = slot.lock().take();
        if let Some((then, work)) = taken {
            let work: Box<dyn FnOnce(T)> = Box::new(work);
            work(then);
        }
    };
    let spawned = std::thread::Builder::new().name("striped".to_owned()).spawn(move || run(&inner));
    if spawned.is_err() {
        run(&slot);
    }
}

fn work(shared: &Shared) {
    loop {
        let job = {
            let mut state = shared.state.lock();
            loop {
                if let Some(job) = state.jobs.pop_front() {
                    break job;
                }
                if state.stopping {
                    return;
                }
                state.idle += 1;
                shared.work.wait(&mut state);
                state.idle -= 1;
            }
        };
        // A job that panics has answered its client by dropping its reply; the thread goes on with the next.
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).is_err() {
            tracing::error!("a job of a worker thread panicked");
        }
    }
}
