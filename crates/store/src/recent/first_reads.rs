//! The blocks of first reads: a few for each, filled from the file before they are read, and given back afterwards.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use disk::AlignedBuf;
use types::PrincipalId;

use super::{Block, Key, PAGE, RecentPages, ReplicaPages, State};

/// The most blocks of one first read: those of a long request, and those ahead of it.
pub(crate) const BLOCKS_MAX: usize = 16;
/// All first reads together have at most one part in so many of the memory.
const PARTS: usize = 4;

/// The right of a replica to have such blocks. They are given back when this is dropped.
pub(crate) struct FirstReadRoom {
    shared: Arc<RecentPages>,
    key: Key,
}

impl Drop for FirstReadRoom {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.first_reads -= 1;
        let numbers = state.replicas.get_mut(&self.key).map(|replica| std::mem::take(&mut replica.fetched));
        for number in numbers.unwrap_or_default() {
            let free = state.take_block(self.key, number);
            state.free.extend(free);
        }
    }
}

impl State {
    /// The block to fill from the file. `None`: there is no memory for it at this moment.
    fn block_to_fetch(&mut self, key: Key, number: u64, user: PrincipalId, of: &RecentPages) -> Option<Arc<Block>> {
        if let Some(block) = self.block(key, number) {
            return Some(block);
        }
        self.take_prepared();
        let own = self.replicas.get(&key).map_or(0, |replica| replica.fetched.len());
        let bytes = if own >= BLOCKS_MAX { self.take_fetched(key)? } else { self.take_any(user, of)? };
        let block = self.add(key, number, user, bytes);
        self.replicas.get_mut(&key)?.fetched.push_back(number);
        Some(block)
    }

    /// Takes the oldest block that a first read of the replica has.
    fn take_fetched(&mut self, key: Key) -> Option<AlignedBuf> {
        let number = self.replicas.get_mut(&key)?.fetched.pop_front()?;
        self.take_block(key, number)
    }
}

impl ReplicaPages {
    /// Lets a first read of this replica have blocks. `None`: there are too many, or there is too little memory.
    pub(crate) fn begin_first_read(&self) -> Option<FirstReadRoom> {
        let mut state = self.shared.state.lock();
        if (state.first_reads + 1) * BLOCKS_MAX > self.shared.most / PARTS {
            return None;
        }
        state.first_reads += 1;
        drop(state);
        Some(FirstReadRoom { shared: Arc::clone(&self.shared), key: self.key })
    }

    /// Has the first `pages` pages of a block here. What is missing comes by `read`, which fills the beginning of a block
    /// and returns whether it has. Others who want the block wait for that. Does nothing and returns `false` if the read
    /// is not wanted any more, if there is no memory, or if `read` has failed.
    pub(crate) fn fetch(
        &self,
        number: u64,
        pages: u64,
        is_wanted: impl FnOnce() -> bool,
        read: impl FnOnce(&mut [u8]) -> bool,
    ) -> bool {
        let user = PrincipalId(self.user.load(Ordering::Relaxed));
        let mut state = self.shared.state.lock();
        // Looked at under the lock, so that no block comes after the end.
        if !is_wanted() {
            return false;
        }
        let found = state.block_to_fetch(self.key, number, user, &self.shared);
        drop(state);
        let Some(block) = found else {
            self.shared.prepare();
            return false;
        };
        let contents = &mut *block.write();
        if contents.gap(0..pages).is_none() {
            return true;
        }
        // Lent out: it stays as it is.
        let Some(bytes) = Arc::get_mut(&mut contents.bytes) else { return false };
        let is_read = read(&mut bytes[..]);
        if is_read {
            contents.set(0..pages);
            self.shared.fetched.fetch_add(pages * PAGE, Ordering::Relaxed);
        } else {
            contents.pages.fill(0);
        }
        is_read
    }
}
