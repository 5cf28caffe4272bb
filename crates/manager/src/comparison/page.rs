//! Compares one page of a store's replicas with the names.

use std::collections::{BTreeMap, BTreeSet};

use namespace::{NsError, Read};
use node::{StoredReplica, StoredState};
use types::{Group, GroupId, Incarnation, ObjectId, StoreId};

use crate::views::name_of;

/// Records read at a time.
const PAGE: usize = 512;

/// A page of a store's replicas.
pub(super) struct Page<'a> {
    pub(super) store: StoreId,
    /// It begins after this object.
    pub(super) after: Option<ObjectId>,
    /// It has all replicas up to this object; `None`: all that follow.
    pub(super) upto: Option<ObjectId>,
    pub(super) replicas: &'a [StoredReplica],
}

/// Stores that do not have an object as the names say. `true`: they have another version of it.
pub(super) type Stores = BTreeMap<StoreId, bool>;

/// What disagrees.
pub(super) struct Disagreements {
    /// Of the restored namespace. What has it was made since the restore.
    incarnation: Incarnation,
    /// The most disagreements of each kind that are kept in memory.
    keep: usize,
    /// Objects from here on were made since the restore.
    objects: ObjectId,
    /// Objects that other records name.
    named: Named,
    replicas: BTreeMap<(GroupId, ObjectId), Stores>,
    /// How many of these were found changed first, and how many absent.
    kept: [usize; 2],
    /// Objects that no store has which should, with their groups, and a store that has them nevertheless.
    elsewhere: BTreeMap<ObjectId, (GroupId, Option<StoreId>)>,
    /// Complete objects of writes that had not ended when the backup was taken, with a store that has each.
    finished: BTreeMap<ObjectId, (StoreId, StoredReplica)>,
    extra: Vec<(StoreId, StoredReplica)>,
    extra_sum: (u64, u64),
    and_more: bool,
    has_more_absent: bool,
}

/// Objects that other records than those of the groups name.
#[derive(Default)]
pub(super) struct Named {
    /// New objects whose write had not ended when the backup was taken, and kept uploads, with the path as the client gave it.
    pub(super) written: BTreeMap<ObjectId, Vec<u8>>,
    /// Others.
    pub(super) others: BTreeSet<ObjectId>,
}

impl Named {
    fn contains(&self, object: ObjectId) -> bool {
        self.written.contains_key(&object) || self.others.contains(&object)
    }
}

impl Disagreements {
    pub(super) fn new(incarnation: Incarnation, objects: ObjectId, named: Named, keep: usize) -> Self {
        Self {
            incarnation,
            keep,
            objects,
            named,
            replicas: BTreeMap::new(),
            kept: [0; 2],
            elsewhere: BTreeMap::new(),
            finished: BTreeMap::new(),
            extra: Vec::new(),
            extra_sum: (0, 0),
            and_more: false,
            has_more_absent: false,
        }
    }

    /// Objects, and the stores that do not have them as the names say.
    pub(super) fn replicas(&self) -> &BTreeMap<(GroupId, ObjectId), Stores> {
        &self.replicas
    }

    /// The first replicas without a name.
    pub(super) fn extra(&self) -> &[(StoreId, StoredReplica)] {
        &self.extra
    }

    /// The number of replicas without a name, and their bytes.
    pub(super) fn extra_sum(&self) -> (u64, u64) {
        self.extra_sum
    }

    /// Whether not all were kept.
    pub(super) fn and_more(&self) -> bool {
        self.and_more
    }

    /// Whether stores lack objects that were not kept.
    pub(super) fn has_more_absent(&self) -> bool {
        self.has_more_absent
    }

    /// No store has these objects which should. [`look_elsewhere`] looks for them on the others.
    pub(super) fn seek(&mut self, objects: impl Iterator<Item = (GroupId, ObjectId)>) {
        self.elsewhere = objects.map(|(group, object)| (object, (group, None))).collect();
    }

    /// A store that has this object, although the names do not know that.
    pub(super) fn elsewhere(&self, object: ObjectId) -> Option<StoreId> {
        self.elsewhere.get(&object).and_then(|(_, store)| *store)
    }

    /// Complete objects of writes that had not ended when the backup was taken: a store that has each, and the path of its file.
    pub(super) fn finished(&self) -> impl ExactSizeIterator<Item = (&(StoreId, StoredReplica), &[u8])> {
        self.finished.iter().map(|(object, at)| (at, self.named.written.get(object).map_or(&[][..], |path| path)))
    }

    fn add(&mut self, at: (GroupId, ObjectId), store: StoreId, is_changed: bool) {
        if !self.replicas.contains_key(&at) {
            let kept = &mut self.kept[usize::from(!is_changed)];
            if *kept >= self.keep {
                self.and_more = true;
                self.has_more_absent |= !is_changed;
                return;
            }
            *kept += 1;
        }
        self.replicas.entry(at).or_default().insert(store, is_changed);
    }

    fn add_extra(&mut self, store: StoreId, replica: StoredReplica) {
        self.extra_sum.0 += 1;
        self.extra_sum.1 = self.extra_sum.1.saturating_add(replica.state.bytes());
        if self.extra.len() < self.keep {
            self.extra.push((store, replica));
        }
    }
}

/// Compares a page with the records of `groups`, which are all groups of the cluster.
pub(super) fn compare_page(
    read: &dyn Read,
    groups: &[Group],
    page: &Page<'_>,
    found: &mut Disagreements,
) -> Result<(), NsError> {
    let mut left: BTreeMap<ObjectId, StoredReplica> =
        page.replicas.iter().map(|one| (one.replica.object, *one)).collect();
    for group in groups {
        let Some(member) = group.members.iter().find(|member| member.store == page.store) else { continue };
        let mut after = page.after;
        loop {
            let records = namespace::objects(read, group.group, after, PAGE)?;
            let in_page = |object: ObjectId| page.upto.is_none_or(|upto| object <= upto);
            for record in records.iter().take_while(|record| in_page(record.object)) {
                let object = record.object;
                let stored = left.remove(&object);
                let missing = namespace::missing_of(read, group.group, object)?;
                if !member.has(object) || object >= found.objects {
                    continue;
                }
                let is_missing = missing.contains(&page.store);
                match stored {
                    // A replica that lags behind is missing too, and is nothing new.
                    Some(stored) if is_missing => {
                        if differs(read, group.group, &stored)? && !lags(read, group.group, &stored)? {
                            found.add((group.group, object), page.store, true);
                        }
                    }
                    None if is_missing => {}
                    None => found.add((group.group, object), page.store, false),
                    Some(stored) if differs(read, group.group, &stored)? => {
                        found.add((group.group, object), page.store, true);
                    }
                    Some(_) => {}
                }
            }
            after = records.last().map(|last| last.object);
            if records.len() < PAGE || after.is_some_and(|last| !in_page(last)) {
                break;
            }
        }
    }
    for stored in left.into_values() {
        let object = stored.replica.object;
        // Made since the restore, and perhaps just now.
        if stored.incarnation >= found.incarnation {
            continue;
        }
        if found.named.contains(object) {
            // Its client was told that it is complete, or nearly so: the file of the name may be this one.
            if found.named.written.contains_key(&object) && matches!(stored.state, StoredState::Whole(_)) {
                found.finished.entry(object).or_insert((page.store, stored));
            }
            continue;
        }
        if !is_of_another_group(read, groups, object)? {
            found.add_extra(page.store, stored);
        }
    }
    Ok(())
}

/// Whether a store has another version of an object than the names say.
fn differs(read: &dyn Read, group: GroupId, stored: &StoredReplica) -> Result<bool, NsError> {
    let at_rest = namespace::at_rest(read, group, stored.replica.object)?;
    // An object with an open write is not judged.
    Ok(at_rest.is_some_and(|at_rest| match at_rest.sums {
        Some(sums) => match stored.state {
            StoredState::Whole(whole) => (whole.len, whole.crc32c) != (at_rest.len, sums.crc32c),
            StoredState::Kept(_) | StoredState::Written(_) => true,
        },
        // Only a write that ended after the backup completes a file that was not complete.
        None if !at_rest.is_whole && matches!(stored.state, StoredState::Whole(_)) => true,
        None => stored.state.bytes() < at_rest.len,
    }))
}

/// Whether a store has an incomplete replica that is shorter than the names say.
fn lags(read: &dyn Read, group: GroupId, stored: &StoredReplica) -> Result<bool, NsError> {
    let at_rest = namespace::at_rest(read, group, stored.replica.object)?;
    let is_short = at_rest.is_some_and(|at_rest| stored.state.bytes() < at_rest.len);
    Ok(is_short && !matches!(stored.state, StoredState::Whole(_)))
}

/// Looks in a page for objects that no store has which should.
pub(super) fn look_elsewhere(read: &dyn Read, page: &Page<'_>, found: &mut Disagreements) -> Result<(), NsError> {
    for stored in page.replicas {
        let Some((group, store @ None)) = found.elsewhere.get_mut(&stored.replica.object) else { continue };
        let is_at_rest = namespace::at_rest(read, *group, stored.replica.object)?.is_some();
        if is_at_rest && !differs(read, *group, stored)? {
            *store = Some(page.store);
        }
    }
    Ok(())
}

/// Whether the object has a name, and its group other stores: it was moved here after the backup, or not yet deleted here before.
fn is_of_another_group(read: &dyn Read, groups: &[Group], object: ObjectId) -> Result<bool, NsError> {
    for group in groups {
        if namespace::object_record(read, group.group, object)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What becomes of a file that some stores do not have as the names say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// No store has it.
    Lost,
    /// Only this store has it, and the names do not know that: it came there after the backup.
    Elsewhere(StoreId),
    /// Stores have another version, and perhaps no store has that of the names.
    Changed,
    /// Other stores have it, or may have it.
    UnderReplicated,
}

/// A file that some stores do not have as the names say.
pub(super) struct Judged {
    pub(super) path: String,
    pub(super) len: u64,
    pub(super) fate: Fate,
}

/// Judges an object that `stores` do not have as the names say. `None`: it was removed meanwhile.
pub(super) fn judge(
    read: &dyn Read,
    group: GroupId,
    object: ObjectId,
    stores: &Stores,
    elsewhere: Option<StoreId>,
) -> Result<Option<Judged>, NsError> {
    let Some(record) = namespace::object_record(read, group, object)? else { return Ok(None) };
    let holders = namespace::holders(read, group, object)?;
    let fate = fate_of(&holders, stores, elsewhere);
    let path = name_of(read, &record)?;
    Ok(Some(Judged { path, len: record.len, fate }))
}

/// Whether no store has the object that should, although all of them were compared.
pub(super) fn is_nowhere(holders: &[StoreId], stores: &Stores) -> bool {
    holders.iter().all(|holder| stores.contains_key(holder))
}

fn fate_of(holders: &[StoreId], stores: &Stores, elsewhere: Option<StoreId>) -> Fate {
    let mut changed = stores.iter().filter(|(_, is_changed)| **is_changed);
    if !is_nowhere(holders, stores) {
        // A store that should miss it has another version, perhaps a later one.
        let is_changed = changed.any(|(store, _)| !holders.contains(store));
        return if is_changed { Fate::Changed } else { Fate::UnderReplicated };
    }
    match elsewhere {
        Some(store) => Fate::Elsewhere(store),
        None if changed.next().is_some() => Fate::Changed,
        None => Fate::Lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_lost_only_if_every_holder_was_compared_and_lacks_it() {
        let stores = |list: &[(u64, bool)]| list.iter().map(|(store, is)| (StoreId(*store), *is)).collect::<Stores>();
        let holders = [1, 2].map(StoreId);
        let fate_of = |list: &[(u64, bool)], elsewhere| fate_of(&holders, &stores(list), elsewhere);
        assert_eq!(fate_of(&[(1, false), (2, false)], None), Fate::Lost);
        assert_eq!(fate_of(&[(1, false), (2, true)], None), Fate::Changed);
        assert_eq!(fate_of(&[(1, false)], None), Fate::UnderReplicated, "the other has it, or is offline");
        assert_eq!(fate_of(&[(1, true)], None), Fate::UnderReplicated);
        assert_eq!(fate_of(&[(3, true)], None), Fate::Changed, "a store that should miss it has another version");
        let elsewhere = Some(StoreId(4));
        assert_eq!(fate_of(&[(1, false), (2, true)], elsewhere), Fate::Elsewhere(StoreId(4)));
        assert_eq!(fate_of(&[(1, false)], elsewhere), Fate::UnderReplicated);
    }
}
