//! What an operation is, what it receives, and what its answer must provide.

use std::time::Duration;

use kv::{Prefetch, Read, Txn};
use types::{RequestNumber, SessionId, SnapshotEpoch, Timestamp};

use crate::{Actor, NsError, OperationNumbers};

/// Bounds and defaults, the same for all operations of a namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Longest extended attribute, in bytes. At most 65,536.
    pub xattr_value_max: u32,
    /// Most extended attributes of one inode.
    pub xattrs_max: u32,
    /// Most hard links of one file.
    pub links_max: u32,
    /// How long interrupted and refused uploads are kept.
    pub upload_keep: Duration,
    /// How long an ended writer is remembered, so that a client that recovers late never writes into another file. It must exceed XrdCl's recovery
    /// window (1,800 s).
    pub tombstone_keep: Duration,
    /// Mode of the directories that `mkpath` creates.
    pub mkpath_mode: u16,
    /// Shards of a directory's totals: 1 where one committer makes all changes, more where several managers do.
    pub total_shards: u16,
    /// Bytes that an open write without an announced length reserves from a quota: at least, and at most. Between them it is a small part of what is
    /// free.
    pub reserve_step: (u64, u64),
    /// Request numbers remembered per session.
    pub request_window: u16,
    /// Most sessions of numbered requests.
    pub sessions_max: u32,
    /// Most of them of one principal.
    pub sessions_of_principal_max: u32,
    /// How long a session is kept after its last numbered change. Afterwards it gives way to a new one.
    pub session_keep: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            xattr_value_max: 65_536,
            xattrs_max: 256,
            links_max: 65_000,
            upload_keep: Duration::from_secs(86_400),
            tombstone_keep: Duration::from_secs(3_600),
            mkpath_mode: 0o755,
            total_shards: 1,
            reserve_step: (1 << 20, 64 << 20),
            request_window: 64,
            sessions_max: 4_096,
            sessions_of_principal_max: 1_024,
            session_keep: Duration::from_secs(86_400),
        }
    }
}

/// What an operation receives besides its request. A clone is for another operation: it has numbers of its own.
#[derive(Clone, Debug)]
pub struct Context {
    /// The wall clock, read by the caller.
    pub now: Timestamp,
    /// The actor that makes the request.
    pub actor: Actor,
    /// This run of the server, as `W` records name it.
    pub session: SessionId,
    /// The snapshot epoch that the changes belong to.
    pub epoch: SnapshotEpoch,
    /// Epochs of writers up to this one may have been used by a namespace that was lost ([`crate::RestoredRecord`]).
    pub epochs_used: u32,
    /// The request's number, if the client numbers its requests.
    pub request: Option<RequestNumber>,
    /// Bounds and defaults.
    pub limits: Limits,
    /// The operation's inode and object numbers.
    pub ids: OperationNumbers,
}

impl Context {
    /// The epoch of a writer that follows one with the epoch `before` on the same object.
    pub(crate) fn next_epoch(&self, before: u32) -> u32 {
        before.max(self.epochs_used).saturating_add(1)
    }
}

/// Defines [`OpTag`], and counts its numbers.
macro_rules! op_tags {
    ($($name:ident = $number:literal,)*) => {
        /// Names an operation in remembered answers and counters. The numbers are on disk.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        #[allow(missing_docs)] // each is the operation with that name
        pub enum OpTag {
            $($name = $number,)*
        }

        impl OpTag {
            /// One more than the highest number.
            pub const COUNT: usize = {
                let (numbers, mut highest, mut at) = ([$($number),*], 0, 0);
                while at < numbers.len() {
                    if numbers[at] > highest {
                        highest = numbers[at];
                    }
                    at += 1;
                }
                highest + 1
            };
        }
    };
}

op_tags! {
    Mkdir = 1,
    Remove = 2,
    Rmdir = 3,
    Rename = 4,
    Link = 5,
    Symlink = 6,
    Chmod = 7,
    Chown = 8,
    Utimes = 9,
    Truncate = 10,
    SetXattr = 11,
    RemoveXattr = 12,
    OpenWrite = 13,
    Commit = 14,
    Interrupt = 15,
    ForgetUpload = 16,
    DeletionDone = 17,
    Hold = 18,
    ReleaseHold = 19,
    OpenSession = 20,
    CloseSession = 21,
    MakeTree = 22,
    DropTombstones = 23,
    RaiseIncarnation = 24,
    RemoveAny = 25,
    KeepSums = 26,
    EndUnchanged = 27,
    RecountTotals = 28,
    SetPolicy = 29,
    RemovePolicy = 30,
    PutGroup = 31,
    PutNode = 32,
    SetInSyncReplicas = 33,
    CommitPlaced = 34,
    InterruptPlaced = 35,
    CopyDone = 36,
    MakeToken = 37,
    JoinNode = 38,
    FoundCluster = 39,
    SetAddresses = 40,
    PutStore = 41,
    SetStoreState = 42,
    RemoveStore = 43,
    RemoveMember = 44,
    RemoveToken = 45,
    JoinGroup = 46,
    BackfillMember = 47,
    LeaveGroup = 48,
    CommitStriped = 49,
    EndStriped = 50,
    Abandon = 51,
    DropMissingReplicas = 52,
    KeepDigest = 53,
    NoteSharer = 54,
    MissDamaged = 62,
    ContinueRestored = 70,
    DistrustWriters = 71,
    AcceptRestored = 72,
    RecordAbsent = 73,
    GiveDefaultPolicy = 74,
    WidenObject = 75,
    SetAcl = 76,
    NamePrincipals = 77,
    RenamePrincipal = 78,
    SetQuota = 79,
    Reserve = 80,
    RecountUsage = 81,
    SetTreeOwner = 82,
    CutOffMember = 83,
}

/// An answer that can be remembered.
pub trait Answer: Sized {
    /// Appends the answer's bytes.
    fn encode(&self, out: &mut Vec<u8>);
    /// Reads the output of [`Self::encode`]; `None` if it cannot be decoded.
    fn decode(bytes: &[u8]) -> Option<Self>;
}

/// A request that changes something. The function with the same name in lower case does the work.
pub trait Operation {
    /// The tag of this operation.
    const TAG: OpTag;
    /// The type of its answer.
    type Reply: Answer + Send + 'static;
    /// What the operation will probably read, for engines over a network ([`Read::prefetch`]). It only saves round trips.
    fn ahead(&self, ctx: &Context) -> Vec<Prefetch> {
        let _ = ctx;
        Vec::new()
    }
    /// Runs the operation inside `txn`.
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<Self::Reply, NsError>;
    /// Whether a request with the same number gets this result again. By default it gets every answer again, also a refusal. Operations that a server
    /// tries again for one request, on other terms, remember only what they have done. Errors that [keep their changes](NsError::keeps_changes) are
    /// always remembered.
    fn is_remembered(result: &Result<Self::Reply, NsError>) -> bool {
        let _ = result;
        true
    }
    /// Denies a remembered answer to an actor whose limits do not permit the request. By default every client of the principal may have it: it tells no more
    /// than that the principal has done this. Operations that answer with the right to write look at the path.
    fn permit_again(&self, actor: &Actor) -> Result<(), NsError> {
        let _ = actor;
        Ok(())
    }
    /// Whether the request is certainly not done yet, although its number has an answer. Then a client has used the number twice, and the answer is
    /// for the other request. By default it is unknown.
    fn is_undone(&self, read: &dyn Read) -> Result<bool, NsError> {
        let _ = read;
        Ok(false)
    }
}

/// Implements [`Operation`] for requests. Each line is `Request, function -> Reply;`, where the function does the work inside the transaction.
macro_rules! operations {
    ($($request:ident, $run:ident -> $reply:ty;)*) => {
        $(impl $crate::Operation for $request {
            const TAG: $crate::OpTag = $crate::OpTag::$request;
            type Reply = $reply;
            fn run(&self, txn: &mut dyn kv::Txn, ctx: &$crate::Context) -> Result<$reply, $crate::NsError> {
                $run(txn, ctx, self)
            }
        })*
    };
}
pub(crate) use operations;
