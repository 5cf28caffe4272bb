//! Counts what is there, from the names, open writes and uploads.

use std::collections::BTreeMap;

use kv::Read;
use types::{Ino, TreeId};

use crate::quota::charge::{Charge, Reservation, charge_in};
use crate::quota::record::{Amount, QuotaOf};
use crate::tree::node::{get_dir, links_of};
use crate::{Inode, Kind, NsError};

/// What counts for one [`QuotaOf`] in a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counted {
    pub used: Amount,
    pub reserved: Amount,
}

/// Sums over all records that it is shown. It takes memory for each user and group of each tree, not for each file.
#[derive(Default)]
pub(crate) struct UsageCount {
    sums: BTreeMap<(TreeId, QuotaOf), Counted>,
    /// The tree of the directory whose entries come at present.
    dir: Option<(Ino, TreeId)>,
}

impl UsageCount {
    /// A record in the entry of a directory.
    pub(crate) fn entry(&mut self, read: &dyn Read, dir: Ino, inode: &Inode) -> Result<(), NsError> {
        let tree = match self.dir {
            Some((known, tree)) if known == dir => tree,
            _ => get_dir(read, dir)?.tree,
        };
        self.dir = Some((dir, tree));
        self.add(Charge::new(tree, inode), inode);
        Ok(())
    }

    /// A record under its own number.
    pub(crate) fn inode(&mut self, read: &dyn Read, inode: &Inode) -> Result<(), NsError> {
        match &inode.kind {
            Kind::Directory(dir) => self.add(Charge::new(dir.tree, inode), inode),
            _ => {
                // A stripe unit, or a file that only its holders see, has none.
                if let Some((dir, _)) = links_of(read, inode.ino)?.first() {
                    self.add(charge_in(read, *dir, inode)?, inode);
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, charge: Charge, inode: &Inode) {
        let bytes = inode.content().map_or(0, |content| content.len);
        for of in charge.parts() {
            let used = &mut self.sums.entry((charge.tree, of)).or_default().used;
            *used = Amount { bytes: used.bytes.saturating_add(bytes), files: used.files.saturating_add(1) };
        }
    }

    /// What an open write or an upload has reserved.
    pub(crate) fn reserved(&mut self, reservation: Option<&Reservation>) {
        let Some(Reservation { charge, bytes, files }) = reservation else { return };
        for of in charge.parts() {
            let reserved = &mut self.sums.entry((charge.tree, of)).or_default().reserved;
            reserved.bytes = reserved.bytes.saturating_add(bytes.unwrap_or(0));
            reserved.files = reserved.files.saturating_add(*files);
        }
    }

    /// The sums in trees that are there, without empty ones. A removed tree has no records, whatever open writes have reserved in it.
    pub(crate) fn finish(self, read: &dyn Read) -> Result<BTreeMap<(TreeId, QuotaOf), Counted>, NsError> {
        let mut sums = self.sums;
        let mut trees = BTreeMap::new();
        for (tree, _) in sums.keys() {
            if !trees.contains_key(tree) {
                trees.insert(*tree, read.get(&crate::keys::tree(*tree))?.is_some());
            }
        }
        sums.retain(|(tree, _), counted| trees.get(tree) == Some(&true) && *counted != Counted::default());
        Ok(sums)
    }
}
