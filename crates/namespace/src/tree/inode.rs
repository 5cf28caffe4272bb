//! The inode: the record of a file, directory or link.

use types::{Adler32, Crc32c, GroupId, Ino, ObjectId, PrincipalId, SnapshotEpoch, Timestamp, TreeId};

pub use types::WriterKey;

use crate::{Access, Acl};

/// The record to which a name points.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inode {
    /// Its number.
    pub ino: Ino,
    /// Owner, group, mode and access ACL.
    pub access: Access,
    /// The number of its names; 1 for a directory; 0 if it is unlinked and held.
    pub nlink: u32,
    /// When its object (of a directory: its entries) changed.
    pub mtime: Timestamp,
    /// When the record changed.
    pub ctime: Timestamp,
    /// When it was made.
    pub btime: Timestamp,
    /// When it was last read, if somebody set that explicitly. weir does not track reads.
    pub atime: Option<Timestamp>,
    /// The snapshot epoch of the last write of this record. An older snapshot needs the record as it was before that write.
    pub changed_epoch: SnapshotEpoch,
    /// The number of its extended attributes.
    pub xattrs: u32,
    /// The number of sessions that hold it (mounts), see [`crate::Hold`].
    pub holders: u32,
    /// Fields of a later version that may be ignored. They are kept as they are.
    pub(crate) extra: Vec<u8>,
    /// What kind of thing it is.
    pub kind: Kind,
}

/// Kinds of inodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A file.
    File(Content),
    /// A directory.
    Directory(DirectoryRecord),
    /// A symbolic link and its target, any bytes.
    Symlink(Vec<u8>),
}

/// A directory's own fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectoryRecord {
    /// The directory that holds it; itself for the root.
    pub parent: Ino,
    /// Its name there; empty for the root.
    pub name: Vec<u8>,
    /// The tree to which it and its files belong.
    pub tree: TreeId,
    /// The ACL that its new inodes get.
    pub default_acl: Option<Box<Acl>>,
}

/// The object of a file as the namespace knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Content {
    /// The current object.
    pub object: ObjectId,
    /// The group of stores that holds it.
    pub group: GroupId,
    /// Committed length in bytes. 0 during the first write, the kept length if interrupted.
    pub len: u64,
    /// The state of the file.
    pub state: FileState,
    /// Checksums of the whole file, when known.
    pub sums: Option<Sums>,
    /// Counts commits of this inode.
    pub generation: u32,
    /// Other referrers than this inode need the object (`F` keys name them).
    pub shared: bool,
}

/// The state of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileState {
    /// Complete: its writer has closed it.
    Complete,
    /// Open for its first write.
    Open(WriterKey),
    /// Complete, with an in-place change under way.
    Updating(WriterKey),
    /// Its first writer went away. The key lets the same client start again.
    Interrupted(WriterKey),
}

/// Checksums of a complete file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sums {
    /// adler32.
    pub adler32: Adler32,
    /// CRC32C.
    pub crc32c: Crc32c,
}

impl Inode {
    /// The object, if this is a file.
    #[must_use]
    pub fn content(&self) -> Option<&Content> {
        match &self.kind {
            Kind::File(content) => Some(content),
            _ => None,
        }
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        matches!(self.kind, Kind::Directory(_))
    }

    /// A file's committed length, a link's target length, 0 for a directory.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.kind {
            Kind::File(content) => content.len,
            Kind::Directory(_) => 0,
            Kind::Symlink(target) => target.len() as u64,
        }
    }

    /// Whether [`Self::len`] is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The default ACL of a directory that has one.
    #[must_use]
    pub fn default_acl(&self) -> Option<&Acl> {
        match &self.kind {
            Kind::Directory(dir) => dir.default_acl.as_deref(),
            _ => None,
        }
    }

    /// The owner.
    #[must_use]
    pub fn owner(&self) -> PrincipalId {
        self.access.owner
    }
}
