//! What nodes tell each other. In earnest these are frames; here they are plain data.

use std::sync::Arc;

use cluster::replication::{Epoch, FromReplica, ToReplica, Whole};
use cluster::{CopyId, FenceId, Life, Registered};
use namespace::WriterToken;
use types::{BootId, ErrorCode, GroupId, NodeId, Participant, PieceId, SessionId, StoreId};

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
    pub(crate) piece: PieceId,
    pub(crate) group: GroupId,
    pub(crate) store: StoreId,
    /// The server's session when this was given.
    pub(crate) session: SessionId,
    pub(crate) rights: Rights,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Rights {
    Write {
        writer: WriterToken,
        participants: Vec<Participant>,
        may_make: bool,
    },
    /// A content that is whole; `epoch`: of its last writer.
    Read {
        epoch: Epoch,
        whole: Whole,
    },
    /// One that somebody writes.
    Follow,
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
    // Server and manager.
    Register {
        node: NodeId,
        life: Life,
        boot: BootId,
        has_lost: bool,
        number: u64,
    },
    Registered(Registered),
    Renew {
        node: NodeId,
        session: SessionId,
        number: u64,
    },
    Renewed {
        session: SessionId,
        number: u64,
    },
    NoSession {
        session: SessionId,
    },
    Place {
        node: NodeId,
        session: SessionId,
        piece: PieceId,
        writer: WriterToken,
        participants: Vec<Participant>,
        request: u64,
    },
    Placed {
        piece: PieceId,
        epoch: Epoch,
        request: u64,
        result: Result<(), ErrorCode>,
    },
    Commit {
        piece: PieceId,
        group: GroupId,
        writer: WriterToken,
        whole: Whole,
        holders: Vec<StoreId>,
        request: u64,
    },
    Committed {
        piece: PieceId,
        epoch: Epoch,
        request: u64,
        result: Result<(), ErrorCode>,
    },
    Fence {
        fence: FenceId,
        piece: PieceId,
        epoch: Epoch,
    },
    Fenced {
        node: NodeId,
        fence: FenceId,
    },
    // Servers.
    ToReplica {
        from: StoreId,
        piece: PieceId,
        told: ToReplica,
        bytes: Option<Bytes>,
    },
    FromReplica {
        from: StoreId,
        piece: PieceId,
        said: FromReplica,
    },
    // Copies that are owed.
    Copy {
        copy: CopyId,
        session: SessionId,
        piece: PieceId,
        epoch: Epoch,
        whole: Whole,
        from: StoreId,
    },
    Fetch {
        to: StoreId,
        copy: CopyId,
        piece: PieceId,
        epoch: Epoch,
        whole: Whole,
    },
    Fetched {
        copy: CopyId,
        piece: PieceId,
        epoch: Epoch,
        whole: Whole,
        bytes: Option<Arc<[u8]>>,
    },
    Copied {
        node: NodeId,
        copy: CopyId,
        is_there: bool,
    },
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
    // Client and server.
    Attach {
        number: Number,
        capability: Capability,
    },
    Write {
        number: Number,
        piece: PieceId,
        epoch: Epoch,
        bytes: Bytes,
    },
    Sync {
        number: Number,
        piece: PieceId,
        epoch: Epoch,
    },
    Close {
        number: Number,
        piece: PieceId,
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
