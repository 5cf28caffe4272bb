//! chmod, chown, utimes.

use kv::Txn;
use types::{NsPath, PrincipalId, Timestamp};

use crate::{Context, NsError, OpTag, Operation};

/// Sets the permission bits; the owner may.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chmod {
    /// The path.
    pub path: NsPath,
    /// New bits (`07777`).
    pub mode: u16,
}

/// See [`Chmod`].
pub fn chmod(txn: &mut dyn Txn, ctx: &Context, request: &Chmod) -> Result<(), NsError> {
    todo!("{request:?} {ctx:?} {}", txn.get(b"")?.is_some())
}

impl Operation for Chmod {
    const TAG: OpTag = OpTag::Chmod;
    type Reply = ();
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<(), NsError> {
        chmod(txn, ctx, self)
    }
}

/// Sets owner or group. The administrator may; an owner may give the file to another of its own groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chown {
    /// The path.
    pub path: NsPath,
    /// New owner.
    pub owner: Option<PrincipalId>,
    /// New group.
    pub group: Option<PrincipalId>,
}

/// See [`Chown`].
pub fn chown(txn: &mut dyn Txn, ctx: &Context, request: &Chown) -> Result<(), NsError> {
    todo!("{request:?} {ctx:?} {}", txn.get(b"")?.is_some())
}

impl Operation for Chown {
    const TAG: OpTag = OpTag::Chown;
    type Reply = ();
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<(), NsError> {
        chown(txn, ctx, self)
    }
}

/// Sets times explicitly. The owner may.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Utimes {
    /// The path.
    pub path: NsPath,
    /// Modification.
    pub mtime: Option<Timestamp>,
    /// Access.
    pub atime: Option<Timestamp>,
}

/// See [`Utimes`].
pub fn utimes(txn: &mut dyn Txn, ctx: &Context, request: &Utimes) -> Result<(), NsError> {
    todo!("{request:?} {ctx:?} {}", txn.get(b"")?.is_some())
}

impl Operation for Utimes {
    const TAG: OpTag = OpTag::Utimes;
    type Reply = ();
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<(), NsError> {
        utimes(txn, ctx, self)
    }
}
