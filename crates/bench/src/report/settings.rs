//! Machine settings that may explain why an agent is slower than the others, or why figures scatter.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::difference::SettingDifference;
use super::summary::Row;
use crate::result::{KnownSettings, MachineSettings, RunHead, TrialRecord, known_settings};
use crate::sampling::{MOUNT, Settings};

/// A setting that differs among agents, or among the servers of a system.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DifferingSetting {
    /// The system whose servers these are; `None`: agents.
    pub system: Option<String>,
    /// The setting's name.
    pub name: String,
    /// Its values, the most frequent one first.
    pub values: Vec<MachinesWithValue>,
}

/// The machines with one value of a setting.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MachinesWithValue {
    /// The value; `None`: the machines do not show it.
    pub value: Option<String>,
    /// Their names.
    pub machines: Vec<String>,
}

/// A setting that changed during the run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Changed {
    /// The machine; empty: the one that keeps the records.
    pub machine: String,
    /// The setting's name.
    pub name: String,
    /// The earlier value.
    pub before: Option<String>,
    /// The later value.
    pub after: Option<String>,
    /// The first trial recorded after the change was found: its line in `trials.jsonl`, from 0.
    pub trial: usize,
}

/// A setting in which an outlier differs from most of the others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OutlierSetting {
    /// The setting's name.
    pub name: String,
    /// The outlier's value.
    pub own: Option<String>,
    /// The value of most of the others.
    pub others: Option<String>,
}

fn shown(value: Option<&String>) -> &str {
    value.map_or("not shown", String::as_str)
}

impl OutlierSetting {
    /// Returns a readable text.
    #[must_use]
    pub fn words(&self) -> String {
        format!("{} is {} instead of {}", self.name, shown(self.own.as_ref()), shown(self.others.as_ref()))
    }
}

impl Changed {
    /// Returns a readable text.
    #[must_use]
    pub fn words(&self) -> String {
        let whose = if self.machine.is_empty() { "this machine" } else { &self.machine };
        let (before, after) = (shown(self.before.as_ref()), shown(self.after.as_ref()));
        format!("{} of {whose} changed from {before} to {after}", self.name)
    }
}

/// Returns settings that differ among machines with the same task.
pub(super) fn unlike(known: &KnownSettings) -> Vec<DifferingSetting> {
    let mut found = Vec::new();
    for (system, machines) in by_system(known) {
        for name in names(&machines) {
            let mut values = having(&machines, name);
            // A machine that does not report a directory's mount does not use that directory.
            values.retain(|having| having.value.is_some() || !name.starts_with(MOUNT));
            if values.len() > 1 {
                found.push(DifferingSetting { system: system.clone(), name: name.clone(), values });
            }
        }
    }
    found
}

/// Returns settings that changed between trials.
pub(super) fn changed(head: &RunHead, trials: &[TrialRecord]) -> Vec<Changed> {
    let mut known = known_settings(head, &[]);
    let mut found = Vec::new();
    for (trial, record) in trials.iter().enumerate() {
        for machine in &record.settings {
            let Some(before) = known.insert(machine.name.clone(), machine.clone()) else { continue };
            let differ = differing(&before.settings, &machine.settings);
            found.extend(differ.into_iter().filter(is_told_by_both).map(
                |SettingDifference { name, first, second }| Changed {
                    machine: machine.name.clone(),
                    name,
                    before: first,
                    after: second,
                    trial,
                },
            ));
        }
    }
    found
}

/// Adds to each outlier the settings in which it differs from the other agents of its group.
pub(super) fn put<'a>(rows: impl Iterator<Item = &'a mut Row>, trials: &[TrialRecord], known: &KnownSettings) {
    for cell in rows.flat_map(|row| &mut row.cells).filter(|cell| !cell.outliers.is_empty()) {
        let phases = cell.sources.iter().filter_map(|source| trials.get(source.trial)?.phases.get(source.phase));
        let mut beside: BTreeSet<&str> =
            phases.flat_map(|phase| &phase.machines.agents).map(|agent| agent.name.as_str()).collect();
        cell.outliers.iter().for_each(|outlier| {
            beside.remove(outlier.agent.as_str());
        });
        let beside: Vec<&MachineSettings> = beside.into_iter().filter_map(|name| known.get(name)).collect();
        let usual = usual(&beside);
        for outlier in &mut cell.outliers {
            let Some(own) = known.get(&outlier.agent).filter(|_| !beside.is_empty()) else { continue };
            let apart = differing(&usual, &own.settings).into_iter().filter(is_told_by_both);
            outlier.apart = apart
                .map(|SettingDifference { name, first, second }| OutlierSetting { name, own: second, others: first })
                .collect();
        }
    }
}

/// Returns the settings by which two runs are compared: those of the machine that keeps the records, and those of
/// most agents and of most servers of each system.
#[must_use]
pub fn settings_of_run(head: &RunHead, trials: &[TrialRecord]) -> Settings {
    let mut all = head.machine.clone();
    for (system, machines) in by_system(&known_settings(head, trials)) {
        let whose = system.map_or("agents".to_owned(), |system| format!("servers of {system}"));
        all.extend(usual(&machines).into_iter().map(|(name, value)| (format!("{whose}: {name}"), value)));
    }
    all
}

/// Returns the settings that differ.
pub(super) fn differing(first: &Settings, second: &Settings) -> Vec<SettingDifference> {
    let names: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    let differs = |name: &&String| first.get(*name) != second.get(*name);
    let of = |name: &String| SettingDifference {
        name: name.clone(),
        first: first.get(name).cloned(),
        second: second.get(name).cloned(),
    };
    names.into_iter().filter(differs).map(of).collect()
}

/// If one machine does not use a directory, its mount cannot be compared.
fn is_told_by_both(difference: &SettingDifference) -> bool {
    !difference.name.starts_with(MOUNT) || (difference.first.is_some() && difference.second.is_some())
}

/// Groups the machines by their task, without the one that keeps the records.
fn by_system(known: &KnownSettings) -> BTreeMap<Option<String>, Vec<&MachineSettings>> {
    let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for machine in known.values().filter(|machine| !machine.name.is_empty()) {
        all.entry(machine.system.clone()).or_default().push(machine);
    }
    all
}

fn names<'a>(machines: &[&'a MachineSettings]) -> BTreeSet<&'a String> {
    machines.iter().flat_map(|machine| machine.settings.keys()).collect()
}

fn having(machines: &[&MachineSettings], name: &str) -> Vec<MachinesWithValue> {
    let mut values: BTreeMap<Option<&String>, Vec<String>> = BTreeMap::new();
    for machine in machines {
        values.entry(machine.settings.get(name)).or_default().push(machine.name.clone());
    }
    let having =
        |(value, machines): (Option<&String>, Vec<String>)| MachinesWithValue { value: value.cloned(), machines };
    let mut values: Vec<MachinesWithValue> = values.into_iter().map(having).collect();
    values.sort_by_key(|having| std::cmp::Reverse(having.machines.len()));
    values
}

/// Returns the most frequent values.
fn usual(machines: &[&MachineSettings]) -> Settings {
    let value = |name: &String| Some((name.clone(), having(machines, name).swap_remove(0).value?));
    names(machines).into_iter().filter_map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str, settings: &[(&str, &str)]) -> MachineSettings {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        MachineSettings { name: name.to_owned(), system: None, settings }
    }

    fn known(machines: &[MachineSettings]) -> KnownSettings {
        machines.iter().map(|machine| (machine.name.clone(), machine.clone())).collect()
    }

    #[test]
    fn only_settings_that_differ_are_shown_for_both_groups() {
        let all = known(&[
            machine("", &[("kernel", "5"), ("governor", "none")]),
            machine("a", &[("kernel", "6"), ("governor", "performance")]),
            machine(
                "b",
                &[("kernel", "6"), ("governor", "powersave"), ("mount of /x", "nfs4 rw"), ("mount of /y", "ext4")],
            ),
            machine(
                "c",
                &[("kernel", "6"), ("governor", "performance"), ("mount of /x", "nfs4 ro"), ("cpu boost", "1")],
            ),
        ]);
        let having = |value: Option<&str>, machines: &[&str]| MachinesWithValue {
            value: value.map(str::to_owned),
            machines: machines.iter().map(|name| (*name).to_owned()).collect(),
        };
        let of = |name: &str, values: [MachinesWithValue; 2]| DifferingSetting {
            system: None,
            name: name.into(),
            values: values.into(),
        };
        let governors = [having(Some("performance"), &["a", "c"]), having(Some("powersave"), &["b"])];
        let boost = [having(None, &["a", "b"]), having(Some("1"), &["c"])];
        let mounts = [having(Some("nfs4 ro"), &["c"]), having(Some("nfs4 rw"), &["b"])];
        assert_eq!(unlike(&all), [of("cpu boost", boost), of("governor", governors), of("mount of /x", mounts)]);
    }

    #[test]
    fn servers_are_compared_with_servers_of_the_same_system() {
        let of = |name: &str, system: &str, kernel: &str| MachineSettings {
            system: Some(system.to_owned()),
            ..machine(name, &[("kernel", kernel)])
        };
        let all = known(&[of("s1", "a", "5"), of("s2", "b", "6"), machine("n", &[("kernel", "7")])]);
        assert_eq!(unlike(&all), []);
        let head = RunHead { machine: machine("", &[("kernel", "4")]).settings, ..RunHead::default() };
        let trial = TrialRecord { settings: all.into_values().collect(), ..TrialRecord::default() };
        let found = settings_of_run(&head, &[trial]);
        let expected =
            [("agents: kernel", "7"), ("kernel", "4"), ("servers of a: kernel", "5"), ("servers of b: kernel", "6")];
        assert_eq!(found, machine("", &expected).settings);
    }

    #[test]
    fn a_change_is_shown_with_the_trial_that_found_it() {
        let head = RunHead { machine: machine("", &[("kernel", "6")]).settings, ..RunHead::default() };
        let trial = |settings: Vec<MachineSettings>| TrialRecord { settings, ..TrialRecord::default() };
        let trials = [
            trial(vec![machine("a", &[("governor", "performance"), ("mount of /x", "ext4")])]),
            trial(vec![]),
            trial(vec![
                machine("a", &[("governor", "powersave"), ("mount of /y", "ext4")]),
                machine("", &[("kernel", "7")]),
            ]),
        ];
        let changed_by = |machine: &str, name: &str, before: &str, after: &str| Changed {
            machine: machine.into(),
            name: name.into(),
            before: Some(before.into()),
            after: Some(after.into()),
            trial: 2,
        };
        let expected = [changed_by("a", "governor", "performance", "powersave"), changed_by("", "kernel", "6", "7")];
        assert_eq!(changed(&head, &trials), expected);
    }
}
