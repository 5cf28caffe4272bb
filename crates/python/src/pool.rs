//! Connections and open files, shared by all threads of a process.
//!
//! One thread uses a connection at a time. A file that was read stays open for a while, so that the next read costs one
//! round trip. See [`OpenFile`] for the bytes that a reader may see.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use client::{Client, ClientError, Settings, Stop, Url};
use parking_lot::Mutex;

use crate::error::{ReadError, is_over};
use crate::given_up::GivenUp;
use crate::open_file::{OpenFile, Piece, Standing, Version};

/// How many idle clients are kept. Each has a connection to each server that it has asked.
const CLIENTS_MAX: usize = 4;
/// How often unused files are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The connections of all files together may be this many times as many as without any striped file.
const STRIPED_MORE: usize = 2;
/// How often a read begins again, because its file was replaced meanwhile.
const ATTEMPTS: u32 = 5;

/// What a user chooses, beside the client's settings.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections with which one file is read.
    pub connections: usize,
    /// Files that stay open.
    pub files: usize,
    /// How long a file stays open without a read.
    pub idle: Duration,
    /// Two ranges with at most this many bytes between them are read as one.
    pub gap: usize,
    /// Bytes that are kept because they will probably be asked for. The open files share them.
    pub ahead: usize,
}

/// A requested range as Python's slices have it: open ends, and negative numbers that count from the end.
pub type Asked = (Option<i64>, Option<i64>);

/// The connections and open files.
pub struct State {
    pub settings: Settings,
    pub limits: Limits,
    pub given_up: GivenUp,
    stop: Arc<AtomicBool>,
    clients: Mutex<Vec<Client>>,
    files: Mutex<Files>,
}

#[derive(Default)]
struct Files {
    by_url: HashMap<String, Arc<OpenFile>>,
    watched: bool,
}

impl State {
    pub fn new(mut settings: Settings, limits: Limits) -> Arc<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        settings.stop = Stop::when(move || asked.load(Ordering::Relaxed));
        let (clients, files) = (Mutex::default(), Mutex::default());
        Arc::new(Self { settings, limits, given_up: GivenUp::default(), stop, clients, files })
    }

    /// Ends what is under way.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether no thread was inside when the process was forked, so that its parts can be dropped in the child.
    pub fn is_at_rest(&self) -> bool {
        let Some(files) = self.files.try_lock() else { return false };
        self.clients.try_lock().is_some() && files.by_url.values().all(|file| file.is_at_rest())
    }

    /// Calls `ask` with a client for this thread alone.
    pub fn with_client<T>(&self, ask: impl FnOnce(&mut Client) -> T) -> T {
        let kept = self.clients.lock().pop();
        let mut client = kept.unwrap_or_else(|| Client::new(self.settings.clone()));
        let answer = ask(&mut client);
        let mut clients = self.clients.lock();
        if clients.len() < CLIENTS_MAX {
            clients.push(client);
        }
        answer
    }

    /// Reads ranges of one file. If the file has changed since it was opened, reads all of them again from the new one:
    /// the bytes of one call are those of one open. With a `version`, only that one is read.
    pub fn read(
        self: &Arc<Self>,
        url: &str,
        asked: &[Asked],
        version: Option<Version>,
    ) -> Result<Vec<Piece>, ReadError> {
        let mut attempts = 1..=ATTEMPTS;
        loop {
            let (file, fresh) = self.open(url)?;
            let failed = match file.read_version(self, asked, version) {
                Ok(pieces) => return Ok(pieces),
                Err(ReadError::Client(failed)) => failed,
                Err(failed @ ReadError::Memory(_)) => return Err(failed),
                Err(ReadError::Closed) if self.settings.stop.is_asked() => return Err(ClientError::Stopped.into()),
                Err(ReadError::Closed) => continue,
            };
            // Another thread may have found that it is outdated.
            let may_help = !fresh || !file.is_current();
            self.forget(url, Some(&file));
            let is_last = attempts.next().is_none_or(|attempt| attempt == ATTEMPTS);
            if !may_help || is_last || is_over(&failed) {
                return Err(failed.into());
            }
        }
    }

    /// Returns the open file, and whether it was opened for this call.
    pub fn open(self: &Arc<Self>, url: &str) -> Result<(Arc<OpenFile>, bool), ClientError> {
        if let Some(file) = self.known(url) {
            return Ok((file, false));
        }
        let (parsed, ahead) = (Url::parse(url)?, self.ahead_of_each());
        let file = Arc::new(self.with_client(|client| OpenFile::open(client, &parsed, ahead))?);
        let mut files = self.files.lock();
        // Another thread may have been faster. Then its file counts, so that all readers share one.
        if let Some(other) = files.by_url.get(url).filter(|other| other.is_current()) {
            return Ok((Arc::clone(other), true));
        }
        while !files.by_url.is_empty() && !self.has_room(&files, &file) {
            let oldest = files.by_url.iter().min_by_key(|(_, file)| file.used()).map(|(url, _)| url.clone());
            // Its connections end when its readers do.
            oldest.and_then(|url| files.by_url.remove(&url)).iter().for_each(|file| file.end(Standing::Closed));
        }
        files.by_url.insert(url.to_owned(), Arc::clone(&file));
        if !files.watched {
            let state = Arc::downgrade(self);
            // Without a thread for it now, the next open tries again.
            files.watched = std::thread::Builder::new().spawn(move || close_unused(&state)).is_ok();
        }
        Ok((file, true))
    }

    /// Whether another file may be open. Striped ones have many connections, and the system limits their number.
    fn has_room(&self, files: &Files, another: &OpenFile) -> bool {
        let Limits { files: files_max, connections, .. } = self.limits;
        let all = files.by_url.values().map(|file| file.connections_max(connections)).sum::<usize>();
        let most = STRIPED_MORE.saturating_mul(files_max.max(1)).saturating_mul(connections);
        files.by_url.len() < files_max.max(1) && all + another.connections_max(connections) <= most
    }

    /// Returns how many bytes may be kept for one of the open files: they share the memory.
    pub fn ahead_of_each(&self) -> usize {
        self.limits.ahead / self.files.lock().by_url.len().max(1)
    }

    /// Returns the file if it is open.
    pub fn known(&self, url: &str) -> Option<Arc<OpenFile>> {
        self.files.lock().by_url.get(url).filter(|file| file.is_current()).map(Arc::clone)
    }

    /// The file is opened again for the next read; only if it is still `file`, if that is given. Otherwise waits until the
    /// server has closed it: some servers let nobody write a file that is open.
    pub fn forget(&self, url: &str, file: Option<&Arc<OpenFile>>) {
        let mut files = self.files.lock();
        let is_it = |found: &Arc<OpenFile>| file.is_none_or(|file| Arc::ptr_eq(found, file));
        let found = if files.by_url.get(url).is_some_and(is_it) { files.by_url.remove(url) } else { None };
        drop(files);
        found.iter().for_each(|found| {
            self.close(found);
            if file.is_none() {
                found.await_closed();
            }
        });
    }

    /// Forgets a name, with any words behind it, and all names below it.
    pub fn forget_below(&self, url: &str) {
        let name = url.split('?').next().unwrap_or(url).trim_end_matches('/');
        let is_below =
            |url: &str| url.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']));
        let mut files = self.files.lock();
        let below: Vec<String> = files.by_url.keys().filter(|url| is_below(url)).cloned().collect();
        let below: Vec<_> = below.iter().filter_map(|url| files.by_url.remove(url)).collect();
        drop(files);
        below.iter().for_each(|file| {
            self.close(file);
            file.await_closed();
        });
    }

    /// Returns the version of a file. If it was opened longer ago than `age_max`, asks whether the file is still the same.
    pub fn version(self: &Arc<Self>, url: &str, age_max: Duration) -> Result<Version, ClientError> {
        let (file, fresh) = self.open(url)?;
        if fresh || file.opened().elapsed() <= age_max {
            return Ok(file.version());
        }
        let stat = self.with_client(|client| client.stat(file.url()))?;
        if (stat.id, stat.size, stat.mtime) == file.version() {
            return Ok(file.version());
        }
        self.forget(url, Some(&file));
        self.open(url).map(|(file, _)| file.version())
    }

    /// Forgets all files.
    pub fn forget_all(&self) {
        let files = std::mem::take(&mut self.files.lock().by_url);
        files.values().for_each(|file| self.close(file));
    }

    /// After a fork: ends all connections of this process to the servers, without a word to them.
    pub fn drop_all(&self) {
        let files = std::mem::take(&mut self.files.lock().by_url);
        files.values().for_each(|file| file.end(Standing::Closed));
        self.clients.lock().clear();
    }

    fn close(&self, file: &OpenFile) {
        for session in file.close() {
            self.with_client(|client| client.give_back(session, file.url()));
        }
    }

    /// Closes files that were not used for a while. Returns whether others are open.
    fn close_unused(&self) -> bool {
        let (now, idle) = (Instant::now(), self.limits.idle);
        let mut files = self.files.lock();
        let is_unused = |file: &OpenFile| now.saturating_duration_since(file.used()) >= idle;
        let unused: Vec<String> =
            files.by_url.iter().filter(|(_, file)| is_unused(file)).map(|(url, _)| url.clone()).collect();
        let unused: Vec<_> = unused.iter().filter_map(|url| files.by_url.remove(url)).collect();
        let more = !files.by_url.is_empty();
        files.watched = more;
        drop(files);
        unused.iter().for_each(|file| self.close(file));
        more
    }
}

fn close_unused(state: &Weak<State>) {
    loop {
        std::thread::sleep(LOOK_EVERY);
        if !state.upgrade().is_some_and(|state| state.close_unused()) {
            return;
        }
    }
}
