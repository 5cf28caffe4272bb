//! Data streams: further connections of a session (bind), which transfer data in parallel. A request arrives on the
//! session's own connection and names the stream that carries its data. The thread of that stream handles the request
//! and answers there.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;
use wire::request::{Bind, Pgread, Pgwrite, Read, Readv, Write};
use wire::response::BindReply;
use wire::{ErrorNumber, StreamId};

use crate::connection::{Connection, Stop};
use crate::input::InputEnd;
use crate::meter::Began;
use crate::to_wire::RequestError;

/// Maximum number of data streams of a session, as in the stock server (`maxStreams` less the first).
pub(crate) const STREAMS_MAX: usize = 15;
/// Requests that may wait for one stream. Beyond that the session's connection waits.
const WAITING_MAX: usize = 64;
/// How often an idle stream checks that its client is still connected.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A request whose data is on a data stream.
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

/// A task with its stream id and its start.
type Numbered = (StreamId, Task, Option<Began>);

/// The data streams of a session. Slot 0 is path 1.
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
    /// Adds a stream. Returns its path and the queue of its tasks.
    fn add(&self) -> Result<(u8, Receiver<Numbered>), RequestError> {
        let mut slots = self.slots.lock();
        if slots.ended {
            return Err(RequestError::new(ErrorNumber::NOT_FOUND, "The session to bind to has just ended"));
        }
        let free = (1_u8..).zip(slots.tasks.iter_mut()).find(|(_, slot)| slot.is_none());
        let Some((path_id, slot)) = free else {
            let text = format!("A session has at most {STREAMS_MAX} further connections");
            return Err(RequestError::new(ErrorNumber::NO_MEMORY, text));
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

    /// Accepts no more streams, and ends the present ones.
    pub(crate) fn end(&self) {
        let mut slots = self.slots.lock();
        slots.ended = true;
        slots.tasks = Default::default();
    }

    /// Queues a request for the stream `path_id`; waits while its queue is full.
    pub(crate) fn hand(
        &self,
        path_id: u8,
        stream: StreamId,
        task: Task,
        began: Option<Began>,
    ) -> Result<(), RequestError> {
        let slot = self.slots.lock().tasks.get(usize::from(path_id).wrapping_sub(1)).cloned().flatten();
        let none = || RequestError::new(ErrorNumber::ARG_INVALID, format!("This session has no data stream {path_id}"));
        slot.ok_or_else(none)?.send((stream, task, began)).map_err(|_| none())
    }
}

impl Connection {
    /// kXR_bind: makes this connection a data stream of a session of the same host. It does nothing else any more.
    /// Returns when the stream has ended, or why it could not begin.
    // Not inlined for the same reason as `open`: it is rare and uses much stack.
    #[inline(never)]
    pub(crate) fn bind(&mut self, stream: StreamId, r: &Bind) -> Result<Result<(), RequestError>, Stop> {
        if self.logged_in {
            let text = "This connection has logged in; only a fresh one can be bound to a session";
            return Ok(Err(RequestError::new(ErrorNumber::INVALID_REQUEST, text)));
        }
        if self.front.config.tls.as_ref().is_some_and(|tls| tls.required.data) && !self.out.is_encrypted() {
            return Ok(Err(self.refuse_without_tls("bind", "This server takes further connections for data")));
        }
        let Some(parent) = self.front.session(r.session) else {
            return Ok(Err(RequestError::new(ErrorNumber::NOT_FOUND, "There is no such session to bind to")));
        };
        if parent.peer.ip() != self.session.peer.ip() {
            let text = "A session takes further connections from its own host only";
            self.audit_denial("bind", format!("{text}, and this one is of {parent}"));
            return Ok(Err(RequestError::new(ErrorNumber::NOT_AUTHORIZED, text)));
        }
        let (path_id, tasks) = match parent.streams.add() {
            Ok(added) => added,
            Err(request_error) => return Ok(Err(request_error)),
        };
        tracing::debug!(client = %parent, path_id, "data stream bound");
        // From here on it uses the files of that session.
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
            // Only the connection itself bounds the requests that wait.
            Task::Read(r) => self.read(stream, &Read { path_id: None, wait_seconds: 0, ..r })?,
            Task::Pgread(r) => self.pgread(stream, &Pgread { path_id: 0, ..r })?,
            Task::Readv(r) => self.readv(stream, &Readv { path_id: 0, ..r })?,
            Task::Write(r) => self.write(stream, &Write { path_id: 0, ..r })?,
            Task::Pgwrite(r) => self.pgwrite(stream, &Pgwrite { path_id: 0, ..r })?,
        };
        if let Err(request_error) = result {
            self.refuse(stream, &request_error);
        }
        self.input.frame_done();
        Ok(())
    }

    /// Hands the request to a data stream, if its data is on another one.
    pub(crate) fn elsewhere(
        &mut self,
        stream: StreamId,
        path_id: u8,
        task: impl FnOnce() -> Task,
    ) -> Option<Result<(), RequestError>> {
        // For "any" the server chooses the connection on which the request arrived.
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
