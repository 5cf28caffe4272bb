//! Reads this machine's counters repeatedly, with those of processes by name.

use std::path::Path;
use std::time::Instant;

use super::{Counters, Sample};
use crate::measure::ticks;

/// Observes this machine. See the module.
#[derive(Debug)]
pub struct Observer {
    processes: Vec<String>,
    last: Counters,
}

impl Observer {
    /// Starts now, with the CPU time of the processes with these names.
    #[must_use]
    pub fn new(processes: Vec<String>) -> Self {
        let last = look(&processes);
        Self { processes, last }
    }

    /// Returns the activity since the last call.
    pub fn sample(&mut self) -> Sample {
        let now = look(&self.processes);
        let sample = Sample::between(&self.last, &now, ticks());
        self.last = now;
        sample
    }
}

fn look(processes: &[String]) -> Counters {
    let proc = Path::new("/proc");
    let ids = if processes.is_empty() { Vec::new() } else { ids_of(proc, processes) };
    Counters::read(proc, Path::new("/sys"), &ids, Instant::now())
}

/// Returns the ids of the processes with these names (`/proc/PID/comm`: the first 15 bytes). Processes of a bench
/// are left out: they are neither servers nor mounts, although they may have the same name.
fn ids_of(proc: &Path, names: &[String]) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(proc) else { return Vec::new() };
    let is_meant =
        |comm: &str| names.iter().any(|name| name.as_bytes().get(..15).unwrap_or(name.as_bytes()) == comm.as_bytes());
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let id: u32 = entry.file_name().to_str()?.parse().ok()?;
            let comm = std::fs::read_to_string(entry.path().join("comm")).ok()?;
            let is_bench = || {
                let arguments = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                arguments.split(|byte| *byte == 0).nth(1) == Some(b"bench")
            };
            (is_meant(comm.trim_end()) && !is_bench()).then_some(id)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_found_by_name_without_those_of_a_bench() {
        let proc = tempfile::tempdir().unwrap();
        let process = |id: &str, comm: &str, arguments: &str| {
            let folder = proc.path().join(id);
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("comm"), format!("{comm}\n")).unwrap();
            std::fs::write(folder.join("cmdline"), arguments).unwrap();
        };
        process("10", "weir", "/usr/bin/weir\0serve\0");
        process("11", "weir", "/usr/bin/weir\0bench\0run\0");
        process("12", "a-very-long-nam", "a-very-long-name\0");
        process("13", "other", "other\0");
        std::fs::create_dir(proc.path().join("self")).unwrap();
        let ids = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let mut ids = ids_of(proc.path(), &names);
            ids.sort_unstable();
            ids
        };
        assert_eq!(ids(&["weir"]), [10]);
        assert_eq!(ids(&["weir", "a-very-long-name"]), [10, 12]);
        assert_eq!(ids(&["none"]), Vec::<u32>::new());
        assert_eq!(ids(&["we"]), Vec::<u32>::new());
    }

    #[test]
    fn this_machine_is_observed() {
        let mut observer = Observer::new(Vec::new());
        std::thread::sleep(std::time::Duration::from_millis(50));
        let sample = observer.sample();
        assert!(sample.processors > 0 && sample.seconds >= 0.05 && sample.processes.is_empty(), "{sample:?}");
    }
}
