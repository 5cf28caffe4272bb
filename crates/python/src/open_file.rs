//! A file that is open for reading, by one connection or several.
//!
//! All of its connections opened the same version of the file: a connection that finds another identity, length or time
//! of change makes the file outdated, and its readers start again with a new open. So no answer mixes two versions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Client, ClientError, ReadPlan, RemoteFile, Session, Share, Span, Url};
use parking_lot::{Condvar, Mutex};
use wire::request::OpenOptions;
use wire::response::StatReply;

use crate::pool::{Asked, State};

/// A read of more bytes than this uses several connections, each for at least so many.
const SHARE_MIN: usize = 4 << 20;
/// How often a thread that waits for a connection looks whether it must stop.
const TICK: Duration = Duration::from_millis(250);

/// What tells versions of a file apart, as far as servers say: its number, its length and its time of change.
pub type Version = (u64, u64, i64);

/// Bytes in a buffer that several answers may share.
pub struct Piece {
    buffer: Arc<Vec<u8>>,
    begin: usize,
    len: usize,
}

impl Piece {
    /// Returns its bytes.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.get(self.begin..self.begin + self.len).unwrap_or_default()
    }
}

/// The open file.
pub struct OpenFile {
    url: Url,
    stat: StatReply,
    opened: Instant,
    handles: Mutex<Handles>,
    changed: Condvar,
}

struct Handles {
    idle: Vec<RemoteFile>,
    /// All that are open, with those in use.
    open: usize,
    /// A thread opens another one.
    opening: bool,
    used: Instant,
    outdated: bool,
}

impl OpenFile {
    pub fn open(client: &mut Client, url: &Url) -> Result<Self, ClientError> {
        let file = client.open(url, OpenOptions::READ, 0)?;
        let (stat, now) = (file.stat().clone(), Instant::now());
        let handles = Handles { idle: vec![file], open: 1, opening: false, used: now, outdated: false };
        Ok(Self { url: url.clone(), stat, opened: now, handles: Mutex::new(handles), changed: Condvar::new() })
    }

    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Returns its attributes at the open.
    pub fn stat(&self) -> &StatReply {
        &self.stat
    }

    /// Returns when it was opened.
    pub fn opened(&self) -> Instant {
        self.opened
    }

    /// Returns when it was read last.
    pub fn used(&self) -> Instant {
        self.handles.lock().used
    }

    pub fn is_outdated(&self) -> bool {
        self.handles.lock().outdated
    }

    /// Whether no thread holds its lock.
    pub fn is_at_rest(&self) -> bool {
        self.handles.try_lock().is_some()
    }

    /// New readers open it again. Those that are reading end with this version.
    pub fn set_outdated(&self) {
        let mut handles = self.handles.lock();
        handles.outdated = true;
        // The server sees the end of these connections.
        handles.open -= handles.idle.len();
        handles.idle.clear();
        drop(handles);
        self.changed.notify_all();
    }

    /// Closes what no thread uses. Returns the connections.
    pub fn close(&self) -> Vec<Session> {
        let mut handles = self.handles.lock();
        handles.outdated = true;
        let idle = std::mem::take(&mut handles.idle);
        handles.open -= idle.len();
        drop(handles);
        idle.into_iter().filter_map(|file| file.close().ok()).collect()
    }

    pub fn version(&self) -> Version {
        (self.stat.id, self.stat.size, self.stat.mtime)
    }

    /// Reads ranges, if it is this version.
    pub fn read_version(
        self: &Arc<Self>,
        state: &Arc<State>,
        asked: &[Asked],
        version: Option<Version>,
    ) -> Result<Vec<Piece>, ClientError> {
        match version {
            Some(version) if version != self.version() => Err(self.is_another()),
            _ => self.read(state, asked),
        }
    }

    /// Reads ranges as Python's slices have them: what is behind the end is left out.
    fn read(self: &Arc<Self>, state: &Arc<State>, asked: &[Asked]) -> Result<Vec<Piece>, ClientError> {
        let spans: Vec<Span> = asked.iter().map(|asked| span(*asked, self.stat.size)).collect();
        let plan = ReadPlan::new(&spans, state.limits.gap);
        let buffer = Arc::new(self.read_plan(state, &plan)?);
        let piece =
            |(span, place): (&Span, &usize)| Piece { buffer: Arc::clone(&buffer), begin: *place, len: span.len };
        Ok(spans.iter().zip(plan.places()).map(piece).collect())
    }

    fn read_plan(self: &Arc<Self>, state: &Arc<State>, plan: &ReadPlan) -> Result<Vec<u8>, ClientError> {
        let mut buffer = vec![0; plan.len()];
        let shares = plan.shares(state.limits.connections, SHARE_MIN);
        match shares.as_slice() {
            [] => {}
            [only] => self.read_share(state, only, &mut buffer)?,
            _ => std::thread::scope(|scope| {
                let mut rest = buffer.as_mut_slice();
                let mut reads = Vec::new();
                for share in &shares {
                    let (into, later) = rest.split_at_mut(share.buffer.len());
                    rest = later;
                    reads.push(scope.spawn(move || self.read_share(state, share, into)));
                }
                let stopped = |_| Err(ClientError::Stopped);
                reads.into_iter().map(|read| read.join().unwrap_or_else(stopped)).fold(Ok(()), Result::and)
            })?,
        }
        Ok(buffer)
    }

    fn read_share(self: &Arc<Self>, state: &Arc<State>, share: &Share, into: &mut [u8]) -> Result<(), ClientError> {
        let mut file = self.take(state)?;
        let read = file.read_spans(&share.spans, into).map(drop);
        let mut handles = self.handles.lock();
        handles.used = Instant::now();
        // After an error, answers may still be on their way over the connection.
        if read.is_ok() && !handles.outdated {
            handles.idle.push(file);
        } else {
            handles.open -= 1;
        }
        drop(handles);
        self.changed.notify_all();
        read
    }

    /// Takes a connection that no other thread uses. While all are in use, another thread opens one more: whichever
    /// comes first is taken.
    fn take(self: &Arc<Self>, state: &Arc<State>) -> Result<RemoteFile, ClientError> {
        let mut handles = self.handles.lock();
        handles.used = Instant::now();
        loop {
            if handles.outdated {
                return Err(self.is_another());
            }
            if let Some(file) = handles.idle.pop() {
                return Ok(file);
            }
            if handles.open == 0 && !handles.opening {
                handles.open = 1;
                drop(handles);
                return self.open_again(state).inspect_err(|_| {
                    self.handles.lock().open -= 1;
                    self.changed.notify_all();
                });
            }
            if handles.open < state.limits.connections.max(1) && !handles.opening {
                handles.opening = true;
                let (file, state) = (Arc::clone(self), Arc::clone(state));
                std::thread::spawn(move || file.open_one_more(&state));
            }
            self.changed.wait_for(&mut handles, TICK);
            if state.settings.stop.is_asked() {
                return Err(ClientError::Stopped);
            }
        }
    }

    fn open_one_more(&self, state: &State) {
        let opened = self.open_again(state);
        let mut handles = self.handles.lock();
        handles.opening = false;
        // If it failed, whoever waits has another connection, or opens one and gets the reason.
        if let Ok(file) = opened
            && !handles.outdated
        {
            handles.idle.push(file);
            handles.open += 1;
        }
        drop(handles);
        self.changed.notify_all();
    }

    fn open_again(&self, state: &State) -> Result<RemoteFile, ClientError> {
        let file = state.with_client(|client| client.open(&self.url, OpenOptions::READ, 0))?;
        let (before, found) = (&self.stat, file.stat());
        if (before.id, before.size, before.mtime) != (found.id, found.size, found.mtime) {
            self.set_outdated();
            return Err(self.is_another());
        }
        Ok(file)
    }

    fn is_another(&self) -> ClientError {
        let what = format!("{} is another file since it was opened", self.url);
        ClientError::Unexpected { server: self.url.server.clone(), what }
    }
}

/// Returns the bytes from `start` to `end` of a file of `size` bytes.
fn span((start, end): Asked, size: u64) -> Span {
    let at = |position: i64| match u64::try_from(position) {
        Ok(position) => position.min(size),
        Err(_) => size.saturating_sub(position.unsigned_abs()),
    };
    let (begin, end) = (start.map_or(0, at), end.map_or(size, at));
    Span { offset: begin, len: usize::try_from(end.saturating_sub(begin)).unwrap_or(usize::MAX) }
}
