//! What the nodes of a cluster tell each other: plain data. How it becomes bytes, and on which connection it goes, is the shell's affair.
//!
//! All of it may be lost, come late or twice. Who sends it is known from the connection: a manager compares the node and the store in a message with
//! that. Bytes of contents are never in a message; they go beside it.

use serde::{Deserialize, Serialize};
use types::{ErrorCode, GroupId, InSyncReplica, NodeId, ReplicaId, SessionId, StoreId, Timestamp, WriterToken};

use crate::replication::{Epoch, FromReplica, ObjectDigest, ToReplica};
use crate::{CopyId, Fence, LeaseTerms, Register, Registered};

/// Pieces that one [`ToStore::Delete`] or [`FromStore::Deleted`] may name.
pub const REPLICAS_MAX: usize = 256;

/// What a copy is made of, and has to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Original {
    /// A content that is whole.
    ObjectDigest(ObjectDigest),
    /// What was kept of a content when its writer went away: so many bytes, of which no checksum is known.
    Kept {
        /// Bytes.
        len: u64,
        /// It was whole, and was being changed in place.
        was_whole: bool,
    },
}

impl Original {
    /// How long it is, in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::ObjectDigest(whole) => whole.len,
            Self::Kept { len, .. } => *len,
        }
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Who ends a writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ClosedBy {
    /// The client closed.
    Client,
    /// The server did, at the end of the grace period: all that was announced is there, and the client may believe that it has closed.
    GraceEnd,
}

/// What a disk server tells the manager.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToManager {
    /// It wants a session.
    Register(Register),
    /// It wants to keep its session.
    Renew {
        /// Who.
        node: NodeId,
        /// Which.
        session: SessionId,
        /// The number of this request.
        number: u64,
    },
    /// One of its stores says something.
    OfStore {
        /// Which.
        store: StoreId,
        /// What.
        message: FromStore,
    },
}

/// What a store tells the manager.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FromStore {
    /// These take part in the writing, and no others: to be written down durably, if the writer's epoch still is this one, `session` is the present one
    /// of the node, and nobody is about to take over.
    Place {
        /// The session in which it asks.
        session: SessionId,
        /// The replica.
        replica: ReplicaId,
        /// The writer.
        writer: WriterToken,
        /// The primary first.
        in_sync: Vec<InSyncReplica>,
        /// The number of this request.
        request: u64,
    },
    /// What was written is to become the file. Asked for again, it is answered again.
    Commit {
        /// The replica.
        replica: ReplicaId,
        /// The group that it belongs to.
        group: GroupId,
        /// The writer.
        writer: WriterToken,
        /// What there is.
        whole: ObjectDigest,
        /// The stores that have it durably.
        holders: Vec<StoreId>,
        /// When it was changed, if the client said so.
        mtime: Option<Timestamp>,
        /// Who closed it.
        by: ClosedBy,
        /// The number of this request.
        request: u64,
    },
    /// Its writer has gone: what there is is kept, and marked.
    Interrupt {
        /// The replica.
        replica: ReplicaId,
        /// The writer.
        writer: WriterToken,
        /// How much is kept, in bytes.
        kept_len: u64,
        /// The stores that have it durably.
        holders: Vec<StoreId>,
        /// The number of this request.
        request: u64,
    },
    /// It is as the fence says.
    Fenced(Fence),
    /// A copy is there, or could not be made.
    Copied {
        /// The session in which it was ordered: managers number their orders anew.
        session: SessionId,
        /// Which.
        copy: CopyId,
        /// Whether it is there, durably.
        is_there: bool,
    },
    /// These are deleted, durably; or were not there.
    Deleted {
        /// At most [`REPLICAS_MAX`].
        replicas: Vec<ReplicaId>,
    },
}

/// What the manager tells a disk server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToServer {
    /// It has a session.
    Registered {
        /// Which.
        registered: Registered,
        /// What leases are.
        terms: LeaseTerms,
        /// The manager's time of day, by which permissions end.
        wall: Timestamp,
    },
    /// It keeps its session.
    Renewed {
        /// Which.
        session: SessionId,
        /// The number of the request.
        number: u64,
        /// The manager's time of day.
        wall: Timestamp,
    },
    /// That session is over.
    NoSession {
        /// Which.
        session: SessionId,
    },
    /// One of its stores is told something.
    ToStore {
        /// Which.
        store: StoreId,
        /// What.
        message: ToStore,
    },
}

/// What the manager tells a store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToStore {
    /// The answer to [`FromStore::Place`].
    Placed {
        /// The replica.
        replica: ReplicaId,
        /// The writer's epoch.
        epoch: Epoch,
        /// The number of the request.
        request: u64,
        /// What came of it.
        result: Result<(), ErrorCode>,
    },
    /// The answer to [`FromStore::Commit`] and to [`FromStore::Interrupt`].
    Ended {
        /// The replica.
        replica: ReplicaId,
        /// The writer's epoch.
        epoch: Epoch,
        /// The number of the request.
        request: u64,
        /// What came of it.
        result: Result<(), ErrorCode>,
    },
    /// Nobody with a lower epoch may answer for this replica.
    Fence(Fence),
    /// It is owed a copy, and is to fetch it.
    Copy {
        /// Which.
        copy: CopyId,
        /// The server's session, in which alone this counts.
        session: SessionId,
        /// The replica.
        replica: ReplicaId,
        /// The epoch of the content's last writer.
        epoch: Epoch,
        /// What it has to be.
        original: Original,
        /// Who has it.
        from: StoreId,
    },
    /// Nobody needs these any more. They are deleted whatever is done with them.
    Delete {
        /// At most [`REPLICAS_MAX`].
        replicas: Vec<ReplicaId>,
    },
}

/// What stores tell each other.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum BetweenStores {
    /// A primary tells a replica; a change goes beside it.
    ToReplica {
        /// The primary's store.
        from: StoreId,
        /// The replica.
        replica: ReplicaId,
        /// What.
        told: ToReplica,
    },
    /// A replica tells its primary.
    FromReplica {
        /// The replica's store.
        from: StoreId,
        /// The replica.
        replica: ReplicaId,
        /// What.
        said: FromReplica,
    },
    /// A part of a content is wanted.
    Fetch {
        /// The store that wants it.
        to: StoreId,
        /// For which copy.
        copy: CopyId,
        /// The replica.
        replica: ReplicaId,
        /// What it has to be.
        original: Original,
        /// From where on, in bytes.
        offset: u64,
        /// How many bytes, unless it ends before.
        len: u32,
    },
    /// That part goes beside this, as a change that writes it; nothing goes beside it: it cannot be had here.
    Fetched {
        /// For which copy.
        copy: CopyId,
        /// The replica.
        replica: ReplicaId,
        /// From where on, in bytes.
        offset: u64,
    },
}

#[cfg(test)]
mod tests {
    use types::{Adler32, BootGeneration, BootId, Crc32c, ObjectId, WriterKey};

    use super::*;
    use crate::replication::{Seq, Stream};
    use crate::{FenceId, ProcessEpoch};

    fn there_and_back<T: Serialize + for<'a> Deserialize<'a> + PartialEq + std::fmt::Debug>(messages: Vec<T>) {
        for message in messages {
            let bytes = postcard::to_allocvec(&message).unwrap();
            assert_eq!(postcard::from_bytes::<T>(&bytes).unwrap(), message);
            assert!(bytes.len() < 200, "{} bytes for {message:?}", bytes.len());
            assert!(postcard::from_bytes::<T>(&bytes[..bytes.len() - 1]).is_err(), "{message:?} is cut short");
        }
    }

    #[test]
    fn messages_go_there_and_back() {
        let (node, store, session, request) = (NodeId(7), StoreId(u64::MAX), SessionId(9 << 40), 300);
        let replica = ReplicaId::first(ObjectId(u64::MAX));
        let writer = WriterToken { key: WriterKey(u64::MAX), object: replica.object, epoch: 4 };
        let whole = ObjectDigest { len: 1 << 50, crc32c: Crc32c(u32::MAX), adler32: Adler32(8) };
        let in_sync = vec![InSyncReplica { store, boot_generation: BootGeneration(3) }; 8];
        let fence = Fence { fence: FenceId(2), node, store, session: Some(SessionId(3)), replica, epoch: Epoch(5) };
        let (copy, mtime, by) = (CopyId(70_000), Some(Timestamp(-1)), ClosedBy::GraceEnd);
        let of_store = |message| ToManager::OfStore { store, message };
        there_and_back(vec![
            ToManager::Register(Register { node, process_epoch: ProcessEpoch(3), boot: BootId(u128::MAX), number: 1 }),
            ToManager::Renew { node, session, number: 2 },
            of_store(FromStore::Place { session, replica, writer, in_sync, request }),
            of_store(FromStore::Commit {
                replica,
                group: GroupId(2),
                writer,
                whole,
                holders: vec![store],
                mtime,
                by,
                request,
            }),
            of_store(FromStore::Interrupt { replica, writer, kept_len: 5, holders: Vec::new(), request }),
            of_store(FromStore::Fenced(fence)),
            of_store(FromStore::Copied { session, copy, is_there: true }),
            of_store(FromStore::Deleted { replicas: vec![replica; 3] }),
        ]);
        let to_store = |message| ToServer::ToStore { store, message };
        let (epoch, result) = (Epoch(u32::MAX), Err(ErrorCode::Stale));
        let registered = Registered { session, boot_generation: BootGeneration(2), number: 1 };
        there_and_back(vec![
            ToServer::Registered { registered, terms: LeaseTerms::default(), wall: Timestamp(i64::MAX) },
            ToServer::Renewed { session, number: 2, wall: Timestamp(-1) },
            ToServer::NoSession { session },
            to_store(ToStore::Placed { replica, epoch, request, result }),
            to_store(ToStore::Ended { replica, epoch, request, result: Ok(()) }),
            to_store(ToStore::Fence(fence)),
            to_store(ToStore::Copy {
                copy,
                session,
                replica,
                epoch,
                original: Original::ObjectDigest(whole),
                from: store,
            }),
            to_store(ToStore::Delete { replicas: vec![replica] }),
        ]);
        let stream = Stream { epoch, process_epoch: ProcessEpoch(2), number: 3 };
        let told = ToReplica::Begin { stream, boot_generation: BootGeneration(1), from: Seq(1), may_make: true };
        there_and_back(vec![
            BetweenStores::ToReplica { from: store, replica, told },
            BetweenStores::FromReplica { from: store, replica, said: FromReplica::Completed { stream, whole } },
            BetweenStores::Fetch {
                to: store,
                copy,
                replica,
                original: Original::Kept { len: 1 << 40, was_whole: true },
                offset: 1 << 40,
                len: 4 << 20,
            },
            BetweenStores::Fetched { copy, replica, offset: 0 },
        ]);
    }
}
