//! A process that outlives the command that started it. A file identifies it, so that a later process with the same number is not mistaken
//! for it.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

const STEP: Duration = Duration::from_millis(5);
const FILE_MAX: u64 = 4096;

/// A process of this machine: its number, and its start time, which tells it from others with that number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    pid: i32,
    /// In ticks since boot.
    started: u64,
    boot: String,
}

impl Process {
    /// The current process.
    pub fn this() -> io::Result<Self> {
        let pid = i32::try_from(std::process::id()).unwrap_or(0);
        let (_, started) = stat(pid)?.ok_or_else(|| io::Error::other("/proc does not show this process"))?;
        Ok(Self { pid, started, boot: boot()? })
    }

    /// Reads a file; `None`: it is missing or cannot be parsed.
    pub fn read(path: &Path) -> Option<Self> {
        let mut text = String::new();
        fs::File::open(path).ok()?.take(FILE_MAX).read_to_string(&mut text).ok()?;
        let mut words = text.split_whitespace();
        let pid = words.next()?.parse().ok().filter(|pid| *pid > 0)?;
        Some(Self { pid, started: words.next()?.parse().ok()?, boot: words.next()?.to_owned() })
    }

    /// Replaces the file atomically.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let new = path.with_extension("new");
        let mut file = fs::File::create(&new)?;
        writeln!(file, "{} {} {}", self.pid, self.started, self.boot)?;
        fs::rename(&new, path)
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether it is still running. A zombie counts as ended.
    pub fn is_running(&self) -> bool {
        let is_it = |(state, started)| started == self.started && !matches!(state, 'Z' | 'X');
        boot().is_ok_and(|boot| boot == self.boot) && stat(self.pid).ok().flatten().is_some_and(is_it)
    }

    /// Sends a signal if it is still running. Returns whether it was.
    pub fn signal(&self, signal: Signal) -> io::Result<bool> {
        let Some(pid) = Pid::from_raw(self.pid).filter(|_| self.is_running()) else { return Ok(false) };
        match rustix::process::kill_process(pid, signal) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The processes that it has started and that are running.
    pub fn children(&self) -> Vec<Self> {
        let text = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.pid)).unwrap_or_default();
        let of = |pid: i32| Some(Self { pid, started: stat(pid).ok().flatten()?.1, boot: self.boot.clone() });
        text.split_whitespace().filter_map(|word| of(word.parse().ok()?)).collect()
    }

    /// Waits at most `patience` until it has ended. Returns whether it has.
    pub fn wait(&self, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        while self.is_running() {
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(STEP);
        }
        true
    }
}

fn boot() -> io::Result<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|text| text.trim().to_owned())
}

/// The state and start time of a process; `None`: there is no such process.
fn stat(pid: i32) -> io::Result<Option<(char, u64)>> {
    let text = match fs::read(format!("/proc/{pid}/stat")) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // It ended while we read (ESRCH).
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(parse_stat(&String::from_utf8_lossy(&text)))
}

/// proc(5): the name, in parentheses, may hold anything. The state is the third field, the start time the 22nd.
fn parse_stat(text: &str) -> Option<(char, u64)> {
    let (_, rest) = text.rsplit_once(')')?;
    let mut words = rest.split_whitespace();
    let state = words.next()?.chars().next()?;
    Some((state, words.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn of_child(pid: u32) -> Process {
        let pid = i32::try_from(pid).unwrap();
        Process { pid, started: stat(pid).unwrap().unwrap().1, boot: boot().unwrap() }
    }

    #[test]
    fn a_name_with_parentheses_misleads_nobody() {
        let stat = "7 (a) Z 1 2) S 1 7 7 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 12345 99 1\n";
        assert_eq!(parse_stat(stat), Some(('S', 12_345)));
        for text in ["", "7", "7 (a)", "7 (a) S 1 2"] {
            assert_eq!(parse_stat(text), None, "{text}");
        }
    }

    #[test]
    fn a_process_is_found_by_its_file_until_it_ends() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("pid");
        assert_eq!(Process::read(&file), None);
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        of_child(child.id()).write(&file).unwrap();
        let found = Process::read(&file).unwrap();
        assert!(found.is_running() && !found.wait(Duration::from_millis(20)));
        assert!(found.signal(Signal::KILL).unwrap());
        // Its parent has not waited for it: it is a zombie.
        assert!(found.wait(Duration::from_secs(10)));
        assert!(!found.signal(Signal::KILL).unwrap());
        child.wait().unwrap();
        assert!(!found.is_running());
    }

    #[test]
    fn another_process_with_the_same_number_is_left_alone() {
        let this = Process::this().unwrap();
        assert!(this.is_running());
        for other in
            [Process { started: this.started + 1, ..this.clone() }, Process { boot: "another".into(), ..this.clone() }]
        {
            assert!(!other.is_running());
            // A signal would end the test.
            assert!(!other.signal(Signal::KILL).unwrap());
        }
    }

    #[test]
    fn children_are_found() {
        let mut child = Command::new("sh").args(["-c", "sleep 60 & sleep 60 & wait"]).spawn().unwrap();
        let of = of_child(child.id());
        let end = Instant::now() + Duration::from_secs(10);
        while of.children().len() < 2 && Instant::now() < end {
            std::thread::sleep(STEP);
        }
        let children = of.children();
        assert!(children.len() == 2 && children.iter().all(Process::is_running), "{children:?}");
        for one in children.iter().chain([&of]) {
            one.signal(Signal::KILL).unwrap();
        }
        child.wait().unwrap();
    }

    #[test]
    fn a_file_that_names_no_process_is_ignored() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("pid");
        for text in ["", "x 1 b", "-1 1 b", "0 1 b", "7", "7 1"] {
            fs::write(&file, text).unwrap();
            assert_eq!(Process::read(&file), None, "{text}");
        }
    }
}
