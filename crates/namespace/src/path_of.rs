//! From an inode's number back to a path.

use kv::Read;
use types::Ino;

use crate::NsError;

/// A path of `ino`, starting with `/` (of a file with several names the first by key). It may be longer than
/// [`types::PATH_MAX`]: directories can be moved below others. Not found if it is unlinked.
pub fn path_of(read: &dyn Read, ino: Ino) -> Result<Vec<u8>, NsError> {
    todo!("{ino} {}", read.get(b"")?.is_some())
}
