//! What a disk server does: as its front door counts it, for the manager and for monitoring.

use std::time::Duration;

use cluster::Time;
use cluster::replication::ObjectDigest;
use parking_lot::{Mutex, RwLock};
use store::Space;
use types::StoreId;

use super::DiskServer;
use node::{Activity, FromDisk, NotSummed, SumRequest};

/// What the front door says of itself. What only grows is counted from its start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FrontEndFigures {
    /// Clients that are logged in.
    pub sessions: u64,
    /// Files that they have open.
    pub open_files: u64,
    /// Files that are written, or wait for their writer.
    pub writing: u64,
    /// Bytes that clients have read.
    pub read_bytes: u64,
    /// Bytes that clients have sent to be written.
    pub written_bytes: u64,
    /// Bytes that the files which are written for clients may hold in memory.
    pub writers_memory: u64,
    /// The most that it should be.
    pub writers_memory_max: u64,
    /// How much of what it can do at a time it does, in thousandths.
    pub load_permille: u16,
}

/// Asks the front door. Must not wait.
pub type FrontEndProbe = dyn Fn() -> FrontEndFigures + Send + Sync;

/// Has the front door read a content through, and tell [`DiskServer::summed`] what it found. Must not wait.
pub type Summer = dyn Fn(SumRequest) + Send + Sync;

/// The door, and how busy it was lately.
#[derive(Default)]
pub(super) struct Busy {
    front_end: RwLock<Option<Box<FrontEndProbe>>>,
    summer: RwLock<Option<Box<Summer>>>,
    load: Mutex<MeanLoad>,
}

/// The mean of what was seen since it was taken last: a moment says little of a second.
#[derive(Clone, Copy, Default, Debug)]
struct MeanLoad {
    sum: u64,
    seen: u64,
    /// The mean that was taken last.
    last: u16,
}

impl MeanLoad {
    fn see(&mut self, permille: u16) {
        self.sum += u64::from(permille.min(1000));
        self.seen += 1;
    }

    fn take(&mut self) -> u16 {
        // Nothing was seen since: asked twice in a moment, it is as busy as it was.
        if let Some(mean) = self.sum.checked_div(self.seen) {
            *self = Self { last: u16::try_from(mean).unwrap_or(1000), ..Self::default() };
        }
        self.last
    }
}

/// A disk server at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskFigures {
    /// It has a session with the manager, and the lease to answer.
    pub is_in_session: bool,
    /// How busy it was in the last second, in thousandths: as the manager is told.
    pub load_permille: u16,
    /// Its stores.
    pub stores: Vec<StoreFigures>,
}

/// A store of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreFigures {
    /// Which.
    pub store: StoreId,
    /// Its file system; `None`: it could not be asked.
    pub space: Option<Space>,
    /// Contents that are written there, by who orders it or for who does.
    pub open_replicas: usize,
}

impl DiskServer {
    /// From now on `front_end` is asked what is done for clients; `None`: nobody is.
    pub fn set_front_end(&self, front_end: Option<Box<FrontEndProbe>>) {
        *self.busy.front_end.write() = front_end;
    }

    /// From now on contents whose checksums are asked for are read by `summer`; `None`: by nobody.
    pub fn set_summer(&self, summer: Option<Box<Summer>>) {
        *self.busy.summer.write() = summer;
    }

    /// A content is to be read through.
    pub(super) fn sum(&self, request: SumRequest) {
        if let Some(summer) = &*self.busy.summer.read() {
            summer(request);
        }
    }

    /// The manager is told what a reading for it has found.
    pub fn summed(&self, number: u64, found: Result<ObjectDigest, NotSummed>) {
        self.world.to_manager(FromDisk::Summed { number, found });
    }

    /// For monitoring. Looks at the file systems.
    #[must_use]
    pub fn figures(&self) -> DiskFigures {
        let store = |shell: &super::StoreShell| StoreFigures {
            store: shell.at.store_id,
            space: shell.at.store.space().ok(),
            open_replicas: shell.open_replicas(),
        };
        DiskFigures {
            is_in_session: self.view(self.world.now()).lease.is_valid,
            load_permille: self.busy.load.lock().last,
            stores: self.stores.values().map(|shell| store(shell)).collect(),
        }
    }

    /// To be called some times a second.
    pub(super) fn look_how_busy(&self) {
        if let Some(front_end) = &*self.busy.front_end.read() {
            self.busy.load.lock().see(front_end().load_permille);
        }
    }

    pub(super) fn mean_load(&self) -> u16 {
        self.busy.load.lock().take()
    }

    /// What the manager is told; `None`: there is no front door to ask.
    pub(super) fn activity(&self, now: Time) -> Option<Activity> {
        let front_end = self.busy.front_end.read().as_ref().map(|front_end| front_end())?;
        let FrontEndFigures { sessions, open_files, writing, read_bytes, written_bytes, .. } = front_end;
        let copies: usize = self.stores.values().map(|shell| shell.replicas_written_elsewhere()).sum();
        let writers_memory = front_end.writers_memory.saturating_add(copies as u64 * store::writer_memory(None));
        let up: Duration = now.since(self.began);
        let up_millis = u64::try_from(up.as_millis()).unwrap_or(u64::MAX);
        Some(Activity {
            up_millis,
            sessions,
            open_files,
            writing,
            read_bytes,
            written_bytes,
            writers_memory,
            writers_memory_max: front_end.writers_memory_max,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_the_mean_of_what_was_seen() {
        let mut load = MeanLoad::default();
        assert_eq!(load.take(), 0);
        [0, 1000, 500].into_iter().for_each(|permille| load.see(permille));
        assert_eq!(load.take(), 500);
        assert_eq!(load.take(), 500, "nothing was seen since");
        load.see(u16::MAX);
        assert_eq!(load.take(), 1000);
    }
}
