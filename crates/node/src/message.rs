//! What managers and disk servers tell each other, as plain data; the bytes are [`link::encode`]'s.

use serde::{Deserialize, Serialize};
use types::{ErrorCode, Incarnation, NodeId, ObjectId, PrincipalId, ReplicaId, StoreId, WriterToken};

use cluster::message::{BetweenStores, ToManager, ToServer};
use cluster::replication::ObjectDigest;

/// To a manager.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromDisk {
    /// The first on each connection.
    Hello(Hello),
    /// How its stores are; all of them.
    Report(Vec<StoreReport>),
    /// The answer to [`FromManager::WhoLeads`].
    Leads {
        /// Those that it was asked about.
        asked: Vec<WriterToken>,
        /// Those of them that it leads.
        led: Vec<WriterToken>,
    },
    /// The answer to [`FromManager::WhatHas`].
    Has {
        /// The store.
        store: StoreId,
        /// Behind which it was looked.
        after: Option<ReplicaId>,
        /// What is there, in their order; fewer than [`REPLICAS_MAX`](cluster::message::PIECES_MAX): there is no more.
        replicas: Vec<ReplicaId>,
    },
    /// Of the machines.
    Cluster(ToManager),
    /// What it does: about once a second, with [`FromDisk::Report`].
    Activity(Activity),
    /// The answer to [`FromManager::Sum`].
    Summed {
        /// Which was asked.
        number: u64,
        /// What was read, or why it was not.
        found: Result<ObjectDigest, NotSummed>,
    },
}

/// Why a content was not read through.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct NotSummed {
    /// [`ErrorCode::Overloaded`]: it may be, if it is asked for again.
    pub code: ErrorCode,
    /// In words.
    pub text: String,
}

/// A disk server is there. Where it is reached, and which stores it has, stands in the namespace since it registered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// The number of the last key for permissions that it was given; 0: none yet.
    pub key: u32,
    /// Its stores.
    pub stores: Vec<StoreReport>,
    /// The highest number of a content that one of them has; 0: none.
    pub newest: ObjectId,
}

/// How a store is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoreReport {
    /// Which.
    pub store: StoreId,
    /// Bytes in all.
    pub capacity: u64,
    /// Bytes that are not to be used.
    pub reserve: u64,
    /// Bytes free, with those of the reserve.
    pub free: u64,
    /// How busy it is, in thousandths.
    pub load_permille: u16,
}

/// What a disk server does for its clients, for people to see. What only grows is counted from the beginning of its run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Activity {
    /// How long it has run, in milliseconds.
    pub up_millis: u64,
    /// Clients that are logged in.
    pub sessions: u64,
    /// Files that they have open.
    pub open_files: u64,
    /// Files that are written there, or wait for their writer.
    pub writing: u64,
    /// Bytes that clients have read.
    pub read_bytes: u64,
    /// Bytes that clients have sent to be written.
    pub written_bytes: u64,
    /// Bytes that what is written there may hold in memory, for clients or for other servers.
    pub writers_memory: u64,
    /// The most that it should.
    pub writers_memory_max: u64,
}

/// To a disk server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromManager {
    /// With which key the permissions of its clients are made from now on.
    Keys(Keys),
    /// Who serves which store: all of them, in pages.
    StoreAddresses(StoreAddressPage),
    /// Which of these it leads.
    WhoLeads {
        /// The store.
        store: StoreId,
        /// Some writers whose primary it is, as far as the manager knows.
        writers: Vec<WriterToken>,
    },
    /// A writing whose client does not come back is to be ended.
    End(EndWriter),
    /// Which replicas it has, at most [`REPLICAS_MAX`](cluster::message::PIECES_MAX).
    WhatHas {
        /// The store.
        store: StoreId,
        /// Behind which; `None`: from the beginning.
        after: Option<ReplicaId>,
    },
    /// Of the machines.
    Cluster(ToServer),
    /// A content is to be read through for its checksums.
    Sum(SumRequest),
}

/// A content that has no checksums is to be read through. The same is said again and again until it is answered: somebody waits for it.
#[derive(Clone, Serialize, Deserialize)]
pub struct SumRequest {
    /// The manager's number of this.
    pub number: u64,
    /// The permission to read it. Shown to nobody.
    pub capability: String,
    /// Its name.
    pub path: Vec<u8>,
}

impl std::fmt::Debug for SumRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SumRequest({}: {})", self.number, self.path.escape_ascii())
    }
}

/// A key for permissions. Shown to nobody.
#[derive(Clone, Serialize, Deserialize)]
pub struct Keys {
    /// Its number, above that of all before.
    pub id: u32,
    /// Random bytes.
    pub secret: [u8; 32],
    /// The life of the namespace, which stores keep with each replica.
    pub incarnation: Incarnation,
    /// Where clients reach the manager: host and port.
    pub manager: Option<(String, u16)>,
}

/// A writing that is to be ended: as whole, if all is there that was announced, otherwise as interrupted.
#[derive(Clone, Serialize, Deserialize)]
pub struct EndWriter {
    /// The permission to go on with it. Shown to nobody.
    pub capability: String,
    /// The path that it was opened by.
    pub path: Vec<u8>,
    /// The announced length.
    pub expected_len: Option<u64>,
}

impl std::fmt::Debug for EndWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EndWriter({})", self.path.escape_ascii())
    }
}

/// Some of all [`StoreAddress`]s: those of thousands of nodes do not fit into one message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoreAddressPage {
    /// The manager's number of this telling: pages of another one do not go with it.
    pub number: u64,
    /// Which page of it, from 0.
    pub page: u32,
    /// No other one follows.
    pub is_last: bool,
    /// At most [`STORE_ADDRESSES_MAX`].
    pub addresses: Vec<StoreAddress>,
}

/// Ways on one page: with the longest addresses about half of what a message may have.
pub const STORE_ADDRESSES_MAX: usize = 2048;

/// How the server of a store is reached.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoreAddress {
    /// The store.
    pub store: StoreId,
    /// Its server.
    pub node: NodeId,
    /// Where other nodes reach that, `host:port`.
    pub nodes_at: String,
}

/// What disk servers tell each other; the bytes of a change go behind it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerMessage {
    /// The store that is told.
    pub to: StoreId,
    /// What.
    pub message: BetweenStores,
    /// The change beside it.
    pub change: Option<ChangeHead>,
    /// What a replica is made with, for a store that may have to make it.
    pub about: Option<ReplicaOrigin>,
}

/// A change of a replica, without its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ChangeHead {
    /// Bytes are written.
    Write {
        /// From where on.
        offset: u64,
        /// How many.
        len: u32,
    },
    /// It is cut or extended.
    Truncate {
        /// To this length in bytes.
        len: u64,
    },
}

/// What a replica is made with.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ReplicaOrigin {
    /// Whom its writer acts as.
    pub principal: PrincipalId,
    /// The path that it was opened by: for people who have to find out what it was.
    pub path: Vec<u8>,
    /// The announced length.
    pub expected_len: Option<u64>,
}

/// Everything that goes from node to node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Message {
    /// A disk server to a manager.
    FromDisk(FromDisk),
    /// A manager to a disk server.
    FromManager(FromManager),
    /// A disk server to another.
    PeerMessage(PeerMessage),
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keys({}, not shown)", self.id)
    }
}
