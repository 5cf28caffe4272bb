//! Running other programs with a bound on their time; nothing that the demo starts outlives it.

use std::io::{self, Read as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

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
    /// Starts `command`.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        command.spawn().map(Self)
    }

    /// The child itself, for its pipes and id.
    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Its process id, as signals want it.
    pub fn pid(&self) -> io::Result<rustix::process::Pid> {
        rustix::process::Pid::from_raw(i32::try_from(self.0.id()).unwrap_or(0))
            .ok_or_else(|| io::Error::other("a child without a process id"))
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.0.kill()?;
        self.0.wait()
    }

    /// Waits at most `patience`; `None`: it is still running.
    pub fn wait(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        let end = Instant::now() + patience;
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(Some(status));
            }
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

/// Runs `command` to its end, or kills it when `patience` is over.
pub fn run(command: &mut Command, patience: Duration) -> io::Result<Outcome> {
    let begin = Instant::now();
    let mut child = Owned::start(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))?;
    let stdout = read_all(child.child().stdout.take());
    let stderr = read_all(child.child().stderr.take());
    let status = match child.wait(patience)? {
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
        let error = run(Command::new("sleep").arg("60"), Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begin.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn last_words() {
        let outcome =
            run(Command::new("sh").args(["-c", "echo a >&2; echo b >&2; echo >&2; echo c"]), Duration::from_secs(10));
        let outcome = outcome.unwrap();
        assert_eq!((outcome.last_words().as_str(), outcome.stdout.as_slice()), ("b", b"c\n".as_slice()));
    }
}
