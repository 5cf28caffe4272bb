//! The state that all workers of one copy share.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::{Algorithm, BatchLimits, Client, ClientError, Endpoint, Settings, Stop, Url};
use parking_lot::Mutex;

use crate::local::Direct;
use crate::place::CopyPath;
use crate::progress::Progress;
use crate::waits::WaitNotices;

/// The options of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Replace existing targets.
    pub force: bool,
    /// Continue what an earlier copy left.
    pub resume: bool,
    /// Keep what was copied of a file when the copy of it ends early.
    pub partial: bool,
    /// Compare checksums.
    pub verify: bool,
    /// Make local files durable before they get their names.
    pub sync: bool,
    /// Keep modification times and, on this machine, permission bits.
    pub preserve: bool,
    /// Let servers copy among themselves.
    pub tpc: bool,
    /// Delegate a proxy to the target's server, with which it reads the source.
    pub delegate: bool,
    /// Copy files that are being written to their end.
    pub follow: bool,
    /// Connections for reading one file.
    pub streams: u16,
    /// Whether to bypass the page cache.
    pub direct: Direct,
}

/// Shared by all workers.
#[derive(Debug)]
pub struct Context {
    /// The options.
    pub options: Options,
    /// How patient the client is.
    pub settings: Settings,
    /// The progress so far.
    pub progress: Progress,
    /// What the client waits for.
    pub waits: WaitNotices,
    sums: Mutex<HashMap<Endpoint, Option<Algorithm>>>,
    weir: Mutex<HashMap<Endpoint, bool>>,
    batches: Mutex<HashMap<Endpoint, Option<BatchLimits>>>,
    notes: Mutex<BTreeSet<String>>,
    stop: Arc<AtomicBool>,
}

impl Context {
    /// The state at the beginning of a copy.
    #[must_use]
    pub fn new(options: Options, settings: Settings, waits: WaitNotices) -> Self {
        let stop: Arc<AtomicBool> = Arc::default();
        let asked = Arc::clone(&stop);
        let (stop_when, watch) = (Stop::when(move || asked.load(Ordering::Relaxed)), waits.watch());
        let settings = Settings { stop: stop_when, watch, ..settings };
        let (sums, weir, batches, notes) = (Mutex::default(), Mutex::default(), Mutex::default(), Mutex::default());
        Self { options, settings, progress: Progress::default(), waits, sums, weir, batches, notes, stop }
    }

    /// A client for cleaning up after everything else was told to stop. It does not wait long.
    #[must_use]
    pub fn cleaner(&self) -> Client {
        Client::new(Settings {
            stop: Stop::default(),
            connect_timeout: Duration::from_secs(5).min(self.settings.connect_timeout),
            silence_max: Duration::from_secs(10).min(self.settings.silence_max),
            recovery_max: Duration::ZERO,
            wait_max: Duration::from_secs(10).min(self.settings.wait_max),
            ..self.settings.clone()
        })
    }

    /// Whether a server keeps the file times that clients give. If not, the copy says so at its end.
    ///
    /// # Errors
    /// The server cannot be asked.
    pub fn keeps_times(&self, client: &mut Client, url: &Url) -> Result<bool, ClientError> {
        let keeps = self.is_weir(client, url)?;
        if !keeps {
            let note = format!("{} takes no times of files: those there have the time of their copy", url.server);
            self.notes.lock().insert(note);
        }
        Ok(keeps)
    }

    /// Whether the server is one of weir's. These know whether each file is complete, and say so when asked for its checksum.
    pub fn is_weir(&self, client: &mut Client, url: &Url) -> Result<bool, ClientError> {
        if let Some(known) = self.weir.lock().get(&url.server) {
            return Ok(*known);
        }
        let weir = client.is_weir(url)?;
        self.weir.lock().insert(url.server.clone(), weir);
        Ok(weir)
    }

    /// The batch limits of a server, if it takes batches.
    pub fn batches(&self, client: &mut Client, url: &Url) -> Option<BatchLimits> {
        if let Some(known) = self.batches.lock().get(&url.server) {
            return *known;
        }
        // After a failure, ask again the next time.
        let limits = client.batch_limits(url).ok()?;
        self.batches.lock().insert(url.server.clone(), limits);
        limits
    }

    /// Notes that a copy between these places could not be compared, because one of the servers keeps no checksum for it.
    pub fn not_compared(&self, places: [&CopyPath; 2]) {
        let servers: BTreeSet<_> = places
            .into_iter()
            .filter_map(|place| match place {
                CopyPath::Remote(url) => Some(url.server.to_string()),
                CopyPath::Local(_) | CopyPath::Standard => None,
            })
            .collect();
        if self.options.verify && !servers.is_empty() {
            let servers = servers.into_iter().collect::<Vec<_>>().join(" or ");
            let note =
                format!("not all copied files were compared: {servers} gives no checksum (crc32c, adler32) of them");
            self.notes.lock().insert(note);
        }
    }

    /// The messages for the end.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        self.notes.lock().iter().cloned().collect()
    }

    /// A checksum that the server keeps and this program can compute. A server that refuses the question keeps none.
    ///
    /// # Errors
    /// The server cannot be asked.
    pub fn offered(&self, client: &mut Client, url: &Url) -> Result<Option<Algorithm>, ClientError> {
        if let Some(known) = self.sums.lock().get(&url.server) {
            return Ok(*known);
        }
        let answer = match client.config(url, &["chksum"]) {
            Err(error) if error.is_connection() || matches!(error, ClientError::Stopped) => return Err(error),
            answer => answer.unwrap_or_default(),
        };
        let offered = answer.first().and_then(|line| Algorithm::offered(line));
        self.sums.lock().insert(url.server.clone(), offered);
        Ok(offered)
    }

    /// A flag that ends everything soon once it is `true`.
    #[must_use]
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Whether everything must end.
    #[must_use]
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
