//! Limits on paths that a credential sets, such as the scopes of a token. They hold in addition to owner, group, mode and ACL.

use std::fmt::Debug;

use types::{NsPath, PathOperation};

/// What the bearer of a credential may do at most, whoever it is.
///
/// The namespace asks with the path as the request gives it, before it reads anything. It asks again each time it has replaced a symbolic link by its
/// target, before it reads what the new path leads to. Neither path has a `..`. Whether a path ends in a slash decides nothing.
///
/// The namespace relies on this:
/// - A permission to [list](PathOperation::List) a directory includes the metadata of its entries.
/// - A permission to [change a directory](PathOperation::ModifyDirectory) includes everything below it: a renamed directory takes that along.
/// - A permission to change a file includes its [metadata](PathOperation::Stat): a manager looks at the file before it opens it. Otherwise it only
///   refuses too much.
pub trait PathLimits: Send + Sync + Debug {
    /// Whether the credential may be used for `operation` on `path`. It compares whole names: what holds for `/a` does not hold for `/ab`.
    ///
    /// # Errors
    /// The rule that denies it, for the message.
    fn permit(&self, operation: PathOperation, path: &NsPath) -> Result<(), String>;
}

/// Limits are equal if they are the same ones in memory.
impl PartialEq for dyn PathLimits {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(std::ptr::from_ref(self), std::ptr::from_ref(other))
    }
}

impl Eq for dyn PathLimits {}

/// The operation that a change is: it depends on what has the name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ByKind {
    /// Of a file or a link.
    pub file: PathOperation,
    /// Of a directory.
    pub directory: PathOperation,
}

impl ByKind {
    /// A change that keeps the name, or removes it.
    pub(crate) const MODIFY: Self = Self { file: PathOperation::ModifyFile, directory: PathOperation::ModifyDirectory };
    /// A move to another name.
    pub(crate) const MOVE: Self = Self { file: PathOperation::RenameFile, directory: PathOperation::ModifyDirectory };

    /// Both, for the check before it is known what has the name.
    pub(crate) const fn either(self) -> [PathOperation; 2] {
        [self.file, self.directory]
    }

    pub(crate) const fn of(self, is_directory: bool) -> PathOperation {
        if is_directory { self.directory } else { self.file }
    }
}
