//! What the namespace says about a range of objects, as far as it concerns one store.

use std::collections::{BTreeMap, BTreeSet};

use cluster::message::Original;
use cluster::replication::ObjectDigest;
use namespace::{AtRest, NsError, ObjectRecord, Read, Sums};
use types::{ErrorCode, GroupId, ObjectId, StoreId, UploadId};

/// Objects of one group that are read at a time.
const PAGE: usize = 256;

/// A replica that the namespace counts on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Expected {
    /// The group of its object.
    pub(super) group: GroupId,
    /// The version that it must have.
    pub(super) original: Original,
    /// Changes with every write to the object.
    state: u32,
    /// All stores that should have the object.
    pub(super) holders: Vec<StoreId>,
}

/// See the module.
#[derive(Default)]
pub(super) struct NamesRange {
    /// The replicas that the store must have.
    pub(super) expected: BTreeMap<ObjectId, Expected>,
    /// Objects of the store's groups that it may or may not have now: missing replicas, and objects with an open write.
    pub(super) others: BTreeSet<ObjectId>,
    /// The last object of the range. `None`: it has no end.
    pub(super) end: Option<ObjectId>,
}

impl NamesRange {
    /// Reads the objects after `after` up to `end`, or to an earlier end: a group may have too many objects for one page.
    pub(super) fn read(
        read: &dyn Read,
        store: StoreId,
        groups: &[GroupId],
        after: Option<ObjectId>,
        mut end: Option<ObjectId>,
    ) -> Result<Self, NsError> {
        let mut records: Vec<ObjectRecord> = Vec::new();
        for group in groups {
            let page = namespace::objects(read, *group, after, PAGE)?;
            if let Some(last) = page.last().filter(|_| page.len() == PAGE) {
                end = Some(end.map_or(last.object, |end| end.min(last.object)));
            }
            records.extend(page.into_iter().filter(|record| end.is_none_or(|end| record.object <= end)));
        }
        let mut this = Self { end, ..Self::default() };
        for record in records.iter().filter(|record| end.is_none_or(|end| record.object <= end)) {
            this.take(read, store, record)?;
        }
        Ok(this)
    }

    /// Reads these objects.
    pub(super) fn of(
        read: &dyn Read,
        store: StoreId,
        groups: &[GroupId],
        objects: &BTreeSet<ObjectId>,
    ) -> Result<Self, NsError> {
        let mut this = Self::default();
        for object in objects {
            for group in groups {
                if let Some(record) = namespace::object_record(read, *group, *object)? {
                    this.take(read, store, &record)?;
                }
            }
        }
        Ok(this)
    }

    fn take(&mut self, read: &dyn Read, store: StoreId, record: &ObjectRecord) -> Result<(), NsError> {
        let (group, object) = (record.group, record.object);
        let at_rest = namespace::at_rest(read, group, object)?;
        let holders = namespace::holders(read, group, object)?;
        match at_rest {
            Some(AtRest { len, sums, is_whole, state, .. }) if holders.contains(&store) => {
                let original = match sums {
                    Some(Sums { crc32c, adler32 }) => Original::Whole(ObjectDigest { len, crc32c, adler32 }),
                    None => Original::Kept { len, was_whole: is_whole },
                };
                self.expected.insert(object, Expected { group, original, state, holders });
            }
            _ => _ = self.others.insert(object),
        }
        Ok(())
    }

    /// Whether two readings say the same about an object.
    pub(super) fn agrees(&self, other: &Self, object: ObjectId) -> bool {
        self.expected.get(&object) == other.expected.get(&object)
            && self.others.contains(&object) == other.others.contains(&object)
    }
}

/// The objects among `wanted` that have an open write, are kept as an upload without a name, or wait to be deleted.
pub(super) fn in_the_making(read: &dyn Read, wanted: &BTreeSet<ObjectId>) -> Result<BTreeSet<ObjectId>, NsError> {
    let mut found = BTreeSet::new();
    for object in wanted {
        if namespace::upload(read, UploadId(object.0))?.is_some() {
            found.insert(*object);
        }
    }
    let mut after = None;
    loop {
        let page = namespace::writers_page(read, after, PAGE)?;
        let written = page.writers.iter().map(|writer| writer.object);
        let damaged = page.damaged.iter().map(|((_, object), _)| *object);
        found.extend(written.chain(damaged).filter(|object| wanted.contains(object)));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let mut after = None;
    loop {
        let page = namespace::due_deletions(read, after, PAGE)?;
        found.extend(page.iter().map(|due| due.object).filter(|object| wanted.contains(object)));
        if page.len() < PAGE {
            return Ok(found);
        }
        after = page.last().copied();
    }
}

/// The path of an object's file; `None` if no name refers to it.
pub(super) fn path_of_object(read: &dyn Read, group: GroupId, object: ObjectId) -> Result<Option<Vec<u8>>, NsError> {
    let Some(record) = namespace::object_record(read, group, object)? else { return Ok(None) };
    match namespace::path_of(read, record.ino) {
        Ok(path) => Ok(Some(path)),
        Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
