//! A machine's settings, which may explain why it is faster than another. They contain nothing that identifies the
//! machine: no serial numbers, no UUIDs, no addresses, no keys. Settings that a machine does not show are missing.

mod devices;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::ethtool;

/// Names of settings and their values.
pub type Settings = BTreeMap<String, String>;

/// The prefix of settings about mounts. They cover only the directories that a machine uses.
pub(crate) const MOUNT: &str = "mount of ";

/// The most bytes that are read from a file.
const FILE_MAX: u64 = 256 << 10;
/// The most characters of a value.
const VALUE_MAX: usize = 300;
/// The most interfaces, and the most disks.
const DEVICES_MAX: usize = 64;
/// The most names that are read from a folder.
const NAMES_MAX: usize = 4096;
/// The most processors whose settings are compared.
const PROCESSORS_MAX: u32 = 4096;

/// The kernel parameters.
const SYSCTLS: [&str; 31] = [
    "kernel.numa_balancing",
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.default_qdisc",
    "net.core.netdev_budget",
    "net.core.netdev_max_backlog",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.rps_sock_flow_entries",
    "net.core.somaxconn",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
    "vm.dirty_background_bytes",
    "vm.dirty_background_ratio",
    "vm.dirty_bytes",
    "vm.dirty_expire_centisecs",
    "vm.dirty_ratio",
    "vm.min_free_kbytes",
    "vm.swappiness",
    "vm.vfs_cache_pressure",
    "vm.zone_reclaim_mode",
];

/// Words of the kernel's command line that affect speed, by their beginning. Other words may contain anything,
/// including addresses and keys.
const COMMAND_LINE: [&str; 28] = [
    "amd_iommu",
    "amd_pstate",
    "clocksource",
    "cpufreq",
    "cpuidle",
    "default_hugepagesz",
    "elevator",
    "hugepages",
    "idle=",
    "intel_idle",
    "intel_iommu",
    "intel_pstate",
    "iommu",
    "irqaffinity",
    "isolcpus",
    "mitigations",
    "nmi_watchdog",
    "nohz",
    "nosmt",
    "numa",
    "nvme",
    "pcie_aspm",
    "preempt",
    "processor.",
    "rcu_nocb",
    "threadirqs",
    "transparent_hugepage",
    "tsc",
];

/// Returns the settings of this machine, and the mounts of `places` (names, and directories on it).
#[must_use]
pub fn machine_settings(places: &[(&str, &Path)]) -> Settings {
    let mut found = settings_below(Path::new("/"), places);
    for name in found
        .keys()
        .filter_map(|key| key.strip_prefix("interface ")?.strip_suffix(" mtu").map(str::to_owned))
        .collect::<Vec<_>>()
    {
        found.extend(
            ethtool::offloads(&name).into_iter().map(|(key, value)| (format!("interface {name} {key}"), value)),
        );
    }
    found
}

/// Returns the bytes of memory of this machine; 0: unknown.
#[must_use]
pub fn memory_bytes() -> u64 {
    text(Path::new("/proc/meminfo")).map_or(0, |text| memory_of(&text))
}

fn memory_of(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or_default();
    line.split_ascii_whitespace()
        .next()
        .and_then(|kib| kib.parse::<u64>().ok())
        .map_or(0, |kib| kib.saturating_mul(1024))
}

/// Returns the settings of a machine whose files are below `root`.
fn settings_below(root: &Path, places: &[(&str, &Path)]) -> Settings {
    let mut found = SettingsCollector { root, settings: Settings::new() };
    found.processors();
    found.memory();
    found.firmware();
    found.kernel();
    found.interfaces();
    found.disks();
    for (name, place) in places {
        found.mount(name, place);
    }
    found.settings
}

struct SettingsCollector<'a> {
    root: &'a Path,
    settings: Settings,
}

impl SettingsCollector<'_> {
    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn put(&mut self, name: impl Into<String>, value: Option<String>) {
        let cleaned = value.map(|value| value.split_whitespace().collect::<Vec<_>>().join(" "));
        if let Some(value) = cleaned.filter(|value| !value.is_empty()) {
            self.settings.insert(name.into(), value.chars().filter(|c| !c.is_control()).take(VALUE_MAX).collect());
        }
    }

    /// Adds the contents of a small file.
    fn put_file(&mut self, name: impl Into<String>, path: &str) {
        let value = text(&self.at(path));
        self.put(name, value);
    }

    fn processors(&mut self) {
        let cpuinfo = text(&self.at("proc/cpuinfo")).unwrap_or_default();
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
            Some(line.split_once(':')?.1.to_owned())
        };
        self.put("cpu model", field("model name"));
        self.put("cpu microcode", field("microcode"));
        for (name, path) in [
            ("cpu numbers", "online"),
            ("cpu threads of a core in use", "smt/active"),
            ("cpu frequency boost", "cpufreq/boost"),
            ("cpu turbo is off", "intel_pstate/no_turbo"),
            ("cpu idle driver", "cpuidle/current_driver"),
            ("cpu idle governor", "cpuidle/current_governor"),
        ] {
            self.put_file(name, &format!("sys/devices/system/cpu/{path}"));
        }
        self.put_file("numa nodes", "sys/devices/system/node/online");
        for name in [
            "scaling_driver",
            "scaling_governor",
            "scaling_min_freq",
            "scaling_max_freq",
            "energy_performance_preference",
        ] {
            let value = self.of_all_processors(&format!("cpufreq/{name}"));
            self.put(format!("cpu {}", name.replace('_', " ")), value);
        }
        self.put("cpu idle states", self.idle_states());
    }

    /// Returns the value of all processors, or the number of processors with each value.
    fn of_all_processors(&self, file: &str) -> Option<String> {
        let mut values = BTreeMap::<String, u32>::new();
        for number in 0..PROCESSORS_MAX {
            let folder = self.at(&format!("sys/devices/system/cpu/cpu{number}"));
            if !folder.exists() {
                break;
            }
            if let Some(value) = text(&folder.join(file)) {
                *values.entry(value.trim().to_owned()).or_default() += 1;
            }
        }
        match values.len() {
            0 | 1 => values.into_keys().next(),
            _ => Some(
                values
                    .into_iter()
                    .map(|(value, count)| format!("{value} ({count} processors)"))
                    .collect::<Vec<_>>()
                    .join(", "),
            ),
        }
    }

    /// Returns the names of the first processor's idle states, from the lightest on.
    fn idle_states(&self) -> Option<String> {
        let state = |number: u32| {
            let folder = self.at(&format!("sys/devices/system/cpu/cpu0/cpuidle/state{number}"));
            let name = text(&folder.join("name"))?;
            let off = text(&folder.join("disable")).is_some_and(|text| text.trim() != "0");
            Some(format!("{}{}", name.trim(), if off { " (off)" } else { "" }))
        };
        let states: Vec<String> = (0..16).map_while(state).collect();
        (!states.is_empty()).then(|| states.join(", "))
    }

    fn memory(&mut self) {
        let bytes = text(&self.at("proc/meminfo")).map_or(0, |text| memory_of(&text));
        self.put("memory", (bytes > 0).then(|| types::units::show_size(bytes)));
        let huge = text(&self.at("sys/kernel/mm/transparent_hugepage/enabled")).and_then(|text| chosen(&text));
        self.put("transparent huge pages", huge);
    }

    fn firmware(&mut self) {
        for (name, file) in [
            ("bios vendor", "bios_vendor"),
            ("bios version", "bios_version"),
            ("bios date", "bios_date"),
            ("bios release", "bios_release"),
            ("controller firmware release", "ec_firmware_release"),
            ("board", "board_name"),
            ("product", "product_name"),
            ("product vendor", "sys_vendor"),
        ] {
            self.put_file(name, &format!("sys/class/dmi/id/{file}"));
        }
    }

    fn kernel(&mut self) {
        self.put_file("kernel", "proc/sys/kernel/osrelease");
        let line = text(&self.at("proc/cmdline")).unwrap_or_default();
        let of_speed = |word: &&str| COMMAND_LINE.iter().any(|start| word.starts_with(start));
        self.put(
            "kernel command line, as to speed",
            Some(line.split_whitespace().filter(of_speed).collect::<Vec<_>>().join(" ")),
        );
        for name in SYSCTLS {
            self.put_file(format!("sysctl {name}"), &format!("proc/sys/{}", name.replace('.', "/")));
        }
    }
}

/// Returns the selected word of a list such as `[none] mq-deadline`.
fn chosen(text: &str) -> Option<String> {
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

/// Returns the start of a file as text; `None` if it does not exist.
fn text(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(FILE_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the sorted names in a folder. If there are very many, it returns some.
fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().take(NAMES_MAX);
    let names: BTreeSet<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes the files of a machine.
    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn settings_are_found_where_the_kernel_shows_them() {
        let root = machine(&[
            ("proc/cpuinfo", "processor : 0\nmodel name\t: Some  CPU\nmicrocode\t: 0x1\n"),
            ("proc/meminfo", "MemTotal:  2097152 kB\n"),
            (
                "proc/cmdline",
                "BOOT_IMAGE=/x root=UUID=12345678-1234-1234-1234-123456789abc ip=10.1.2.3 mitigations=off nohz_full=1-3\n",
            ),
            ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
            ("sys/class/dmi/id/bios_version", "1.2\n"),
            ("sys/class/dmi/id/product_serial", "SECRET\n"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n"),
            ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/name", "POLL\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/name", "C6\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/disable", "1\n"),
            ("sys/class/net/eth0/device/msi_irqs/33", "msi"),
            ("sys/class/net/eth0/mtu", "9000\n"),
            ("sys/class/net/eth0/address", "00:11:22:33:44:55\n"),
            ("sys/class/net/eth0/queues/rx-0/x", ""),
            ("sys/class/net/eth0/queues/rx-1/x", ""),
            ("sys/class/net/veth7/mtu", "1500\n"),
            ("sys/class/net/bond0/bonding/mode", "802.3ad 4\n"),
            ("sys/class/net/bond0/bonding/xmit_hash_policy", "layer3+4 1\n"),
            ("proc/irq/33/smp_affinity_list", "0-3\n"),
            ("sys/block/md0/md/level", "raid6\n"),
            ("sys/block/sda/queue/scheduler", "none [mq-deadline]\n"),
            ("sys/block/loop0/queue/scheduler", "[none]\n"),
        ]);
        let found = settings_below(root.path(), &[]);
        let right = [
            ("bios version", "1.2"),
            ("cpu idle states", "POLL, C6 (off)"),
            ("cpu microcode", "0x1"),
            ("cpu model", "Some CPU"),
            ("cpu scaling governor", "performance (1 processors), powersave (1 processors)"),
            ("disk md0 raid level", "raid6"),
            ("disk sda scheduler", "mq-deadline"),
            ("interface bond0 bond hash policy", "layer3+4 1"),
            ("interface bond0 bond mode", "802.3ad 4"),
            ("interface eth0 interrupts on processors", "0-3"),
            ("interface eth0 mtu", "9000"),
            ("interface eth0 receive queues", "2"),
            ("kernel command line, as to speed", "mitigations=off nohz_full=1-3"),
            ("memory", "2.00 GiB"),
            ("sysctl net.ipv4.tcp_rmem", "4096 131072 6291456"),
        ];
        let found: Vec<(&str, &str)> = found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(found, right);
    }

    #[test]
    fn this_machine_has_settings_and_no_addresses() {
        let found = machine_settings(&[("here", Path::new("."))]);
        assert!(found.contains_key("kernel") && found.contains_key("mount of here"), "{found:?}");
        assert!(memory_bytes() > 1 << 20);
        let is_address = |word: &str| {
            word.parse::<std::net::IpAddr>().is_ok() || word.split(':').filter(|part| part.len() == 2).count() == 6
        };
        for (name, value) in &found {
            let words = value.split(|c: char| c.is_whitespace() || c == ',' || c == '=');
            assert!(!words.clone().any(is_address), "{name}: {value}");
            assert!(value.len() <= 4 * VALUE_MAX);
        }
    }

    #[test]
    fn a_machine_that_shows_nothing_has_no_settings() {
        let root = machine(&[]);
        assert_eq!(settings_below(root.path(), &[("a", Path::new("/a"))]), Settings::new());
    }
}
