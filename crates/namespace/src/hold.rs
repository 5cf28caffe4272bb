//! Holds of sessions on inodes: what is held stays when its last name goes.

use kv::{Read, Txn};
use types::{BodyId, Ino, SessionId};

use crate::{Context, NsError, OpTag, Operation};

/// The inodes that `session` holds, after `after`, at most `limit`.
pub fn holds(read: &dyn Read, session: SessionId, after: Option<Ino>, limit: usize) -> Result<Vec<Ino>, NsError> {
    todo!("{session} {after:?} {limit} {}", read.get(b"")?.is_some())
}

/// A session (a mount) holds an inode open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hold {
    /// Who.
    pub session: SessionId,
    /// What.
    pub ino: Ino,
}

/// See [`Hold`].
pub fn hold(txn: &mut dyn Txn, ctx: &Context, request: &Hold) -> Result<(), NsError> {
    todo!("{request:?} {ctx:?} {}", txn.get(b"")?.is_some())
}

impl Operation for Hold {
    const TAG: OpTag = OpTag::Hold;
    type Reply = ();
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<(), NsError> {
        hold(txn, ctx, self)
    }
}

/// Ends a hold; the last one of an inode without names lets it go. Answers the body whose deletion was queued.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReleaseHold {
    /// Who.
    pub session: SessionId,
    /// What.
    pub ino: Ino,
}

/// See [`ReleaseHold`].
pub fn release_hold(txn: &mut dyn Txn, ctx: &Context, request: &ReleaseHold) -> Result<Option<BodyId>, NsError> {
    todo!("{request:?} {ctx:?} {}", txn.get(b"")?.is_some())
}

impl Operation for ReleaseHold {
    const TAG: OpTag = OpTag::ReleaseHold;
    type Reply = Option<BodyId>;
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<Option<BodyId>, NsError> {
        release_hold(txn, ctx, self)
    }
}
