//! Removing a file, link or directory, as the protocol's `rm` does.

use kv::{Prefetch, Txn};
use types::NsPath;

use crate::tree::path_limits::ByKind;
use crate::tree::remove::ahead_of_removal;
use crate::tree::remove::remove_by;
use crate::tree::rmdir::rmdir;
use crate::{Context, NsError, OpTag, Operation, Rmdir};

/// Removes a file, a symbolic link or an empty directory. For a directory with entries, the error says that it is a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoveAny {
    /// The path.
    pub path: NsPath,
}

/// See [`RemoveAny`].
pub fn remove_any(txn: &mut dyn Txn, ctx: &Context, request: &RemoveAny) -> Result<(), NsError> {
    match remove_by(txn, ctx, &request.path, ByKind::MODIFY) {
        // The failed removal has changed nothing.
        Err(is_directory @ NsError::IsDirectory(_)) => match rmdir(txn, ctx, &Rmdir { path: request.path.clone() }) {
            Err(NsError::NotEmpty(_)) => Err(is_directory),
            result => result.map(|_| ()),
        },
        result => result.map(|_| ()),
    }
}

impl Operation for RemoveAny {
    const TAG: OpTag = OpTag::RemoveAny;
    type Reply = ();
    fn ahead(&self, ctx: &Context) -> Vec<Prefetch> {
        ahead_of_removal(&self.path, ctx).emptied().list()
    }
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<(), NsError> {
        remove_any(txn, ctx, self)
    }
}
