//! The memory that disk servers have for files that are written there: they say every second how much of it is taken, and what was begun and ended since is
//! counted here. Nobody is sent where there is none, and nothing is made for whoever is not sent anywhere.

use types::StoreId;

use super::{Manager, State};
use crate::message::Activity;
use crate::opening::OpeningError;

/// What is known of one disk server.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct WritersRoom {
    /// Bytes, as it said last.
    taken: u64,
    /// The most; 0: it has not said anything yet.
    most: u64,
    /// Begun there since, and not ended.
    begun: u64,
}

impl WritersRoom {
    pub(super) fn hear(&mut self, said: &Activity) {
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

impl State {
    fn room_of(&mut self, store: StoreId) -> Option<&mut WritersRoom> {
        let node = self.node_of(store)?;
        self.servers.writers_room(node)
    }

    /// Whether the server of each of `stores` has memory for one more file.
    pub(super) fn have_room<'a>(
        &mut self,
        stores: impl IntoIterator<Item = &'a StoreId>,
        expected: Option<u64>,
    ) -> bool {
        let bytes = store::writer_memory(expected);
        stores.into_iter().all(|store| self.room_of(*store).is_none_or(|room| room.has(bytes)))
    }

    /// One more is written on each of `stores`.
    pub(super) fn begin_writing<'a>(&mut self, stores: impl IntoIterator<Item = &'a StoreId>, expected: Option<u64>) {
        for store in stores {
            if let Some(room) = self.room_of(*store) {
                room.begin(store::writer_memory(expected));
            }
        }
    }
}

impl Manager {
    /// What was written on each of `stores` has come to its end.
    pub(super) fn end_writing(&self, stores: &[StoreId]) {
        let mut state = self.state();
        for store in stores {
            if let Some(room) = state.room_of(*store) {
                room.end();
            }
        }
    }
}

/// What is told to whoever comes too many.
pub(super) fn no_memory() -> OpeningError {
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
