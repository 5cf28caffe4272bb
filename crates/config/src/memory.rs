//! How much memory this process may use.

use std::path::Path;

/// If nothing can be found out.
const UNKNOWN: u64 = 1 << 30;

/// The memory of the machine, or of the control group (version 2) that the process is in, whichever is less, in bytes.
pub(crate) fn usable() -> u64 {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    usable_by(&read)
}

fn usable_by(read: &dyn Fn(&Path) -> Option<String>) -> u64 {
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| total(&text)).unwrap_or(UNKNOWN);
    let group = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    // Version 2 of the control groups has one line, `0::/PATH`. Each group above limits it as well.
    let path = group.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let groups = Path::new("/sys/fs/cgroup").join(path);
    let limits = groups.ancestors().take_while(|group| group.starts_with("/sys/fs/cgroup"));
    let limits = limits.filter_map(|group| read(&group.join("memory.max"))?.trim().parse().ok());
    limits.fold(machine, u64::min)
}

/// The memory of the machine, from /proc/meminfo.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(group: &str, limits: &[(&str, &str)]) -> u64 {
        usable_by(&|path| match path.to_str()? {
            "/proc/meminfo" => Some("MemTotal:       24576 kB\nMemFree: 5 kB\n".into()),
            "/proc/self/cgroup" => Some(group.into()),
            other => limits.iter().find(|(path, _)| *path == other).map(|(_, text)| (*text).to_owned()),
        })
    }

    #[test]
    fn the_least_of_the_machine_and_its_groups_counts() {
        let (own, above) = ("/sys/fs/cgroup/a/b/memory.max", "/sys/fs/cgroup/a/memory.max");
        assert_eq!(of("0::/a/b\n", &[]), 24 << 20);
        assert_eq!(of("0::/a/b\n", &[(own, "max\n"), (above, "1048576\n")]), 1 << 20);
        assert_eq!(of("0::/a/b\n", &[(own, "524288\n"), (above, "1048576\n")]), 1 << 19);
        assert_eq!(of("0::/\n", &[("/sys/fs/cgroup/memory.max", "99999999999\n")]), 24 << 20);
        assert_eq!(usable_by(&|_| None), UNKNOWN);
        assert!(usable() > 1 << 20);
    }
}
