//! What all the workers of one copy share.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use client::{Algorithm, Client, Endpoint, Settings, Url};
use parking_lot::Mutex;

use super::local::Direct;
use super::progress::Progress;

/// What was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Replace what is there.
    pub force: bool,
    /// Go on with what an earlier copy has left.
    pub resume: bool,
    /// Compare checksums.
    pub verify: bool,
    /// Make local files durable before they get their names.
    pub sync: bool,
    /// Let servers copy among themselves.
    pub tpc: bool,
    /// Connections for one file that is read.
    pub streams: u16,
    /// Past the page cache?
    pub direct: Direct,
}

/// Shared by the workers.
#[derive(Debug)]
pub struct Context {
    /// What was asked for.
    pub options: Options,
    /// How patient the client is.
    pub settings: Settings,
    /// What has been done.
    pub progress: Progress,
    sums: Mutex<HashMap<Endpoint, Option<Algorithm>>>,
    stop: Arc<AtomicBool>,
}

impl Context {
    /// At the beginning of a copy.
    #[must_use]
    pub fn new(options: Options, settings: Settings) -> Self {
        let (sums, stop) = (Mutex::new(HashMap::new()), Arc::default());
        Self { options, settings, progress: Progress::default(), sums, stop }
    }

    /// The checksum that a server keeps and this program can compute.
    pub fn offered(&self, client: &mut Client, url: &Url) -> Option<Algorithm> {
        if let Some(known) = self.sums.lock().get(&url.server) {
            return *known;
        }
        // What could not be asked is asked again the next time.
        let answer = client.config(url, &["chksum"]).ok()?;
        let offered = answer.first().and_then(|line| Algorithm::offered(line));
        self.sums.lock().insert(url.server.clone(), offered);
        offered
    }

    /// Set to `true`, it ends everything soon.
    #[must_use]
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Is everything to end?
    #[must_use]
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
