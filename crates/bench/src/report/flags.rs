//! Flags: the doubts about a figure.

use std::collections::BTreeSet;
use std::fmt;

use super::ceiling::PlacedRow;
use super::summary::Cell;
use super::verdict::{DataRoute, mount_kind, way_to};
use crate::campaign::Campaign;
use crate::result::{Caches, RunHead, TrialRecord};
use crate::target::{Durability, TargetDir};

/// A reason why a figure may be misleading.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flag {
    /// Reads returned wrong data.
    WrongData,
    /// Acknowledged data are missing.
    Lost,
    /// Operations failed.
    Failures,
    /// The system, or its protocol, cannot do this.
    Unsupported,
    /// A trial ended before it was complete.
    EndedEarly,
    /// The data may have come from the cache of this machine or the server.
    MaybeCached,
    /// The data fit into this machine's memory, which was not emptied.
    FitsMemory,
    /// The systems of the row may differ in durability.
    UnequalDurability,
    /// There are too few repeats for an interval.
    FewRepeats,
    /// The interval is wider than a tenth of the figure to each side.
    Scattered,
    /// The phase took less than a second in a repeat.
    Brief,
    /// The rate still had a trend at the end of the runs.
    NotSteady,
    /// Blocks started later than a detector could have waited.
    MissedDeadlines,
    /// The input is synthetic.
    Synthetic,
    /// The input can be compressed.
    Compressible,
    /// Jobs competed for processors.
    ManyJobs,
    /// The CPU time of the mount's own process is not known, although it worked for the client.
    PartialClientCpu,
    /// Some planned machines did not take part, or not to the end. The figure covers the others.
    LostAgents,
    /// A machine's rate was far from the others'.
    OutlierAgents,
}

impl Flag {
    /// Returns the letter beside a figure.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Self::WrongData => 'W',
            Self::Lost => 'L',
            Self::Failures => 'F',
            Self::Unsupported => 'U',
            Self::EndedEarly => 'E',
            Self::MaybeCached => 'c',
            Self::FitsMemory => 'm',
            Self::UnequalDurability => 'u',
            Self::FewRepeats => 'n',
            Self::Scattered => 's',
            Self::Brief => 'b',
            Self::NotSteady => 't',
            Self::MissedDeadlines => 'd',
            Self::Synthetic => 'y',
            Self::Compressible => 'z',
            Self::ManyJobs => 'j',
            Self::PartialClientCpu => 'p',
            Self::LostAgents => 'a',
            Self::OutlierAgents => 'o',
        }
    }

    /// Returns its name in JSON and CSV.
    #[must_use]
    pub fn name(self) -> String {
        crate::workload::word_of(self)
    }

    /// Whether the figure must not be used at all.
    #[must_use]
    pub fn is_fatal(self) -> bool {
        matches!(self, Self::WrongData | Self::Lost | Self::Failures | Self::Unsupported | Self::EndedEarly)
    }
}

impl fmt::Display for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WrongData => "reads returned wrong data",
            Self::Lost => "acknowledged data are missing",
            Self::Failures => "operations failed",
            Self::Unsupported => "the system or its protocol does not support this",
            Self::EndedEarly => "ended before all work was done",
            Self::MaybeCached => "the data may have come from a cache of this machine or of the server; that is normal for data that were just written or read before, and a cold read of a server needs `empty_caches` in its system",
            Self::FitsMemory => "the data fit into this machine's memory, which was not emptied: the figure may be that of the memory, not of the system",
            Self::UnequalDurability => "durability may differ: nothing had to be durable, and each server decides itself; or HTTP, which does not report durability, is beside a protocol that does",
            Self::FewRepeats => "too few repeats for an interval of 95 %, which needs six",
            Self::Scattered => "the repeats vary by more than a tenth to each side",
            Self::Brief => "less than a second: the start of the work, and where the scheduler put the processes, may decide the figure; give it more data or more files",
            Self::NotSteady => "no steady state: the rate had a trend to the end",
            Self::Synthetic => "synthetic: the jobs read generated data, which say little about real jobs",
            Self::Compressible => "the jobs' data can be compressed by a tenth or more, which favours systems that compress",
            Self::ManyJobs => "more jobs than this machine has processors, so they also waited for each other",
            Self::MissedDeadlines => "deadlines were missed: a detector would have lost data",
            Self::PartialClientCpu => "by a FUSE mount: the client's CPU time does not include the mount's own process",
            Self::LostAgents => "agents were lost: the figure covers the others",
            Self::OutlierAgents => "an agent was far slower or faster than the others",
        })
    }
}

/// Adds the flags that follow from how the work was done, and on which machine.
pub(super) fn put(rows: &mut [PlacedRow<'_>], trials: &[TrialRecord], campaign: &Campaign, head: &RunHead) {
    let of_work = |row: &super::Row| (row.work.clone(), row.parameters.clone());
    let has = |at: &&PlacedRow<'_>| at.row.cells.iter().any(|cell| cell.flags.contains(&Flag::Compressible));
    let compressible: BTreeSet<_> = rows.iter().filter(has).map(|at| of_work(&at.row)).collect();
    for at in rows {
        // The jobs' input was put there before, and is equally compressible.
        if compressible.contains(&of_work(&at.row)) {
            at.row.cells.iter_mut().for_each(|cell| cell.flags.extend([Flag::Compressible]));
        }
        let Some(phase) = at.phase else { continue };
        let work = phase.workload();
        for cell in at.row.cells.iter_mut().filter(|cell| work.needs_system() && cell.client_cpu.is_some()) {
            let phase_of =
                |source: &super::Source| trials.get(source.trial).and_then(|trial| trial.phases.get(source.phase));
            let is_counted = cell.sources.iter().filter_map(phase_of).all(|phase| phase.helpers_cpu_s().is_some());
            if mount_kind(&cell.system, &head.machine).starts_with("fuse") && !is_counted {
                cell.flags.insert(Flag::PartialClientCpu);
            }
        }
        let Some(io_options) = work.io_options() else { continue };
        // Data that must be durable within the timing are not only in a cache.
        let lazy = work.writes() && io_options.durability == Durability::None;
        let memory_bytes = head.memory_bytes;
        let fits = work.moved() > 0 && work.room() < memory_bytes && !io_options.direct && (lazy || !work.writes());
        let places = |name: &str| {
            let system = campaign.systems.iter().find(|system| system.name == name);
            system.and_then(|system| system.places().ok()).unwrap_or_default()
        };
        let is_path = |name: &str| {
            let places = places(name);
            !places.is_empty() && places.iter().all(|place| matches!(place, TargetDir::Path(_)))
        };
        let is_http = |cell: &Cell| places(&cell.system).iter().any(|place| matches!(place, TargetDir::Http(_)));
        // An HTTP answer says nothing about durability, even if the other systems are durable.
        let https = at.row.cells.iter().filter(|cell| is_http(cell)).count();
        let unlike =
            work.writes() && io_options.durability == Durability::Close && (1..at.row.cells.len()).contains(&https);
        // A server's cache can be known only on this machine.
        let is_elsewhere = |place: &TargetDir| way_to(&place.to_string()) == DataRoute::Network;
        let reads = work.moved() > 0 && !work.writes();
        let may_be_held = |name: &str| work.room() < memory_bytes || places(name).iter().any(is_elsewhere);
        let unequal = lazy && at.row.cells.len() > 1 && at.row.cells.iter().any(|cell| !is_path(&cell.system));
        for cell in &mut at.row.cells {
            let record = |source: &super::Source| trials.get(source.trial)?.phases.get(source.phase);
            let emptied = cell.sources.iter().filter_map(record).all(|phase| phase.caches == Caches::Dropped);
            if fits && !emptied && is_path(&cell.system) {
                cell.flags.insert(Flag::FitsMemory);
            }
            if reads && !emptied && !is_path(&cell.system) && may_be_held(&cell.system) {
                cell.flags.insert(Flag::MaybeCached);
            }
            if unequal || unlike {
                cell.flags.insert(Flag::UnequalDurability);
            }
        }
    }
}
