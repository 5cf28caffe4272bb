//! Collects the evidence of each figure from rows and trials.

use std::collections::BTreeMap;

use super::{DataRoute, Evidence, Growth, Machine, decide};
use crate::campaign::{Campaign, Phase};
use crate::measure::Measured;
use crate::report::ceiling::PlacedRow;
use crate::report::summary::{Cell, Row};
use crate::result::{PhaseRecord, TrialRecord};
use crate::sampling::{MOUNT, Sample, Settings};
use crate::workload::Unit;

/// The parameter that says which directories hold the files.
const DIRECTORIES: &str = "directories";
/// The parameters that say how many workers there are.
const WORKERS: [&str; 4] = ["clients", "streams", "recorders", "jobs"];

/// Adds its verdict to each usable figure. The ceilings must be present already.
pub(in crate::report) fn put(
    rows: &mut [PlacedRow<'_>],
    trials: &[TrialRecord],
    campaign: &Campaign,
    settings: &Settings,
) {
    let siblings = ParameterSeries::new(rows);
    let verdicts: Vec<Vec<_>> = rows
        .iter()
        .map(|at| {
            let give = |cell: &Cell| {
                cell.usable()?;
                // While something is broken on purpose, that is the bottleneck.
                if at.phase.is_some_and(|phase| phase.workload().expects_failures()) {
                    return None;
                }
                Some(decide(&evidence(at, cell, &siblings, trials, campaign, settings)))
            };
            at.row.cells.iter().map(give).collect()
        })
        .collect();
    for (at, verdicts) in rows.iter_mut().zip(verdicts) {
        for (cell, verdict) in at.row.cells.iter_mut().zip(verdicts) {
            cell.verdict = verdict;
        }
    }
}

/// The samples of each machine, by name.
type Samples<'a> = Vec<(&'a str, &'a [Sample])>;

#[allow(clippy::cast_precision_loss)] // counts and times
fn evidence(
    at: &PlacedRow<'_>,
    cell: &Cell,
    siblings: &ParameterSeries<'_>,
    trials: &[TrialRecord],
    campaign: &Campaign,
    settings: &Settings,
) -> Evidence {
    let phases: Vec<&PhaseRecord> =
        cell.sources.iter().filter_map(|source| trials.get(source.trial)?.phases.get(source.phase)).collect();
    let sum = |of: &dyn Fn(&PhaseRecord) -> f64| phases.iter().map(|phase| of(phase)).sum::<f64>();
    let wall = sum(&|phase| phase.measured.wall_s).max(1e-9);
    let operations = sum(&|phase| phase.measured.tally.operations as f64).max(1.0);
    let waited = sum(&|phase| {
        phase.measured.tally.latency.steps().map(|(us, count)| us as f64 * count as f64).sum::<f64>() / 1e6
    });
    let system = campaign.systems.iter().find(|system| system.name == cell.system);
    let places = system.map(|system| system.place.all()).unwrap_or_default();
    let workers = at.phase.map_or(1, |phase| phase.workload().workers());
    // If there are several roles, the first has the machine's activity and the bench's own CPU time.
    let machines = cell.sources.iter().filter_map(|source| {
        let phases = &trials.get(source.trial)?.phases;
        let number = phases.get(source.phase)?.number;
        phases.iter().find(|phase| phase.number == number)
    });
    let samples = machines.clone().flat_map(|phase| &phase.measured.client);
    let bench_cpu_s: f64 = machines.clone().map(|phase| phase.measured.client_cpu_s).sum();
    let machines_wall: f64 = machines.clone().map(|phase| phase.measured.wall_s).sum();
    let all = |of: fn(&PhaseRecord) -> Samples<'_>| -> Vec<Machine> {
        let mut by_name: BTreeMap<&str, Vec<&Sample>> = BTreeMap::new();
        for (name, samples) in machines.clone().flat_map(of) {
            by_name.entry(name).or_default().extend(samples);
        }
        by_name.into_iter().filter_map(|(name, samples)| Machine::of(name, samples.into_iter())).collect()
    };
    let agents = all(|phase| phase.machines.agents.iter().map(|one| (one.name.as_str(), &one.samples[..])).collect());
    let servers = all(|phase| phase.machines.servers.iter().map(|one| (one.name.as_str(), &one.samples[..])).collect());
    let seconds = wall / phases.len().max(1) as f64;
    let way = way_of(at.phase, &places, campaign);
    Evidence {
        way,
        is_networked: way == DataRoute::Network || (way == DataRoute::Path && is_network_mount(&cell.system, settings)),
        is_foreign: at.phase.is_some_and(|phase| phase.workload().runs_a_tool()),
        seconds,
        figure: cell.median,
        asked: at.phase.and_then(|phase| phase.workload().asked_rate(&at.row.phase)),
        at_once: f64::from(workers) * sum(&|phase| count(&phase.measured, at.row.unit))
            / operations
            / seconds.max(1e-9),
        ceilings: cell.ceilings.clone(),
        clients: if agents.is_empty() { Machine::of("this client", samples).into_iter().collect() } else { agents },
        servers,
        workers,
        bench_cores: bench_cpu_s / machines_wall.max(1e-9),
        under_way: waited / wall,
        latency_us: cell.latency_us.map(|us| us[0]),
        operation_bytes: sum(&|phase| phase.measured.tally.bytes as f64) / operations,
        growth: growth(at, cell, siblings, workers),
        own_directories: own_directories(at, cell, siblings),
    }
}

/// Returns the value of a phase that its figure counts.
#[allow(clippy::cast_precision_loss)] // counts
fn count(measured: &Measured, unit: Unit) -> f64 {
    match unit {
        Unit::Bytes | Unit::Efficiency => measured.tally.bytes as f64,
        Unit::Operations => measured.tally.operations as f64,
    }
}

/// Returns the route of data to the directories of a system; the longest one, if they differ.
fn way_of(phase: Option<&Phase>, places: &[String], campaign: &Campaign) -> DataRoute {
    if phase.is_some_and(|phase| phase.workload().needs_peers()) {
        let peers = campaign.systems.iter().filter_map(|system| system.peer.as_ref());
        let are_here = peers.map(|peer| way_to(&format!("peer://{peer}"))).all(|way| way == DataRoute::SameMachine);
        return if are_here { DataRoute::SameMachine } else { DataRoute::Network };
    }
    if phase.is_some_and(|phase| !phase.workload().needs_system()) {
        return DataRoute::None;
    }
    let ways: Vec<DataRoute> = places.iter().map(|place| way_to(place)).collect();
    [DataRoute::Network, DataRoute::SameMachine].into_iter().find(|way| ways.contains(way)).unwrap_or(DataRoute::Path)
}

/// File systems of remote servers, by their kernel names. Those in user space (`fuse.glusterfs`, `fuse.ceph`) are
/// nearly all of that kind.
const NETWORK_FILE_SYSTEMS: [&str; 14] = [
    "9p",
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "glusterfs",
    "gpfs",
    "lustre",
    "nfs",
    "nfs4",
    "orangefs",
    "pvfs2",
    "smb3",
    "smbfs",
];

/// Whether a system's directory is a mount of a network file system, by the settings of the machine that measured.
/// If these do not say, it is not.
fn is_network_mount(system: &str, settings: &Settings) -> bool {
    let kind = mount_kind(system, settings);
    kind.starts_with("fuse.") || NETWORK_FILE_SYSTEMS.contains(&kind)
}

/// Returns the file system of a system's directory; empty if unknown.
pub(in crate::report) fn mount_kind<'a>(system: &str, settings: &'a Settings) -> &'a str {
    let mount = settings.get(&format!("{MOUNT}{system}"));
    mount.and_then(|mount| mount.split(' ').next()).unwrap_or_default()
}

/// Returns the route of data to a directory, by its text.
pub(in crate::report) fn way_to(place: &str) -> DataRoute {
    let Some((scheme, rest)) = place.split_once("://") else { return DataRoute::Path };
    if scheme == "file" {
        return DataRoute::Path;
    }
    let authority = rest.split('/').next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let local = host.starts_with("127.") || host.starts_with("[::1]") || host.split(':').next() == Some("localhost");
    if local { DataRoute::SameMachine } else { DataRoute::Network }
}

/// Rows that differ in one parameter only.
struct ParameterSeries<'a> {
    rows: &'a [PlacedRow<'a>],
    alike: BTreeMap<(String, &'static str), Vec<usize>>,
}

impl<'a> ParameterSeries<'a> {
    fn new(rows: &'a [PlacedRow<'a>]) -> Self {
        let mut alike: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (number, at) in rows.iter().enumerate() {
            for name in WORKERS.into_iter().chain([DIRECTORIES]).filter(|name| parameter(&at.row, name).is_some()) {
                alike.entry((Self::rest(&at.row, name), name)).or_default().push(number);
            }
        }
        Self { rows, alike }
    }

    /// Returns the key of a row without one parameter.
    fn rest(row: &Row, name: &str) -> String {
        let rest: Vec<&(String, String)> = row.parameters.iter().filter(|parameter| parameter.0 != name).collect();
        format!("{:?}", (&row.work, &row.phase, rest))
    }

    /// Returns the figures of `cell`'s system in the rows whose parameter `fits`.
    fn figures(
        &self,
        at: &PlacedRow<'_>,
        cell: &Cell,
        name: &'static str,
        fits: impl Fn(&str) -> bool,
    ) -> Vec<(&'a PlacedRow<'a>, f64)> {
        let alike = self.alike.get(&(Self::rest(&at.row, name), name)).map_or(&[][..], Vec::as_slice);
        let fitting = alike.iter().filter_map(|number| self.rows.get(*number));
        let fitting = fitting.filter(|other| parameter(&other.row, name).is_some_and(&fits));
        let figure = |other: &PlacedRow<'_>| other.row.cells.iter().find(|of| of.system == cell.system)?.usable();
        fitting.filter_map(|other| Some((other, figure(other)?))).collect()
    }
}

fn parameter<'a>(row: &'a Row, name: &str) -> Option<&'a str> {
    row.parameters.iter().find(|parameter| parameter.0 == name).map(|parameter| parameter.1.as_str())
}

/// Compares with the same work by fewer workers: the next smaller number.
fn growth(at: &PlacedRow<'_>, cell: &Cell, siblings: &ParameterSeries<'_>, workers: u32) -> Option<Growth> {
    let (name, this) = WORKERS.iter().find_map(|name| Some((*name, parameter(&at.row, name)?.parse::<u32>().ok()?)))?;
    let found = siblings.figures(at, cell, name, |other| other.parse().is_ok_and(|other: u32| other < this));
    let with = found.into_iter().filter_map(|(other, figure)| Some((other.phase?.workload().workers(), figure)));
    let (fewer, figure) = with.filter(|(fewer, _)| *fewer < workers).max_by_key(|(fewer, _)| *fewer)?;
    (figure > 0.0).then(|| Growth { fewer, ratio: cell.median / figure })
}

/// Returns the rate of the same clients with a directory each, divided by this figure with one directory.
fn own_directories(at: &PlacedRow<'_>, cell: &Cell, siblings: &ParameterSeries<'_>) -> Option<f64> {
    parameter(&at.row, DIRECTORIES).filter(|directories| *directories == "one")?;
    let own = siblings.figures(at, cell, DIRECTORIES, |other| other == "own");
    own.first().map(|(_, figure)| figure / cell.median).filter(|ratio| ratio.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_mount_counts_as_a_network() {
        let is_networked = |mount: &str| {
            let settings = [("mount of a".to_owned(), mount.to_owned())].into();
            is_network_mount("a", &settings)
        };
        assert!(is_networked("nfs4 rw,noatime") && is_networked("lustre rw") && is_networked("fuse.glusterfs rw"));
        assert!(!is_networked("ext4 rw,relatime") && !is_networked("fuseblk rw") && !is_networked("tmpfs rw"));
        assert!(!is_network_mount("b", &Settings::new()));
    }

    #[test]
    fn the_route_follows_from_the_directory() {
        let text =
            "name = 'c'\nrepeats = 1\n[[system]]\nname = 'a'\nplace = '/a'\n[[client]]\nname = 'x'\nblock = '1MiB'";
        let campaign = Campaign::parse(text).unwrap();
        let way = |place: &str| way_of(None, &["/x".to_owned(), place.to_owned()], &campaign);
        assert_eq!(way("/mnt/x"), DataRoute::Path);
        assert_eq!(way("file:///mnt/x"), DataRoute::Path);
        assert_eq!(way("root://localhost:1094//x"), DataRoute::SameMachine);
        assert_eq!(way("root://u@127.0.0.1//x"), DataRoute::SameMachine);
        assert_eq!(way("root://[::1]:2//x"), DataRoute::SameMachine);
        assert_eq!(way("https://storage.example/x"), DataRoute::Network);
    }
}
