//! An empty namespace, and the marks that say what a namespace is.

use kv::Txn;
use types::{BodyId, Incarnation, Ino, SessionId, Timestamp};

use crate::{Context, NsError, OpTag, Operation};

/// What was found or made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Formatted {
    /// The namespace's life.
    pub incarnation: Incarnation,
    /// The number of this run.
    pub session: SessionId,
    /// Whether it was empty.
    pub new: bool,
}

/// Makes the root directory and the default tree if the store of keys is empty; refuses what a later version wrote;
/// counts this run.
pub fn format_or_open(txn: &mut dyn Txn, now: Timestamp) -> Result<Formatted, NsError> {
    todo!("{now} {}", txn.get(b"")?.is_some())
}

/// After a restore from a backup: a new life of the namespace that numbers above everything that a store has seen. The administrator may.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RaiseIncarnation {
    /// The new incarnation is above this too.
    pub at_least: Incarnation,
    /// No inode number up to this one is handed out again.
    pub above_ino: Ino,
    /// No body number up to this one is handed out again.
    pub above_body: BodyId,
}

/// See [`RaiseIncarnation`].
pub fn raise_incarnation(txn: &mut dyn Txn, ctx: &Context, request: &RaiseIncarnation) -> Result<Incarnation, NsError> {
    todo!("{request:?} {ctx:?} {}", txn.get(b"")?.is_some())
}

impl Operation for RaiseIncarnation {
    const TAG: OpTag = OpTag::RaiseIncarnation;
    type Reply = Incarnation;
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<Incarnation, NsError> {
        raise_incarnation(txn, ctx, self)
    }
}
