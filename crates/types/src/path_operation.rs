//! What a request does at a path, as far as the rights of a credential on paths are concerned.

use std::fmt;

/// What a request does at a path. A request about two paths does something at each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PathOperation {
    /// Read the data of a file.
    Read,
    /// List a directory, also with the metadata of its entries.
    List,
    /// Read the metadata of a file or directory: size, times, checksum, attributes, ACL, the target of a link.
    Stat,
    /// Ask whether a file is on tape or on disk.
    Poll,
    /// Bring a file back from tape; also cancel that, release the file, or pin it.
    Stage,
    /// Make a file or a link where there is none, and write it.
    CreateFile,
    /// Make a directory.
    CreateDirectory,
    /// Move a file or a link to or from this path, where nothing is replaced.
    RenameFile,
    /// Give a file at this path another name (a hard link). Whatever may be done to files at the new name may be done to the
    /// file then, so this needs the right to read it and to take it away. The new name needs [`PathOperation::CreateFile`].
    Link,
    /// Overwrite, truncate, replace or remove a file or a link, or change its attributes.
    ModifyFile,
    /// Move, replace or remove a directory, or change its attributes.
    ModifyDirectory,
}

impl PathOperation {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Read,
        Self::List,
        Self::Stat,
        Self::Poll,
        Self::Stage,
        Self::CreateFile,
        Self::CreateDirectory,
        Self::RenameFile,
        Self::Link,
        Self::ModifyFile,
        Self::ModifyDirectory,
    ];
}

impl fmt::Display for PathOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::List => "list",
            Self::Stat => "see the metadata of",
            Self::Poll => "ask where the data is of",
            Self::Stage => "stage",
            Self::CreateFile => "create the file",
            Self::CreateDirectory => "create the directory",
            Self::RenameFile => "rename the file",
            Self::Link => "give another name to the file",
            Self::ModifyFile => "change or remove the file",
            Self::ModifyDirectory => "change or remove the directory",
        })
    }
}
