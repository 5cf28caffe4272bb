//! The memory of open writes, counted by the maximum that each can hold. Until they are on the disk, an open write
//! keeps its first bytes, or its incomplete pages, in memory.

use std::net::IpAddr;
use std::sync::Arc;

use store::writer_memory;

use crate::figures::Bounded;
use crate::shares::Shares;

/// The unit of counting, in bytes.
const UNIT: u64 = 64 << 10;

/// The memory for open writes.
pub(crate) struct WriterMemory {
    shares: Shares,
}

/// Reserved memory, released when dropped.
pub struct Room {
    memory: Arc<WriterMemory>,
    peer: IpAddr,
    units: usize,
}

impl WriterMemory {
    pub(crate) fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Self { shares: Shares::new(units_in(bytes_max)) })
    }

    /// Sets the total. Memory in use beyond it stays in use.
    pub(crate) fn set_most(&self, bytes_max: u64) {
        self.shares.set_most(units_in(bytes_max));
    }

    /// Reserves memory for a file with an announced length of `expected_len` bytes. No machine gets more than it
    /// leaves for the others.
    pub(crate) fn take(self: &Arc<Self>, peer: IpAddr, expected_len: Option<u64>) -> Option<Room> {
        let units = units(expected_len);
        self.shares.take_some(peer, units).then(|| Room { memory: Arc::clone(self), peer, units })
    }

    /// Reserves memory for `bytes` of many files that are written at once.
    pub(crate) fn take_bytes(self: &Arc<Self>, peer: IpAddr, bytes: u64) -> Option<Room> {
        let units = units_of(bytes);
        self.shares.take_some(peer, units).then(|| Room { memory: Arc::clone(self), peer, units })
    }

    /// Bytes in use, and their maximum.
    pub(crate) fn bytes(&self) -> Bounded {
        let unit = usize::try_from(UNIT).unwrap_or(usize::MAX);
        let bytes = |units: usize| units.saturating_mul(unit);
        Bounded { now: bytes(self.shares.taken()), most: bytes(self.shares.most()) }
    }

    /// Reserves memory even beyond the total, for a file that is already open for writing.
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
