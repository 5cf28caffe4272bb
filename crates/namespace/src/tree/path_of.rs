//! From an inode's number back to a path.

use kv::Read;
use types::Ino;

use crate::tree::node::{InodeValue, get_directory, get_inode_value};
use crate::{Kind, NsError};

/// The deepest directory that has a path, and the longest search for a policy. Moving directories can produce paths longer than a request may
/// contain.
pub(crate) const DEPTH_MAX: usize = 65_536;

/// A path of `ino`, starting with `/`. A file with several names gives the first by key. The path may be longer than [`types::PATH_MAX`], because
/// directories can be moved below others. Returns not found if the inode is unlinked.
pub fn path_of(read: &dyn Read, ino: Ino) -> Result<Vec<u8>, NsError> {
    let gone = || NsError::NotFound(format!("inode {ino}"), "name of that inode");
    if ino == Ino::ROOT {
        return Ok(b"/".to_vec());
    }
    let (mut parent, name) = match get_inode_value(read, ino)?.ok_or_else(gone)? {
        InodeValue::Back { parent, name } => (parent, name),
        InodeValue::Record(inode) => match inode.kind {
            Kind::Directory(dir) => (dir.parent, dir.name),
            _ => crate::tree::node::links_of(read, ino)?.into_iter().next().ok_or_else(gone)?,
        },
    };
    let mut names = vec![name];
    while parent != Ino::ROOT {
        if names.len() > DEPTH_MAX {
            return Err(NsError::TooMany { what: "directories above each other", bound: DEPTH_MAX as u64 });
        }
        let (_, dir) = get_directory(read, parent)?;
        names.push(dir.name);
        parent = dir.parent;
    }
    let mut path = Vec::new();
    for name in names.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    Ok(path)
}
