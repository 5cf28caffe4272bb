//! Watches a server: reports what its machine does once a second, and on request.

use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::Line;
use crate::coordinate::message::AgentMessage;
use crate::sampling::Observer;

const SECOND: Duration = Duration::from_secs(1);
const QUEUE_MAX: usize = 16;

/// A watching thread. Dropping this ends it.
pub(super) struct WatchThread {
    questions: Option<SyncSender<u64>>,
    thread: Option<JoinHandle<()>>,
}

impl WatchThread {
    /// Starts the thread. `None`: no thread could be started.
    pub(super) fn begin(processes: Vec<String>, line: Line) -> Option<Self> {
        let (questions, asked) = sync_channel(QUEUE_MAX);
        let watch = move || {
            let mut observer = Observer::new(processes);
            let mut next = Instant::now() + SECOND;
            loop {
                let number = match asked.recv_timeout(next.saturating_duration_since(Instant::now())) {
                    Ok(number) => Some(number),
                    Err(RecvTimeoutError::Timeout) => {
                        next += SECOND;
                        None
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                };
                line.tell_or_end(&AgentMessage::Watched { number, sample: observer.sample() });
            }
        };
        let thread = thread::Builder::new().name("watch".into()).spawn(watch).ok()?;
        Some(Self { questions: Some(questions), thread: Some(thread) })
    }

    /// Reports at once what has happened since the last report, as the answer to request `number`.
    pub(super) fn tell_now(&self, number: u64) {
        if let Some(questions) = &self.questions {
            // With too many requests at a time, the coordinator gets no answer to this one.
            let _ = questions.try_send(number);
        }
    }
}

impl Drop for WatchThread {
    fn drop(&mut self) {
        self.questions = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
