//! Making directories.

use kv::Txn;
use types::{Ino, NsPath};

use crate::{Context, NsError, OpTag, Operation};

/// What mkdir made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Made {
    /// The directory.
    pub ino: Ino,
    /// Directories that were made; 0 if all were there (with `parents` only).
    pub made: u32,
}

/// Makes a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mkdir {
    /// The path.
    pub path: NsPath,
    /// Permission bits of what is made.
    pub mode: u16,
    /// Make those on the way too, and be content if all are there.
    pub parents: bool,
}

/// See [`Mkdir`].
pub fn mkdir(txn: &mut dyn Txn, ctx: &Context, request: &Mkdir) -> Result<Made, NsError> {
    todo!("{request:?} {ctx:?} {}", txn.get(b"")?.is_some())
}

impl Operation for Mkdir {
    const TAG: OpTag = OpTag::Mkdir;
    type Reply = Made;
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<Made, NsError> {
        mkdir(txn, ctx, self)
    }
}
