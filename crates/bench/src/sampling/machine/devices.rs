//! Settings of interfaces, disks and mounts.

use std::collections::BTreeSet;
use std::path::Path;

use super::{DEVICES_MAX, MOUNT, SettingsCollector, chosen, names_in, text};

/// Mount options that identify a machine or a person.
const OPTIONS_LEFT_OUT: [&str; 12] = [
    "addr",
    "clientaddr",
    "mountaddr",
    "mon_addr",
    "username",
    "user",
    "password",
    "pass",
    "secret",
    "credentials",
    "domain",
    "fsid",
];

impl SettingsCollector<'_> {
    /// Adds the interfaces of hardware, and bonds of them.
    pub(super) fn interfaces(&mut self) {
        for name in names_in(&self.at("sys/class/net")).into_iter().take(DEVICES_MAX) {
            let at = format!("sys/class/net/{name}");
            let is_bond = self.at(&format!("{at}/bonding")).exists();
            if !is_bond && !self.at(&format!("{at}/device")).exists() {
                continue;
            }
            for file in ["mtu", "speed", "duplex", "tx_queue_len"] {
                let value = text(&self.at(&format!("{at}/{file}"))).filter(|value| value.trim() != "-1");
                self.put(format!("interface {name} {}", file.replace('_', " ")), value);
            }
            let driver = std::fs::read_link(self.at(&format!("{at}/device/driver"))).ok();
            self.put(
                format!("interface {name} driver"),
                driver.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned())),
            );
            self.put_file(format!("interface {name} numa node"), &format!("{at}/device/numa_node"));
            for (way, start) in [("receive", "rx-"), ("send", "tx-")] {
                let queues =
                    names_in(&self.at(&format!("{at}/queues"))).iter().filter(|queue| queue.starts_with(start)).count();
                self.put(format!("interface {name} {way} queues"), (queues > 0).then(|| queues.to_string()));
            }
            self.put(format!("interface {name} interrupts on processors"), self.interrupts_of(&at));
            for (what, file) in [
                ("mode", "mode"),
                ("hash policy", "xmit_hash_policy"),
                ("LACP rate", "lacp_rate"),
                ("members", "slaves"),
            ] {
                if is_bond {
                    self.put_file(format!("interface {name} bond {what}"), &format!("{at}/bonding/{file}"));
                }
            }
        }
    }

    /// Returns the processors that handle the interrupts of an interface.
    fn interrupts_of(&self, interface: &str) -> Option<String> {
        let irqs = names_in(&self.at(&format!("{interface}/device/msi_irqs")));
        let list = |irq: &String| {
            text(&self.at(&format!("proc/irq/{irq}/smp_affinity_list"))).map(|text| text.trim().to_owned())
        };
        let lists: BTreeSet<String> = irqs.iter().filter_map(list).collect();
        (!lists.is_empty()).then(|| lists.into_iter().collect::<Vec<_>>().join(" "))
    }

    pub(super) fn disks(&mut self) {
        let no_disk = |name: &String| ["loop", "ram", "zram", "sr", "fd"].iter().any(|start| name.starts_with(start));
        let mut names = names_in(&self.at("sys/block"));
        names.retain(|name| !no_disk(name));
        // There may be many more volumes than disks below them.
        names.sort_by_key(|name| name.starts_with("dm-"));
        for name in names.into_iter().take(DEVICES_MAX) {
            let at = format!("sys/block/{name}");
            let scheduler = text(&self.at(&format!("{at}/queue/scheduler"))).map(|text| chosen(&text).unwrap_or(text));
            self.put(format!("disk {name} scheduler"), scheduler);
            for (what, file) in [
                ("read-ahead KiB", "queue/read_ahead_kb"),
                ("rotates", "queue/rotational"),
                ("requests", "queue/nr_requests"),
                ("largest request KiB", "queue/max_sectors_kb"),
                ("write cache", "queue/write_cache"),
                ("model", "device/model"),
                ("firmware", "device/firmware_rev"),
                ("raid level", "md/level"),
                ("raid chunk", "md/chunk_size"),
                ("raid disks", "md/raid_disks"),
                ("raid stripe cache", "md/stripe_cache_size"),
            ] {
                self.put_file(format!("disk {name} {what}"), &format!("{at}/{file}"));
            }
        }
    }

    pub(super) fn mount(&mut self, name: &str, place: &Path) {
        let place = std::fs::canonicalize(place).unwrap_or_else(|_| place.to_owned());
        let mounts = text(&self.at("proc/self/mountinfo")).unwrap_or_default();
        self.put(format!("{MOUNT}{name}"), mount_of(&mounts, &place));
    }
}

/// Returns the file system and options of the mount of a path, without options that identify a machine or a person
/// (`/proc/self/mountinfo`, proc(5)).
fn mount_of(mounts: &str, place: &Path) -> Option<String> {
    let found = mounts.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(4);
        let (point, options) = (before.next()?.replace("\\040", " "), before.next()?);
        let mut after = after.split(' ');
        let (kind, more) = (after.next()?, after.nth(1).unwrap_or_default());
        place.starts_with(&point).then(|| (Path::new(&point).components().count(), kind, options, more))
    });
    // Of two mounts on the same path, the later one is visible.
    let (_, kind, options, more) = found.max_by_key(|mount| mount.0)?;
    let allowed = |option: &&str| !OPTIONS_LEFT_OUT.contains(&option.split('=').next().unwrap_or_default());
    let mut all: Vec<&str> =
        options.split(',').chain(more.split(',')).filter(|option| !option.is_empty()).filter(allowed).collect();
    let mut seen = BTreeSet::new();
    all.retain(|option| seen.insert(*option));
    Some(format!("{kind} {}", all.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_reported_without_addresses() {
        let mounts = "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,errors=remount-ro\n\
                      30 22 0:30 / /mnt/a\\040b rw,noatime - nfs4 10.0.0.7:/x rw,vers=4.2,rsize=1048576,addr=10.0.0.7,clientaddr=10.0.0.8\n";
        assert_eq!(mount_of(mounts, Path::new("/mnt/a b/c")).unwrap(), "nfs4 rw,noatime,vers=4.2,rsize=1048576");
        assert_eq!(mount_of(mounts, Path::new("/mnt/other")).unwrap(), "ext4 rw,relatime,errors=remount-ro");
        assert_eq!(mount_of("nonsense\n - \n", Path::new("/x")), None);
    }
}
