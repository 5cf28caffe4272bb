//! The interrupted mark: the writer went away, what it wrote is kept.

use kv::Txn;

use crate::{Context, NsError, OpTag, Operation, WriterToken};

/// Ends a writer that went away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interrupt {
    /// Which.
    pub writer: WriterToken,
    /// Bytes kept (of an update in place: the file's length now).
    pub kept_len: u64,
}

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InterruptReply {
    /// A new file: marked interrupted. An update in place: complete, without whole-file checksums until verified.
    Marked,
    /// An upload: kept, hidden, listable.
    UploadKept,
    /// It was removed meanwhile; the deletion of its body is queued.
    Unlinked,
}

/// See [`Interrupt`]. [`NsError::Stale`] if the writer was fenced or has ended.
pub fn interrupt(txn: &mut dyn Txn, ctx: &Context, request: &Interrupt) -> Result<InterruptReply, NsError> {
    todo!("{request:?} {ctx:?} {}", txn.get(b"")?.is_some())
}

impl Operation for Interrupt {
    const TAG: OpTag = OpTag::Interrupt;
    type Reply = InterruptReply;
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<InterruptReply, NsError> {
        interrupt(txn, ctx, self)
    }
}
