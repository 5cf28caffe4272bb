//! Processes that outlive this one. They are found by number and start time, so that no other process is ever ended.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

const POLL: Duration = Duration::from_millis(50);

/// A process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// Its name.
    pub name: String,
    /// Its process id.
    pub pid: i32,
    /// Its start time, in kernel ticks since boot.
    pub began: u64,
}

impl Recorded {
    /// The process that has this number now.
    pub fn of(name: &str, pid: i32) -> Option<Self> {
        began(pid).map(|began| Self { name: name.to_owned(), pid, began })
    }

    /// Whether it is still running.
    pub fn is_alive(&self) -> bool {
        began(self.pid) == Some(self.began)
    }

    /// Kills it and waits at most `patience`. Returns whether it is gone.
    pub fn kill(&self, patience: Duration) -> bool {
        self.signal(Signal::KILL);
        wait_for(std::slice::from_ref(self), patience);
        !self.is_alive()
    }

    fn signal(&self, signal: Signal) {
        if self.is_alive()
            && let Some(pid) = Pid::from_raw(self.pid)
        {
            // It may just have ended.
            let _ = kill_process(pid, signal);
        }
    }
}

/// The start time of a process; `None`: there is none, or it is a zombie.
fn began(pid: i32) -> Option<u64> {
    of_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The 22nd field of `/proc/PID/stat`, unless all threads have ended. The second field, the name, may hold anything, even `)`.
fn of_stat(text: &str) -> Option<u64> {
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let threads: u64 = fields.nth(16)?.parse().ok()?;
    let began = fields.nth(1)?.parse().ok()?;
    // A killed process is a zombie once its first thread has ended; the others may hold its files and locks a little longer.
    let has_ended = matches!(state, "Z" | "X") && threads <= 1;
    (!has_ended).then_some(began)
}

/// Asks the processes to end, waits, and kills the rest. Returns those that still exist.
pub fn end(processes: &[Recorded], patience: Duration) -> Vec<Recorded> {
    for (signal, patience) in [(Signal::TERM, patience), (Signal::KILL, Duration::from_secs(5))] {
        processes.iter().for_each(|process| process.signal(signal));
        wait_for(processes, patience);
    }
    processes.iter().filter(|process| process.is_alive()).cloned().collect()
}

/// Waits at most `patience` until all of them are gone.
fn wait_for(processes: &[Recorded], patience: Duration) {
    let begun = Instant::now();
    while processes.iter().any(Recorded::is_alive) && begun.elapsed() < patience {
        std::thread::sleep(POLL);
    }
}

/// All processes in the network namespace that `file` represents.
pub fn of_namespace(file: &Path) -> Vec<Recorded> {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(wanted) = std::fs::metadata(file) else { return Vec::new() };
    let Ok(all) = std::fs::read_dir("/proc") else { return Vec::new() };
    let numbers = all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_in = |pid: &i32| {
        let found = std::fs::metadata(format!("/proc/{pid}/ns/net"));
        found.is_ok_and(|found| (found.dev(), found.ino()) == (wanted.dev(), wanted.ino()))
    };
    let name = |pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    numbers.filter(is_in).filter_map(|pid| Recorded::of(name(pid).trim(), pid)).collect()
}

/// Starts a command that keeps running, with its output in a file. It has a process group of its own, so that an interrupt at the terminal
/// does not reach it.
///
/// # Errors
/// From the kernel.
pub fn start(command: &[String], log: &Path) -> io::Result<Child> {
    use std::os::unix::process::CommandExt as _;
    let log = std::fs::OpenOptions::new().create(true).append(true).open(log)?;
    of(command)?.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0).spawn()
}

/// Runs a command to its end.
///
/// # Errors
/// From the kernel, or the output of a failed command.
pub fn run(command: &[String]) -> io::Result<()> {
    let done = of(command)?.stdin(Stdio::null()).output()?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(if done.stderr.is_empty() { &done.stdout } else { &done.stderr }).into_owned();
    let said: String = said.trim().chars().take(2000).collect();
    Err(io::Error::other(format!("`{}`: {}: {said}", command.join(" "), done.status)))
}

fn of(command: &[String]) -> io::Result<Command> {
    let (program, arguments) = command.split_first().ok_or_else(|| io::Error::other("an empty command"))?;
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", PATH).current_dir("/");
    Ok(command)
}

/// Where to look for programs: servers are in directories that only root's `PATH` has.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_number_and_start_time() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Recorded::of("sleep", i32::try_from(child.id()).unwrap()).unwrap();
        assert!(process.is_alive());
        let another = Recorded { began: process.began + 1, ..process.clone() };
        assert!(end(std::slice::from_ref(&another), Duration::ZERO).is_empty() && process.is_alive());
        // Nobody has waited for it, yet it counts as ended.
        assert!(end(std::slice::from_ref(&process), Duration::from_secs(10)).is_empty());
        assert!(!process.is_alive());
        child.wait().unwrap();
    }

    #[test]
    fn names_of_processes_may_hold_anything() {
        let rest = "1 7 7 0 -1 4194560 9 0 0 0 1 2 0 0 20 0 1 0 4242 0 0";
        assert_eq!(of_stat(&format!("7 (a) S (b) S {rest}")), Some(4242));
        assert_eq!(of_stat(&format!("7 (a) Z {rest}")), None);
        let threads = rest.replace(" 20 0 1 0 ", " 20 0 3 0 ");
        assert_eq!(of_stat(&format!("7 (a) Z {threads}")), Some(4242));
        assert_eq!(of_stat("7 (a"), None);
    }
}
