//! A slow recorder: bytes fed little by little into an `xrdcp` that takes them from its standard input, as a detector's
//! read-out would.

use std::io::{self, Write as _};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::child::Owned;
use super::clients::Clients;

/// Bytes handed over at a time.
const PORTION: usize = 128 << 10;

/// A recording under way.
pub struct Recorder {
    process: Owned,
    feeder: Option<JoinHandle<()>>,
    fed: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Recorder {
    /// Begins to record `bytes` as `path`, one portion each `pause`.
    pub fn start(clients: &Clients, path: &str, force: bool, bytes: Arc<Vec<u8>>, pause: Duration) -> io::Result<Self> {
        let mut process = clients.record(path, force)?;
        let mut pipe = process.child().stdin.take().ok_or_else(|| io::Error::other("xrdcp has no standard input"))?;
        let fed = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (fed_by, stopped) = (Arc::clone(&fed), Arc::clone(&stop));
        let feeder = std::thread::Builder::new().name("recorder".into()).spawn(move || {
            for portion in bytes.chunks(PORTION) {
                // The pipe breaks when xrdcp is killed: that is one of the ways in which this ends.
                if stopped.load(Ordering::Relaxed) || pipe.write_all(portion).is_err() {
                    return;
                }
                fed_by.fetch_add(portion.len() as u64, Ordering::Relaxed);
                std::thread::sleep(pause);
            }
        })?;
        Ok(Self { process, feeder: Some(feeder), fed, stop })
    }

    /// Bytes handed to xrdcp so far.
    #[must_use]
    pub fn fed(&self) -> u64 {
        self.fed.load(Ordering::Relaxed)
    }

    /// Whether there is more to come.
    #[must_use]
    pub fn is_feeding(&self) -> bool {
        self.feeder.as_ref().is_some_and(|feeder| !feeder.is_finished())
    }

    /// Waits until all is recorded and closed; `None`: it did not end in time.
    pub fn finish(mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        self.process.wait(patience)
    }

    /// SIGKILL for the xrdcp.
    pub fn kill(mut self) -> io::Result<ExitStatus> {
        self.process.kill()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.process.kill();
        if let Some(feeder) = self.feeder.take() {
            let _ = feeder.join();
        }
    }
}
