//! Starts and ends the real binary.
#![allow(clippy::unwrap_used, clippy::panic, dead_code)] // a test may fail this way; not every test uses everything

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// The command of the binary with `arguments`.
pub fn weir(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs the binary to its end.
pub fn weir_ends(arguments: &[&str]) -> Output {
    let mut child = weir(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("weir {arguments:?} did not end: {:?}", child.wait_with_output().unwrap());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// The exit code and stderr.
pub fn refusal(arguments: &[&str]) -> (i32, String) {
    let output = weir_ends(arguments);
    assert_eq!(output.stdout, b"", "a refusal says nothing on stdout");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// A running node. Killed when it goes out of scope.
pub struct Node {
    pub child: Child,
    pub stdout: BufReader<ChildStdout>,
    pub address: String,
}

impl Node {
    /// Starts `weir serve` on `data` with `more` flags and waits for the ready line.
    pub fn start(data: &Path, more: &[&str]) -> Self {
        let log = data.with_extension("log");
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        let mut child = weir(&["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .args(more)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let Some(address) = line.strip_prefix("weir: ready root://").and_then(|rest| rest.strip_suffix("/\n")) else {
            let status = child.wait().unwrap();
            panic!("no ready line but {line:?}, {status}: {}", Self::log_of(data));
        };
        Self { address: address.to_owned(), child, stdout }
    }

    pub fn log_of(data: &Path) -> String {
        std::fs::read_to_string(data.with_extension("log")).unwrap_or_default()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for the end. Returns the status and the rest of stdout.
    pub fn ended(mut self, patience: Duration) -> (ExitStatus, String) {
        let end = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                let mut rest = String::new();
                self.stdout.read_to_string(&mut rest).unwrap();
                return (status, rest);
            }
            assert!(Instant::now() < end, "the node did not end in time");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn stop(self) {
        self.signal(rustix::process::Signal::TERM);
        let (status, _) = self.ended(Duration::from_secs(10));
        assert_eq!(status.code(), Some(0), "a clean stop");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
