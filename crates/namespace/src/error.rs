//! Why the namespace refused something.

use kv::KvError;
use types::{ClientIdentity, Crc32c, ErrorCode, NameError, NodeId, ObjectId, StoreId, UploadId};

use crate::WriterToken;

/// A refusal, or a failure below. `code()` maps it to what crosses crate and protocol borders.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NsError {
    /// This node keeps no names.
    #[error("the cluster's manager keeps the namespace, and this is a disk server")]
    Elsewhere,
    /// Nothing of that name (path, inode, attribute, upload).
    #[error("{0}: no such {1}")]
    NotFound(String, &'static str),
    /// The name is taken.
    #[error("{0}: exists already")]
    Exists(String),
    /// A directory was needed.
    #[error("{0}: not a directory")]
    NotDirectory(String),
    /// A file was needed.
    #[error("{0}: is a directory")]
    IsDirectory(String),
    /// The directory has entries.
    #[error("{0}: the directory is not empty")]
    NotEmpty(String),
    /// The request makes no sense as it stands.
    #[error("{what}: {why}")]
    Invalid {
        /// What it was about.
        what: String,
        /// What is wrong, and what would help.
        why: &'static str,
    },
    /// A name or path that cannot be.
    #[error(transparent)]
    Name(#[from] NameError),
    /// More than 40 symbolic links on the way.
    #[error("{0}: more than 40 symbolic links on the way; one of them probably leads to itself")]
    Loop(String),
    /// A bound on a number of things is reached.
    #[error("{what}: {bound} is the limit here")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The limit.
        bound: u64,
    },
    /// The permission check said no.
    #[error("{path}: denied: {rule}")]
    Denied {
        /// On what.
        path: String,
        /// The rule that says so.
        rule: String,
    },
    /// Between two trees.
    #[error("{0}: lies in another tree; copy it instead")]
    CrossTree(String),
    /// Somebody writes it.
    #[error("{path}: is being written by {user}.{pid}@{host}; try again when that has ended", user = .by.user, pid = .by.pid, host = .by.host)]
    Busy {
        /// The path asked for.
        path: String,
        /// Who writes.
        by: Box<ClientIdentity>,
        /// The writer, for a server that wants to end it.
        writer: WriterToken,
    },
    /// A re-open that fits more than one writer.
    #[error(
        "{path}: {count} writers of this client fit, so it is not clear which one goes on; close one or start again"
    )]
    Ambiguous {
        /// The path asked for.
        path: String,
        /// How many fit.
        count: usize,
    },
    /// A plain read, or an update without the wish to resume, of a file whose writer has gone.
    #[error(
        "{path}: its writer has ended without completing it; {kept} bytes were kept, and they may not be the whole file. Read them with ?weir.partial=1, or write the file again"
    )]
    Interrupted {
        /// The path asked for.
        path: String,
        /// Bytes that were kept.
        kept: u64,
    },
    /// The machine has booted since, or its disk has failed, and acknowledged bytes may be gone. If the store had been asked, the writer was
    /// marked interrupted with what is kept, and this error keeps its changes.
    #[error(
        "{path}: the server's machine has restarted since, or its disk has failed, and bytes that were acknowledged may be lost; write the file again from the start"
    )]
    LostBytes {
        /// The path asked for.
        path: String,
        /// The content.
        object: ObjectId,
        /// Whether it was marked interrupted now.
        marked: bool,
    },
    /// The handle, epoch, session or request is no longer the current one.
    #[error("{what}: {why}")]
    Stale {
        /// What it was about.
        what: String,
        /// Why it is no longer current.
        why: &'static str,
    },
    /// A commit that could not take effect. The upload is kept and listable until its deadline: this error keeps its
    /// changes.
    #[error("{path}: {reason}; what was written is kept as upload {upload} for {kept_secs} s")]
    UploadKept {
        /// Where it should have gone.
        path: String,
        /// Why it could not.
        reason: &'static str,
        /// The code of the reason.
        code: ErrorCode,
        /// Where it is.
        upload: UploadId,
        /// For how long, in seconds.
        kept_secs: u64,
    },
    /// A unit of a striped file is not what its writer has sent. The writing has ended, as interrupted: this error keeps its changes, as the next one.
    #[error(
        "stripe unit {unit} of object {object} has the CRC32C {found:08x}, and {sent:08x} was sent: it was damaged on its way; write the file again", found = .found.0, sent = .sent.0
    )]
    NotAsSent {
        /// The file's content.
        object: ObjectId,
        /// Which unit.
        unit: u64,
        /// As its server has it.
        found: Crc32c,
        /// As it was sent.
        sent: Crc32c,
    },
    /// A striped file has another length than its writer has announced, or says.
    #[error("the striped object {object} has {found} bytes, and {sent} were sent; write the file again")]
    NotAsLong {
        /// The file's content.
        object: ObjectId,
        /// As its units have it, in bytes.
        found: u64,
        /// As it was announced or sent, in bytes.
        sent: u64,
    },
    /// A length, offset or value over what can be stored.
    #[error("{what}: {len} bytes; {bound} is the limit")]
    TooLarge {
        /// What.
        what: &'static str,
        /// How long it is.
        len: u64,
        /// The limit.
        bound: u64,
    },
    /// Out of numbers for the moment: the next range is being taken.
    #[error("the next range of inode numbers is being taken; try again in a moment")]
    OutOfNumbers,
    /// A record does not read back as it should.
    #[error("damaged record at key {key}: {why}")]
    Damaged {
        /// The key, escaped.
        key: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A record of a later weir with something that must be understood.
    #[error("{what} was written by a later version of weir (feature {feature}); use that version")]
    Newer {
        /// What.
        what: &'static str,
        /// Its number.
        feature: u64,
    },
    /// A record of an earlier weir, which this one does not read.
    #[error(
        "{what} was written by an earlier version of weir (format {version}), which this one does not read; use that version to copy the files to a new cluster"
    )]
    Older {
        /// What.
        what: &'static str,
        /// The version of the format.
        version: u8,
    },
    /// The answer that was given when this request number came first.
    #[error("{text}")]
    Remembered {
        /// Its code.
        code: ErrorCode,
        /// Its text.
        text: String,
        /// Whether it had kept its changes then.
        kept: bool,
    },
    /// Another node has the store.
    #[error(
        "store {store} is at node {node} ({name}) already, and one store cannot be at two nodes: if its directory was copied, take one of the copies away"
    )]
    StoreElsewhere {
        /// The store.
        store: StoreId,
        /// The node that has it.
        node: NodeId,
        /// How people call that.
        name: String,
    },
    /// It cannot go yet.
    #[error("{what} cannot be removed: {by}")]
    StillNeeded {
        /// What.
        what: String,
        /// Why not.
        by: String,
    },
    /// The engine failed.
    #[error(transparent)]
    Kv(#[from] KvError),
}

impl NsError {
    /// The reason as the rest of weir tells them apart.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            NsError::Elsewhere => ErrorCode::Unavailable,
            NsError::NotFound(..) => ErrorCode::NotFound,
            NsError::Exists(_) => ErrorCode::Exists,
            NsError::NotDirectory(_) => ErrorCode::NotDirectory,
            NsError::IsDirectory(_) => ErrorCode::IsDirectory,
            NsError::NotEmpty(_) => ErrorCode::NotEmpty,
            NsError::Invalid { .. } => ErrorCode::Invalid,
            NsError::Name(NameError::NameTooLong(_) | NameError::PathTooLong(_)) => ErrorCode::NameTooLong,
            NsError::Name(_) => ErrorCode::Invalid,
            NsError::Loop(_) => ErrorCode::Loop,
            NsError::TooMany { .. } => ErrorCode::TooMany,
            NsError::Denied { .. } => ErrorCode::Denied,
            NsError::CrossTree(_) => ErrorCode::CrossTree,
            NsError::Busy { .. } | NsError::Ambiguous { .. } => ErrorCode::Busy,
            NsError::Interrupted { .. } | NsError::LostBytes { .. } => ErrorCode::Interrupted,
            NsError::Stale { .. } => ErrorCode::Stale,
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

    /// Whether what the operation changed before it refused is part of the refusal and must be committed.
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
