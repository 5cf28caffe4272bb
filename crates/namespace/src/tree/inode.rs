//! The inode: what a name means.

use types::{Adler32, Crc32c, GroupId, Ino, ObjectId, PrincipalId, SnapshotEpoch, Timestamp, TreeId};

pub use types::WriterKey;

use crate::Access;

/// The object behind a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inode {
    /// Its number.
    pub ino: Ino,
    /// Owner, group and mode.
    pub access: Access,
    /// Names that it has; 1 for a directory; 0 when it is unlinked and held.
    pub nlink: u32,
    /// When its content changed (of a directory: its entries).
    pub mtime: Timestamp,
    /// When the record changed.
    pub ctime: Timestamp,
    /// When it was made.
    pub btime: Timestamp,
    /// When it was last read, if somebody set that explicitly; weir does not track reads.
    pub atime: Option<Timestamp>,
    /// The snapshot epoch in which the record was written last: a snapshot that is older than that needs the record as
    /// it was before.
    pub changed_epoch: SnapshotEpoch,
    /// Extended attributes that it has.
    pub xattrs: u32,
    /// Sessions that hold it (mounts), see [`crate::Hold`].
    pub holders: u32,
    /// Fields of a later version that may be ignored and are kept as they are.
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
    /// The tree that it and the files in it belong to.
    pub tree: TreeId,
}

/// A file's content as the namespace knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Content {
    /// The current object.
    pub object: ObjectId,
    /// The group of stores that holds it.
    pub group: GroupId,
    /// Committed length in bytes; 0 while it is written for the first time; the kept length when interrupted.
    pub len: u64,
    /// Where it is in its life.
    pub state: FileState,
    /// Checksums of the whole file, when known.
    pub sums: Option<Sums>,
    /// Counts commits of this inode.
    pub generation: u32,
    /// Others than this inode need the object (`F` keys say who).
    pub shared: bool,
}

/// Where a file is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileState {
    /// Whole, as closed by its writer.
    Complete,
    /// Being written for the first time.
    Open(WriterKey),
    /// Whole, and being changed in place.
    Updating(WriterKey),
    /// Its first writer went away. Who that was lets the same client begin again.
    Interrupted(WriterKey),
}

/// Checksums of a whole file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sums {
    /// adler32.
    pub adler32: Adler32,
    /// CRC32C.
    pub crc32c: Crc32c,
}

impl Inode {
    /// The content, if it is a file.
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

    /// The owner.
    #[must_use]
    pub fn owner(&self) -> PrincipalId {
        self.access.owner
    }
}
