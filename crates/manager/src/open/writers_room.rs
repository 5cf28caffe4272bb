//! The memory that disk servers have for files that are written there: they say every second how much of it is taken, and what was begun and ended since is
//! counted here. Nobody is sent where there is none, and nothing is made for whoever is not sent anywhere.

use std::collections::BTreeMap;

use node::Activity;
use types::{NodeId, StoreId};

use super::open_request::OpeningError;
use crate::Manager;
use crate::coordinator::ClusterView;
use crate::tracked::Tracked;

/// What is known of one disk server.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct WritersRoom {
    /// Bytes, as it said last.
    taken: u64,
    /// The most; 0: it has not said anything yet.
    most: u64,
    /// Begun there since, and not ended.
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

    /// Which one it was nobody says. It may have been counted in what was taken: what it says next is right again.
    fn end(&mut self) {
        self.begun = self.begun.saturating_sub(store::writer_memory(None));
    }
}

/// What is known of all disk servers.
#[derive(Default)]
pub(crate) struct WritersRooms(Tracked<BTreeMap<NodeId, WritersRoom>>);

impl WritersRooms {
    /// A disk server says what it does.
    pub(crate) fn hear(&self, node: NodeId, said: &Activity) {
        self.0.lock().entry(node).or_default().hear(said);
    }

    /// Forgets all others.
    pub(crate) fn retain(&self, stays: impl Fn(NodeId) -> bool) {
        self.0.lock().retain(|node, _| stays(*node));
    }
}

impl Manager {
    /// Whether the server of each of `stores` has memory for one more file. Of one that has not said anything yet that is believed.
    pub(crate) fn have_room<'a>(
        &self,
        view: &ClusterView,
        stores: impl IntoIterator<Item = &'a StoreId>,
        expected: Option<u64>,
    ) -> bool {
        let (bytes, rooms) = (store::writer_memory(expected), self.rooms.0.lock());
        let mut nodes = stores.into_iter().filter_map(|store| view.node_of(*store));
        nodes.all(|node| rooms.get(&node).is_none_or(|room| room.has(bytes)))
    }

    /// One more is written on each of `stores`.
    pub(crate) fn begin_writing<'a>(
        &self,
        view: &ClusterView,
        stores: impl IntoIterator<Item = &'a StoreId>,
        expected: Option<u64>,
    ) {
        let mut rooms = self.rooms.0.lock();
        for node in stores.into_iter().filter_map(|store| view.node_of(*store)) {
            rooms.entry(node).or_default().begin(store::writer_memory(expected));
        }
    }

    /// What was written on each of `stores` has come to its end.
    pub(crate) fn end_writing(&self, stores: &[StoreId]) {
        let (view, mut rooms) = (self.view(), self.rooms.0.lock());
        for node in stores.iter().filter_map(|store| view.node_of(*store)) {
            rooms.entry(node).or_default().end();
        }
    }
}

/// What is told to whoever comes too many.
pub(crate) fn no_memory() -> OpeningError {
    let why = "the disk servers that may get it have no memory for more open writes";
    OpeningError::Wait { seconds: 3, why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_begun_counts_until_it_ends_or_is_heard_of() {
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
        // More ended than began since.
        room.end();
        assert!(room.has(large) && !room.has(large + 1));
        room.begin(u64::MAX);
        assert!(!room.has(1));
    }
}
