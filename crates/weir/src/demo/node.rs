//! The demo's node: a child process `weir serve`, so that it can be killed like any other.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::child::Owned;

/// A start after SIGKILL takes two seconds at worst with ten million files; the demo has a handful.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// A clean stop is promised within 10 s.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// Where the node lives, running or not.
#[derive(Debug)]
pub struct Home {
    /// Its data directory.
    pub data: PathBuf,
    /// Its log.
    pub log: PathBuf,
    /// How long it waits for writers that have gone.
    pub grace: Duration,
}

/// A running node.
#[derive(Debug)]
pub struct Node {
    process: Owned,
    /// The address that it is ready at.
    pub base: String,
    /// From its start to the ready line.
    pub took: Duration,
}

impl Home {
    /// Starts the node and waits for its ready line.
    pub fn start(&self) -> io::Result<Node> {
        let begin = Instant::now();
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(&self.data)
            .arg("--grace-seconds")
            .arg(self.grace.as_secs().to_string());
        let mut process = Owned::start(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log))?;
        let stdout = process.child().stdout.take();
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            if let Some(stdout) = stdout {
                let _ = BufReader::new(stdout).read_line(&mut line);
            }
            let _ = sender.send(line);
        });
        let line = receiver.recv_timeout(START_PATIENCE).unwrap_or_default();
        match line.trim_end().strip_prefix("weir: ready ") {
            Some(base) => Ok(Node { base: base.to_owned(), took: begin.elapsed(), process }),
            None => Err(io::Error::other(format!("the node did not become ready; its log ends: {}", self.log_end()))),
        }
    }

    /// The last lines of the log.
    #[must_use]
    pub fn log_end(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }

    /// Runs `weir fsck` on the data directory of the stopped node.
    pub fn fsck(&self) -> io::Result<super::child::Outcome> {
        let mut command = Command::new(std::env::current_exe()?);
        super::child::run(command.args(["fsck", "--json", "--data"]).arg(&self.data), Duration::from_secs(60))
    }
}

impl Node {
    /// SIGKILL: the node gets no chance to do anything.
    pub fn kill(mut self) -> io::Result<ExitStatus> {
        self.process.kill()
    }

    /// SIGTERM, and waits for the clean stop that is promised.
    pub fn stop(mut self) -> io::Result<(ExitStatus, Duration)> {
        let begin = Instant::now();
        let pid = self.process.pid()?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        match self.process.wait(STOP_PATIENCE)? {
            Some(status) => Ok((status, begin.elapsed())),
            None => Err(io::Error::new(io::ErrorKind::TimedOut, "the node did not stop within 10 s of SIGTERM")),
        }
    }
}

/// Whether the file system of `path` is kept in memory, which makes all rates meaningless.
#[must_use]
pub fn in_memory(path: &Path) -> bool {
    let Ok(path) = path.canonicalize() else { return false };
    let Ok(mounts) = File::open("/proc/mounts") else { return false };
    let mut best = (0, false);
    for line in BufReader::new(mounts).lines().map_while(Result::ok) {
        let mut words = line.split_whitespace().skip(1);
        let (Some(place), Some(kind)) = (words.next(), words.next()) else { continue };
        if path.starts_with(place) && place.len() >= best.0 {
            best = (place.len(), kind == "tmpfs");
        }
    }
    best.1
}
