//! Running another tool: by its name from the search path, without a shell, ended when all is to end.

use std::io::{self, Read as _};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::load::Worker;
use crate::target::TargetError;

/// Most bytes of its output that are kept.
const OUTPUT_MAX: u64 = 16 << 20;
/// How often it is looked whether all is to end.
const TICK: Duration = Duration::from_millis(5);

/// A tool under way.
pub(super) struct Running {
    name: &'static str,
    child: Child,
    out: Option<JoinHandle<io::Result<Vec<u8>>>>,
    err: Option<JoinHandle<io::Result<Vec<u8>>>>,
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
        let what = format!("run {name}, which has to be installed and in the search path");
        let mut child = spawned.map_err(|source| TargetError::path(what, source))?;
        let (out, err) = (collect(child.stdout.take()), collect(child.stderr.take()));
        Ok(Self { name, child, out, err })
    }

    /// Its standard output, once it has ended well; `None` where it was ended because all is to end.
    pub(super) fn wait(mut self, worker: &Worker) -> Result<Option<String>, TargetError> {
        let failed = |what: String, source: io::Error| TargetError::path(what, source);
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => {
                    let (out, err) = (collected(self.out.take()), collected(self.err.take()));
                    if status.success() {
                        return Ok(Some(out));
                    }
                    let last = err.trim().lines().last().or(out.trim().lines().last()).unwrap_or_default().to_owned();
                    let what = format!("run {} ({status})", self.name);
                    return Err(failed(what, io::Error::other(last)));
                }
                Ok(None) if worker.is_stopped() => {
                    // Our own child: nobody else is met.
                    let _ = self.child.kill();
                    let _ = self.child.wait();
                    return Ok(None);
                }
                Ok(None) => thread::sleep(TICK),
                Err(source) => return Err(failed(format!("wait for {}", self.name), source)),
            }
        }
    }
}
