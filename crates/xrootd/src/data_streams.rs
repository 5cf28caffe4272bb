//! Further connections of one session (bind), over which data goes in parallel. A request comes on the session's own connection and
//! names the stream that its data is on, that is read or to be written; that stream's thread does the work and answers there.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;
use wire::request::{Bind, Pgread, Pgwrite, Read, Readv, Write};
use wire::response::BindReply;
use wire::{ErrorNumber, StreamId};

use crate::connection::{Connection, Stop};
use crate::input::InputEnd;
use crate::meter::Began;
use crate::to_wire::Refusal;

/// Further connections that one session may have: what the stock server allows (`maxStreams` less the first).
pub(crate) const STREAMS_MAX: usize = 15;
/// Requests that may wait for one stream; the session's connection waits for room beyond that.
const WAITING_MAX: usize = 64;
/// How often an idle stream looks whether its client is still there.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A request whose data is on another stream.
pub(crate) enum Task {
    /// kXR_read.
    Read(Read),
    /// kXR_pgread.
    Pgread(Pgread),
    /// kXR_readv.
    Readv(Readv),
    /// kXR_write.
    Write(Write),
    /// kXR_pgwrite.
    Pgwrite(Pgwrite),
}

/// A task, which request's answer it is, and when that came.
type Numbered = (StreamId, Task, Option<Began>);

/// The further connections of a session. Slot 0 is path 1.
#[derive(Default)]
pub(crate) struct DataStreams {
    slots: Mutex<Slots>,
}

#[derive(Default)]
struct Slots {
    ended: bool,
    tasks: [Option<SyncSender<Numbered>>; STREAMS_MAX],
}

impl DataStreams {
    /// A new stream: its path, and what it is to do.
    fn add(&self) -> Result<(u8, Receiver<Numbered>), Refusal> {
        let mut slots = self.slots.lock();
        if slots.ended {
            return Err(Refusal::new(ErrorNumber::NOT_FOUND, "The session to bind to has just ended"));
        }
        let free = (1_u8..).zip(slots.tasks.iter_mut()).find(|(_, slot)| slot.is_none());
        let Some((path_id, slot)) = free else {
            let text = format!("A session has at most {STREAMS_MAX} further connections");
            return Err(Refusal::new(ErrorNumber::NO_MEMORY, text));
        };
        let (sender, receiver) = sync_channel(WAITING_MAX);
        *slot = Some(sender);
        Ok((path_id, receiver))
    }

    fn remove(&self, path_id: u8) {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.tasks.get_mut(usize::from(path_id).wrapping_sub(1)) {
            *slot = None;
        }
    }

    /// No stream is added any more, and those that are there end.
    pub(crate) fn end(&self) {
        let mut slots = self.slots.lock();
        slots.ended = true;
        slots.tasks = Default::default();
    }

    /// Gives a request to the stream at `path_id`; waits while that has too much to do.
    pub(crate) fn hand(&self, path_id: u8, stream: StreamId, task: Task, began: Option<Began>) -> Result<(), Refusal> {
        let slot = self.slots.lock().tasks.get(usize::from(path_id).wrapping_sub(1)).cloned().flatten();
        let none = || Refusal::new(ErrorNumber::ARG_INVALID, format!("This session has no data stream {path_id}"));
        slot.ok_or_else(none)?.send((stream, task, began)).map_err(|_| none())
    }
}

impl Connection {
    /// kXR_bind: this connection becomes a data stream of a session of the same host, and does nothing else any more.
    /// Returns when it is over, or why it did not begin.
    // As with an open: seldom asked for, and large on the stack.
    #[inline(never)]
    pub(crate) fn bind(&mut self, stream: StreamId, r: &Bind) -> Result<Result<(), Refusal>, Stop> {
        if self.logged_in {
            let text = "This connection has logged in; only a fresh one can be bound to a session";
            return Ok(Err(Refusal::new(ErrorNumber::INVALID_REQUEST, text)));
        }
        let Some(parent) = self.front.session(r.session) else {
            return Ok(Err(Refusal::new(ErrorNumber::NOT_FOUND, "There is no such session to bind to")));
        };
        if parent.peer.ip() != self.session.peer.ip() {
            let text = "A session takes further connections from its own host only";
            return Ok(Err(Refusal::new(ErrorNumber::NOT_AUTHORIZED, text)));
        }
        let (path_id, tasks) = match parent.streams.add() {
            Ok(added) => added,
            Err(refusal) => return Ok(Err(refusal)),
        };
        tracing::debug!(client = %parent, path_id, "data stream bound");
        // Its files are the session's from here on.
        self.session = parent;
        self.input.logged_in();
        let _ = self.ok(stream, |out| BindReply { path_id }.encode(out));
        self.count();
        let stop = self.serve_stream(&tasks);
        self.session.streams.remove(path_id);
        Err(stop)
    }

    fn serve_stream(&mut self, tasks: &Receiver<Numbered>) -> Stop {
        loop {
            if let Err(gone) = self.out.leave() {
                return gone.into();
            }
            let next = tasks.recv_timeout(LOOK_EVERY);
            self.out.back();
            let result = match next {
                Ok((stream, task, began)) => {
                    self.began = began;
                    let result = self.answer_on_stream(stream, task);
                    self.count();
                    result
                }
                Err(RecvTimeoutError::Timeout) if self.input.is_open() => Ok(()),
                Err(_) => Err(InputEnd::Closed.into()),
            };
            if let Err(stop) = result {
                return stop;
            }
        }
    }

    fn answer_on_stream(&mut self, stream: StreamId, task: Task) -> Result<(), Stop> {
        if !matches!(task, Task::Write(_) | Task::Pgwrite(_)) {
            self.settle();
        }
        let result = match task {
            Task::Read(r) => self.read(stream, &Read { path_id: None, ..r })?,
            Task::Pgread(r) => self.pgread(stream, &Pgread { path_id: 0, ..r })?,
            Task::Readv(r) => self.readv(stream, &Readv { path_id: 0, ..r })?,
            Task::Write(r) => self.write(stream, &Write { path_id: 0, ..r })?,
            Task::Pgwrite(r) => self.pgwrite(stream, &Pgwrite { path_id: 0, ..r })?,
        };
        if let Err(refusal) = result {
            self.refuse(stream, &refusal);
        }
        self.input.frame_done();
        Ok(())
    }

    /// Whether a request's data is on another stream: then it is handed there.
    pub(crate) fn elsewhere(
        &mut self,
        stream: StreamId,
        path_id: u8,
        task: impl FnOnce() -> Task,
    ) -> Option<Result<(), Refusal>> {
        // "any" is ours to choose: where the request came
        if path_id == 0 || path_id == wire::request::BIND_ANY_PATH {
            return None;
        }
        let handed = self.session.streams.hand(path_id, stream, task(), self.began);
        if handed.is_ok() {
            self.began = None;
        }
        Some(handed)
    }
}
