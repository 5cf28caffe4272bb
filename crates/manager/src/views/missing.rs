//! Lists under-replicated and unreadable files, for an administrator who has lost a disk. The search goes page by page, only through groups with an
//! offline store or missing replicas. Nothing is decided here.

use std::collections::BTreeSet;
use std::ops::Bound;

use cluster::Time;
use namespace::{Content, FileState, Inode, NsError, ObjectRecord, Read};
use serde::{Deserialize, Serialize};
use types::{Group, GroupId, ObjectId, StoreId};

use super::{Counted, Views};
use crate::coordinator::ClusterView;

/// The most objects examined and groups skipped for one answer.
const LOOKED_MAX: usize = 512;
/// The most pages that are counted, so that a request never takes long.
const PAGES_COUNTED: usize = 40;

/// How badly a file is under-replicated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplicationState {
    /// The file is readable but has too few replicas.
    UnderReplicated,
    /// No online store has the file, but one that may return does.
    Unavailable,
    /// All stores that had the file are removed as lost.
    Lost,
}

/// An under-replicated file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UnderReplicatedFile {
    /// Its path; the first one if it has several. Bytes that are not text are escaped.
    pub path: String,
    /// Length in bytes.
    pub len: u64,
    /// Its state. For a striped file, the state of its worst unit.
    pub state: ReplicationState,
    /// The under-replicated units, if it is striped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<u8>,
    /// Readable replicas. For a striped file, those of its worst unit.
    pub replicas: u64,
    /// Replicas that it should have.
    pub target_replicas: u64,
    /// Stores that should have it and are offline or do not have it yet.
    pub stores: Vec<String>,
    /// The locations of these stores, as far as they are known.
    #[serde(default)]
    pub locations: Vec<String>,
}

/// The numbers of under-replicated files.
#[derive(Clone, Copy, Default)]
pub(super) struct ShortFiles {
    pub(super) all: Counted,
    /// Those with exactly one readable replica.
    pub(super) single_copy: Counted,
    /// Those that nobody can read now.
    pub(super) unreadable: Counted,
}

/// The position at which a search continues.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct MissingAfter {
    group: u64,
    /// The last object of that group.
    object: u64,
}

/// A page of under-replicated files.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MissingPage {
    /// The files.
    pub files: Vec<UnderReplicatedFile>,
    /// Where to continue; `None` after the last page.
    pub next: Option<MissingAfter>,
}

/// Which objects of a group to examine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Through {
    /// All its objects: one of its stores is offline.
    All,
    /// Only the missing replicas.
    MissingReplica,
}

/// A file as the namespace has it.
pub(super) struct Candidate {
    pub(super) path: String,
    pub(super) len: u64,
    /// The file is striped: its parts are its units.
    is_striped: bool,
    pub(super) parts: Vec<Part>,
}

/// An object, or a unit of a striped one.
pub(super) struct Part {
    group: Group,
    pub(super) holders: Vec<StoreId>,
}

/// What a part misses.
struct Found {
    state: ReplicationState,
    copies: usize,
    of: usize,
    /// Stores that should have it and cannot show it.
    without: BTreeSet<StoreId>,
}

impl Views {
    /// A page of under-replicated files, after `after`. With `unreadable`, only files that nobody can read now. Files that are being written for the
    /// first time are left out: their writer still takes care of them.
    pub(crate) fn missing(&self, after: Option<MissingAfter>, unreadable: bool) -> Result<MissingPage, NsError> {
        let mut files = Vec::new();
        let mut left = LOOKED_MAX;
        // Start with striped files, which are in a group of their own without stores.
        let mut at = after.unwrap_or(MissingAfter { group: GroupId::STRIPED.0, object: 0 });
        loop {
            let group = GroupId(at.group);
            let last = self.look_through(group, ObjectId(at.object), &mut left, |file| {
                if !unreadable || file.state > ReplicationState::UnderReplicated {
                    files.push(file);
                }
            })?;
            if let Some(last) = last {
                return Ok(MissingPage { files, next: Some(MissingAfter { object: last.0, ..at }) });
            }
            let Some(next) = self.next_group(group) else { return Ok(MissingPage { files, next: None }) };
            at = MissingAfter { group: next.0, object: 0 };
            left = left.saturating_sub(1);
            if left == 0 {
                return Ok(MissingPage { files, next: Some(at) });
            }
        }
    }

    /// Counts the files that [`Self::missing`] lists. Examines a bounded number of objects.
    pub(super) fn count_short_files(&self) -> Result<ShortFiles, NsError> {
        let mut found = ShortFiles::default();
        let mut after = None;
        for _ in 0..PAGES_COUNTED {
            let page = self.missing(after, false)?;
            for file in &page.files {
                found.all.count += 1;
                found.unreadable.count += u64::from(file.state > ReplicationState::UnderReplicated);
                found.single_copy.count += u64::from(file.replicas == 1);
            }
            after = page.next;
            if after.is_none() {
                return Ok(found);
            }
        }
        // What is left may have none.
        found.all.and_more = true;
        for counted in [&mut found.single_copy, &mut found.unreadable] {
            counted.and_more = counted.count > 0;
        }
        Ok(found)
    }

    /// The group after this one. The group of striped files comes first.
    fn next_group(&self, group: GroupId) -> Option<GroupId> {
        let groups = self.coordinator.groups();
        let after = if group == GroupId::STRIPED { Bound::Unbounded } else { Bound::Excluded(group) };
        groups.all().range((after, Bound::Excluded(GroupId::STRIPED))).next().map(|(number, _)| *number)
    }

    /// The number of groups with an offline store, and of those, the number without any online store.
    pub(super) fn under_replicated_groups(&self, view: &ClusterView, now: Time) -> (u64, u64) {
        let (mut under_replicated, mut without) = (0, 0);
        let stores = self.stores_there(view, now);
        for group in self.coordinator.groups().all().values().filter(|group| !group.members.is_empty()) {
            let there = group.members.iter().filter(|member| stores.contains(&member.store)).count();
            under_replicated += u64::from(there < group.members.len());
            without += u64::from(there == 0);
        }
        (under_replicated, without)
    }

    /// The online stores. They may belong to thousands of groups.
    pub(super) fn stores_there(&self, view: &ClusterView, now: Time) -> BTreeSet<StoreId> {
        let stores = view.servers.map().stores().iter().map(|info| info.store);
        stores.filter(|store| view.can_show(&*self.world, now, *store)).collect()
    }

    /// Examines the objects of a group after `after`. Returns the last one examined, unless it reached the end.
    fn look_through(
        &self,
        number: GroupId,
        after: ObjectId,
        left: &mut usize,
        mut found: impl FnMut(UnderReplicatedFile),
    ) -> Result<Option<ObjectId>, NsError> {
        let through = match number {
            GroupId::STRIPED => Through::All,
            _ => {
                let (view, now) = (self.view.get(), self.world.now());
                let Some(group) = self.coordinator.groups().all().get(&number).cloned() else { return Ok(None) };
                match group.members.iter().all(|member| view.can_show(&*self.world, now, member.store)) {
                    true => Through::MissingReplica,
                    false => Through::All,
                }
            }
        };
        let (candidates, last) = self.names.read_once(|read| {
            let (objects, looked, last) = match through {
                Through::All => {
                    let objects = namespace::objects(read, number, Some(after), *left)?;
                    let (looked, last) = (objects.len(), objects.last().map(|last| last.object));
                    (objects.into_iter().map(Some).collect::<Vec<_>>(), looked, last)
                }
                Through::MissingReplica => {
                    let missing = namespace::missing(read, number, Some(after), *left)?;
                    // A hidden upload has no object record.
                    let records = missing.iter().map(|(object, _)| namespace::object_record(read, number, *object));
                    (records.collect::<Result<_, _>>()?, missing.len(), missing.last().map(|(object, _)| *object))
                }
            };
            let last = last.filter(|_| looked >= *left);
            *left = left.saturating_sub(looked);
            let candidates = objects.iter().flatten().filter_map(|record| candidate(read, record).transpose());
            Ok::<_, NsError>((candidates.collect::<Result<Vec<_>, _>>()?, last))
        })?;
        let view = self.view.get();
        let there = self.stores_there(&view, self.world.now());
        candidates.into_iter().filter_map(|candidate| candidate.judged(&view, &there)).for_each(&mut found);
        Ok(last)
    }
}

impl Candidate {
    /// The file, if it is under-replicated.
    fn judged(self, view: &ClusterView, there: &BTreeSet<StoreId>) -> Option<UnderReplicatedFile> {
        let Self { path, len, is_striped, parts } = self;
        let can_show = |store: StoreId| there.contains(&store);
        let is_removed_as_lost = |store: StoreId| view.servers.is_removed_as_lost(store);
        let short: Vec<(u8, Found)> = (0..)
            .zip(&parts)
            .filter_map(|(number, part)| Some((number, shortage(part, can_show, is_removed_as_lost)?)))
            .collect();
        let units = short.iter().map(|(number, _)| *number).filter(|_| is_striped).collect();
        let found = short.into_iter().map(|(_, found)| found).reduce(Found::and)?;
        Some(UnderReplicatedFile {
            path,
            len,
            state: found.state,
            units,
            replicas: found.copies as u64,
            target_replicas: found.of as u64,
            stores: found.without.iter().map(|store| view.servers.shown(*store)).collect(),
            locations: {
                let location = |store: &StoreId| Some(view.servers.map().store(*store)?.location.to_string());
                found.without.iter().filter_map(location).collect()
            },
        })
    }
}

/// The file of an object, if it has a name and is not being written for the first time.
pub(super) fn candidate(read: &dyn Read, record: &ObjectRecord) -> Result<Option<Candidate>, NsError> {
    let inode = namespace::stat_ino(read, record.ino)?;
    let content = inode.content().copied().filter(|content| content.object == record.object);
    let Some(content) = content.filter(|content| !matches!(content.state, FileState::Open(_))) else {
        return Ok(None);
    };
    let path = match namespace::path_of(read, record.ino) {
        Ok(path) => path.escape_ascii().to_string(),
        // Either a unit, which is examined with its file, or a removed file that some client still has open.
        Err(NsError::NotFound(..)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let is_striped = content.group == GroupId::STRIPED;
    let units = if is_striped { namespace::units_of(read, content.object)?.1 } else { vec![inode] };
    let parts = units.iter().filter_map(Inode::content).filter_map(|content| part(read, content).transpose());
    Ok(Some(Candidate { path, len: content.len, is_striped, parts: parts.collect::<Result<_, _>>()? }))
}

/// The path of an object's file, for people. A stripe unit has no path.
pub(crate) fn name_of(read: &dyn Read, record: &ObjectRecord) -> Result<String, NsError> {
    match namespace::path_of(read, record.ino) {
        Ok(path) => Ok(path.escape_ascii().to_string()),
        Err(NsError::NotFound(..)) => Ok(format!("a stripe unit, object {:016x}", record.object.0)),
        Err(error) => Err(error),
    }
}

fn part(read: &dyn Read, content: &Content) -> Result<Option<Part>, NsError> {
    let Some(group) = namespace::group(read, content.group)? else { return Ok(None) };
    let holders = match content.state {
        // The in-sync replicas have the object. The other stores get it afterwards.
        FileState::Open(by) | FileState::Updating(by) => namespace::writer_of(read, by, content.object)?
            .map(|writer| writer.placement.in_sync.iter().map(|one| one.store).collect())
            .unwrap_or_default(),
        FileState::Complete | FileState::Interrupted(_) => namespace::holders(read, group.group, content.object)?,
    };
    Ok(Some(Part { group, holders }))
}

impl Found {
    /// Combines two units of a file.
    fn and(self, other: Self) -> Self {
        let without = self.without.iter().chain(&other.without).copied().collect();
        let worse = if (self.state, other.copies) >= (other.state, self.copies) { self } else { other };
        Self { without, ..worse }
    }
}

fn shortage(
    part: &Part,
    can_show: impl Fn(StoreId) -> bool,
    is_removed_as_lost: impl Fn(StoreId) -> bool,
) -> Option<Found> {
    let Part { group, holders } = part;
    let there = holders.iter().filter(|store| can_show(**store)).count();
    let of = group.members.iter().filter(|member| !member.is_leaving()).count();
    let state = match there {
        0 if holders.iter().all(|store| is_removed_as_lost(*store)) => ReplicationState::Lost,
        0 => ReplicationState::Unavailable,
        _ if there < of => ReplicationState::UnderReplicated,
        _ => return None,
    };
    let has = |store: StoreId| holders.contains(&store) && can_show(store);
    let without = group.members.iter().map(|member| member.store).filter(|store| !has(*store)).collect();
    Some(Found { state, copies: there, of, without })
}

#[cfg(test)]
mod tests {
    use types::Member;

    use super::*;

    fn state_of(
        members: &[u64],
        holders: &[u64],
        there: &[u64],
        removed_as_lost: &[u64],
    ) -> Option<(ReplicationState, usize, usize)> {
        let member = |store: &u64| Member { store: StoreId(*store), since: ObjectId(1), through: ObjectId(0) };
        let group = Group { group: GroupId(2), epoch: 1, members: members.iter().map(member).collect() };
        let holders: Vec<StoreId> = holders.iter().map(|store| StoreId(*store)).collect();
        let part = Part { group, holders };
        let found = shortage(&part, |store| there.contains(&store.0), |store| removed_as_lost.contains(&store.0))?;
        assert!(found.without.iter().all(|store| !(part.holders.contains(store) && there.contains(&store.0))));
        Some((found.state, found.copies, found.of))
    }

    #[test]
    fn state_depends_on_holders_and_online_stores() {
        assert_eq!(state_of(&[1, 2], &[1, 2], &[1, 2], &[]), None);
        assert_eq!(
            state_of(&[1, 2], &[1], &[1, 2], &[]),
            Some((ReplicationState::UnderReplicated, 1, 2)),
            "one replica is missing"
        );
        assert_eq!(
            state_of(&[1, 2], &[1, 2], &[2], &[]),
            Some((ReplicationState::UnderReplicated, 1, 2)),
            "one is away"
        );
        assert_eq!(
            state_of(&[1, 2], &[1], &[2], &[]),
            Some((ReplicationState::Unavailable, 0, 2)),
            "the one that has it is"
        );
        assert_eq!(state_of(&[1, 2], &[1], &[2], &[1]), Some((ReplicationState::Lost, 0, 2)));
        assert_eq!(
            state_of(&[1, 2], &[1, 2], &[], &[1]),
            Some((ReplicationState::Unavailable, 0, 2)),
            "the other one may come back"
        );
        assert_eq!(state_of(&[1], &[], &[1], &[]), Some((ReplicationState::Lost, 0, 1)), "nobody has it");
    }

    #[test]
    fn a_striped_file_has_the_state_of_its_worst_unit() {
        let unit = |state, copies, store| Found { state, copies, of: 2, without: [StoreId(store)].into() };
        for (one, other) in [(0, 1), (1, 0)].map(|(a, b)| {
            let both = [(ReplicationState::UnderReplicated, 1, 5), (ReplicationState::Unavailable, 0, 6)];
            (both[a], both[b])
        }) {
            let both = unit(one.0, one.1, one.2).and(unit(other.0, other.1, other.2));
            assert_eq!((both.state, both.copies, both.without.len()), (ReplicationState::Unavailable, 0, 2));
        }
        let both = unit(ReplicationState::UnderReplicated, 2, 5).and(unit(ReplicationState::UnderReplicated, 1, 5));
        assert_eq!((both.copies, both.without.len()), (1, 1));
    }
}
