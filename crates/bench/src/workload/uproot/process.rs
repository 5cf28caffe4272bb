//! A Python process that runs the shipped program: its lines, its errors, and its end.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use super::{Task, UprootError, UprootWith};
use crate::load::OpenedWith;

const PROGRAM: &str = include_str!("job.py");
/// How often a wait checks whether everything must end.
const TICK: Duration = Duration::from_millis(5);
/// The longest line, and the most of the errors that are kept.
const LINE_MAX: u64 = 64 << 10;
const ERRORS_MAX: u64 = 64 << 10;
/// How long the imports may take. Many jobs may start on few processors.
pub(super) const READY_MAX: Duration = Duration::from_secs(600);

/// The program's first line of input.
#[derive(Serialize)]
pub(super) struct Request<'a> {
    pub(super) with: UprootWith,
    #[serde(flatten)]
    pub(super) task: Task<'a>,
}

/// What a job did.
#[derive(Clone, Copy, Deserialize, Debug)]
pub(super) struct JobResult {
    pub(super) wall_s: f64,
    pub(super) cpu_s: f64,
    pub(super) events: u64,
    pub(super) asked: u64,
    pub(super) moved: u64,
    pub(super) requests: u64,
    pub(super) unpacked: u64,
}

/// A line of the program.
#[derive(Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
enum Said {
    Ready(OpenedWith),
    Missing { package: String, why: String },
    Error(String),
    Done(serde_json::Value),
}

/// The program under way. It is killed when this is dropped, with all processes that it has started: the interpreter
/// may be a shell script.
pub(super) struct PythonProcess {
    python: PathBuf,
    child: Child,
    /// Lets it begin.
    go: SyncSender<()>,
    lines: Receiver<String>,
    errors: Option<JoinHandle<String>>,
}

impl PythonProcess {
    pub(super) fn start(python: &Path, request: &Request<'_>) -> Result<Self, UprootError> {
        let failed = |why: String| UprootError::Start { python: python.display().to_string(), why };
        let asked = serde_json::to_string(request).map_err(|error| failed(error.to_string()))?;
        let mut command = Command::new(python);
        command.arg("-c").arg(PROGRAM).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let (input, out, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        // Three lines at most, so the sender never waits for long.
        let (sender, lines) = sync_channel(4);
        let (go, may_go) = sync_channel(1);
        let mut process = Self { python: python.to_owned(), child, go, lines, errors: None };
        // A program that reads nothing would stop whoever writes. Its end shows when it sends no line.
        let write_input = move || {
            let Some(mut input) = input else { return };
            if input.write_all(format!("{asked}\n").as_bytes()).is_ok() && may_go.recv().is_ok() {
                let _ = input.write_all(b"go\n");
            }
        };
        let read_lines = move || {
            let Some(out) = out else { return };
            let mut out = BufReader::new(out);
            let mut line = String::new();
            while out.by_ref().take(LINE_MAX).read_line(&mut line).is_ok_and(|len| len > 0) {
                if sender.send(std::mem::take(&mut line)).is_err() {
                    return;
                }
            }
        };
        let read_errors = move || {
            let mut kept = Vec::new();
            if let Some(mut errors) = errors {
                let _ = errors.by_ref().take(ERRORS_MAX).read_to_end(&mut kept);
                // A full pipe would stop the program.
                let _ = std::io::copy(&mut errors, &mut std::io::sink());
            }
            String::from_utf8_lossy(&kept).into_owned()
        };
        thread::Builder::new().spawn(write_input).map_err(|error| failed(error.to_string()))?;
        thread::Builder::new().spawn(read_lines).map_err(|error| failed(error.to_string()))?;
        process.errors = Some(thread::Builder::new().spawn(read_errors).map_err(|error| failed(error.to_string()))?);
        Ok(process)
    }

    /// Waits until the program has imported everything. `None`: everything must end.
    pub(super) fn ready(&mut self, is_stopped: &dyn Fn() -> bool) -> Result<Option<OpenedWith>, UprootError> {
        match self.next(Some(READY_MAX), is_stopped)? {
            None => Ok(None),
            Some(Said::Ready(with)) => Ok(Some(with)),
            Some(other) => Err(self.unexpected(&format!("{other:?}"))),
        }
    }

    /// Lets the program do its task, and waits for the end of it. `None`: everything must end.
    pub(super) fn work(&mut self, is_stopped: &dyn Fn() -> bool) -> Result<Option<serde_json::Value>, UprootError> {
        let _ = self.go.try_send(());
        match self.next(None, is_stopped)? {
            None => Ok(None),
            Some(Said::Done(result)) => Ok(Some(result)),
            Some(other) => Err(self.unexpected(&format!("{other:?}"))),
        }
    }

    fn next(&mut self, limit: Option<Duration>, is_stopped: &dyn Fn() -> bool) -> Result<Option<Said>, UprootError> {
        let since = Instant::now();
        let line = loop {
            match self.lines.recv_timeout(TICK) {
                Ok(line) => break line,
                Err(RecvTimeoutError::Timeout) if is_stopped() => return Ok(None),
                Err(RecvTimeoutError::Timeout) if limit.is_some_and(|limit| since.elapsed() >= limit) => {
                    return Err(self.unexpected("it does not become ready"));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
            }
        };
        match serde_json::from_str(&line) {
            Ok(Said::Missing { package, why }) => {
                Err(UprootError::Missing { python: self.python.display().to_string(), package, why })
            }
            Ok(Said::Error(why)) => Err(UprootError::Job { why }),
            Ok(said) => Ok(Some(said)),
            Err(error) => Err(self.unexpected(&error.to_string())),
        }
    }

    fn unexpected(&self, why: &str) -> UprootError {
        let why = why.chars().take(500).collect();
        UprootError::Start { python: self.python.display().to_string(), why }
    }

    /// The error of a program that has ended too early.
    fn ended(&mut self) -> UprootError {
        self.kill();
        let errors = self.errors.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        let last = errors.trim().lines().last().unwrap_or("it ended without an answer").to_owned();
        self.unexpected(&last)
    }

    /// Kills the program. Later calls do nothing.
    fn kill(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // It is our own child and not waited for yet, so no other processes can be hit.
        let _ = rustix::process::kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Drop for PythonProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Processes that have done their work. Their ends do not belong to the measured time.
#[derive(Default)]
pub(super) struct Finished(Mutex<Vec<PythonProcess>>);

impl Finished {
    pub(super) fn keep(&self, process: PythonProcess) {
        if let Ok(mut all) = self.0.lock() {
            all.push(process);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program in the place of the interpreter, which ignores its arguments.
    fn instead(folder: &Path, script: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let path = folder.join("python");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn start(python: &Path) -> Result<PythonProcess, UprootError> {
        PythonProcess::start(python, &Request { with: UprootWith::Auto, task: Task::Probe })
    }

    #[test]
    fn errors_of_the_program_are_told() {
        let said = |script: &str| {
            // A program of its own: one that still runs cannot be written.
            let folder = tempfile::tempdir().unwrap();
            let mut process = start(&instead(folder.path(), script)).unwrap();
            process.ready(&|| false).unwrap_err().to_string()
        };
        assert!(said("echo a >&2; echo 'ModuleNotFound: b' >&2; exit 1").contains("ModuleNotFound: b"));
        assert!(said("echo nonsense; exec sleep 600").contains("name a Python 3"));
        let missing = said(r#"echo '{"missing": {"package": "fsspec-xrootd", "why": "No module"}}'"#);
        assert!(missing.contains("pip install fsspec-xrootd xrootd") && missing.contains("No module"), "{missing}");
        assert!(said("exit 0").contains("without an answer"));
        let none = start(Path::new("/nowhere/python")).map(drop).unwrap_err().to_string();
        assert!(none.contains("`/nowhere/python`") && none.contains("No such file"), "{none}");
    }

    #[test]
    fn the_program_begins_when_it_is_told_and_ends_when_everything_ends() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let script = r#"read request; echo '{"ready": "weir"}'; read line; echo "{\"done\": \"$line\"}""#;
        let mut process = start(&instead(folders[0].path(), script)).unwrap();
        assert_eq!(process.ready(&|| false).unwrap(), Some(OpenedWith::Weir));
        assert_eq!(process.work(&|| false).unwrap(), Some("go".into()));
        let mut endless = start(&instead(folders[1].path(), r#"echo '{"ready": "path"}'; exec sleep 600"#)).unwrap();
        assert_eq!(endless.ready(&|| false).unwrap(), Some(OpenedWith::Path));
        assert_eq!(endless.work(&|| true).unwrap(), None);
        let since = Instant::now();
        drop(endless);
        assert!(since.elapsed() < Duration::from_secs(60));
    }
}
