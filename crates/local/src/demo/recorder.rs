//! A recording: feeds bytes at a steady pace into the standard input of a `weir cp`, as a detector's read-out would.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::child::Owned;

/// Bytes of one write.
const PORTION: usize = 128 << 10;

/// A recording under way.
pub struct Recorder {
    process: Owned,
    feeder: Option<JoinHandle<Duration>>,
    fed: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    begin: Instant,
    says: PathBuf,
    ended: Option<Ended>,
}

/// The end of a recording.
#[derive(Clone, Debug)]
pub struct Ended {
    /// From its start until it was closed, durable on as many stores as the policy wants.
    pub took: Duration,
    /// The longest time for which `weir cp` accepted nothing although bytes were waiting.
    pub longest_pause: Duration,
    /// Why it failed.
    pub failed: Option<String>,
}

impl Recorder {
    /// Starts to record `bytes` at `url`, `per_second` bytes a second. Catches up after a delay. The output of `weir cp` goes to `says`.
    pub fn start(url: &str, bytes: Arc<Vec<u8>>, per_second: u32, says: &Path) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        // One request at a time keeps buffers small, so that the feeder notices each delay of the cluster.
        command.args(["cp", "--window", "1", "-", url]);
        let begin = Instant::now();
        let mut process =
            Owned::start(command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(File::create(says)?))?;
        let mut pipe = process.child().stdin.take().ok_or_else(|| io::Error::other("a child without its pipe"))?;
        let fed = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (fed_by, stopped) = (Arc::clone(&fed), Arc::clone(&stop));
        let feeder = std::thread::Builder::new().name("recorder".into()).spawn(move || {
            let mut longest = Duration::ZERO;
            let mut sent: u64 = 0;
            for portion in bytes.chunks(PORTION) {
                let due = begin + Duration::from_millis(sent * 1000 / u64::from(per_second).max(1));
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                let before = Instant::now();
                // The pipe breaks when weir cp ends; its exit status tells why.
                if stopped.load(Ordering::Relaxed) || pipe.write_all(portion).is_err() {
                    break;
                }
                longest = longest.max(before.elapsed());
                sent += portion.len() as u64;
                fed_by.store(sent, Ordering::Relaxed);
            }
            longest
        })?;
        let says = says.to_owned();
        Ok(Self { process, feeder: Some(feeder), fed, stop, begin, says, ended: None })
    }

    /// Bytes handed over so far.
    #[must_use]
    pub fn fed(&self) -> u64 {
        self.fed.load(Ordering::Relaxed)
    }

    /// How it ended; `None`: it is still running.
    pub fn ended(&mut self) -> io::Result<Option<&Ended>> {
        if self.ended.is_none()
            && let Some(status) = self.process.ended()?
        {
            let took = self.begin.elapsed();
            let longest_pause = self.feeder.take().and_then(|feeder| feeder.join().ok()).unwrap_or_default();
            let said = std::fs::read_to_string(&self.says).unwrap_or_default();
            let failed = (!status.success()).then(|| format!("{status}, {}", said.trim()));
            self.ended = Some(Ended { took, longest_pause, failed });
        }
        Ok(self.ended.as_ref())
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
