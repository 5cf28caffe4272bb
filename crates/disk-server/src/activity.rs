//! A disk server's activity, as its front end counts it. The manager and monitoring read it.

use std::time::Duration;

use cluster::Time;
use parking_lot::{Mutex, RwLock};
use store::Space;
use types::StoreId;

use super::DiskServer;
use node::{Activity, ChecksumFailure, FromDisk, SumRequest, Summed};

/// The front end's figures.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FrontEndFigures {
    /// Its activity. The disk server adds how long it has run, and the memory of open writes of other servers' clients.
    pub activity: Activity,
    /// Its load, in thousandths of what it can do at a time.
    pub load_permille: u16,
}

/// Asks the front end for its figures. Must not wait.
pub type FrontEndProbe = dyn Fn() -> FrontEndFigures + Send + Sync;

/// Has the front end read an object through and report to [`DiskServer::summed`]. Must not wait.
pub type Summer = dyn Fn(SumRequest) + Send + Sync;

/// The front end and its recent load.
#[derive(Default)]
pub(super) struct Busy {
    front_end: RwLock<Option<Box<FrontEndProbe>>>,
    summer: RwLock<Option<Box<Summer>>>,
    load: Mutex<MeanLoad>,
}

/// The mean load since the last call of `take`. A single sample says little about a second.
#[derive(Clone, Copy, Default, Debug)]
struct MeanLoad {
    sum: u64,
    seen: u64,
    /// The last mean.
    last: u16,
}

impl MeanLoad {
    fn see(&mut self, permille: u16) {
        self.sum += u64::from(permille.min(1000));
        self.seen += 1;
    }

    fn take(&mut self) -> u16 {
        // Without new samples, the load is unchanged.
        if let Some(mean) = self.sum.checked_div(self.seen) {
            *self = Self { last: u16::try_from(mean).unwrap_or(1000), ..Self::default() };
        }
        self.last
    }
}

/// A disk server at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskFigures {
    /// Whether it has a session with the manager and a valid lease.
    pub is_in_session: bool,
    /// Its load in the last second, in thousandths, as the manager is told.
    pub load_permille: u16,
    /// Its stores.
    pub stores: Vec<StoreFigures>,
}

/// A store of a disk server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreFigures {
    /// The store's number.
    pub store: StoreId,
    /// The space of its file system. `None` if it cannot be determined.
    pub space: Option<Space>,
    /// Replicas that are being written there, as primary or not.
    pub open_replicas: usize,
}

impl DiskServer {
    /// Sets the front end that is asked for figures. `None` for no front end.
    pub fn set_front_end(&self, front_end: Option<Box<FrontEndProbe>>) {
        *self.busy.front_end.write() = front_end;
    }

    /// Sets the front end's reader of objects for checksums. `None` for no reader.
    pub fn set_summer(&self, summer: Option<Box<Summer>>) {
        *self.busy.summer.write() = summer;
    }

    /// Handles a request to read an object through.
    pub(super) fn sum(&self, request: SumRequest) {
        if let Some(summer) = &*self.busy.summer.read() {
            summer(request);
        }
    }

    /// Tells the manager the checksums of an object, or why it was not read.
    pub fn summed(&self, number: u64, found: Result<Summed, ChecksumFailure>) {
        self.world.to_manager(FromDisk::Summed { number, found });
    }

    /// The figures for monitoring. Asks the file systems.
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

    /// Samples the load. Call it several times a second.
    pub(super) fn look_how_busy(&self) {
        if let Some(front_end) = &*self.busy.front_end.read() {
            self.busy.load.lock().see(front_end().load_permille);
        }
    }

    pub(super) fn mean_load(&self) -> u16 {
        self.busy.load.lock().take()
    }

    /// The activity for the manager. `None` without a front end.
    pub(super) fn activity(&self, now: Time) -> Option<Activity> {
        let front_end = self.busy.front_end.read().as_ref().map(|front_end| front_end())?;
        let FrontEndFigures { activity, .. } = front_end;
        let copies: usize = self.stores.values().map(|shell| shell.replicas_written_elsewhere()).sum();
        let writers_memory = activity.writers_memory.saturating_add(copies as u64 * store::writer_memory(None));
        let up: Duration = now.since(self.began);
        let up_millis = u64::try_from(up.as_millis()).unwrap_or(u64::MAX);
        Some(Activity { up_millis, writers_memory, ..activity })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_the_mean_of_its_samples() {
        let mut load = MeanLoad::default();
        assert_eq!(load.take(), 0);
        [0, 1000, 500].into_iter().for_each(|permille| load.see(permille));
        assert_eq!(load.take(), 500);
        assert_eq!(load.take(), 500, "nothing was seen since");
        load.see(u16::MAX);
        assert_eq!(load.take(), 1000);
    }
}
