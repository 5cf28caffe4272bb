//! Removing a file, link or directory, as the protocol's `rm` does.

use kv::Txn;
use types::NsPath;

use crate::tree::remove::remove;
use crate::tree::rmdir::rmdir;
use crate::{Context, NsError, OpTag, Operation, Remove, Rmdir};

/// Removes a file, a symbolic link or an empty directory. For a directory with entries, the error says that it is a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoveAny {
    /// The path.
    pub path: NsPath,
}

/// See [`RemoveAny`].
pub fn remove_any(txn: &mut dyn Txn, ctx: &Context, request: &RemoveAny) -> Result<(), NsError> {
    let path = request.path.clone();
    match remove(txn, ctx, &Remove { path: path.clone() }) {
        // The failed removal has changed nothing.
        Err(is_directory @ NsError::IsDirectory(_)) => match rmdir(txn, ctx, &Rmdir { path }) {
            Err(NsError::NotEmpty(_)) => Err(is_directory),
            result => result.map(|_| ()),
        },
        result => result.map(|_| ()),
    }
}

impl Operation for RemoveAny {
    const TAG: OpTag = OpTag::RemoveAny;
    type Reply = ();
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<(), NsError> {
        remove_any(txn, ctx, self)
    }
}
