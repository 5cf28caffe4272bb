//! The messages between the nodes of a cluster, as plain data. The shell encodes them as bytes, and chooses the
//! connection.
//!
//! Any message may be lost, late or repeated. The connection identifies the sender; a manager compares it with the
//! node and the store in the message. The bytes of an object are never in a message, but are sent with it.

use serde::{Deserialize, Serialize};
use types::{
    ErrorCode, GroupId, InSyncReplica, NodeId, ReplicaId, RequestNumber, SessionId, StoreId, Timestamp, WriterToken,
};

use crate::replication::{Epoch, FromReplica, ObjectDigest, ToReplica};
use crate::{CopyId, Fence, LeaseTerms, Register, Registered};

/// The most replicas that one [`ToStore::Delete`] or [`FromStore::Deleted`] names.
pub const REPLICAS_MAX: usize = 256;

/// The version that a copy must have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Original {
    /// A complete object.
    Whole(ObjectDigest),
    /// The bytes that were kept of an object when its writer went away. Their checksum is not known.
    Kept {
        /// Their number.
        len: u64,
        /// The object was complete, and was being changed in place.
        was_whole: bool,
    },
}

impl Original {
    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Whole(whole) => whole.len,
            Self::Kept { len, .. } => *len,
        }
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Why a store could not make a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum CopyFailure {
    /// A client writes the object again, or the object is being deleted.
    #[error("the object was opened for writing again, or removed, since the copy was ordered")]
    Superseded,
    /// The manager has ordered a copy of another version.
    #[error("the manager has ordered another copy in its place")]
    Replaced,
    /// The source store did not send a part in time, although it was asked several times.
    #[error("the source store does not answer")]
    SourceSilent,
    /// The source store does not have this version, or cannot read it.
    #[error("the source store cannot provide it: {}", on_disk(*.0))]
    Source(ErrorCode),
    /// The own disk failed.
    #[error("the target store cannot write it: {}", on_disk(*.0))]
    Target(ErrorCode),
    /// The finished copy is not equal to the original.
    #[error("the finished copy differs from the original")]
    Differs,
}

/// An error of a store's disk, as text for the administrator.
fn on_disk(code: ErrorCode) -> String {
    match code {
        ErrorCode::NotFound => "it does not have this version of the object".into(),
        ErrorCode::NoSpace => "its disk is full".into(),
        ErrorCode::Checksum | ErrorCode::Damaged => "bytes on its disk are damaged".into(),
        ErrorCode::Io => "its disk failed".into(),
        code => format!("{code:?}"),
    }
}

/// Who closes an open write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ClosedBy {
    /// The client.
    Client {
        /// The number of its request, if it numbers its requests.
        request: Option<RequestNumber>,
    },
    /// The server, at the end of the grace period. The file has all announced bytes, so the client may have sent a
    /// close.
    GraceEnd,
}

/// A message from a disk server to the manager.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToManager {
    /// The node asks for a session.
    Register(Register),
    /// The node asks to keep its session.
    Renew {
        /// The node.
        node: NodeId,
        /// Its session.
        session: SessionId,
        /// The number of this request.
        number: u64,
    },
    /// A message from one of the node's stores.
    OfStore {
        /// The store.
        store: StoreId,
        /// The message.
        message: FromStore,
    },
}

/// A message from a store to the manager.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FromStore {
    /// The in-sync replicas of the open write. The manager records them durably if three things hold: the writer's
    /// epoch is still this one, `session` is the node's present session, and no store is about to take over.
    ///
    /// A primary whose store has failed leaves itself out. Then one of the others takes over: the manager fences the
    /// primary. If none can, it answers [`ErrorCode::Unavailable`].
    Place {
        /// The session in which the store asks.
        session: SessionId,
        /// The replica.
        replica: ReplicaId,
        /// The writer.
        writer: WriterToken,
        /// The primary first, unless it hands over.
        in_sync: Vec<InSyncReplica>,
        /// The client has gone, and the replicas are about to end without it. It cannot return to its open write any
        /// more: they keep only the bytes up to the first gap.
        is_ending: bool,
        /// The number of this request.
        request: u64,
    },
    /// The written object becomes the file's content. The manager answers a repeated request again.
    Commit {
        /// The replica.
        replica: ReplicaId,
        /// The group that it belongs to.
        group: GroupId,
        /// The writer.
        writer: WriterToken,
        /// The digest of the object.
        whole: ObjectDigest,
        /// The stores that have it durably.
        holders: Vec<StoreId>,
        /// The modification time, if the client set it.
        mtime: Option<Timestamp>,
        /// Who closed the file.
        by: ClosedBy,
        /// The number of this request.
        request: u64,
    },
    /// The writer has gone. The written bytes are kept, and the file is marked interrupted.
    Interrupt {
        /// The replica.
        replica: ReplicaId,
        /// The writer.
        writer: WriterToken,
        /// The number of bytes kept.
        kept_len: u64,
        /// The stores that have them durably.
        holders: Vec<StoreId>,
        /// The number of this request.
        request: u64,
    },
    /// The fence holds.
    Fenced(Fence),
    /// A copy has ended.
    Copied {
        /// The session in which it was ordered. Each manager starts its own numbers.
        session: SessionId,
        /// The copy.
        copy: CopyId,
        /// `Ok`: the replica exists, durably.
        result: Result<(), CopyFailure>,
    },
    /// These replicas are deleted durably, or did not exist.
    Deleted {
        /// At most [`REPLICAS_MAX`].
        replicas: Vec<ReplicaId>,
    },
}

/// A message from the manager to a disk server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToServer {
    /// The node has a session.
    Registered {
        /// The session.
        registered: Registered,
        /// The terms of leases.
        terms: LeaseTerms,
        /// The manager's time of day, by which capabilities expire.
        wall: Timestamp,
    },
    /// The node keeps its session.
    Renewed {
        /// The session.
        session: SessionId,
        /// The number of the request.
        number: u64,
        /// The manager's time of day.
        wall: Timestamp,
    },
    /// That session is over.
    NoSession {
        /// The session.
        session: SessionId,
    },
    /// A message to one of the node's stores.
    ToStore {
        /// The store.
        store: StoreId,
        /// The message.
        message: ToStore,
    },
}

/// A message from the manager to a store.
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
        /// The result.
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
        /// The result.
        result: Result<(), ErrorCode>,
    },
    /// No lower epoch may answer for this replica.
    Fence(Fence),
    /// The store must fetch a missing replica.
    Copy {
        /// The copy.
        copy: CopyId,
        /// The server's session. The order is valid in this one only.
        session: SessionId,
        /// The replica.
        replica: ReplicaId,
        /// The epoch of the object's last writer.
        epoch: Epoch,
        /// The version that the copy must have.
        original: Original,
        /// The store that has it.
        from: StoreId,
    },
    /// These replicas are no longer needed. The store deletes them even if they are in use.
    Delete {
        /// At most [`REPLICAS_MAX`].
        replicas: Vec<ReplicaId>,
        /// Whether the objects continue to exist on other stores. The manager may then order a copy of them again, if the
        /// store is used again.
        exist_elsewhere: bool,
    },
}

/// A message between stores.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum BetweenStores {
    /// A primary to a secondary. A change travels beside it.
    ToReplica {
        /// The primary's store.
        from: StoreId,
        /// The replica.
        replica: ReplicaId,
        /// The message.
        told: ToReplica,
    },
    /// A secondary to its primary.
    FromReplica {
        /// The replica's store.
        from: StoreId,
        /// The replica.
        replica: ReplicaId,
        /// The message.
        said: FromReplica,
    },
    /// A store asks for a part of an object.
    Fetch {
        /// The store that wants it.
        to: StoreId,
        /// The copy that needs it.
        copy: CopyId,
        /// The replica.
        replica: ReplicaId,
        /// The version that the replica must have.
        original: Original,
        /// The start of the part, in bytes.
        offset: u64,
        /// The length of the part in bytes. It is shorter at the end of the object.
        len: u32,
    },
    /// The answer to [`Self::Fetch`]. The part travels beside it as a change that writes it.
    Fetched {
        /// The copy that needs it.
        copy: CopyId,
        /// The replica.
        replica: ReplicaId,
        /// The start of the part, in bytes.
        offset: u64,
        /// Why the store cannot send the part.
        result: Result<(), ErrorCode>,
    },
}

#[cfg(test)]
mod tests {
    use types::{Adler32, BootGeneration, BootId, Crc32c, ObjectId, WriterKey};

    use super::*;
    use crate::replication::{Seq, Stream};
    use crate::{FenceId, ProcessEpoch};

    fn round_trip<T: Serialize + for<'a> Deserialize<'a> + PartialEq + std::fmt::Debug>(messages: Vec<T>) {
        for message in messages {
            let bytes = postcard::to_allocvec(&message).unwrap();
            assert_eq!(postcard::from_bytes::<T>(&bytes).unwrap(), message);
            assert!(bytes.len() < 200, "{} bytes for {message:?}", bytes.len());
            assert!(postcard::from_bytes::<T>(&bytes[..bytes.len() - 1]).is_err(), "{message:?} is cut short");
        }
    }

    #[test]
    fn messages_survive_encoding_and_decoding() {
        let (node, store, session, request) = (NodeId(7), StoreId(u64::MAX), SessionId(9 << 40), 300);
        let replica = ReplicaId::first(ObjectId(u64::MAX));
        let writer = WriterToken { key: WriterKey(u64::MAX), object: replica.object, epoch: 4 };
        let whole = ObjectDigest { len: 1 << 50, crc32c: Crc32c(u32::MAX), adler32: Adler32(8) };
        let in_sync = vec![InSyncReplica { store, boot_generation: BootGeneration(3) }; 8];
        let fence = Fence { fence: FenceId(2), node, store, session: Some(SessionId(3)), replica, epoch: Epoch(5) };
        let (copy, mtime, by) = (CopyId(70_000), Some(Timestamp(-1)), ClosedBy::GraceEnd);
        let of_store = |message| ToManager::OfStore { store, message };
        round_trip(vec![
            ToManager::Register(Register { node, process_epoch: ProcessEpoch(3), boot: BootId(u128::MAX), number: 1 }),
            ToManager::Renew { node, session, number: 2 },
            of_store(FromStore::Place { session, replica, writer, in_sync, is_ending: true, request }),
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
            of_store(FromStore::Copied { session, copy, result: Ok(()) }),
            of_store(FromStore::Copied { session, copy, result: Err(CopyFailure::Source(ErrorCode::Damaged)) }),
            of_store(FromStore::Deleted { replicas: vec![replica; 3] }),
        ]);
        let to_store = |message| ToServer::ToStore { store, message };
        let (epoch, result) = (Epoch(u32::MAX), Err(ErrorCode::Stale));
        let registered = Registered { session, boot_generation: BootGeneration(2), number: 1 };
        round_trip(vec![
            ToServer::Registered { registered, terms: LeaseTerms::default(), wall: Timestamp(i64::MAX) },
            ToServer::Renewed { session, number: 2, wall: Timestamp(-1) },
            ToServer::NoSession { session },
            to_store(ToStore::Placed { replica, epoch, request, result }),
            to_store(ToStore::Ended { replica, epoch, request, result: Ok(()) }),
            to_store(ToStore::Fence(fence)),
            to_store(ToStore::Copy { copy, session, replica, epoch, original: Original::Whole(whole), from: store }),
            to_store(ToStore::Delete { replicas: vec![replica], exist_elsewhere: true }),
        ]);
        let stream = Stream { epoch, process_epoch: ProcessEpoch(2), number: 3 };
        let told = ToReplica::Begin { stream, boot_generation: BootGeneration(1), from: Seq(1), may_make: true };
        round_trip(vec![
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
            BetweenStores::Fetched { copy, replica, offset: 0, result: Ok(()) },
        ]);
    }
}
