//! What is lost with stores that are removed as lost: an administrator sees it before the removal. The search goes page by page and keeps sums and a
//! few names only, so that its memory does not depend on the number of files.

use std::collections::BTreeSet;

use namespace::{NsError, ObjectRecord, Read, WriterKind};
use serde::{Deserialize, Serialize};
use types::{GroupId, ObjectId, StoreId};

use super::Views;
use super::missing::{Candidate, Part, candidate};
use crate::coordinator::ClusterView;

/// Objects, or open writes, that are read at a time.
const PAGE: usize = 512;
/// The number of lost files that are named.
const NAMED_MAX: usize = 10;

/// A number of files, and their length together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FileSum {
    /// Files.
    pub files: u64,
    /// Their length in bytes; each file counts once, however many replicas it has.
    pub bytes: u64,
}

/// What depends on certain stores.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LossView {
    /// The stores, for people.
    pub stores: Vec<String>,
    /// Files whose only replicas are on these stores, or on stores that are removed as lost.
    pub lost: FileSum,
    /// The paths of the first lost files. Bytes that are not text are escaped.
    pub first_lost: Vec<String>,
    /// Files being written for the first time of which no other store has what was acknowledged.
    pub lost_writes: u64,
    /// Files with a replica there and another one on an online store. They stay readable.
    pub readable: FileSum,
    /// Files with a replica there whose other replicas are all on offline stores. They can be read when such a store returns.
    pub waiting: FileSum,
    /// Whether the stores are removed now.
    pub is_removed: bool,
}

/// What becomes of a file, the worst last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Fate {
    Readable,
    Waiting,
    Lost,
}

/// The stores of the cluster, as this question divides them.
struct Stores<'a> {
    /// The stores in question.
    leaving: &'a BTreeSet<StoreId>,
    removed: BTreeSet<StoreId>,
    online: BTreeSet<StoreId>,
}

impl Stores<'_> {
    /// The fate of an object with these holders; `None`: it does not depend on the stores in question.
    fn fate(&self, holders: &[StoreId]) -> Option<Fate> {
        if !holders.iter().any(|store| self.leaving.contains(store)) {
            return None;
        }
        let stays = |store: &&StoreId| !self.leaving.contains(store) && !self.removed.contains(store);
        Some(match holders.iter().filter(stays).map(|store| self.online.contains(store)).max() {
            None => Fate::Lost,
            Some(false) => Fate::Waiting,
            Some(true) => Fate::Readable,
        })
    }

    /// The fate of a file: that of its worst unit.
    fn fate_of_file(&self, parts: &[Part]) -> Option<Fate> {
        parts.iter().filter_map(|part| self.fate(&part.holders)).max()
    }
}

impl FileSum {
    fn add(&mut self, len: u64) {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(len);
    }
}

impl LossView {
    fn add(&mut self, path: String, len: u64, fate: Fate) {
        match fate {
            Fate::Readable => self.readable.add(len),
            Fate::Waiting => self.waiting.add(len),
            Fate::Lost => {
                self.lost.add(len);
                if self.first_lost.len() < NAMED_MAX {
                    self.first_lost.push(path);
                }
            }
        }
    }
}

impl Views {
    /// What would be lost if `leaving` were removed as lost. `go_on` is asked after each page: the search stops with what it has found if it
    /// returns `false`.
    pub(crate) fn losses(
        &self,
        leaving: &BTreeSet<StoreId>,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<Option<LossView>, NsError> {
        let view = self.view.get();
        let stores = self.divided(&view, leaving);
        let mut found = LossView {
            stores: leaving.iter().map(|store| view.servers.shown(*store)).collect(),
            ..LossView::default()
        };
        let mut groups: Vec<GroupId> = {
            let is_in = |store: StoreId| leaving.contains(&store);
            let groups = self.coordinator.groups();
            let of_them = groups.all().values().filter(|group| group.members.iter().any(|one| is_in(one.store)));
            of_them.map(|group| group.group).collect()
        };
        // The units of striped files are examined with their files.
        groups.push(GroupId::STRIPED);
        for group in groups {
            let mut after = None;
            loop {
                let (last, files) = self.names.read(|read| page_of(read, group, after))?;
                for file in files {
                    if let Some(fate) = stores.fate_of_file(&file.parts) {
                        found.add(file.path, file.len, fate);
                    }
                }
                if !go_on() {
                    return Ok(None);
                }
                let Some(last) = last else { break };
                after = Some(last);
            }
        }
        let mut after = None;
        loop {
            let page = self.names.read(|read| namespace::writers_page(read, after, PAGE))?;
            for writer in &page.writers {
                let in_sync: Vec<StoreId> = writer.placement.in_sync.iter().map(|one| one.store).collect();
                // A file that is changed in place is listed as what it is.
                let is_new = writer.kind != WriterKind::Update;
                found.lost_writes += u64::from(is_new && stores.fate(&in_sync) == Some(Fate::Lost));
            }
            if !go_on() {
                return Ok(None);
            }
            after = page.next;
            if after.is_none() {
                return Ok(Some(found));
            }
        }
    }

    fn divided<'a>(&self, view: &ClusterView, leaving: &'a BTreeSet<StoreId>) -> Stores<'a> {
        let all = view.servers.map().stores().iter().map(|info| info.store);
        let removed = all.filter(|store| view.servers.is_removed_as_lost(*store)).collect();
        Stores { leaving, removed, online: self.stores_there(view, self.world.now()) }
    }
}

/// The files of a page of a group's objects, and the last object unless the group ends there.
fn page_of(
    read: &dyn Read,
    group: GroupId,
    after: Option<ObjectId>,
) -> Result<(Option<ObjectId>, Vec<Candidate>), NsError> {
    let objects: Vec<ObjectRecord> = namespace::objects(read, group, after, PAGE)?;
    let last = objects.last().map(|last| last.object).filter(|_| objects.len() == PAGE);
    let files = objects.iter().filter_map(|record| candidate(read, record).transpose());
    Ok((last, files.collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_lost_with_its_last_replica_that_is_not_removed() {
        let leaving: BTreeSet<StoreId> = [1, 2].map(StoreId).into();
        let stores = Stores { leaving: &leaving, removed: [StoreId(3)].into(), online: [1, 5].map(StoreId).into() };
        let fate = |holders: &[u64]| stores.fate(&holders.iter().map(|store| StoreId(*store)).collect::<Vec<_>>());
        assert_eq!(fate(&[4, 5]), None, "it does not depend on them");
        assert_eq!(fate(&[1]), Some(Fate::Lost));
        assert_eq!(fate(&[1, 2]), Some(Fate::Lost), "both are removed at once");
        assert_eq!(fate(&[2, 3]), Some(Fate::Lost), "the other one was removed before");
        assert_eq!(fate(&[1, 4]), Some(Fate::Waiting), "the other one is offline");
        assert_eq!(fate(&[1, 4, 5]), Some(Fate::Readable));
        assert_eq!(fate(&[]), None);
        let mut found = LossView::default();
        for number in 0..12 {
            found.add(format!("/f{number}"), 10, Fate::Lost);
        }
        assert_eq!((found.lost, found.first_lost.len()), (FileSum { files: 12, bytes: 120 }, NAMED_MAX));
    }
}
