//! Open writes that no store has claimed to lead. The job for grace periods records them; the open service keeps readers waiting for them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::Time;
use namespace::{WriterKey, WriterToken};
use types::ObjectId;

use crate::tracked::Tracked;

/// How long a client may need from the manager to its server, which begins to lead the open write when it arrives.
const ARRIVAL: Duration = Duration::from_secs(5);

/// See the module. All clones share one state. Losing it only starts the grace periods again.
#[derive(Clone, Default)]
pub(crate) struct WritesWithoutPrimary(Arc<Tracked<Since>>);

/// The open writes without a primary.
type Since = BTreeMap<(WriterKey, ObjectId), Without>;

#[derive(Clone, Copy)]
struct Without {
    epoch: u32,
    since: Time,
    /// Another client of the same principal wants the file, so nobody waits any longer.
    is_due: bool,
}

impl WritesWithoutPrimary {
    /// Records that no store leads this open write now.
    pub(crate) fn add(&self, now: Time, writer: &WriterToken) {
        add(&mut self.0.lock(), now, writer);
    }

    /// Records that no store leads this open write now, and that somebody wants its grace period to end. It ends if no store
    /// has led the open write for [`ARRIVAL`].
    pub(crate) fn end_soon(&self, now: Time, writer: &WriterToken) {
        let mut all = self.0.lock();
        let without = add(&mut all, now, writer);
        without.is_due = now.since(without.since) >= ARRIVAL;
    }

    /// Forgets an open write that has a primary, or that is being ended.
    pub(crate) fn remove(&self, (key, object): (WriterKey, ObjectId)) {
        self.0.lock().remove(&(key, object));
    }

    /// Forgets all open writes that are not to stay.
    pub(crate) fn retain(&self, stays: impl Fn(&(WriterKey, ObjectId)) -> bool) {
        self.0.lock().retain(|writer, _| stays(writer));
    }

    /// Whether no store leads this open write, as far as is known: then its bytes can be read nowhere.
    pub(crate) fn has(&self, writer: &WriterToken) -> bool {
        self.0.lock().get(&(writer.key, writer.object)).is_some_and(|without| without.epoch == writer.epoch)
    }

    /// Whether this open write has had no primary for the whole `grace`.
    pub(crate) fn is_over(&self, now: Time, grace: Duration, writer: &WriterToken) -> bool {
        let all = self.0.lock();
        let without = all.get(&(writer.key, writer.object)).filter(|without| without.epoch == writer.epoch);
        without.is_some_and(|without| without.is_due || now.since(without.since) >= grace)
    }
}

fn add<'a>(all: &'a mut Since, now: Time, writer: &WriterToken) -> &'a mut Without {
    let new = Without { epoch: writer.epoch, since: now, is_due: false };
    let without = all.entry((writer.key, writer.object)).or_insert(new);
    // The client has come back meanwhile.
    if without.epoch != writer.epoch {
        *without = new;
    }
    without
}
