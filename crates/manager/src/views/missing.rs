//! Files that lack copies, or of which nothing can be read: what an administrator has to know after a disk was lost. Looked for page by page, only
//! in groups of which a store is gone or owed something; nothing is decided here.

use std::collections::BTreeSet;
use std::ops::Bound;

use cluster::Time;
use namespace::{Content, FileState, Inode, NsError, ObjectRecord, Read};
use serde::{Deserialize, Serialize};
use types::{Group, GroupId, ObjectId, StoreId};

use crate::Manager;
use crate::coordinator::ClusterView;

/// Contents that are looked at for one answer, and groups that are passed over.
const LOOKED_MAX: usize = 512;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shortage {
    /// It can be read, and has fewer copies than it should have.
    Copies,
    /// No store that is there has it; one that may come back does.
    Away,
    /// All stores that had it were given up for good.
    Lost,
}

/// A file that lacks something.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MissingFile {
    /// Its path; of several the first. Bytes that are no text are escaped.
    pub path: String,
    /// Length in bytes.
    pub len: u64,
    /// What it lacks; of a striped one what its worst unit does.
    pub lacks: Shortage,
    /// Of a striped one: which units lack something.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<u8>,
    /// Copies that can be read. Of a striped one those of its worst unit.
    pub copies: u64,
    /// Copies that there should be.
    pub of: u64,
    /// Stores that should have it, and either are not there or have not got it yet.
    pub stores: Vec<String>,
}

/// Where a look for such files goes on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct MissingAfter {
    group: u64,
    /// Of that group; behind it.
    object: u64,
}

/// Some of them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MissingPage {
    /// The files.
    pub files: Vec<MissingFile>,
    /// Where to go on; `None`: there are no more.
    pub next: Option<MissingAfter>,
}

/// What is to be looked through of a group.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Through {
    /// All that it has: one of its stores is not there.
    All,
    /// What is owed.
    MissingReplica,
}

/// A file as the namespace has it.
struct Candidate {
    path: String,
    len: u64,
    /// It is dealt out: the parts are its units.
    is_striped: bool,
    parts: Vec<Part>,
}

/// A content, or a unit of one.
struct Part {
    group: Group,
    holders: Vec<StoreId>,
}

/// What a part lacks.
struct Found {
    lacks: Shortage,
    copies: usize,
    of: usize,
    /// Who should have it and cannot show it.
    without: BTreeSet<StoreId>,
}

impl Manager {
    /// Files that lack copies, from `after` on; some of them. `unreadable`: only those that nobody can read just now. What is being written for the
    /// first time is not among them: it is its writer's business still.
    ///
    /// # Errors
    /// When the namespace cannot be read.
    pub fn missing(&self, after: Option<MissingAfter>, unreadable: bool) -> Result<MissingPage, NsError> {
        let mut files = Vec::new();
        let mut left = LOOKED_MAX;
        // Striped files first, which are in a group of their own without stores.
        let mut at = after.unwrap_or(MissingAfter { group: GroupId::STRIPED.0, object: 0 });
        loop {
            let group = GroupId(at.group);
            let last = self.look_through(group, ObjectId(at.object), &mut left, |file| {
                if !unreadable || file.lacks > Shortage::Copies {
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

    /// The group after this one; that of striped files comes before all others.
    fn next_group(&self, group: GroupId) -> Option<GroupId> {
        let groups = self.coordinator.groups();
        let after = if group == GroupId::STRIPED { Bound::Unbounded } else { Bound::Excluded(group) };
        groups.all().range((after, Bound::Excluded(GroupId::STRIPED))).next().map(|(number, _)| *number)
    }

    /// How many groups lack a store that is there, and of how many of these none is.
    pub(crate) fn under_replicated_groups(&self, view: &ClusterView, now: Time) -> (u64, u64) {
        let (mut stale_replicas, mut without) = (0, 0);
        let stores = self.stores_there(view, now);
        for group in self.coordinator.groups().all().values().filter(|group| !group.members.is_empty()) {
            let there = group.members.iter().filter(|member| stores.contains(&member.store)).count();
            stale_replicas += u64::from(there < group.members.len());
            without += u64::from(there == 0);
        }
        (stale_replicas, without)
    }

    /// The stores that can show what they have. There may be thousands of groups of them.
    fn stores_there(&self, view: &ClusterView, now: Time) -> BTreeSet<StoreId> {
        let stores = view.servers.map().stores().iter().map(|info| info.store);
        stores.filter(|store| self.can_show(view, now, *store)).collect()
    }

    /// Looks through the contents of a group after `after`; says up to where, if it did not come to the end.
    fn look_through(
        &self,
        number: GroupId,
        after: ObjectId,
        left: &mut usize,
        mut found: impl FnMut(MissingFile),
    ) -> Result<Option<ObjectId>, NsError> {
        let through = match number {
            GroupId::STRIPED => Through::All,
            _ => {
                let (view, now) = (self.view(), self.world.now());
                let Some(group) = self.coordinator.groups().all().get(&number).cloned() else { return Ok(None) };
                match group.members.iter().all(|member| self.can_show(&view, now, member.store)) {
                    true => Through::MissingReplica,
                    false => Through::All,
                }
            }
        };
        let (candidates, last) = self.names.read(|read| {
            let (objects, looked, last) = match through {
                Through::All => {
                    let objects = namespace::objects(read, number, Some(after), *left)?;
                    let (looked, last) = (objects.len(), objects.last().map(|last| last.object));
                    (objects.into_iter().map(Some).collect::<Vec<_>>(), looked, last)
                }
                Through::MissingReplica => {
                    let missing = namespace::missing(read, number, Some(after), *left)?;
                    // A hidden upload has no record of a object.
                    let records = missing.iter().map(|(object, _)| namespace::object_record(read, number, *object));
                    (records.collect::<Result<_, _>>()?, missing.len(), missing.last().map(|(object, _)| *object))
                }
            };
            let last = last.filter(|_| looked >= *left);
            *left = left.saturating_sub(looked);
            let candidates = objects.iter().flatten().filter_map(|record| candidate(read, record).transpose());
            Ok::<_, NsError>((candidates.collect::<Result<Vec<_>, _>>()?, last))
        })?;
        let view = self.view();
        let there = self.stores_there(&view, self.world.now());
        candidates.into_iter().filter_map(|candidate| candidate.judged(&view, &there)).for_each(&mut found);
        Ok(last)
    }
}

impl Candidate {
    /// What it lacks, if anything.
    fn judged(self, view: &ClusterView, there: &BTreeSet<StoreId>) -> Option<MissingFile> {
        let Self { path, len, is_striped, parts } = self;
        let can_show = |store: StoreId| there.contains(&store);
        let is_removed_as_lost = |store: StoreId| view.servers.is_removed_as_lost(store);
        let stale_replicas: Vec<(u8, Found)> = (0..)
            .zip(&parts)
            .filter_map(|(number, part)| Some((number, lack(part, can_show, is_removed_as_lost)?)))
            .collect();
        let units = stale_replicas.iter().map(|(number, _)| *number).filter(|_| is_striped).collect();
        let found = stale_replicas.into_iter().map(|(_, found)| found).reduce(Found::and)?;
        Some(MissingFile {
            path,
            len,
            lacks: found.lacks,
            units,
            copies: found.copies as u64,
            of: found.of as u64,
            stores: found.without.iter().map(|store| view.servers.shown(*store)).collect(),
        })
    }
}

/// The file of a object, if it has a name and is not written for the first time.
fn candidate(read: &dyn Read, record: &ObjectRecord) -> Result<Option<Candidate>, NsError> {
    let inode = namespace::stat_ino(read, record.ino)?;
    let content = inode.content().copied().filter(|content| content.object == record.object);
    let Some(content) = content.filter(|content| !matches!(content.state, FileState::Open(_))) else {
        return Ok(None);
    };
    let path = match namespace::path_of(read, record.ino) {
        Ok(path) => path.escape_ascii().to_string(),
        // A unit: its file is looked at as a whole. Or it was removed, and who has it open is all that keeps it.
        Err(NsError::NotFound(..)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let is_striped = content.group == GroupId::STRIPED;
    let units = if is_striped { namespace::units_of(read, content.object)?.1 } else { vec![inode] };
    let parts = units.iter().filter_map(Inode::content).filter_map(|content| part(read, content).transpose());
    Ok(Some(Candidate { path, len: content.len, is_striped, parts: parts.collect::<Result<_, _>>()? }))
}

fn part(read: &dyn Read, content: &Content) -> Result<Option<Part>, NsError> {
    let Some(group) = namespace::group(read, content.group)? else { return Ok(None) };
    let holders = match content.state {
        // Those that take part in the change have it; the others get it afterwards.
        FileState::Open(by) | FileState::Updating(by) => namespace::writer_of(read, by, content.object)?
            .map(|writer| writer.placement.in_sync.iter().map(|one| one.store).collect())
            .unwrap_or_default(),
        FileState::Complete | FileState::Interrupted(_) => namespace::holders(read, group.group, content.object)?,
    };
    Ok(Some(Part { group, holders }))
}

impl Found {
    /// Two units of a file.
    fn and(self, other: Self) -> Self {
        let without = self.without.iter().chain(&other.without).copied().collect();
        let worse = if (self.lacks, other.copies) >= (other.lacks, self.copies) { self } else { other };
        Self { without, ..worse }
    }
}

fn lack(
    part: &Part,
    can_show: impl Fn(StoreId) -> bool,
    is_removed_as_lost: impl Fn(StoreId) -> bool,
) -> Option<Found> {
    let Part { group, holders } = part;
    let there = holders.iter().filter(|store| can_show(**store)).count();
    let of = group.members.iter().filter(|member| !member.is_leaving()).count();
    let lacks = match there {
        0 if holders.iter().all(|store| is_removed_as_lost(*store)) => Shortage::Lost,
        0 => Shortage::Away,
        _ if there < of => Shortage::Copies,
        _ => return None,
    };
    let has = |store: StoreId| holders.contains(&store) && can_show(store);
    let without = group.members.iter().map(|member| member.store).filter(|store| !has(*store)).collect();
    Some(Found { lacks, copies: there, of, without })
}

#[cfg(test)]
mod tests {
    use types::Member;

    use super::*;

    fn lack_of(
        members: &[u64],
        holders: &[u64],
        there: &[u64],
        removed_as_lost: &[u64],
    ) -> Option<(Shortage, usize, usize)> {
        let member = |store: &u64| Member { store: StoreId(*store), since: ObjectId(1), through: ObjectId(0) };
        let group = Group { group: GroupId(2), epoch: 1, members: members.iter().map(member).collect() };
        let holders: Vec<StoreId> = holders.iter().map(|store| StoreId(*store)).collect();
        let part = Part { group, holders };
        let found = lack(&part, |store| there.contains(&store.0), |store| removed_as_lost.contains(&store.0))?;
        assert!(found.without.iter().all(|store| !(part.holders.contains(store) && there.contains(&store.0))));
        Some((found.lacks, found.copies, found.of))
    }

    #[test]
    fn what_a_content_lacks_is_by_who_has_it_and_who_is_there() {
        assert_eq!(lack_of(&[1, 2], &[1, 2], &[1, 2], &[]), None);
        assert_eq!(lack_of(&[1, 2], &[1], &[1, 2], &[]), Some((Shortage::Copies, 1, 2)), "owed");
        assert_eq!(lack_of(&[1, 2], &[1, 2], &[2], &[]), Some((Shortage::Copies, 1, 2)), "one is away");
        assert_eq!(lack_of(&[1, 2], &[1], &[2], &[]), Some((Shortage::Away, 0, 2)), "the one that has it is");
        assert_eq!(lack_of(&[1, 2], &[1], &[2], &[1]), Some((Shortage::Lost, 0, 2)));
        assert_eq!(lack_of(&[1, 2], &[1, 2], &[], &[1]), Some((Shortage::Away, 0, 2)), "the other one may come back");
        assert_eq!(lack_of(&[1], &[], &[1], &[]), Some((Shortage::Lost, 0, 1)), "nobody has it");
    }

    #[test]
    fn a_striped_file_lacks_what_its_worst_unit_does() {
        let unit = |lacks, copies, store| Found { lacks, copies, of: 2, without: [StoreId(store)].into() };
        for (one, other) in [(0, 1), (1, 0)].map(|(a, b)| {
            let both = [(Shortage::Copies, 1, 5), (Shortage::Away, 0, 6)];
            (both[a], both[b])
        }) {
            let both = unit(one.0, one.1, one.2).and(unit(other.0, other.1, other.2));
            assert_eq!((both.lacks, both.copies, both.without.len()), (Shortage::Away, 0, 2));
        }
        let both = unit(Shortage::Copies, 2, 5).and(unit(Shortage::Copies, 1, 5));
        assert_eq!((both.copies, both.without.len()), (1, 1));
    }
}
