//! The progress of repair, for people.

use cluster::placement::PlacementError;
use namespace::NsError;
use serde::{Deserialize, Serialize};
use types::{Group, GroupId, StoreId};

use super::Views;
use super::overview::{COUNT_MAX, Counted, LENGTHS_MAX, MissingCount};
use crate::jobs::{FailedCopy, Progress};

/// Missing replicas that are read at a time.
const PAGE: usize = 512;
/// The most groups beyond repair that a view lists.
const SHOWN_MAX: usize = 100;

/// The progress of replacing stores.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RepairView {
    /// Stores that are removed as lost.
    pub lost: Vec<LeaverView>,
    /// Stores that are draining.
    pub draining: Vec<LeaverView>,
    /// Groups with a store that is being backfilled.
    pub backfill: u64,
    /// Missing replicas.
    pub missing: Counted,
    /// Missing replicas that are being copied now.
    pub copying: u64,
    /// Groups in which no store can replace a lost one. Only the first of them.
    pub stuck: Vec<StuckView>,
    /// How far the copies are.
    #[serde(flatten)]
    pub progress: CopyProgress,
    /// A group is being backfilled, a replica is being copied, or one that is missing can be copied now. Otherwise repair waits for a store, or has
    /// nothing left to do.
    #[serde(default)]
    pub is_at_work: bool,
}

/// How far the copies of missing replicas are.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CopyProgress {
    /// Bytes of the missing replicas.
    #[serde(default)]
    pub missing_bytes: Counted,
    /// The rate at which replicas were made in the last half minute. `None` if no copy has ended in that time.
    #[serde(default)]
    pub bytes_per_second: Option<u64>,
    /// The time that the missing bytes take at this rate, at least. `None` without a rate, and if nothing is missing.
    #[serde(default)]
    pub seconds_left: Option<u64>,
    /// Missing replicas whose last copy has failed. They are tried again from another holder of the object.
    #[serde(default)]
    pub failed: u64,
    /// The latest of these failures.
    #[serde(default)]
    pub last_failed: Option<FailedCopyView>,
}

/// A copy that failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FailedCopyView {
    /// The file's path, if it has one.
    pub path: Option<String>,
    /// The source store, for people.
    pub from: String,
    /// The target store, for people.
    pub to: String,
    /// Why it failed.
    #[serde(default)]
    pub why: String,
    /// How often this replica could not be made so far.
    #[serde(default)]
    pub times: u32,
}

/// A store that is removed as lost or draining.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LeaverView {
    /// The store's number, as text.
    pub store: String,
    /// The store's location, even if it is gone.
    pub location: String,
    /// Groups that still depend on it. If there are none, no known object is on this store alone.
    pub groups: u64,
    /// The store has reported that it is empty.
    pub is_empty: bool,
}

/// A group that cannot change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StuckView {
    /// The group.
    pub group: u64,
    /// The lost or draining store: its number, as text.
    pub store: String,
    /// Why no store can replace it.
    pub why: String,
}

impl Views {
    /// The progress of replacing stores.
    pub(crate) fn repair(&self) -> Result<RepairView, NsError> {
        let missing = self.count_missing(COUNT_MAX, LENGTHS_MAX)?;
        let (cluster, progress) = (self.view.get(), self.copies.progress());
        let (copying, progress) = (progress.under_way as u64, self.copy_progress(&missing, progress));
        let servers = &cluster.servers;
        let stuck = self.backfill.stuck().into_iter().filter(|(_, (store, _))| servers.is_to_leave(*store));
        let view = |(group, (store, why)): (GroupId, (StoreId, PlacementError))| StuckView {
            group: group.0,
            store: store.to_string(),
            why: why.to_string(),
        };
        let stuck: Vec<StuckView> = stuck.take(SHOWN_MAX).map(view).collect();
        let empty: Vec<StoreId> =
            servers.draining().into_iter().filter(|store| self.draining.is_empty(*store)).collect();
        let groups = self.coordinator.groups();
        let view = |store: StoreId| LeaverView {
            store: store.to_string(),
            location: servers.map().store(store).map(|info| info.location.to_string()).unwrap_or_default(),
            groups: groups.count_of(store) as u64,
            is_empty: empty.contains(&store) && groups.count_of(store) == 0,
        };
        let is_backfilling = |group: &&Group| group.members.iter().any(|member| !member.is_current());
        let backfill = groups.all().values().filter(is_backfilling).count() as u64;
        let lost = servers.removed_as_lost().into_iter().map(view).collect();
        let draining = servers.draining().into_iter().map(view).collect();
        drop(groups);
        Ok(RepairView {
            lost,
            draining,
            backfill,
            is_at_work: backfill > 0 || copying > 0 || self.can_copy()?,
            missing: missing.replicas,
            copying,
            stuck,
            progress,
        })
    }

    /// Whether a missing replica can be made now: the store that lacks it is online, and so is one that has it. Examines a bounded number of them.
    fn can_copy(&self) -> Result<bool, NsError> {
        let (mut after, mut looked) = (None, 0);
        while looked < COUNT_MAX {
            let (page, sources) = self.names.read(|read| {
                let page = namespace::missing_in_all_groups(read, after, PAGE)?;
                let sources = page.iter().map(|(group, object, _)| namespace::holders(read, *group, *object));
                let sources = sources.collect::<Result<Vec<_>, _>>()?;
                Ok::<_, NsError>((page, sources))
            })?;
            let view = self.view.get();
            let online = self.stores_there(&view, self.world.now());
            let groups = self.coordinator.groups();
            let can = |store: &StoreId| online.contains(store);
            let lacks = |group: GroupId, store: &StoreId| can(store) && groups.is_missing(&view.servers, group, *store);
            let mut both = page.iter().zip(&sources);
            if both.any(|((group, _, at), from)| at.iter().any(|store| lacks(*group, store)) && from.iter().any(can)) {
                return Ok(true);
            }
            drop(groups);
            looked += page.len() as u64;
            let Some((group, object, _)) = page.last() else { break };
            after = Some((*group, *object));
        }
        Ok(false)
    }

    pub(super) fn copy_progress(&self, missing: &MissingCount, progress: Progress) -> CopyProgress {
        let Progress { bytes_per_second, failed, last_failed, .. } = progress;
        let bytes = missing.bytes.count;
        CopyProgress {
            missing_bytes: missing.bytes,
            bytes_per_second,
            seconds_left: bytes_per_second.filter(|rate| *rate > 0 && bytes > 0).map(|rate| bytes.div_ceil(rate)),
            failed: failed as u64,
            last_failed: last_failed.map(|failed| self.failed_copy(failed)),
        }
    }

    fn failed_copy(&self, failed: FailedCopy) -> FailedCopyView {
        let FailedCopy { group, object, from, to, why, times } = failed;
        let path = self.names.read(|read| {
            let record = namespace::object_record(read, group, object)?;
            record.map(|record| namespace::path_of(read, record.ino)).transpose()
        });
        let view = self.view.get();
        FailedCopyView {
            // The file may have been removed since.
            path: path.ok().flatten().map(|path| String::from_utf8_lossy(&path).into_owned()),
            from: view.servers.shown(from),
            to: view.servers.shown(to),
            why,
            times,
        }
    }
}
