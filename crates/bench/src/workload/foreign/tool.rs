//! Runs another tool: by name from the search path, without a shell, and killed when everything must end.

use std::io::{self, Read as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::load::Worker;
use crate::target::TargetError;

/// The most bytes of its output that are kept.
const OUTPUT_MAX: u64 = 16 << 20;
/// How often a wait checks whether everything must end.
const TICK: Duration = Duration::from_millis(5);

/// A tool under way.
pub(super) struct Running {
    name: &'static str,
    child: Child,
    end: Option<Instant>,
    out: Option<JoinHandle<io::Result<Vec<u8>>>>,
    err: Option<JoinHandle<io::Result<Vec<u8>>>>,
}

/// A tool that has ended.
pub(super) struct ToolOutput {
    pub(super) status: ExitStatus,
    pub(super) out: String,
    pub(super) err: String,
}

fn collect(stream: Option<impl io::Read + Send + 'static>) -> Option<JoinHandle<io::Result<Vec<u8>>>> {
    let stream = stream?;
    Some(thread::spawn(move || {
        let mut all = Vec::new();
        stream.take(OUTPUT_MAX).read_to_end(&mut all).map(|_| all)
    }))
}

fn collected(thread: Option<JoinHandle<io::Result<Vec<u8>>>>) -> String {
    let bytes = thread.and_then(|thread| thread.join().ok()).and_then(Result::ok).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Running {
    pub(super) fn start(name: &'static str, arguments: &[String]) -> Result<Self, TargetError> {
        let mut command = Command::new(name);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let spawned = command.spawn();
        let what = format!("run {name}, which must be installed and in the search path");
        let mut child = spawned.map_err(|source| TargetError::path(what, source))?;
        let (out, err) = (collect(child.stdout.take()), collect(child.stderr.take()));
        Ok(Self { name, child, end: None, out, err })
    }

    /// Kills it after `limit` from now on, which is an error. For a tool that waits for another process.
    pub(super) fn at_most(self, limit: Duration) -> Self {
        Self { end: Instant::now().checked_add(limit), ..self }
    }

    /// Returns its standard output after a successful end; `None`: it was killed because everything must end.
    pub(super) fn wait(self, worker: &Worker) -> Result<Option<String>, TargetError> {
        let name = self.name;
        let Some(ToolOutput { status, out, err }) = self.ended(worker)? else { return Ok(None) };
        if status.success() {
            return Ok(Some(out));
        }
        let last = err.trim().lines().last().or(out.trim().lines().last()).unwrap_or_default().to_owned();
        Err(TargetError::path(format!("run {name} ({status})"), io::Error::other(last)))
    }

    /// The same for a tool that reports its errors in its output.
    pub(super) fn ended(mut self, worker: &Worker) -> Result<Option<ToolOutput>, TargetError> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => {
                    let (out, err) = (collected(self.out.take()), collected(self.err.take()));
                    return Ok(Some(ToolOutput { status, out, err }));
                }
                Ok(None) if worker.is_stopped() => {
                    self.kill();
                    return Ok(None);
                }
                Ok(None) if self.end.is_some_and(|end| Instant::now() >= end) => {
                    self.kill();
                    return Err(TargetError::path(format!("wait for {}", self.name), io::ErrorKind::TimedOut));
                }
                Ok(None) => thread::sleep(TICK),
                Err(source) => return Err(TargetError::path(format!("wait for {}", self.name), source)),
            }
        }
    }

    fn kill(&mut self) {
        // It is our own child, so no other process can be hit.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Tally, WorkerPool};

    #[test]
    fn a_tool_that_waits_for_ever_is_killed() {
        let work = |worker: &Worker| {
            let _ = worker.start();
            let sleeping = Running::start("sleep", &["600".to_owned()])?.at_most(Duration::from_millis(50));
            sleeping.wait(worker).map(|_| Tally::default())
        };
        let finished = WorkerPool::hire(&[("", 0..1)], work).unwrap().run(None, |_| true);
        let error = finished.roles[0].workers[0].as_ref().unwrap_err().to_string();
        assert!(error.contains("wait for sleep: timed out"), "{error}");
        assert!(finished.wall < Duration::from_secs(60));
    }
}
