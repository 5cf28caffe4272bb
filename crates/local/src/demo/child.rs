//! Runs other programs for a bounded time. None of them outlives the demo.

use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Whether the demo must end: Ctrl-C, or another signal that asks for it.
#[derive(Clone, Debug)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// From now on signals set the flag. They never end the process, which has children to stop first.
    pub fn by_signals() -> io::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(Self(flag))
    }

    /// A flag that nothing sets, for work that must run to its end.
    #[must_use]
    pub fn never() -> Self {
        Self(Arc::default())
    }

    /// Whether the demo must end.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails if the demo must end.
    pub fn check(&self) -> io::Result<()> {
        if self.is_asked() { Err(io::Error::new(io::ErrorKind::Interrupted, "stopped")) } else { Ok(()) }
    }
}

/// A program's output and exit status.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: String,
    /// From its start to its end.
    pub took: Duration,
}

impl Outcome {
    /// The last non-empty line of stderr, where stock clients print the reason.
    #[must_use]
    pub fn last_words(&self) -> String {
        self.stderr.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("").to_owned()
    }
}

/// A child process that is killed when this is dropped.
#[derive(Debug)]
pub struct Owned(Child);

impl Owned {
    /// Starts `command` out of reach of a terminal's Ctrl-C: the demo ends it.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        command.process_group(0).spawn().map(Self)
    }

    /// The child itself, for its pipes and id.
    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.0.kill()?;
        self.0.wait()
    }

    /// Its exit status; `None`: it is still running.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.0.try_wait()
    }

    /// Waits at most `patience`, or until `stop` is set.
    fn wait(&mut self, patience: Duration, stop: &Stop) -> io::Result<Option<ExitStatus>> {
        let end = Instant::now() + patience;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(Some(status));
            }
            stop.check()?;
            if Instant::now() >= end {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `command` to its end. Kills it after `patience`, or when the demo must stop.
pub fn run(command: &mut Command, patience: Duration, stop: &Stop) -> io::Result<Outcome> {
    let begin = Instant::now();
    let mut child = Owned::start(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))?;
    let stdout = read_all(child.child().stdout.take());
    let stderr = read_all(child.child().stderr.take());
    let status = match child.wait(patience, stop)? {
        Some(status) => status,
        None => {
            child.kill()?;
            let name = command.get_program().to_string_lossy().into_owned();
            let text = format!("{name} did not end within {} s and was killed", patience.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
    };
    let took = begin.elapsed();
    let stderr = String::from_utf8_lossy(&stderr.join().unwrap_or_default()).into_owned();
    Ok(Outcome { status, stdout: stdout.join().unwrap_or_default(), stderr, took })
}

fn read_all(pipe: Option<impl io::Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            // 256 MiB is far more than the demo needs; the bound keeps a faulty program from filling the memory.
            let _ = pipe.take(256 << 20).read_to_end(&mut bytes);
        }
        bytes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_hangs_is_killed() {
        let begin = Instant::now();
        let error = run(Command::new("sleep").arg("60"), Duration::from_millis(50), &Stop::never()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begin.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_stop_ends_a_running_program() {
        let stop = Stop(Arc::new(AtomicBool::new(true)));
        let begin = Instant::now();
        let error = run(Command::new("sleep").arg("60"), Duration::from_secs(60), &stop).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
        assert!(begin.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn last_words() {
        let script = "echo a >&2; echo b >&2; echo >&2; echo c";
        let outcome = run(Command::new("sh").args(["-c", script]), Duration::from_secs(10), &Stop::never());
        let outcome = outcome.unwrap();
        assert_eq!((outcome.last_words().as_str(), outcome.stdout.as_slice()), ("b", b"c\n".as_slice()));
    }
}
