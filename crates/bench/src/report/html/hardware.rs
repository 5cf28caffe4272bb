//! The machines of a run, at the top of the page: a column for those with the same task.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Page;
use super::escape::escape;
use crate::result::{MachineSettings, known_settings};
use crate::sampling::{MOUNT, Settings};

/// The most columns, the most different values in a field, and the most devices and mounts of a machine.
const GROUPS_MAX: usize = 12;
const VALUES_MAX: usize = 3;
const DEVICES_MAX: usize = 8;

/// Machines with the same task.
struct Group<'a> {
    title: String,
    machines: Vec<&'a Settings>,
}

/// A property of a machine by its settings; `None`: they do not show it.
type Property = fn(&Settings) -> Option<String>;

/// The properties, and how a machine's settings show them.
const FIELDS: [(&str, Property); 9] = [
    ("hardware", hardware),
    ("processor", |settings| settings.get("cpu model").cloned()),
    ("processors", processors),
    ("memory", |settings| settings.get("memory").cloned()),
    ("kernel", |settings| settings.get("kernel").cloned()),
    ("firmware", firmware),
    ("network", interfaces),
    ("disks", disks),
    ("file systems", mounts),
];

/// Adds the table. Machines that do not show a property have an empty field.
pub(super) fn put(out: &mut String, page: &Page<'_>) {
    let known = known_settings(page.head, page.trials);
    let groups = groups(known.values());
    if groups.iter().all(|group| group.machines.iter().all(|settings| settings.is_empty())) {
        return;
    }
    out.push_str("<h2 id=\"machines\">Machines</h2><div class=\"wide\"><table class=\"machines\"><thead><tr><th></th>");
    for group in groups.iter().take(GROUPS_MAX) {
        let _ = write!(out, "<th>{}</th>", escape(&group.title));
    }
    out.push_str("</tr></thead><tbody>");
    for (name, of) in FIELDS {
        let values: Vec<String> = groups.iter().take(GROUPS_MAX).map(|group| values(group, of)).collect();
        if values.iter().all(String::is_empty) {
            continue;
        }
        let _ = write!(out, "<tr><th>{name}</th>");
        values.iter().for_each(|value| _ = write!(out, "<td>{}</td>", escape(value)));
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
    if groups.len() > GROUPS_MAX {
        let _ = write!(out, "<p class=\"soft\">{} more are in trials.jsonl.</p>", groups.len() - GROUPS_MAX);
    }
}

/// Groups the machines by task. The one that keeps the records comes first, then agents, then servers.
fn groups<'a>(machines: impl Iterator<Item = &'a MachineSettings>) -> Vec<Group<'a>> {
    let mut all: BTreeMap<(bool, Option<&str>), Vec<&Settings>> = BTreeMap::new();
    for machine in machines {
        all.entry((!machine.name.is_empty(), machine.system.as_deref())).or_default().push(&machine.settings);
    }
    let title = |(is_other, system): (bool, Option<&str>), count: usize| match (is_other, system) {
        (false, _) => "this machine".to_owned(),
        (true, None) => format!("agents ({count})"),
        (true, Some(system)) => format!("servers of {system} ({count})"),
    };
    all.into_iter().map(|(key, machines)| Group { title: title(key, machines.len()), machines }).collect()
}

/// Returns the value of a field; if machines differ, each value with the number of its machines.
fn values(group: &Group<'_>, of: Property) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    group.machines.iter().filter_map(|settings| of(settings)).for_each(|value| *counts.entry(value).or_default() += 1);
    if let (1, Some((value, count))) = (counts.len(), counts.first_key_value())
        && *count == group.machines.len()
    {
        return value.clone();
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let more = counts.len().saturating_sub(VALUES_MAX);
    let mut shown: Vec<String> =
        counts.into_iter().take(VALUES_MAX).map(|(value, count)| format!("{value} ({count})")).collect();
    shown.extend((more > 0).then(|| format!("{more} other values")));
    shown.join("; ")
}

/// Returns the values of some settings, without repeating words: `Dell PowerEdge`.
fn joined(settings: &Settings, names: &[&str]) -> Option<String> {
    let mut words: Vec<&str> = Vec::new();
    for value in names.iter().filter_map(|name| settings.get(*name)) {
        if !words.contains(&value.as_str()) {
            words.push(value);
        }
    }
    (!words.is_empty()).then(|| words.join(" "))
}

fn hardware(settings: &Settings) -> Option<String> {
    joined(settings, &["product vendor", "product"])
}

fn firmware(settings: &Settings) -> Option<String> {
    joined(settings, &["bios vendor", "bios version", "bios date"])
}

/// The number of processors in a list such as `0-3,8`, with what is known of their cores and frequencies.
fn processors(settings: &Settings) -> Option<String> {
    let list = settings.get("cpu numbers")?;
    let count = |part: &str| -> Option<u64> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        last.trim().parse::<u64>().ok()?.checked_sub(first.trim().parse().ok()?)?.checked_add(1)
    };
    let count = list.split(',').map(count).try_fold(0, |sum: u64, count| sum.checked_add(count?))?;
    let mut text = count.to_string();
    if settings.get("cpu threads of a core in use").is_some_and(|value| value == "1") {
        text.push_str(", several threads of a core");
    }
    if let Some(governor) = settings.get("cpu scaling governor") {
        let _ = write!(text, ", governor {governor}");
    }
    Some(text)
}

/// Returns the settings of each device of a kind, by its name. Names of devices have no spaces.
fn devices<'a>(settings: &'a Settings, kind: &str) -> BTreeMap<&'a str, BTreeMap<&'a str, &'a str>> {
    let mut all: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
    for (key, value) in settings {
        let rest = key.strip_prefix(kind).and_then(|rest| rest.strip_prefix(' '));
        if let Some((device, name)) = rest.and_then(|rest| rest.split_once(' ')) {
            all.entry(device).or_default().insert(name, value);
        }
    }
    all
}

fn list(mut all: Vec<String>) -> Option<String> {
    let more = all.len().saturating_sub(DEVICES_MAX);
    all.truncate(DEVICES_MAX);
    all.extend((more > 0).then(|| format!("{more} more")));
    (!all.is_empty()).then(|| all.join("; "))
}

fn interfaces(settings: &Settings) -> Option<String> {
    let one = |(name, of): (&str, BTreeMap<&str, &str>)| {
        let speed = of.get("speed").map(|speed| match speed.parse::<u32>() {
            Ok(mbit) if mbit >= 1000 && mbit % 1000 == 0 => format!(" {} Gb/s", mbit / 1000),
            _ => format!(" {speed} Mb/s"),
        });
        let driver = of.get("driver").map(|driver| format!(" ({driver})"));
        let members = of.get("bond members").map(|members| format!(" of {members}"));
        [Some(name.to_owned()), speed, driver, members].into_iter().flatten().collect::<String>()
    };
    list(devices(settings, "interface").into_iter().map(one).collect())
}

fn disks(settings: &Settings) -> Option<String> {
    let one = |(name, of): (&str, BTreeMap<&str, &str>)| {
        let model = of.get("model").map(|model| format!(" {model}"));
        let raid = of.get("raid level").map(|level| format!(" {level}"));
        let rotates = of.get("rotates").map(|rotates| if *rotates == "1" { " (rotates)" } else { " (no rotation)" });
        [Some(name.to_owned()), model, raid, rotates.map(str::to_owned)].into_iter().flatten().collect::<String>()
    };
    list(devices(settings, "disk").into_iter().map(one).collect())
}

fn mounts(settings: &Settings) -> Option<String> {
    let mounts = settings.iter().filter_map(|(key, value)| Some((key.strip_prefix(MOUNT)?, value)));
    list(mounts.map(|(name, value)| format!("{name}: {value}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str, system: Option<&str>, settings: &[(&str, &str)]) -> MachineSettings {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        MachineSettings { name: name.to_owned(), system: system.map(str::to_owned), settings }
    }

    #[test]
    fn the_properties_of_a_machine_are_short() {
        let one = machine(
            "",
            None,
            &[
                ("cpu numbers", "0-3,8"),
                ("cpu scaling governor", "performance"),
                ("product vendor", "V"),
                ("product", "P"),
                ("interface eth0 speed", "25000"),
                ("interface eth0 driver", "mlx5_core"),
                ("disk sda model", "M 1"),
                ("disk sda rotates", "1"),
                ("disk nvme0n1 rotates", "0"),
                ("mount of disk", "ext4 rw"),
            ],
        );
        let of = |name: &str| FIELDS.iter().find(|field| field.0 == name).unwrap().1(&one.settings);
        for (name, value) in [
            ("hardware", "V P"),
            ("processors", "5, governor performance"),
            ("network", "eth0 25 Gb/s (mlx5_core)"),
            ("disks", "nvme0n1 (no rotation); sda M 1 (rotates)"),
            ("file systems", "disk: ext4 rw"),
        ] {
            assert_eq!(of(name).as_deref(), Some(value));
        }
        assert_eq!(of("kernel"), None);
        for wrong in ["", "x", "3-1", "0-18446744073709551615", "1,,2"] {
            assert_eq!(processors(&machine("", None, &[("cpu numbers", wrong)]).settings), None, "{wrong}");
        }
    }

    #[test]
    fn machines_with_the_same_task_share_a_column() {
        let all = [
            machine("", None, &[("kernel", "5")]),
            machine("b", None, &[("kernel", "6")]),
            machine("c", None, &[("kernel", "7")]),
            machine("d", None, &[("kernel", "6")]),
            machine("s", Some("lustre"), &[("kernel", "4")]),
        ];
        let groups = groups(all.iter());
        let found: Vec<(String, String)> =
            groups.iter().map(|group| (group.title.clone(), values(group, FIELDS[4].1))).collect();
        let expected = [("this machine", "5"), ("agents (3)", "6 (2); 7 (1)"), ("servers of lustre (1)", "4")];
        assert_eq!(found, expected.map(|(title, value)| (title.to_owned(), value.to_owned())));
    }
}
