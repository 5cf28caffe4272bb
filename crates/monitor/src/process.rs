//! Resources of this process: memory, processor time, descriptors.

use std::io;

/// The resources at one moment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Process {
    /// User and system time of all threads, including ended ones, in seconds.
    pub cpu_seconds: f64,
    /// Resident memory, in bytes.
    pub resident_bytes: u64,
    /// Address space, in bytes.
    pub virtual_bytes: u64,
    /// Threads.
    pub threads: u64,
    /// Open file descriptors.
    pub open_fds: usize,
    /// The limit of file descriptors.
    pub max_fds: Option<u64>,
}

impl Process {
    /// Reads the resources.
    pub fn look() -> io::Result<Self> {
        let open_fds = std::fs::read_dir("/proc/self/fd")?.count();
        let max_fds = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        Self::parse(&std::fs::read_to_string("/proc/self/stat")?)
            .map(|process| Self { open_fds, max_fds, ..process })
            .ok_or_else(|| io::Error::other("/proc/self/stat does not read as proc(5) says"))
    }

    /// Parses the line of proc_pid_stat(5).
    #[allow(clippy::cast_precision_loss)] // clock ticks of a process
    fn parse(stat: &str) -> Option<Self> {
        // The name in parentheses may hold anything. The first field behind it is the state, the third of the line.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
        let mut field = || fields.next()?.parse::<u64>().ok();
        let (user, system) = (field()?, field()?);
        let threads = {
            field()?; // cutime
            field()?; // cstime
            fields.nth(2)?.parse().ok()? // after priority and nice, which may be negative
        };
        let virtual_bytes = fields.nth(2)?.parse().ok()?;
        let resident_pages: u64 = fields.next()?.parse().ok()?;
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let page = rustix::param::page_size() as u64;
        Some(Self {
            cpu_seconds: (user + system) as f64 / ticks,
            resident_bytes: resident_pages.saturating_mul(page),
            virtual_bytes,
            threads,
            open_fds: 0,
            max_fds: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_those_of_proc() {
        // (utime, stime: 14, 15; threads: 20; vsize, rss: 23, 24)
        let stat =
            "4 (a) b) S 1 4 4 0 -1 4194560 100 0 0 0 250 50 9 9 -20 -1 17 0 1234 1048576 10 18446744073709551615 1 1";
        let process = Process::parse(stat).unwrap();
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!(process.cpu_seconds, 300.0 / ticks);
        assert_eq!((process.threads, process.virtual_bytes), (17, 1 << 20));
        assert_eq!(process.resident_bytes, 10 * rustix::param::page_size() as u64);
        assert_eq!(Process::parse("4 (a) S 1"), None);
    }

    #[test]
    fn this_process_has_memory_and_threads() {
        let process = Process::look().unwrap();
        assert!(process.resident_bytes > 1 << 20 && process.virtual_bytes > process.resident_bytes);
        assert!(process.threads >= 1 && process.open_fds >= 3, "{process:?}");
    }
}
