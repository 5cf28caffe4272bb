//! The error of this crate. A front end translates it into its protocol.

use std::fmt::{self, Display};

use disk_server::{DiskServerError, NotAgreed};
use manager::{OpeningError, SumError};
use namespace::NsError;
use store::StoreError;
use types::absent_replicas::{ABSENT_REPLICAS_KEY, AbsentReplica};
use types::capability::{OBJECT_KEY, OPAQUE_KEY};
use types::direct::{STRIPED_KEY, StripedFile, UNITS_KEY, UnitAddress};
use types::full_stores::{FULL_STORES_KEY, show_full_stores};
use types::{ClientAddress, ErrorCode, NodeId, NsPath, ObjectId, StoreId};

/// Maximum length of an error text, in bytes.
const TEXT_MAX: usize = 1024;

/// Why a request failed, or where the client should send it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// The request failed.
    Refused {
        /// The code, for programs.
        code: ErrorCode,
        /// The text, for users: what failed, by which rule, and what would help.
        text: String,
    },
    /// The same request may succeed later.
    Wait {
        /// How long to wait; at least 1.
        seconds: u32,
        /// The reason.
        text: String,
    },
    /// Another server handles this request.
    Redirect(Box<Redirect>),
}

/// The key with which a reader says that it follows a file that is being written.
pub const FOLLOW_KEY: &str = "weir.follow";

/// The key with which a manager says that a client comes back to a file that it has open for writing, or repeats its request.
pub const RETURNS_KEY: &str = "weir.returns";

/// The key with which a disk server says, in the redirect that answers a read, which object the client was reading. A stock
/// client opens the file again by its name then, and reads on in the middle: it must not get another file.
pub const SAME_OBJECT_KEY: &str = "weir.same";

/// The server that the client should contact. A front end makes a URL of its protocol from it.
#[derive(Clone, PartialEq, Eq)]
pub struct Redirect {
    /// The server; `None`: the manager of the cluster.
    pub node: Option<NodeId>,
    /// Where clients reach it, for each protocol that it speaks.
    pub(crate) addresses: Vec<ClientAddress>,
    /// The capability that the client must show there, and the object that it is for. Never log it.
    pub capability: Option<(String, ObjectId)>,
    /// Stale replicas that the client has met, which it must report there.
    pub absent_replicas: Vec<AbsentReplica>,
    /// Stores that had no room for the client's new file, which it must report there.
    pub full_stores: Vec<StoreId>,
    /// The striped file, for a client that can access its stripe units directly.
    pub striped: Option<StripedFile>,
    /// Where to read its first stripe units, for such a client. The addresses are for the client's protocol.
    pub units: Vec<UnitAddress>,
    /// The manager's policy lets this reader follow a file that is being written. The server there does not know the policy.
    pub(crate) follows: bool,
    /// The client comes back to a file that it has open for writing, or repeats its request.
    pub(crate) returns: bool,
    /// The object that the client was reading. The server there must give it no other.
    pub(crate) same_object: Option<ObjectId>,
}

impl fmt::Debug for Redirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redirect").field("node", &self.node).field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl From<manager::Redirect> for Redirect {
    fn from(to: manager::Redirect) -> Self {
        let manager::Redirect { node, addresses, capability, object, striped, units, unfinished: _ } = to;
        let capability = Some((capability, object));
        Self {
            node: Some(node),
            addresses,
            capability,
            absent_replicas: Vec::new(),
            full_stores: Vec::new(),
            striped,
            units,
            follows: false,
            returns: false,
            same_object: None,
        }
    }
}

impl Redirect {
    /// Sends the client to the manager. Disk servers know only its address for `root://`.
    pub(crate) fn to_manager(host: String, port: u16) -> Self {
        Self {
            node: None,
            addresses: vec![ClientAddress::root(host, port)],
            capability: None,
            absent_replicas: Vec::new(),
            full_stores: Vec::new(),
            striped: None,
            units: Vec::new(),
            follows: false,
            returns: false,
            same_object: None,
        }
    }

    /// Where clients of `protocol` reach the server.
    ///
    /// # Errors
    /// The server has no address for them.
    pub fn address(&self, protocol: &str) -> Result<&ClientAddress, Error> {
        self.addresses.iter().find(|address| address.protocol == protocol).ok_or_else(|| {
            let who = self.node.map_or_else(|| "the cluster's manager".to_owned(), |node| format!("node {node}"));
            let others: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
            let text = format!(
                "Cannot send you on: {who} handles this request and has no address for clients of {protocol}://; it can be reached at {}",
                others.join(", ")
            );
            Error::new(ErrorCode::Unsupported, text)
        })
    }

    /// What the client must show at the server, as keys and values. They have no characters that a URL must escape.
    #[must_use]
    pub fn shows(&self) -> Vec<(&'static str, String)> {
        let mut shows = Vec::new();
        if let Some((capability, object)) = &self.capability {
            shows.push((OPAQUE_KEY, capability.clone()));
            shows.push((OBJECT_KEY, format!("{:016x}", object.0)));
        }
        if let Some((last, before)) = self.absent_replicas.split_last() {
            shows.push((ABSENT_REPLICAS_KEY, last.show(before)));
        }
        if !self.full_stores.is_empty() {
            shows.push((FULL_STORES_KEY, show_full_stores(&self.full_stores)));
        }
        shows.extend(self.striped.map(|striped| (STRIPED_KEY, striped.show())));
        shows.extend(UnitAddress::show_all(&self.units).map(|units| (UNITS_KEY, units)));
        if self.follows {
            shows.push((FOLLOW_KEY, "1".to_owned()));
        }
        if self.returns {
            shows.push((RETURNS_KEY, "1".to_owned()));
        }
        if let Some(object) = self.same_object {
            shows.push((SAME_OBJECT_KEY, format!("{:016x}", object.0)));
        }
        shows
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for Error {}

impl Error {
    /// An error with this code. A text that is too long is cut.
    pub fn new(code: ErrorCode, text: impl Into<String>) -> Self {
        let mut text: String = text.into();
        if text.len() > TEXT_MAX {
            let mut end = TEXT_MAX;
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
        }
        Error::Refused { code, text }
    }

    /// Another server handles this request.
    pub(crate) fn redirect(to: impl Into<Redirect>) -> Self {
        Error::Redirect(Box::new(to.into()))
    }

    /// The code of the error. Waits and redirects count as [`ErrorCode::Overloaded`].
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Error::Refused { code, .. } => *code,
            Error::Wait { .. } | Error::Redirect(_) => ErrorCode::Overloaded,
        }
    }

    /// The text for the user.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Error::Refused { text, .. } | Error::Wait { text, .. } => text,
            Error::Redirect(_) => "another server has it",
        }
    }

    /// Builds the text from `doing`, the request ("open /a/b for reading"), and `why`, the reason.
    pub(crate) fn of_code(code: ErrorCode, doing: &dyn Display, why: &dyn Display) -> Self {
        if code == ErrorCode::Overloaded {
            return Error::Wait { seconds: 1, text: format!("Cannot {doing}: {why}") };
        }
        Self::new(code, format!("Cannot {doing}: {why}"))
    }

    /// Errors of the namespace begin with a path, except those that it passes on from lower crates.
    pub(crate) fn of_namespace(verb: &dyn Display, error: &NsError) -> Self {
        match error.code() {
            ErrorCode::Io | ErrorCode::Damaged | ErrorCode::Unavailable => {
                tracing::error!(%verb, %error, "the namespace refused");
            }
            ErrorCode::Overloaded => {
                return Error::Wait { seconds: 1, text: format!("Cannot {verb}{} {error}", colon(error)) };
            }
            ErrorCode::Interrupted => {
                return Self::new(error.code(), format!("Cannot {verb} interrupted file {error}"));
            }
            _ => {}
        }
        Self::new(error.code(), format!("Cannot {verb}{} {error}", colon(error)))
    }

    /// Answers an open for writing of an upload that its client has discarded.
    pub(crate) fn being_discarded(path: &NsPath) -> Self {
        let text = format!("Cannot open {path}: what was written is being discarded; write it again");
        Self::new(ErrorCode::Stale, text)
    }

    /// Answers a write or close of a file whose close has failed or is under way.
    pub(crate) fn closed_before(path: &NsPath) -> Self {
        Self::new(
            ErrorCode::Stale,
            format!(
                "{path} has been closed, or its close has failed; open it again for update to continue, or write it again"
            ),
        )
    }

    /// A failed close, with what happens to the file. It is never a wait: the handle is gone, so the client cannot
    /// repeat the close.
    pub(crate) fn of_close(self, becomes: &dyn Display) -> Self {
        let code = self.code();
        Self::new(code, format!("{}; {becomes}", self.text()))
    }

    pub(crate) fn read_only(path: &NsPath) -> Self {
        let text = format!("{path} is open for reading only; open it for update to change it");
        Self::new(ErrorCode::Denied, text)
    }

    /// The service is stopping.
    pub(crate) fn going_down() -> Self {
        Self::new(ErrorCode::Unavailable, "The server is going down")
    }

    /// Answers an open while the service is stopping. The client comes again: to this server after its restart, or by the manager to another one.
    #[must_use]
    pub fn wait_for_restart() -> Self {
        Error::Wait { seconds: 1, text: "The server is going down".into() }
    }

    pub(crate) fn busy() -> Self {
        Error::Wait { seconds: 1, text: "The server has too much long work to do at the moment".into() }
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

    /// From an error of a disk server.
    pub(crate) fn of_disk_server(doing: &dyn Display, error: &DiskServerError) -> Self {
        match error {
            DiskServerError::Moved { host, port } | DiskServerError::AbsentReplica { host, port, .. } => {
                Error::redirect(Redirect::to_manager(host.clone(), *port))
            }
            DiskServerError::Wait { seconds, .. } => {
                Error::Wait { seconds: *seconds, text: format!("Cannot {doing} now: {error}") }
            }
            error => Self::of_code(error.code(), doing, error),
        }
    }

    /// From the manager's answer to a disk server's request about an open write. Nothing has ended.
    pub(crate) fn of_manager(doing: &dyn Display, error: &NotAgreed) -> Self {
        match Self::of_code(error.code(), doing, error) {
            Error::Refused { code, text } => Self::new(code, format!("{text}; the file stays open")),
            other => other,
        }
    }

    /// From a manager's decision about an open.
    pub(crate) fn of_opening(path: &NsPath, opening: &OpeningError) -> Self {
        match opening {
            OpeningError::Names(error) => Self::of_namespace(&"open", error),
            OpeningError::Wait { seconds, .. } => {
                Error::Wait { seconds: *seconds, text: format!("Cannot open {path} now: {opening}") }
            }
            error => Self::of_code(error.code(), &format_args!("open {path}"), error),
        }
    }

    /// From an error while a file was read for its checksum.
    pub(crate) fn of_sum(path: &NsPath, error: &SumError) -> Self {
        match error {
            SumError::Opening(error) => Self::of_opening(path, error),
            SumError::NotRead { .. } => {
                Self::of_code(error.code(), &format_args!("compute the checksum of {path}"), error)
            }
        }
    }

    /// `what` is not supported.
    #[must_use]
    pub fn unsupported(what: &str) -> Self {
        Self::new(ErrorCode::Unsupported, format!("{what} is not supported by this server"))
    }

    /// The handle is unknown.
    #[must_use]
    pub fn not_open() -> Self {
        Self::new(ErrorCode::Stale, "The file handle does not refer to an open file of this session")
    }

    /// Another handle of the same writer has taken the file over.
    #[must_use]
    pub fn fenced(path: &NsPath) -> Self {
        Self::new(
            ErrorCode::Stale,
            format!(
                "{path} has been opened again by another connection of its writer; this handle can change nothing any more"
            ),
        )
    }
}

/// The separator between the verb and an error that does not begin with a path.
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
    fn texts_are_correct_with_and_without_a_path() {
        let text = |error: &NsError| Error::of_namespace(&"mkdir", error).text().to_owned();
        assert_eq!(text(&NsError::Exists("/a".into())), "Cannot mkdir /a: exists already");
        assert!(text(&NsError::OutOfNumbers).starts_with("Cannot mkdir: the next range"));
    }
}
