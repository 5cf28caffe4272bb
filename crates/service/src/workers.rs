//! Threads for work that would block a connection or the responder for long: closing and reopening large files, and
//! opens that must wait. Other threads store data while its connection receives more.

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
    /// Starts `threads` threads, named `name` and a number.
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

    /// Queues `job`. Returns it if the queue is full or the workers have stopped.
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

    /// Starts `job` at once if a thread is idle. Returns it otherwise.
    pub(crate) fn offer(&self, job: Job) -> Result<(), Job> {
        let mut state = self.shared.state.lock();
        // A woken thread counts as idle until it has its job.
        if state.stopping || state.jobs.len() >= state.idle {
            return Err(job);
        }
        state.jobs.push_back(job);
        drop(state);
        self.shared.work.notify_one();
        Ok(())
    }

    /// Queues `job` even if the queue is full. Use it for work that must be done because the namespace has already
    /// changed. Each request has at most one such job. If the workers have stopped, the job is dropped: then no
    /// connection is left, and the next start finds the unfinished work.
    pub(crate) fn submit_duty(&self, job: Job) {
        let mut state = self.shared.state.lock();
        if state.stopping {
            return;
        }
        state.jobs.push_back(job);
        drop(state);
        self.shared.work.notify_one();
    }

    /// Queues `work`, which must answer, even if the queue is full. Use it for work that follows a change that the
    /// namespace has already made.
    pub(crate) fn must_do<A: Send + 'static>(&self, answer: A, work: impl FnOnce(A) + Send + 'static) {
        self.submit_duty(Box::new(move || work(answer)));
    }

    /// Queues `work`, which must answer. If the queue is full, the client is told to wait. Use it only before
    /// anything was done for the request.
    pub(crate) fn on_worker<T, A: Answer<T>>(&self, answer: A, work: impl FnOnce(A) + Send + 'static) {
        // Both outcomes find the answer here.
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

    /// Whether a thread has ended without a stop.
    pub(crate) fn ended(&self) -> bool {
        self.threads.lock().iter().any(JoinHandle::is_finished)
    }

    /// Finishes the queued jobs and ends the threads.
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

/// Runs `work` with the answer `then` on its own thread. Use it for work that waits for other servers: on a worker it
/// would block the servers that wait for this one. If no thread can be started, the caller runs it.
pub(crate) fn apart<T: Send + 'static>(then: T, work: impl FnOnce(T) + Send + 'static) {
    // Both outcomes find the work here.
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
        // A job that panics answers its client by dropping its answer. The thread continues with the next job.
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).is_err() {
            tracing::error!("a job of a worker thread panicked");
        }
    }
}
