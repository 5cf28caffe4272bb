//! How the reasons of the crates below become answers: a number of the protocol and a text that says what was refused,
//! by which rule, and what would help.

use std::fmt::Display;

use disk_server::PlacedError;
use manager::{OpeningError, SumError};
use namespace::NsError;
use store::StoreError;
use types::{ErrorCode, NameError, NsPath};
use wire::{ErrorNumber, WireError};

/// Longest text of an error answer, in bytes.
const TEXT_MAX: usize = 1024;

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
    Redirect(Redirect),
}

/// Where a client is sent.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Redirect {
    /// Host name or address.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// What it is to say there, as opaque data; empty for nothing. Never shown: it is a permission.
    pub(crate) opaque: String,
}

impl std::fmt::Debug for Redirect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redirect({}:{})", self.host, self.port)
    }
}

impl Refusal {
    pub(crate) fn new(number: ErrorNumber, text: impl Into<String>) -> Self {
        let mut text: String = text.into();
        if text.len() > TEXT_MAX {
            let mut end = TEXT_MAX;
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
        }
        Refusal::Error { number, text }
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

    /// `doing` is what was asked ("open /a/b for reading"), `why` the reason.
    pub(crate) fn of_code(code: ErrorCode, doing: &dyn Display, why: &dyn Display) -> Self {
        if code == ErrorCode::Overloaded {
            return Refusal::Wait { seconds: 1, text: format!("Cannot {doing}: {why}") };
        }
        Self::new(ErrorNumber::from(code), format!("Cannot {doing}: {why}"))
    }

    /// The namespace's texts begin with the path, but for those of what lies below it.
    pub(crate) fn of_namespace(verb: &dyn Display, error: &NsError) -> Self {
        match error.code() {
            ErrorCode::Io | ErrorCode::Damaged | ErrorCode::Unavailable => {
                tracing::error!(%verb, %error, "the namespace refused");
            }
            ErrorCode::Overloaded => {
                return Refusal::Wait { seconds: 1, text: format!("Cannot {verb}{} {error}", colon(error)) };
            }
            ErrorCode::Interrupted => {
                return Self::new(ErrorNumber::from(error.code()), format!("Cannot {verb} interrupted file {error}"));
            }
            _ => {}
        }
        Self::new(ErrorNumber::from(error.code()), format!("Cannot {verb}{} {error}", colon(error)))
    }

    /// A write or a close of a file whose close has not succeeded, or is under way.
    pub(crate) fn closed_before(path: &NsPath) -> Self {
        Self::new(
            ErrorNumber::FILE_NOT_OPEN,
            format!(
                "{path} has been closed, or its close has failed; open it again for update to continue, or write it again"
            ),
        )
    }

    /// A refused close with what becomes of the file. Not a wish to ask again: the handle has gone.
    pub(crate) fn of_close(self, becomes: &dyn Display) -> Self {
        let number = self.number();
        Self::new(number, format!("{}; {becomes}", self.text()))
    }

    pub(crate) fn read_only(path: &NsPath) -> Self {
        let text = format!("{path} is open for reading only; open it for update to change it");
        Self::new(ErrorNumber::NOT_AUTHORIZED, text)
    }

    pub(crate) fn busy() -> Self {
        Refusal::Wait { seconds: 1, text: "The server has too much long work to do at the moment".into() }
    }

    pub(crate) fn of_store(doing: &dyn Display, error: &StoreError) -> Self {
        match error.code() {
            ErrorCode::Io | ErrorCode::Damaged | ErrorCode::Checksum | ErrorCode::Unavailable => {
                tracing::error!(%doing, %error, "the store refused");
            }
            _ => {}
        }
        Self::of_code(error.code(), doing, error)
    }

    /// What a disk server of a cluster could not do.
    pub(crate) fn of_placed(doing: &dyn Display, error: &PlacedError) -> Self {
        match error {
            PlacedError::Moved { host, port } | PlacedError::StaleReplica { host, port, .. } => {
                Refusal::Redirect(Redirect { host: host.clone(), port: *port, opaque: String::new() })
            }
            PlacedError::Wait { seconds, .. } => {
                Refusal::Wait { seconds: *seconds, text: format!("Cannot {doing} now: {error}") }
            }
            error => Self::of_code(error.code(), doing, error),
        }
    }

    /// What a manager of a cluster has decided about an open.
    pub(crate) fn of_opening(path: &NsPath, opening: &OpeningError) -> Self {
        match opening {
            OpeningError::Names(error) => Self::of_namespace(&"open", error),
            OpeningError::Wait { seconds, .. } => {
                Refusal::Wait { seconds: *seconds, text: format!("Cannot open {path} now: {opening}") }
            }
            error => Self::of_code(error.code(), &format_args!("open {path}"), error),
        }
    }

    /// What came of having a file read for its checksum.
    pub(crate) fn of_sum(path: &NsPath, error: &SumError) -> Self {
        match error {
            SumError::Opening(error) => Self::of_opening(path, error),
            SumError::NotRead { .. } => {
                Self::of_code(error.code(), &format_args!("compute the checksum of {path}"), error)
            }
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
        Self::new(ErrorNumber::UNSUPPORTED, format!("{what} is not supported by this server"))
    }

    pub(crate) fn not_open() -> Self {
        Self::new(ErrorNumber::FILE_NOT_OPEN, "The file handle does not refer to an open file of this session")
    }

    pub(crate) fn fenced(path: &NsPath) -> Self {
        Self::new(
            ErrorNumber::FILE_NOT_OPEN,
            format!(
                "{path} has been opened again by another connection of its writer; this handle can change nothing any more"
            ),
        )
    }
}

/// What stands between the verb and an error that does not begin with a path.
fn colon(error: &NsError) -> &'static str {
    match error {
        NsError::Kv(_) | NsError::OutOfNumbers => ":",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_read_well_with_and_without_a_path() {
        let text = |error: &NsError| Refusal::of_namespace(&"mkdir", error).text().to_owned();
        assert_eq!(text(&NsError::Exists("/a".into())), "Cannot mkdir /a: exists already");
        assert!(text(&NsError::OutOfNumbers).starts_with("Cannot mkdir: the next range"));
    }
}
