//! A file that is open for reading, by one connection or several.
//!
//! All of its connections opened the same version of the file: a connection that finds another identity, length or time
//! of change makes the file outdated, and its readers start again with a new open. So no answer mixes two versions. For
//! a striped file that is read at the servers of its stripe units, a connection is one to each of them. Their servers
//! and the manager know the version by a number of its own, and open no unit of another one.

use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant};

use client::{Client, ClientError, Endpoint, ReadPlan, ServersInUse, Session, Share, Span, Url};
use parking_lot::{Condvar, Mutex};
use wire::response::StatReply;

use crate::error::{ReadError, zeros};
use crate::kept::{self, Found, Kept};
use crate::pool::{Asked, State};
use crate::source::{Again, Opened, Origin, Source};

/// A large read uses several connections, each for at least so many bytes.
const SHARE_MIN: usize = 4 << 20;
/// It opens more connections only for so many bytes each: opening one takes some round trips.
const SHARE_OF_NEW: usize = 16 << 20;
/// Where a read takes less time than this, reading ahead would only cost.
const NEAR: Duration = Duration::from_millis(1);
/// A single range up to this length is read with what is around it: a reader of a file's structure asks for that next.
const SMALL: usize = 16 << 10;
const AROUND: u64 = 64 << 10;
/// How many connections are opened at a time, and how many before they are needed.
const OPENING_MAX: usize = 2;
const CONNECTIONS_AHEAD: usize = 3;
/// How long no other connection is opened after that has failed.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// How often a thread that waits for a connection looks whether it must stop.
const TICK: Duration = Duration::from_millis(250);
/// How long a writer waits for other threads to close the file.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// What tells versions of a file apart, as far as servers say: its number, its length and its time of change.
pub type Version = (u64, u64, i64);

/// Bytes in a buffer that several answers may share.
pub struct Piece {
    buffer: Arc<Vec<u8>>,
    begin: usize,
    len: usize,
}

impl Piece {
    pub fn new(buffer: Arc<Vec<u8>>, begin: usize, len: usize) -> Self {
        Self { buffer, begin, len }
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.get(self.begin..self.begin + self.len).unwrap_or_default()
    }
}

/// Whether an open file is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It is.
    Current,
    /// It was closed. Its readers open it again.
    Closed,
    /// Its name belongs to another version by now.
    Outdated,
}

/// The open file.
pub struct OpenFile {
    url: Url,
    stat: StatReply,
    origin: Origin,
    opened: Instant,
    handles: Mutex<Handles>,
    changed: Condvar,
    kept: Mutex<Kept>,
    came: Condvar,
}

struct Handles {
    idle: Vec<Source>,
    /// The servers of all that are open.
    servers: ServersInUse,
    /// All that are open, with those in use.
    open: usize,
    /// Threads that open another one.
    opening: usize,
    used: Instant,
    /// The shortest time of a read.
    fastest: Duration,
    standing: Standing,
    /// When opening another one has failed.
    failed: Option<Instant>,
}

impl OpenFile {
    /// Opens a file. `ahead`: how many bytes may be kept for later reads.
    pub fn open(client: &mut Client, url: &Url, ahead: usize) -> Result<Self, ClientError> {
        let kib = if ahead == 0 { 0 } else { client::BEGINNING_KIB_MAX };
        let Opened { source, stat, beginning, origin } = Opened::open(client, url, kib)?;
        let (now, mut kept, mut servers) = (Instant::now(), Kept::default(), ServersInUse::default());
        servers.add(source.server());
        // A reader begins there, whatever it reads.
        if !beginning.is_empty() {
            let span = Span { offset: 0, len: beginning.len() };
            kept.keep(span, Arc::new(beginning), ahead);
        }
        let (idle, fastest) = (vec![source], Duration::MAX);
        let standing = Standing::Current;
        let handles = Handles { idle, servers, open: 1, opening: 0, used: now, fastest, standing, failed: None };
        Ok(Self {
            url: url.clone(),
            stat,
            origin,
            opened: now,
            handles: Mutex::new(handles),
            changed: Condvar::new(),
            kept: Mutex::new(kept),
            came: Condvar::new(),
        })
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

    /// Returns how many connections it may have in all, where a file that is not striped may have `connections`.
    pub fn connections_max(&self, connections: usize) -> usize {
        self.origin.sources_max(connections) * self.origin.connections_of_each()
    }

    pub fn is_current(&self) -> bool {
        self.handles.lock().standing == Standing::Current
    }

    /// Whether no thread holds its lock.
    pub fn is_at_rest(&self) -> bool {
        self.handles.try_lock().is_some() && self.kept.try_lock().is_some()
    }

    /// New readers open it again. Those that are reading end with this version.
    pub fn end(&self, standing: Standing) {
        let mut handles = self.handles.lock();
        handles.standing = standing;
        // The server sees the end of these connections.
        handles.open -= handles.idle.len();
        handles.idle.clear();
        drop(handles);
        self.changed.notify_all();
    }

    /// Closes what no thread uses. Returns the connections. A server that does not answer is not waited for long.
    pub fn close(&self) -> Vec<Session> {
        let mut handles = self.handles.lock();
        handles.standing = Standing::Closed;
        let idle = std::mem::take(&mut handles.idle);
        handles.open -= idle.len();
        drop(handles);
        idle.into_iter().filter_map(Source::give_up).collect()
    }

    /// Waits until other threads have closed theirs: those that read ahead, and those that open connections in advance.
    pub fn await_closed(&self) {
        let end = Instant::now() + CLOSE_MAX;
        let mut handles = self.handles.lock();
        while handles.open + handles.opening > 0 && !self.changed.wait_until(&mut handles, end).timed_out() {}
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
    ) -> Result<Vec<Piece>, ReadError> {
        match version {
            Some(version) if version != self.version() => Err(self.is_another().into()),
            _ => self.read(state, asked),
        }
    }

    /// Reads ranges as Python's slices have them: what is behind the end is left out.
    fn read(self: &Arc<Self>, state: &Arc<State>, asked: &[Asked]) -> Result<Vec<Piece>, ReadError> {
        let spans: Vec<Span> = asked.iter().map(|asked| span(*asked, self.stat.size)).collect();
        if state.limits.ahead == 0 {
            return self.read_now(state, &spans);
        }
        let mut found = self.look(state, &spans);
        let mut missing: Vec<usize> =
            (0..spans.len()).filter(|index| matches!(found[*index], Found::Missing)).collect();
        loop {
            let wanted: Vec<Span> = missing.iter().map(|index| spans[*index]).collect();
            for (index, piece) in missing.iter().zip(self.read_missing(state, &wanted)?) {
                found[*index] = Found::Here(piece);
            }
            // Waits for what another thread reads, unless that fails.
            missing =
                (0..spans.len()).filter(|index| !self.await_coming(state, spans[*index], &mut found[*index])).collect();
            if missing.is_empty() {
                break;
            }
            if state.settings.stop.is_asked() {
                return Err(ClientError::Stopped.into());
            }
        }
        Ok(found
            .into_iter()
            .filter_map(|found| if let Found::Here(piece) = found { Some(piece) } else { None })
            .collect())
    }

    /// Reads ranges if all of them are here already. Does not wait.
    pub fn read_kept(self: &Arc<Self>, state: &Arc<State>, asked: &[Asked]) -> Option<Vec<Piece>> {
        if state.limits.ahead == 0 {
            return None;
        }
        let spans: Vec<Span> = asked.iter().map(|asked| span(*asked, self.stat.size)).collect();
        let now = Instant::now();
        let mut kept = self.kept.lock();
        let all_here = spans.iter().all(|span| matches!(kept.find(*span, now, state.limits.idle), Found::Here(_)));
        drop(kept);
        if !all_here {
            return None;
        }
        self.handles.lock().used = now;
        let found = self.look(state, &spans);
        let pieces = found.into_iter().map(|found| if let Found::Here(piece) = found { Some(piece) } else { None });
        pieces.collect()
    }

    /// Looks for ranges that were read before, and begins to read ahead.
    fn look(self: &Arc<Self>, state: &Arc<State>, spans: &[Span]) -> Vec<Found> {
        let limits = state.limits;
        let mut handles = self.handles.lock();
        // Before its first read, a file may be near.
        let is_far = (NEAR..Duration::MAX).contains(&handles.fastest);
        let connections = self.origin.sources_max(limits.connections);
        let reads = if is_far { connections.saturating_sub(1) } else { 0 };
        if is_far {
            // They will be needed, and opening them takes some round trips.
            self.open_more(state, &mut handles, connections.min(CONNECTIONS_AHEAD));
        }
        drop(handles);
        let ahead = kept::Limits { reads, bytes: state.ahead_of_each() };
        let now = Instant::now();
        let mut kept = self.kept.lock();
        let found: Vec<Found> = spans.iter().map(|span| kept.find(*span, now, limits.idle)).collect();
        let late = found.iter().any(|found| matches!(found, Found::Coming(_)));
        for (number, plan) in kept.asked(spans, late, self.stat.size, ahead) {
            let (file, state) = (Arc::clone(self), Arc::clone(state));
            let begun = Builder::new().spawn(move || {
                let buffer = file.read_plan(&state, &plan).ok();
                file.kept.lock().came(number, buffer);
                file.came.notify_all();
            });
            if begun.is_err() {
                kept.came(number, None);
            }
        }
        found
    }

    /// Returns whether the range is there, after a wait for a read that is under way.
    fn await_coming(&self, state: &State, span: Span, found: &mut Found) -> bool {
        let mut kept = self.kept.lock();
        while let Found::Coming(number) = found {
            *found = kept.find_in(*number, span);
            if matches!(found, Found::Coming(_)) {
                self.came.wait_for(&mut kept, TICK);
                if state.settings.stop.is_asked() {
                    *found = Found::Missing;
                }
            }
        }
        matches!(found, Found::Here(_))
    }

    fn read_missing(self: &Arc<Self>, state: &Arc<State>, spans: &[Span]) -> Result<Vec<Piece>, ReadError> {
        let [small] = spans else { return self.read_now(state, spans) };
        if small.len == 0 || small.len > SMALL {
            return self.read_now(state, spans);
        }
        let begin = small.offset.min(self.stat.size.saturating_sub(AROUND));
        let len = usize::try_from(AROUND.min(self.stat.size - begin)).unwrap_or(SMALL);
        let around = Span { offset: begin, len };
        let buffer = Arc::new(self.read_plan(state, &ReadPlan::new(&[around], 0))?);
        let bytes_max = state.ahead_of_each();
        self.kept.lock().keep(around, Arc::clone(&buffer), bytes_max);
        let at = usize::try_from(small.offset - begin).unwrap_or(usize::MAX);
        Ok(vec![Piece::new(buffer, at, small.len)])
    }

    fn read_now(self: &Arc<Self>, state: &Arc<State>, spans: &[Span]) -> Result<Vec<Piece>, ReadError> {
        let plan = ReadPlan::new(spans, state.limits.gap);
        let buffer = Arc::new(self.read_plan(state, &plan)?);
        let piece = |(span, place): (&Span, &usize)| Piece::new(Arc::clone(&buffer), *place, span.len);
        Ok(spans.iter().zip(plan.places()).map(piece).collect())
    }

    fn read_plan(self: &Arc<Self>, state: &Arc<State>, plan: &ReadPlan) -> Result<Vec<u8>, ReadError> {
        let mut buffer = zeros(plan.len())?;
        let free = self.handles.lock().idle.len();
        let connections = match self.origin {
            // One reader uses the servers of all units already.
            Origin::Units(_) => 1,
            Origin::File { .. } => free.max(plan.len() / SHARE_OF_NEW).min(state.limits.connections),
        };
        let shares = plan.shares(connections, SHARE_MIN);
        match shares.as_slice() {
            [] => {}
            [only] => self.read_share(state, only, &mut buffer)?,
            _ => {
                let mut left = Vec::new();
                std::thread::scope(|scope| {
                    let mut rest = buffer.as_mut_slice();
                    let mut reads = Vec::new();
                    for share in &shares {
                        let (into, later) = rest.split_at_mut(share.buffer.len());
                        rest = later;
                        let read = move || self.read_share(state, share, into);
                        match Builder::new().spawn_scoped(scope, read) {
                            Ok(read) => reads.push(read),
                            Err(_) => left.push(share),
                        }
                    }
                    let stopped = |_| Err(ClientError::Stopped.into());
                    reads.into_iter().map(|read| read.join().unwrap_or_else(stopped)).fold(Ok(()), Result::and)
                })?;
                // There were no threads for these.
                for share in left {
                    self.read_share(state, share, &mut buffer[share.buffer.clone()])?;
                }
            }
        }
        Ok(buffer)
    }

    fn read_share(self: &Arc<Self>, state: &Arc<State>, share: &Share, into: &mut [u8]) -> Result<(), ReadError> {
        let mut source = self.take(state)?;
        let (begin, before) = (Instant::now(), source.server().cloned());
        let read = source.read_spans(&share.spans, into);
        let mut handles = self.handles.lock();
        handles.used = Instant::now();
        handles.fastest = handles.fastest.min(begin.elapsed());
        handles.servers.remove(before.as_ref());
        // After an error, answers may still be on their way over the connection.
        if read.is_ok() && handles.standing == Standing::Current {
            // A lost connection may have been restored at another server.
            handles.servers.add(source.server());
            handles.idle.push(source);
        } else {
            drop(handles);
            if read.is_ok() {
                source.give_up();
            }
            handles = self.handles.lock();
            handles.open -= 1;
        }
        drop(handles);
        self.changed.notify_all();
        Ok(read?)
    }

    /// Takes a connection that no other thread uses. While all are in use, another thread opens one more: whichever
    /// comes first is taken.
    fn take(self: &Arc<Self>, state: &Arc<State>) -> Result<Source, ReadError> {
        let mut handles = self.handles.lock();
        handles.used = Instant::now();
        loop {
            match handles.standing {
                Standing::Current => {}
                Standing::Closed => return Err(ReadError::Closed),
                Standing::Outdated => return Err(self.is_another().into()),
            }
            if let Some(source) = handles.idle.pop() {
                return Ok(source);
            }
            if handles.open == 0 && handles.opening == 0 {
                handles.open = 1;
                drop(handles);
                let opened = self.open_again(state, &[]);
                let mut handles = self.handles.lock();
                match &opened {
                    Ok((source, _)) => handles.servers.add(source.server()),
                    Err(_) => handles.open -= 1,
                }
                drop(handles);
                self.changed.notify_all();
                return Ok(opened?.0);
            }
            self.open_more(state, &mut handles, self.origin.sources_max(state.limits.connections));
            self.changed.wait_for(&mut handles, TICK);
            if state.settings.stop.is_asked() {
                return Err(ClientError::Stopped.into());
            }
        }
    }

    /// Lets a thread open another connection, if there are fewer than `most`. For a while after one has failed, the others
    /// must do.
    fn open_more(self: &Arc<Self>, state: &Arc<State>, handles: &mut Handles, most: usize) {
        let is_early = handles.failed.is_some_and(|failed| failed.elapsed() < AGAIN_AFTER);
        if handles.open + handles.opening < most && handles.opening < OPENING_MAX && !is_early {
            handles.opening += 1;
            let (file, state, used) = (Arc::clone(self), Arc::clone(state), handles.servers.most_used());
            if Builder::new().spawn(move || file.open_one_more(&state, &used)).is_err() {
                handles.opening -= 1;
            }
        }
    }

    fn open_one_more(&self, state: &State, used: &[Endpoint]) {
        let opened = self.open_again(state, used);
        let mut handles = self.handles.lock();
        // If it failed, whoever waits has another connection, or opens one and gets the reason.
        match opened {
            Ok((source, _)) if handles.standing != Standing::Current => {
                drop(handles);
                source.give_up();
                handles = self.handles.lock();
            }
            Ok((source, was_rejected)) => {
                handles.servers.came(source.server(), used, was_rejected);
                handles.idle.push(source);
                handles.open += 1;
                handles.failed = None;
            }
            Err(_) => handles.failed = Some(Instant::now()),
        }
        handles.opening -= 1;
        drop(handles);
        self.changed.notify_all();
    }

    /// Opens it once more, at a server that is not among `used` if possible. Also returns whether such a server was
    /// rejected.
    fn open_again(&self, state: &State, used: &[Endpoint]) -> Result<(Source, bool), ClientError> {
        let Again { stat: found, source, was_rejected } =
            state.with_client(|client| self.origin.open_again(client, &self.url, used))?;
        let before = &self.stat;
        match source {
            Some(source) if (before.id, before.size, before.mtime) == (found.id, found.size, found.mtime) => {
                Ok((source, was_rejected))
            }
            _ => {
                self.end(Standing::Outdated);
                Err(self.is_another())
            }
        }
    }

    fn is_another(&self) -> ClientError {
        ClientError::Replaced { file: self.url.to_string(), since: "it was opened" }
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
