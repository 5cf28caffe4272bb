//! What the service says, in the protocol's words: errors as numbers, attributes as stat shows them.

use service::{Error, FileKind, Handle, Stat};
use types::{NameError, PrincipalId};
use wire::response::{OpenReply, StatExtra, StatFlags, StatReply};
use wire::{ErrorNumber, FileHandle, WireError};

/// An error answer in the making, or a wish that the client ask again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// kXR_error.
    Error {
        /// The protocol's number.
        number: ErrorNumber,
        /// What the user reads.
        text: String,
    },
    /// kXR_wait: the same request again in so many seconds.
    Wait {
        /// At least 1.
        seconds: u32,
        /// Why.
        text: String,
    },
    /// kXR_redirect: ask there.
    Redirect(service::Redirect),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused { code, text } => Refusal::Error { number: ErrorNumber::from(code), text },
            Error::Wait { seconds, text } => Refusal::Wait { seconds, text },
            Error::Redirect(to) => Refusal::Redirect(to),
        }
    }
}

impl Refusal {
    /// What only this protocol knows.
    pub(crate) fn new(number: ErrorNumber, text: impl Into<String>) -> Self {
        // Cut as all texts are.
        match Error::new(types::ErrorCode::Invalid, text) {
            Error::Refused { text, .. } => Refusal::Error { number, text },
            other => other.into(),
        }
    }

    /// The protocol's number of an error; of a wait, that it is too much at the moment.
    pub(crate) fn number(&self) -> ErrorNumber {
        match self {
            Refusal::Error { number, .. } => *number,
            Refusal::Wait { .. } | Refusal::Redirect(_) => ErrorNumber::OVERLOADED,
        }
    }

    /// What the user reads.
    pub(crate) fn text(&self) -> &str {
        match self {
            Refusal::Error { text, .. } | Refusal::Wait { text, .. } => text,
            Refusal::Redirect(_) => "another server is to be asked",
        }
    }

    pub(crate) fn of_name(path: &[u8], error: NameError) -> Self {
        let number = match error {
            NameError::NameTooLong(_) | NameError::PathTooLong(_) => ErrorNumber::ARG_TOO_LONG,
            // as the stock server: "relative path is disallowed"
            NameError::Dots | NameError::NotAbsolute => ErrorNumber::NOT_AUTHORIZED,
            NameError::Empty => ErrorNumber::ARG_MISSING,
            NameError::ForbiddenByte => ErrorNumber::ARG_INVALID,
        };
        let shown = &path[..path.len().min(256)];
        Self::new(number, format!("Path '{}' is refused: {error}", shown.escape_ascii()))
    }

    pub(crate) fn of_wire(error: &WireError) -> Self {
        Self::new(error.number(), error.to_string())
    }

    pub(crate) fn unsupported(what: &str) -> Self {
        Error::unsupported(what).into()
    }
}

/// What the client calls an open file.
pub(crate) fn file_handle(handle: Handle) -> FileHandle {
    FileHandle(handle.0.to_be_bytes())
}

/// The answer to an open.
pub(crate) fn open_reply(opened: &service::Opened) -> OpenReply {
    OpenReply { handle: file_handle(opened.handle), compression: None, stat: opened.stat.as_ref().map(stat_reply) }
}

/// As stat and dirlist show it.
pub(crate) fn stat_reply(stat: &Stat) -> StatReply {
    let mut flags = match stat.kind {
        FileKind::Directory => StatFlags::IS_DIR.with(StatFlags::XSET),
        FileKind::Symlink => StatFlags::OTHER,
        FileKind::File if stat.mode & 0o111 != 0 => StatFlags::XSET,
        FileKind::File => StatFlags::NONE,
    };
    if stat.is_readable {
        flags = flags.with(StatFlags::READABLE);
    }
    if stat.is_writable {
        flags = flags.with(StatFlags::WRITABLE);
    }
    let extra = StatExtra {
        ctime: stat.ctime.secs(),
        atime: stat.atime.secs(),
        mode: stat.mode,
        owner: principal(stat.owner),
        group: principal(stat.group),
    };
    StatReply { id: stat.ino.0, size: stat.len, flags, mtime: stat.mtime.secs(), extra: Some(extra) }
}

/// There is no table of names yet.
fn principal(id: PrincipalId) -> String {
    id.to_string()
}
