//! Sessions of clients that number their requests, and remembered answers (`R`).

use kv::{OpOutcome, Txn};
use types::{ClientIdentity, SessionId};

use crate::{Context, NsError, OpTag, Operation};

pub(crate) fn perform<O: Operation>(
    txn: &mut dyn Txn,
    ctx: &Context,
    op: &O,
) -> (OpOutcome, Result<O::Reply, NsError>) {
    let result = op.run(txn, ctx);
    (if result.is_ok() { OpOutcome::Commit } else { OpOutcome::Abort }, result)
}

/// Begins a session that numbers its requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenSession {
    /// Whose.
    pub client: ClientIdentity,
}

/// See [`OpenSession`].
pub fn open_session(txn: &mut dyn Txn, ctx: &Context, request: &OpenSession) -> Result<SessionId, NsError> {
    todo!("{request:?} {ctx:?} {}", txn.get(b"")?.is_some())
}

impl Operation for OpenSession {
    const TAG: OpTag = OpTag::OpenSession;
    type Reply = SessionId;
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<SessionId, NsError> {
        open_session(txn, ctx, self)
    }
}

/// Ends a session: forgets its answers. Its holds must have been released before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CloseSession {
    /// Which.
    pub session: SessionId,
}

/// See [`CloseSession`].
pub fn close_session(txn: &mut dyn Txn, ctx: &Context, request: &CloseSession) -> Result<(), NsError> {
    todo!("{request:?} {ctx:?} {}", txn.get(b"")?.is_some())
}

impl Operation for CloseSession {
    const TAG: OpTag = OpTag::CloseSession;
    type Reply = ();
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<(), NsError> {
        close_session(txn, ctx, self)
    }
}
