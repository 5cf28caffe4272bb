//! Finds the lost objects that no inventory shows: all stores that should have them are removed as lost and offline, or there is no such store.

use namespace::{NsError, Read};
use types::{GroupId, ObjectId, StoreId};

use super::names_range::path_of_object;

/// Objects of a group that are read at a time.
const PAGE: usize = 256;

/// A lost object.
pub(super) struct Gone {
    pub(super) object: ObjectId,
    /// The first store that should have it, if there is one.
    pub(super) store: Option<StoreId>,
    /// The path of its file, if it has one.
    pub(super) path: Option<Vec<u8>>,
}

/// Some objects of a group.
#[derive(Default)]
pub(super) struct GonePage {
    pub(super) lost: Vec<Gone>,
    /// The last object that was looked at; `None`: there is no more.
    pub(super) end: Option<ObjectId>,
}

impl GonePage {
    /// Looks at the next objects of a group. `is_gone`: a store is removed as lost and offline.
    pub(super) fn read(
        read: &dyn Read,
        group: GroupId,
        after: Option<ObjectId>,
        is_gone: impl Fn(StoreId) -> bool,
    ) -> Result<Self, NsError> {
        let Some(found) = namespace::group(read, group)? else { return Ok(Self::default()) };
        // Such a member has all objects without missing replicas.
        let has_lasting = found.members.iter().any(|member| member.is_current() && !is_gone(member.store));
        let objects: Vec<ObjectId> = if has_lasting {
            namespace::missing(read, group, after, PAGE)?.into_iter().map(|(object, _)| object).collect()
        } else {
            namespace::objects(read, group, after, PAGE)?.into_iter().map(|record| record.object).collect()
        };
        let mut page = Self { lost: Vec::new(), end: objects.last().copied().filter(|_| objects.len() == PAGE) };
        for object in objects {
            // An upload without a name belongs to its client, and an open write to its writer.
            let is_named = namespace::object_record(read, group, object)?.is_some();
            if !is_named || namespace::at_rest(read, group, object)?.is_none() {
                continue;
            }
            let holders = namespace::holders(read, group, object)?;
            if holders.iter().all(|store| is_gone(*store)) {
                let path = path_of_object(read, group, object)?;
                page.lost.push(Gone { object, store: holders.into_iter().min(), path });
            }
        }
        Ok(page)
    }
}
