//! The ceilings of a figure: what the client can make or check alone, what the network to the system carries, and
//! what the disk below the system does. Each stage limits the figures of work that goes through it.

use serde::{Deserialize, Serialize};

use super::summary::{Cell, Row};
use crate::campaign::{Campaign, Phase};
use crate::network::{Direction, NetworkSpec, Protocol};
use crate::target::TargetDir;
use crate::workload::{ClientWork, GenerateSpec, StreamSpec};

/// A stage between the client and the disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// This machine alone: making, checking and summing blocks.
    Client,
    /// The network between this machine and the system's.
    Network,
    /// The disk below the system.
    Disk,
}

/// The result of a stage alone, on the same work.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Ceiling {
    /// The stage.
    pub stage: Stage,
    /// Its rate in bytes a second.
    pub rate: f64,
    /// The figure's share of that rate.
    pub share: f64,
}

impl Stage {
    /// Returns its readable name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Network => "network",
            Self::Disk => "disk",
        }
    }
}

/// A row with its position in the campaign.
pub(super) struct PlacedRow<'a> {
    /// The phase; `None`: the campaign does not have it.
    pub(super) phase: Option<&'a Phase>,
    pub(super) row: Row,
}

/// Adds the ceilings to each figure, the lowest first.
pub(super) fn put(rows: &mut [PlacedRow<'_>], campaign: &Campaign) {
    let alone: Vec<(GenerateSpec, f64)> = rows
        .iter()
        .filter_map(|at| match at.phase {
            Some(Phase::Client(spec)) => Some((spec.clone(), at.row.cells.first()?.usable()?)),
            _ => None,
        })
        .collect();
    let flows: Vec<(NetworkSpec, BySystem)> = rows
        .iter()
        .filter_map(|at| match at.phase {
            Some(Phase::Network(spec)) => Some((spec.clone(), by_system(&at.row))),
            _ => None,
        })
        .collect();
    for at in rows {
        let Some(Phase::Stream(spec)) = at.phase else { continue };
        let figures = by_system(&at.row);
        for cell in &mut at.row.cells {
            let Some(system) = campaign.systems.iter().find(|system| system.name == cell.system) else { continue };
            let is_root = system.places().is_ok_and(|places| matches!(places[..], [TargetDir::Root(_), ..]));
            let disk = system.disk.as_ref().and_then(|disk| figures.iter().find(|(name, _)| name == disk)?.1);
            // A mount may use other routes than flows to a peer.
            let network = if is_root { network(&flows, spec, &system.name) } else { None };
            let found =
                [(Stage::Client, client(&alone, spec, is_root)), (Stage::Network, network), (Stage::Disk, disk)];
            set(cell, found);
        }
    }
}

/// The usable figures of a row, by the names of their systems.
type BySystem = Vec<(String, Option<f64>)>;

fn by_system(row: &Row) -> BySystem {
    row.cells.iter().map(|cell| (cell.system.clone(), cell.usable())).collect()
}

/// Returns the best rate of equally many TCP flows with the system alone, in the direction of its bytes.
fn network(flows: &[(NetworkSpec, BySystem)], spec: &StreamSpec, system: &str) -> Option<f64> {
    let direction = match (spec.access.reads(), spec.access.writes()) {
        (true, false) => Direction::From,
        (false, true) => Direction::To,
        // Work in both directions is limited by neither alone.
        _ => return None,
    };
    let fits = |flows: &NetworkSpec| {
        let is_free = flows.protocol == Protocol::Tcp && flows.rate.is_none() && !flows.at_once;
        is_free && flows.direction == direction && flows.flows as usize == spec.workers()
    };
    let rate = |figures: &BySystem| figures.iter().find(|(name, _)| name == system)?.1;
    flows.iter().filter(|(flows, _)| fits(flows)).filter_map(|(_, figures)| rate(figures)).reduce(f64::max)
}

fn set(cell: &mut Cell, found: [(Stage, Option<f64>); 3]) {
    let share = |rate: f64| cell.median / rate;
    let known = found.into_iter().filter_map(|(stage, rate)| Some((stage, rate.filter(|rate| *rate > 0.0)?)));
    let mut ceilings: Vec<Ceiling> = known.map(|(stage, rate)| Ceiling { stage, rate, share: share(rate) }).collect();
    ceilings.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    cell.ceilings = ceilings;
}

/// Returns the rate of this machine with as many threads as the streams have workers, and the same blocks.
fn client(alone: &[(GenerateSpec, f64)], spec: &StreamSpec, sums: bool) -> Option<f64> {
    let work = match (spec.access.reads(), sums) {
        // Data that are not verified cost no check, so this is no limit.
        (true, _) if !spec.verify => return None,
        (true, true) => ClientWork::CheckAndSum,
        (true, false) => ClientWork::Check,
        (false, true) => ClientWork::MakeAndSum,
        (false, false) => ClientWork::Make,
    };
    let fits = |alone: &GenerateSpec| {
        alone.work == work && alone.block_bytes == spec.block_bytes && alone.threads as usize == spec.workers()
    };
    alone.iter().find(|(alone, _)| fits(alone)).map(|(_, rate)| *rate)
}
