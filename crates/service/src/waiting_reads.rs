//! Reads at the present end of a file that somebody else writes. They wait here until their file has grown or its
//! writer has ended. So a reader that follows a recording learns of new bytes at once, and need not ask again and again.
//!
//! A store makes bytes visible once a second, for all its files at about the same time. One thread therefore looks at
//! all waiting reads, a hundred times a second while there are any. It reads nothing itself, and waits
//! for no lock of a file.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::answer::{Answer, AnyAnswer};
use crate::figures::Counters;
use crate::open_file::{Access, OpenFile};
use crate::service::Service;
use crate::workers::Workers;

/// How often to look.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long a read waits at most, whatever its client asks for. Then it gets no bytes, and its client sees that the
/// server is there.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// The seconds that the client is told: all of that, and time for the answer.
const WAIT_SECONDS: u32 = 10;
/// The bytes that a read gets that has waited. Many may get theirs at the same time; the next reads get the rest.
const BYTES_MAX: usize = 4096;
/// The number of reads that may wait on a node. Further ones get no bytes at once.
const WAITING_MAX: usize = 4096;
/// The number of reads that the workers get at a time.
const READS_PER_LOOK: usize = 64;
/// How often to look whether clients are still there, in looks at their files.
const LOOKS_PER_CLIENT: u64 = 32;

/// The waiting reads and their thread.
pub(crate) struct WaitingReads {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    state: Mutex<State>,
    /// Signals the first waiting read, and the stop.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<WaitingRead>,
    /// The number of reads that wait, with those that are being looked at.
    count: usize,
    stopping: bool,
}

struct WaitingRead {
    file: Arc<OpenFile>,
    offset: u64,
    len: u32,
    until: Instant,
    answer: Box<dyn AnyAnswer<Vec<u8>>>,
    counters: Arc<Counters>,
}

impl WaitingRead {
    /// Reads what is there now. A client that is gone gets nothing.
    fn answer(self) {
        if self.answer.is_unwanted() {
            return self.answer_nothing();
        }
        let mut bytes = vec![0; self.file.bounded(self.offset, self.len).min(BYTES_MAX)];
        let read = self.file.read(self.offset, &mut bytes);
        self.answer.give_boxed(read.map(|n| {
            self.counters.read(n as u64);
            bytes.truncate(n);
            bytes
        }));
    }

    fn answer_nothing(self) {
        self.answer.give_boxed(Ok(Vec::new()));
    }
}

impl OpenFile {
    /// Whether nothing is at `offset` yet, and a writer may put something there. `None`: this cannot be said at once.
    #[must_use]
    pub fn is_awaited_at(&self, offset: u64) -> Option<bool> {
        match &self.access {
            Access::Read(shown) => shown.is_awaited_at(offset),
            Access::Write(_) => Some(false),
        }
    }
}

impl WaitingReads {
    /// Starts the thread. `workers` read.
    pub(crate) fn start(workers: &Arc<Workers>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() });
        let (inner, workers) = (Arc::clone(&shared), Arc::clone(workers));
        let builder = std::thread::Builder::new().name("waiting-reads".into()).stack_size(256 << 10);
        let thread = builder.spawn(move || look_on(&inner, &workers))?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Keeps the read. Returns it if there are too many, or the node is stopping.
    fn keep(&self, read: WaitingRead) -> Result<(), WaitingRead> {
        let mut state = self.shared.state.lock();
        if state.stopping || state.count >= WAITING_MAX {
            return Err(read);
        }
        state.waiting.push(read);
        state.count += 1;
        let is_first = state.count == 1;
        drop(state);
        if is_first {
            self.shared.changed.notify_one();
        }
        Ok(())
    }

    /// Whether the thread has ended without a stop.
    pub(crate) fn ended(&self) -> bool {
        !self.shared.state.lock().stopping && self.thread.lock().as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Lets all reads go, and later ones at once.
    pub(crate) fn let_go(&self) {
        self.shared.state.lock().stopping = true;
        self.shared.changed.notify_one();
    }

    /// Ends the thread. Call it while the workers still work.
    pub(crate) fn stop(&self) {
        self.let_go();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the waiting reads had panicked");
        }
    }
}

fn look_on(shared: &Shared, workers: &Workers) {
    let mut looks = 0;
    let mut state = shared.state.lock();
    loop {
        while state.waiting.is_empty() {
            if state.stopping {
                return;
            }
            shared.changed.wait(&mut state);
        }
        // The lock is free meanwhile: a front end must not wait for all of this.
        let stopping = state.stopping;
        let mut waiting = std::mem::take(&mut state.waiting);
        drop(state);
        looks += 1;
        look(&mut waiting, workers, stopping, looks % LOOKS_PER_CLIENT == 0);
        state = shared.state.lock();
        waiting.append(&mut state.waiting);
        state.count = waiting.len();
        state.waiting = waiting;
        if !state.stopping && !state.waiting.is_empty() {
            shared.changed.wait_for(&mut state, LOOK_EVERY);
        }
    }
}

/// Takes out the reads that wait no longer.
fn look(waiting: &mut Vec<WaitingRead>, workers: &Workers, stopping: bool, at_clients: bool) {
    let now = Instant::now();
    let is_over = |read: &mut WaitingRead| stopping || at_clients && read.answer.is_unwanted();
    waiting.extract_if(.., is_over).for_each(WaitingRead::answer_nothing);
    // A read whose time is over also finds out whether this server may still show the file.
    let is_due = |read: &mut WaitingRead| now >= read.until || read.file.is_awaited_at(read.offset) == Some(false);
    for read in waiting.extract_if(.., is_due).take(READS_PER_LOOK) {
        workers.submit_duty(Box::new(move || read.answer()));
    }
}

impl Service {
    /// Reads up to `len` bytes at `offset` of a file that has none there yet ([`OpenFile::is_awaited_at`]). Answers when
    /// it has, when its writer has ended, or after `most` (5 seconds at the longest), and then perhaps without bytes.
    pub fn read_when_grown(
        &self,
        file: Arc<OpenFile>,
        (offset, len): (u64, u32),
        most: Duration,
        mut answer: impl Answer<Vec<u8>>,
    ) {
        answer.put_off(WAIT_SECONDS);
        let until = Instant::now() + most.min(WAIT_MAX);
        let read =
            WaitingRead { file, offset, len, until, answer: Box::new(answer), counters: Arc::clone(&self.counters) };
        if let Err(read) = self.waiting_reads.keep(read) {
            read.answer_nothing();
        }
    }
}
