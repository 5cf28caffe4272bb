//! The user's commands that break or restore something at a given moment of a phase. They run as given, without a
//! shell.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// How long a command may run after the phase has ended.
const PATIENCE: Duration = Duration::from_secs(30);

/// A command, and when it runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fault {
    /// Its name in results.
    pub what: String,
    /// Seconds after the start.
    pub at_s: u32,
    /// The program and its arguments.
    pub command: Vec<String>,
}

/// The record of a command.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FaultRecord {
    /// Its name.
    pub what: String,
    /// When it started, in seconds after the start of the phase.
    pub at_s: f64,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// What went wrong, if anything.
    pub error: Option<String>,
}

/// A user's command, without input and with its output dropped; `None` if it has no words.
pub(crate) fn quiet_command(words: &[String]) -> Option<Command> {
    let (program, arguments) = words.split_first()?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
    Some(command)
}

/// The faults of a phase under way.
#[derive(Debug, Default)]
pub struct Faults {
    due: Vec<Fault>,
    running: Vec<(usize, Child)>,
    records: Vec<FaultRecord>,
}

impl Faults {
    /// Takes the faults of a phase that begins.
    #[must_use]
    pub fn new(faults: &[Fault]) -> Self {
        let mut due = faults.to_vec();
        // The next one is the last of the list.
        due.sort_by_key(|fault| std::cmp::Reverse(fault.at_s));
        Self { due, ..Self::default() }
    }

    /// Starts all commands that are due. The caller calls this once a second.
    pub fn tick(&mut self, elapsed: Duration) {
        while self.due.last().is_some_and(|fault| elapsed >= Duration::from_secs(u64::from(fault.at_s))) {
            if let Some(fault) = self.due.pop() {
                self.begin(fault, elapsed);
            }
        }
    }

    fn begin(&mut self, fault: Fault, elapsed: Duration) {
        let error = match quiet_command(&fault.command) {
            None => Some("an empty command".to_owned()),
            Some(mut command) => match command.spawn() {
                Ok(child) => {
                    self.running.push((self.records.len(), child));
                    None
                }
                Err(error) => Some(format!("cannot run {}: {error}", command.get_program().display())),
            },
        };
        let at_s = elapsed.as_secs_f64();
        self.records.push(FaultRecord { what: fault.what, at_s, command: fault.command, error });
    }

    /// After the phase: waits for running commands, and kills them after a while. Returns all records; commands
    /// that were not started have an error.
    #[must_use]
    pub fn end(mut self) -> Vec<FaultRecord> {
        let until = Instant::now() + PATIENCE;
        for (place, mut child) in self.running {
            let error = loop {
                match child.try_wait() {
                    Ok(Some(status)) if status.success() => break None,
                    Ok(Some(status)) => break Some(status.to_string()),
                    Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
                    Ok(None) => {
                        // It is our own child, so no other process can be hit.
                        let _ = child.kill();
                        let _ = child.wait();
                        break Some(format!("did not end within {} s, and was killed", PATIENCE.as_secs()));
                    }
                    Err(error) => break Some(error.to_string()),
                }
            };
            if let Some(record) = self.records.get_mut(place) {
                record.error = error;
            }
        }
        let error = Some("was not run, because the phase had ended before".to_owned());
        let missed = self.due.into_iter().rev().map(|fault| FaultRecord {
            what: fault.what,
            at_s: f64::from(fault.at_s),
            command: fault.command,
            error: error.clone(),
        });
        self.records.extend(missed);
        self.records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(at_s: u32, command: &[&str]) -> Fault {
        Fault { what: "fail".into(), at_s, command: command.iter().map(|&word| word.to_owned()).collect() }
    }

    #[test]
    fn commands_run_when_they_are_due_and_errors_are_recorded() {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let made = folder.path().join("made");
        let touch = made.to_string_lossy();
        let all = [fault(3, &["false"]), fault(1, &["touch", &touch]), fault(2, &["/no/such"]), fault(9, &["true"])];
        let mut faults = Faults::new(&all);
        faults.tick(Duration::from_millis(500));
        assert!(faults.records.is_empty());
        for second in 1..=4 {
            faults.tick(Duration::from_secs(second));
        }
        let records = faults.end();
        let errors: Vec<Option<&str>> = records.iter().map(|record| record.error.as_deref()).collect();
        assert!(made.exists() && errors[0].is_none(), "{records:?}");
        assert!(errors[1].is_some_and(|error| error.contains("/no/such")));
        assert!(errors[2].is_some_and(|error| error.contains('1')));
        assert!(errors[3].is_some_and(|error| error.contains("not run")));
    }
}
