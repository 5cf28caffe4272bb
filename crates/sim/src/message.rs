//! What nodes tell each other. In earnest these are frames; here they are plain data.

use std::sync::Arc;

use cluster::replication::Epoch;
use cluster::server::Grant;
use node::{BulkBytes, FromDisk, FromManager, PeerMessage};
use types::{ErrorCode, NsPath, ReplicaId, StoreId};

/// Who.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Addr {
    Manager,
    Server(usize),
    Client(usize),
}

/// The number of a client's request.
pub(crate) type Number = u64;

/// Bytes at a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Bytes {
    pub(crate) offset: u64,
    pub(crate) bytes: Arc<[u8]>,
}

/// What a manager gives a client to show to a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Capability {
    /// What it shows.
    pub(crate) sealed: String,
    /// With which path.
    pub(crate) path: NsPath,
    /// What stands in it.
    pub(crate) replica: ReplicaId,
    pub(crate) grant: Grant,
}

/// How a client wants a file.
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
    /// The bytes of the change, or of the part of a copy, go beside it.
    Peer(PeerMessage, Option<Arc<BulkBytes>>),
    /// A disk server ends its connection with another one. It is said to the network alone.
    HangUp,
    // Client and manager.
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
    // Client and server.
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
    /// The connection of a client that writes has ended.
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
    /// Whether the machines have to bear that it comes late or twice. What else nodes tell each other goes over a connection, which is made anew when
    /// something is lost on it.
    pub(crate) fn is_of_machines(&self) -> bool {
        matches!(
            self,
            Self::FromDisk(FromDisk::Cluster(_)) | Self::FromManager(FromManager::Cluster(_)) | Self::Peer(..)
        )
    }
}
