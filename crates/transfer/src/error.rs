//! Errors of a copy.

use std::io;
use std::time::Duration;

use client::{ClientError, Kind, Sum, UrlError};
use console::Exit;

/// Why something was not copied. The text names the file and the reason.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the texts say what the fields are
pub enum TransferError {
    #[error(transparent)]
    Client(ClientError),
    #[error("{what} {path}: {source}")]
    Local { what: &'static str, path: String, source: io::Error },
    #[error("{path} exists already; --force replaces it, --resume continues an interrupted copy")]
    Exists { path: String },
    #[error(
        "{path} exists, and is not the file that was to be copied: the connection was lost before the server \
         answered, and the file may be somebody else's; look at it, then use --force to replace it"
    )]
    PerhapsOurs { path: String },
    #[error("{path} is a directory; -r copies it with everything in it")]
    IsDirectory { path: String },
    #[error("{path} is a directory; -r removes it with everything in it")]
    RemovesDirectory { path: String },
    #[error("{path} is not a file that can be copied")]
    NotAFile { path: String },
    #[error(
        "the copy of {from} is not what was read: the server says {algorithm} {found}, and {sent} was sent; {to} was \
         left as it is, because it may be what somebody else has put there since; look at it, then use --force to \
         replace it"
    )]
    Differs { from: String, to: String, algorithm: &'static str, found: String, sent: String },
    #[error(
        "{server} does not take a delegated proxy: it must let clients log in by gsi, with `authentication.gsi_delegation` (at a \
         stock server: `ofs.tpc fcreds`), and you must have a certificate; or copy without --delegate"
    )]
    NotDelegated { server: String },
    #[error("{from} has changed while it was copied: it had {expected} bytes, {found} were read")]
    Changed { from: String, expected: u64, found: u64 },
    #[error("{from} arrived damaged: the server says {expected}, and {found} was received; the target was not changed")]
    Damaged { from: String, expected: String, found: Sum },
    #[error("{path}: the existing file is not the beginning of {from}; --force replaces it")]
    NoBeginning { path: String, from: String },
    #[error(
        "{path} is another file than a moment ago, or has grown: somebody else writes it; look at it, then try again"
    )]
    Meanwhile { path: String },
    #[error("{path} is the root; remove what is in it instead")]
    Root { path: String },
    #[error(
        "{path} is not removed: it ends in `.` or `..`, which may be more than was meant; give the directory's own name"
    )]
    Dots { path: String },
    #[error(
        "{path} is not removed: it is the working directory, or holds it; go elsewhere first, or remove what is in it"
    )]
    Around { path: String },
    #[error(
        "{path} is in the way: the copy needs a directory there, and it is no directory (or a link to one); remove or rename it first"
    )]
    InTheWay { path: String },
    #[error("{to} is {from} itself, or in it")]
    IntoItself { from: String, to: String },
    #[error("{path} is no directory")]
    NotADirectory { path: String },
    #[error("give the new owner, the new group, or both: ana, ana:atlas or :atlas")]
    NoOwner,
    #[error("{path} is not at a server: use chmod(1), chown(1), getfacl(1) and setfacl(1) on this machine")]
    NotAtServer { path: String },
    #[error("{from} cannot be renamed to {to}, which is elsewhere; copy it, then remove it")]
    Elsewhere { from: String, to: String },
    #[error("{0}; the XRootD protocol has no request for this, and only weir's servers take it all the same")]
    OnlyWeir(ClientError),
    #[error("`{name}` is no checksum that can be computed here; crc32c and adler32 are")]
    NoSuchChecksum { name: String },
    #[error(
        "no checksum is kept by all these servers ({offered}), so those of one list could not be compared; choose with -a"
    )]
    NoCommonChecksum { offered: String },
    #[error(transparent)]
    CopyPath(#[from] UrlError),
    #[error("give at least one source, and the target last")]
    NoSource,
    #[error("standard input can be read once only")]
    StandardInputTwice,
    #[error("a third-party copy is from server to server: give root:// addresses")]
    ThirdPartyHere,
    #[error("{path}: --follow is for files at weir's servers; only they know whether a file is still being written")]
    FollowHere { path: String },
    #[error(
        "{server} is not one of weir's servers, and does not say whether a file is still being written; leave out --follow"
    )]
    FollowElsewhere { server: String },
    #[error("{from} is interrupted: its writer went away without closing it, and the file ends after {at} bytes")]
    Interrupted { from: String, at: u64 },
    #[error(
        "{from} has not grown for {} s; {at} bytes were read, and its writer has not closed it; --wait-for sets how long to wait",
        after.as_secs()
    )]
    NotGrowing { from: String, at: u64, after: Duration },
    #[error(
        "{from}: its writer has changed bytes that were copied already, so the copy is not the file; copy it again now that it is complete"
    )]
    Rewritten { from: String },
    #[error("several sources cannot all be copied onto {target} itself; leave out --no-target-directory")]
    SeveralOntoOne { target: String },
    #[error(
        "an earlier copy may have put {from} into {target}, or may have made {target} of it: both fit what is there; \
         say which: --no-target-directory for the second, or give the whole name of the copy with it for the first"
    )]
    EitherWay { from: String, target: String },
    #[error("{path} is a directory, and a file cannot take its place; leave out --no-target-directory to copy into it")]
    TargetIsDirectory { path: String },
    #[error("{path}: no server can have this name, because in a root:// address `?` ends the path; rename it")]
    NameWithMark { path: String },
    #[error("several sources need a directory as their target, and {target} is none (end it with / to make it)")]
    SeveralIntoOne { target: String },
    #[error("sync is of two directories")]
    SyncOfStandard,
    #[error("cannot catch signals")]
    Signals(#[source] io::Error),
    #[error("stopped before it was done")]
    Stopped,
}

impl From<ClientError> for TransferError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Stopped => Self::Stopped,
            error => Self::Client(error),
        }
    }
}

impl TransferError {
    /// A local operation that failed.
    pub fn local(what: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.display().to_string();
        move |source| Self::Local { what, path, source }
    }

    /// The exit code if this is the only error.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Client(error) => match error.kind() {
                Kind::NotFound => Exit::NotFound,
                Kind::Exists => Exit::Exists,
                Kind::Denied => Exit::Denied,
                Kind::NoSpace => Exit::NoSpace,
                Kind::Connection => Exit::Unreachable,
                Kind::Checksum => Exit::Checksum,
                Kind::Usage => Exit::Usage,
                Kind::WrongKind | Kind::Unsupported | Kind::Other => Exit::Failed,
            },
            Self::Local { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => Exit::NotFound,
                io::ErrorKind::AlreadyExists => Exit::Exists,
                io::ErrorKind::PermissionDenied => Exit::Denied,
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Exit::NoSpace,
                _ => Exit::Failed,
            },
            Self::Exists { .. }
            | Self::PerhapsOurs { .. }
            | Self::NoBeginning { .. }
            | Self::Meanwhile { .. }
            | Self::InTheWay { .. } => Exit::Exists,
            Self::Differs { .. } | Self::Damaged { .. } | Self::Rewritten { .. } => Exit::Checksum,
            Self::NoSuchChecksum { .. }
            | Self::NoCommonChecksum { .. }
            | Self::CopyPath(_)
            | Self::NoSource
            | Self::StandardInputTwice
            | Self::ThirdPartyHere
            | Self::FollowHere { .. }
            | Self::SeveralIntoOne { .. }
            | Self::SeveralOntoOne { .. }
            | Self::EitherWay { .. }
            | Self::TargetIsDirectory { .. }
            | Self::SyncOfStandard
            | Self::IntoItself { .. }
            | Self::Root { .. }
            | Self::Dots { .. }
            | Self::Around { .. }
            | Self::NotADirectory { .. }
            | Self::NoOwner
            | Self::NotAtServer { .. }
            | Self::RemovesDirectory { .. }
            | Self::IsDirectory { .. } => Exit::Usage,
            Self::NotAFile { .. }
            | Self::NotDelegated { .. }
            | Self::NameWithMark { .. }
            | Self::Changed { .. }
            | Self::FollowElsewhere { .. }
            | Self::Interrupted { .. }
            | Self::NotGrowing { .. }
            | Self::Elsewhere { .. }
            | Self::OnlyWeir(_)
            | Self::Signals(_)
            | Self::Stopped => Exit::Failed,
        }
    }
}
