//! The settings of the machines of a run. They are recorded with the first trial after they were reported, and
//! again whenever they change.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::record::{RunHead, TrialRecord};
use crate::sampling::{MOUNT, Settings};

/// The settings of a machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MachineSettings {
    /// Its name; empty: the machine that keeps the records.
    pub name: String,
    /// The system whose server it is; `None`: it is an agent.
    pub system: Option<String>,
    /// All its settings at that time.
    pub settings: Settings,
}

impl MachineSettings {
    /// Returns the settings of the machine that keeps the records.
    #[must_use]
    pub fn here(settings: Settings) -> Self {
        Self { name: String::new(), system: None, settings }
    }
}

/// The known settings of a run's machines, by name.
pub type KnownSettings = BTreeMap<String, MachineSettings>;

/// Returns the last known settings of a run's machines.
#[must_use]
pub fn known_settings(head: &RunHead, trials: &[TrialRecord]) -> KnownSettings {
    let here = MachineSettings::here(head.machine.clone());
    let told = trials.iter().flat_map(|trial| trial.settings.iter().cloned());
    std::iter::once(here).chain(told).map(|machine| (machine.name.clone(), machine)).collect()
}

/// Returns the new settings of `told`, which must be recorded, and adds them to `known`. Mounts of directories that
/// a machine does not use now keep their known values.
pub fn news(known: &mut KnownSettings, mut told: Vec<MachineSettings>) -> Vec<MachineSettings> {
    for machine in &mut told {
        let before = known.get(&machine.name).into_iter().flat_map(|before| &before.settings);
        for (name, value) in before.filter(|(name, _)| name.starts_with(MOUNT)) {
            machine.settings.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
    let is_new =
        |machine: &MachineSettings| known.insert(machine.name.clone(), machine.clone()).as_ref() != Some(machine);
    told.retain(is_new);
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str, kernel: &str) -> MachineSettings {
        let settings = [("kernel".to_owned(), kernel.to_owned())].into();
        MachineSettings { name: name.to_owned(), system: None, settings }
    }

    #[test]
    fn only_new_and_changed_settings_are_recorded() {
        let head = RunHead { machine: machine("", "6.1").settings, ..RunHead::default() };
        let mut known = known_settings(&head, &[]);
        assert_eq!(news(&mut known, vec![machine("", "6.1"), machine("a", "6.1")]), [machine("a", "6.1")]);
        assert_eq!(news(&mut known, vec![machine("", "6.1"), machine("a", "6.1")]), []);
        assert_eq!(news(&mut known, vec![machine("a", "6.2")]), [machine("a", "6.2")]);
        let with = |more: &str| {
            let mut machine = machine("a", "6.2");
            machine.settings.insert(format!("{MOUNT}{more}"), "ext4 rw".to_owned());
            machine
        };
        assert_eq!(news(&mut known, vec![with("/x")]), [with("/x")]);
        assert_eq!(news(&mut known, vec![machine("a", "6.2")]), [], "it has nothing to do with the place just now");
        let mut both = with("/x");
        both.settings.extend(with("/y").settings);
        assert_eq!(news(&mut known, vec![with("/y")]), [both]);
        known.clear();
        let of_server = MachineSettings { system: Some("s".into()), ..machine("a", "6.2") };
        assert_eq!(news(&mut known, vec![of_server.clone()]), [of_server]);
    }
}
