//! The lengths of files that are being written. Their primaries report them about once a second; the namespace learns them when the files are closed.

use std::collections::BTreeMap;

use node::{LENGTHS_MAX, OpenWriteLength};
use types::{NodeId, ObjectId};

use crate::tracked::Tracked;

/// The last report of each disk server. Holds at most [`LENGTHS_MAX`] lengths of each.
#[derive(Default)]
pub(crate) struct OpenLengths(Tracked<State>);

#[derive(Default)]
struct State {
    of: BTreeMap<ObjectId, Length>,
    /// The objects of each node's last report.
    reported: BTreeMap<NodeId, Vec<ObjectId>>,
}

#[derive(Clone, Copy)]
struct Length {
    node: NodeId,
    epoch: u32,
    len: u64,
}

impl OpenLengths {
    /// A disk server reports the lengths of all files that its clients write.
    pub(crate) fn hear(&self, node: NodeId, lengths: &[OpenWriteLength]) {
        let mut state = self.0.lock();
        state.forget(node);
        let mut objects = Vec::with_capacity(lengths.len().min(LENGTHS_MAX));
        for OpenWriteLength { writer, len } in lengths.iter().take(LENGTHS_MAX) {
            // A server that another one has replaced may still report.
            if state.of.get(&writer.object).is_some_and(|known| known.epoch > writer.epoch) {
                continue;
            }
            state.of.insert(writer.object, Length { node, epoch: writer.epoch, len: *len });
            objects.push(writer.object);
        }
        state.reported.insert(node, objects);
    }

    /// Forgets all other nodes.
    pub(crate) fn retain(&self, stays: impl Fn(NodeId) -> bool) {
        let mut state = self.0.lock();
        let gone: Vec<NodeId> = state.reported.keys().copied().filter(|node| !stays(*node)).collect();
        gone.into_iter().for_each(|node| state.forget(node));
    }

    /// At most `most` of the lengths.
    pub(crate) fn all(&self, most: usize) -> Vec<(ObjectId, u64)> {
        self.0.lock().of.iter().take(most).map(|(object, known)| (*object, known.len)).collect()
    }

    /// The length of an object that is being written, as last reported; 0 if nothing was.
    pub(crate) fn of(&self, object: ObjectId) -> u64 {
        self.0.lock().of.get(&object).map_or(0, |known| known.len)
    }
}

impl State {
    fn forget(&mut self, node: NodeId) {
        for object in self.reported.remove(&node).unwrap_or_default() {
            if self.of.get(&object).is_some_and(|known| known.node == node) {
                self.of.remove(&object);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use types::{WriterKey, WriterToken};

    use super::*;

    fn length(object: u64, epoch: u32, len: u64) -> OpenWriteLength {
        OpenWriteLength { writer: WriterToken { key: WriterKey(1), object: ObjectId(object), epoch }, len }
    }

    #[test]
    fn the_newest_writer_counts_and_what_is_not_reported_any_more_is_forgotten() {
        let lengths = OpenLengths::default();
        lengths.hear(NodeId(1), &[length(5, 1, 100), length(6, 1, 60)]);
        assert_eq!([5, 6, 7].map(|object| lengths.of(ObjectId(object))), [100, 60, 0]);
        lengths.hear(NodeId(2), &[length(5, 2, 80)]);
        lengths.hear(NodeId(1), &[length(5, 1, 120)]);
        assert_eq!([5, 6].map(|object| lengths.of(ObjectId(object))), [80, 0]);
        lengths.retain(|node| node == NodeId(1));
        assert_eq!(lengths.of(ObjectId(5)), 0);
    }
}
