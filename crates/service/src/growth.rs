//! How far an open write may go before more must be reserved from the quotas. The bytes are acknowledged only after that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;

use disk_server::{DiskServer, NotAgreed};
use namespace::{Durability, Reserve, WriterToken};
use types::{ErrorCode, NsPath};

use crate::error::Error;
use crate::names::{By, Names};

/// How much further an open write may go while nothing limits it, before it asks again. A quota may be set meanwhile, and holds from then on.
const UNLIMITED: u64 = 64 << 20;

/// Reserves more: in the namespace of this node, or at the manager.
#[derive(Clone)]
pub(crate) struct Growth {
    names: Names,
    disk: Option<Arc<DiskServer>>,
}

/// How far an open write may go.
pub(crate) struct MayReach {
    len: AtomicU64,
    /// Nothing limited it when that was last asked.
    is_unlimited: AtomicBool,
    growth: Option<Growth>,
}

impl Growth {
    pub(crate) fn new(names: Names, disk: Option<Arc<DiskServer>>) -> Self {
        Self { names, disk }
    }

    /// For an open write that may reach `len` so far. `None`: nothing limits it yet.
    pub(crate) fn from(&self, len: Option<u64>) -> MayReach {
        MayReach {
            len: AtomicU64::new(len.unwrap_or(UNLIMITED)),
            is_unlimited: AtomicBool::new(len.is_none()),
            growth: Some(self.clone()),
        }
    }

    /// Waits for the namespace or the manager. A manager that does not answer stops no open write that `is_unlimited`.
    fn reserve(&self, writer: WriterToken, path: &NsPath, len: u64, is_unlimited: bool) -> Result<Option<u64>, Error> {
        let doing = format_args!("write {path}");
        let Some(disk) = &self.disk else {
            let reserved = self.names.change_wait(By::service(), Durability::Written, Reserve { writer, len });
            return reserved.map_err(|error| Error::of_namespace(&doing, &error));
        };
        let (sender, receiver) = sync_channel(1);
        disk.reserve(writer, len, move |reserved| {
            // The receiver waits below; it is gone only if its thread panicked.
            let _ = sender.send(reserved);
        });
        match receiver.recv().unwrap_or(Err(NotAgreed::NoAnswer)) {
            // It goes on elsewhere, or has ended, or its client has opened it again and not come here with that yet. This server may still take its
            // writes, but nothing is reserved for them: a client that opens again and never comes would write past every quota.
            Err(NotAgreed::Refused(refusal)) if refusal.code == ErrorCode::Stale => {
                Err(Error::of_disk_server(&doing, &disk.moved()))
            }
            Err(NotAgreed::NoAnswer | NotAgreed::TooMany) if is_unlimited => Ok(None),
            reserved => reserved.map_err(|not_agreed| Error::of_manager(&doing, &not_agreed)),
        }
    }
}

impl MayReach {
    /// The server itself sets the length, and it was reserved.
    pub(crate) fn any() -> Self {
        Self { len: AtomicU64::new(u64::MAX), is_unlimited: AtomicBool::new(false), growth: None }
    }

    /// A later open of the same open write has reserved more. `None` changes nothing: some capabilities do not say how far their open write may go. If
    /// nothing limits it, [`MayReach::reserve`] learns that.
    pub(crate) fn learn(&self, len: Option<u64>) {
        if let Some(len) = len {
            self.len.fetch_max(len, Ordering::Relaxed);
        }
    }

    /// Whether `end` is within what is reserved.
    pub(crate) fn includes(&self, end: u64) -> bool {
        end <= self.len.load(Ordering::Relaxed)
    }

    /// Reserves more, up to `end` at least.
    ///
    /// # Errors
    /// A quota is used up, or the open write has ended.
    pub(crate) fn reserve(&self, writer: WriterToken, path: &NsPath, end: u64) -> Result<(), Error> {
        match &self.growth {
            Some(growth) => {
                let reached = growth.reserve(writer, path, end, self.is_unlimited.load(Ordering::Relaxed))?;
                self.is_unlimited.store(reached.is_none(), Ordering::Relaxed);
                self.learn(Some(reached.unwrap_or_else(|| end.saturating_add(UNLIMITED))));
                Ok(())
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_that_does_not_say_how_far_it_may_go_lifts_no_limit() {
        let reach = MayReach { len: AtomicU64::new(10), is_unlimited: AtomicBool::new(false), growth: None };
        reach.learn(None);
        assert!(reach.includes(10) && !reach.includes(11));
        reach.learn(Some(5));
        assert!(reach.includes(10));
        reach.learn(Some(20));
        assert!(reach.includes(20) && !reach.includes(21));
    }
}
