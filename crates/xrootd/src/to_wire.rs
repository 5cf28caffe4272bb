//! Translates results into the protocol: error codes into numbers, attributes into those of stat.

use service::{Error, FileKind, Handle, Service, Stat};
use types::NameError;
use wire::response::{OpenReply, StatExtra, StatFlags, StatReply};
use wire::{ErrorNumber, FileHandle, WireError};

use crate::front_end::PROTOCOL;

/// An answer other than success.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum RequestError {
    /// kXR_error.
    Error {
        /// The protocol's number.
        number: ErrorNumber,
        /// The text for the user.
        text: String,
    },
    /// kXR_wait: repeat the request later.
    Wait {
        /// How long to wait; at least 1.
        seconds: u32,
        /// The reason.
        text: String,
    },
    /// kXR_redirect: contact another server.
    Redirect(RedirectTo),
}

/// The server that the client should contact.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RedirectTo {
    /// Host name or address.
    pub(crate) host: String,
    /// The port.
    pub(crate) port: u16,
    /// What the client must present there, as `key=value&key=value`; may be empty. Never log it: it contains a
    /// capability.
    pub(crate) words: String,
}

impl std::fmt::Debug for RedirectTo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RedirectTo({}:{})", self.host, self.port)
    }
}

impl From<service::Redirect> for RequestError {
    fn from(to: service::Redirect) -> Self {
        match to.address(PROTOCOL) {
            Ok(at) => {
                let words = to.shows().into_iter().map(|(key, value)| format!("{key}={value}"));
                let words = words.collect::<Vec<_>>().join("&");
                RequestError::Redirect(RedirectTo { host: at.host.clone(), port: at.port, words })
            }
            Err(error) => RequestError::new(ErrorNumber::from(error.code()), error.text()),
        }
    }
}

impl From<Error> for RequestError {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused { code, text } => RequestError::Error { number: ErrorNumber::from(code), text },
            Error::Wait { seconds, text } => RequestError::Wait { seconds, text },
            Error::Redirect(to) => (*to).into(),
        }
    }
}

impl RequestError {
    /// An error that exists only in this protocol.
    pub(crate) fn new(number: ErrorNumber, text: impl Into<String>) -> Self {
        // This cuts the text in the same way as all others.
        match Error::new(types::ErrorCode::Invalid, text) {
            Error::Refused { text, .. } => RequestError::Error { number, text },
            other => other.into(),
        }
    }

    /// The protocol's number. Waits and redirects count as overload.
    pub(crate) fn number(&self) -> ErrorNumber {
        match self {
            RequestError::Error { number, .. } => *number,
            RequestError::Wait { .. } | RequestError::Redirect(_) => ErrorNumber::OVERLOADED,
        }
    }

    /// The text for the user.
    pub(crate) fn text(&self) -> &str {
        match self {
            RequestError::Error { text, .. } | RequestError::Wait { text, .. } => text,
            RequestError::Redirect(_) => "another server has it",
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

/// The client's handle of an open file.
pub(crate) fn file_handle(handle: Handle) -> FileHandle {
    FileHandle(handle.0.to_be_bytes())
}

/// The answer to an open.
pub(crate) fn open_reply(service: &Service, opened: &service::Opened) -> OpenReply {
    let stat = opened.stat.as_ref().map(|stat| stat_reply(service, stat));
    OpenReply { handle: file_handle(opened.handle), compression: None, stat, beginning: Vec::new() }
}

/// The attributes as stat and dirlist show them, with the names of owner and group where `service` knows them.
pub(crate) fn stat_reply(service: &Service, stat: &Stat) -> StatReply {
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
    if stat.is_unfinished {
        flags = flags.with(StatFlags::POSC_PENDING);
    }
    let extra = StatExtra {
        ctime: stat.ctime.secs(),
        atime: stat.atime.secs(),
        mode: stat.mode,
        owner: service.shown_principal(stat.owner).to_string(),
        group: service.shown_principal(stat.group).to_string(),
    };
    StatReply { id: stat.ino.0, size: stat.len, flags, mtime: stat.mtime.secs(), extra: Some(extra) }
}
