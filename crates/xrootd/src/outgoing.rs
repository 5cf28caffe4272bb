//! Sends the answers of a connection.
//!
//! Three parties send: the connection's own thread, the threads that answer requests handed on (responder, workers),
//! and the drainer. Rules:
//! - Answers from other threads are only appended. If the connection's thread is away (waiting for input or for the
//!   disk), they try the socket once without blocking. The drainer sends the rest. So a slow client blocks nobody.
//! - The connection's thread sends its small answers together, just before it waits for more input. It sends large
//!   answers at once, blocking with a timeout. This is the back-pressure on a slow reader.
//! - Everything is bounded: requests handed on by `requests_in_flight_max`, and other answers by `pending_bytes_max`.
//!   Beyond these limits the connection's thread stops reading.

use std::cell::RefCell;
use std::io::IoSlice;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::config::PACE_BYTES;
use crate::drainer::Drainer;
use crate::meter::Meter;
use crate::socket_writes::{Parts, Unsent, copied, seal_and_send_at_once, send_all, send_at_once, send_sealed};
use service::TransferSlot;
use tls::Channel;

/// The connection is broken, so its thread must end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gone;

/// The sending half of one connection.
pub(crate) struct Outgoing {
    socket: Arc<TcpStream>,
    /// With TLS.
    channel: OnceLock<Arc<Channel>>,
    state: Mutex<State>,
    changed: Condvar,
    drainer: Arc<Drainer>,
    meter: Arc<Meter>,
    requests_in_flight_max: usize,
    pending_bytes_max: usize,
}

struct State {
    /// Answers that TLS has not encrypted yet; always empty without TLS.
    clear: Vec<u8>,
    /// Where each of these answers ends. Each goes in records of its own: stock clients (XrdCl 5.5.3) wait for the socket
    /// before they look at the rest of a record in which an answer has ended.
    clear_ends: Vec<usize>,
    /// What goes to the socket next.
    pending: Vec<u8>,
    /// Bytes of `pending` that are already sent.
    sent: usize,
    holder: Holder,
    /// The connection's thread will not send `pending` soon.
    away: bool,
    /// When it last went away.
    since: Instant,
    in_flight: usize,
    dead: bool,
    /// The connection was ended because the client took too little.
    slow: bool,
}

impl State {
    fn is_idle(&self) -> bool {
        self.away && self.in_flight == 0 && self.unsent() == 0 && !self.dead
    }

    /// The number of bytes that are still to be sent, before their encryption.
    fn unsent(&self) -> usize {
        self.clear.len() + self.pending.len() - self.sent
    }
}

/// Which party sends the pending answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holder {
    Nobody,
    Thread,
    /// The drainer. The client has taken this many bytes since then.
    Drainer {
        since: Instant,
        taken: usize,
    },
}

impl Outgoing {
    pub(crate) fn new(
        socket: Arc<TcpStream>,
        drainer: Arc<Drainer>,
        meter: Arc<Meter>,
        requests_in_flight_max: usize,
        pending_bytes_max: usize,
    ) -> Arc<Self> {
        let state = State {
            clear: Vec::new(),
            clear_ends: Vec::new(),
            pending: Vec::new(),
            sent: 0,
            holder: Holder::Nobody,
            away: false,
            since: Instant::now(),
            in_flight: 0,
            dead: false,
            slow: false,
        };
        Arc::new(Self {
            socket,
            channel: OnceLock::new(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            drainer,
            meter,
            requests_in_flight_max,
            pending_bytes_max,
        })
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// From now on everything is encrypted. All earlier answers must have been sent ([`Outgoing::send_now`]).
    pub(crate) fn encrypt(&self, channel: Arc<Channel>) {
        let _ = self.channel.set(channel);
    }

    /// Whether everything is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.channel.get().is_some()
    }

    /// Appends an answer.
    fn append(&self, state: &mut State, write: impl FnOnce(&mut Vec<u8>)) {
        if self.is_encrypted() {
            write(&mut state.clear);
            state.clear_ends.push(state.clear.len());
        } else {
            write(&mut state.pending);
        }
    }

    /// Encrypts what is to be sent next, in the order in which it is sent: only the holder calls this.
    fn seal(&self, state: &mut State) {
        let Some(channel) = self.channel.get().filter(|_| !state.dead) else { return };
        if state.clear.is_empty() && !channel.has_to_send() {
            return;
        }
        let starts = std::iter::once(0).chain(state.clear_ends.iter().copied());
        let answers: Vec<IoSlice<'_>> =
            starts.zip(&state.clear_ends).map(|(start, end)| IoSlice::new(&state.clear[start..*end])).collect();
        let sealed = channel.seal(&answers, &mut state.pending);
        state.clear.clear();
        state.clear_ends.clear();
        if state.clear.capacity() > 64 << 10 {
            state.clear = Vec::new();
        }
        if let Err(error) = sealed {
            tracing::debug!(%error, "an answer cannot be encrypted");
            self.die(state);
        }
    }

    /// Tells the client that nothing more comes.
    pub(crate) fn end(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if let Some(channel) = self.channel.get().filter(|_| !state.dead && state.holder == Holder::Nobody) {
            self.seal(&mut state);
            let _ = channel.end(&mut state.pending);
            self.try_send(&mut state);
        }
    }

    /// Where answers are counted.
    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Appends an answer from the connection's own thread. The next [`Outgoing::leave`] or [`Outgoing::send_now`]
    /// sends it.
    pub(crate) fn answer(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state.lock();
        if !state.dead {
            self.append(&mut state, write);
        }
    }

    /// Appends the answer to a request that was handed on, from any thread. Never blocks on the socket.
    pub(crate) fn complete(self: &Arc<Self>, write: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state.lock();
        state.in_flight = state.in_flight.saturating_sub(1);
        let mut flush = false;
        if !state.dead {
            self.append(&mut state, write);
            flush = state.away && state.holder == Holder::Nobody;
        }
        if flush && !put_off(self) {
            self.try_send(&mut state);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Sends the pending answers, if no other party does.
    pub(crate) fn flush(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if !state.dead && state.away && state.holder == Holder::Nobody {
            self.try_send(&mut state);
        }
    }

    /// Counts a request that may be handed on. It may also be answered at once, so this does not wait if there are too
    /// many: [`Outgoing::relieve`] does.
    pub(crate) fn begin(&self) -> Result<(), Gone> {
        let mut state = self.state.lock();
        if state.dead {
            return Err(Gone);
        }
        state.in_flight += 1;
        Ok(())
    }

    /// The connection's thread is about to wait for input or for the disk. Sends the pending answers; from now on
    /// other threads send their own. Blocks only if too much is pending.
    pub(crate) fn leave(self: &Arc<Self>) -> Result<(), Gone> {
        let mut state = self.state.lock();
        if state.dead {
            return Err(Gone);
        }
        if state.unsent() > self.pending_bytes_max {
            drop(state);
            self.send_now(&mut [], None)?;
            state = self.state.lock();
        }
        if state.holder == Holder::Nobody {
            self.try_send(&mut state);
        }
        state.away = true;
        state.since = Instant::now();
        if state.dead { Err(Gone) } else { Ok(()) }
    }

    /// How long the connection has been idle, with no request in progress; `None`: it is busy.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let state = self.state.lock();
        state.is_idle().then_some(state.since)
    }

    /// Ends the connection if it is idle. Returns whether it was.
    pub(crate) fn cut_if_idle(&self) -> bool {
        let mut state = self.state.lock();
        let idle = state.is_idle();
        if idle {
            if let Some(channel) = self.channel.get()
                && channel.end(&mut state.pending).is_ok()
            {
                // Without this, TLS takes the end for an attack. It is small, and nothing else waits.
                let _ = rustix::net::send(&*self.socket, &state.pending, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            }
            self.die(&mut state);
        }
        idle
    }

    /// Between two requests: waits while too many requests are handed on. If too much is pending, sends it, blocking.
    pub(crate) fn relieve(self: &Arc<Self>) -> Result<(), Gone> {
        let mut state = self.state.lock();
        // Only a request that was really handed on can exceed the limit, and it waits here itself.
        while state.in_flight > self.requests_in_flight_max {
            if state.dead {
                return Err(Gone);
            }
            state.away = true;
            if state.holder == Holder::Nobody {
                self.try_send(&mut state);
            }
            self.changed.wait(&mut state);
            state.away = false;
        }
        let over = state.unsent() > self.pending_bytes_max;
        drop(state);
        if over { self.send_now(&mut [], None) } else { Ok(()) }
    }

    /// The connection's thread works on requests again.
    pub(crate) fn back(&self) {
        self.state.lock().away = false;
    }

    /// Sends all pending answers and then `parts`, blocking. Only the connection's thread calls this. It returns the
    /// slot in `turn` if it must wait.
    pub(crate) fn send_now(&self, parts: &mut [IoSlice<'_>], turn: Option<&mut TransferSlot<'_>>) -> Result<(), Gone> {
        let is_empty = parts.is_empty();
        let send = |pending: &[u8], mut turn: Option<&mut TransferSlot<'_>>| match self.channel.get() {
            None => send_all(&self.socket, pending, parts, turn),
            Some(channel) => {
                send_all(&self.socket, pending, &mut [], turn.as_deref_mut())?;
                send_sealed(&self.socket, channel, parts, turn)
            }
        };
        self.send_first((!is_empty).then_some(send), turn)
    }

    /// Like [`Outgoing::send_now`], but it drops `parts` before it waits for the client: what the socket does not take
    /// at once is copied.
    pub(crate) fn send_lent(&self, parts: impl Parts, turn: Option<&mut TransferSlot<'_>>) -> Result<(), Gone> {
        let send = |pending: &[u8], turn: Option<&mut TransferSlot<'_>>| {
            let mut slices = Vec::new();
            if let Some(channel) = self.channel.get() {
                parts.append_to(&mut slices);
                let left = seal_and_send_at_once(&self.socket, channel, pending, &slices)?;
                drop(slices);
                drop(parts);
                return send_all(&self.socket, &left, &mut [], turn);
            }
            if !pending.is_empty() {
                slices.push(IoSlice::new(pending));
            }
            parts.append_to(&mut slices);
            let rest = copied(send_at_once(&self.socket, &mut slices)?);
            drop(slices);
            drop(parts);
            if rest.is_empty() { Ok(()) } else { send_all(&self.socket, &rest, &mut [], turn) }
        };
        self.send_first(Some(send), turn)
    }

    /// Sends by `first`, which gets the pending answers that go before, and then what other threads have appended meanwhile.
    fn send_first(
        &self,
        first: Option<impl FnOnce(&[u8], Option<&mut TransferSlot<'_>>) -> Result<(), Unsent>>,
        mut turn: Option<&mut TransferSlot<'_>>,
    ) -> Result<(), Gone> {
        let mut first = first;
        let mut state = self.state.lock();
        // The drainer stops when it is no longer the holder.
        state.holder = Holder::Thread;
        loop {
            if state.dead {
                state.holder = Holder::Nobody;
                return Err(Gone);
            }
            self.seal(&mut state);
            let pending = std::mem::take(&mut state.pending);
            let sent = std::mem::take(&mut state.sent);
            if pending.len() == sent && first.is_none() {
                state.holder = Holder::Nobody;
                state.pending = pending;
                state.pending.clear();
                return Ok(());
            }
            drop(state);
            let result = match first.take() {
                Some(first) => first(&pending[sent..], turn.as_deref_mut()),
                None => send_all(&self.socket, &pending[sent..], &mut [], turn.as_deref_mut()),
            };
            state = self.state.lock();
            if let Err(why) = result {
                state.dead = true;
                state.slow |= why == Unsent::Slow;
            }
        }
    }

    /// Tries once to send, without blocking, while holding the lock.
    fn try_send(self: &Arc<Self>, state: &mut State) {
        self.seal(state);
        while state.sent < state.pending.len() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(&*self.socket, &state.pending[state.sent..], flags) {
                Ok(n) => {
                    state.sent += n;
                    if let Holder::Drainer { since, taken } = &mut state.holder {
                        *taken += n;
                        if *taken >= PACE_BYTES {
                            (*since, *taken) = (Instant::now(), 0);
                        }
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if state.holder == Holder::Nobody {
                        state.holder = Holder::Drainer { since: Instant::now(), taken: 0 };
                        self.drainer.watch(Arc::clone(self));
                    }
                    return;
                }
                Err(_) => {
                    self.die(state);
                    return;
                }
            }
        }
        state.pending.clear();
        state.sent = 0;
        if state.pending.capacity() > 64 << 10 {
            state.pending = Vec::new();
        }
        state.holder = Holder::Nobody;
    }

    /// Called by the drainer. Returns whether it must continue to watch the connection.
    pub(crate) fn drain(self: &Arc<Self>, now: Instant, patience: Duration) -> bool {
        let mut state = self.state.lock();
        if !matches!(state.holder, Holder::Drainer { .. }) {
            return false;
        }
        self.try_send(&mut state);
        if let Holder::Drainer { since, .. } = state.holder
            && now.saturating_duration_since(since) > patience
        {
            state.slow = true;
            self.die(&mut state);
        }
        let go_on = matches!(state.holder, Holder::Drainer { .. });
        drop(state);
        self.changed.notify_all();
        go_on
    }

    fn die(&self, state: &mut State) {
        state.dead = true;
        state.clear = Vec::new();
        state.clear_ends = Vec::new();
        state.pending = Vec::new();
        state.sent = 0;
        state.holder = Holder::Nobody;
        // Wakes the reading thread.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Whether the connection was ended because its client took too little of its answers.
    pub(crate) fn was_slow(&self) -> bool {
        self.state.lock().slow
    }

    /// Whether the connection has ended.
    pub(crate) fn is_dead(&self) -> bool {
        self.state.lock().dead
    }

    /// Ends the connection and drops later answers.
    pub(crate) fn cut(&self) {
        let mut state = self.state.lock();
        self.die(&mut state);
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until no request is in progress and everything is sent, or until `deadline`.
    pub(crate) fn settle(self: &Arc<Self>, deadline: Instant) {
        let mut state = self.state.lock();
        state.away = true;
        if state.holder == Holder::Nobody {
            self.try_send(&mut state);
        }
        while (state.in_flight > 0 || state.unsent() > 0) && !state.dead {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return;
            }
        }
    }
}

thread_local! {
    /// On the responder's thread and the committer's: connections with answers from the current batch.
    static BATCH: RefCell<Option<Vec<Arc<Outgoing>>>> = const { RefCell::new(None) };
}

/// The responder, or the committer, calls this after the completions of each batch. It sends the answers that they have
/// queued, once for each connection. On threads that never call it, each completion sends its own answer.
pub fn batch_done() {
    let filled = BATCH.with_borrow_mut(|batch| batch.replace(Vec::new()));
    for connection in filled.into_iter().flatten() {
        connection.flush();
    }
}

/// Leaves sending to [`batch_done`], if this thread calls it. Returns whether it does.
fn put_off(connection: &Arc<Outgoing>) -> bool {
    BATCH.with_borrow_mut(|batch| match batch {
        Some(filled) => {
            // Completions of one connection often follow each other.
            if !filled.last().is_some_and(|last| Arc::ptr_eq(last, connection)) {
                filled.push(Arc::clone(connection));
            }
            true
        }
        None => false,
    })
}
