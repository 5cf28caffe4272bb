//! The movers of all flows of a side: a thread for each flow, in this process or with a process of its own behind
//! it.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::child::{self, Program};
use super::error::NetworkError;
use super::flow::{FlowContext, FlowEnd, FlowWork, move_bytes};
use super::line::Line;
use super::spec::Processes;
use crate::content::Content;
use crate::load::{Meter, Reading};

/// The movers of all flows of one side.
#[derive(Debug)]
pub(super) struct FlowThreads {
    shared: Arc<Shared>,
    works: Vec<FlowWork>,
    /// The sockets, kept so that they can be cut, and until all counters are read.
    lines: Vec<Line>,
    threads: Vec<JoinHandle<FlowEnd>>,
}

/// State that the threads share with their watcher.
#[derive(Debug)]
pub(super) struct Shared {
    meters: Vec<Meter>,
    stop: AtomicBool,
    gate: Mutex<Gate>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Gate {
    ready: usize,
    left: usize,
    start: Option<Instant>,
    failure: Option<String>,
    /// The sockets to the processes of flows.
    children: Vec<UnixStream>,
}

impl Shared {
    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports that a flow is ready, and waits until all are. `None`: the flows are called off.
    pub(super) fn start(&self) -> Option<Instant> {
        let mut gate = self.gate();
        gate.ready += 1;
        self.changed.notify_all();
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            if gate.start.is_some() {
                return gate.start;
            }
            gate = self.changed.wait(gate).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Keeps the socket to a process, so that it can be cut.
    pub(super) fn add_child(&self, way: UnixStream) {
        self.gate().children.push(way);
    }
}

impl FlowThreads {
    /// Starts the movers; each prepares.
    pub(super) fn hire(
        flows: Vec<(FlowWork, Line)>,
        processes: Processes,
        content: &Arc<Content>,
        program: &Program,
    ) -> Result<Self, NetworkError> {
        let shared = Arc::new(Shared {
            meters: flows.iter().map(|_| Meter::default()).collect(),
            stop: AtomicBool::new(false),
            gate: Mutex::default(),
            changed: Condvar::new(),
        });
        let mut movers = Self { shared, works: Vec::new(), lines: Vec::new(), threads: Vec::new() };
        for (place, (work, line)) in flows.into_iter().enumerate() {
            movers.lines.push(line.another().map_err(NetworkError::here("share a socket"))?);
            movers.works.push(work.clone());
            let (shared, content, program) = (Arc::clone(&movers.shared), Arc::clone(content), program.clone());
            let thread = std::thread::Builder::new().name(format!("flow {}", work.number)).spawn(move || {
                let left = FlowEndReport(&shared);
                let meter = &shared.meters[place];
                let end = match processes {
                    Processes::One => here(&work, &line, &content, &shared, meter),
                    Processes::Each => child::run(&program, &work, &line, &shared, meter),
                };
                if let Some(why) = &end.failure {
                    shared.gate().failure.get_or_insert_with(|| format!("flow {}: {why}", work.number));
                }
                drop(left);
                end
            });
            // Dropping the movers ends those that have started.
            movers.threads.push(thread.map_err(NetworkError::here("start a thread"))?);
        }
        Ok(movers)
    }

    /// Waits until all are ready.
    pub(super) fn wait_ready(&self, within: Duration) -> Result<(), NetworkError> {
        let (end, mut gate) = (Instant::now() + within, self.shared.gate());
        while gate.ready < self.threads.len() {
            if let Some(why) = gate.failure.take() {
                return Err(NetworkError::NotReady(why));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || gate.left > 0 {
                let (open, flows) = (gate.ready, self.threads.len());
                return Err(NetworkError::NotOpened { open, flows, seconds: within.as_secs() });
            }
            gate = self.shared.changed.wait_timeout(gate, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// Starts all flows.
    pub(super) fn start(&self) {
        self.shared.gate().start = Some(Instant::now());
        self.shared.changed.notify_all();
    }

    /// Waits for at most `within`. Returns whether all have ended.
    pub(super) fn have_ended(&self, within: Duration) -> bool {
        let all = self.threads.len();
        let gate = self.shared.gate();
        let waited = self.shared.changed.wait_timeout_while(gate, within, |gate| gate.left < all);
        waited.unwrap_or_else(PoisonError::into_inner).0.left >= all
    }

    /// Returns the bytes received so far on this side.
    pub(super) fn received(&self) -> Reading {
        self.works.iter().zip(&self.shared.meters).filter(|(work, _)| !work.sends).map(|(_, meter)| meter.read()).sum()
    }

    /// Returns the result of each flow, and the sockets. The kernel's counters, and unread bytes of the other side,
    /// exist as long as the sockets do.
    pub(super) fn finish(mut self) -> (Vec<FlowEnd>, Vec<Line>) {
        (self.join(), std::mem::take(&mut self.lines))
    }

    /// Ends all flows.
    fn cut(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.lines.iter().for_each(Line::cut);
        let mut gate = self.shared.gate();
        for way in gate.children.drain(..) {
            // A socket that is gone needs no cut.
            let _ = way.shutdown(Shutdown::Both);
        }
        drop(gate);
        self.shared.changed.notify_all();
    }

    fn join(&mut self) -> Vec<FlowEnd> {
        let joined = self.threads.drain(..).map(|thread| match thread.join() {
            Ok(end) => end,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect()
    }
}

impl Drop for FlowThreads {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.cut();
            for thread in self.threads.drain(..) {
                // Its panic message has been printed. A second panic would abort the process without a message.
                let _ = thread.join();
            }
        }
    }
}

/// Reports the end of a flow, however it ends.
struct FlowEndReport<'a>(&'a Shared);

impl Drop for FlowEndReport<'_> {
    fn drop(&mut self) {
        self.0.gate().left += 1;
        self.0.changed.notify_all();
    }
}

/// Moves the bytes by this thread.
fn here(work: &FlowWork, line: &Line, content: &Content, shared: &Shared, meter: &Meter) -> FlowEnd {
    match shared.start() {
        Some(start) => move_bytes(line, &FlowContext { work, content, start, meter, stop: &shared.stop }),
        None => FlowEnd { number: work.number, sends: work.sends, ..FlowEnd::default() },
    }
}
