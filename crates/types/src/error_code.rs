//! The reasons for a refusal that cross crate and protocol borders. Each front door maps them to its protocol's
//! codes in one place; the texts come from the crates' own error enums.

/// Why something was refused. One per outcome that a client can tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, serde::Serialize, serde::Deserialize)]
pub enum ErrorCode {
    /// No such name, inode, object or attribute.
    NotFound,
    /// The name, or the attribute, is taken.
    Exists,
    /// A directory was needed.
    NotDirectory,
    /// A directory was given where a file was needed.
    IsDirectory,
    /// The directory has entries.
    NotEmpty,
    /// The request makes no sense as it stands.
    Invalid,
    /// A name over 255 or a path over 4096 bytes.
    NameTooLong,
    /// Too many symbolic links on the way.
    Loop,
    /// Too many hard links, or a table is full.
    TooMany,
    /// The permission check said no.
    Denied,
    /// Between two trees, as between two file systems.
    CrossTree,
    /// Somebody holds it in a way that excludes this.
    Busy,
    /// The file is open for writing or was interrupted; whoever asks for whole files gets this.
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
    /// Something that weir wrote does not read back as it should.
    Damaged,
    /// Not offered here.
    Unsupported,
    /// Over a limit; asking again later helps.
    Overloaded,
    /// The service is going down, or its log is poisoned.
    Unavailable,
    /// The offset or length is past what can be stored.
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
