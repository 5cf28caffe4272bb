//! The blocks of first reads, filled from the file before they are read.
//!
//! They take memory that nothing else needs, and stay in it until it is needed: whoever needs a block takes the oldest one
//! that a first read has fetched, except for the last few of each that goes on ([`KEPT`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use disk::AlignedBuf;
use types::PrincipalId;

use super::{Block, Key, PAGE, RecentPages, ReplicaPages, State};

/// So many blocks of a first read that goes on are kept, whoever needs memory: those of a long request, and those ahead
/// of it.
pub(crate) const KEPT: usize = 16;
/// How many blocks are looked at for one that need not be kept.
const LOOKED_AT: usize = 1024;
/// All first reads together keep at most one part in so many of the memory.
const PARTS: usize = 4;

/// What has become of a block that was to be fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fetched {
    /// Its pages are here.
    Here,
    /// It was not fetched: nobody wants it any more, there is no memory, or some of its pages are here.
    Not,
    /// It could not be read.
    Failed,
}

/// The right of a replica to have such blocks fetched and kept.
pub(crate) struct FirstReadRoom {
    shared: Arc<RecentPages>,
    key: Key,
}

impl Drop for FirstReadRoom {
    fn drop(&mut self) {
        self.shared.state.lock().read_first.remove(&self.key);
    }
}

impl State {
    /// The block to fill from the file. `None`: there is no memory for it at this moment. `read_to`: see
    /// [`ReplicaPages::fetch`].
    fn block_to_fetch(&mut self, of: &ReplicaPages, number: u64, read_to: u64) -> Option<Arc<Block>> {
        let (key, user) = (of.key, PrincipalId(of.user.load(Ordering::Relaxed)));
        if let Some(block) = self.block(key, number) {
            return Some(block);
        }
        self.take_prepared();
        let bytes = match self.take_any(user, &of.shared) {
            Some(bytes) => bytes,
            None if self.replicas.get(&key)?.fetched.front()?.1 < read_to => self.take_fetched(key)?,
            None => return None,
        };
        self.fetches += 1;
        let fetched = self.fetches;
        let (replica, block) = self.add(key, number, user, bytes);
        replica.fetched.push_back((fetched, number));
        self.fetched.insert(fetched, (key, number));
        self.touch(key);
        Some(block)
    }

    /// The replica of the oldest block that a first read has fetched and need not keep. Looks at [`LOOKED_AT`] blocks: the
    /// first ones are kept by the slowest first reads, a few by each.
    pub(super) fn with_surplus(&self) -> Option<Key> {
        let has_surplus = |key: &Key| {
            let kept = if self.read_first.contains(key) { KEPT } else { 0 };
            self.replicas.get(key).is_some_and(|replica| replica.fetched.len() > kept)
        };
        self.fetched.values().take(LOOKED_AT).map(|(key, _)| *key).find(has_surplus)
    }

    /// Takes the oldest block that a first read of the replica has fetched, or another free one.
    pub(super) fn take_fetched(&mut self, key: Key) -> Option<AlignedBuf> {
        let (fetched, number) = self.replicas.get_mut(&key)?.fetched.pop_front()?;
        self.fetched.remove(&fetched);
        self.take_block(key, number, 0)
    }
}

impl ReplicaPages {
    /// Lets a first read of this replica have blocks. `None`: it has one already, there are too many, or there is too little
    /// memory.
    pub(crate) fn begin_first_read(&self) -> Option<FirstReadRoom> {
        let mut state = self.shared.state.lock();
        let has_room = (state.read_first.len() + 1) * KEPT <= self.shared.most / PARTS;
        if !has_room || !state.read_first.insert(self.key) {
            return None;
        }
        drop(state);
        Some(FirstReadRoom { shared: Arc::clone(&self.shared), key: self.key })
    }

    /// Has the first `pages` pages of a block here. If none is, they come by `read`, which fills the beginning of a block
    /// and returns whether it has. Others who want the block wait for that. If there is no other memory, the replica's
    /// oldest block makes room for it, if its number is below `read_to`: its reader is past it.
    pub(crate) fn fetch(
        &self,
        (number, read_to): (u64, u64),
        pages: u64,
        is_wanted: impl FnOnce() -> bool,
        read: impl FnOnce(&mut [u8]) -> bool,
    ) -> Fetched {
        let mut state = self.shared.state.lock();
        // Looked at under the lock, so that no block comes after the end.
        if !is_wanted() {
            return Fetched::Not;
        }
        let found = state.block_to_fetch(self, number, read_to);
        drop(state);
        self.shared.prepare();
        let Some(block) = found else { return Fetched::Not };
        let contents = &mut *block.write();
        if contents.gap(0..pages).is_none() {
            return Fetched::Here;
        }
        // What was written is not read over: the disk may have lost it. A block that is lent out stays as it is.
        let is_empty = contents.pages.iter().all(|word| *word == 0);
        let Some(bytes) = Arc::get_mut(&mut contents.bytes).filter(|_| is_empty) else { return Fetched::Not };
        if !read(&mut bytes[..]) {
            return Fetched::Failed;
        }
        contents.set(0..pages);
        contents.is_fetched = true;
        self.shared.fetched.fetch_add(pages * PAGE, Ordering::Relaxed);
        Fetched::Here
    }
}
