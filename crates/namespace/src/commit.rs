//! Commit: what was written becomes the file.

use kv::Txn;
use types::{BodyId, Ino, Timestamp, UploadId};

use crate::{Context, NsError, OpTag, Operation, Sums, WriterToken};

/// What the store says of the finished body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Committed {
    /// Length in bytes.
    pub len: u64,
    /// Whole-file checksums; `None` loses those that the file had.
    pub sums: Option<Sums>,
    /// The modification time; the context's `now` if not given.
    pub mtime: Option<Timestamp>,
}

/// Who completes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completion {
    /// The client closed.
    ByClient,
    /// The server, at the end of the grace period ([`crate::at_grace_end`]); the client may come back not knowing.
    AtGraceEnd,
}

/// Makes what `writer` wrote the file's content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Commit {
    /// From the open.
    pub writer: WriterToken,
    /// From the store.
    pub content: Committed,
    /// Who completes.
    pub completion: Completion,
}

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitReply {
    /// The file is complete.
    Complete {
        /// The inode.
        ino: Ino,
        /// The body that it had before and that nothing needs any more; its deletion is queued.
        replaced: Option<BodyId>,
        /// The upload that this was.
        upload: Option<UploadId>,
    },
    /// The file was removed, or another content took its place, while it was written; the deletion of the body is
    /// queued.
    Unlinked,
}

/// See [`Commit`]. [`NsError::Stale`] if the writer was fenced or has ended; [`NsError::UploadKept`] if an upload
/// cannot take effect.
pub fn commit(txn: &mut dyn Txn, ctx: &Context, request: &Commit) -> Result<CommitReply, NsError> {
    todo!("{request:?} {ctx:?} {}", txn.get(b"")?.is_some())
}

impl Operation for Commit {
    const TAG: OpTag = OpTag::Commit;
    type Reply = CommitReply;
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<CommitReply, NsError> {
        commit(txn, ctx, self)
    }
}
