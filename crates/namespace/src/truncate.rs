//! Truncating by path.

use kv::Txn;
use types::{BootId, ClientIdentity, NsPath};

use crate::{Context, NsError, OpTag, OpenedWrite, Operation};

/// Begins to cut or extend a complete file: an update in place. The server then truncates the piece, completes it and commits. `None`: it has that length already.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Truncate {
    /// The path.
    pub path: NsPath,
    /// The new length in bytes.
    pub len: u64,
    /// Who asks.
    pub client: ClientIdentity,
    /// This kernel's boot.
    pub boot: BootId,
}

/// See [`Truncate`].
pub fn truncate(txn: &mut dyn Txn, ctx: &Context, request: &Truncate) -> Result<Option<OpenedWrite>, NsError> {
    todo!("{request:?} {ctx:?} {}", txn.get(b"")?.is_some())
}

impl Operation for Truncate {
    const TAG: OpTag = OpTag::Truncate;
    type Reply = Option<OpenedWrite>;
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<Option<OpenedWrite>, NsError> {
        truncate(txn, ctx, self)
    }
}
