//! The pages that the stores of a node have written last. Direct writes leave nothing in the page cache, so without these pages each first reader
//! would read the disk.
//!
//! Nobody trusts this memory: a reader compares each page with its checksum in the sidecar, as if it came from the disk, and reads the disk if they
//! differ. So a page that is out of date costs time and nothing else. Scrub and verification read the disk alone.
//!
//! # What is kept
//! Memory is in blocks of [`BLOCK`] bytes, each for one aligned range of one replica.
//! - Every page that is written to a file gets into a block, if one can be had. After any other change of a file its pages are forgotten.
//! - If no block is free, the replica that nobody has read or written for the longest time loses its oldest block. So what is being recorded, and
//!   what has readers, stays.
//! - One replica has at most half of the blocks: a long write takes them from itself, and does not drive out the rest.
//! - A user whose replicas have more than half of the blocks takes them from these replicas, so that no single user drives
//!   out what others use. What nobody has used while twice this memory was filled has no such protection.
//! - A replica gives its blocks back when its files are removed.
//!
//! # First reads
//! A reader that goes through a large replica for the first time gets its bytes through this memory as well
//! ([`first_reads`]), past the page cache. These blocks stay while nothing else needs them.
//!
//! # Lending
//! A reader can borrow pages ([`LentPages`]). Nobody waits for that: a write to a block that is lent out changes nothing in it, and forgets the pages
//! that it would have changed. A lent block that is taken from its replica counts as memory in use until it is given back.
//!
//! # Fresh memory
//! The system clears memory before its first use, which takes longer than the write of the same bytes on some virtual machines. So no write waits for
//! that: a thread at nice 19 prepares as many blocks as are in use, at least one and at most [`AHEAD`]. Until a block is ready, a write takes one
//! from what is kept, or leaves nothing.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use disk::AlignedBuf;
use parking_lot::{Mutex, RwLock};
use types::{PrincipalId, ReplicaId};

use crate::sums::PAGE;
use crate::writer::index;

/// Bytes of a block: those of a huge page.
pub(crate) const BLOCK: u64 = 2 << 20;
const PAGES: u64 = BLOCK / PAGE;
const WORDS: usize = (PAGES / 64) as usize;

/// How long a write waits for those who use a block at this moment.
const WRITER_WAIT: Duration = Duration::from_millis(5);

/// The most blocks that are prepared ahead: 128 MiB.
const AHEAD: usize = 64;

/// The recently written pages of all stores of a node. See the module.
pub struct RecentPages {
    state: Mutex<State>,
    most: usize,
    memory: FreshMemory,
    stores: AtomicU64,
    served: AtomicU64,
    lent: AtomicU64,
    missed: AtomicU64,
    fetched: AtomicU64,
    emptied: AtomicU64,
}

/// Who takes fresh memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreshMemory {
    /// The write that needs it.
    AtOnce,
    /// A thread at nice 19, ahead of the writes.
    Prepared,
}

/// What [`RecentPages`] has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecentStats {
    /// Bytes of memory taken, in use or not.
    pub bytes: u64,
    /// Bytes of memory that it may use.
    pub bytes_max: u64,
    /// Bytes of whole pages that readers of large replicas got from here.
    pub served_bytes: u64,
    /// Of these, the bytes that readers got without a copy.
    pub lent_bytes: u64,
    /// Bytes that they looked for here, and got from files.
    pub missed_bytes: u64,
    /// Bytes that first reads have fetched from files past the page cache.
    pub fetched_bytes: u64,
}

/// A replica of one of the stores.
type Key = (u64, ReplicaId);

#[derive(Default)]
struct State {
    replicas: HashMap<Key, Replica>,
    /// The users that have blocks.
    users: HashMap<PrincipalId, UserBlocks>,
    turn: u64,
    /// How many blocks writes have taken so far, not counting those that a replica took from itself.
    given: u64,
    /// The replicas that have a first read now.
    read_first: HashSet<Key>,
    /// The blocks that first reads have fetched, in that order.
    fetched: BTreeMap<u64, (Key, u64)>,
    /// How many blocks that were so far.
    fetches: u64,
    free: Vec<AlignedBuf>,
    /// Taken from replicas while they were lent out.
    lent: Vec<Arc<AlignedBuf>>,
    /// The blocks in use, free, lent out, or being prepared.
    made: usize,
    /// The blocks that a thread prepares. The thread takes no lock, because it may lose the processor for long.
    coming: Option<(Receiver<AlignedBuf>, usize)>,
}

/// What the replicas of one user have.
#[derive(Default)]
struct UserBlocks {
    /// How many blocks were written.
    count: usize,
    /// The replicas by the turn in which they were used last.
    by_use: BTreeMap<u64, Key>,
}

#[derive(Default)]
struct Replica {
    /// Who wrote it.
    user: PrincipalId,
    /// The turn; 0 before the first.
    used: u64,
    /// [`State::given`] at that time.
    given: u64,
    /// By their number in the replica's file.
    blocks: HashMap<u64, Arc<Block>>,
    /// The numbers of those that were written, the oldest first.
    order: VecDeque<u64>,
    /// Of the others, which first reads have fetched, with their keys in [`State::fetched`].
    fetched: VecDeque<(u64, u64)>,
}

type Block = RwLock<Contents>;

struct Contents {
    /// A reader that borrows them has them as well.
    bytes: Arc<AlignedBuf>,
    /// A bit for each page that is there.
    pages: [u64; WORDS],
    /// A first read has filled it.
    is_fetched: bool,
}

impl RecentPages {
    /// Keeps at most about `bytes` of memory. The memory is taken when it is first needed.
    #[must_use]
    pub fn new(bytes: u64, memory: FreshMemory) -> Self {
        Self {
            state: Mutex::new(State { turn: 1, ..State::default() }),
            most: index(bytes / BLOCK),
            memory,
            stores: AtomicU64::new(0),
            served: AtomicU64::new(0),
            lent: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            fetched: AtomicU64::new(0),
            emptied: AtomicU64::new(0),
        }
    }

    /// Has memory prepared if there should be more.
    fn prepare(&self) {
        if self.memory == FreshMemory::AtOnce {
            return;
        }
        let mut state = self.state.lock();
        state.take_prepared();
        let count = state.needed(self.most);
        if state.coming.is_some() || count == 0 {
            return;
        }
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new().name("recent-memory".into()).spawn(move || {
            // Without the lower priority it only takes time from others.
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 19);
            for _ in 0..count {
                let mut bytes = AlignedBuf::new(index(BLOCK));
                bytes.fill(0);
                if sender.send(bytes).is_err() {
                    return;
                }
            }
        });
        // Without a thread, a later write tries again.
        if thread.is_ok() {
            state.made += count;
            state.coming = Some((receiver, count));
        }
    }

    /// Forgets all pages: the next reads come from the disk, and are first reads again. The memory is kept for what is
    /// written next.
    pub fn forget_all(&self) {
        self.emptied.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        let keys: Vec<Key> = state.replicas.keys().copied().collect();
        for key in keys {
            state.forget(key);
        }
    }

    /// Its memory, and how many bytes it has served.
    #[must_use]
    pub fn stats(&self) -> RecentStats {
        let made = self.state.lock().made;
        RecentStats {
            bytes: made as u64 * BLOCK,
            bytes_max: self.most as u64 * BLOCK,
            served_bytes: self.served.load(Ordering::Relaxed),
            lent_bytes: self.lent.load(Ordering::Relaxed),
            missed_bytes: self.missed.load(Ordering::Relaxed),
            fetched_bytes: self.fetched.load(Ordering::Relaxed),
        }
    }
}

impl std::fmt::Debug for RecentPages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecentPages").field("stats", &self.stats()).finish()
    }
}

impl State {
    /// How many blocks should be prepared.
    fn needed(&self, most: usize) -> usize {
        let in_use = self.made.saturating_sub(self.free.len());
        in_use.clamp(1, AHEAD).saturating_sub(self.free.len()).min(most.saturating_sub(self.made))
    }

    /// Takes over what has been prepared, and what was lent out and is back.
    fn take_prepared(&mut self) {
        for bytes in std::mem::take(&mut self.lent) {
            self.take_back(bytes);
        }
        let Some((receiver, count)) = &mut self.coming else { return };
        let before = self.free.len();
        self.free.extend(receiver.try_iter());
        *count = count.saturating_sub(self.free.len() - before);
        if *count == 0 {
            self.coming = None;
        }
    }

    /// Notes that the replica is used now.
    fn touch(&mut self, key: Key) -> Option<&mut Replica> {
        let Self { replicas, users, turn, given, .. } = self;
        let replica = replicas.get_mut(&key)?;
        replica.given = *given;
        if replica.used == *turn {
            return Some(replica);
        }
        *turn += 1;
        let by_use = &mut users.entry(replica.user).or_default().by_use;
        by_use.remove(&replica.used);
        by_use.insert(*turn, key);
        replica.used = *turn;
        Some(replica)
    }

    fn block(&mut self, key: Key, number: u64) -> Option<Arc<Block>> {
        self.touch(key)?.blocks.get(&number).map(Arc::clone)
    }

    /// The block for a write of `user`. `None`: there is no memory for it at this moment.
    fn block_to_fill(&mut self, key: Key, number: u64, user: PrincipalId, of: &RecentPages) -> Option<Arc<Block>> {
        let most = of.most;
        if let Some(block) = self.block(key, number) {
            return Some(block);
        }
        self.take_prepared();
        let own = self.replicas.get(&key).map_or(0, |replica| replica.blocks.len());
        let bytes = if own >= (most / 2).max(1) {
            self.take_from(key)?
        } else {
            let bytes = self.take_any(user, of)?;
            self.given += 1;
            bytes
        };
        let (replica, block) = self.add(key, number, user, bytes);
        let (before, used) = (replica.user, replica.used);
        if replica.order.is_empty() {
            // What it has was read by somebody. From now on it is the writer's.
            replica.user = user;
        }
        replica.order.push_back(number);
        let owner = replica.user;
        if owner != before {
            self.has_lost(before, 0, Some(used));
            self.users.entry(owner).or_default().by_use.insert(used, key);
        }
        self.users.entry(owner).or_default().count += 1;
        self.touch(key);
        Some(block)
    }

    /// The block is not among those of the replica any more. Whoever has it still may end what they do.
    fn remove(&mut self, key: Key, number: u64) {
        let Some(replica) = self.replicas.get_mut(&key) else { return };
        let was_written = replica.order.len();
        replica.order.retain(|other| *other != number);
        let written = was_written - replica.order.len();
        replica.fetched.retain(|(fetched, other)| {
            let stays = *other != number;
            if !stays {
                self.fetched.remove(fetched);
            }
            stays
        });
        let free = self.take_block(key, number, written);
        self.free.extend(free);
    }

    /// Memory for a block of `user`.
    fn take_any(&mut self, user: PrincipalId, of: &RecentPages) -> Option<AlignedBuf> {
        if let Some(free) = self.free.pop() {
            return Some(free);
        }
        if self.made < of.most && of.memory == FreshMemory::AtOnce {
            self.made += 1;
            return Some(AlignedBuf::new(index(BLOCK)));
        }
        if let Some(replica) = self.with_surplus() {
            return self.take_fetched(replica);
        }
        self.take_from(self.to_give_up(user, of.most)?)
    }

    /// Gives the replica a block without pages. The caller must add it to one of the lists.
    fn add(&mut self, key: Key, number: u64, user: PrincipalId, bytes: AlignedBuf) -> (&mut Replica, Arc<Block>) {
        let contents = Contents { bytes: Arc::new(bytes), pages: [0; WORDS], is_fetched: false };
        let block = Arc::new(Block::new(contents));
        let replica = self.replicas.entry(key).or_insert_with(|| Replica { user, ..Replica::default() });
        replica.blocks.insert(number, Arc::clone(&block));
        (replica, block)
    }

    /// The replica that loses a block for a write of `user`.
    fn to_give_up(&self, user: PrincipalId, most: usize) -> Option<Key> {
        // A first read that goes on keeps its blocks.
        let may_lose = |key: &Key| {
            !self.read_first.contains(key) || self.replicas.get(key).is_some_and(|replica| !replica.order.is_empty())
        };
        let oldest =
            |user: &UserBlocks| user.by_use.iter().find(|(_, key)| may_lose(key)).map(|(used, key)| (*used, *key));
        let (_, idle) = self.users.values().filter_map(oldest).min()?;
        let is_forgotten = |replica: &Replica| self.given - replica.given >= 2 * most as u64;
        match self.users.get(&user) {
            Some(own) if own.count > most / 2 && !self.replicas.get(&idle).is_some_and(is_forgotten) => {
                oldest(own).map(|(_, key)| key)
            }
            _ => Some(idle),
        }
    }

    /// Takes the oldest block of a replica, or another free one. `None`: readers use them at this moment.
    fn take_from(&mut self, key: Key) -> Option<AlignedBuf> {
        match self.replicas.get_mut(&key)?.order.pop_front() {
            Some(number) => self.take_block(key, number, 1),
            None => self.take_fetched(key),
        }
    }

    /// Takes a block of a replica, whose lists do not have it any more, or another free one. `written`: 1 if it was written.
    fn take_block(&mut self, key: Key, number: u64, written: usize) -> Option<AlignedBuf> {
        let replica = self.replicas.get_mut(&key)?;
        let block = replica.blocks.remove(&number)?;
        let (user, used, is_empty) = (replica.user, replica.used, replica.blocks.is_empty());
        if is_empty {
            self.replicas.remove(&key);
        }
        self.has_lost(user, written, is_empty.then_some(used));
        self.reclaim(block);
        self.free.pop()
    }

    /// The user has so many written blocks less, and perhaps a replica less, which was used in turn `gone`.
    fn has_lost(&mut self, user: PrincipalId, blocks: usize, gone: Option<u64>) {
        let Some(of_user) = self.users.get_mut(&user) else { return };
        of_user.count -= blocks;
        if let Some(used) = gone {
            of_user.by_use.remove(&used);
        }
        if of_user.by_use.is_empty() {
            self.users.remove(&user);
        }
    }

    fn reclaim(&mut self, block: Arc<Block>) {
        match Arc::try_unwrap(block) {
            Ok(block) => self.take_back(block.into_inner().bytes),
            // Somebody copies from it at this moment. The memory is freed when that has ended.
            Err(_) => self.made -= 1,
        }
    }

    fn take_back(&mut self, bytes: Arc<AlignedBuf>) {
        match Arc::try_unwrap(bytes) {
            Ok(bytes) => self.free.push(bytes),
            Err(bytes) => self.lent.push(bytes),
        }
    }

    fn forget(&mut self, key: Key) {
        let Some(replica) = self.replicas.remove(&key) else { return };
        self.has_lost(replica.user, replica.order.len(), Some(replica.used));
        for (fetched, _) in &replica.fetched {
            self.fetched.remove(fetched);
        }
        for block in replica.blocks.into_values() {
            self.reclaim(block);
        }
    }
}

impl Contents {
    /// The first of these pages that is not there.
    fn gap(&self, mut pages: Range<u64>) -> Option<u64> {
        pages.find(|page| self.pages[index(page / 64)] & (1 << (page % 64)) == 0)
    }

    fn set(&mut self, pages: Range<u64>) {
        for page in pages {
            self.pages[index(page / 64)] |= 1 << (page % 64);
        }
    }

    fn clear(&mut self, pages: Range<u64>) {
        for page in pages {
            self.pages[index(page / 64)] &= !(1 << (page % 64));
        }
    }
}

/// The part of one store.
#[derive(Clone)]
pub(crate) struct StorePages {
    shared: Arc<RecentPages>,
    store: u64,
    is_believed: bool,
}

impl StorePages {
    /// `None`: there is no memory for recent pages. `is_believed`: see [`crate::PlantedBug::BelieveRecent`].
    pub(crate) fn of(shared: Option<&Arc<RecentPages>>, is_believed: bool) -> Option<Self> {
        let shared = Arc::clone(shared.filter(|shared| shared.most > 0)?);
        let store = shared.stores.fetch_add(1, Ordering::Relaxed);
        Some(Self { shared, store, is_believed })
    }

    /// The part of one replica.
    pub(crate) fn of_replica(&self, replica: ReplicaId) -> ReplicaPages {
        let (shared, key) = (Arc::clone(&self.shared), (self.store, replica));
        ReplicaPages { shared, key, user: AtomicU32::new(0), is_believed: self.is_believed }
    }
}

/// The part of one replica: what is here equals what was written to its file.
pub(crate) struct ReplicaPages {
    shared: Arc<RecentPages>,
    key: Key,
    /// The principal who writes it.
    user: AtomicU32,
    is_believed: bool,
}

/// Bytes of one replica in this memory. They stay as they are while this exists.
pub(crate) struct LentPages {
    parts: Vec<(Arc<AlignedBuf>, Range<usize>)>,
}

impl LentPages {
    /// The bytes, in at most one part for each block.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(|(block, bytes)| &block[bytes.clone()])
    }

    /// Keeps `len` bytes from `skip` on.
    pub(crate) fn cut(&mut self, mut skip: usize, mut len: usize) {
        self.parts.retain_mut(|(_, bytes)| {
            let begin = bytes.end.min(bytes.start + skip);
            let end = bytes.end.min(begin + len);
            skip -= begin - bytes.start;
            len -= end - begin;
            *bytes = begin..end;
            begin < end
        });
    }
}

/// A part of a range that lies in one block.
struct Piece {
    block: u64,
    /// Its bytes in the block.
    at: Range<u64>,
}

impl Piece {
    fn pages(&self) -> Range<u64> {
        self.at.start / PAGE..self.at.end.div_ceil(PAGE)
    }

    fn bytes(&self) -> Range<usize> {
        index(self.at.start)..index(self.at.end)
    }
}

/// Splits a range at the blocks' borders.
fn pieces(start: u64, end: u64) -> impl Iterator<Item = Piece> {
    let blocks = if start < end { start / BLOCK..end.div_ceil(BLOCK) } else { 0..0 };
    blocks.map(move |block| {
        let begin = block * BLOCK;
        Piece { block, at: start.max(begin) - begin..end.min(begin + BLOCK) - begin }
    })
}

impl ReplicaPages {
    /// Pages that are put from now on are those of `user`, unless some of another's are here.
    pub(crate) fn set_user(&self, user: PrincipalId) {
        self.user.store(user.0, Ordering::Relaxed);
    }

    /// Whole pages have been written to the file at `start`.
    pub(crate) fn put(&self, start: u64, data: &[u8]) {
        let mut rest = data;
        let user = PrincipalId(self.user.load(Ordering::Relaxed));
        for piece in pieces(start, start + data.len() as u64) {
            let (part, next) = rest.split_at(piece.bytes().len());
            rest = next;
            let found = self.shared.state.lock().block_to_fill(self.key, piece.block, user, &self.shared);
            let Some(block) = found else { continue };
            let Some(mut contents) = block.try_write_for(WRITER_WAIT) else {
                // A first read fills it, and its disk is slow. It is not worth waiting for.
                self.shared.state.lock().remove(self.key, piece.block);
                continue;
            };
            match Arc::get_mut(&mut contents.bytes) {
                Some(bytes) => {
                    bytes[piece.bytes()].copy_from_slice(part);
                    contents.set(piece.pages());
                }
                // Lent out: the reader keeps what it has, and these pages are not here any more.
                None => contents.clear(piece.pages()),
            }
        }
        self.shared.prepare();
    }

    /// These pages are not those of the file.
    pub(crate) fn forget_pages(&self, first: u64, count: u64) {
        for piece in pieces(first * PAGE, (first + count) * PAGE) {
            let block = self.shared.state.lock().block(self.key, piece.block);
            if let Some(block) = block {
                block.write().clear(piece.pages());
            }
        }
    }

    /// The file has changed in another way, or is gone.
    pub(crate) fn forget(&self) {
        if !self.is_believed {
            self.shared.state.lock().forget(self.key);
        }
    }

    /// How often the memory was emptied.
    pub(crate) fn emptied(&self) -> u64 {
        self.shared.emptied.load(Ordering::Relaxed)
    }

    /// Whether pages from here count without a comparison (a planted bug).
    pub(crate) fn is_believed(&self) -> bool {
        self.is_believed
    }

    /// How many bytes from `start` on are here without a gap, up to `len`.
    pub(crate) fn run(&self, start: u64, len: usize) -> usize {
        let end = start.saturating_add(len as u64);
        let mut reached = start;
        for piece in pieces(start, end) {
            let Some(block) = self.shared.state.lock().block(self.key, piece.block) else { break };
            let gap = block.read().gap(piece.pages());
            let stop = piece.block * BLOCK + gap.unwrap_or(piece.pages().end) * PAGE;
            reached = stop.clamp(reached, end);
            if gap.is_some() {
                break;
            }
        }
        index(reached - start)
    }

    /// Fills `bufs` with the bytes from `offset` on. Returns `false` if some are not here: `bufs` are useless then.
    /// `is_first_read`: what first reads have fetched counts as read from the file.
    pub(crate) fn fill(&self, bufs: &mut [IoSliceMut<'_>], offset: u64, is_first_read: bool) -> bool {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum::<u64>();
        let mut fetched = 0;
        let filled = self.fill_all(bufs, offset, offset + len, &mut fetched);
        let missed = match filled {
            true if is_first_read => fetched,
            true => 0,
            false => len,
        };
        self.shared.served.fetch_add(len - missed, Ordering::Relaxed);
        self.shared.missed.fetch_add(missed, Ordering::Relaxed);
        filled
    }

    /// Lends the bytes from `start` on. `None`: some are not here.
    pub(crate) fn lend(&self, start: u64, len: usize) -> Option<LentPages> {
        let mut parts = Vec::with_capacity(2);
        for piece in pieces(start, start.saturating_add(len as u64)) {
            let block = self.shared.state.lock().block(self.key, piece.block)?;
            let contents = block.read();
            if contents.gap(piece.pages()).is_some() {
                return None;
            }
            parts.push((Arc::clone(&contents.bytes), piece.bytes()));
        }
        Some(LentPages { parts })
    }

    /// Counts bytes that were lent and used.
    pub(crate) fn count_lent(&self, len: usize) {
        self.shared.served.fetch_add(len as u64, Ordering::Relaxed);
        self.shared.lent.fetch_add(len as u64, Ordering::Relaxed);
    }

    /// Adds to `fetched` the bytes from blocks that first reads have filled.
    fn fill_all(&self, bufs: &mut [IoSliceMut<'_>], offset: u64, end: u64, fetched: &mut u64) -> bool {
        let mut bufs = bufs.iter_mut().map(|buf| &mut **buf);
        let mut room: &mut [u8] = &mut [];
        for piece in pieces(offset, end) {
            let Some(block) = self.shared.state.lock().block(self.key, piece.block) else { return false };
            let contents = block.read();
            if contents.gap(piece.pages()).is_some() {
                return false;
            }
            let mut bytes = &contents.bytes[piece.bytes()];
            if contents.is_fetched {
                *fetched += bytes.len() as u64;
            }
            while !bytes.is_empty() {
                while room.is_empty() {
                    let Some(next) = bufs.next() else { return false };
                    room = next;
                }
                let count = room.len().min(bytes.len());
                let (part, left) = room.split_at_mut(count);
                part.copy_from_slice(&bytes[..count]);
                (room, bytes) = (left, &bytes[count..]);
            }
        }
        true
    }
}

pub(crate) mod first_reads;

#[cfg(test)]
mod tests;
