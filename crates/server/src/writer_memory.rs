//! What open writers hold in memory, counted by the most that each can hold: a file in the making keeps its first bytes, or its pages
//! that are not whole, until they are on the disk.

use std::net::IpAddr;
use std::sync::Arc;

use crate::figures::Bounded;
use crate::shares::Shares;

/// What is counted in; a small file, which is announced as such, holds no more.
const UNIT: u64 = 64 << 10;
/// A large file, or one of unknown size, holds up to 64 pages of 4 KiB and the places of 4,096 ranges.
const LARGE_UNITS: usize = 6;

/// The memory that there is for writers.
pub(crate) struct WriterMemory {
    shares: Shares,
}

/// A writer's part of it, for as long as it lives.
pub(crate) struct Room {
    memory: Arc<WriterMemory>,
    peer: IpAddr,
    units: usize,
}

impl WriterMemory {
    pub(crate) fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Self { shares: Shares::new(units_in(bytes_max)) })
    }

    /// From now on there are so many bytes. What is taken beyond that stays taken.
    pub(crate) fn set_most(&self, bytes_max: u64) {
        self.shares.set_most(units_in(bytes_max));
    }

    /// Room for a file of which `expected_len` bytes were announced. No machine gets more than is left for the others.
    pub(crate) fn take(self: &Arc<Self>, peer: IpAddr, expected_len: Option<u64>) -> Option<Room> {
        let units = units(expected_len);
        self.shares.take_some(peer, units).then(|| Room { memory: Arc::clone(self), peer, units })
    }

    /// Room for `bytes`, of what is to be written at once and not as one file.
    pub(crate) fn take_bytes(self: &Arc<Self>, peer: IpAddr, bytes: u64) -> Option<Room> {
        let units = usize::try_from(bytes.div_ceil(UNIT)).unwrap_or(usize::MAX);
        self.shares.take_some(peer, units).then(|| Room { memory: Arc::clone(self), peer, units })
    }

    /// Bytes that are taken, and at most.
    pub(crate) fn bytes(&self) -> Bounded {
        let unit = usize::try_from(UNIT).unwrap_or(usize::MAX);
        let bytes = |units: usize| units.saturating_mul(unit);
        Bounded { now: bytes(self.shares.taken()), most: bytes(self.shares.most()) }
    }

    /// The room of a file that is in the making already, so that what it holds is held, be there room or not.
    pub(crate) fn take_regardless(self: &Arc<Self>, peer: IpAddr, expected_len: Option<u64>) -> Room {
        let units = units(expected_len);
        self.shares.take_regardless(peer, units);
        Room { memory: Arc::clone(self), peer, units }
    }
}

fn units_in(bytes_max: u64) -> usize {
    usize::try_from(bytes_max / UNIT).unwrap_or(usize::MAX).max(LARGE_UNITS)
}

fn units(expected_len: Option<u64>) -> usize {
    if expected_len.is_some_and(|len| len <= UNIT) { 1 } else { LARGE_UNITS }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.memory.shares.give_some_back(self.peer, self.units);
    }
}
