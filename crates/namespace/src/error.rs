//! Why the namespace refused a request.

use kv::KvError;
use types::{ClientIdentity, Crc32c, ErrorCode, NameError, NodeId, ObjectId, StoreId, UploadId};

use crate::tree::rule::{named, numbered};
use crate::{Read, WriterToken};

/// A refused request, or a failure of the engine. `code()` maps it to the code that crosses crate and protocol borders.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NsError {
    /// This node has no namespace.
    #[error("the cluster's manager keeps the namespace, and this is a disk server")]
    Elsewhere,
    /// Nothing has this name (path, inode, attribute, upload).
    #[error("{0}: no such {1}")]
    NotFound(String, &'static str),
    /// The name exists already.
    #[error("{0}: exists already")]
    Exists(String),
    /// The operation needs a directory.
    #[error("{0}: not a directory")]
    NotDirectory(String),
    /// The operation needs a file.
    #[error("{0}: is a directory")]
    IsDirectory(String),
    /// A name that only a directory can get was to become that of a file or link.
    #[error(
        "{0}: ends in a slash, so it names a directory, and nothing else can be made there; leave the slash out to make a file of that name, or add the file's name"
    )]
    OnlyDirectory(String),
    /// The directory has entries.
    #[error("{0}: the directory is not empty")]
    NotEmpty(String),
    /// The request is not valid.
    #[error("{what}: {why}")]
    Invalid {
        /// The subject of the request.
        what: String,
        /// What is wrong, and what would help.
        why: &'static str,
    },
    /// The name or path is not valid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The path leads over more than 40 symbolic links.
    #[error("{0}: more than 40 symbolic links on the way; one of them probably leads to itself")]
    Loop(String),
    /// A limit on a number of things is reached.
    #[error("{what}: {bound} is the limit here")]
    TooMany {
        /// The kind of thing.
        what: &'static str,
        /// The limit.
        bound: u64,
    },
    /// The permission check failed.
    #[error("{path}: denied: {}", numbered(rule))]
    Denied {
        /// The path.
        path: String,
        /// The rule that denies it. [`NsError::with_names`] gives the principals in it their names.
        rule: String,
    },
    /// The operation would cross the border between two trees.
    #[error("{0}: lies in another tree; copy it instead")]
    CrossTree(String),
    /// A quota is used up.
    #[error("{what}: over quota: {why}; remove files, or ask for more")]
    OverQuota {
        /// The subject of the request.
        what: String,
        /// The limit that decides.
        why: String,
    },
    /// Another writer has the file open.
    #[error("{path}: is being written by {user}.{pid}@{host}; try again when that has ended", user = .by.user, pid = .by.pid, host = .by.host)]
    Busy {
        /// The requested path.
        path: String,
        /// The client that writes.
        by: Box<ClientIdentity>,
        /// The writer, for a server that wants to end it.
        writer: WriterToken,
    },
    /// A re-open matches more than one writer.
    #[error(
        "{path}: {count} writers of this client fit, so it is not clear which one goes on; close one or start again"
    )]
    Ambiguous {
        /// The requested path.
        path: String,
        /// The number of matching writers.
        count: usize,
    },
    /// A plain read, or an update without the explicit wish to resume, of a file whose writer has gone.
    #[error(
        "{path}: its writer has ended without completing it; {kept} bytes were kept, and they may not be the whole file. Read them with ?weir.partial=1, or write the file again"
    )]
    Interrupted {
        /// The requested path.
        path: String,
        /// Bytes that were kept.
        kept: u64,
    },
    /// The machine has restarted since, or its disk has failed, so acknowledged bytes may be gone. If the store was asked, the writer is now marked
    /// interrupted with its kept bytes, and this error keeps its changes.
    #[error(
        "{path}: the server's machine has restarted since, or its disk has failed, and bytes that were acknowledged may be lost; write the file again from the start"
    )]
    LostBytes {
        /// The requested path.
        path: String,
        /// The object.
        object: ObjectId,
        /// Whether this request marked it interrupted.
        marked: bool,
    },
    /// The handle, epoch, session or request is no longer current.
    #[error("{what}: {why}")]
    Stale {
        /// The subject of the request.
        what: String,
        /// Why it is no longer current.
        why: &'static str,
    },
    /// The open write to which the client returns has ended, so what it wrote may not be continued as if it had not. Unlike after [`NsError::Stale`], the
    /// same request never succeeds.
    #[error("{what}: {why}")]
    WriteEnded {
        /// The subject of the request.
        what: String,
        /// What has become of it.
        why: &'static str,
    },
    /// A commit that could not take effect. The upload is kept and can be listed until its deadline: this error keeps its changes.
    #[error("{path}: {reason}; what was written is kept as upload {upload} for {kept_secs} s")]
    UploadKept {
        /// The path where it should have appeared.
        path: String,
        /// Why it could not appear.
        reason: &'static str,
        /// The code of the reason.
        code: ErrorCode,
        /// The kept upload.
        upload: UploadId,
        /// How long it is kept, in seconds.
        kept_secs: u64,
    },
    /// A stripe unit differs from the bytes that its writer sent. The open write has ended as interrupted: this error and the next one keep their
    /// changes.
    #[error(
        "stripe unit {unit} of object {object} has the CRC32C {found:08x}, and {sent:08x} was sent: it was damaged on its way; write the file again", found = .found.0, sent = .sent.0
    )]
    NotAsSent {
        /// The file's object.
        object: ObjectId,
        /// The number of the unit.
        unit: u64,
        /// The checksum on the unit's server.
        found: Crc32c,
        /// The checksum that the writer sent.
        sent: Crc32c,
    },
    /// The length of a striped file differs from the length that its writer announced or sent.
    #[error("the striped object {object} has {found} bytes, and {sent} were sent; write the file again")]
    NotAsLong {
        /// The file's object.
        object: ObjectId,
        /// The length according to its units, in bytes.
        found: u64,
        /// The announced or sent length, in bytes.
        sent: u64,
    },
    /// A length, offset or value exceeds the limit of the format.
    #[error("{what}: {len} bytes; {bound} is the limit")]
    TooLarge {
        /// The kind of value.
        what: &'static str,
        /// Its length.
        len: u64,
        /// The limit.
        bound: u64,
    },
    /// No inode or object numbers are available at the moment. The next range is being taken.
    #[error("the next range of inode numbers is being taken; try again in a moment")]
    OutOfNumbers,
    /// A record cannot be decoded.
    #[error("damaged record at key {key}: {why}")]
    Damaged {
        /// The key, escaped.
        key: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A later version of weir wrote the record, with a part that this version must understand and does not.
    #[error("{what} was written by a later version of weir (feature {feature}); use that version")]
    Newer {
        /// The kind of record.
        what: &'static str,
        /// The number of that part.
        feature: u64,
    },
    /// An earlier version of weir wrote the record. This version does not read it.
    #[error(
        "{what} was written by an earlier version of weir (format {version}), which this one does not read; use that version to copy the files to a new cluster"
    )]
    Older {
        /// The kind of record.
        what: &'static str,
        /// The version of the format.
        version: u8,
    },
    /// The error that this request number got the first time.
    #[error("{text}")]
    Remembered {
        /// Its code.
        code: ErrorCode,
        /// Its text.
        text: String,
        /// Whether that error kept its changes.
        kept: bool,
    },
    /// Another node has the store.
    #[error(
        "store {store} is at node {node} ({name}) already, and one store cannot be at two nodes: if its directory was copied, take one of the copies away"
    )]
    StoreElsewhere {
        /// The store.
        store: StoreId,
        /// The node that has the store.
        node: NodeId,
        /// The name of that node.
        name: String,
    },
    /// The thing cannot be removed yet.
    #[error("{what} cannot be removed: {by}")]
    StillNeeded {
        /// The thing.
        what: String,
        /// Why it is still needed.
        by: String,
    },
    /// The engine failed.
    #[error(transparent)]
    Kv(#[from] KvError),
}

impl NsError {
    /// The error code that the rest of weir uses.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            NsError::Elsewhere => ErrorCode::Unavailable,
            NsError::NotFound(..) => ErrorCode::NotFound,
            NsError::Exists(_) => ErrorCode::Exists,
            NsError::NotDirectory(_) => ErrorCode::NotDirectory,
            NsError::IsDirectory(_) | NsError::OnlyDirectory(_) => ErrorCode::IsDirectory,
            NsError::NotEmpty(_) => ErrorCode::NotEmpty,
            NsError::Invalid { .. } => ErrorCode::Invalid,
            NsError::Name(NameError::NameTooLong(_) | NameError::PathTooLong(_)) => ErrorCode::NameTooLong,
            NsError::Name(_) => ErrorCode::Invalid,
            NsError::Loop(_) => ErrorCode::Loop,
            NsError::TooMany { .. } => ErrorCode::TooMany,
            NsError::Denied { .. } => ErrorCode::Denied,
            NsError::CrossTree(_) => ErrorCode::CrossTree,
            NsError::OverQuota { .. } => ErrorCode::Quota,
            NsError::Busy { .. } | NsError::Ambiguous { .. } => ErrorCode::Busy,
            NsError::Interrupted { .. } | NsError::LostBytes { .. } => ErrorCode::Interrupted,
            NsError::Stale { .. } | NsError::WriteEnded { .. } => ErrorCode::Stale,
            NsError::UploadKept { code, .. } | NsError::Remembered { code, .. } => *code,
            NsError::NotAsSent { .. } | NsError::NotAsLong { .. } => ErrorCode::Checksum,
            NsError::TooLarge { .. } => ErrorCode::TooLarge,
            NsError::OutOfNumbers => ErrorCode::Overloaded,
            NsError::Damaged { .. } => ErrorCode::Damaged,
            NsError::Newer { .. } | NsError::Older { .. } => ErrorCode::Unsupported,
            NsError::StoreElsewhere { .. } => ErrorCode::Exists,
            NsError::StillNeeded { .. } => ErrorCode::Busy,
            NsError::Kv(error) => error.code(),
        }
    }

    /// The same error, for people: a denial has the names of principals instead of their numbers.
    #[must_use]
    pub fn with_names(self, read: &dyn Read) -> Self {
        match self {
            NsError::Denied { path, rule } => NsError::Denied { path, rule: named(read, &rule) },
            other => other,
        }
    }

    /// Whether the caller must commit the changes that the operation made before it returned this error.
    #[must_use]
    pub fn keeps_changes(&self) -> bool {
        matches!(
            self,
            NsError::UploadKept { .. }
                | NsError::LostBytes { marked: true, .. }
                | NsError::NotAsSent { .. }
                | NsError::NotAsLong { .. }
        )
    }
}
