//! What open writers hold in memory, counted by the most that each can hold: a file in the making keeps its first bytes, or its pages
//! that are not whole, until they are on the disk.

use std::net::IpAddr;
use std::sync::Arc;

use store::writer_memory;

use crate::figures::Bounded;
use crate::shares::Shares;

/// What is counted in.
const UNIT: u64 = 64 << 10;

/// The memory that there is for writers.
pub(crate) struct WriterMemory {
    shares: Shares,
}

/// A writer's part of it, for as long as it lives.
pub struct Room {
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
        let units = units_of(bytes);
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
    usize::try_from(bytes_max / UNIT).unwrap_or(usize::MAX).max(units(None))
}

fn units_of(bytes: u64) -> usize {
    usize::try_from(bytes.div_ceil(UNIT)).unwrap_or(usize::MAX)
}

fn units(expected_len: Option<u64>) -> usize {
    units_of(writer_memory(expected_len))
}

impl Drop for Room {
    fn drop(&mut self) {
        self.memory.shares.give_some_back(self.peer, self.units);
    }
}
