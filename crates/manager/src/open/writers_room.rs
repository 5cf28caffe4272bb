//! Estimates each disk server's memory for files that are being written. A server reports its use each second; this module counts the opens and ends
//! since then. Clients are not sent to a server without memory, and no file is created for such a client.

use std::collections::BTreeMap;

use node::Activity;
use types::{NodeId, StoreId};

use super::open_request::OpeningError;
use crate::coordinator::ClusterView;
use crate::tracked::Tracked;

/// The memory of one disk server.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct WritersRoom {
    /// Bytes in use, as last reported.
    taken: u64,
    /// The limit in bytes; 0 if the server has not reported yet.
    most: u64,
    /// Opens since the last report that have not ended.
    begun: u64,
}

impl WritersRoom {
    fn hear(&mut self, said: &Activity) {
        *self = Self { taken: said.writers_memory, most: said.writers_memory_max, begun: 0 };
    }

    fn has(&self, bytes: u64) -> bool {
        self.most == 0 || self.taken.saturating_add(self.begun).saturating_add(bytes) <= self.most
    }

    fn begin(&mut self, bytes: u64) {
        self.begun = self.begun.saturating_add(bytes);
    }

    /// Counts one end. The ended file may already be part of `taken`; the next report corrects that.
    fn end(&mut self) {
        self.begun = self.begun.saturating_sub(store::writer_memory(None));
    }
}

/// The memory of all disk servers.
#[derive(Default)]
pub(crate) struct WritersRooms(Tracked<BTreeMap<NodeId, WritersRoom>>);

impl WritersRooms {
    /// Takes over a disk server's report.
    pub(crate) fn hear(&self, node: NodeId, said: &Activity) {
        self.0.lock().entry(node).or_default().hear(said);
    }

    /// Forgets all other nodes.
    pub(crate) fn retain(&self, stays: impl Fn(NodeId) -> bool) {
        self.0.lock().retain(|node, _| stays(*node));
    }

    /// Whether the server of each of `stores` has memory for one more file. True for a server that has not reported yet.
    pub(crate) fn have_room<'a>(
        &self,
        view: &ClusterView,
        stores: impl IntoIterator<Item = &'a StoreId>,
        expected: Option<u64>,
    ) -> bool {
        let (bytes, rooms) = (store::writer_memory(expected), self.0.lock());
        let mut nodes = stores.into_iter().filter_map(|store| view.node_of(*store));
        nodes.all(|node| rooms.get(&node).is_none_or(|room| room.has(bytes)))
    }

    /// Counts one more file on each of `stores`.
    pub(crate) fn begin_writing<'a>(
        &self,
        view: &ClusterView,
        stores: impl IntoIterator<Item = &'a StoreId>,
        expected: Option<u64>,
    ) {
        let mut rooms = self.0.lock();
        for node in stores.into_iter().filter_map(|store| view.node_of(*store)) {
            rooms.entry(node).or_default().begin(store::writer_memory(expected));
        }
    }

    /// Counts the end of a file on each of `stores`.
    pub(crate) fn end_writing(&self, view: &ClusterView, stores: &[StoreId]) {
        let mut rooms = self.0.lock();
        for node in stores.iter().filter_map(|store| view.node_of(*store)) {
            rooms.entry(node).or_default().end();
        }
    }
}

/// The answer to a client for which no server has memory.
pub(crate) fn no_memory() -> OpeningError {
    let why = "the disk servers that may get it have no memory for more open writes";
    OpeningError::Wait { seconds: 3, why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_counts_until_it_ends_or_is_reported() {
        let large = store::writer_memory(None);
        let small = store::writer_memory(Some(1));
        let mut room = WritersRoom::default();
        assert!(room.has(u64::MAX), "it has not said anything yet");
        let said = |writers_memory| Activity { writers_memory, writers_memory_max: 3 * large, ..Activity::default() };
        room.hear(&said(large));
        room.begin(large);
        assert!(room.has(large) && room.has(small));
        room.begin(large);
        assert!(!room.has(small));
        room.end();
        assert!(room.has(large) && !room.has(large + 1));
        room.begin(large);
        room.hear(&said(2 * large));
        assert!(room.has(large) && !room.has(large + 1), "the started open write counts as used memory");
        // More files ended than began since the report.
        room.end();
        assert!(room.has(large) && !room.has(large + 1));
        room.begin(u64::MAX);
        assert!(!room.has(1));
    }
}
