//! Records the end of an open write, as its primary reports it. The decision depends on the namespace alone.

use std::sync::Arc;

use cluster::message::{ClosedBy, ToStore};
use cluster::replication::{Epoch, ObjectDigest};
use namespace::{
    Actor, Commit, CommitPlaced, Committed, Completion, Durability, Interrupt, InterruptPlaced, NsError, Operation,
    Sums, WriterToken,
};
use types::{GroupId, NodeId, ReplicaId, RequestNumber, StoreId, Timestamp};

use super::OpenService;
use super::requests::number_is_free;
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
        let (completion, number) = match by {
            ClosedBy::Client { request } => (Completion::ByClient, request),
            ClosedBy::GraceEnd => (Completion::AtGraceEnd, None),
        };
        let number = match number.map_or(Ok(None), |number| self.number_of_close(&end.writer, number)) {
            Ok(number) => number,
            Err(error) => return self.tell_end(&end, Err(error)),
        };
        let commit = Commit { writer: end.writer, content, completion };
        let op = CommitPlaced { commit, group, by: end.store, holders: end.holders.clone() };
        self.record_end(end, number, op);
    }

    /// The file is interrupted, with `kept_len` bytes.
    pub(crate) fn interrupt(self: &Arc<Self>, end: End, kept_len: u64) {
        let interrupt = Interrupt { writer: end.writer, kept_len };
        let op = InterruptPlaced { interrupt, by: Some(end.store), holders: end.holders.clone() };
        self.record_end(end, None, op);
    }

    /// The number of a client's close, as the disk server has it from the client. It was free when the disk server announced the close. If the client has
    /// used it for another request since, the namespace would answer for that.
    fn number_of_close(&self, writer: &WriterToken, number: RequestNumber) -> Result<Option<RequestNumber>, NsError> {
        self.names.read(|read| {
            // A repeated message, about an open write that has ended: the namespace answers it without the number.
            let Some(record) = namespace::writer_of(read, writer.key, writer.object)? else { return Ok(None) };
            number_is_free(read, &record, number).map(|()| Some(number))
        })
    }

    fn record_end(self: &Arc<Self>, end: End, number: Option<RequestNumber>, op: impl Operation + Send + 'static) {
        let this = Arc::clone(self);
        let by = (self.world.wall(), &Actor::admin(), number);
        self.names.change(by, Durability::Synced, op, move |result| {
            // A server that may not end the write has ended nothing.
            if result.is_ok() {
                this.rooms.end_writing(&this.view.get(), &end.holders);
                this.closes.end(end.writer.object);
                this.primaries.end(end.writer.object, end.writer.epoch);
            }
            this.tell_end(&end, result.map(drop));
        });
    }

    fn tell_end(&self, end: &End, result: Result<(), NsError>) {
        if let Some(result) = answer_to(result) {
            let End { node, store, replica, request, .. } = *end;
            let epoch = Epoch(end.writer.epoch);
            self.world.tell_store(node, store, ToStore::Ended { replica, epoch, request, result });
        }
    }
}
