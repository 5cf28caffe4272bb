//! Running other programs with a bound on their time; nothing that the demo starts outlives it.

use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Whether the demo is to end: Ctrl-C, or another signal that asks for it.
#[derive(Clone, Debug)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// From now on set by signals. Those never end the process themselves, since it has things to take with it.
    pub fn by_signals() -> io::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(Self(flag))
    }

    /// For what has to come to its end.
    #[must_use]
    pub fn never() -> Self {
        Self(Arc::default())
    }

    /// Whether it is to end.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error if it is to end.
    pub fn check(&self) -> io::Result<()> {
        if self.is_asked() { Err(io::Error::new(io::ErrorKind::Interrupted, "stopped")) } else { Ok(()) }
    }
}

/// What a program said and how it ended.
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
    /// The last line of its standard error that is not empty: where stock clients say why.
    #[must_use]
    pub fn last_words(&self) -> String {
        self.stderr.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("").to_owned()
    }
}

/// A child that is killed when this value goes.
#[derive(Debug)]
pub struct Owned(Child);

impl Owned {
    /// Starts `command`, out of reach of a terminal's Ctrl-C: the demo ends it.
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

    /// How it ended; `None`: it is still running.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.0.try_wait()
    }

    /// Waits at most `patience`, or until `stop`.
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

/// Runs `command` to its end, or kills it when `patience` is over or the demo is to stop.
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
            // 256 MiB is far above anything that the demo asks for; it keeps a mad program from filling the memory.
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
    fn a_stop_ends_a_program_that_is_waited_for() {
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
