//! The messages between nodes. Real nodes send frames; here they are plain data.

use std::sync::Arc;

use cluster::replication::Epoch;
use cluster::server::Grant;
use node::{BulkBytes, FromDisk, FromManager, PeerMessage};
use types::{ErrorCode, NsPath, ReplicaId, StoreId};

/// The address of a participant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Addr {
    Manager(usize),
    Server(usize),
    Client(usize),
}

/// The number of a client's request.
pub(crate) type Number = u64;

/// Bytes at an offset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Bytes {
    pub(crate) offset: u64,
    pub(crate) bytes: Arc<[u8]>,
}

/// A capability that a client got from the manager.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Capability {
    /// The capability's text.
    pub(crate) sealed: String,
    /// The path that the client must present with it.
    pub(crate) path: NsPath,
    /// The replica that it names.
    pub(crate) replica: ReplicaId,
    pub(crate) grant: Grant,
}

/// How a client wants to open a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Want {
    New { restarted: bool },
    Update,
    Read,
}

#[derive(Clone, Debug)]
pub(crate) enum Message {
    FromDisk(FromDisk),
    FromManager(FromManager),
    /// With the bytes of the change, or of the part of a copy.
    Peer(PeerMessage, Option<Arc<BulkBytes>>),
    /// A disk server ends its connection with another one. Only the simulated network gets this message.
    HangUp,
    // Between client and manager.
    Open {
        number: Number,
        path: String,
        want: Want,
        tried: Vec<StoreId>,
    },
    Opened {
        number: Number,
        result: Result<Capability, ErrorCode>,
    },
    Remove {
        number: Number,
        path: String,
    },
    Removed {
        number: Number,
        result: Result<(), ErrorCode>,
    },
    // Between client and server.
    Attach {
        number: Number,
        capability: Capability,
    },
    Write {
        number: Number,
        replica: ReplicaId,
        epoch: Epoch,
        bytes: Bytes,
    },
    Sync {
        number: Number,
        replica: ReplicaId,
        epoch: Epoch,
    },
    Close {
        number: Number,
        replica: ReplicaId,
        epoch: Epoch,
    },
    /// The connection of a writing client has ended.
    Gone {
        replica: ReplicaId,
        epoch: Epoch,
    },
    Done {
        number: Number,
        result: Result<(), ErrorCode>,
    },
    Get {
        number: Number,
        capability: Capability,
    },
    Got {
        number: Number,
        result: Result<Arc<[u8]>, ErrorCode>,
    },
}

impl Message {
    /// Whether the message is for the state machines, which must tolerate late and repeated messages. Other messages use a connection. When
    /// the network loses a message on it, the nodes connect again.
    pub(crate) fn is_of_machines(&self) -> bool {
        matches!(
            self,
            Self::FromDisk(FromDisk::Cluster(_)) | Self::FromManager(FromManager::Cluster(_)) | Self::Peer(..)
        )
    }
}
