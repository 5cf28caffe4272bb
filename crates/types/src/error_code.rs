//! Error codes that cross crate and protocol borders. Each front end maps them to its protocol's codes in one place.
//! The texts come from the error enums of the crates.

/// Why a request failed. One code for each outcome that a client can distinguish.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, serde::Serialize, serde::Deserialize)]
pub enum ErrorCode {
    /// No such name, inode, object or attribute.
    NotFound,
    /// The name or the attribute already exists.
    Exists,
    /// A directory was needed.
    NotDirectory,
    /// A directory was given, but a file was needed.
    IsDirectory,
    /// The directory has entries.
    NotEmpty,
    /// The request is invalid.
    Invalid,
    /// A name longer than 255 or a path longer than 4096 bytes.
    NameTooLong,
    /// Too many symbolic links in the path.
    Loop,
    /// Too many hard links, or a table is full.
    TooMany,
    /// The permission check failed.
    Denied,
    /// Source and target are in different trees, like different file systems.
    CrossTree,
    /// Another user holds it in a way that excludes this.
    Busy,
    /// The file is open for writing or was interrupted, and the client asked for a complete file.
    Interrupted,
    /// The handle, session or epoch is no longer the current one.
    Stale,
    /// No space, or the free-space floor is reached.
    NoSpace,
    /// A quota is used up.
    Quota,
    /// Bytes do not match their checksum.
    Checksum,
    /// The disk or the journal failed.
    Io,
    /// Something that weir wrote is not readable as such.
    Damaged,
    /// Not supported here.
    Unsupported,
    /// A limit is exceeded; a later attempt may succeed.
    Overloaded,
    /// The service is stopping, or its journal is poisoned.
    Unavailable,
    /// The offset or length is beyond the maximum.
    TooLarge,
    /// Something that the request needs is not in it.
    Missing,
    /// The request, or a part of it, is longer than it may be.
    TooLong,
    /// The open file does not allow it: how it is open, or what is done with it, excludes this.
    NotAllowedNow,
    /// The caller has as many open files as it may have.
    TooManyOpen,
    /// A file was needed, and it is neither a file nor a directory.
    NotFile,
    /// Stopped on request, or because nobody waits for it any more.
    Cancelled,
    /// It is under way, and not done yet.
    InProgress,
    /// Something else that is under way excludes it.
    Conflict,
    /// What has come is not all that was announced.
    Incomplete,
    /// No such attribute.
    NoAttribute,
    /// The server has made a mistake of its own.
    Internal,
}
