//! What speaks against a figure.

use std::collections::BTreeSet;
use std::fmt;

use super::ceiling::At;
use super::summary::Cell;
use super::verdict::{Way, mount_kind, way_to};
use crate::campaign::Campaign;
use crate::result::{Caches, RunHead, TrialRecord};
use crate::target::{Durability, Place};

/// A reason for which a figure may not be what it seems.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flag {
    /// Reads brought wrong data.
    WrongData,
    /// What was acknowledged is not there any more.
    Lost,
    /// Operations failed.
    Failures,
    /// The system, or its protocol, cannot do this.
    Unsupported,
    /// A trial ended before all of it was done.
    EndedEarly,
    /// What was read may have come from this machine's memory, or the server's.
    MaybeCached,
    /// What was moved fits into this machine's memory, which nothing emptied.
    FitsMemory,
    /// Systems of one row need not have made durable what they were given.
    UnequalDurability,
    /// There are too few repeats for an interval.
    FewRepeats,
    /// The interval is wider than a tenth of the figure to each side.
    Scattered,
    /// There was a trend to the end of the runs.
    NotSteady,
    /// Blocks were begun later than a detector could have waited.
    MissedDeadlines,
    /// What was read is made up.
    Synthetic,
    /// What was read can be compressed.
    Compressible,
    /// Jobs waited for each other's processors.
    ManyJobs,
    /// The mount's own process has done work for the client that is in nobody's CPU time.
    PartialClientCpu,
    /// Machines that were to take part did not, or not to the end: the figure is of what the others did.
    LostAgents,
    /// A machine's own rate was far from the others'.
    OutlierAgents,
}

impl Flag {
    /// The letter that stands beside a figure.
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

    /// Its name in JSON and CSV.
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
            Self::WrongData => "reads brought wrong data",
            Self::Lost => "what was acknowledged is not there any more",
            Self::Failures => "operations failed",
            Self::Unsupported => "the system or its protocol cannot do this",
            Self::EndedEarly => "ended before all was done",
            Self::MaybeCached => "what was read may have come from memory: this machine's caches were not dropped, or the server's could not be",
            Self::FitsMemory => "the data fits into this machine's memory, and its cache was not dropped: the figure may be the memory's, not the system's",
            Self::UnequalDurability => "durability may be unequal: nothing had to be on a disk, and servers put there what they like; or HTTP, which does not say, beside what does",
            Self::FewRepeats => "too few repeats for an interval of 95 %: six are needed",
            Self::Scattered => "the repeats scatter by more than a tenth to each side",
            Self::NotSteady => "no steady state: there was a trend to the end",
            Self::Synthetic => "synthetic: what jobs read is made up, and says little of real ones",
            Self::Compressible => "what jobs read, and was put there for them, can be compressed by a tenth and more: systems that compress gain by it",
            Self::ManyJobs => "more jobs than this machine has processors: they waited for each other, too",
            Self::MissedDeadlines => "deadlines were missed: a detector would have lost data",
            Self::PartialClientCpu => "by a mount of FUSE: the client's CPU time is without that of the mount's own process",
            Self::LostAgents => "agents were lost: the figure is of what the others did",
            Self::OutlierAgents => "an agent was far slower or faster than the others",
        })
    }
}

/// Puts the flags to each figure that follow from how the work was done, and on what machine.
pub(super) fn put(rows: &mut [At<'_>], trials: &[TrialRecord], campaign: &Campaign, head: &RunHead) {
    let of_work = |row: &super::Row| (row.work.clone(), row.parameters.clone());
    let has = |at: &&At<'_>| at.row.cells.iter().any(|cell| cell.flags.contains(&Flag::Compressible));
    let compressible: BTreeSet<_> = rows.iter().filter(has).map(|at| of_work(&at.row)).collect();
    for at in rows {
        // What jobs read was put there before, and gained as much.
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
        let Some(manner) = work.manner() else { continue };
        // What has to be on the disk within the timing is not only in a memory.
        let lazy = work.writes() && manner.durability == Durability::None;
        let memory_bytes = head.memory_bytes;
        let fits = work.moved() > 0 && work.room() < memory_bytes && !manner.direct && (lazy || !work.writes());
        let places = |name: &str| {
            let system = campaign.systems.iter().find(|system| system.name == name);
            system.and_then(|system| system.places().ok()).unwrap_or_default()
        };
        let is_path = |name: &str| {
            let places = places(name);
            !places.is_empty() && places.iter().all(|place| matches!(place, Place::Path(_)))
        };
        let is_http = |cell: &Cell| places(&cell.system).iter().any(|place| matches!(place, Place::Http(_)));
        // An answer of HTTP says nothing of a disk, also where others have made it durable.
        let https = at.row.cells.iter().filter(|cell| is_http(cell)).count();
        let unlike =
            work.writes() && manner.durability == Durability::Close && (1..at.row.cells.len()).contains(&https);
        // What a server keeps in its memory can only be known of one on this machine.
        let is_elsewhere = |place: &Place| way_to(&place.to_string()) == Way::Network;
        let reads = work.moved() > 0 && !work.writes();
        let may_be_held = |name: &str| work.room() < memory_bytes || places(name).iter().any(is_elsewhere);
        let unequal = lazy && at.row.cells.len() > 1 && at.row.cells.iter().any(|cell| !is_path(&cell.system));
        for cell in &mut at.row.cells {
            let record = |source: &super::Source| trials.get(source.trial)?.phases.get(source.phase);
            let emptied = cell.sources.iter().filter_map(record).all(|phase| phase.caches == Caches::Dropped);
            if fits && !emptied && is_path(&cell.system) {
                cell.flags.insert(Flag::FitsMemory);
            }
            if reads && !is_path(&cell.system) && may_be_held(&cell.system) {
                cell.flags.insert(Flag::MaybeCached);
            }
            if unequal || unlike {
                cell.flags.insert(Flag::UnequalDurability);
            }
        }
    }
}
