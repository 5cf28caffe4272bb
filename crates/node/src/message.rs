//! The messages between managers and disk servers, as plain data. [`link::encode`] encodes them.

use serde::{Deserialize, Serialize};
use types::{
    DigestKind, ErrorCode, Incarnation, Ino, NodeId, ObjectId, PrincipalId, ReplicaId, RequestNumber, StoreId,
    WriterToken,
};

use crate::{ClientPresence, DamageReport, Inventory, InventoryRequest, ProxyAnswer, ProxyRequest};
use cluster::message::{BetweenStores, ToManager, ToServer};
use cluster::replication::ObjectDigest;

/// From a disk server to a manager.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromDisk {
    /// The first message on each connection.
    Hello(Hello),
    /// The state of all its stores.
    Report(Vec<StoreReport>),
    /// The answer to [`FromManager::WhoLeads`].
    Leads {
        /// The open writes that were asked about.
        asked: Vec<WriterToken>,
        /// Those of them that this server leads.
        led: Vec<WriterToken>,
    },
    /// The answer to [`FromManager::WhatHas`].
    Has {
        /// The store.
        store: StoreId,
        /// The replica after which the list starts.
        after: Option<ReplicaId>,
        /// Its replicas in order. If there are fewer than [`REPLICAS_MAX`](cluster::message::REPLICAS_MAX), these are the last.
        replicas: Vec<ReplicaId>,
    },
    /// A message of the state machines.
    Cluster(ToManager),
    /// Its activity: about once a second, with [`FromDisk::Report`].
    Activity(Activity),
    /// The answer to [`FromManager::Sum`].
    Summed {
        /// The number of the request.
        number: u64,
        /// The checksums, or why the object was not read.
        found: Result<Summed, ChecksumFailure>,
    },
    /// Asks about an extended attribute of a file that a client has open there.
    Attribute(AttributeRequest),
    /// Asks about an open write that this server leads.
    OpenWrite(OpenWriteRequest),
    /// The answer to [`FromManager::Claim`].
    Claimed {
        /// The number of the claim.
        number: u64,
        /// What becomes of the open write.
        found: ClaimResult,
    },
    /// The lengths of the files that its clients write: about once a second. At most [`LENGTHS_MAX`].
    Lengths(Vec<OpenWriteLength>),
    /// Damaged replicas on one of its stores.
    Damage(DamageReport),
    /// The answer to [`FromManager::Inventory`].
    Inventory {
        /// The number of the request.
        number: u64,
        /// What the store has, or why it cannot say.
        found: Result<Inventory, ErrorCode>,
    },
    /// The answer to [`FromManager::AskClient`].
    Client {
        /// The number of the request.
        number: u64,
        /// The open write.
        writer: WriterToken,
        /// Whether its client is there.
        found: ClientPresence,
    },
    /// Asks for the proxy that the client of a new file has delegated.
    TakeProxy(ProxyRequest),
}

/// The most lengths in one message.
pub const LENGTHS_MAX: usize = 4096;

/// The length of a file that is being written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OpenWriteLength {
    /// The open write.
    pub writer: WriterToken,
    /// The length that a power failure cannot undo, in bytes.
    pub len: u64,
}

/// Another client of the same principal, or one of another principal, meets an open write. If its client has lost its
/// connection and acted for the same principal, the open write may end at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Claim {
    /// The manager's number of this claim.
    pub number: u64,
    /// The open write.
    pub writer: WriterToken,
    /// The principal of the other client.
    pub principal: PrincipalId,
    /// The other client replaces the file or continues it. Otherwise it needs a complete file, so the open write of a new
    /// file goes on.
    pub takes_over: bool,
}

/// What becomes of the open write that a [`Claim`] names.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ClaimResult {
    /// It is ending.
    Ending,
    /// It goes on. The text says who writes the file, since when, and until when the server waits.
    Stays(String),
    /// This server does not have it.
    Unknown,
}

/// The beginning of the names of those extended attributes that clients can reach.
pub const CLIENT_ATTRIBUTE: &[u8] = b"user.";

/// A request about an extended attribute of an open file. The disk server has checked that the client's handle permits it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AttributeRequest {
    /// The disk server's number of this request.
    pub number: u64,
    /// The file.
    pub file: OpenedFile,
    /// What is asked.
    pub action: AttributeAction,
}

/// A file that a client has open at a disk server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OpenedFile {
    /// Its inode.
    pub ino: Ino,
    /// The open write, if the client writes it.
    pub writer: Option<WriterToken>,
}

/// What is asked about an extended attribute. All names begin with [`CLIENT_ATTRIBUTE`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum AttributeAction {
    /// The names of all of them.
    List,
    /// The value of the one with this name.
    Get(Vec<u8>),
    /// Sets one. Only a writer may.
    Set {
        /// Its name.
        name: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
        /// Fails if it exists.
        only_new: bool,
    },
    /// Removes the one with this name. Only a writer may.
    Remove(Vec<u8>),
}

/// What an [`AttributeAction`] gives.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum AttributeResult {
    /// Of [`AttributeAction::List`].
    Names(Vec<Vec<u8>>),
    /// Of [`AttributeAction::Get`].
    Value(Vec<u8>),
    /// Of the others.
    Done,
}

/// The answer to an [`AttributeRequest`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AttributeAnswer {
    /// The number of the request.
    pub number: u64,
    /// The result. [`ErrorCode::NoAttribute`] if there is no such attribute.
    pub result: Result<AttributeResult, ErrorCode>,
}

/// A request about an open write. The disk server has its primary, or puts its stripe units together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OpenWriteRequest {
    /// The disk server's number of this request.
    pub number: u64,
    /// The open write.
    pub writer: WriterToken,
    /// What is asked.
    pub action: OpenWriteAction,
}

/// What is asked about an open write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum OpenWriteAction {
    /// Announces that the client closes the file in a request with this number. It is refused if the number cannot be used; then the open write goes on.
    Close(RequestNumber),
    /// Discards what was written: a new file goes, and a file that was to be replaced stays.
    Discard,
    /// Records that a client has closed its handle in a request with this number. Others go on with the open write.
    Leave(RequestNumber),
    /// Reserves what it needs from quotas to reach this length in bytes. The answer is the length that it may reach now.
    Reserve(u64),
}

/// The answer to an [`OpenWriteRequest`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OpenWriteAnswer {
    /// The number of the request.
    pub number: u64,
    /// The result. To [`OpenWriteAction::Reserve`]: the length that the open write may reach; `None`: any length. To others: `None`.
    pub result: Result<Option<u64>, RequestError>,
}

/// Why a manager refuses a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct RequestError {
    /// The code.
    pub code: ErrorCode,
    /// The reason, for people.
    pub text: String,
}

/// The checksums of an object that was read through.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Summed {
    /// Its length, and the checksums that are always kept.
    pub whole: ObjectDigest,
    /// The one that was asked for beside them.
    pub digest: Option<Vec<u8>>,
}

/// Why an object was not read through.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct ChecksumFailure {
    /// The code. [`ErrorCode::Overloaded`] means that the request may succeed later.
    pub code: ErrorCode,
    /// The reason, for people.
    pub text: String,
}

/// The greeting of a disk server. Its addresses and stores are in the namespace since it registered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// The number of the last capability key that it was given; 0 for none.
    pub key: u32,
    /// Its stores.
    pub stores: Vec<StoreReport>,
    /// The highest object number on its stores; 0 for none.
    pub newest: ObjectId,
}

/// The state of a store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoreReport {
    /// The store's number.
    pub store: StoreId,
    /// Total bytes.
    pub capacity: u64,
    /// Reserved bytes, which stay free.
    pub reserve: u64,
    /// Free bytes, including the reserve.
    pub free: u64,
    /// Its load, in thousandths.
    pub load_permille: u16,
}

/// A disk server's activity for its clients, to show to people. Counters start at zero when the server starts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Activity {
    /// How long it has run, in milliseconds.
    pub up_millis: u64,
    /// Clients that are logged in.
    pub sessions: u64,
    /// Files that they have open.
    pub open_files: u64,
    /// Files that are being written or wait for their writer.
    pub writing: u64,
    /// Bytes that clients have read.
    pub read_bytes: u64,
    /// Bytes that clients have sent to be written.
    pub written_bytes: u64,
    /// Bytes of memory that open writes may use, for clients or for other servers.
    pub writers_memory: u64,
    /// The limit of that memory.
    pub writers_memory_max: u64,
}

/// From a manager to a disk server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromManager {
    /// The key of its clients' capabilities from now on.
    Keys(Keys),
    /// The addresses of all stores' servers, in pages.
    StoreAddresses(StoreAddressPage),
    /// Asks which of these open writes it leads.
    WhoLeads {
        /// The store.
        store: StoreId,
        /// Open writes whose primary it is, as far as the manager knows.
        writers: Vec<WriterToken>,
    },
    /// Orders it to end an open write whose client does not return.
    End(EndWriter),
    /// Asks which replicas a store has. The answer has at most [`REPLICAS_MAX`](cluster::message::REPLICAS_MAX).
    WhatHas {
        /// The store.
        store: StoreId,
        /// The replica after which the list starts; `None` for the beginning.
        after: Option<ReplicaId>,
    },
    /// A message of the state machines.
    Cluster(ToServer),
    /// Orders it to read an object through for its checksums.
    Sum(SumRequest),
    /// The answer to [`FromDisk::Attribute`].
    Attribute(AttributeAnswer),
    /// The answer to [`FromDisk::OpenWrite`].
    OpenWrite(OpenWriteAnswer),
    /// Asks what becomes of an open write that another client meets.
    Claim(Claim),
    /// Asks what a store has, to compare it with the names.
    Inventory {
        /// The manager's number of this request.
        number: u64,
        /// The store.
        store: StoreId,
        /// What is asked.
        request: InventoryRequest,
    },
    /// Asks whether the client of an open write is there. Nothing changes.
    AskClient {
        /// The manager's number of this request.
        number: u64,
        /// The open write.
        writer: WriterToken,
    },
    /// The answer to [`FromDisk::TakeProxy`].
    Proxy(ProxyAnswer),
    /// The addresses of all managers of the cluster: at the greeting, and when they have changed. At most [`MANAGERS_MAX`].
    Managers(Vec<ManagerAddress>),
}

/// The most managers in one message.
pub const MANAGERS_MAX: usize = 16;

/// The address of a manager.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ManagerAddress {
    /// The manager.
    pub node: NodeId,
    /// Its address for other nodes, `host:port`.
    pub nodes_at: String,
    /// Its address for clients.
    pub clients_at: Option<(String, u16)>,
}

/// An order to read through an object that has no checksums. A client waits for the result, so the manager repeats the order until it is answered.
#[derive(Clone, Serialize, Deserialize)]
pub struct SumRequest {
    /// The manager's number of this request.
    pub number: u64,
    /// The capability to read it. Secret.
    pub capability: String,
    /// The file's path.
    pub path: Vec<u8>,
    /// A checksum to compute beside those that are always kept.
    pub digest: Option<DigestKind>,
}

impl std::fmt::Debug for SumRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SumRequest({}: {})", self.number, self.path.escape_ascii())
    }
}

/// A key for capabilities. Secret.
#[derive(Clone, Serialize, Deserialize)]
pub struct Keys {
    /// Its number, higher than that of all earlier keys.
    pub id: u32,
    /// Random bytes.
    pub secret: [u8; 32],
    /// The namespace's incarnation, which stores keep with each replica.
    pub incarnation: Incarnation,
    /// The manager's address for clients: host and port.
    pub manager: Option<(String, u16)>,
}

/// An open write that must end. It ends as complete if all announced bytes are there, otherwise as interrupted.
#[derive(Clone, Serialize, Deserialize)]
pub struct EndWriter {
    /// The capability to continue it. Secret.
    pub capability: String,
    /// The path with which it was opened.
    pub path: Vec<u8>,
    /// The announced length.
    pub expected_len: Option<u64>,
}

impl std::fmt::Debug for EndWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EndWriter({})", self.path.escape_ascii())
    }
}

/// A page of [`StoreAddress`]es. Those of thousands of nodes do not fit into one message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoreAddressPage {
    /// The manager's number of this list. Pages of different lists do not belong together.
    pub number: u64,
    /// The page's number, from 0.
    pub page: u32,
    /// Whether this is the last page.
    pub is_last: bool,
    /// At most [`STORE_ADDRESSES_MAX`].
    pub addresses: Vec<StoreAddress>,
}

/// The most addresses on one page. With the longest addresses they take about half of a message.
pub const STORE_ADDRESSES_MAX: usize = 2048;

/// The address of a store's server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoreAddress {
    /// The store.
    pub store: StoreId,
    /// Its server.
    pub node: NodeId,
    /// The server's address for other nodes, `host:port`.
    pub nodes_at: String,
}

/// A message between disk servers. The bytes of its change follow it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerMessage {
    /// The receiving store.
    pub to: StoreId,
    /// The message.
    pub message: BetweenStores,
    /// The change that belongs to it.
    pub change: Option<ChangeHead>,
    /// The origin of the replica, for a store that may have to make it.
    pub about: Option<ReplicaOrigin>,
}

/// A change of a replica, without its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ChangeHead {
    /// Writes bytes.
    Write {
        /// Their offset.
        offset: u64,
        /// Their number.
        len: u32,
    },
    /// Shortens or extends the replica.
    Truncate {
        /// The new length in bytes.
        len: u64,
    },
}

/// The origin of a replica.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ReplicaOrigin {
    /// The identity under which its writer acts.
    pub principal: PrincipalId,
    /// The path with which it was opened, to show people what the replica belongs to.
    pub path: Vec<u8>,
    /// The announced length.
    pub expected_len: Option<u64>,
}

/// Any message between nodes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Message {
    /// From a disk server to a manager.
    FromDisk(FromDisk),
    /// From a manager to a disk server.
    FromManager(FromManager),
    /// From a disk server to another.
    PeerMessage(PeerMessage),
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keys({}, not shown)", self.id)
    }
}
