//! Open writes that no store has claimed to lead. The job for grace periods records them; the open service keeps readers waiting for them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::Time;
use namespace::{WriterKey, WriterToken};
use types::ObjectId;

use crate::tracked::Tracked;

/// See the module. All clones share one state. Losing it only starts the grace periods again.
#[derive(Clone, Default)]
pub(crate) struct WritesWithoutPrimary(Arc<Tracked<Since>>);

/// The epoch of each open write, and since when it has no primary.
type Since = BTreeMap<(WriterKey, ObjectId), (u32, Time)>;

impl WritesWithoutPrimary {
    /// Records that no store leads this open write now.
    pub(crate) fn add(&self, now: Time, writer: &WriterToken) {
        let mut all = self.0.lock();
        let since = all.entry((writer.key, writer.object)).or_insert((writer.epoch, now));
        // The client has come back meanwhile.
        if since.0 != writer.epoch {
            *since = (writer.epoch, now);
        }
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
        self.0.lock().get(&(writer.key, writer.object)).is_some_and(|(epoch, _)| *epoch == writer.epoch)
    }

    /// Whether this open write has had no primary for the whole `grace`.
    pub(crate) fn is_over(&self, now: Time, grace: Duration, writer: &WriterToken) -> bool {
        let all = self.0.lock();
        let since = all.get(&(writer.key, writer.object)).filter(|(epoch, _)| *epoch == writer.epoch);
        since.is_some_and(|(_, since)| now.since(*since) >= grace)
    }
}
