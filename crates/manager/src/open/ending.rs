//! Records the end of an open write, as its primary reports it. The decision depends on the namespace alone.

use std::sync::Arc;

use cluster::message::{ClosedBy, ToStore};
use cluster::replication::{Epoch, ObjectDigest};
use namespace::{
    Commit, CommitPlaced, Committed, Completion, Durability, Interrupt, InterruptPlaced, Operation, Sums, WriterToken,
};
use types::{GroupId, NodeId, ReplicaId, StoreId, Timestamp};

use super::OpenService;
use crate::names::answer_to;

/// A primary's report that an open write ends.
pub(crate) struct End {
    pub(crate) node: NodeId,
    /// The primary.
    pub(crate) store: StoreId,
    pub(crate) replica: ReplicaId,
    pub(crate) writer: WriterToken,
    /// The stores that have the replica durably.
    pub(crate) holders: Vec<StoreId>,
    /// The number of the report.
    pub(crate) request: u64,
}

/// What the primary reports about a complete file.
pub(crate) struct Complete {
    pub(crate) group: GroupId,
    pub(crate) whole: ObjectDigest,
    pub(crate) mtime: Option<Timestamp>,
    pub(crate) by: ClosedBy,
}

impl OpenService {
    /// The file is complete.
    pub(crate) fn commit(self: &Arc<Self>, end: End, complete: Complete) {
        let Complete { group, whole, mtime, by } = complete;
        let sums = Sums { adler32: whole.adler32, crc32c: whole.crc32c };
        let content = Committed { len: whole.len, sums: Some(sums), mtime };
        let completion = match by {
            ClosedBy::Client => Completion::ByClient,
            ClosedBy::GraceEnd => Completion::AtGraceEnd,
        };
        let commit = Commit { writer: end.writer, content, completion };
        let op = CommitPlaced { commit, group, by: end.store, holders: end.holders.clone() };
        self.record_end(end, op);
    }

    /// The file is interrupted, with `kept_len` bytes.
    pub(crate) fn interrupt(self: &Arc<Self>, end: End, kept_len: u64) {
        let interrupt = Interrupt { writer: end.writer, kept_len };
        let op = InterruptPlaced { interrupt, by: Some(end.store), holders: end.holders.clone() };
        self.record_end(end, op);
    }

    fn record_end(self: &Arc<Self>, end: End, op: impl Operation + Send + 'static) {
        let this = Arc::clone(self);
        self.names.change_as_manager(self.world.wall(), Durability::Synced, op, move |result| {
            let End { node, store, replica, writer, holders, request } = end;
            // A server that may not end the write has ended nothing.
            if result.is_ok() {
                this.rooms.end_writing(&this.view.get(), &holders);
            }
            if let Some(result) = answer_to(result.map(drop)) {
                let epoch = Epoch(writer.epoch);
                this.world.tell_store(node, store, ToStore::Ended { replica, epoch, request, result });
            }
        });
    }
}
